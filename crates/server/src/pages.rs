//! The sale page, compiled in.

use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doorbuster_loadtest::TokenSigner;
use sha2::{Digest, Sha256};

use crate::docs;

const SALE_PAGE: &str = include_str!("../../../web/sale.html");
const BOOT: &str = "__DOORBUSTER_BOOT__";

/// What the pages of this server need to know.
#[derive(Default)]
pub struct Site {
    /// Signs tokens for whoever opens the page; only in a demo.
    pub demo_tokens: Option<TokenSigner>,
    pub(crate) sale: std::sync::OnceLock<String>,
    pub(crate) docs: std::sync::OnceLock<docs::Pages>,
}

impl Site {
    /// Names the sale that the page shows when its address names none. The first one stays.
    pub fn show_sale(&self, sale: &str) {
        let _ = self.sale.set(sale.to_owned());
    }

    /// The pages that describe the API.
    pub(crate) fn docs(&self) -> &docs::Pages {
        self.docs.get_or_init(docs::Pages::write)
    }

    /// The sale page; with `payments` it leads to the provider.
    pub(crate) fn sale_page(&self, payments: bool) -> Response {
        let demo_token = self.demo_tokens.is_some();
        let boot = serde_json::json!({
            "saleId": self.sale.get(), "demoToken": demo_token, "payments": payments,
        });
        // `<` cannot end the script element early.
        let page = SALE_PAGE.replace(BOOT, &boot.to_string().replace('<', "\\u003c"));
        let policy = policy(&page);
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (CONTENT_SECURITY_POLICY, policy),
        ];
        (headers, page).into_response()
    }
}

/// Only the page's own script and style may run: they are named by their hashes.
fn policy(page: &str) -> HeaderValue {
    let scripts = hashes(page, "<script>", "</script>");
    let styles = hashes(page, "<style>", "</style>");
    let policy = format!(
        "default-src 'none'; script-src {scripts}; style-src {styles}; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
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
