//! Logs: one line of JSON per event, whatever is sent, and never a secret.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod served;

use doorbuster_services::judge::Judge;
use serde_json::{Value, json};
use served::{ADMIN, SECRET, Served, VIEWER, request, send};

/// A line of its own and a terminal's colour, if they are not escaped.
const FORGED: &str = r#"%0A{"level":"FATAL","message":"forged"}%1b[31m"#;
/// The same in a path.
const FORGED_PATH: &str = "%0A%7B%22level%22:%22FATAL%22,%22message%22:%22forged%22%7D%1b%5B31m";

#[test]
fn what_is_sent_cannot_forge_a_line() {
    let server = Served::start();
    let (_, item) = server.open_sale(1, 1);
    let hostile: [&[u8]; 4] = [
        b"GET /api/flash-sales/orders/%0A%1b[31m HTTP/1.1\r\nHost: x\r\nConnection: close\r\nUser-Agent: a\n{\"level\":\"FATAL\"}\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nUser-Agent: \x1b[31mred\r\n\r\n",
        b"GET /\x1b[31m HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x1b[31m\n{\"level\":\"FATAL\",\"message\":\"forged\"}\n\r\n\r\n",
    ];
    for bytes in hostile {
        assert!(send(server.public, bytes).status < 500);
        assert!(send(server.admin, bytes).status < 500);
    }
    let more = format!("User-Agent: {FORGED}\r\ntraceparent: \t{FORGED}\u{85}\r\nX-Request-Id: {FORGED}\r\n");
    let path = format!("/api/flash-sales/items/{item}/purchase?{FORGED_PATH}");
    let bought = request(server.public, "POST", &path, Some(&server.token("eve\"\\u000a")), None, &more);
    assert_eq!(bought.status, 202, "{bought:?}");
    // The staff's changes are logged with their path.
    let path = format!("/admin/api/sales/{FORGED_PATH}/open");
    assert_eq!(request(server.admin, "POST", &path, Some(ADMIN), None, &more).word(), "SALE_NOT_FOUND");

    let lines = server.stop();
    for line in &lines {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(["DEBUG", "INFO", "WARN", "ERROR"].contains(&event["level"].as_str().unwrap()), "{line}");
        assert!(event["timestamp"].is_string() && event["message"].is_string(), "{line}");
        assert_ne!(event["message"], "forged");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    assert!(lines.iter().any(|line| line.contains("the staff changed something")));
}

/// S1, of the captcha's secret.
#[test]
fn a_secret_that_the_captchas_provider_refuses_is_told_as_an_error_and_not_shown() {
    const OURS: &str = "not-the-secret-that-the-provider-knows";
    let judge = Judge::start("the-right-one").unwrap();
    let (secret, url) = (format!("gate.captcha.secret={OURS}"), judge.siteverify_url());
    let url = format!("gate.captcha.siteverify_url={url}");
    let settings = ["gate.captcha.provider=hcaptcha", "gate.captcha.site_key=a-site", &secret, &url];
    let server = Served::start_with(&settings);
    let (sale, _) = server.open_sale(1, 1);
    let turned = json!({"value": "on", "saleId": sale, "reason": "a test"});
    assert_eq!(server.staff("PUT", "/admin/api/switches/captcha_required", Some(&turned)).status, 200);
    let ask = || {
        let (path, answer) =
            (format!("/api/flash-sales/sales/{sale}/token"), json!({"captcha": "an-answer"}));
        server.buyer("POST", &path, Some(&server.token("alice")), Some(&answer))
    };
    for _ in 0..3 {
        let reply = ask();
        assert_eq!((reply.status, reply.word().as_str()), (503, "NOT_READY"), "{reply:?}");
        assert!(!reply.body.contains(OURS));
    }
    let metrics = request(server.admin, "GET", "/metrics", Some(ADMIN), None, "");
    assert!(metrics.body.contains("doorbuster_siteverify_total{outcome=\"our_fault\"} 3\n"), "{metrics:?}");
    let lines = server.stop();
    for told in [&metrics.body, &lines.join("\n")] {
        assert!(!told.contains(OURS) && !told.contains("an-answer"), "{told}");
    }
    let errors: Vec<&String> = lines.iter().filter(|line| line.contains("\"ERROR\"")).collect();
    assert!(errors.len() == 1 && errors[0].contains("gate.captcha.secret_file"), "{errors:#?}");
}

#[test]
fn an_accepted_order_is_one_line_at_debug() {
    let server = Served::start();
    let (_, item) = server.open_sale(10, 1);
    let order = server.buy(&item, "alice").json()["orderId"].as_str().unwrap().to_owned();
    assert_eq!(server.buy(&item, "alice").word(), "ALREADY_PURCHASED");
    let events: Vec<Value> = server.stop().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let accepted: Vec<&Value> = events.iter().filter(|event| event["order.id"] == order.as_str()).collect();
    assert_eq!(accepted.len(), 1, "{accepted:?}");
    assert_eq!(accepted[0]["level"], "DEBUG");
    assert_eq!(accepted[0]["item.id"], item.as_str());
    assert_eq!(accepted[0]["request.id"].as_str().unwrap().len(), 24);
}

#[test]
fn a_proxy_that_nobody_named_is_told_of_once_and_a_named_one_never() {
    for (trusted, told) in [("", true), ("127.0.0.1", false)] {
        let server = Served::start_with(&[&format!("server.trusted_proxies={trusted}"), "server.cores=1"]);
        let (sale, _) = server.open_sale(10, 1);
        let path = format!("/api/flash-sales/sales/{sale}/orders");
        let token = server.token("alice");
        for _ in 0..20 {
            let from = "X-Forwarded-For: 198.51.100.7\r\n";
            assert_eq!(request(server.public, "GET", &path, Some(&token), None, from).status, 200);
        }
        let lines = server.stop();
        let warnings: Vec<&String> =
            lines.iter().filter(|line| line.contains("server.trusted_proxies")).collect();
        assert_eq!(warnings.len(), usize::from(told), "{warnings:?}");
        assert!(lines.iter().all(|line| !line.contains("198.51.100.7")), "an address in the log");
    }
}

#[test]
fn a_flood_of_forged_webhooks_is_no_flood_of_warnings() {
    const MANY: usize = 50;
    let server = Served::start_with(&["payments.provider=sandbox"]);
    let path = "/api/flash-sales/payments/sandbox/webhook";
    for _ in 0..MANY {
        assert_eq!(
            request(server.public, "POST", path, None, Some(&Value::Null), "").word(),
            "WEBHOOK_REFUSED"
        );
    }
    let lines = server.stop();
    let of = |message: &str, level: &str| {
        let events = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["message"] == message && event["level"] == level).count()
    };
    assert_eq!(of("a webhook is refused", "DEBUG"), MANY, "each can be found by its request");
    let told = of("webhooks are refused", "WARN");
    assert!((1..MANY / 5).contains(&told), "{told} warnings");
}

