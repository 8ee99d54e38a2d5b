//! The HTTP API's description: two OpenAPI documents kept by hand, and pages written from them.
//!
//! `web/openapi.json` describes the public listener, `web/openapi-admin.json` the staff's. The pages
//! are whole in themselves: one style, named by its hash, and no script.

use std::fmt::{self, Write};

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;

use crate::api::ApiState;
use crate::{pages, problem};

const PUBLIC: &str = include_str!("../../../web/openapi.json");
const STAFF: &str = include_str!("../../../web/openapi-admin.json");
const STYLE: &str = include_str!("../../../web/docs.css");

/// The pages, written once per server.
#[derive(Debug)]
pub(crate) struct Pages {
    api: Bytes,
    errors: Bytes,
}

impl Pages {
    pub(crate) fn write() -> Self {
        let documents = [PUBLIC, STAFF].map(|text| serde_json::from_str(text).unwrap_or_default());
        let mut api = Page::begin("The HTTP API of Doorbuster");
        let mut errors = Page::begin("The error words of Doorbuster");
        // Writing to a string cannot fail.
        let _ = api.api(&documents);
        let _ = errors.catalogue(&documents);
        Self { api: api.end(), errors: errors.end() }
    }
}

pub(crate) async fn api(State(state): State<ApiState>) -> Response {
    html(state.site.docs().api.clone())
}

pub(crate) async fn errors(State(state): State<ApiState>) -> Response {
    html(state.site.docs().errors.clone())
}

/// The public listener's document.
pub(crate) async fn public_document() -> Response {
    document(PUBLIC)
}

/// The staff's listener's document.
pub(crate) async fn staff_document() -> Response {
    document(STAFF)
}

fn document(text: &'static str) -> Response {
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "max-age=300")];
    (headers, text).into_response()
}

fn html(page: Bytes) -> Response {
    let policy = format!(
        "default-src 'none'; style-src '{}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        pages::hash(STYLE)
    );
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("max-age=300")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (
            CONTENT_SECURITY_POLICY,
            HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'")),
        ),
    ];
    (headers, page).into_response()
}

/// One operation of a document.
struct Operation<'a> {
    id: &'a str,
    method: String,
    path: &'a str,
    value: &'a Value,
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let mut found = Vec::new();
    for (path, methods) in members(&document["paths"]) {
        for (method, value) in members(methods) {
            found.push(Operation {
                id: text(&value["operationId"]),
                method: method.to_uppercase(),
                path,
                value,
            });
        }
    }
    found
}

/// A response with its reference followed.
fn response<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match text(&value["$ref"]).strip_prefix('#').and_then(|place| document.pointer(place)) {
        Some(shared) => shared,
        None => value,
    }
}

