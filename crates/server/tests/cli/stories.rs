//! A sale run from the command line alone, on a real server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{Folder, Ran, STAFF, Server, stdout_of};

const SALE: &str = "name = \"Drop\"\nopensAt = \"2020-01-01T00:00:00Z\"\nclosesAt = \"2099-01-01T00:00:00Z\"\n\
                    maxUnitsPerUser = 1\n[[items]]\nproductId = \"SHOE\"\nquantity = 5\npriceMinor = 1990\n\
                    listPriceMinor = 9900\ncurrency = \"EUR\"\n";
/// Longest wait for an order to be recorded.
const RECORDED: Duration = Duration::from_secs(30);

struct Staff<'a> {
    folder: &'a Folder,
    server: &'a Server,
}

impl Staff<'_> {
    fn run(&self, args: &[&str]) -> Ran {
        let environment = [
            ("DOORBUSTER_ADMIN_URL", self.server.admin.as_str()),
            ("DOORBUSTER_ADMIN_TOKEN_FILE", "data/admin.token"),
        ];
        self.folder.run_with(args, &environment)
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let printed = stdout_of(self.run(&[args, &["--output", "json"]].concat()));
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{args:?}: {error}: {printed}"))
    }
}

/// Buys one unit of item 1 and answers with the status line.
fn buy(folder: &Folder, server: &Server, user: &str) -> String {
    let token = stdout_of(folder.run(&["token", "mint", "--sub", user, "--signing-key-file", "secret"]));
    buy_by(server, &token)
}

fn buy_by(server: &Server, token: &str) -> String {
    let request = format!(
        "POST /api/flash-sales/items/1/purchase HTTP/1.1\r\nHost: shop\r\nConnection: close\r\nContent-Length: 0\r\n\
         Authorization: Bearer {}\r\n\r\n",
        token.trim()
    );
    let mut connection = TcpStream::connect(&server.public).expect("the server listens");
    connection.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it answers");
    answer.lines().next().unwrap_or_default().to_owned()
}

