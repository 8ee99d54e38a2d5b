// What the sale page and the order page share: words, formats, the shop's clock, HTTP, who buys.
// The parts of a page are written into it one after the other, in one scope, and are its only script.
// A page defines `render`, which draws all of it anew; `aim`, the next moment that a second must end
// at, in milliseconds from now; and `signedIn`, for after a new token.
const LANGS = { en: "English", fr: "Français", zh: "中文" };

const E = Object.fromEntries([...document.querySelectorAll("[id]")].map(e => [e.id, e]));
const put = (e, text) => { if (e.textContent !== text) e.textContent = text; };
const show = (e, text) => { e.hidden = !text; put(e, text || ""); };
const flag = (e, name, on) => e.setAttribute("aria-" + name, !!on);
const lead = (e, to) => { e.hidden = !to; if (to) e.href = to; else e.removeAttribute("href"); };
const on = (e, what, run) => e.addEventListener(what, run);
const sleep = ms => new Promise(done => setTimeout(done, ms));
const jitter = (min, max) => min + Math.random() * (max - min);
const backoff = fails => Math.min(30000, 500 * 2 ** fails) * jitter(.75, 1.25);
const ticks = () => performance.now();
const parse = text => { try { return JSON.parse(text); } catch { return null; } };
// Storage may be forbidden; then things last as long as the page.
const read = (k, store = "sessionStorage") => { try { return window[store].getItem(k); } catch { return null; } };
const write = (k, v, store = "sessionStorage") => { try { if (v) window[store].setItem(k, v); else window[store].removeItem(k); } catch { } };

// Words: [English, French, Chinese] for each key. An element whose id is a key shows that text.
const WORDS = parse(E.words.textContent), boot = parse(E.boot.textContent) || {};
const API = "/api/flash-sales/", orderApi = id => API + "orders/" + encodeURIComponent(id), saleApi = id => API + "sales/" + encodeURIComponent(id);
const orderPage = id => "/orders/" + encodeURIComponent(id), salePage = id => "/?sale=" + encodeURIComponent(id);
const K = { token: "doorbuster.token", lang: "doorbuster.lang" };

const S = { lang: "en", token: read(K.token), sale: null, order: null, run: 0 };

// Language and formats.
const known = tag => Object.keys(LANGS).find(l => l === String(tag).toLowerCase().split("-")[0]);
const tags = navigator.languages || [navigator.language];
let formats = {};
function setLang(lang) {
	S.lang = lang; formats = {};
	document.documentElement.lang = lang === "zh" ? "zh-Hans" : lang;
	for (const id in E) if (WORDS[id]) put(E[id], t(id));
	for (const b of E.langs.children) flag(b, "pressed", b.lang === document.documentElement.lang);
}
function t(key, fill = {}) {
	const text = WORDS[key][Object.keys(LANGS).indexOf(S.lang)].replace(/\{(\w+)\}/g, (_, k) => fill[k]);
	return S.lang === "fr" ? text.replace(/ (?=[;:!?»])/g, "\u00a0").replace("« ", "«\u00a0") : text;
}
// In the reader's own region ("en-GB") when it speaks the chosen language.
const fmt = (kind, options) => formats[kind + JSON.stringify(options)] ??= new Intl[kind](tags.find(tag => known(tag) === S.lang) || S.lang, options);
const number = n => fmt("NumberFormat", {}).format(n);
const unit = (n, unit) => fmt("NumberFormat", { style: "unit", unit, unitDisplay: "long" }).format(n);
const span = s => s >= 120 || s === 60 ? unit(Math.ceil(s / 60), "minute") : unit(s, "second");
const inTime = ms => span(Math.max(1, Math.ceil(ms / 1000)));
const date = (ms, options) => fmt("DateTimeFormat", { hour: "2-digit", minute: "2-digit", timeZoneName: "short", ...options }).format(ms);
const day = ms => date(ms, { weekday: "long", day: "numeric", month: "long" });
function money(m) {
	try {
		const f = fmt("NumberFormat", { style: "currency", currency: m.currency });
		return f.format(m.minor / 10 ** f.resolvedOptions().maximumFractionDigits);
	} catch { return m.amount + " " + m.currency; }
}
const hms = s => [s / 3600, s / 60 % 60, s % 60].map(n => String(Math.floor(n)).padStart(2, "0")).join(":");