/// The error words of a response.
fn words(response: &Value) -> Vec<&str> {
    let schema = &response["content"]["application/problem+json"]["schema"]["allOf"][1];
    let words = schema["properties"]["error"]["enum"].as_array();
    words.into_iter().flatten().map(text).collect()
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The last part of a reference.
fn referred(value: &Value) -> &str {
    text(&value["$ref"]).rsplit('/').next().unwrap_or_default()
}

struct Page(String);

impl Page {
    fn begin(title: &str) -> Self {
        Self(format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <title>{title}</title><style>{STYLE}</style></head><body><header><h1>{title}</h1>\
             <nav><a href=\"/docs\">The API</a> <a href=\"/docs/errors\">Error words</a> \
             <a href=\"/openapi.json\">openapi.json</a></nav></header><main>\n"
        ))
    }

    fn end(mut self) -> Bytes {
        self.0.push_str("</main></body></html>\n");
        self.0.into()
    }

    fn api(&mut self, documents: &[Value]) -> fmt::Result {
        for (number, document) in documents.iter().enumerate() {
            let info = &document["info"];
            write!(self.0, "<h2>{}</h2><p>{}</p>", prose(&info["title"]), prose(&info["description"]))?;
            for operation in operations(document) {
                self.operation(number, document, &operation)?;
            }
            write!(self.0, "<h3>Values</h3>")?;
            for (name, schema) in members(&document["components"]["schemas"]) {
                self.schema(number, name, schema)?;
            }
        }
        Ok(())
    }

    fn operation(&mut self, number: usize, document: &Value, operation: &Operation<'_>) -> fmt::Result {
        let Operation { id, method, path, value } = operation;
        write!(self.0, "<section id=\"{number}-{id}\"><h3>{}</h3>", prose(&value["summary"]))?;
        writeln!(self.0, "<p><code><b>{method}</b> {}</code></p>", escape(path))?;
        if !text(&value["description"]).is_empty() {
            write!(self.0, "<p>{}</p>", prose(&value["description"]))?;
        }
        let parameters: Vec<&Value> = value["parameters"].as_array().into_iter().flatten().collect();
        if !parameters.is_empty() {
            write!(self.0, "<table><tr><th>Parameter</th><th>In</th><th>Meaning</th></tr>")?;
            for parameter in parameters {
                let it = response(document, parameter);
                let (name, place) = (escape(text(&it["name"])), text(&it["in"]));
                let need = if it["required"] == true { "" } else { " (optional)" };
                let meaning = prose(&it["description"]);
                write!(
                    self.0,
                    "<tr><td><code>{name}</code>{need}</td><td>{place}</td><td>{meaning}</td></tr>"
                )?;
            }
            writeln!(self.0, "</table>")?;
        }
        let body = &value["requestBody"]["content"]["application/json"];
        if !body.is_null() {
            let name = referred(&body["schema"]);
            write!(self.0, "<p>Body: <a href=\"#{number}-{name}\">{name}</a></p>")?;
            self.example(&body["example"])?;
        }
        self.responses(number, document, value)?;
        writeln!(self.0, "</section>")
    }

    fn responses(&mut self, number: usize, document: &Value, operation: &Value) -> fmt::Result {
        write!(self.0, "<table><tr><th>Status</th><th>When</th><th>Body</th></tr>")?;
        let mut good = None;
        for (status, value) in members(&operation["responses"]) {
            let it = response(document, value);
            write!(self.0, "<tr><td>{status}</td><td>{}</td><td>", prose(&it["description"]))?;
            for word in words(it) {
                write!(self.0, "<a href=\"/docs/errors#{word}\"><code>{word}</code></a> ")?;
            }
            let json = &it["content"]["application/json"];
            let name = referred(&json["schema"]);
            if !name.is_empty() {
                write!(self.0, "<a href=\"#{number}-{name}\">{name}</a>")?;
            }
            good = good.or(Some(&json["example"]).filter(|example| !example.is_null()));
            write!(self.0, "</td></tr>")?;
        }
        writeln!(self.0, "</table>")?;
        good.map_or(Ok(()), |example| self.example(example))
    }

    fn example(&mut self, example: &Value) -> fmt::Result {
        let pretty = serde_json::to_string_pretty(example).unwrap_or_default();
        writeln!(self.0, "<pre>{}</pre>", escape(&pretty))
    }

    fn schema(&mut self, number: usize, name: &str, schema: &Value) -> fmt::Result {
        write!(self.0, "<section id=\"{number}-{name}\"><h4>{name}</h4>")?;
        write!(self.0, "<p>{}</p><table>", prose(&schema["description"]))?;
        let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().map(text).collect();
        for (member, it) in members(&schema["properties"]) {
            let need = if required.contains(&member) { "" } else { " (optional)" };
            let kind = escape(&kind(it));
            let meaning = prose(&it["description"]);
            write!(self.0, "<tr><td><code>{member}</code>{need}</td><td>{kind}</td><td>{meaning}</td></tr>")?;
        }
        writeln!(self.0, "</table></section>")
    }

    /// Every error word, each with an anchor that a problem's `type` leads to.
    fn catalogue(&mut self, documents: &[Value]) -> fmt::Result {
        write!(
            self.0,
            "<p>Every error is <code>application/problem+json</code> and says one of these words in <code>error</code>. "
        )?;
        writeln!(self.0, "Decide by the word: titles and details may be worded better one day.</p>")?;
        for word in problem::ALL {
            let problem::Word { status, error, title, detail, .. } = word;
            write!(
                self.0,
                "<section id=\"{error}\"><h2><code>{error}</code> {title}</h2><p>Status {status}. "
            )?;
            write!(self.0, "{}</p>", prose(&Value::from(*detail)))?;
            let mut said_by = Vec::new();
            for (number, document) in documents.iter().enumerate() {
                for operation in operations(document) {
                    let mut responses = members(&operation.value["responses"]);
                    if responses.any(|(_, value)| words(response(document, value)).contains(error)) {
                        let summary = prose(&operation.value["summary"]);
                        said_by.push(format!("<a href=\"/docs#{number}-{}\">{summary}</a>", operation.id));
                    }
                }
            }
            if !said_by.is_empty() {
                write!(self.0, "<p>Said by: {}.</p>", said_by.join(" · "))?;
            }
            writeln!(self.0, "</section>")?;
        }
        Ok(())
    }
}

