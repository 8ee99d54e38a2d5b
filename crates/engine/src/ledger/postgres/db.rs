//! Connections, transactions, and what a failure of either means.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, Timeouts,
};
use futures_util::future::try_join_all;
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Row};

use super::failure::{Failure, no_connection, start_refused};
use super::{PostgresError, PostgresOptions, tls};
use crate::clock::Clock;
use crate::fault::BackendError;
use crate::order::SaleId;

/// How often a transaction that lost a deadlock is tried in all.
const TRIES_MAX: u32 = 6;

/// Pause before the first repetition; doubled each time, and spread evenly up to that.
const PAUSE: Duration = Duration::from_millis(4);

/// A dead peer is noticed after this idle time and three probes, not after the system's two hours.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A transaction that writes, and one that reads one state of the database.
const WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Batches find their rows by keys and in the order of an index, whatever the statistics say, which lag behind
/// a sale by minutes: by them the server reads all buyers, or all that is pending, for each batch. Only for
/// statements of which each has such an index.
const BY_KEYS: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
     SET LOCAL enable_mergejoin = off; SET LOCAL enable_hashjoin = off; SET LOCAL jit = off";

/// One statement and its parameters.
pub(super) type Query<'a> = (&'a str, &'a [&'a (dyn ToSql + Sync)]);

/// The connections to one schema of one database.
pub(super) struct Db {
    pool: Pool,
    call_timeout: Duration,
    clock: Option<Arc<dyn Clock>>,
    lock_base: i64,
    spread: Duration,
    /// Host, port and database, for messages; never the password.
    pub(super) place: String,
}

impl Db {
    /// Makes the pool; the first connection is made when it is first used.
    pub(super) fn new(options: &PostgresOptions) -> Result<Self, PostgresError> {
        let config = configure(options)?;
        let place = place(&config);
        let (mode, connector) = tls::connector(&options.tls)?;
        let mut config = config;
        config.ssl_mode(mode);
        // Verified costs one round trip per transaction, and saves the first statement behind a
        // restarted server or a cut link from failing.
        let manager = Manager::from_config(
            config,
            connector,
            ManagerConfig { recycling_method: RecyclingMethod::Verified },
        );
        let limit = Some(options.connect_timeout);
        let pool = Pool::builder(manager)
            .max_size(options.pool_max.max(1))
            .timeouts(Timeouts { wait: limit, create: limit, recycle: limit })
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| PostgresError::Url(error.to_string()))?;
        Ok(Self {
            pool,
            call_timeout: options.call_timeout(),
            clock: options.clock.clone(),
            lock_base: lock_base(&options.schema),
            spread: options.release_spread,
            place,
        })
    }

    /// The parameter of [`CLOCK`].
    pub(super) fn clock(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().as_ms())
    }

    /// How far the moments at which units return are spread, in whole milliseconds, rounded up.
    pub(super) fn release_spread(&self) -> i64 {
        i64::try_from(self.spread.as_millis()).unwrap_or(i64::MAX).saturating_add(1)
    }

    /// A connection, or why there is none.
    pub(super) async fn connection(&self) -> Result<Object, PoolError> {
        self.pool.get().await
    }

    /// Tries the first connection, so that a wrong URL is told at the start, in its own words.
    pub(super) async fn check_reachable(&self) -> Result<(), PostgresError> {
        self.connection().await.map(drop).map_err(|error| start_refused(&self.place, &error))
    }

    /// Runs `work` in a transaction and commits what it did, unless it fails. A transaction that
    /// PostgreSQL ended for the sake of another one (deadlock, serialization) is repeated here, so
    /// `work` may run several times.
    pub(super) async fn write<T, W: Future<Output = Result<T, Failure>>>(
        &self,
        what: &'static str,
        work: impl Fn(Arc<Tx>) -> W,
    ) -> Result<T, BackendError> {
        self.repeated(what, WRITE, work).await
    }

    /// The same for a batch, whose statements all find their rows by keys.
    pub(super) async fn write_batch<T, W: Future<Output = Result<T, Failure>>>(
        &self,
        what: &'static str,
        work: impl Fn(Arc<Tx>) -> W,
    ) -> Result<T, BackendError> {
        self.repeated(what, &format!("{WRITE}; {BY_KEYS}"), work).await
    }

    async fn repeated<T, W: Future<Output = Result<T, Failure>>>(
        &self,
        what: &'static str,
        begin: &str,
        work: impl Fn(Arc<Tx>) -> W,
    ) -> Result<T, BackendError> {
        let mut tries = 1;
        loop {
            let failure = match self.attempt(what, begin, &work).await? {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            if !failure.is_worth_repeating() || tries == TRIES_MAX {
                return Err(failure.before_commit(what));
            }
            tracing::debug!(what, tries, "a transaction gave way to another one and is repeated");
            pause(tries).await;
            tries += 1;
        }
    }

    /// Runs `work`, which only reads, in one state of the database.
    pub(super) async fn read<T, W: Future<Output = Result<T, Failure>>>(
        &self,
        what: &'static str,
        work: impl Fn(Arc<Tx>) -> W,
    ) -> Result<T, BackendError> {
        self.attempt(what, READ, &work).await?.map_err(|failure| failure.before_commit(what))
    }

    /// The same for a batch, whose statements all find their rows by an index.
    pub(super) async fn read_batch<T, W: Future<Output = Result<T, Failure>>>(
        &self,
        what: &'static str,
        work: impl Fn(Arc<Tx>) -> W,
    ) -> Result<T, BackendError> {
        let begin = format!("{READ}; {BY_KEYS}");
        self.attempt(what, &begin, &work).await?.map_err(|failure| failure.before_commit(what))
    }

    /// One statement that only reads, so needs no transaction around it.
    pub(super) async fn query(&self, what: &'static str, query: Query<'_>) -> Result<Vec<Row>, BackendError> {
        let client = self.open(what).await?;
        match timeout(self.call_timeout, pipeline(&client, [query])).await {
            Ok(answered) => answered.map(|[rows]| rows).map_err(|failure| failure.before_commit(what)),
            Err(_) => {
                drop(Object::take(client));
                Err(Failure::Silent.before_commit(what))
            }
        }
    }

    async fn open(&self, what: &'static str) -> Result<Object, BackendError> {
        self.connection()
            .await
            .map_err(|error| no_connection(what, &self.place, self.pool.status().max_size, error))
    }

    /// The outer error is final; the inner one is known to have changed nothing.
    async fn attempt<T, W: Future<Output = Result<T, Failure>>>(
        &self,
        what: &'static str,
        begin: &str,
        work: &impl Fn(Arc<Tx>) -> W,
    ) -> Result<Result<T, Failure>, BackendError> {
        let client = Some(self.open(what).await?);
        let tx = Arc::new(Tx {
            client,
            clock: self.clock.clone(),
            lock_base: self.lock_base,
            release_spread: self.spread.as_secs_f64() * 1_000.0,
        });
        let working = async {
            tx.batch(begin).await?;
            work(Arc::clone(&tx)).await
        };
        let worked = match timeout(self.call_timeout, working).await.unwrap_or(Err(Failure::Silent)) {
            Ok(value) => value,
            Err(failure) => {
                // A connection to a server that is no primary any more is not used again.
                if !failure.is_read_only()
                    && let Ok(Ok(())) = timeout(self.call_timeout, tx.batch("ROLLBACK")).await
                {
                    Tx::keep_connection(tx);
                }
                return Ok(Err(failure));
            }
        };
        match timeout(self.call_timeout, tx.batch("COMMIT")).await.unwrap_or(Err(Failure::Silent)) {
            Ok(()) => {
                Tx::keep_connection(tx);
                Ok(Ok(worked))
            }
            Err(failure) if failure.is_worth_repeating() => Ok(Err(failure)),
            Err(failure) => Err(failure.at_commit(what)),
        }
    }
}