#[test]
fn no_output_of_a_run_has_a_secret() {
    let server = Served::start();
    let (sale, item) = server.open_sale(2, 1);
    let tokens = ["alice", "bob", "carol"].map(|user| server.token(user));
    let mut outputs = Vec::new();
    let purchase = format!("/api/flash-sales/items/{item}/purchase");
    for token in &tokens {
        for (method, path) in
            [("POST", purchase.as_str()), ("GET", "/api/flash-sales/sales/1/orders"), ("PUT", &purchase)]
        {
            outputs.push(server.buyer(method, path, Some(token), None));
            outputs.push(server.buyer(method, path, Some(&token[..token.len() - 1]), None));
            // A buyer's token at the staff's door and the other way round.
            outputs.push(request(server.admin, "GET", "/admin/api/audit", Some(token), None, ""));
            outputs.push(server.buyer(method, path, Some(ADMIN), None));
        }
    }
    let token_path = format!("/api/flash-sales/sales/{sale}/token");
    let sale_token = server.buyer("POST", &token_path, Some(&tokens[0]), None).json()["token"].clone();
    let sale_token = sale_token.as_str().unwrap().to_owned();
    for token in [&sale_token[..], &sale_token[..sale_token.len() - 4]] {
        outputs.push(server.buyer("POST", &purchase, Some(token), None));
        outputs.push(server.buyer("GET", &token_path, Some(token), None));
        outputs.push(request(server.admin, "POST", "/admin/api/sales", Some(token), None, ""));
        let beside = format!("doorbuster-sale-token: {token}\r\n");
        outputs.push(request(server.public, "POST", &purchase, Some(&tokens[1]), None, &beside));
    }
    for path in [
        "/admin/api/sales".to_owned(),
        format!("/admin/api/sales/{sale}/orders"),
        "/admin/api/trail".to_owned(),
        "/metrics".to_owned(),
    ] {
        outputs.push(request(server.admin, "GET", &path, Some(VIEWER), None, ""));
        outputs.push(request(server.admin, "POST", &path, Some(VIEWER), None, ""));
    }
    assert!(outputs.iter().any(|it| it.status == 202) && outputs.iter().any(|it| it.status == 403));
    let mut texts: Vec<String> = outputs.into_iter().map(|it| it.head + &it.body).collect();
    texts.extend(server.stop());
    let signature = |token: &String| token.rsplit('.').next().unwrap().to_owned();
    let tokens = tokens.into_iter().chain([sale_token[..sale_token.len() - 4].to_owned()]);
    let tokens: Vec<String> = tokens.collect();
    let secrets = [SECRET, ADMIN, VIEWER].map(str::to_owned).into_iter().chain(tokens.iter().map(signature));
    for secret in secrets {
        assert!(!texts.iter().any(|text| text.contains(&secret)), "{secret} is in an output");
    }
}
