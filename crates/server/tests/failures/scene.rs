//! A sale on real servers, in roles, for one line of the matrix.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use doorbuster_chaos::books::{Books, Position, Sources};
use doorbuster_chaos::buyers::{Crowd, Gateways, Offer, Plan};
use doorbuster_chaos::checker::{Circumstances, check};
use doorbuster_chaos::history::{History, Recorder};
use doorbuster_chaos::proxy::{Protocol, Proxy};
use doorbuster_chaos::{ItemId, SaleId};
use doorbuster_loadtest::{AdminClient, TokenSigner};
use doorbuster_services::{Server, redis_server};
use doorbuster_wire::{ItemDraft, SaleDraft};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use tempfile::TempDir;

use crate::engines::Engines;
use crate::player::Player;
use crate::signs;
use crate::waiting::until_async;

/// Signs every token; the processes live for seconds and on loopback only.
pub(crate) const SECRET: &str = "a-secret-of-the-failures-0123456789-and-of-no-other-place";
/// The staff's token, for the same reason.
pub(crate) const STAFF: &str = "a-token-of-the-failures-0123456789abcdef0123456789abcdef";

/// Longest wait for a sale to come to rest once everything is healed.
pub(crate) const REST: Duration = Duration::from_secs(90);

/// Longest wait for one answer of Kafka's.
const ONE_ANSWER: Duration = Duration::from_secs(5);

const PRICE_MINOR: i64 = 1_990;

/// What a line's sale is like. Numbers are small enough for seconds on two cores.
pub(crate) struct Set {
    pub(crate) units: u64,
    pub(crate) users: u32,
    pub(crate) limit: u32,
    pub(crate) gateways: usize,
    pub(crate) recorders: usize,
    pub(crate) keepers: usize,
    /// How long an order may wait for its payment, in seconds.
    pub(crate) window_s: u64,
    /// Redis' own settings.
    pub(crate) redis: &'static [&'static str],
    /// How the users begin whom the line itself lets buy: they are in no history, so that the checker
    /// does not know that they bought. The line looks at what they hear.
    pub(crate) by_hand: &'static [&'static str],
    /// Processes whose clocks are set by us, with how many seconds they are wrong at first.
    pub(crate) clocks: &'static [(&'static str, i64)],
    /// Where Redis keeps its files; without, in a folder of its own.
    pub(crate) redis_data: Option<PathBuf>,
    /// Whether a proxy stands between the roles and each of the three servers.
    pub(crate) proxied: bool,
    /// Settings of ours, by key.
    pub(crate) settings: &'static [(&'static str, &'static str)],
}

impl Default for Set {
    fn default() -> Self {
        Self {
            units: 200,
            users: 320,
            limit: 1,
            gateways: 2,
            recorders: 2,
            keepers: 1,
            window_s: 600,
            redis: &["--appendonly", "yes", "--appendfsync", "everysec"],
            by_hand: &[],
            clocks: &[],
            redis_data: None,
            proxied: false,
            settings: &[],
        }
    }
}

/// The proxies of a scene: what is asked of each server passes one.
pub(crate) struct Proxies {
    pub(crate) redis: Proxy,
    pub(crate) postgres: Proxy,
    pub(crate) kafka: Proxy,
}

/// A sale that is open, and everything that sells it.
pub(crate) struct Scene<'e> {
    pub(crate) engines: &'e mut Engines,
    pub(crate) redis: Server,
    pub(crate) proxies: Option<Proxies>,
    pub(crate) players: Vec<Player>,
    pub(crate) gateways: Gateways,
    pub(crate) offer: Offer,
    pub(crate) set: Set,
    /// What schema, topic and keys are named by.
    pub(crate) name: String,
    folder: TempDir,
    recorder: Recorder,
    /// Whether every invariant held: then there is no evidence to keep.
    held: bool,
}

