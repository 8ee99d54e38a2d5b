// Every story, in one process with one browser: those of a shop, or those of one whose captchas are another's.
import { describe } from "node:test";
import { captchas } from "./captchas.mjs";
import { pages } from "./pages.mjs";
import { JUDGE } from "./shop.mjs";
import { stories } from "./stories.mjs";

describe("in the browser", { concurrency: 2 }, () => {
	if (JUDGE) return captchas();
	stories();
	pages();
});
