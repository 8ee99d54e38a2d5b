//! The documents are what the server does: routes, statuses, error words, metrics.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod served;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use served::{Reply, Served, VIEWER, in_repository, request};

const ORDER: &str = "0198c5a4-7b1e-7c3a-9d2f-0a1b2c3d4e5f";

fn document(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(in_repository("web").join(name)).unwrap()).unwrap()
}

/// Every operation of a document: path, method, description.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let methods = paths.iter().flat_map(|(path, methods)| {
        methods
            .as_object()
            .unwrap()
            .iter()
            .map(|(method, it)| (path.clone(), method.to_uppercase(), it.clone()))
    });
    methods.collect()
}

/// Whether the document has this answer to this operation.
fn documents(document: &Value, operation: &Value, reply: &Reply) -> bool {
    let mut response = &operation["responses"][reply.status.to_string()];
    if let Some(place) = response["$ref"].as_str() {
        response = document.pointer(place.trim_start_matches('#')).unwrap();
    }
    let schema = &response["content"]["application/problem+json"]["schema"]["allOf"][1];
    match schema["properties"]["error"]["enum"].as_array() {
        Some(words) => words.iter().any(|word| *word == reply.word().as_str()),
        None => !response.is_null() && reply.word().is_empty(),
    }
}

fn filled(path: &str, sale: &str, item: &str) -> String {
    path.replace("{saleId}", sale)
        .replace("{itemId}", item)
        .replace("{orderId}", ORDER)
        .replace("{letterId}", "1")
        .replace("{blockId}", "1")
        .replace("{deliveryId}", "1")
        .replace("{endpoint}", "shop")
        .replace("{provider}", "stripe")
        .replace("{name}", "user_rate")
}

#[test]
fn every_documented_operation_is_served_and_answers_as_documented() {
    let server = Served::start();
    let (sale, item) = server.open_sale(10, 1);
    let token = server.token("alice");
    let mut count = 0;
    for (name, staff) in [("openapi.json", false), ("openapi-admin.json", true)] {
        let document = document(name);
        for (path, method, operation) in operations(&document) {
            let body = &operation["requestBody"]["content"]["application/json"]["example"];
            let filled = filled(&path, &sale, &item);
            let ask = |path: &str, token: Option<&str>, body: Option<&Value>| {
                if staff {
                    request(server.admin, &method, path, token.map(|_| served::ADMIN), body, "")
                } else {
                    server.buyer(&method, path, token, body)
                }
            };
            let some = Some(body).filter(|body| !body.is_null());
            let replies = [
                ask(&filled, Some(&token), some),
                ask(&filled, None, some),
                ask(&filled, Some(&token), Some(&json!([1]))),
                ask(&path.replace(['{', '}'], "~"), Some(&token), some),
                ask(
                    &path
                        .replace("{saleId}", "%ff")
                        .replace("{itemId}", "%ff")
                        .replace("{orderId}", "%ff")
                        .replace("{letterId}", "%ff")
                        .replace("{blockId}", "%ff")
                        .replace("{deliveryId}", "%ff")
                        .replace("{endpoint}", "%ff")
                        .replace("{name}", "%ff"),
                    Some(&token),
                    some,
                ),
            ];
            for reply in replies {
                assert!(documents(&document, &operation, &reply), "{method} {path}: {reply:?}");
                count += 1;
            }
        }
    }
    assert!(count > 100, "{count}");
    let address = server.buyer("GET", "/nothing/here", None, None);
    assert_eq!((address.status, address.word().as_str()), (404, "NOT_FOUND"));
}

#[test]
fn every_documented_change_of_the_staff_is_in_the_trail_with_its_key() {
    let server = Served::start();
    let (sale, item) = server.open_sale(10, 1);
    let mut keys = BTreeSet::new();
    for (path, method, operation) in operations(&document("openapi-admin.json")) {
        if method == "GET" {
            continue;
        }
        let body = &operation["requestBody"]["content"]["application/json"]["example"];
        let key = format!("key-{}", keys.len());
        let path = filled(&path, &sale, &item);
        let header = format!("Idempotency-Key: {key}\r\n");
        let body = Some(body).filter(|body| !body.is_null());
        let ask = || request(server.admin, &method, &path, Some(served::ADMIN), body, &header);
        let (first, again) = (ask(), ask());
        assert_eq!((first.status, &first.body), (again.status, &again.body), "{method} {path}");
        assert_eq!(again.header("idempotent-replayed"), Some("true"), "{method} {path}: {again:?}");
        keys.insert(key);
    }
    assert!(keys.len() > 15, "{keys:?}");
    let trail = request(server.admin, "GET", "/admin/api/trail?limit=1000", Some(VIEWER), None, "").json();
    let trail = trail["items"].as_array().unwrap().iter();
    let kept: BTreeSet<String> =
        trail.filter_map(|row| row["idempotencyKey"].as_str().map(str::to_owned)).collect();
    assert_eq!(kept, keys);
}