// One polite region, emptied afterwards so that nothing is met twice.
let sayTimer = 0, toSay = "";
function say(text) {
	clearTimeout(sayTimer); put(E.live, "");
	toSay += " " + text;
	sayTimer = setTimeout(() => { put(E.live, toSay); toSay = ""; sayTimer = setTimeout(() => put(E.live, ""), 12000); }, 150);
}
// Says what is left when a mark, in seconds, goes by.
const passed = {};
function mention(what, s, marks, key) {
	const mark = marks.find(m => passed[what] > m && s <= m && s > m - 5);
	passed[what] = s;
	if (mark) say(t(key) + " " + span(mark));
}
// Focus moves only when the part that holds it is about to go.
const keepFocus = (part, to) => { if (part.contains(document.activeElement)) to.focus({ preventScroll: true }); };

// The shop's clock: an offset to performance.now(), from the quickest of five samples.
const clock = { offset: Date.now() - ticks(), at: -Infinity, synced: false };
const now = () => ticks() + clock.offset;
async function syncClock() {
	clock.at = ticks();
	let best = Infinity;
	for (let i = 0; i < 5; i++) {
		const sent = ticks(), r = await api("GET", "/api/time", { ms: 5000 }), took = ticks() - sent;
		if (r.status !== 200) break;
		if (took < best) { best = took; clock.offset = r.data.epochMs - sent - took / 2; clock.synced = true; }
	}
	render();
}
// On each of the shop's seconds and at the moment aimed at. All is computed anew, as background timers are late.
function tick() {
	if (ticks() - clock.at > 600000) syncClock();
	render();
	const left = aim();
	setTimeout(tick, 1 + (left > 0 ? left : 1e15 - now()) % 1000);
}

// HTTP: every answer is data; status 0 is a broken connection. `wait` is Retry-After in milliseconds.
// What is `open` is anybody's: it takes no token, and the browser may keep it.
async function api(method, path, { body, headers, ms = 15000, open } = {}) {
	const abort = new AbortController(), timer = setTimeout(() => abort.abort(), ms), h = { ...headers };
	if (S.token && !open && path.startsWith(API)) h.Authorization = "Bearer " + S.token;
	if (body) h["Content-Type"] = "application/json";
	try {
		const res = await fetch(path, { method, headers: h, body: body && JSON.stringify(body), cache: open ? "no-cache" : "no-store", signal: abort.signal });
		const data = parse(await res.text()) || {}, after = res.headers.get("Retry-After");
		const wait = after && (/^\d+$/.test(after) ? after * 1000 : Date.parse(after) - now());
		return { status: res.status, data, etag: res.headers.get("ETag"), wait: wait > 0 ? wait * jitter(1, 1.2) : 0 };
	} catch { return { status: 0, data: {} }; } finally { clearTimeout(timer); }
}

// Who buys. The name is only for show and may be unreadable; the server verifies.
function setToken(token) {
	S.token = token; S.user = "";
	write(K.token, token);
	try { S.user = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/")), c => c.charCodeAt()))).sub; } catch { }
}
function drawWho() {
	show(E.who, S.token && S.user && t("who", { user: S.user }));
	E.switchUser.hidden = !S.token;
	E.sign.hidden = !!S.token || !S.ready;
	put(E.signP, t(S.refused ? "nSign" : "signP"));
	E.signBad.hidden = !S.signBad; flag(E.token, "invalid", S.signBad);
}
on(E.signForm, "submit", event => {
	event.preventDefault();
	const token = E.token.value.trim().replace(/^Bearer\s+/i, "");
	S.signBad = !/^[\x21-\x7e]{8,}$/.test(token);
	if (S.signBad) say(t("signBad"));
	else { E.token.value = ""; setToken(token); say(t("who", { user: S.user })); signedIn(); }
	render();
});

for (const lang in LANGS) {
	const b = document.createElement("button");
	b.className = "plain"; b.lang = lang === "zh" ? "zh-Hans" : lang; b.textContent = LANGS[lang];
	on(b, "click", () => { write(K.lang, lang, "localStorage"); setLang(lang); render(); });
	E.langs.append(b);
}
setLang(known(read(K.lang, "localStorage")) || tags.map(known).find(Boolean) || "en");
if (S.token) setToken(S.token);
