// What the stories share: the running shop, its staff, and visitors with a browser.
import assert from "node:assert/strict";
import { createHmac, randomUUID } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before } from "node:test";
import { chromium } from "playwright-core";

const CHROMIUM = (process.env.PATH ?? "").split(":").map(folder => join(folder, "chromium")).find(existsSync);
// Nothing that the browser does on its own: no updates, no sync, no first-run page.
const ARGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
	"--disable-background-networking", "--disable-component-update", "--disable-sync"];

/// Longest wait for one thing on a page.
export const PATIENCE = 30_000;

const { DOORBUSTER_TEST_PUBLIC: PUBLIC, DOORBUSTER_TEST_ADMIN: ADMIN, DOORBUSTER_TEST_STAFF: STAFF, DOORBUSTER_TEST_SECRET: SECRET } = process.env;
/// Where this shop's captchas are shown and judged, when that is not here.
export const JUDGE = process.env.DOORBUSTER_TEST_JUDGE;
assert(PUBLIC && ADMIN && STAFF && SECRET, "run `cargo xtask test browser`, which starts the shop");
export { PUBLIC };

let browser;
before(async () => {
	assert(CHROMIUM, "there is no chromium here: `cargo xtask test browser --install` installs it");
	browser = await chromium.launch({ executablePath: CHROMIUM, args: ARGS });
});
after(() => browser?.close());

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
/// The pages' own words: for each key English, French and Chinese.
export const LANGUAGES = ["en", "fr", "zh"];
const catalogue = JSON.parse(readFileSync(new URL("../../../../web/words.json", import.meta.url), "utf8"));
const WORDS = { ...catalogue.both, ...catalogue.sale, ...catalogue.order };

/// The text of a key, as a page writes it where nothing is to be filled in.
export function word(key, language = "en") {
	const text = WORDS[key][LANGUAGES.indexOf(language)];
	return language === "fr" ? text.replace(/ (?=[;:!?»])/g, "\u00a0") : text;
}

const base64 = value => Buffer.from(JSON.stringify(value)).toString("base64url");
/// An access token as the shop's own sign-in would hand it over.
export function token(user) {
	const now = Math.floor(Date.now() / 1000);
	const text = base64({ alg: "HS256", typ: "JWT" }) + "." + base64({ sub: user, iss: "doorbuster", aud: "doorbuster", iat: now, exp: now + 3600 });
	return text + "." + createHmac("sha256", SECRET).update(text).digest("base64url");
}

async function ask(base, method, path, bearer, body) {
	const headers = { Authorization: "Bearer " + bearer, ...body && { "Content-Type": "application/json" } };
	const answer = await fetch(base + path, { method, headers, body: body && JSON.stringify(body) });
	return { status: answer.status, body: await answer.json() };
}
export const buyer = (user, method, path) => ask(PUBLIC, method, "/api/flash-sales" + path, token(user));

/// Makes an open sale with one item.
export async function openSale({ units = 5, limit = 1, window = 600, opensAt = "2026-01-01T00:00:00Z" } = {}) {
	const item = { productId: "SHOE-1", title: "Red shoe", quantity: units, priceMinor: 1990, listPriceMinor: 2990, currency: "EUR" };
	const draft = { name: "Winter drop", opensAt, closesAt: "2126-01-01T00:00:00Z",
		paymentWindowSeconds: window, maxUnitsPerUser: limit, items: [item] };
	const made = await ask(ADMIN, "POST", "/admin/api/sales", STAFF, draft);
	assert.equal(made.status, 201, JSON.stringify(made.body));
	const sale = { id: made.body.saleId, item: made.body.items[0].itemId };
	for (const step of ["preheat", "open"]) {
		const done = await ask(ADMIN, "POST", `/admin/api/sales/${sale.id}/${step}`, STAFF);
		assert.equal(done.status, 200, JSON.stringify(done.body));
	}
	return sale;
}
/// Turns a switch of a sale: has it require sale tokens, captchas for them, or a room to wait in, from now on.
export async function requireOf(sale, what, value = "on") {
	const turned = await ask(ADMIN, "PUT", "/admin/api/switches/" + what, STAFF, { value, saleId: sale.id, reason: "a story" });
	assert.equal(turned.status, 200, JSON.stringify(turned.body));
}
/// Puts so many units more on sale.
export function restock(sale, units) {
	return ask(ADMIN, "POST", `/admin/api/sales/${sale.id}/items/${sale.item}/restock`, STAFF, { units, operationId: crypto.randomUUID() });
}
/// Buys without a browser; answers the order once it can be paid.
export async function bought(user, sale) {
	const { status, body } = await buyer(user, "POST", `/items/${sale.item}/purchase`);
	assert.equal(status, 202, JSON.stringify(body));
	return until("the order can be paid", async () => {
		const order = await buyer(user, "GET", "/orders/" + body.orderId);
		return order.body.payable && order.body;
	});
}
/// Asks again until there is an answer.
export async function until(what, look) {
	const end = Date.now() + PATIENCE;
	for (;;) {
		const found = await look();
		if (found) return found;
		assert(Date.now() < end, "waited in vain until " + what);
		await new Promise(done => setTimeout(done, 50));
	}
}