impl<'e> Scene<'e> {
    /// Starts everything and opens the sale.
    pub(crate) async fn open(engines: &'e mut Engines, set: Set) -> Result<Self> {
        engines.mend()?;
        let redis_data = set.redis_data.as_ref().map(|data| data.display().to_string());
        let elsewhere = redis_data.iter().flat_map(|data| ["--dir", data]);
        let redis_settings: Vec<&str> = set.redis.iter().copied().chain(elsewhere).collect();
        let redis = redis_server::start_with(&redis_settings)?;
        let proxies = if set.proxied { Some(Proxies::start(engines, &redis).await?) } else { None };
        let folder = tempfile::Builder::new().prefix("doorbuster-failure-").tempdir()?;
        let name = folder.path().file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.context("a folder has a name")?.replace(['-', '.'], "_").to_lowercase();
        write_private(&folder.path().join("secret"), SECRET)?;
        write_private(&folder.path().join("staff"), &format!("admin {STAFF}\n"))?;
        let offer = Offer {
            sale: SaleId(0),
            items: Vec::new(),
            limit: set.limit,
            price_minor: PRICE_MINOR,
            currency: "EUR".to_owned(),
        };
        let (players, gateways) = (Vec::new(), Gateways::new(Vec::new()));
        let recorder = Recorder::default();
        let mut scene = Self {
            engines,
            redis,
            proxies,
            players,
            gateways,
            offer,
            set,
            name,
            folder,
            recorder,
            held: false,
        };
        // The first brings schema and topic; the others find them.
        let (keepers, recorders) = (scene.set.keepers, scene.set.recorders);
        for (role, count) in [("keeper", keepers), ("recorder", recorders), ("gateway", scene.set.gateways)] {
            for number in 1..=count {
                scene.add(role, number)?;
                if scene.players.len() == 1 {
                    scene.players[0].until_ready().await?;
                }
            }
        }
        for player in &mut scene.players {
            player.until_ready().await?;
        }
        scene.gateways.replace(scene.players.iter().filter_map(|it| it.public).collect());
        scene.open_sale().await?;
        Ok(scene)
    }

    fn add(&mut self, role: &'static str, number: usize) -> Result<()> {
        let [admin, public] = doorbuster_services::free_ports()?;
        let public = (role == "gateway").then_some(public);
        let name = format!("{role}-{number}");
        let log = self.folder.path().join(format!("{name}.log"));
        let mut player = Player::new(name.clone(), role, admin, public, log);
        let mut words = vec!["serve".to_owned(), "--roles".to_owned(), role.to_owned()];
        words.extend(["--admin-listen".to_owned(), admin.to_string()]);
        if let Some(public) = public {
            words.extend(["--listen".to_owned(), public.to_string()]);
        }
        player.arguments = words;
        player.environment = self.settings(&name);
        if let Some((_, wrong_s)) = self.set.clocks.iter().find(|(player, _)| *player == name) {
            self.set_clock(&name, *wrong_s)?;
            let file = self.clock_file(&name).display().to_string();
            player.environment.push(("DOORBUSTER_FAULT_CLOCK".to_owned(), file));
        }
        player.start(&[])?;
        self.players.push(player);
        Ok(())
    }

    fn settings(&self, player: &str) -> Vec<(String, String)> {
        let behind = |proxy: Option<SocketAddr>, url: &str| {
            proxy.map_or_else(|| url.to_owned(), |proxy| url.replace(&address_in(url), &proxy.to_string()))
        };
        let proxies = self.proxies.as_ref();
        let redis = behind(proxies.map(|it| it.redis.address()), &self.redis.url);
        let postgres = behind(proxies.map(|it| it.postgres.address()), &self.engines.postgres.url);
        let kafka = behind(proxies.map(|it| it.kafka.address()), &self.engines.kafka.url);
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let text = str::to_owned;
        let mut settings = BTreeMap::from([
            ("stock.backend", text("redis")),
            ("queue.backend", text("kafka")),
            ("ledger.backend", text("postgres")),
            ("redis.url", redis),
            ("redis.prefix", format!("{}:", self.name)),
            ("kafka.brokers", kafka),
            ("kafka.topic", self.name.clone()),
            ("kafka.group", self.name.clone()),
            ("kafka.partitions", text("4")),
            ("kafka.replication", text("1")),
            ("kafka.message_timeout", text("2s")),
            ("postgres.url", postgres),
            ("postgres.schema", self.name.clone()),
            ("admin.token_file", path("staff")),
            ("gate.jwt.secret_file", path("secret")),
            ("data.dir", path(player)),
            ("server.cores", text("1")),
            ("log.level", text("info")),
        ]);
        settings.extend(self.set.settings.iter().map(|&(key, value)| (key, text(value))));
        let variable = |key: &str| format!("DOORBUSTER__{}", key.replace('.', "__").to_uppercase());
        settings.into_iter().map(|(key, value)| (variable(key), value)).collect()
    }

    /// Sets the clock of one of [`Set::clocks`]: so many seconds from the machine's, within 0.1 s.
    pub(crate) fn set_clock(&self, player: &str, wrong_s: i64) -> Result<()> {
        Ok(std::fs::write(self.clock_file(player), format!("{wrong_s}\n"))?)
    }

    fn clock_file(&self, player: &str) -> PathBuf {
        self.folder.path().join(format!("{player}.clock"))
    }

    /// An item of so many units.
    pub(crate) fn item(&self, quantity: u64) -> ItemDraft {
        ItemDraft {
            product_id: "P-1".to_owned(),
            title: None,
            quantity,
            price_minor: PRICE_MINOR,
            list_price_minor: None,
            currency: "EUR".to_owned(),
        }
    }