/// A path without the names of its parameters.
fn shape(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { "{}" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn every_route_is_documented() {
    for (source, name) in [("admin/mod.rs", "openapi-admin.json"), ("api/mod.rs", "openapi.json")] {
        let source = std::fs::read_to_string(in_repository("crates/server/src").join(source)).unwrap();
        let documented: BTreeSet<String> =
            operations(&document(name)).into_iter().map(|(path, ..)| shape(&path)).collect();
        let routes = source.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let routes: Vec<String> = routes.map(shape).collect();
        assert!(routes.len() > 5, "{routes:?}");
        for path in routes {
            // The demo and the sandbox alone have these.
            let elsewhere = ["/demo/token", "/sandbox/pay/{}"].contains(&path.as_str());
            assert!(documented.contains(&path) || elsewhere, "{name} lacks {path}");
        }
    }
}

#[test]
fn what_is_neither_documented_nor_served_is_answered_405_with_the_methods() {
    let server = Served::start();
    for (name, to) in [("openapi.json", server.public), ("openapi-admin.json", server.admin)] {
        let document = document(name);
        let paths: BTreeSet<String> = operations(&document).into_iter().map(|(path, ..)| path).collect();
        for path in paths {
            let reply = request(to, "PATCH", &filled(&path, "1", "1"), Some(served::ADMIN), None, "");
            assert_eq!((reply.status, reply.word().as_str()), (405, "METHOD_NOT_ALLOWED"), "{path}");
            let allowed = reply.header("allow").unwrap_or_else(|| panic!("{path}: {reply:?}"));
            for method in document["paths"][&path].as_object().unwrap().keys() {
                assert!(allowed.contains(&method.to_uppercase()), "{path}: {allowed}");
            }
        }
    }
}

#[test]
fn the_documents_and_pages_are_served_whole() {
    let server = Served::start();
    assert_eq!(server.buyer("GET", "/openapi.json", None, None).json(), document("openapi.json"));
    let staff = request(server.admin, "GET", "/admin/openapi.json", Some(VIEWER), None, "");
    assert_eq!(staff.json(), document("openapi-admin.json"));
    for (path, has) in
        [("/docs", "/api/flash-sales/items/{itemId}/purchase"), ("/docs/errors", "<section id=\"SOLD_OUT\">")]
    {
        let page = server.buyer("GET", path, None, None);
        assert_eq!(page.status, 200);
        assert!(page.body.contains(has), "{path}");
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"),
            "{policy}"
        );
        // Whole in itself: nothing is loaded, nothing runs.
        for loads in ["<script", "src=", "<link", "@import", "url(", " style=", "//"] {
            // An example's value is text.
            let body = page.body.replace("<!doctype html>", "").replace("https://pay.example/", "");
            assert!(!body.contains(loads), "{path} has {loads}");
        }
    }
    assert_eq!(request(server.admin, "GET", "/admin/openapi.json", None, None, "").status, 401);
}

/// Metric names in a scrape, by their TYPE lines.
fn exported(page: &str) -> BTreeSet<(String, String)> {
    let lines = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect()
}

#[test]
fn the_table_of_metrics_has_the_exported_names_with_their_labels() {
    let server = Served::start();
    let (sale, item) = server.open_sale(1, 1);
    assert_eq!(server.buy(&item, "alice").status, 202);
    assert_eq!(server.buy(&item, "bob").word(), "SOLD_OUT");
    assert_eq!(server.buyer("GET", &format!("/api/flash-sales/sales/{sale}"), None, None).status, 200);
    assert_eq!(request(server.admin, "GET", "/metrics", None, None, "").status, 401);
    let on = json!({"value": "on", "saleId": sale, "reason": "a test"});
    let turned = request(server.admin, "PUT", "/admin/api/switches/room", Some(served::ADMIN), Some(&on), "");
    assert_eq!(turned.status, 200, "{turned:?}");
    // A look takes a millisecond, and the usher's next one comes within some hundred.
    let scrape = |_| request(server.admin, "GET", "/metrics", Some(VIEWER), None, "");
    let page = (0..10_000).map(scrape).find(|page| page.body.contains("doorbuster_room_waiting{"));
    let page = page.expect("the usher looks at the room");
    assert_eq!(page.status, 200);

    let text = std::fs::read_to_string(in_repository("docs/metrics.md")).unwrap();
    let mut table = BTreeSet::new();
    for row in text.lines().filter_map(|line| line.strip_prefix("| `doorbuster_")) {
        let mut cells = row.split('|').map(str::trim);
        let name = format!("doorbuster_{}", cells.next().unwrap().trim_end_matches('`'));
        let kind = cells.next().unwrap().to_owned();
        let labels: BTreeSet<&str> =
            cells.next().unwrap().split(", ").map(|label| label.trim_matches('`')).collect();
        // Those of TLS have rows where a listener has it; its own stories look at them.
        if !name.starts_with("doorbuster_tls_") {
            assert_eq!(labels_of(&page.body, &name), labels, "{name}");
        }
        table.insert((name, kind));
    }
    assert_eq!(exported(&page.body), table);

    for line in [
        "doorbuster_purchases_total{outcome=\"ACCEPTED\"} 1".to_owned(),
        "doorbuster_purchases_total{outcome=\"SOLD_OUT\"} 1".to_owned(),
        format!("doorbuster_stock_units{{sale=\"{sale}\",item=\"{item}\",state=\"free\"}} 0"),
        "doorbuster_http_requests_total{listener=\"public\",route=\"/api/flash-sales/sales/{sale}\",status=\"2xx\"} 1".to_owned(),
        "doorbuster_http_requests_total{listener=\"admin\",route=\"/metrics\",status=\"4xx\"} 1".to_owned(),
        "doorbuster_publish_total{outcome=\"acknowledged\"} 1".to_owned(),
        format!("doorbuster_sale_fenced{{sale=\"{sale}\"}} 0"),
        "doorbuster_layer_up{layer=\"stock\"} 1".to_owned(),
    ] {
        assert!(page.body.lines().any(|it| it == line), "{line} is not in\n{}", page.body);
    }
    for user in ["alice", "bob"] {
        assert!(!page.body.contains(user), "a user became a label");
    }
    let open = request(
        server.admin,
        "GET",
        "/metrics",
        Some(VIEWER),
        None,
        "Accept: application/openmetrics-text;version=1.0.0\r\n",
    );
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    assert!(open.body.ends_with("# EOF\n"));
}

/// The labels that a metric's series have; `le` does not count. An empty text stands for none.
fn labels_of<'a>(page: &'a str, name: &str) -> BTreeSet<&'a str> {
    let of_it = |line: &&str| {
        let rest = line.strip_prefix(name).unwrap_or("-");
        ["", "_sum", "_count", "_bucket"]
            .iter()
            .any(|end| rest.strip_prefix(end).is_some_and(|rest| rest.starts_with(['{', ' '])))
    };
    let mut labels = BTreeSet::new();
    for line in page.lines().filter(of_it) {
        let inside =
            line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(inside, _)| inside);
        // Values have no commas or quotes here, but templates have braces.
        labels.extend(inside.split("\",").filter_map(|pair| pair.split_once('=')).map(|(label, _)| label));
    }
    labels.remove("le");
    if labels.is_empty() { BTreeSet::from([""]) } else { labels }
}

#[test]
fn scanned_paths_make_no_series() {
    let server = Served::start();
    for n in 0..50 {
        assert_eq!(server.buyer("GET", &format!("/scan/{n}"), None, None).status, 404);
        assert_eq!(server.buyer("GET", &format!("/api/flash-sales/orders/{n}"), None, None).status, 401);
    }
    let page = request(server.admin, "GET", "/metrics", Some(VIEWER), None, "");
    let series = page.body.lines().filter(|line| line.starts_with("doorbuster_http_requests_total{"));
    assert!(series.clone().count() < 10, "{:?}", series.collect::<Vec<_>>());
    assert!(page.body.contains("listener=\"public\",route=\"none\",status=\"4xx\"} 50"));
}
