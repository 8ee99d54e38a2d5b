// A captcha of others, on the sale page of a shop that has one: its script comes when it is asked for, and draws in
// this page's box. An answer is a text; there is none when the script does not come, the captcha fails, or somebody
// else signs in.
let widgetScript;
const loadWidget = src => widgetScript ??= new Promise((done, failed) => {
	const script = document.createElement("script"), url = new URL(src), end = () => { widgetScript = null; failed(); }, timer = setTimeout(end, 20000);
	url.searchParams.set("render", "explicit"); url.searchParams.set("onload", "captchaReady");
	window.captchaReady = () => { clearTimeout(timer); done(); };
	on(script, "error", end);
	script.src = url;
	document.head.append(script);
});
async function widgetAnswer({ provider, siteKey, scriptUrl, action, cdata }) {
	try { await loadWidget(scriptUrl); } catch { return; }
	const widget = window[provider], place = document.createElement("div");
	E.captcha.replaceChildren(place); E.captchaBox.hidden = false; say(t("captchaT"));
	let id;
	const answer = await new Promise(done => {
		const none = endCaptcha = () => done();
		id = widget.render(place, { sitekey: siteKey, ...cdata && { action, cData: cdata }, callback: done, "error-callback": none, "expired-callback": none });
	});
	try { widget.remove(id); } catch { } // It may have gone by itself.
	keepFocus(E.captchaBox, E.name);
	E.captchaBox.hidden = true;
	return answer;
}
