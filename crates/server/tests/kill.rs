//! `kill -9` on the real program, again and again, in the middle of a sale: what was answered with
//! 202 is in the ledger afterwards, nothing is sold twice.
//!
//! `DOORBUSTER_KILL_ROUNDS` says how often; ten times without it.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use doorbuster_engine::clock::{Clock, SystemClock};
use doorbuster_loadtest::{AdminClient, TokenSigner};
use doorbuster_wire::{ItemDraft, OrderRow, SaleDraft};
use futures_util::future::join_all;
use tokio::time::{interval, timeout};

use shop::http::{Line, request};
use shop::{purchase_path, text_of, until};

const UNITS: u64 = 100_000;
const CLIENTS: usize = 16;
/// 202s that every round sees before its kill.
const FEWEST: usize = 100;
/// In every third round the program is killed while it starts, too.
const KILLED_AT_START_EVERY: usize = 3;
/// Longest time for a start, a stop, or a round's load.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program with its folder; whatever of it still runs is killed in the end.
struct Program {
    folder: PathBuf,
    public: SocketAddr,
    staff: SocketAddr,
    child: Option<Child>,
    kills: usize,
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Program {
    fn new(folder: &Path) -> Self {
        let [public, staff] = doorbuster_services::free_ports().unwrap();
        Self { folder: folder.to_owned(), public, staff, child: None, kills: 0 }
    }

    fn start(&mut self) {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let log = File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_doorbuster"))
            .args(["serve", "--listen", &self.public.to_string(), "--admin-listen", &self.staff.to_string()])
            .args(["--data-dir", &path("data"), "--jwt-secret-file", &path("secret")])
            .args(["--set", &format!("admin.token_file={}", path("tokens")), "--set", "server.cores=2"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    /// SIGKILL: no handler runs, nothing is flushed.
    fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9),
            "it ended by itself: {status}\n{}",
            self.log()
        );
        self.kills += 1;
    }

    /// SIGTERM, and the program's own end.
    async fn stop(&mut self) {
        let mut child = self.child.take().unwrap();
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        let ended = async {
            let mut pace = interval(Duration::from_millis(20));
            loop {
                if let Some(status) = child.try_wait().unwrap() {
                    return status;
                }
                pace.tick().await;
            }
        };
        let status = timeout(PATIENCE, ended).await.unwrap();
        assert!(status.success(), "{status}\n{}", self.log());
    }

    async fn until_ready(&mut self) {
        let looking = async {
            let mut pace = interval(Duration::from_millis(20));
            loop {
                pace.tick().await;
                if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                    panic!("the start failed: {status}\n{}", self.log());
                }
                let Ok(mut line) = Line::connect(self.public).await else { continue };
                if line.send(&request("GET", "/readyz", &[], b"")).await.is_ok()
                    && line.reply(false).await.is_ok_and(|reply| reply.status == 200)
                {
                    return;
                }
            }
        };
        let ready = timeout(PATIENCE, looking).await.is_ok();
        assert!(ready, "it does not become ready\n{}", self.log());
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(40).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// What the clients know.
#[derive(Default)]
struct Witness {
    /// Every order of a 202, with its user.
    accepted: RefCell<Vec<(String, String)>>,
    /// Orders that a 409 named to their user after a lost answer.
    held: RefCell<Vec<(String, String)>>,
    /// Users whose click had no answer: they click again after the restart.
    unanswered: RefCell<Vec<String>>,
    users: Cell<usize>,
}

impl Witness {
    /// Somebody who clicks next: first those who heard nothing, then somebody new.
    fn next_user(&self) -> String {
        if let Some(user) = self.unanswered.borrow_mut().pop() {
            return user;
        }
        self.users.set(self.users.get() + 1);
        format!("user-{}", self.users.get())
    }
}

/// Clicks on one connection until it breaks.
async fn click_until_cut(address: SocketAddr, item: &str, tokens: &TokenSigner, witness: &Witness) {
    let Ok(mut line) = Line::connect(address).await else { return };
    loop {
        let user = witness.next_user();
        let now = u64::try_from(SystemClock::new().now().as_ms() / 1_000).unwrap();
        let bearer = format!("Bearer {}", tokens.sign(&user, now, 3_600));
        let click = request("POST", &purchase_path(item), &[("authorization", &bearer)], b"");
        let reply = match line.send(&click).await {
            Ok(()) => line.reply(false).await,
            Err(error) => Err(error),
        };
        let Ok(reply) = reply else {
            witness.unanswered.borrow_mut().push(user);
            return;
        };
        match reply.status {
            202 => witness.accepted.borrow_mut().push((reply.accepted(), user)),
            409 => witness.held.borrow_mut().push((reply.text("orderId"), user)),
            // Nothing was taken, or nobody knows yet: asked again.
            503 => witness.unanswered.borrow_mut().push(user),
            _ => panic!("{user} was told {}", reply.said()),
        }
    }
}

async fn open_sale(staff: &AdminClient) -> (String, String) {
    let now = SystemClock::new().now();
    let draft = SaleDraft {
        name: "Drop".to_owned(),
        opens_at: text_of(now),
        closes_at: text_of(now.plus(Duration::from_secs(86_400))),
        payment_window_seconds: Some(3_600),
        max_units_per_user: None,
        items: vec![ItemDraft {
            product_id: "P".to_owned(),
            title: None,
            quantity: UNITS,
            price_minor: 1_990,
            list_price_minor: None,
            currency: "EUR".to_owned(),
        }],
    };
    let sale = staff.create_sale(&draft).await.unwrap();
    assert!(staff.preheat(&sale.sale_id).await.unwrap().ok);
    staff.open(&sale.sale_id).await.unwrap();
    (sale.sale_id, sale.items[0].item_id.clone())
}

/// Load until enough 202s were seen, a kill in the middle of it, sometimes another while it starts.
async fn round(number: usize, program: &mut Program, item: &str, tokens: &TokenSigner, witness: &Witness) {
    let (before, address) = (witness.accepted.borrow().len(), program.public);
    let goal = before + FEWEST + rand::random_range(0..400);
    let load = join_all((0..CLIENTS).map(|_| click_until_cut(address, item, tokens, witness)));
    let killing = async {
        let mut pace = interval(Duration::from_millis(1));
        while witness.accepted.borrow().len() < goal {
            pace.tick().await;
        }
        program.kill();
    };
    let done = timeout(PATIENCE, async { tokio::join!(load, killing) }).await.is_ok();
    assert!(
        done,
        "round {number}: {} answers and no end\n{}",
        witness.accepted.borrow().len() - before,
        program.log()
    );

    if number.is_multiple_of(KILLED_AT_START_EVERY) {
        program.start();
        let mut pace = interval(Duration::from_millis(rand::random_range(1..120)));
        pace.tick().await;
        pace.tick().await;
        program.kill();
    }
    program.start();
    program.until_ready().await;
}

/// Every order that a client was told of is the ledger's, its user's, and nobody has two.
fn compare(witness: &Witness, rows: &[OrderRow], item: &str) {
    let by_id: HashMap<&str, &OrderRow> = rows.iter().map(|row| (row.order_id.as_str(), row)).collect();
    assert_eq!(by_id.len(), rows.len(), "an order is listed twice");
    let (accepted, held) = (witness.accepted.borrow(), witness.held.borrow());
    let mut seen = HashSet::new();
    for (order, user) in accepted.iter().chain(held.iter()) {
        let row = by_id.get(order.as_str()).unwrap_or_else(|| panic!("order {order} of {user} is lost"));
        assert_eq!(
            (row.user_id.as_str(), row.item_id.as_str(), row.quantity),
            (user.as_str(), item, 1),
            "{row:?}"
        );
        assert_eq!(row.status, "PENDING", "{row:?}");
        seen.insert(order.as_str());
    }
    let users: HashSet<&str> = rows.iter().map(|row| row.user_id.as_str()).collect();
    assert_eq!(users.len(), rows.len(), "a user has two orders");
    assert!(u64::try_from(rows.len()).unwrap() <= UNITS);
    let unknown = rows.len() - seen.len();
    assert!(unknown <= witness.unanswered.borrow().len(), "{unknown} orders that nobody clicked for");
}

#[tokio::test]
async fn a_server_that_is_killed_again_and_again_loses_and_oversells_nothing() {
    let rounds = std::env::var("DOORBUSTER_KILL_ROUNDS").map_or(10, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let secret = format!("{:064x}", rand::random::<u128>()) + &format!("{:032x}", rand::random::<u128>());
    let token = format!("{:032x}", rand::random::<u128>());
    shop::write_private(&folder.path().join("secret"), &secret);
    shop::write_private(&folder.path().join("tokens"), &format!("admin {token}\n"));
    let tokens = TokenSigner::with_defaults(secret.as_bytes()).unwrap();
    let mut program = Program::new(folder.path());
    let staff = AdminClient::new(&format!("http://{}", program.staff), &token).unwrap();
    let witness = Witness::default();

    program.start();
    program.until_ready().await;
    let (sale, item) = open_sale(&staff).await;
    for number in 1..=rounds {
        round(number, &mut program, &item, &tokens, &witness).await;
    }

    until("the shop is at rest", async || staff.audit().await.is_ok_and(|report| report.at_rest)).await;
    let report = staff.audit().await.unwrap();
    assert!(report.ok && report.at_rest, "{report:#?}");
    let rows = staff.all_orders(&sale).await.unwrap();
    compare(&witness, &rows, &item);
    let detail = staff.sale(&sale).await.unwrap();
    let sold = u64::try_from(rows.len()).unwrap();
    assert_eq!((detail.items[0].sold, detail.items[0].free), (sold, Some(UNITS - sold)));
    program.stop().await;
    eprintln!(
        "{rounds} rounds, {} kills: {} answers of 202, {} orders told again after a lost answer, {} in the ledger, none lost",
        program.kills,
        witness.accepted.borrow().len(),
        witness.held.borrow().len(),
        rows.len()
    );
}
