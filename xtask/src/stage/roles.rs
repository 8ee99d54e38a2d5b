//! The processes of ours, one role each.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use doorbuster_services::command::output_of;
use serde_json::Value;
use tempfile::TempDir;

use crate::bench::process::{Running, free_address};

/// Signs every token; the processes live for minutes and on loopback only.
const SECRET: &str = "a-secret-of-the-stage-0123456789-and-of-no-other-place";
/// The staff's token, for the same reason.
const STAFF: &str = "a-token-of-the-stage-0123456789abcdef0123456789abcdef";

/// How many processes of each role.
#[derive(Clone, Copy)]
pub(crate) struct Cast {
    pub(crate) gateways: usize,
    pub(crate) recorders: usize,
    pub(crate) keepers: usize,
}

/// One running process of ours.
struct Player {
    name: String,
    role: &'static str,
    process: Running,
    public: Option<SocketAddr>,
    admin: SocketAddr,
}

/// Everything that runs for one rehearsal.
pub(crate) struct Stage {
    program: PathBuf,
    /// Names the prefix, topic and schema of this run alone.
    pub(crate) name: String,
    pub(crate) redis: String,
    pub(crate) postgres: String,
    pub(crate) kafka: String,
    folder: TempDir,
    players: Vec<Player>,
}

impl Stage {
    /// Starts every process and waits until each listens.
    pub(crate) fn start(program: &Path, cast: Cast, addresses: Vec<(String, String)>) -> Result<Self> {
        let address = |variable: &str| {
            let found = addresses.iter().find(|(name, _)| name == variable).map(|(_, url)| url.clone());
            let named = || std::env::var(variable).with_context(|| format!("{variable} is not set"));
            found.map_or_else(named, Ok)
        };
        let folder = tempfile::Builder::new().prefix("doorbuster-stage-").tempdir()?;
        let name = folder.path().file_name().map(|name| name.to_string_lossy().into_owned());
        let mut stage = Self {
            program: program.to_owned(),
            name: name.unwrap_or_default().replace(['-', '.'], "_").to_lowercase(),
            redis: address("DOORBUSTER_TEST_REDIS_URL")?,
            postgres: address("DOORBUSTER_TEST_POSTGRES_URL")?,
            kafka: address("DOORBUSTER_TEST_KAFKA_URL")?,
            folder,
            players: Vec::new(),
        };
        write_private(&stage.secret(), SECRET)?;
        write_private(&stage.staff(), &format!("admin {STAFF}\n"))?;
        // The first one brings schema and topic; the others find them.
        for (role, count) in
            [("keeper", cast.keepers), ("recorder", cast.recorders), ("gateway", cast.gateways)]
        {
            for number in 1..=count {
                stage.add(role, number)?;
            }
        }
        Ok(stage)
    }

    fn secret(&self) -> PathBuf {
        self.folder.path().join("secret")
    }

    fn staff(&self) -> PathBuf {
        self.folder.path().join("staff.tokens")
    }

    fn add(&mut self, role: &'static str, number: usize) -> Result<()> {
        let name = format!("{role}-{number}");
        let public = if role == "gateway" { Some(free_address()?) } else { None };
        let admin = free_address()?;
        let process = self.launch(&name, role, public, admin)?;
        eprintln!("stage: {name} runs{}", public.map_or_else(String::new, |at| format!(" at http://{at}")));
        self.players.push(Player { name, role, process, public, admin });
        Ok(())
    }

    /// Kills one process of a role as a failing machine would, and starts it again at its place.
    ///
    /// # Errors
    /// It does not come back.
    pub(crate) fn kill_one(&mut self, role: &str) -> Result<()> {
        let Some(at) = self.players.iter().position(|player| player.role == role) else { return Ok(()) };
        let mut player = self.players.remove(at);
        player.process.kill()?;
        eprintln!("stage: {} was killed", player.name);
        player.process = self.launch(&player.name, player.role, player.public, player.admin)?;
        eprintln!("stage: {} is back", player.name);
        self.players.insert(at, player);
        Ok(())
    }

