//! The pages of buyers, compiled in: one file each on the wire, written from the parts in `web/`.

use std::io::Write as _;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use doorbuster_loadtest::TokenSigner;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::docs;

/// The parts, each before those that it has within it: `{{name}}` stands for a part's text.
const PARTS: [(&str, &str); 9] = [
    ("{{head.html}}", include_str!("../../../web/head.html")),
    ("{{noscript.html}}", include_str!("../../../web/noscript.html")),
    ("{{panel.html}}", include_str!("../../../web/panel.html")),
    ("{{sign.html}}", include_str!("../../../web/sign.html")),
    ("{{base.css}}", include_str!("../../../web/base.css")),
    ("{{base.js}}", include_str!("../../../web/base.js")),
    ("{{panel.js}}", include_str!("../../../web/panel.js")),
    ("{{sale.js}}", include_str!("../../../web/sale.js")),
    ("{{order.js}}", include_str!("../../../web/order.js")),
];
/// The part of the sale page that shows a captcha of others: only where there is one.
const CAPTCHA: (&str, &str) = ("{{captcha.js}}", include_str!("../../../web/captcha.js"));
const SALE: &str = include_str!("../../../web/sale.html");
const ORDER: &str = include_str!("../../../web/order.html");
/// The words of every page in every language: those of both pages, and each page's own.
const WORDS: &str = include_str!("../../../web/words.json");
/// Where a page finds its words, and what only this server knows.
const WORDS_MARK: &str = "{{words}}";
const BOOT: &str = "{{boot}}";

/// What the pages of this server need to know.
#[derive(Default)]
pub struct Site {
    /// Signs tokens for whoever opens the page; only in a demo.
    pub demo_tokens: Option<TokenSigner>,
    pub(crate) sale: std::sync::OnceLock<String>,
    /// Where the sale page may load a captcha of others from, if it is one of others.
    pub(crate) captcha: std::sync::OnceLock<String>,
    pub(crate) docs: std::sync::OnceLock<docs::Pages>,
    pub(crate) written: std::sync::OnceLock<[Page; 2]>,
}

impl Site {
    /// Names the sale that the page shows when its address names none. The first one stays.
    pub fn show_sale(&self, sale: &str) {
        let _ = self.sale.set(sale.to_owned());
    }

    /// Lets the sale page load a captcha from these sources, written as a Content-Security-Policy has them.
    pub(crate) fn let_captcha_in(&self, sources: String) {
        let _ = self.captcha.set(sources);
    }

    /// The pages that describe the API.
    pub(crate) fn docs(&self) -> &docs::Pages {
        self.docs.get_or_init(docs::Pages::write)
    }

    /// The sale page; with `payments` it leads to the provider.
    pub(crate) fn sale_page(&self, payments: bool, asked: &HeaderMap) -> Response {
        let [sale, _] = self.written();
        sale.with(&self.boot(payments), asked)
    }

    /// The page of an order, whichever its address names: it asks for the order itself.
    pub(crate) fn order_page(&self, payments: bool, asked: &HeaderMap) -> Response {
        let [_, order] = self.written();
        order.with(&self.boot(payments), asked)
    }

    fn written(&self) -> &[Page; 2] {
        let captcha = self.captcha.get().map(String::as_str);
        self.written.get_or_init(|| [Page::write(SALE, "sale", captcha), Page::write(ORDER, "order", None)])
    }

    fn boot(&self, payments: bool) -> Value {
        serde_json::json!({
            "saleId": self.sale.get(), "demoToken": self.demo_tokens.is_some(), "payments": payments,
        })
    }
}

/// A page without what only the running server knows.
pub(crate) struct Page {
    text: String,
    policy: HeaderValue,
    /// As it was sent last.
    sent: ArcSwapOption<Sent>,
}

/// A page with what the running server knows, which changes once or never.
struct Sent {
    boot: Value,
    plain: Bytes,
    /// The same for who takes gzip, a third as long.
    gzip: Bytes,
}