    /// A sale like this scene's.
    pub(crate) fn draft(&self) -> SaleDraft {
        SaleDraft {
            name: "Failures".to_owned(),
            opens_at: "2020-01-01T00:00:00Z".to_owned(),
            closes_at: "2099-01-01T00:00:00Z".to_owned(),
            payment_window_seconds: Some(self.set.window_s),
            max_units_per_user: Some(self.set.limit),
            items: vec![self.item(self.set.units)],
        }
    }

    async fn open_sale(&mut self) -> Result<()> {
        let draft = self.draft();
        let staff = self.staff("keeper")?;
        let sale = staff.create_sale(&draft).await?;
        ensure!(staff.preheat(&sale.sale_id).await?.ok, "the preheat read back something else");
        staff.open(&sale.sale_id).await?;
        self.offer.sale = SaleId(sale.sale_id.parse()?);
        self.offer.items = vec![ItemId(sale.items[0].item_id.parse()?)];
        // Every gateway must have seen it: what follows counts refusals.
        for gateway in self.gateways() {
            let path = format!("/api/flash-sales/sales/{}", sale.sale_id);
            let seen = until_async(REST, async || {
                let answer = crate::http::get(gateway, &path).await;
                Ok(answer.is_some_and(|(status, body)| status == 200 && body.contains("\"open\"")))
            });
            ensure!(seen.await?, "a gateway never saw the sale open");
        }
        Ok(())
    }

    /// Where buyers find the gateways.
    pub(crate) fn gateways(&self) -> Vec<SocketAddr> {
        self.players.iter().filter_map(|player| player.public).collect()
    }

    /// The staff's way in at the first process of this role that runs.
    pub(crate) fn staff(&self, role: &str) -> Result<AdminClient> {
        let player = self.players.iter().find(|it| it.role == role).context("there is such a role")?;
        Ok(AdminClient::new(&format!("http://{}", player.admin), STAFF)?)
    }

    /// The staff's way in at a process by its name.
    pub(crate) fn staff_at(&mut self, name: &str) -> Result<AdminClient> {
        Ok(AdminClient::new(&format!("http://{}", self.player(name).admin), STAFF)?)
    }

