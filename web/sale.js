// The sale page: the countdown, the items, one order in its panel, and buying.
const saleId = new URLSearchParams(location.search).get("sale") || boot.saleId;
const SALE = saleApi(saleId);
K.order = "doorbuster.order." + saleId; K.intent = "doorbuster.intent." + saleId; K.place = "doorbuster.place." + saleId;

// `attempt` is the purchase in flight, `orders` what this buyer has, `notes` the last answer for each item, `line` the
// last answer of the waiting room.
Object.assign(S, { attempt: null, orders: {}, notes: {}, startsAt: 0, saleToken: null, line: null });

// The sale itself.
let saleTimer = 0, saleFails = 0;
const saleIn = ms => { clearTimeout(saleTimer); saleTimer = setTimeout(loadSale, Math.min(ms, 1e9)); };
async function loadSale() {
	clearTimeout(saleTimer);
	const r = await api("GET", SALE, { open: true });
	if (r.status === 200 && r.data.items) {
		saleFails = 0;
		const sale = S.sale = r.data;
		S.opens = Date.parse(sale.opensAt); S.closes = Date.parse(sale.closesAt);
		if (!clock.synced) clock.offset = Date.parse(sale.serverTime) - ticks();
		for (const { itemId, title, free } of sale.items) {
			const n = S.notes[itemId];
			if (n?.sold && free > 0 && n.until < ticks()) { delete S.notes[itemId]; say(title + " · " + t("stock", { n: number(free) })); }
		}
		if (!sale.waitingRoom) S.line = null;
		saleIn(nextLook());
		getSaleToken();
	} else if (r.status === 404 && !S.sale) {
		S.trouble = { title: "noneT" };
	} else {
		const wait = r.wait || backoff(++saleFails);
		S.trouble = { title: "netT", until: ticks() + wait };
		saleIn(wait);
	}
	render();
}
// Looks again now and then, spread out, never in the rush at the opening.
function nextLook() {
	const p = phase(), left = opening() - now(), wait = p === "before" ? jitter(25000, 50000) : p === "paused" ? jitter(6000, 10000) : jitter(12000, 20000);
	if (p === "ended") return 300000;
	return p === "before" && wait > left - 3000 ? left + jitter(3000, 13000) : document.hidden ? wait * 4 : wait;
}
const opening = () => Math.max(S.opens, S.startsAt);
function phase() {
	const { state } = S.sale, time = now();
	if (state === "closed" || time >= S.closes || S.ended) return "ended";
	if (state === "paused") return state;
	return time >= opening() || state === "open" && time >= S.startsAt ? "open" : "before";
}

async function newToken() {
	S.run++; setToken(null); dropSaleToken(); S.startsAt = 0; // Another buyer may come sooner.
	if (boot.demoToken) {
		forget();
		const r = await api("POST", "/demo/token");
		if (r.data.token) { setToken(r.data.token); S.user ||= r.data.user; }
	}
	S.refused = !S.token; S.ready = true;
	render();
	getSaleToken();
}
function forget() {
	done();
	S.orders = {}; S.notes = {}; S.line = null; write(K.intent); write(K.place); setOrder(null);
}
function signedIn() {
	S.notes = {}; dropSaleToken(); S.startsAt = 0;
	keepFocus(E.sign, E.name);
	findOrders(); getSaleToken();
}
function signedOut() { newToken(); }

// Orders: which one is shown, and what the panel tells of it.
const held = () => Object.values(S.orders).filter(isLive).reduce((sum, o) => sum + o.quantity, 0);
function kept(order) {
	write(K.order, order && JSON.stringify(order));
	if (order) S.orders[order.orderId] = order;
}
function heard() { write(K.intent); }
function gone(id) {
	const { unknown, itemId } = S.order;
	delete S.orders[id]; setOrder(null); write(K.intent);
	if (unknown) note(itemId, "oGone");
}
// What does this buyer hold? A remembered order may still be queued and absent from the list.
async function findOrders() {
	const { token } = S, mine = S.order || parse(read(K.order));
	if (!token) return;
	if (mine) select(mine);
	for (let fails = 1; fails < 6; fails++) {
		const r = await api("GET", SALE + "/orders");
		if (token !== S.token) return;
		if (r.status === 401) return newToken(); // A new demo shopper has none.
		if (r.status === 404) return;
		if (r.data.orders) {
			for (const o of r.data.orders) if (o.orderId !== S.order?.orderId) S.orders[o.orderId] = o;
			const pick = r.data.orders.find(isLive) || r.data.orders[0];
			if (pick && !S.order) select(pick);
			return render();
		}
		await sleep(r.wait || backoff(fails));
	}
}
function select(order) {
	setOrder(order);
	follow(order.orderId);
}

