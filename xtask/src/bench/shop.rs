//! A private doorbuster server and what is done to it through its own command line.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use doorbuster_services::command::output_of;
use serde_json::Value;

use super::answer::Answer;
use super::process::{GENERATOR_CORE, Running, SERVER_CORE, free_address, now, pause, pinned};
use super::{Bench, wrk::Press, wrk::Requests};

/// Signs every token; the servers live for minutes and on loopback only.
const SECRET: &str = "a-secret-of-the-benchmark-0123456789-and-no-other";
/// Longest wait for the ledger to catch up.
const SETTLE: Duration = Duration::from_secs(120);
/// Requests that are sent beyond the units, so that the sale sells out for certain.
const BEYOND: u64 = 512;

/// Settings that a benchmark needs: no limit of the defaults is to end it, and no unit is to come back while it
/// runs.
const SETTINGS: [&str; 5] = [
    "server.connections_max=20000",
    "server.connections_per_address_max=20000",
    "server.idle_timeout=10m",
    "gate.queue_lag_max=100000000",
    "log.level=warn",
];

/// One user clicks without end.
const ONE_USER: [&str; 1] = ["gate.limits.user_rate=0"];

/// Nobody is exempt from limits, and the shop has members.
const GATED: [&str; 2] = ["gate.limits.exempt=[]", "gate.levels=[\"gold\"]"];

/// What makes a sale one where the whole gate is on.
const SWITCHES: [[&str; 2]; 5] = [
    ["token_required", "on"],
    ["captcha_required", "on"],
    ["room", "on"],
    ["regions", "DE,FR"],
    ["early_access", "gold=0s,*=1m"],
];

/// A running server.
pub(crate) struct Shop<'a> {
    bench: &'a Bench,
    pub(crate) process: Running,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    folder: PathBuf,
}

/// A sale that is open.
pub(crate) struct Sale {
    pub(crate) id: String,
    /// The purchase path of each item.
    pub(crate) paths: Vec<String>,
    pub(crate) units: u64,
}

/// What one sell-out cost.
pub(crate) struct SoldOut {
    pub(crate) cpu_us_per_order: f64,
}

