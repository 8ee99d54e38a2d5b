// A shop whose captchas are shown and judged by somebody else, who is a stand-in here.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { JUDGE, buyer, openSale, requireOf, somebody, visit } from "./shop.mjs";

const scripts = visitor => visitor.asked.filter(url => url.startsWith(JUDGE + "/api.js"));

export const captchas = () => describe("a buyer who is to show that they are a person", () => {
	it("presses the widget's button, and buys", async () => {
		const sale = await openSale();
		await requireOf(sale, "captcha_required");
		await visit({ user: somebody() }, async alice => {
			const { page } = alice, proof = alice.button("I am a person");
			await alice.open("/?sale=" + sale.id);
			await alice.sees("Are you a person?");
			await alice.hears("Are you a person?");
			await proof.waitFor();
			await page.getByRole("button", { name: "Français" }).click();
			await alice.sees("Êtes-vous une personne ?");
			await page.getByRole("button", { name: "English" }).click();
			await alice.meetsNoBarrier("the captcha");
			await proof.click();
			await alice.page.getByRole("heading", { name: "Are you a person?" }).waitFor({ state: "hidden" });
			await alice.buys();
			assert.equal(scripts(alice).length, 1);
			const asked = new URL(alice.asked.find(url => url.startsWith(JUDGE + "/solve"))).searchParams;
			assert.deepEqual([asked.get("sitekey"), asked.get("action")], ["a-site", "sale_" + sale.id]);
			assert.match(asked.get("cdata"), /^[0-9a-f]{64}$/);
		});
	});

	it("presses it after the click, when that was decided a moment ago", async () => {
		const sale = await openSale();
		await visit({ user: somebody() }, async alice => {
			await alice.open("/?sale=" + sale.id);
			const buy = alice.page.getByRole("button", { name: "Buy now" });
			await buy.waitFor();
			assert.deepEqual(scripts(alice), [], "the script is not loaded before it is needed");
			await requireOf(sale, "captcha_required");
			const refused = await buyer(somebody(), "POST", `/items/${sale.item}/purchase`);
			assert.deepEqual([refused.status, refused.body.error], [403, "TOKEN_REQUIRED"]);
			await buy.click();
			await alice.button("I am a person").click();
			await alice.sees("Waiting for payment");
		});
	});

	it("waits and tries again where the script does not come", async () => {
		const sale = await openSale();
		await requireOf(sale, "captcha_required");
		await visit({ user: somebody() }, async alice => {
			let fails = 2;
			await alice.page.route(JUDGE + "/api.js*", route => fails-- > 0 ? route.abort() : route.continue());
			await alice.open("/?sale=" + sale.id);
			await alice.button("I am a person").click();
			await alice.buys();
			assert.equal(scripts(alice).length, 3);
		});
	});
});
