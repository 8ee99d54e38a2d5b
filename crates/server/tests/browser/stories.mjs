// What buyers live through, from the click to the end of their order.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { bought, buyer, openSale, requireOf, restock, somebody, token, until, visit } from "./shop.mjs";

const salePage = sale => "/?sale=" + sale.id;
/// Tabs until the element has the focus, as somebody without a mouse does.
async function tabTo(page, target) {
	for (let steps = 0; steps < 40; steps++) {
		if (await target.evaluate(it => it === document.activeElement)) return;
		await page.keyboard.press("Tab");
	}
	assert.fail("no way there by keyboard: " + target);
}

export const stories = () => describe("a buyer", { concurrency: 4 }, () => {
	it("pays too late, and has the unit by a new order", async () => {
		const sale = await openSale({ units: 1, window: 8 }), user = somebody(), order = await bought(user, sale);
		const { body } = await buyer(user, "POST", `/orders/${order.orderId}/payment`);
		assert.equal((await fetch(body.paymentUrl + "?do=late", { method: "POST", redirect: "manual" })).status, 303);
		await visit({ user }, async alice => {
			await alice.open("/orders/" + order.orderId);
			await alice.sees("The time to pay is over");
			// The shop asks the provider first, and hears of the payment half a minute behind it.
			await alice.sees("The order has lapsed");
			await alice.page.getByRole("link", { name: "To the new order" }).click();
			await alice.sees("Paid. Thank you!");
			await alice.reads(`It takes the place of order ${order.orderId}`);
			await alice.reloadsTo("Paid. Thank you!");
		});
	});

	it("buys where a sale token or a captcha is needed, also when that was decided a moment ago", async () => {
		const early = await openSale(), late = await openSale(), hard = await openSale();
		await requireOf(early, "token_required");
		for (const sale of [early, late, hard]) await visit({ user: somebody() }, async alice => {
			await alice.open(salePage(sale));
			const buy = alice.page.getByRole("button", { name: /^Buy now/ });
			await buy.waitFor();
			if (sale === late) await requireOf(late, "token_required");
			if (sale === hard) await requireOf(hard, "captcha_required");
			const refused = await buyer(somebody(), "POST", `/items/${sale.item}/purchase`);
			assert.deepEqual([refused.status, refused.body.error], [403, "TOKEN_REQUIRED"]);
			await buy.click();
			await alice.sees("Waiting for payment");
		});
	});

	it("waits for a turn, keeps the place over a reload, and buys when let in", async () => {
		const sale = await openSale({ units: 1 }), [ann, bea, cid] = [somebody(), somebody(), somebody()];
		await requireOf(sale, "room");
		const asks = (user, method = "POST") => buyer(user, method, `/sales/${sale.id}/waiting-room`);
		const inside = user => until("somebody is let in", async () => (await asks(user)).body.status === "ADMITTED");
		// For one unit two are let in; the next waits.
		for (const user of [ann, bea]) await inside(user);
		await visit({ user: cid }, async waiting => {
			const { page } = waiting;
			await waiting.open(salePage(sale));
			await waiting.sees("You are waiting for your turn");
			await waiting.hears("You are waiting for your turn");
			await waiting.reads("Before you: 0.");
			await waiting.meetsNoBarrier("the waiting room");
			const late = somebody();
			assert.equal((await asks(late)).body.ahead, 1);
			await waiting.reloadsTo("You are waiting for your turn");
			await page.getByRole("button", { name: "Français" }).click();
			await waiting.sees("Vous attendez votre tour");
			await page.getByRole("button", { name: "English" }).click();
			// It is locked, and says why to whoever presses it all the same.
			await page.getByRole("button", { name: /^Buy now/ }).click({ force: true });
			await waiting.hears("Please wait for your turn.");
			const refused = await buyer(cid, "POST", `/items/${sale.item}/purchase`);
			assert.deepEqual([refused.status, refused.body.error], [403, "TOKEN_REQUIRED"]);
			// The room does not answer once: the place is kept, and shown again.
			const shown = [];
			await page.route("**/waiting-room", async route => {
				shown.push(route.request().postDataJSON()?.place);
				if (shown.length > 1) return route.continue();
				await route.fulfill({ status: 503, headers: { "Retry-After": "1" }, json: { status: 503, error: "BUSY" } });
			});
			await until("the page has asked twice more", () => shown.length > 2);
			assert(shown.every(place => place?.startsWith("dbp1.")), JSON.stringify(shown));
			await waiting.sees("You are waiting for your turn");
			// One unit more, and there is a place inside.
			const more = await restock(sale, 1);
			assert.equal(more.status, 200, JSON.stringify(more.body));
			await waiting.sees("It is your turn");
			await waiting.hears("It is your turn");
			await waiting.meetsNoBarrier("a turn");
			await waiting.buys();
			await page.getByRole("heading", { name: "It is your turn" }).waitFor({ state: "hidden" });
		});
	});

	it("waits by a clock of their own while members buy, and buys when it has run out", async () => {
		const sale = await openSale({ opensAt: new Date(Date.now() - 60_000).toISOString() });
		await requireOf(sale, "early_access", "*=85s");
		await visit({ user: somebody() }, async nora => {
			const { page } = nora, clicks = () => nora.asked.filter(url => url.endsWith("/purchase")).length;
			await nora.open(salePage(sale));
			await nora.sees("The sale is open");
			await page.getByRole("button", { name: /^Buy now/ }).click();
			await nora.hears("Members buy first.");
			await nora.sees("Opens in");
			await nora.meetsNoBarrier("a turn that comes later");
			await page.getByRole("button", { name: /^Not open yet/ }).waitFor();
			assert.equal(clicks(), 1);
			await nora.sees("The sale is open");
			await page.getByText("Members buy first.").first().waitFor({ state: "hidden" });
			assert.equal(clicks(), 1, "the page does not click by itself");
			await nora.buys();
		});
	});

	it("signs in, buys and pays by keyboard alone", async () => {
		const sale = await openSale();
		await visit({}, async alice => {
			const { page } = alice, press = async target => { await tabTo(page, target); await page.keyboard.press("Enter"); };
			await alice.open(salePage(sale));
			await tabTo(page, page.getByLabel("Token"));
			await page.keyboard.insertText(token(somebody()));
			await press(alice.button("Use this token"));
			await press(page.getByRole("button", { name: "Buy now" }));
			await alice.sees("Waiting for payment");
			await alice.reloadsTo("Waiting for payment");
			await press(page.getByRole("link", { name: "Page of this order" }));
			await page.waitForURL("**/orders/*");
			await alice.sees("Waiting for payment");
			const order = new URL(page.url()).pathname;
			await press(alice.button("Pay now"));
			await alice.sees("Sandbox payment");
			await press(alice.button("Pay"));
			await page.getByRole("status").waitFor();
			await press(page.getByRole("link", { name: "Back to the shop" }));
			await page.waitForURL("**" + order);
			await alice.sees("Paid. Thank you!");
			await alice.reloadsTo("Paid. Thank you!");
			await press(page.getByRole("link", { name: "To the sale" }));
			await alice.sees("Paid. Thank you!");
		});
	});

	it("fails to pay, tries again at the same page, and hears that it is paid", async () => {
		const sale = await openSale();
		await visit({ user: somebody() }, async alice => {
			const { page } = alice;
			await alice.open(salePage(sale));
			await alice.buys();
			await alice.toOrder();
			await alice.button("Pay now").click();
			await alice.button("Fail").click();
			await page.getByRole("link", { name: "Back to the shop" }).click();
			await alice.reads("If it failed, pay again before the time is over.");
			await alice.reloadsTo("Waiting for payment");
			await alice.button("Back to the payment page").click();
			await alice.button("Pay late").click();
			await page.getByRole("link", { name: "Back to the shop" }).click();
			await alice.sees("Waiting for payment");
			// It is paid at last while the order's page is open.
			const payment = await buyer(alice.user, "POST", new URL(page.url()).pathname + "/payment");
			assert.equal((await fetch(payment.body.paymentUrl + "?do=pay", { method: "POST", redirect: "manual" })).status, 303);
			await alice.sees("Paid. Thank you!");
			await alice.hears("Paid. Thank you!");
			await alice.reloadsTo("Paid. Thank you!");
		});
	});

	it("lets an order lapse, sees its unit back on sale, and somebody else has it", async () => {
		const sale = await openSale({ units: 1, window: 12 });
		await visit({ user: somebody() }, alice => visit({ user: somebody() }, async bob => {
			await bob.open(salePage(sale));
			const button = bob.page.getByRole("button", { name: "Buy now" });
			await button.waitFor();
			const order = await bought(alice.user, sale);
			await button.click();
			await bob.reads("Sold out for now. Units may return if unpaid");
			await alice.open("/orders/" + order.orderId);
			await alice.sees("The order has lapsed");
			await alice.sees("In the sale now");
			await alice.reads("1 left");
			await alice.reloadsTo("The order has lapsed");

			// Nobody reloads: the page finds it by itself.
			await bob.page.getByText("1 left", { exact: true }).waitFor({ timeout: 45_000 });
			await bob.buys();
			await alice.page.reload();
			await alice.reads("Sold out for now. Units may return if unpaid");
			await alice.sees("The order has lapsed");
		}));
	});

	it("cancels, and somebody else has the unit", async () => {
		const sale = await openSale({ units: 1 });
		await visit({ user: somebody() }, alice => visit({ user: somebody() }, async bob => {
			await alice.open(salePage(sale));
			await alice.buys();
			await alice.toOrder();
			await alice.page.getByText("Cancel order").click();
			await alice.button("Yes, cancel").click();
			await alice.sees("The order is cancelled");
			await alice.reads("1 left");
			await alice.reloadsTo("The order is cancelled");
			assert.equal(await alice.button("Pay now").count(), 0);

			await bob.open(salePage(sale));
			await bob.buys();
		}));
	});

	it("competes for the last unit: one has it, the other reads that it is sold out", async () => {
		const sale = await openSale({ units: 1 });
		await visit({ user: somebody() }, alice => visit({ user: somebody() }, async bob => {
			const both = [alice, bob];
			await Promise.all(both.map(it => it.open(salePage(sale))));
			await Promise.all(both.map(it => it.page.getByRole("button", { name: "Buy now" }).waitFor()));
			await Promise.all(both.map(it => it.page.getByRole("button", { name: "Buy now" }).click()));
			const ends = () => Promise.all(both.map(async it => {
				const wins = it.page.getByRole("heading", { name: "Waiting for payment" }), loses = it.page.getByText("Sold out for now.");
				await wins.or(loses).first().waitFor();
				return await wins.isVisible() ? "won" : "lost";
			}));
			const first = await ends();
			assert.deepEqual([...first].sort(), ["lost", "won"]);
			await Promise.all(both.map(it => it.page.reload()));
			assert.deepEqual(await ends(), first);
			const orders = await Promise.all(both.map(it => buyer(it.user, "GET", `/sales/${sale.id}/orders`)));
			assert.deepEqual(orders.map(it => it.body.orders.length), first.map(end => end === "won" ? 1 : 0));
		}));
	});

	it("who has an order already is led to it by a second click elsewhere", async () => {
		const sale = await openSale(), user = somebody();
		await visit({ user }, phone => visit({ user }, async desk => {
			await phone.open(salePage(sale));
			await desk.open(salePage(sale));
			await desk.page.getByRole("button", { name: "Buy now" }).waitFor();
			const order = await phone.buys();
			assert.equal(await desk.buys(), order);
			await desk.hears("You already have an order. Here it is.");
			await desk.toOrder();
			assert.equal(new URL(desk.page.url()).pathname, "/orders/" + order);
		}));
	});

	it("pays on a page without a script", async () => {
		const sale = await openSale(), user = somebody(), order = await bought(user, sale);
		const { body } = await buyer(user, "POST", `/orders/${order.orderId}/payment`);
		await visit({ javaScriptEnabled: false }, async alice => {
			await alice.open(body.paymentUrl);
			await alice.button("Pay, told three times").click();
			await alice.page.getByRole("status").waitFor();
			await alice.page.getByRole("link", { name: "Français" }).click();
			await alice.sees("Que doit-il se passer\u00a0?");
			const paid = async () => (await buyer(user, "GET", "/orders/" + order.orderId)).body.status === "PAID";
			await until("the order is paid", paid);
			// Without a script the order's page says what it needs.
			await alice.page.getByRole("link", { name: "Retour à la boutique" }).click();
			await alice.page.locator("noscript p").first().waitFor();
		});
	});

	it("keeps the place in line while the shop is busy, and while it is down", async () => {
		const sale = await openSale(), user = somebody(), order = await bought(user, sale);
		for (const trouble of ["busy", "down"]) {
			await visit({ user }, async alice => {
				let asked = 0, well = true;
				await alice.page.route("**/api/flash-sales/orders/*", route => {
					asked++;
					if (well) return route.continue();
					if (trouble === "down") return route.abort();
					return route.fulfill({ status: 503, headers: { "Retry-After": "1" }, json: { error: "UNAVAILABLE" } });
				});
				const path = "/orders/" + order.orderId;
				await alice.open(path);
				await alice.sees("Waiting for payment");
				// In the middle, and from the beginning.
				well = false;
				await alice.page.reload();
				await alice.reads("Your order keeps its place; asking again in");
				await alice.sees("Waiting for payment");
				await alice.page.evaluate(() => sessionStorage.removeItem("doorbuster.seen"));
				await alice.page.reload();
				await alice.sees("The shop is busy or out of reach");
				await alice.reads("Next try in");
				asked = 0;
				await until("it was asked again", () => asked > 1);
				well = true;
				await alice.sees("Waiting for payment");
			});
		}
	});

	it("finds only their own orders", async () => {
		const sale = await openSale(), order = await bought(somebody(), sale), user = somebody();
		await visit({ user }, async eve => {
			await eve.open("/orders/" + order.orderId);
			await eve.sees("There is no such order of yours");
			await eve.reloadsTo("There is no such order of yours");
			await eve.button("Use another account").click();
			await eve.sees("Sign in");
		});
	});
});
