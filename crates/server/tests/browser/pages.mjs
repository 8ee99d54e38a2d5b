// Every page in every state: no barrier, no missing word, large enough, at rest.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { LANGUAGES, bought, buyer, openSale, somebody, visit, word } from "./shop.mjs";

const SOON = () => new Date(Date.now() + 500_000).toISOString();
/// What the shop may say of an order, and the heading that its page then has.
const STATES = {
	queued: { shows: "oQueued", says: { payable: false, expiresAt: undefined } },
	payable: { shows: "oPay", says: { payable: true, expiresAt: SOON() } },
	late: { shows: "oLate", says: { payable: false, expiresAt: "2026-01-01T00:00:00.000Z" } },
	paid: { shows: "oPaid", says: { status: "PAID" } },
	expired: { shows: "oExpired", says: { status: "EXPIRED" } },
	"given back": { shows: "oExpired", says: { status: "EXPIRED", refund: { status: "DUE" } }, also: ["fDue"] },
	"was given back": { shows: "oExpired", says: { status: "EXPIRED", refund: { status: "DONE" } }, also: ["fDone"] },
	"not given back": { shows: "oExpired", says: { status: "EXPIRED", refund: { status: "REFUSED" } }, also: ["fRefused"] },
	retaken: { shows: "oExpired", says: { status: "EXPIRED", retakenBy: "0198c5a4-7b1e-7c3a-9d2f-0a1b2c3d4e5f" }, also: ["oRetaken", "oRetakenGo"], leads: "/orders/0198c5a4-7b1e-7c3a-9d2f-0a1b2c3d4e5f" },
	retake: { shows: "oPaid", says: { status: "PAID", retakeOf: "0198c5a4-7b1e-7c3a-9d2f-0a1b2c3d4e5f" } },
	cancelled: { shows: "oCancelled", says: { status: "CANCELLED" } },
	"without stock": { shows: "oRejected", says: { status: "REJECTED", reason: "NO_STOCK" }, also: ["rStock"] },
	"over the limit": { shows: "oRejected", says: { status: "REJECTED", reason: "LIMIT" }, also: ["rLimit"] },
	"retaken in vain": { shows: "oRejected", says: { status: "REJECTED", reason: "RETAKE_REFUSED" }, also: ["rRetake"] },
	unreadable: { shows: "oRejected", says: { status: "REJECTED", reason: "UNREADABLE" }, also: ["rOther"] },
	refunded: { shows: "oRefunded", says: { status: "REFUNDED" }, also: ["oRefundedP"] },
	"paid twice": { shows: "oPaid", says: { status: "PAID", refund: { status: "DONE" } }, also: ["fDone"] },
};

/// Fails for words that were not filled in, in what people see and in what screen readers say.
async function hasWholeWords(visitor, where) {
	const text = await visitor.page.evaluate(() => document.body.innerText + document.title + [...document.querySelectorAll("[aria-label]")].map(it => it.ariaLabel).join());
	assert(!/undefined|null|NaN|\{|\}|Invalid Date/.test(text), `${where}: ${text}`);
}
/// Everything that can be pressed is at least as large as a thumb, and nothing sticks out sideways.
async function isLargeEnough(visitor, where) {
	const small = await visitor.page.evaluate(() => [...document.querySelectorAll("button, a[href], summary, select, textarea, input")].flatMap(it => {
		const { width, height } = it.getBoundingClientRect();
		return it.checkVisibility() && (width < 44 || height < 44) ? [`${it.outerHTML} is ${width} by ${height}`] : [];
	}));
	assert.deepEqual(small, [], where);
	const wide = await visitor.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
	assert(wide <= 0, `${where} sticks out by ${wide} pixels`);
}

const ORDERS = "**/api/flash-sales/orders/*";
/// The page of an order in one state.
async function tells(alice, order, name, { shows, also = [], leads }) {
	const { page } = alice;
	await alice.open("/orders/" + order.orderId);
	await alice.sees(word(shows));
	await alice.reloadsTo(word(shows));
	for (const language of LANGUAGES) {
		await page.locator(`#langs [lang^=${language}]`).click();
		assert.match(await page.locator("html").getAttribute("lang"), new RegExp("^" + language));
		await alice.sees(word(shows, language));
		for (const key of also) await alice.reads(word(key, language));
		await hasWholeWords(alice, `${name}, ${language}`);
		await isLargeEnough(alice, `${name}, ${language}`);
	}
	await page.locator("#langs [lang=en]").click();
	const links = await page.locator("a:visible").evaluateAll(all => all.map(it => it.getAttribute("href")));
	assert.deepEqual(links, [...leads ? [leads] : [], "/?sale=" + order.saleId], name);
	await alice.meetsNoBarrier(name);
	const timers = await page.locator("[role=timer]").evaluateAll(all => all.map(it => it.ariaLive));
	assert.deepEqual(timers, ["off"]);
	assert.equal(await page.locator("[aria-live=polite]").count(), 1);
}

