//! Rehearsals whose winners pay, fail, cancel and abandon, by the program on a real server.

use serde_json::Value;

use crate::program::{Folder, Ran, Server, stdout_of};

/// Everybody wins, so that the counts follow from the seed alone.
const USERS: u64 = 60;
const PRICE: u64 = 1_990;

struct Rehearsals<'a> {
    folder: &'a Folder,
    server: &'a Server,
}

impl Rehearsals<'_> {
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

    /// A new open sale of more units than there are users.
    fn sale(&self) -> String {
        self.folder.write(
            "sale.toml",
            &format!(
                "name = \"Drop\"\nopensAt = \"2020-01-01T00:00:00Z\"\nclosesAt = \"2099-01-01T00:00:00Z\"\n\
                 [[items]]\nproductId = \"SHOE\"\nquantity = {}\npriceMinor = {PRICE}\ncurrency = \"EUR\"\n",
                USERS + 10
            ),
        );
        let sale = self.json(&["sale", "create", "--file", "sale.toml"]);
        let id = sale["saleId"].as_str().expect("a sale has an id").to_owned();
        self.json(&["sale", "preheat", &id]);
        self.json(&["sale", "open", &id]);
        id
    }

    fn rehearse(&self, sale: &str, shares: &[&str]) -> Ran {
        let url = format!("http://{}", self.server.public);
        let users = USERS.to_string();
        let fixed = ["rehearse", "--url", &url, "--sale", sale, "--users", &users, "--window", "200ms"];
        let more = ["--signing-key-file", "secret", "--connections", "16", "--output", "json"];
        self.run(&[&fixed[..], &more, shares].concat())
    }

    #[track_caller]
    fn report(&self, shares: &[&str]) -> Value {
        let printed = stdout_of(self.rehearse(&self.sale(), shares));
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{shares:?}: {error}: {printed}"))
    }
}

fn count(report: &Value, name: &str) -> u64 {
    report[name].as_u64().unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn winners_live_on_in_their_shares_and_the_books_balance() {
    let folder = Folder::new();
    let server = folder.serve_with(&["--set", "payments.provider=sandbox"]);
    let rehearsals = Rehearsals { folder: &folder, server: &server };
    let every = [
        "--pay",
        "30",
        "--fail-then-pay",
        "15",
        "--pay-told-twice",
        "10",
        "--underpay-then-pay",
        "10",
        "--cancel",
        "10",
        "--cancel-then-buy",
        "15",
    ];
    let mut drawn = Vec::new();
    for shares in [&["--pay", "100"][..], &["--cancel", "100"], &["--abandon", "100"], &every, &every] {
        let report = rehearsals.report(shares);
        let [paid, cancelled, again, abandoned, failed] =
            ["paid", "cancelled", "boughtAgain", "abandoned", "failedTries"].map(|name| count(&report, name));
        assert_eq!(report["cutShort"], serde_json::json!({}), "{shares:?}: {report}");
        assert_eq!(paid + cancelled - again + abandoned, USERS, "{shares:?}: {report}");
        assert_eq!(count(&report, "sold"), paid + abandoned, "{shares:?}");
        let money = &report["money"]["EUR"];
        if paid > 0 {
            assert_eq!((count(money, "captured"), count(money, "paid")), (PRICE * paid, PRICE * paid));
            assert!(report["paymentMs"]["p50"].as_f64() > Some(0.0), "{report}");
        } else {
            assert!(money.is_null() && report["paymentMs"].is_null(), "{report}");
        }
        for fault in ["moneyLost", "paidByNobody", "paidUnseen", "wordBroken", "uneven", "stranded"] {
            assert_eq!(count(&report, fault), 0, "{shares:?}: {report}");
        }
        assert_eq!(report["audit"], "ok");
        drawn.push([paid, cancelled, again, abandoned, failed]);
    }
    assert_eq!(drawn[..3], [[USERS, 0, 0, 0, 0], [0, USERS, 0, 0, 0], [0, 0, 0, USERS, 0]]);
    assert!(drawn[3].iter().all(|count| *count > 0), "{drawn:?}");
    assert_eq!(drawn[3], drawn[4], "the same seed gives everybody the same life");
}

#[test]
fn without_shares_nobody_pays_and_the_report_is_as_it_was() {
    let folder = Folder::new();
    let server = folder.serve();
    let rehearsals = Rehearsals { folder: &folder, server: &server };
    let report = rehearsals.report(&[]);
    assert_eq!(count(&report, "sold"), USERS);
    assert!(report.get("paid").is_none() && report.get("money").is_none(), "{report}");
}

#[test]
fn shares_that_cannot_be_are_refused_before_the_storm() {
    let folder = Folder::new();
    let server = folder.serve();
    let rehearsals = Rehearsals { folder: &folder, server: &server };
    let sale = rehearsals.sale();
    for (shares, code, says) in [
        (&["--pay", "50"][..], 1, "has no sandbox"),
        (&["--abandon", "100"], 1, "--set payments.provider=sandbox"),
        (&["--pay", "90", "--cancel", "11"], 2, "add up to 101 %"),
        (&["--pay", "101"], 2, "invalid value '101'"),
        (&["--pay=-1"], 2, "invalid value '-1'"),
    ] {
        let ran = rehearsals.rehearse(&sale, shares);
        assert!(
            ran.code == code && ran.stderr.contains(says) && ran.stdout.is_empty(),
            "{shares:?}: {ran:?}"
        );
    }
    let orders = stdout_of(rehearsals.run(&["order", "export", &sale]));
    assert_eq!(orders.lines().count(), 1, "nobody has clicked: {orders}");
}
