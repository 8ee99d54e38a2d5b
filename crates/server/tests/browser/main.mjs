// Every story, in one process with one browser.
import { describe } from "node:test";
import { pages } from "./pages.mjs";
import { stories } from "./stories.mjs";

describe("in the browser", { concurrency: 2 }, () => {
	stories();
	pages();
});