// A captcha: which number has this hash? A hundred at a time, so that the page stays awake.
const hex = bytes => Array.from(new Uint8Array(bytes), b => b.toString(16).padStart(2, "0")).join("");
async function solve({ algorithm, challenge, maxnumber, salt, signature }) {
	const bytes = new TextEncoder();
	if (!crypto.subtle) return; // There is none where the page came unencrypted.
	for (let from = 0; from <= maxnumber; from += 100) {
		const tries = Array.from({ length: 100 }, (_, i) => crypto.subtle.digest(algorithm, bytes.encode(salt + (from + i))));
		const found = (await Promise.all(tries)).findIndex(hash => hex(hash) === challenge);
		if (found >= 0) return btoa(JSON.stringify({ algorithm, challenge, number: from + found, salt, signature }));
	}
}
// A sale token, for a sale that requires one: asked for when this buyer's moment comes, long before the click; where
// buyers wait, for as long as it takes. The place in the line is kept by what the room answers.
// `widgetAnswer` is in captcha.js, for pages whose captchas are another's; it says by `endCaptcha` how to give up.
let tokenTimer = 0, tokenAt = 0, tokenFails = 0, tokenRun = 0, endCaptcha;
async function getSaleToken(due) {
	const { sale } = S, room = sale?.waitingRoom;
	if (!S.token || !room && !sale?.tokenRequired || phase() === "ended" || !due && ticks() < tokenAt) return;
	const run = ++tokenRun, place = room && read(K.place), path = SALE + (room ? "/waiting-room" : "/token");
	const ask = more => api("POST", path, { body: { ...place && { place }, ...more } });
	clearTimeout(tokenTimer); tokenAt = Infinity;
	let r = await ask();
	if (r.data.error === "CAPTCHA_REQUIRED") {
		r = await api("GET", SALE + "/challenge");
		const captcha = r.data.provider ? await widgetAnswer(r.data) : r.data.challenge && await solve(r.data);
		if (captcha && run === tokenRun) r = await ask({ captcha });
	}
	if (run !== tokenRun) return;
	const { data } = r, ends = Date.parse(data.expiresAt), left = ends - now();
	let wait = data.startsInMs || r.wait || data.refreshInMs || backoff(++tokenFails);
	if (data.place) write(K.place, data.place);
	if (r.status === 200 && data.status) stand(data);
	if (data.waitingRoom) { sale.waitingRoom = true; wait = 0; }
	if (data.status === "NOT_NEEDED") { sale.waitingRoom = false; wait = sale.tokenRequired ? 0 : Infinity; }
	if (data.token) {
		tokenFails = 0;
		S.saleToken = data.token;
		// One that lasts until the sale is over needs no other; a turn is had once.
		wait = ends > S.closes - 1000 || room && held() ? Infinity : room ? left + 1000 : Math.max(30000, left * .8);
	} else if (["NOT_ELIGIBLE", "ENDED"].includes(data.error) || r.status === 401 || r.status === 404) wait = Infinity;
	tokenAt = ticks() + wait + (room ? 0 : jitter(200, 2000));
	if (wait < 1e9) tokenTimer = setTimeout(getSaleToken, tokenAt - ticks(), true);
	render();
	return wait;
}
// What the waiting room says of this buyer.
function stand(data) {
	const before = S.line?.status, first = S.line?.first ?? data.ahead;
	S.line = { ...data, first };
	if (data.status === "NOT_NEEDED") write(K.place);
	if (!data.token) S.saleToken = null;
	if (data.status !== before && lineTitle()) say(lineTitle());
}
const lineTitle = () => ({ PREQUEUE: t("lineT"), WAITING: t("lineT"), ADMITTED: t("lineYou") })[S.line?.status];
function drawLine() {
	const { status, ahead, first, soldOut, waitSeconds, expiresAt } = S.line || {}, left = Date.parse(expiresAt) - now(), inside = status === "ADMITTED";
	E.line.hidden = !lineTitle() || S.phase === "ended" || inside && (left < 0 || held() > 0);
	if (E.line.hidden) return;
	put(E.lineTitle, lineTitle());
	E.lineBar.hidden = status !== "WAITING"; E.lineH.hidden = inside;
	E.lineBar.value = first ? 1 - ahead / first : 1;
	put(E.lineText, inside ? t("lineEnd", { in: inTime(left) }) : status === "PREQUEUE" ? t("linePre")
		: t("lineP", { n: number(ahead) }) + " " + (soldOut ? t("lineSold") : waitSeconds ? t("lineTime", { time: span(waitSeconds) }) : t("lineNone")));
}
function dropSaleToken() { clearTimeout(tokenTimer); endCaptcha?.(); tokenRun++; tokenAt = tokenFails = 0; S.saleToken = null; }