export const pages = () => describe("pages", { concurrency: 3 }, () => {
	// Two at a time, as there are many.
	for (const half of [0, 1]) {
		it(`tell every state of an order in three languages, also after a reload, ${half + 1} of 2`, async () => {
			const sale = await openSale(), user = somebody(), order = await bought(user, sale);
			await visit({ user, width: 360, height: 740 }, async alice => {
				for (const [name, state] of Object.entries(STATES).filter((_, place) => place % 2 === half)) {
					await alice.page.unroute(ORDERS);
					await alice.page.route(ORDERS, route => route.fulfill({ json: { ...order, ...state.says } }));
					await tells(alice, order, name, state);
				}
			});
		});
	}

	it("have no barrier where nobody is signed in, nothing is there, or the shop is down", async () => {
		const sale = await openSale(), user = somebody(), order = await bought(user, sale);
		await visit({}, async eve => {
			await eve.open("/orders/" + order.orderId);
			await eve.sees(word("signT"));
			await eve.button(word("signBtn")).click();
			await eve.reads(word("signBad"));
			await eve.meetsNoBarrier("signing in");
			await eve.open("/?sale=999999");
			await eve.sees(word("noneT"));
			await eve.meetsNoBarrier("no sale");
		});
		await visit({ user: somebody() }, async eve => {
			await eve.open("/orders/" + order.orderId);
			await eve.sees(word("goneT"));
			await eve.meetsNoBarrier("not theirs");
			await eve.page.route(ORDERS, route => route.abort());
			await eve.page.reload();
			await eve.sees(word("oNews"));
			await eve.meetsNoBarrier("down");
			await isLargeEnough(eve, "down");
		});
	});

	it("of a sale have no barrier before it, in it, and when it is sold out", async () => {
		const sale = await openSale({ units: 1, limit: 3 }), user = somebody();
		await visit({ user, width: 360, height: 740 }, async alice => {
			const { page } = alice;
			const shown = async (where, key) => {
				for (const language of LANGUAGES) {
					await page.locator(`#langs [lang^=${language}]`).click();
					await alice.sees(word(key, language));
					await hasWholeWords(alice, `${where}, ${language}`);
					await isLargeEnough(alice, `${where}, ${language}`);
				}
				await page.locator("#langs [lang=en]").click();
				await alice.meetsNoBarrier(where);
			};
			await page.route("**/api/flash-sales/sales/*", async route => {
				const answer = await route.fetch();
				await route.fulfill({ response: answer, json: { ...await answer.json(), state: "preheated", opensAt: SOON() } });
			});
			await alice.open("/?sale=" + sale.id);
			await shown("before", "before");
			await page.unroute("**/api/flash-sales/sales/*");
			await page.reload();
			await shown("open", "open");
			await alice.buys();
			await shown("with an order", "oPay");
		});
		await visit({ user: somebody() }, async bob => {
			await bob.open("/?sale=" + sale.id);
			await bob.reads("Sold out for now.");
			await bob.meetsNoBarrier("sold out");
		});
	});

	it("of the documents have no barrier", () => visit({ width: 360, height: 740 }, async alice => {
		for (const path of ["/docs", "/docs/errors"]) {
			await alice.open(path);
			await alice.meetsNoBarrier(path);
		}
	}));

	it("of the sandbox have no barrier", async () => {
		const sale = await openSale(), user = somebody(), order = await bought(user, sale);
		const { body } = await buyer(user, "POST", `/orders/${order.orderId}/payment`);
		await visit({ width: 360, height: 740 }, async alice => {
			for (const language of LANGUAGES) {
				await alice.open(body.paymentUrl + "?lang=" + language);
				await alice.meetsNoBarrier("sandbox, " + language);
				await isLargeEnough(alice, "sandbox, " + language);
			}
			await alice.page.locator("button").nth(1).click();
			await alice.page.getByRole("status").waitFor();
			await alice.meetsNoBarrier("sandbox, chosen");
			await alice.open("/sandbox/pay/nothing");
			await alice.meetsNoBarrier("sandbox, lost");
		});
	});

	it("say when ten, two and one minutes and ten seconds are left to pay", async () => {
		const sale = await openSale(), user = somebody(), order = await bought(user, sale);
		for (const [seconds, says] of [[600, "10 minutes"], [120, "2 minutes"], [60, "1 minute"], [10, "10 seconds"]]) {
			await visit({ user }, async alice => {
				let expiresAt;
				await alice.page.route(ORDERS, route => {
					expiresAt ??= new Date(Date.now() + seconds * 1000 + 2000).toISOString();
					return route.fulfill({ json: { ...order, expiresAt } });
				});
				await alice.open("/orders/" + order.orderId);
				await alice.hears("Time left to pay " + says);
			});
		}
	});

	it("go by the shop's clock, and hold still for those who ask for it", async () => {
		const sale = await openSale(), user = somebody(), order = await bought(user, sale);
		await visit({ user, width: 320, height: 600, reducedMotion: "reduce" }, async alice => {
			// Its own clock is an hour ahead: by that the time to pay would be over.
			await alice.context.addInitScript(() => { const real = Date.now; Date.now = () => real() + 3_600_000; });
			await alice.open("/orders/" + order.orderId);
			await alice.sees(word("oPay"));
			const left = await alice.page.getByRole("timer").textContent();
			assert.match(left, /^(10:00|0\d:\d\d)$/, "more than ten minutes are left: " + left);
			await isLargeEnough(alice, "at four times the size");
			await alice.page.route(ORDERS, route => route.fulfill({ json: { ...order, payable: false, expiresAt: undefined } }));
			await alice.page.reload();
			await alice.sees(word("oQueued"));
			assert.equal(await alice.page.locator(".spin").evaluate(it => getComputedStyle(it).animationName), "none");
		});
	});
});