/// A transaction's connection. One that is dropped without having ended, as when its caller went
/// away, is closed: the server then rolls back at once, and nobody inherits half a transaction.
pub(super) struct Tx {
    /// `None` once it is back in the pool.
    client: Option<Object>,
    clock: Option<Arc<dyn Clock>>,
    lock_base: i64,
    /// How far the moments at which units return are spread behind their order's end, in ms.
    pub(super) release_spread: f64,
}

impl Tx {
    fn client(&self) -> &Object {
        self.client.as_ref().expect("it is given back last")
    }

    /// The transaction has ended, so the pool gets its connection back.
    fn keep_connection(tx: Arc<Self>) {
        if let Some(mut tx) = Arc::into_inner(tx) {
            drop(tx.client.take());
        }
    }

    /// Sends all queries at once and answers their rows, in order: one round trip, plus one for
    /// each statement that this connection has not prepared yet.
    pub(super) async fn pipeline<const N: usize>(
        &self,
        queries: [Query<'_>; N],
    ) -> Result<[Vec<Row>; N], Failure> {
        pipeline(self.client(), queries).await
    }

    /// The rows of one query.
    pub(super) async fn rows(&self, query: Query<'_>) -> Result<Vec<Row>, Failure> {
        let [rows] = self.pipeline([query]).await?;
        Ok(rows)
    }

    /// Statements without parameters or answers.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), Failure> {
        Ok(self.client().batch_execute(sql).await?)
    }

    /// The parameter of [`CLOCK`].
    pub(super) fn clock(&self) -> Option<i64> {
        self.clock.as_ref().map(|clock| clock.now().as_ms())
    }