/// A schema's kind in a word or two.
fn kind(schema: &Value) -> String {
    if let Some(words) = schema["enum"].as_array() {
        return words.iter().map(text).collect::<Vec<_>>().join(" | ");
    }
    match &schema["type"] {
        Value::String(kind) if kind == "array" => format!("list of {}", self::kind(&schema["items"])),
        Value::String(kind) => match text(&schema["format"]) {
            "" => kind.clone(),
            format => format.to_owned(),
        },
        Value::Array(kinds) => kinds.iter().map(text).collect::<Vec<_>>().join(" | "),
        _ => referred(schema).to_owned(),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A text with what stands between backquotes set as code.
fn prose(value: &Value) -> String {
    let text = escape(text(value));
    let parts = text.split('`').enumerate();
    parts
        .map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use doorbuster_wire as wire;
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::*;

    fn documents() -> [Value; 2] {
        [PUBLIC, STAFF].map(|text| serde_json::from_str(text).unwrap())
    }

    #[test]
    fn the_documents_have_this_programs_version() {
        for document in documents() {
            assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
            assert_eq!(document["openapi"], "3.1.0");
        }
    }

    #[test]
    fn every_error_word_is_in_the_catalogue_and_in_a_document() {
        let documents = documents();
        let errors = String::from_utf8(Pages::write().errors.to_vec()).unwrap();
        let mut said = BTreeSet::from(["NOT_FOUND", "HEAD_TOO_LARGE", "INTERNAL"]); // Said where no operation is.
        for document in &documents {
            for operation in operations(document) {
                for (status, value) in members(&operation.value["responses"]) {
                    for word in words(response(document, value)) {
                        let known = problem::ALL.iter().find(|it| it.error == word).unwrap();
                        assert_eq!(known.status.to_string(), status, "{word}");
                        said.insert(known.error);
                    }
                }
            }
        }
        for word in problem::ALL {
            assert!(errors.contains(&format!("<section id=\"{}\">", word.error)), "{}", word.error);
            assert!(said.contains(word.error), "{} is in no document", word.error);
        }
    }

    #[test]
    fn every_link_of_the_pages_has_its_anchor() {
        let pages = Pages::write();
        let api = String::from_utf8(pages.api.to_vec()).unwrap();
        let errors = String::from_utf8(pages.errors.to_vec()).unwrap();
        let mut links = 0;
        for page in [&api, &errors] {
            for link in page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let Some((place, anchor)) = link.split_once('#') else { continue };
                let target = if place == "/docs/errors" { &errors } else { &api };
                assert!(target.contains(&format!("id=\"{anchor}\"")), "{link}");
                links += 1;
            }
        }
        assert!(links > 100, "{links}");
    }

    /// Reads an example as the wire type and writes it again: a member that only one of them knows
    /// does not survive. What the type always writes is what the schema requires.
    fn agrees<T: DeserializeOwned + Serialize>(document: &Value, schema: &str) {
        let examples: Vec<&Value> = examples_of(document, schema);
        assert!(!examples.is_empty(), "{schema} has no example");
        let known = &document["components"]["schemas"][schema];
        let mut written = BTreeSet::new();
        for example in examples {
            let value: T = serde_json::from_value(example.clone()).unwrap();
            let again = serde_json::to_value(&value).unwrap();
            assert_eq!(again, *example, "{schema}");
            written.extend(members(&again).map(|(name, _)| name.to_owned()));
        }
        for (name, _) in members(&known["properties"]) {
            let required = known["required"].as_array().is_some_and(|all| all.iter().any(|it| it == name));
            let mut less = examples_of(document, schema)[0].clone();
            if less.as_object_mut().unwrap().remove(name).is_some() {
                let readable = serde_json::from_value::<T>(less).is_ok();
                assert_eq!(readable, !required, "{schema}.{name}");
            }
            written.remove(name);
        }
        assert!(written.is_empty(), "{schema} does not have {written:?}");
    }

    /// The examples of a schema, also those inside the examples of others.
    fn examples_of<'a>(document: &'a Value, schema: &str) -> Vec<&'a Value> {
        fn within<'a>(
            document: &'a Value,
            schema: &Value,
            value: &'a Value,
            name: &str,
            out: &mut Vec<&'a Value>,
        ) {
            let known = &document["components"]["schemas"][referred(schema)];
            if referred(schema) == name {
                out.push(value);
            }
            for (member, inner) in members(&known["properties"]) {
                match &value[member] {
                    Value::Array(values) => {
                        values.iter().for_each(|value| within(document, &inner["items"], value, name, out));
                    }
                    Value::Null => {}
                    value => within(document, inner, value, name, out),
                }
            }
        }
        let mut out = Vec::new();
        for operation in operations(document) {
            let bodies = members(&operation.value["responses"]).map(|(_, value)| &value["content"]);
            for content in bodies.chain([&operation.value["requestBody"]["content"]]) {
                let json = &content["application/json"];
                within(document, &json["schema"], &json["example"], schema, &mut out);
            }
        }
        out
    }

    #[test]
    fn the_schemas_are_the_wire_types() {
        let [public, staff] = documents();
        agrees::<wire::Money>(&public, "Money");
        agrees::<wire::PurchaseAccepted>(&public, "PurchaseAccepted");
        agrees::<wire::OrderView>(&public, "OrderView");
        agrees::<wire::PaymentStarted>(&public, "PaymentStarted");
        agrees::<wire::WebhookReceived>(&public, "WebhookReceived");
        agrees::<wire::MyOrders>(&public, "MyOrders");
        agrees::<wire::SaleView>(&public, "SaleView");
        agrees::<wire::ItemView>(&public, "ItemView");
        agrees::<wire::SaleTokenView>(&public, "SaleTokenView");
        agrees::<wire::GetSaleToken>(&public, "GetSaleToken");
        agrees::<wire::AskWaitingRoom>(&public, "AskWaitingRoom");
        agrees::<wire::WaitingRoomView>(&public, "WaitingRoomView");
        agrees::<wire::TimeView>(&public, "TimeView");
        agrees::<wire::SaleDraft>(&staff, "SaleDraft");
        agrees::<wire::ItemDraft>(&staff, "ItemDraft");
        agrees::<wire::SaleDetail>(&staff, "SaleDetail");
        agrees::<wire::ItemDetail>(&staff, "ItemDetail");
        agrees::<wire::Page<wire::SaleDetail>>(&staff, "SalePage");
        agrees::<wire::PreheatReport>(&staff, "PreheatReport");
        agrees::<wire::PreheatItem>(&staff, "PreheatItem");
        agrees::<wire::Restock>(&staff, "Restock");
        agrees::<wire::OrderRow>(&staff, "OrderRow");
        agrees::<wire::Page<wire::OrderRow>>(&staff, "OrderPage");
        agrees::<wire::MarkPaid>(&staff, "MarkPaid");
        agrees::<wire::Paid>(&staff, "Paid");
        agrees::<wire::SetSwitch>(&staff, "SetSwitch");
        agrees::<wire::SwitchRow>(&staff, "SwitchRow");
        agrees::<wire::Page<wire::SwitchRow>>(&staff, "SwitchPage");
        agrees::<wire::SwitchTurn>(&staff, "SwitchTurn");
        agrees::<wire::Page<wire::SwitchTurn>>(&staff, "SwitchHistoryPage");
        agrees::<wire::TrailRow>(&staff, "TrailRow");
        agrees::<wire::Page<wire::TrailRow>>(&staff, "TrailPage");
        agrees::<wire::AuditReport>(&staff, "AuditReport");
    }

    #[test]
    fn a_challenge_is_ours_or_what_anothers_widget_is_given() {
        let [public, _] = documents();
        let known = &public["components"]["schemas"]["Challenge"];
        let some = |text: &str| Some(text.to_owned());
        let widget = wire::CaptchaWidget {
            provider: "turnstile".to_owned(),
            site_key: "s".to_owned(),
            script_url: "https://script.example/".to_owned(),
            action: some("a"),
            cdata: some("c"),
        };
        let widget = serde_json::to_value(&widget).unwrap();
        let ours = examples_of(&public, "Challenge");
        let named: BTreeSet<&str> =
            ours.into_iter().chain([&widget]).flat_map(members).map(|it| it.0).collect();
        assert_eq!(named, members(&known["properties"]).map(|it| it.0).collect());
    }

    #[test]
    fn the_examples_of_problems_are_what_the_words_say() {
        for document in documents() {
            for (_, value) in members(&document["components"]["responses"]) {
                for (word, example) in members(&value["content"]["application/problem+json"]["examples"]) {
                    let example: wire::Problem = serde_json::from_value(example["value"].clone()).unwrap();
                    let known = problem::ALL.iter().find(|it| it.error == word).unwrap();
                    assert_eq!((example.detail.as_str(), example.status), (known.detail, known.status));
                }
            }
        }
    }
}
