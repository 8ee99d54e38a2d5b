//! A sale on real servers, in roles, for one line of the matrix.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
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
use rdkafka::producer::{FutureProducer, FutureRecord};
use tempfile::TempDir;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::engines::Engines;
use crate::player::Player;
use crate::signs;
use crate::waiting::until_async;

/// Signs every token; the processes live for seconds and on loopback only.
const SECRET: &str = "a-secret-of-the-failures-0123456789-and-of-no-other-place";
/// The staff's token, for the same reason.
pub(crate) const STAFF: &str = "a-token-of-the-failures-0123456789abcdef0123456789abcdef";

/// Longest wait for a sale to come to rest once everything is healed.
const REST: Duration = Duration::from_secs(90);

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
    name: String,
    folder: TempDir,
    recorder: Recorder,
    /// Whether every invariant held: then there is no evidence to keep.
    held: bool,
}

impl<'e> Scene<'e> {
    /// Starts everything and opens the sale.
    pub(crate) async fn open(engines: &'e mut Engines, set: Set) -> Result<Self> {
        engines.mend()?;
        let redis = redis_server::start_with(set.redis)?;
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

    /// A sale like this scene's.
    pub(crate) fn draft(&self) -> SaleDraft {
        let item = ItemDraft {
            product_id: "P-1".to_owned(),
            title: None,
            quantity: self.set.units,
            price_minor: PRICE_MINOR,
            list_price_minor: None,
            currency: "EUR".to_owned(),
        };
        SaleDraft {
            name: "Failures".to_owned(),
            opens_at: "2020-01-01T00:00:00Z".to_owned(),
            closes_at: "2099-01-01T00:00:00Z".to_owned(),
            payment_window_seconds: Some(self.set.window_s),
            max_units_per_user: Some(self.set.limit),
            items: vec![item],
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
        Ok(Plan { staff, call_limit: Duration::from_secs(8), ..plan })
    }

    /// Lets buyers go.
    pub(crate) fn crowd(&self, plan: Plan) -> Crowd {
        Crowd::start(plan, &self.gateways, &self.recorder)
    }

    /// Runs statements on the ledger as an operator would, in the schema of this sale.
    pub(crate) async fn sql(&self, statements: &str) -> Result<()> {
        self.ask_ledger(statements).await.map(drop)
    }

    /// The number that a query of the ledger answers.
    pub(crate) async fn number(&self, query: &str) -> Result<u64> {
        let rows = self.ask_ledger(query).await?;
        let row = rows.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(row.and_then(|row| row.get(0)).context("a row")?.parse()?)
    }

    /// The sale's epoch, and whether a fence stands. The ledger alone is asked: the stock may be hurt.
    pub(crate) async fn epoch(&self) -> Result<(u64, bool)> {
        let rows = self.ask_ledger("SELECT epoch, fence_reason IS NOT NULL FROM sale WHERE id = 1").await?;
        let row = rows.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let row = row.context("the sale is there")?;
        Ok((row.get(0).context("an epoch")?.parse()?, row.get(1) == Some("t")))
    }

    async fn ask_ledger(&self, statements: &str) -> Result<Vec<SimpleQueryMessage>> {
        let (client, connection) = tokio_postgres::connect(&self.engines.postgres.url, NoTls).await?;
        let set = format!("SET search_path = {}", self.name);
        let all = async {
            client.batch_execute(&set).await?;
            client.simple_query(statements).await
        };
        tokio::select! {
            rows = all => Ok(rows?),
            ended = connection => bail!("the connection ended: {ended:?}"),
        }
    }

    /// Sends a command to Redis, past every proxy.
    pub(crate) async fn redis_says(&self, words: &[&str]) -> Result<redis::Value> {
        let mut connection =
            redis::Client::open(self.redis.url.as_str())?.get_multiplexed_async_connection().await?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        Ok(command.query_async(&mut connection).await?)
    }

    /// A key of the stock's present epoch, as Redis has it.
    pub(crate) async fn stock_key(&self, name: &str) -> Result<String> {
        let (epoch, _) = self.epoch().await?;
        Ok(format!("{}:{{s{}.0}}:{epoch}:{name}", self.name, self.offer.sale))
    }

    /// Appends a record as it stands to a partition of the topic.
    pub(crate) async fn append(&self, partition: i32, bytes: &[u8]) -> Result<()> {
        let client: FutureProducer =
            ClientConfig::new().set("bootstrap.servers", &self.engines.kafka.url).create()?;
        let record = FutureRecord::<[u8], [u8]>::to(&self.name);
        let sent = client.send(record.partition(partition).payload(bytes), REST).await;
        sent.map(drop).map_err(|(error, _)| error.into())
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
            let (_, next) = client.fetch_watermarks(&self.name, partition, REST)?;
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
        let findings = check(&self.history(), &books, &circumstances);
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