    /// The advisory locks' keys of these sales, in the order in which everybody takes them. They
    /// are this schema's own: schemas of one database share the space of keys.
    pub(super) fn lock_keys(&self, sales: impl IntoIterator<Item = SaleId>) -> Vec<i64> {
        let mut keys: Vec<i64> = sales.into_iter().map(|sale| self.lock_base.wrapping_add(sale.0)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The key of the advisory lock of whoever plans deliveries: no sale has the number -1.
    pub(super) fn events_key(&self) -> i64 {
        self.lock_base.wrapping_sub(1)
    }

    /// The key of the advisory lock of whoever migrates this schema: no sale has the number 0.
    pub(super) fn migration_key(&self) -> i64 {
        self.lock_base
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

async fn pipeline<const N: usize>(
    client: &Object,
    queries: [Query<'_>; N],
) -> Result<[Vec<Row>; N], Failure> {
    // Prepared before the first is sent: a wait between two of them could let the later ones
    // overtake, and locks would be taken in another order.
    let mut prepared = Vec::with_capacity(N);
    for (sql, params) in queries {
        prepared.push((client.prepare_cached(sql).await?, params));
    }
    let running = prepared.iter().map(|(statement, params)| client.query(statement, params));
    let answers: Result<[Vec<Row>; N], _> = try_join_all(running).await?.try_into();
    Ok(answers.expect("one answer for each query"))
}

/// The ledger's time: the given clock's, or the server's at this very moment, not at the
/// transaction's start as `now()` would say.
pub(super) const CLOCK: &str =
    "SELECT coalesce($1::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)";

/// Held by whoever writes or closes orders of a sale; many at a time.
pub(super) const LOCK_SALES: &str = "SELECT pg_advisory_xact_lock_shared(k) FROM unnest($1::bigint[]) AS k";

/// Held by whoever changes a sale's epoch, state, fence or quantities; alone. A row lock on the
/// sale was refused: two recorders that share it starve the one who wants it alone, for ever.
pub(super) const LOCK_SALE_ALONE: &str = "SELECT pg_advisory_xact_lock(k) FROM unnest($1::bigint[]) AS k";

fn lock_base(schema: &str) -> i64 {
    let digest = Sha256::digest(format!("doorbuster ledger {schema}"));
    i64::from_be_bytes(digest[..8].try_into().expect("SHA-256 has 32 bytes"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "who lost a deadlock lets the winner finish: there is nothing to wait on"
)]
async fn pause(tries: u32) {
    let most = PAUSE * 2_u32.pow(tries);
    tokio::time::sleep(most.mul_f64(rand::random::<f64>())).await;
}

fn configure(options: &PostgresOptions) -> Result<Config, PostgresError> {
    let mut config: Config =
        options.url.reveal().parse().map_err(|error| PostgresError::Url(misread(&error)))?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    let schema = options.schema.as_bytes();
    let well_formed = schema.first().is_some_and(|first| plain(*first))
        && schema.iter().all(|byte| plain(*byte) || byte.is_ascii_digit())
        && schema.len() <= 63;
    if !well_formed {
        return Err(PostgresError::Schema(options.schema.clone()));
    }
    // Rows are in memory, or on a disk that seeks for nothing: whoever has another says so in the URL's
    // options. Plans are made for each call: one that was made while a sale's tables were empty would scan
    // them whole for as long as the connection lives.
    let session = format!(
        "-c random_page_cost=1.1 {} -c search_path=\"{}\" -c statement_timeout={} -c lock_timeout={} \
         -c idle_in_transaction_session_timeout={} -c plan_cache_mode=force_custom_plan",
        config.get_options().unwrap_or_default(),
        options.schema,
        options.statement_timeout.as_millis(),
        options.lock_timeout.as_millis(),
        options.call_timeout().as_millis(),
    );
    // Of several hosts, the one that takes writes: a standby also reads what is old.
    if config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    config
        .options(session.trim())
        .application_name("doorbuster")
        .connect_timeout(options.connect_timeout)
        .keepalives(true)
        .keepalives_idle(KEEPALIVE)
        .keepalives_interval(KEEPALIVE / 3)
        .keepalives_retries(3)
        .tcp_user_timeout(options.call_timeout());
    Ok(config)
}

/// What is wrong with a URL. One that libpq takes may say how to encrypt, which is not heard here.
fn misread(error: &tokio_postgres::Error) -> String {
    let mut text = chain(error);
    if text.contains("`ssl") {
        text.push_str(" (encryption is chosen by tls and ca_file, not in the URL)");
    }
    text
}

fn place(config: &Config) -> String {
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            tokio_postgres::config::Host::Tcp(name) => name.clone(),
            tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    let ports: Vec<String> = config.get_ports().iter().map(u16::to_string).collect();
    let port = if ports.is_empty() { "5432".to_owned() } else { ports.join(",") };
    let database = config.get_dbname().or(config.get_user()).unwrap_or("postgres");
    format!("{}:{port}/{database}", hosts.join(","))
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