    /// A process by its name, such as `recorder-1`.
    pub(crate) fn player(&mut self, name: &str) -> &mut Player {
        let player = self.players.iter_mut().find(|player| player.name == name);
        player.unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// Starts a process again that has ended, with these fault points where there are any.
    pub(crate) async fn again(&mut self, name: &str, fault_points: &str) -> Result<()> {
        let player = self.player(name);
        if fault_points.is_empty() {
            player.start(&[])?;
        } else {
            player.start(&[("DOORBUSTER_FAULT_POINTS", fault_points)])?;
        }
        player.until_ready().await
    }

    /// Ends a process and starts it with fault points.
    pub(crate) async fn armed(&mut self, name: &str, fault_points: &str) -> Result<()> {
        let player = self.player(name);
        player.terminate()?;
        player.until_ended().await?;
        self.again(name, fault_points).await
    }

    /// A plan for buyers of this sale; they are patient.
    pub(crate) fn plan(&self) -> Result<Plan> {
        let tokens = TokenSigner::with_defaults(SECRET.as_bytes())?;
        let plan = Plan::new(self.offer.clone(), self.set.users, tokens);
        let staff = vec![Arc::new(self.staff("keeper")?)];
        let seed = self.engines.seed;
        Ok(Plan { staff, seed, call_limit: Duration::from_secs(8), ..plan })
    }

    /// Lets buyers go.
    pub(crate) fn crowd(&self, plan: Plan) -> Crowd {
        Crowd::start(plan, &self.gateways, &self.recorder)
    }

    /// Everything that all crowds asked and heard.
    pub(crate) fn history(&self) -> History {
        self.recorder.history()
    }

    /// The books from outside.
    pub(crate) async fn books(&self) -> Result<Books> {
        let sources = Sources {
            postgres: self.engines.postgres.url.clone(),
            schema: self.name.clone(),
            redis: self.redis.url.clone(),
            prefix: format!("{}:", self.name),
        };
        let mut books = Books::read(&sources).await?;
        books.ends = self.ends(&books)?;
        Ok(books)
    }

    /// How far the topic goes, by a Kafka client of our own.
    fn ends(&self, books: &Books) -> Result<Vec<Position>> {
        let client: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", &self.engines.kafka.url).create()?;
        let end = |position: &Position| -> Result<Position> {
            let partition = i32::try_from(position.partition)?;
            let mut next = 0;
            // A broker that has just come back leads no partition for a moment.
            let told = doorbuster_services::await_true(REST, || {
                let marks = client.fetch_watermarks(&self.name, partition, ONE_ANSWER);
                next = marks.as_ref().map_or(0, |(_, next)| *next);
                Ok(marks.is_ok())
            });
            ensure!(told?, "Kafka does not say where partition {partition} ends");
            Ok(Position { next: next.try_into()?, ..position.clone() })
        };
        books.positions.iter().map(end).collect()
    }

    /// Heals what is broken, waits until the sale is at rest, and holds the clients' history against the
    /// books: no invariant may be violated. Answers the books.
    pub(crate) async fn finish(&mut self, circumstances: Circumstances) -> Result<Books> {
        self.heal().await?;
        let staff = self.staff("keeper")?;
        let (mut last, mut audited) = (String::new(), Vec::new());
        let rest = until_async(REST, async || {
            match staff.audit().await {
                Ok(report) if report.at_rest => {
                    audited = report.findings;
                    return Ok(true);
                }
                Ok(report) => last = format!("not at rest: {:?}", report.findings),
                Err(error) => last = format!("{error:#}"),
            }
            Ok(false)
        });
        ensure!(rest.await?, "the sale does not come to rest: {last}");
        let books = self.books().await?;
        let circumstances = Circumstances { at_rest: true, ..circumstances };
        let mut findings = check(&self.history(), &books, &circumstances);
        let by_hand =
            |words: &str| self.set.by_hand.iter().any(|user| words.contains(&format!(" is {user}")));
        findings.retain(|it| it.invariant != "I19" || !by_hand(&it.words));
        ensure!(findings.is_empty(), "the checker found: {findings:#?}");
        // A stock that went back has given steps twice, which is told as evidence for ever.
        let excused = |invariant: &str| circumstances.stock_lost && ["I9", "I15", "I17"].contains(&invariant);
        audited.retain(|finding| !excused(&finding.invariant));
        ensure!(audited.is_empty(), "the product's own audit found: {audited:?}");
        signs::nobody_babbles(&self.players)?;
        self.held = true;
        Ok(books)
    }

    /// What an operator must have seen of the fault: signs of the processes that run, and lines of any.
    pub(crate) async fn shows(&mut self, signs: &[&str], lines: &[&str]) -> Result<()> {
        // Without them the line fails, and its evidence is kept.
        self.held = false;
        signs::until_seen(&self.players, signs).await?;
        signs::are_told(&self.players, lines)?;
        self.held = true;
        Ok(())
    }

    /// Ends every fault, and starts again whatever does not run.
    pub(crate) async fn heal(&mut self) -> Result<()> {
        if let Some(proxies) = &self.proxies {
            for proxy in [&proxies.redis, &proxies.postgres, &proxies.kafka] {
                proxy.heal();
            }
        }
        self.engines.mend()?;
        if self.redis.process(0).runs() {
            self.redis.thaw(0)?;
        } else {
            self.redis.start_again(0)?;
        }
        for player in &mut self.players {
            if player.runs()? {
                player.thaw()?;
            } else {
                player.start(&[]).with_context(|| format!("starting {} again", player.name))?;
            }
        }
        for player in &mut self.players {
            player.until_ready().await?;
        }
        Ok(())
    }

    /// Keeps what a failed line leaves: logs and the history.
    fn keep_evidence(&self) -> Result<PathBuf> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("failures").join(&self.name);
        std::fs::create_dir_all(&folder)?;
        for player in &self.players {
            std::fs::copy(&player.log, folder.join(format!("{}.log", player.name)))?;
        }
        let file = std::fs::File::create(folder.join("history.jsonl"))?;
        doorbuster_chaos::history::write_lines(&self.history(), file)?;
        Ok(folder)
    }
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        if self.held {
            return;
        }
        match self.keep_evidence() {
            Ok(folder) => eprintln!("failures: logs and history are in {}", folder.display()),
            Err(error) => eprintln!("failures: the evidence could not be kept: {error:#}"),
        }
    }
}

impl Proxies {
    async fn start(engines: &Engines, redis: &Server) -> Result<Self> {
        let at = |url: &str| -> Result<SocketAddr> { Ok(address_in(url).parse()?) };
        Ok(Self {
            redis: Proxy::start(Protocol::Resp, at(&redis.url)?).await?,
            postgres: Proxy::start(Protocol::Postgres, at(&engines.postgres.url)?).await?,
            kafka: Proxy::start(Protocol::Kafka, at(&engines.kafka.url)?).await?,
        })
    }
}

/// Host and port within a URL, or all of it.
fn address_in(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest).to_owned()
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}