    /// Starts a process and waits until it listens.
    fn launch(
        &self,
        name: &str,
        role: &str,
        public: Option<SocketAddr>,
        admin: SocketAddr,
    ) -> Result<Running> {
        let mut command = Command::new(&self.program);
        command.args(["serve", "--roles", role]);
        command.args(["--admin-listen", &admin.to_string()]);
        if let Some(public) = public {
            command.args(["--listen", &public.to_string()]);
        }
        command.arg("--jwt-secret-file").arg(self.secret());
        command.arg("--data-dir").arg(self.folder.path().join(name));
        for (key, value) in self.settings() {
            command.env(format!("DOORBUSTER__{}", key.replace('.', "__").to_uppercase()), value);
        }
        let log = self.folder.path().join(format!("{name}.log"));
        let mut process = Running::start(&mut command, &log)?;
        process.listens(admin, &log).with_context(|| format!("starting {name}"))?;
        if let Some(public) = public {
            process.listens(public, &log)?;
        }
        Ok(process)
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let text = str::to_owned;
        vec![
            ("stock.backend", text("redis")),
            ("queue.backend", text("kafka")),
            ("ledger.backend", text("postgres")),
            ("redis.url", self.redis.clone()),
            ("redis.prefix", format!("{}:", self.name)),
            ("kafka.brokers", self.kafka.clone()),
            ("kafka.topic", self.name.clone()),
            ("kafka.group", self.name.clone()),
            ("kafka.replication", self.kafka.split(',').count().to_string()),
            ("postgres.url", self.postgres.clone()),
            ("postgres.schema", self.name.clone()),
            ("payments.provider", text("sandbox")),
            ("admin.token_file", self.staff().display().to_string()),
            ("server.connections_max", text("20000")),
            ("server.connections_per_address_max", text("20000")),
            ("log.level", text("info")),
        ]
    }

    fn doorbuster(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).args(["--output", "json"]);
        command.env("DOORBUSTER_ADMIN_TOKEN_FILE", self.staff());
        if let Some(keeper) = self.players.first() {
            command.env("DOORBUSTER_ADMIN_URL", format!("http://{}", keeper.admin));
        }
        command
    }

    fn tell(&self, words: &[&str]) -> Result<Value> {
        let printed = output_of(&mut self.doorbuster(words))?;
        serde_json::from_str(&printed).with_context(|| format!("doorbuster printed {printed}"))
    }

    /// Opens a sale of one item with `units` units; answers its id.
    pub(crate) fn sale(&self, units: u64) -> Result<String> {
        let file = self.folder.path().join("sale.toml");
        std::fs::write(
            &file,
            format!(
                "name = \"Stage\"\nopensAt = \"2020-01-01T00:00:00Z\"\nclosesAt = \"2099-01-01T00:00:00Z\"\n\
                 [[items]]\nproductId = \"P-1\"\nquantity = {units}\npriceMinor = 1990\ncurrency = \"EUR\"\n"
            ),
        )?;
        let sale = self.tell(&["sale", "create", "--file", &file.display().to_string()])?;
        let id = sale["saleId"].as_str().context("the sale has no id")?.to_owned();
        self.tell(&["sale", "preheat", &id])?;
        self.tell(&["sale", "open", &id])?;
        Ok(id)
    }

    /// The rehearsal against every gateway.
    pub(crate) fn rehearsal(&self, sale: &str, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["rehearse", "--sale", sale]);
        for gateway in self.players.iter().filter_map(|player| player.public) {
            command.arg("--url").arg(format!("http://{gateway}"));
        }
        command.arg("--signing-key-file").arg(self.secret()).args(arguments);
        command.env("DOORBUSTER_ADMIN_TOKEN_FILE", self.staff());
        if let Some(keeper) = self.players.first() {
            command.env("DOORBUSTER_ADMIN_URL", format!("http://{}", keeper.admin));
        }
        command
    }

    /// Ends every process as an operator would, gateways first.
    pub(crate) fn end(mut self) -> Result<()> {
        while let Some(mut player) = self.players.pop() {
            player.process.terminate().with_context(|| format!("ending {}", player.name))?;
        }
        Ok(())
    }
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}