impl<'a> Shop<'a> {
    /// Starts a server; with `pin` it has one core and stays on it.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(bench: &'a Bench, pin: bool) -> Result<Self> {
        Self::start_with(bench, pin, &ONE_USER)
    }

    /// Starts one whose gate can have everything on, pinned.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start_gated(bench: &'a Bench) -> Result<Self> {
        Self::start_with(bench, true, &GATED)
    }

    /// Starts one that looks its keys up by name, pinned; tokens of ours name none and are signed by the one without.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start_with_keys(bench: &'a Bench) -> Result<Self> {
        let file = bench.folder().join("key");
        std::fs::write(&file, SECRET)?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
        let file = file.display();
        let keys = format!(
            "gate.jwt.keys=[{{algorithm=\"HS256\",secret_file=\"{file}\"}},{{id=\"old\",algorithm=\"HS256\",secret_file=\"{file}\"}}]"
        );
        Self::start_with(bench, true, &[ONE_USER[0], &keys])
    }

    fn start_with(bench: &'a Bench, pin: bool, settings: &[&str]) -> Result<Self> {
        let (address, admin) = (free_address()?, free_address()?);
        // Its name is new even where the system hands out a port for the second time.
        let folder = tempfile::Builder::new().prefix("shop-").tempdir_in(bench.folder())?.keep();
        std::fs::write(folder.join("secret"), SECRET)?;
        std::fs::set_permissions(folder.join("secret"), std::fs::Permissions::from_mode(0o600))?;
        let mut command =
            if pin { pinned(SERVER_CORE, bench.doorbuster()) } else { Command::new(bench.doorbuster()) };
        command.args(["serve", "--listen", &address.to_string(), "--admin-listen", &admin.to_string()]);
        command.arg("--data-dir").arg(folder.join("data"));
        if !settings.iter().any(|it| it.starts_with("gate.jwt.keys=")) {
            command.arg("--jwt-secret-file").arg(folder.join("secret"));
        }
        // The sale tokens' secret may be the same here: other keys follow from it.
        let secret = format!("gate.sale_tokens.secret_file={}", folder.join("secret").display());
        for setting in SETTINGS.iter().chain(settings).copied().chain([secret.as_str()]) {
            command.args(["--set", setting]);
        }
        if pin {
            command.args(["--set", "server.cores=1"]);
        }
        let log = folder.join("log");
        let mut process = Running::start(&mut command, &log)?;
        process.listens(address, &log)?;
        process.listens(admin, &log)?;
        Ok(Self { bench, process, address, admin, folder })
    }

    fn tell(&self, command: &mut Command) -> Result<Value> {
        command.env("DOORBUSTER_ADMIN_URL", format!("http://{}", self.admin));
        command.env("DOORBUSTER_ADMIN_TOKEN_FILE", self.folder.join("data/admin.token"));
        command.args(["--output", "json"]);
        let printed = output_of(command)?;
        serde_json::from_str(&printed).with_context(|| format!("doorbuster printed {printed}"))
    }

    fn doorbuster(&self, words: &[&str]) -> Result<Value> {
        self.tell(Command::new(self.bench.doorbuster()).args(words))
    }

    /// Opens a sale of `items` items with `units` units each.
    ///
    /// # Errors
    /// The server refuses.
    pub(crate) fn sale(&self, items: usize, units: u64) -> Result<Sale> {
        let mut draft = String::from(
            "name = \"Benchmark\"\nopensAt = \"2020-01-01T00:00:00Z\"\nclosesAt = \"2099-01-01T00:00:00Z\"\n\
             paymentWindowSeconds = 86400\n",
        );
        for number in 0..items {
            draft.push_str(&format!(
                "[[items]]\nproductId = \"P-{number}\"\nquantity = {units}\npriceMinor = 1990\ncurrency = \"EUR\"\n"
            ));
        }
        let file = self.folder.join("sale.toml");
        std::fs::write(&file, draft)?;
        let file = file.display().to_string();
        let sale = self.doorbuster(&["sale", "create", "--file", &file])?;
        let id = sale["saleId"].as_str().context("the sale has no id")?.to_owned();
        self.doorbuster(&["sale", "preheat", &id])?;
        let sale = self.doorbuster(&["sale", "open", &id])?;
        let items = sale["items"].as_array().context("the sale has no items")?;
        let path = |item: &Value| {
            let item = item["itemId"].as_str().unwrap_or_default();
            format!("/api/flash-sales/items/{item}/purchase")
        };
        let paths: Vec<String> = items.iter().map(path).collect();
        let sale = Sale { id, units: units * paths.len() as u64, paths };
        self.knows(&sale)?;
        Ok(sale)
    }

    /// Waits until the public listener knows the sale's items.
    fn knows(&self, sale: &Sale) -> Result<()> {
        let until = now() + Duration::from_secs(10);
        while Answer::ask(self.address, &sale.paths[0], "none")?.status != 401 {
            ensure!(now() < until, "the public listener does not know sale {}", sale.id);
            pause(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Mints tokens for the users `prefix0` and up, into a file.
    ///
    /// # Errors
    /// They cannot be written.
    pub(crate) fn tokens(&self, prefix: &str, count: u64) -> Result<PathBuf> {
        let path = self.folder.join(format!("tokens-{prefix}"));
        let mut command = Command::new(self.bench.mint());
        command.arg(self.folder.join("secret")).args([prefix, &count.to_string()]);
        std::fs::write(&path, output_of(&mut command)?)?;
        Ok(path)
    }

    /// Tokens that name keys which nobody has, into a file.
    ///
    /// # Errors
    /// They cannot be written.
    pub(crate) fn unknown_keys(&self, count: u64) -> Result<PathBuf> {
        let path = self.folder.join("tokens-unknown-keys");
        let mut command = Command::new(self.bench.mint());
        command.arg(self.folder.join("secret")).args(["eve-", &count.to_string(), "unknown-keys"]);
        std::fs::write(&path, output_of(&mut command)?)?;
        Ok(path)
    }

    /// The token of one user.
    ///
    /// # Errors
    /// It cannot be minted.
    pub(crate) fn token(&self, user: &str) -> Result<String> {
        let path = self.tokens(user, 1)?;
        Ok(std::fs::read_to_string(path)?.trim_end().to_owned())
    }

    /// Turns the whole gate of a sale on, and makes sale tokens of `count` users that it lets through, in a file.
    ///
    /// # Errors
    /// The server refuses, or they cannot be written.
    pub(crate) fn gated(&self, sale: &Sale, count: usize) -> Result<PathBuf> {
        for [name, value] in SWITCHES {
            let reason = ["--sale", &sale.id, "--reason", "the benchmark"];
            self.doorbuster(&[&["switch", "set", name, value], &reason[..]].concat())?;
        }
        let key = self.folder.join("secret").display().to_string();
        let mut tokens = String::new();
        for number in 0..count {
            let user = format!("gated-{number}");
            let mut mint = Command::new(self.bench.doorbuster());
            mint.args(["token", "mint", "--sub", &user, "--sale", &sale.id, "--captcha", "--let-in"]);
            tokens +=
                &output_of(mint.args(["--region", "DE", "--lifetime", "8h", "--signing-key-file", &key]))?;
        }
        let path = self.folder.join("tokens-gated");
        std::fs::write(&path, &tokens)?;
        // Without a sale token one hears so, whenever the flag has gone.
        let (until, latecomer) = (now() + Duration::from_secs(10), self.token("latecomer")?);
        while Answer::ask(self.address, &sale.paths[0], &latecomer)?.status != 403 {
            ensure!(now() < until, "the gate of sale {} is not on", sale.id);
            pause(Duration::from_millis(20));
        }
        // With one, the whole gate is passed once the flag has gone, and the stock says that nothing is free.
        for token in tokens.lines().take(3) {
            pause(Duration::from_millis(300));
            let answer = Answer::ask(self.address, &sale.paths[0], token)?;
            ensure!(answer.status == 410, "a good sale token is answered {answer:?}");
        }
        Ok(path)
    }

    /// Units of recorded orders.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) fn recorded(&self, sale: &Sale) -> Result<u64> {
        let detail = self.doorbuster(&["sale", "show", &sale.id])?;
        let items = detail["items"].as_array().context("the sale has no items")?;
        Ok(items.iter().filter_map(|item| item["sold"].as_u64()).sum())
    }

    /// Waits until `orders` are recorded; answers how many seconds that took.
    ///
    /// # Errors
    /// They are not recorded in time.
    pub(crate) fn settled(&self, sale: &Sale, orders: u64) -> Result<f64> {
        let begun = now();
        loop {
            let recorded = self.recorded(sale)?;
            if recorded >= orders {
                return Ok(begun.elapsed().as_secs_f64());
            }
            ensure!(begun.elapsed() < SETTLE, "{recorded} of {orders} orders were recorded");
            pause(Duration::from_millis(20));
        }
    }

    /// Sells the sale out to distinct users over HTTP, and waits until every order is recorded.
    ///
    /// # Errors
    /// It does not sell out in time.
    pub(crate) fn sell_out(&self, sale: &Sale, connections: u32) -> Result<SoldOut> {
        let tokens = self.tokens(&format!("buyer-{}-", sale.id), sale.units + BEYOND)?;
        let requests = Requests::Each { paths: &sale.paths, tokens: &tokens, once: true };
        let before = self.process.cpu_seconds()?;
        let press = Press { connections, seconds: 600, pin: true };
        let buying = self.bench.wrk().start(self.address, &requests, press)?;
        self.settled(sale, sale.units)?;
        let cpu = self.process.cpu_seconds()? - before;
        drop(buying);
        std::fs::remove_file(tokens)?;
        Ok(SoldOut { cpu_us_per_order: cpu * 1e6 / sale.units as f64 })
    }

    /// A sale that has sold out, and what its refusals say.
    ///
    /// # Errors
    /// It does not sell out, or the answer is no refusal.
    pub(crate) fn sold_out_sale(&self, units: u64) -> Result<(Sale, Answer)> {
        let sale = self.sale(1, units)?;
        self.sell_out(&sale, 16)?;
        let answer = Answer::ask(self.address, &sale.paths[0], &self.token("latecomer")?)?;
        ensure!(answer.status == 410, "the sold-out sale answers {answer:?}");
        Ok((sale, answer))
    }

    /// Storms a sale with the open-loop generator and balances the books.
    ///
    /// # Errors
    /// The generator cannot run; wrong books are no error but in the report.
    pub(crate) fn rehearse(&self, sale: &Sale, words: &[&str], pin: bool) -> Result<Value> {
        let program = self.bench.doorbuster();
        let mut command = if pin { pinned(GENERATOR_CORE, program) } else { Command::new(program) };
        command.args(["rehearse", "--url", &format!("http://{}", self.address), "--sale", &sale.id]);
        command.arg("--signing-key-file").arg(self.folder.join("secret")).args(words);
        self.tell(&mut command)
    }

    /// Whether the server's own audit finds nothing.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) fn audit_is_clean(&self) -> Result<bool> {
        Ok(self.doorbuster(&["audit"])?["ok"] == true)
    }

    /// Where files of this server may be put.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}