// Buying: one request in flight. All tries of a click carry one key, so that it is one order.
function buy(item, quantity) {
	const lock = lockOf(item), { itemId, price: { minor } } = item;
	if (lock) return say(lock.label + ". " + lock.why);
	let intent = parse(read(K.intent));
	if (!intent || intent.itemId !== itemId || intent.quantity !== quantity || intent.minor !== minor) {
		const key = hex(crypto.getRandomValues(new Uint8Array(16)));
		intent = { itemId, quantity, minor, key };
		write(K.intent, JSON.stringify(intent));
	}
	delete S.notes[itemId];
	S.attempt = { ...intent, tries: 0, broken: 0, early: 0, tokens: 0 };
	send(S.attempt);
}
async function send(a) {
	a.until = 0; a.tries++;
	render(); say(t("placing"));
	const r = await api("POST", API + "items/" + encodeURIComponent(a.itemId) + "/purchase", { body: { quantity: a.quantity, expectedPriceMinor: a.minor }, headers: { "Idempotency-Key": a.key, ...S.saleToken && { "Doorbuster-Sale-Token": S.saleToken } } });
	if (a === S.attempt) await answer(a, r);
	render();
}
async function answer(a, { status, data, wait }) {
	const word = data.error, id = a.itemId, have = word === "ALREADY_PURCHASED", unknown = word === "OUTCOME_UNKNOWN";
	if (data.orderId && (status < 300 || have || unknown)) {
		done();
		if (!unknown) write(K.intent);
		// Which item an earlier order is for is not known until it is read.
		setOrder({ orderId: data.orderId, itemId: have ? null : id, quantity: a.quantity, status: data.status || "PENDING", payable: false, unknown });
		say(t(have ? "oHave" : face(S.order)[0]));
		return follow(data.orderId, have ? 0 : wait || 1000);
	}
	const end = (key, more) => { done(); note(id, key, more); };
	if (status < 300 || status >= 500 && status !== 503) return ++a.broken > 6 ? end("nStop") : later(a, "nNet", wait || backoff(a.broken));
	if (status === 429 || status === 503) return a.tries > 40 ? end("nStop") : later(a, "nBusy", wait || backoff(2));
	if (status === 401) {
		const renewed = a.renewed;
		await newToken();
		if (!S.token || renewed) return end("nSign");
		S.attempt = { ...a, renewed: true };
		return send(S.attempt);
	}
	switch (word) {
		case "NOT_STARTED": {
			const ms = Math.max(500, data.startsInMs || 0);
			S.startsAt = now() + ms; syncClock();
			// Whose level comes later waits by the countdown: nobody holds a button for half an hour.
			if (ms > 10000 && now() >= S.opens) return end("nLater");
			return a.early++ ? done() : later(a, "nSoon", ms + jitter(50, 400));
		}
		case "TOKEN_REQUIRED": case "CAPTCHA_REQUIRED": case "TOKEN_INVALID": case "TOKEN_MISMATCH": {
			if (a.tokens > 2) break;
			dropSaleToken(); S.sale.tokenRequired = true; S.sale.waitingRoom ||= !!data.waitingRoom;
			const wait = await getSaleToken(true);
			if (a !== S.attempt) return;
			if (waits()) return end("yLine");
			if (S.saleToken) { a.tokens++; return send(a); }
			if (wait < 1e9) return later(a, "nBusy", wait);
			break;
		}
		case "SOLD_OUT": return end(data.mayReturn ? "nSoldMay" : "nSold", { sold: true, until: ticks() + 8000 });
		case "ENDED": S.ended = true; done(); return loadSale();
		case "LIMIT_REACHED": end(data.left > 0 ? "nLeft" : "yLimit", { n: data.left }); return findOrders();
		case "PRICE_CHANGED": await loadSale(); return end("nPrice", { money: itemOf(id)?.price });
	}
	write(K.intent);
	end("nBad", { detail: [data.detail, data.requestId].filter(Boolean).join(" · ") });
	if (status === 404) loadSale();
}
function later(a, key, ms) {
	clearTimeout(a.timer);
	a.why = key; a.until = ticks() + ms; a.timer = setTimeout(send, ms, a);
	say(t(key, { in: inTime(ms) }));
}
function done() { clearTimeout(S.attempt?.timer); S.attempt = null; }
function note(itemId, key, more) { say(noteText(S.notes[itemId] = { key, ...more })); }
const noteText = n => t(n.key, { n: n.n, price: n.money ? money(n.money) : "…" });
const itemOf = id => S.sale?.items.find(i => i.itemId === id);