/// Somebody with a browser of their own: one page, its tokens, and all that it asked for.
export class Visitor {
	static async come({ user, width = 1280, height = 900, locale = "en-GB", ...more } = {}) {
		const visitor = new Visitor();
		visitor.user = user;
		visitor.asked = []; visitor.wrong = [];
		visitor.context = await browser.newContext({ baseURL: PUBLIC, viewport: { width, height }, locale, timezoneId: "Europe/Paris", ...more });
		visitor.context.setDefaultTimeout(PATIENCE);
		visitor.context.on("request", request => visitor.asked.push(request.url()));
		visitor.context.on("weberror", error => visitor.wrong.push(String(error.error())));
		visitor.context.on("console", message => {
			// A refusal is an answer; what the browser refuses to load or run is not.
			if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) visitor.wrong.push(message.text());
		});
		if (user && more.javaScriptEnabled !== false) {
			await visitor.context.addInitScript(text => { try { sessionStorage.getItem("doorbuster.token") ?? sessionStorage.setItem("doorbuster.token", text); } catch { } }, token(user));
		}
		await visitor.context.addInitScript(listen);
		visitor.page = await visitor.context.newPage();
		return visitor;
	}
	open(path) { return this.page.goto(path); }
	button(name) { return this.page.getByRole("button", { name, exact: true }); }
	/// Waits until the page has a heading with these words.
	sees(heading) { return this.page.getByRole("heading", { name: heading, exact: true }).waitFor(); }
	/// Waits until these words stand somewhere on the page.
	reads(text) { return this.page.getByText(text).first().waitFor(); }
	/// Waits until a screen reader would have said so.
	hears(text) { return this.page.waitForFunction(text => window.heard.some(it => it.includes(text)), text); }
	/// The same heading stands there after a reload.
	async reloadsTo(heading) {
		await this.page.reload();
		await this.sees(heading);
	}
	/// Clicks on the first item's button and waits for the order; answers its id.
	async buys() {
		await this.page.getByRole("button", { name: /^(Buy now|Try again)/ }).click();
		await this.sees("Waiting for payment");
		return this.page.locator("#orderId").textContent();
	}
	/// To the page of the order in the panel.
	async toOrder() {
		await this.page.getByRole("link", { name: "Page of this order" }).click();
		await this.page.waitForURL("**/orders/*");
		await this.sees("Your order");
	}
	/// Looks for every barrier that axe knows, in light and in dark.
	async meetsNoBarrier(where) {
		await this.page.evaluate(AXE);
		for (const colorScheme of ["light", "dark"]) {
			await this.page.emulateMedia({ colorScheme });
			const { violations } = await this.page.evaluate(tags => axe.run({ runOnly: tags, resultTypes: ["violations"] }), STANDARDS);
			const found = violations.flatMap(it => it.nodes.map(node => `${it.id}: ${it.help}: ${node.html}`));
			assert.deepEqual(found, [], `${where}, ${colorScheme}`);
		}
	}
	/// Goes, and says what must never have happened: a request to elsewhere, an error in a script.
	async leave() {
		await this.context.close();
		const known = [PUBLIC + "/", "data:image/svg+xml,", ...JUDGE ? [JUDGE + "/"] : []];
		for (const url of this.asked) assert(known.some(it => url.startsWith(it)), "asked elsewhere: " + url);
		assert.deepEqual(this.wrong, []);
	}
}
/// In the page: keeps what the polite region says.
function listen() {
	window.heard = [];
	addEventListener("DOMContentLoaded", () => {
		const region = document.querySelector("[aria-live=polite]");
		if (region) new MutationObserver(() => { if (region.textContent) window.heard.push(region.textContent); }).observe(region, { childList: true });
	});
}
/// Comes, lives through `story`, and leaves.
export async function visit(options, story) {
	const visitor = await Visitor.come(options);
	try {
		await story(visitor);
	} catch (error) {
		// What the page showed says more than what was waited for.
		const shown = await visitor.page.locator("body").innerText().catch(() => "nothing");
		error.message += `\n${visitor.user ?? "somebody"} at ${visitor.page.url()} saw:\n${shown}\n${visitor.wrong.join("\n")}`;
		await visitor.context.close();
		throw error;
	}
	await visitor.leave();
}
export const somebody = () => "user-" + randomUUID();