/// Exports until there are so many orders: recording takes its moment.
fn export(staff: &Staff<'_>, orders: usize) -> String {
    let began = began();
    loop {
        let csv = stdout_of(staff.run(&["order", "export", "1"]));
        if csv.lines().count() == orders + 1 || began.elapsed() > RECORDED {
            assert_eq!(csv.lines().count(), orders + 1, "{csv}");
            return csv;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a deadline over a real process")]
fn began() -> Instant {
    Instant::now()
}

#[test]
fn a_sale_is_run_rebuilt_copied_and_exported() {
    let folder = Folder::new();
    let server = folder.serve();
    let staff = Staff { folder: &folder, server: &server };
    folder.write("sale.toml", SALE);

    let tried = stdout_of(staff.run(&["sale", "create", "--file", "sale.toml", "--dry-run"]));
    assert!(tried.contains("nothing was written down"), "{tried}");
    assert_eq!(staff.json(&["sale", "list"]).as_array().map(Vec::len), Some(0));
    staff.json(&["sale", "create", "--file", "sale.toml"]);
    let early = staff.run(&["rebuild", "1", "--yes"]);
    assert!(early.code == 1 && early.stderr.contains("never preheated"), "{early:?}");
    stdout_of(staff.run(&["sale", "preheat", "1"]));
    stdout_of(staff.run(&["sale", "open", "1"]));
    assert!(buy(&folder, &server, "alice").contains(" 202 "));

    let plan = stdout_of(staff.run(&["rebuild", "1", "--dry-run"]));
    assert!(plan.contains("would load epoch 2"), "{plan}");
    assert_eq!(staff.json(&["sale", "show", "1"])["epoch"], 1);
    let report = staff.json(&["rebuild", "1", "--yes", "--reason", "a test"]);
    assert_eq!((&report["epoch"], &report["ok"]), (&Value::from(2), &Value::from(true)));
    let item = &report["items"][0];
    assert_eq!((&item["sold"], &item["free"], &item["held"]), (&1.into(), &4.into(), &1.into()));
    assert!(buy(&folder, &server, "bob").contains(" 202 "), "it sells on");

    let agreed = staff.json(&["repair", "1", "--yes"]);
    assert_eq!((&agreed["ok"], &agreed["differences"]), (&Value::from(true), &Value::from(0)));
    assert!(stdout_of(staff.run(&["repair", "1", "--dry-run"])).contains("stock and ledger agree"));
    assert_eq!(staff.json(&["sale", "show", "1"])["epoch"], 2, "nothing was rebuilt");

    let copy = staff.json(&["sale", "clone", "1", "--name", "Again", "--opens-at", "2098-01-01T00:00:00Z"]);
    assert_eq!((&copy["state"], &copy["items"][0]["quantity"]), (&"draft".into(), &5.into()));
    assert_eq!(copy["items"][0]["listPrice"]["minor"], 9_900);

    let csv = export(&staff, 2);
    assert!(csv.contains(",alice,1,PENDING,,19.90,EUR,1990,"), "{csv}");
    folder.write("orders.jsonl", "older");
    let to_file = ["order", "export", "1", "--format", "json-lines", "--file", "orders.jsonl"];
    assert_eq!(stdout_of(staff.run(&to_file)), "");
    assert_eq!(folder.read("orders.jsonl").lines().filter(|line| line.contains("\"orderId\"")).count(), 2);
    let mode = std::fs::metadata(folder.path("orders.jsonl")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o077, 0, "it says who bought what");

    let doctor = folder.run(&["doctor", "--set", "data.dir=data"]);
    assert!(doctor.stdout.contains("in use by process"), "{doctor:?}");
    assert_eq!(staff.run(&["sale", "close", "1"]).code, 2, "nobody can be asked");
    assert_eq!(staff.json(&["dead-letter", "list", "--closed"]).as_array().map(Vec::len), Some(0));
    assert_eq!(stdout_of(staff.run(&["dead-letter", "list"])), "no dead letters\n");
    assert_eq!(stdout_of(staff.run(&["event", "list", "--state", "dead"])), "no deliveries\n");
    let replayed = stdout_of(staff.run(&["event", "replay", "--dead", "shop"]));
    assert_eq!(replayed, "0 dead deliveries of shop are due again\n");
    let drop = ["dead-letter", "drop", "1", "--by", "ada", "--reason", "a test"];
    assert_eq!(staff.run(&drop).code, 2, "nobody can be asked");
    assert_eq!(staff.json(&["sale", "close", "1", "--yes"])["state"], "closed");
    assert_eq!(staff.json(&["audit"])["ok"], true);
}

#[test]
fn a_token_for_the_staff_is_shown_once_and_let_in_by_its_hash() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("data")).expect("a folder can be made");
    folder.write("data/admin.token", &format!("admin {STAFF}"));
    let made = [
        "token",
        "staff",
        "--role",
        "viewer",
        "--name",
        "ada",
        "--lifetime",
        "1h",
        "--file",
        "data/admin.token",
    ];
    let token = stdout_of(folder.run(&made));
    let lines = std::fs::read_to_string(folder.path("data/admin.token")).expect("the file is there");
    assert!(!lines.contains(token.trim()) && lines.contains("viewer sha256:") && lines.lines().count() == 2);
    for (role, name) in [("root", "ada"), ("viewer", "a b"), ("viewer", "")] {
        let ran =
            folder.run(&["token", "staff", "--role", role, "--name", name, "--file", "data/admin.token"]);
        assert!(ran.code != 0 && ran.stdout.is_empty(), "{ran:?}");
    }
    folder.write("broken", "admin short\n");
    let ran = folder.run(&["token", "staff", "--role", "viewer", "--name", "ada", "--file", "broken"]);
    assert!(ran.code == 1 && ran.stdout.is_empty() && ran.stderr.contains("nothing was added"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(folder.path("broken")).expect("it is there"), "admin short\n");
    folder.write("ada", &token);
    let server = folder.serve();
    let staff = Staff { folder: &folder, server: &server };
    assert_eq!(staff.run(&["sale", "list", "--admin-token-file", "ada"]).code, 0);
    let closing = staff.run(&["rebuild", "1", "--yes", "--admin-token-file", "ada"]);
    assert!(closing.code == 1 && closing.stderr.contains("token of an operator"), "{closing:?}");
}

#[test]
fn what_the_server_refuses_is_said_with_what_to_do() {
    const VIEWER: &str = "an-openly-known-viewer-token-of-a-test";
    let folder = Folder::new();
    std::fs::create_dir(folder.path("data")).expect("a folder can be made");
    folder.write("data/admin.token", &format!("operator {STAFF}\nviewer {VIEWER}\n"));
    let server = folder.serve();
    let staff = Staff { folder: &folder, server: &server };
    folder.write("viewer", &format!("viewer {VIEWER}\n"));
    folder.write("stranger", "admin another-token-that-the-server-does-not-know\n");
    folder.write("past.toml", &SALE.replace("2099", "2021"));
    let buyers = format!("http://{}", server.public);
    for (args, says) in [
        (&["sale", "show", "77"][..], "sale list"),
        (&["rebuild", "77", "--yes"], "sale list"),
        (&["rebuild", "77", "--dry-run"], "sale list"),
        (&["repair", "77"], "sale list"),
        (&["order", "export", "77"], "sale list"),
        (&["order", "export", "77", "--file", "orders.csv"], "sale list"),
        (&["sale", "list", "--admin-token-file", "stranger"], "--admin-token-file"),
        (&["rebuild", "1", "--yes", "--admin-token-file", "viewer"], "token of an operator"),
        (&["rebuild", "1", "--yes", "--reason", ""], "reason needs 1 to 200 bytes"),
        (&["order", "get", "7"], "is a UUID"),
        (&["dead-letter", "show", "7"], "dead-letter list"),
        (&["event", "show", "7"], "event list"),
        (&["event", "replay", "7"], "event list"),
        (&["dead-letter", "replay", "7", "--by", "ada"], "dead-letter list"),
        (&["dead-letter", "drop", "7", "--by", "ada", "--reason", "x", "--yes"], "dead-letter list"),
        (&["sale", "list", "--admin-url", &buyers], "not the buyers' listener"),
        (&["sale", "create", "--file", "past.toml"], "over already"),
        (&["sale", "create", "--file", "past.toml", "--dry-run"], "over already"),
    ] {
        let ran = staff.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(says), "{args:?}: {}", ran.stderr);
    }
    assert!(!folder.path("orders.csv").exists(), "a file appears when it is whole, or not at all");
}

#[test]
fn switches_are_turned_with_a_reason_and_everything_is_in_the_trail() {
    let folder = Folder::new();
    folder.write(
        "sale.secret",
        "an-openly-known-secret-for-sale-tokens-of-a-test\nan-older-one-that-is-as-long-as-that",
    );
    let server = folder.serve_with(&["--set", "gate.sale_tokens.secret_file=sale.secret"]);
    let staff = Staff { folder: &folder, server: &server };
    folder.write("sale.toml", SALE);
    for step in
        [&["sale", "create", "--file", "sale.toml"][..], &["sale", "preheat", "1"], &["sale", "open", "1"]]
    {
        stdout_of(staff.run(step));
    }
    let listed = stdout_of(staff.run(&["switch", "list"]));
    for says in ["token_required", "publish_pause", "as configured", "on or off", "a time such as 30s"] {
        assert!(listed.contains(says), "{listed}");
    }
    let set = ["switch", "set", "token_required", "on", "--sale", "1", "--reason", "bots\"and more"];
    assert_eq!(stdout_of(staff.run(&set)), "token_required of sale 1: on\n");
    assert_eq!(buy(&folder, &server, "alice"), "HTTP/1.1 403 Forbidden");
    let mint = |secrets: &str, captcha: &[&str]| {
        let mint = ["token", "mint", "--sub", "alice", "--sale", "1", "--signing-key-file", secrets];
        stdout_of(folder.run(&[&mint[..], captcha].concat()))
    };
    folder.write("foreign.secret", "a-secret-that-the-server-does-not-know-at-all");
    assert_eq!(buy_by(&server, &mint("foreign.secret", &[])), "HTTP/1.1 403 Forbidden");
    assert_eq!(buy_by(&server, &mint("sale.secret", &[])), "HTTP/1.1 202 Accepted");
    stdout_of(staff.run(&[
        "switch",
        "set",
        "captcha_required",
        "on",
        "--sale",
        "1",
        "--reason",
        "more bots",
    ]));
    assert_eq!(buy_by(&server, &mint("sale.secret", &[])), "HTTP/1.1 403 Forbidden");
    assert_eq!(buy_by(&server, &mint("sale.secret", &["--captcha"])), "HTTP/1.1 409 Conflict");

    let regions = ["switch", "set", "regions", "DE,FR", "--sale", "1", "--reason", "shipping"];
    assert_eq!(stdout_of(staff.run(&regions)), "regions of sale 1: DE,FR\n");
    assert_eq!(
        buy_by(&server, &mint("sale.secret", &["--captcha", "--region", "CH"])),
        "HTTP/1.1 403 Forbidden"
    );
    let at_home = mint("sale.secret", &["--captcha", "--region", "FR", "--level", "2"]);
    assert_eq!(buy_by(&server, &at_home), "HTTP/1.1 409 Conflict");

    let wrong = staff.run(&["switch", "set", "user_rate", "many", "--reason", "x"]);
    assert!(wrong.code == 1 && wrong.stderr.contains("a whole number"), "{wrong:?}");
    let none = staff.run(&["switch", "get", "nothing"]);
    assert!(none.code == 1 && none.stderr.contains("doorbuster switch list"), "{none:?}");
    stdout_of(staff.run(&["switch", "set", "user_rate", "7", "--reason", "a test"]));
    assert_eq!(staff.json(&["switch", "get", "user_rate"])[0]["value"], "7");
    assert_eq!(
        stdout_of(staff.run(&["switch", "reset", "user_rate", "--reason", "over"])),
        "user_rate: as configured\n"
    );
    let history = staff.json(&["switch", "history", "--limit", "4"]);
    let turned: Vec<_> =
        history.as_array().expect("a list").iter().map(|it| (&it["name"], &it["value"])).collect();
    assert_eq!(turned.len(), 4, "{turned:?}");
    assert!(turned[0].0 == "user_rate" && turned[0].1.is_null() && turned[1].1 == "7", "{turned:?}");

    let trail = staff.json(&["trail", "--limit", "2"]);
    assert_eq!(trail[0]["path"], "/admin/api/switches/user_rate");
    assert_eq!((&trail[0]["status"], &trail[0]["role"]), (&Value::from(200), &Value::from("admin")));
    let table = stdout_of(staff.run(&["trail"]));
    for says in ["PUT /admin/api/switches/user_rate", "422", "POST /admin/api/sales/1/open"] {
        assert!(table.contains(says), "{says}: {table}");
    }
}

#[test]
fn users_and_networks_are_kept_out_from_a_file_and_let_in_again() {
    let folder = Folder::new();
    let server = folder.serve();
    let staff = Staff { folder: &folder, server: &server };
    folder.write("networks.txt", "# datacentres\n192.0.2.9/24\n\n2001:db8::/32\n");
    let add =
        ["block", "add", "--file", "networks.txt", "--kind", "network", "--user", "eve", "--reason", "bots"];
    assert_eq!(stdout_of(staff.run(&add)), "3 added, 0 stood before\n");
    assert_eq!(stdout_of(staff.run(&add)), "0 added, 3 stood before\n");
    folder.write("networks.txt", "192.0.2.0/24\neverywhere\n");
    let wrong = staff.run(&add);
    assert!(wrong.code == 1 && wrong.stderr.contains("networks.txt, line 2"), "{wrong:?}");
    let nobody = staff.run(&["block", "add", "--reason", "bots"]);
    assert!(nobody.code == 1 && nobody.stderr.contains("nobody is named"), "{nobody:?}");
    let blocks = staff.json(&["block", "list", "--limit", "2"]);
    let values = [0, 1, 2].map(|at| blocks[at]["value"].as_str());
    assert_eq!(values, [Some("2001:db8::/32"), Some("192.0.2.0/24"), None]);
    let of_eve = staff.json(&["block", "list", "--value", "eve"]);
    let number = of_eve[0]["blockId"].as_str().expect("a number");
    let lifted = stdout_of(staff.run(&["block", "lift", number, "--reason", "a mistake"]));
    assert!(lifted.contains("a mistake"), "{lifted}");
    assert_eq!(stdout_of(staff.run(&["block", "list", "--value", "eve"])), "nobody is blocked\n");
    assert!(stdout_of(staff.run(&["block", "list", "--lifted", "--output", "csv"])).contains(",eve,"));
}
