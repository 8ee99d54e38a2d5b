// The order page: one order in its panel, what its sale offers now, and the way back there.
const orderId = (() => { try { return decodeURIComponent(location.pathname.split("/")[2]); } catch { return ""; } })();
K.seen = "doorbuster.seen";

// What was seen last is shown at once after a reload, to the same buyer.
function kept(order) { write(K.seen, order && JSON.stringify({ user: S.user, order })); }
function heard({ saleId }) {
	S.missing = false;
	if (S.sale?.saleId !== saleId) loadSale(saleId);
}
function gone() { S.missing = true; setOrder(null); say(t("goneT")); }
function signedIn() {
	S.refused = S.missing = false;
	keepFocus(E.sign, E.yours);
	follow(orderId);
}
function signedOut() {
	S.run++; S.refused = true; S.missing = false;
	setOrder(null); setToken(null);
	render();
}

// The order's sale: for names, and once the order is closed for what is left.
let saleTimer = 0, saleFails = 0, looks = 0;
const itemOf = id => S.sale?.items.find(i => i.itemId === id);
const saleEnded = () => S.sale.state === "closed" || now() >= Date.parse(S.sale.closesAt);
const isOver = o => o && isFinal(o) && o.status !== "PAID";
async function loadSale(id = S.order?.saleId) {
	clearTimeout(saleTimer);
	if (!id) return;
	const r = await api("GET", saleApi(id), { open: true });
	let wait = 0;
	if (r.status === 200 && r.data.items) {
		saleFails = 0;
		S.sale = r.data;
		// Its units come back within a second or two, others' later.
		if (isOver(S.order) && !saleEnded()) wait = looks++ ? jitter(12000, 20000) * (document.hidden ? 4 : 1) : jitter(1500, 3000);
	} else if (r.status !== 404) {
		wait = r.wait || backoff(++saleFails);
	}
	if (wait) saleTimer = setTimeout(loadSale, wait);
	render();
}

// What can still be had of a closed order's item, or "".
function offer(o) {
	const item = itemOf(o.itemId);
	if (!isOver(o) || !item) return "";
	if (saleEnded()) return t("ended");
	if (item.free === undefined) return "";
	return item.free > 0 ? t("stock", { n: number(item.free) }) : t(item.held > 0 ? "nSoldMay" : "nextSold");
}
function render() {
	const o = S.order, ask = S.askAt - ticks(), asking = S.token && !o && ask > 0, lost = S.token && S.missing;
	drawWho(); drawOrder();
	E.trouble.hidden = !(E.app.hidden = !!(asking || lost));
	put(E.troubleTitle, t(lost ? "goneT" : "oNews"));
	put(E.troubleText, lost ? t("goneP") : asking ? t("netP", { in: inTime(ask) }) : "");
	E.retryNow.hidden = !!lost;
	show(E.saleName, S.sale?.name || S.token && !o && t("looking"));
	show(E.nextText, o && offer(o));
	E.next.hidden = E.nextText.hidden;
	const sale = o?.saleId || boot.saleId;
	lead(E.saleLink, sale && salePage(sale));
	document.title = (o ? t(face(o)[0]) : lost ? t("goneT") : t("yours")) + (o ? " · " + t("yours") : "");
}
const aim = () => S.order?.expiresAt ? Date.parse(S.order.expiresAt) - now() : 0;

on(E.retryNow, "click", () => follow(orderId));
on(E.switchUser, "click", () => { keepFocus(E.switchUser, E.yours); signedOut(); S.refused = false; render(); });
on(document, "visibilitychange", () => {
	if (document.hidden) return;
	if (ticks() - clock.at > 5000) syncClock();
	if (isOver(S.order) || S.order?.status === "PAID") follow(orderId, jitter(0, 2000));
});
on(window, "online", () => { if (S.token && !S.missing) follow(orderId, jitter(200, 1200)); });

const seen = parse(read(K.seen));
if (S.token && seen?.user === S.user && seen.order?.orderId === orderId) setOrder(seen.order);
S.ready = true;
tick();
if (S.token) follow(orderId);