// Why an item's button is locked, or null. The server remains the judge.
function lockOf(item) {
	const a = S.attempt, p = phase(), n = S.notes[item.itemId], max = S.sale.maxUnitsPerUser, sold = soldOf(item);
	const lock = (label, why, fill) => ({ label: t(label), why: why ? t(why, fill) : "" });
	if (a) return a.itemId === item.itemId ? lock("placing") : lock("buy", "placing");
	if (p === "before") return lock("locked", "opens", { when: day(opening()) });
	if (p !== "open") return lock(p);
	if (held() >= max) return lock("buy", "yLimit");
	if (!S.token) return lock("buy", S.ready && "yToken");
	if (waits()) return lock("buy", "yLine");
	if (n?.until > ticks()) return lock("sold", "yCool", { in: inTime(n.until - ticks()) });
	return sold === "nSold" ? lock("sold", n ? "" : sold) : null;
}
const waits = () => S.sale.waitingRoom && !S.saleToken;
// The sold-out message that holds for an item, if any.
const soldOf = item => { const n = S.notes[item.itemId]; return n?.sold ? n.key : item.free !== 0 ? null : item.held === 0 ? "nSold" : "nSoldMay"; };

// Drawing, in place, so that focus and selection stay.
function drawPhase() {
	const p = phase(), before = p === "before";
	if (S.phase && S.phase !== p) { if (p !== "before") say(t(p)); if (p === "open") { saleIn(jitter(3000, 13000)); for (const id in S.notes) if (S.notes[id].key === "nLater") delete S.notes[id]; } }
	S.phase = p;
	E.phase.className = "card " + p;
	put(E.phaseTitle, t(p));
	E.clock.hidden = E.hint.hidden = !before;
	if (before) {
		const s = Math.max(0, Math.ceil((opening() - now()) / 1000)), days = Math.floor(s / 86400);
		put(E.hms, hms(s % 86400)); show(E.days, days && unit(days, "day"));
		mention("open", s, [600, 60, 10], p);
	}
	show(E.phaseText, before ? t("opens", { when: day(opening()) }) : p === "open" ? t("until", { when: day(S.closes) }) : p === "paused" && t("pausedP"));
}
const cards = {};
function addCard(id) {
	const li = E.card.content.firstElementChild.cloneNode(true), c = cards[id] = { li };
	for (const e of li.querySelectorAll("[class]")) { const name = e.classList[0]; c[name] = e; e.id = name + "-" + id; }
	c.qtyKey.htmlFor = c.qty.id;
	for (let n = 1; n <= Math.min(20, S.sale.maxUnitsPerUser); n++) c.qty.add(new Option(n));
	c.buy.setAttribute("aria-labelledby", `buy-${id} title-${id}`);
	c.buy.setAttribute("aria-describedby", `why-${id} text-${id}`);
	on(c.buy, "click", () => buy(itemOf(id), Number(c.qty.value)));
	on(c.stop, "click", () => { keepFocus(c.note, c.buy); done(); note(id, "nStop"); findOrders(); render(); });
	E.items.append(li);
	return c;
}
function drawItem(item) {
	const c = cards[item.itemId] || addCard(item.itemId), n = S.notes[item.itemId], a = S.attempt?.itemId === item.itemId && S.attempt;
	const { price, listPrice: list } = item, max = S.sale.maxUnitsPerUser, lock = lockOf(item), sold = soldOf(item), ended = S.phase === "ended";
	c.li.className = "card " + (S.sale.items.length > 1 ? "many" : "single");
	put(c.title, item.title); put(c.now, money(price));
	const cut = list && list.currency === price.currency ? Math.floor(100 - price.minor / list.minor * 100) : 0;
	show(c.was, cut > 0 && money(list)); show(c.wasKey, cut > 0 && t("was"));
	show(c.cut, cut > 0 && fmt("NumberFormat", { style: "percent" }).format(-cut / 100));
	show(c.stock, !ended && item.free !== undefined && (sold ? t("sold") : t("stock", { n: number(item.free) })));
	c.qtyBox.hidden = max < 2 || ended;
	put(c.qtyKey, t("qty"));
	c.qty.disabled = !!a;
	put(c.buy, lock ? lock.label : t(sold ? "again" : "buy"));
	flag(c.buy, "disabled", lock);
	c.buy.classList.toggle("again", !!sold);
	show(c.why, lock && lock.why);
	show(c.text, a ? a.until && t(a.why, { in: inTime(a.until - ticks()) }) : n ? noteText(n) : !lock && sold && t(sold));
	c.note.hidden = c.text.hidden;
	show(c.more, !a && n && n.detail);
	show(c.stop, a && a.until && t("stop"));
}
let othersDrawn;
function drawOthers() {
	const rest = Object.values(S.orders).filter(o => o.orderId !== S.order?.orderId), key = S.lang + JSON.stringify(rest);
	E.others.hidden = !rest.length;
	if (key === othersDrawn) return;
	othersDrawn = key;
	E.otherList.replaceChildren(...rest.map(o => {
		const li = document.createElement("li"), a = document.createElement("a");
		a.className = "plain link"; a.href = orderPage(o.orderId);
		a.textContent = [t(face(o)[0]), itemOf(o.itemId)?.title, o.total && money(o.total), o.orderId].filter(Boolean).join(" · ");
		li.append(a);
		return li;
	}));
}
function render() {
	const { sale, trouble } = S;
	E.trouble.hidden = !(E.app.hidden = !sale);
	drawWho();
	if (!sale) {
		put(E.troubleTitle, document.title = trouble ? t(trouble.title) : "…");
		show(E.troubleText, trouble?.until && t("netP", { in: inTime(trouble.until - ticks()) }));
		E.retryNow.hidden = !trouble?.until;
		return;
	}
	put(E.name, sale.name);
	put(E.terms, t("terms", { n: number(sale.maxUnitsPerUser), time: span(sale.paymentWindowSeconds) }));
	E.mine.hidden = !S.order;
	lead(E.orderLink, S.order && orderPage(S.order.orderId));
	drawPhase(); drawLine(); drawOrder();
	for (const id in cards) if (!itemOf(id)) { cards[id].li.remove(); delete cards[id]; }
	sale.items.forEach(drawItem);
	drawOthers();
	document.title = (S.order ? t(face(S.order)[0]) : S.phase === "before" ? E.hms.textContent : t(S.phase)) + " · " + sale.name;
}
const aim = () => S.sale ? opening() - now() : 0;

on(E.retryNow, "click", loadSale);
on(E.switchUser, "click", async () => { keepFocus(E.switchUser, E.name); forget(); await newToken(); S.refused = false; render(); });
on(document, "visibilitychange", () => {
	if (document.hidden || !saleId) return;
	if (ticks() - clock.at > 5000) syncClock();
	if (S.sale && Math.abs(opening() - now()) > 5000) saleIn(jitter(0, 2000));
});
on(window, "online", () => { const a = S.attempt; if (a?.why === "nNet" && a.until) later(a, a.why, jitter(200, 1200)); });

if (!saleId) S.trouble = { title: "noneT" };
tick();
if (saleId) {
	loadSale();
	(async () => { if (!S.token && boot.demoToken) await newToken(); S.ready = true; findOrders(); getSaleToken(); render(); })();
}