impl Page {
    fn write(shell: &str, own: &str, captcha: Option<&str>) -> Self {
        let mut text = shell.to_owned();
        for (mark, part) in PARTS {
            text = text.replace(mark, part);
        }
        text = text.replace(CAPTCHA.0, if captcha.is_some() { CAPTCHA.1 } else { "" });
        // What is said to whoever reads the files is nothing to whoever waits for a page.
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let text = lines.flat_map(|line| [line, "\n"]).collect::<String>();
        let text = text.replace(WORDS_MARK, &inside_script(&words(own).into()));
        let policy = policy(&text, captcha);
        Self { text, policy, sent: ArcSwapOption::empty() }
    }

    fn with(&self, boot: &Value, asked: &HeaderMap) -> Response {
        let page = self.sent(boot);
        let gzip = takes_gzip(asked);
        let headers = [
            (VARY, HeaderValue::from_static("accept-encoding")),
            (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (CONTENT_SECURITY_POLICY, self.policy.clone()),
        ];
        if gzip {
            let encoded = [(CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
            (headers, encoded, page.gzip.clone()).into_response()
        } else {
            (headers, page.plain.clone()).into_response()
        }
    }

    fn sent(&self, boot: &Value) -> Arc<Sent> {
        if let Some(sent) = self.sent.load_full().filter(|sent| sent.boot == *boot) {
            return sent;
        }
        let plain = self.text.replace(BOOT, &inside_script(boot)).into_bytes();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory cannot fail.
        let _ = gzip.write_all(&plain);
        let gzip = gzip.finish().unwrap_or_default().into();
        let sent = Arc::new(Sent { boot: boot.clone(), plain: plain.into(), gzip });
        self.sent.store(Some(Arc::clone(&sent)));
        sent
    }
}

/// Whether an Accept-Encoding names gzip and does not refuse it.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let texts = asked.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let refused = quality.trim().strip_prefix("q=").is_some_and(|q| q.trim().parse() == Ok(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

/// The words of both pages and of the page `own`: for each key English, French and Chinese.
fn words(own: &str) -> Map<String, Value> {
    let catalogue: Value = serde_json::from_str(WORDS).unwrap_or_default();
    let sections = ["both", own].into_iter().filter_map(|section| catalogue[section].as_object());
    sections.flatten().map(|(key, words)| (key.clone(), words.clone())).collect()
}

/// A value as data in a script element, which `<` cannot end early.
fn inside_script(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

/// Only the page's own script and style may run: they are named by their hashes. A captcha of others is let in
/// from its `captcha` sources, and may show a frame.
fn policy(page: &str, captcha: Option<&str>) -> HeaderValue {
    let scripts = hashes(page, "<script>", "</script>");
    let styles = hashes(page, "<style>", "</style>");
    let also = captcha.map(|sources| format!(" {sources}")).unwrap_or_default();
    let frames = captcha.map(|sources| format!("frame-src {sources}; ")).unwrap_or_default();
    let policy = format!(
        "default-src 'none'; script-src {scripts}{also}; style-src {styles}{also}; connect-src 'self'{also}; \
         {frames}img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

/// An inline script or style as a content security policy names it.
pub(crate) fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

fn hashes(page: &str, begin: &str, end: &str) -> String {
    let inner = page.split(begin).skip(1).filter_map(|rest| rest.split_once(end));
    inner.map(|(text, _)| format!("'{}'", hash(text))).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Most bytes of a page on the wire: with its few answers it stays far below 50 KB.
    const BYTES_MAX: usize = 20 * 1024;

    /// The same for who takes no gzip.
    const BYTES_MAX_PLAIN: usize = 56 * 1024;

    fn is_small(page: &Page) {
        let sent = page.sent(&Value::Null);
        assert!(sent.gzip.len() < BYTES_MAX, "the page has {} bytes", sent.gzip.len());
        assert!(sent.plain.len() < BYTES_MAX_PLAIN, "the page has {} bytes", sent.plain.len());
    }

    #[test]
    fn a_page_is_short_for_who_takes_that() {
        let asked =
            |text: &'static str| HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(text))]);
        for (text, takes) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0, br", false),
            ("identity", false),
            ("xgzip", false),
            ("", false),
        ] {
            assert_eq!(takes_gzip(&asked(text)), takes, "{text}");
            let page = Site::default().sale_page(false, &asked(text));
            assert_eq!(page.headers().contains_key(CONTENT_ENCODING), takes, "{text}");
            assert_eq!(page.headers()[VARY], "accept-encoding");
        }
    }

    /// What stands between `begin` and the next `"`, wherever it does.
    fn between<'a>(text: &'a str, begin: &str) -> BTreeSet<&'a str> {
        text.split(begin).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    fn blanks(text: &str) -> BTreeSet<&str> {
        text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).collect()
    }

    #[test]
    fn every_word_is_there_in_every_language_with_the_same_blanks() {
        for own in ["sale", "order"] {
            for (key, texts) in words(own) {
                let texts: Vec<&str> =
                    texts.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
                assert_eq!(texts.len(), 3, "{key} has an English, a French and a Chinese text");
                for text in &texts {
                    assert!(!text.trim().is_empty(), "{key}: {texts:?}");
                    assert_eq!(blanks(text), blanks(texts[0]), "{key}: {texts:?}");
                }
            }
        }
    }

    #[test]
    fn a_pages_words_are_those_that_it_says() {
        for (shell, own) in [(SALE, "sale"), (ORDER, "order")] {
            let page = Page::write(shell, own, None).text;
            let (before, script) = page.rsplit_once("<script>").unwrap();
            let ids = between(before, "id=\"");
            let words = words(own);
            for call in [" t(\"", "(t(\"", "!t(\"", "{t(\"", "[t(\""] {
                for said in between(script, call) {
                    assert!(words.contains_key(said), "{own}.js says {said}, which words.json lacks");
                }
            }
            for key in words.keys() {
                let said = script.contains(&format!("\"{key}\"")) || script.contains(&format!(" {key}: {{"));
                assert!(said || ids.contains(key.as_str()), "no part of the {own} page says {key}");
            }
        }
    }

    #[test]
    fn pages_are_whole_small_and_run_their_own_script_alone() {
        for (shell, own) in [(SALE, "sale"), (ORDER, "order")] {
            let page = Page::write(shell, own, None);
            let text = page.text.replace(BOOT, "{}");
            assert!(!text.contains("{{"), "a part of the {own} page is not there: {text}");
            is_small(&page);
            let policy = page.policy.to_str().unwrap();
            assert_eq!(policy.matches("'sha256-").count(), 2, "{policy}");
            for loads in ["src=", "@import", "url(", " style=", " onclick=", "https://"] {
                assert!(!text.contains(loads), "the {own} page has {loads}");
            }
        }
    }

    #[test]
    fn a_captcha_of_others_is_let_into_the_sale_page_alone_and_from_its_place_alone() {
        let policies =
            |site: &Site| site.written().each_ref().map(|it| it.policy.to_str().unwrap().to_owned());
        assert!(!Site::default().written()[0].text.contains("createElement(\"script\")"));
        for policy in policies(&Site::default()) {
            assert!(!policy.contains("https:") && !policy.contains("frame-src"), "{policy}");
        }
        let site = Site::default();
        site.let_captcha_in("https://captcha.example".to_owned());
        let [sale, order] = policies(&site);
        let text = &site.written()[0].text;
        assert!(text.contains("widgetAnswer(") && !text.contains("{{captcha"), "{text}");
        is_small(&site.written()[0]);
        assert_eq!(sale.matches("https:").count(), 4, "{sale}");
        for directive in
            ["script-src 'sha256-", "style-src 'sha256-", "connect-src 'self' https://captcha.example;"]
        {
            assert!(sale.contains(directive), "{sale}");
        }
        assert!(sale.contains("frame-src https://captcha.example;"), "{sale}");
        assert_eq!(order, policies(&Site::default())[1]);
    }

    #[test]
    fn what_the_server_knows_cannot_end_the_script_element() {
        let site = Site::default();
        site.show_sale("</script><script>alert(1)");
        let text = inside_script(&site.boot(true));
        assert!(!text.contains('<') && text.contains("\\u003c/script"), "{text}");
    }
}
