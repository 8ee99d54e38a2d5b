// The panel of one order: what became of it, paying, cancelling, and following it until it is final.
// A page that has it defines `loadSale`; `itemOf`, an item of the loaded sale; `kept`, for an order as
// it is shown; `heard`, for one that the shop knows; `gone`, for one that it does not; and `signedOut`.
const isLive = o => o.status === "PENDING" || o.status === "PAID";
const isFinal = o => o.status !== "PENDING";
// Something may still follow: a payment that came late buys again, or is given back.
const isSettled = o => isFinal(o) && o.refund?.status !== "DUE" && (o.status !== "EXPIRED" || o.retakenBy || o.refund);
const payingKey = id => "doorbuster.paying." + id;

function setOrder(order) {
	const before = S.order && S.order.orderId === order?.orderId && face(S.order)[0];
	if (!before) { S.orderNote = ""; S.askAt = 0; E.cancelBox.open = false; }
	S.order = order;
	kept(order);
	if (!order) return;
	if (isFinal(order)) write(payingKey(order.orderId));
	if (before && before !== face(order)[0]) say(t(face(order)[0]));
}
async function follow(id, wait = 0) {
	const run = ++S.run;
	let etag, fails = 0, missing = 0, looks = 0;
	await sleep(wait);
	while (run === S.run && S.token) {
		const began = ticks(), r = await api("GET", orderApi(id) + (etag ? "?wait=10s" : ""), { headers: etag && { "If-None-Match": etag }, ms: 20000 });
		if (run !== S.run) return;
		let pause = 1000 - (ticks() - began);
		S.askAt = 0;
		if (r.status === 200 && r.data.orderId) {
			fails = missing = 0; etag = r.etag;
			const closing = isFinal(r.data) && S.order && !isFinal(S.order);
			heard(r.data); setOrder(r.data); render();
			if (closing) loadSale();
			if (isSettled(r.data)) return;
			// Behind the end little happens: it is looked at now and then, whatever its tag.
			if (isFinal(r.data)) { etag = null; pause = Math.min(60000, 5000 * 1.5 ** looks++) * jitter(.8, 1.2); }
			else if (!etag) pause = 2000;
		} else if (r.status === 401) {
			return signedOut();
		} else if (r.status === 404) { // Asked twice: the shop does not know it.
			pause = 2000;
			if (++missing > 1) { gone(id); return render(); }
		} else if (r.status !== 304) {
			pause = r.wait || backoff(++fails);
			S.askAt = ticks() + pause;
		}
		render();
		await sleep(pause);
	}
}
async function cancelOrder() {
	const id = S.order.orderId;
	if (S.cancelling) return;
	S.cancelling = true; S.orderNote = "";
	render();
	const r = await api("DELETE", orderApi(id));
	S.cancelling = false;
	if (S.order?.orderId === id) {
		if (r.status === 200 && r.data.orderId) { setOrder(r.data); loadSale(); }
		if (r.status === 200 || r.status === 409) follow(id); // 409: paid or closed meanwhile.
		else if (r.status === 401) signedOut();
		else say(S.orderNote = t("netT"));
	}
	render();
}

// To the provider's page. Whatever it does there, the order is followed here.
async function payOrder() {
	const id = S.order.orderId;
	if (S.paying) return;
	S.paying = true; S.orderNote = ""; say(t("payGoing"));
	render();
	const r = await api("POST", orderApi(id) + "/payment", { ms: 30000 });
	S.paying = false;
	if (S.order?.orderId === id) {
		if (r.status === 200 && r.data.paymentUrl) { write(payingKey(id), "1"); return location.assign(r.data.paymentUrl); }
		if (r.status === 401) signedOut();
		else if (r.status === 409 && r.data.error !== "NOT_PAYABLE") follow(id);
		else say(S.orderNote = t("payDown"));
	}
	render();
}

// An order's [title, text, mark, whether it is over]; without a mark it turns.
function face(o) {
	// Whoever paid too late is owed something, or has the units by another order.
	const again = o.refund || o.retakenBy ? "" : " " + t("oAgain");
	switch (o.status) {
		case "PAID": return ["oPaid", t("oPaidP"), "✓"];
		case "EXPIRED": return ["oExpired", t("oExpiredP") + again, "–", true];
		case "CANCELLED": return ["oCancelled", t("oCancelledP") + again, "–", true];
		case "REJECTED": return ["oRejected", t({ NO_STOCK: "rStock", LIMIT: "rLimit", RETAKE_REFUSED: "rRetake" }[o.reason] || "rOther") + again, "!", true];
		case "REFUNDED": return ["oRefunded", o.refund ? "" : t("oRefundedP"), "–", true];
	}
	if (o.unknown) return ["oUnknown", t("oUnknownP"), ""];
	if (!o.expiresAt) return ["oQueued", t("oQueuedP"), ""];
	if (Date.parse(o.expiresAt) <= now()) return ["oLate", t("oLateP"), ""];
	return ["oPay", t(boot.payments ? "oPayOnline" : "oPayP"), "…"];
}
const REFUNDS = { DUE: "fDue", DONE: "fDone", REFUSED: "fRefused" };
function drawOrder() {
	const o = S.order;
	E.order.hidden = !o;
	if (!o) return;
	const [title, text, mark, over] = face(o), pay = title === "oPay", item = itemOf(o.itemId), ask = S.askAt - ticks();
	E.order.classList.toggle("over", !!over);
	E.orderMark.classList.toggle("spin", !mark);
	put(E.orderMark, mark); put(E.orderTitle, t(title)); put(E.orderText, text); put(E.orderId, o.orderId);
	put(E.orderItem, item ? (o.quantity > 1 ? number(o.quantity) + " × " : "") + item.title : "…");
	E.oTotal.hidden = !o.total; show(E.total, o.total && money(o.total));
	E.pay.hidden = !pay;
	if (pay) {
		const end = Date.parse(o.expiresAt), s = Math.ceil((end - now()) / 1000);
		put(E.payClock, s < 3600 ? hms(s).slice(3) : hms(s));
		put(E.payBy, t("payBy", { when: date(end, { second: "2-digit" }) }));
		mention("pay" + o.orderId, s, [600, 120, 60, 10], "payLeft");
	}
	const payable = pay && boot.payments, begun = (payable || title === "oLate") && read(payingKey(o.orderId));
	if (!payable) keepFocus(E.payNow, E.orderTitle);
	E.payNow.hidden = !payable;
	put(E.payNow, t(S.paying ? "payGoing" : begun ? "payOn" : "payNow")); flag(E.payNow, "disabled", S.paying);
	const cancellable = pay || title === "oQueued";
	if (!cancellable) keepFocus(E.cancelBox, E.orderTitle);
	E.cancelBox.hidden = !cancellable;
	flag(E.cancelYes, "disabled", S.cancelling);
	show(E.orderNote, ask > 0 ? t("oTrouble", { in: inTime(ask) }) : S.orderNote || begun && t(pay ? "payBegun" : "payLate"));
	show(E.refund, REFUNDS[o.refund?.status] && t(REFUNDS[o.refund.status]));
	E.retaken.hidden = !o.retakenBy;
	lead(E.retakenLink, o.retakenBy && orderPage(o.retakenBy));
	show(E.retakeOf, o.retakeOf && t("oRetakeOf", { order: o.retakeOf }));
}
on(E.payNow, "click", payOrder);
on(E.cancelYes, "click", cancelOrder);
// Back from the payment page by the browser's own cache.
on(window, "pageshow", event => {
	S.paying = false;
	if (event.persisted && S.order) follow(S.order.orderId);
	render();
});
