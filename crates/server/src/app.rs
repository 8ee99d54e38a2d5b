//! Starts and stops everything.

mod readiness;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use doorbuster_engine::clock::{Clock, SystemClock};
use doorbuster_engine::engine::Shared;
use doorbuster_engine::gate::Limits;
use doorbuster_engine::observed::Observed;
use doorbuster_engine::order::SaleId;
use doorbuster_engine::room::Room;
use doorbuster_engine::sale::Catalog;
use doorbuster_engine::switches::RoomMode;
use doorbuster_engine::workers::{
    Backends, Doorman, Expirer, LatePolicy, Rebuilder, Reconciler, Recorder, Releaser, Restocker, Running,
    SaleClock, Settler, Sweeper, Usher, Watch, WatchLimits, Watchdog, Worker, start,
};
use tokio::sync::watch as signal;
use tokio::task::JoinHandle;

use crate::admin::{self, AdminListener, Patience, Tokens};
use crate::backend::{self, Opened, ServerClocks};
use crate::config::{Config, LateName, ProviderName, Role};
use crate::hot::{self, Bound, Front, PublicListener};
use crate::identity::{self, KeySet, KeySetReader, KeySetReadings};
use crate::metrics::Metrics;
use crate::outgoing;
use crate::pages::Site;
use crate::payments::{Payments, Reached};
use crate::siteverify::{Siteverify, Verdicts};
use crate::tls::{Acceptors, LOOK_PAUSE, Renewer};
pub use readiness::Readiness;

/// How long the sandbox waits when nothing is to be told.
const SANDBOX_PAUSE: Duration = Duration::from_millis(50);

/// How long the reader of the identity provider's keys waits when nobody wants them.
const KEYS_PAUSE: Duration = Duration::from_millis(250);

/// How long a relay waits when there is nothing to tell.
const RELAY_PAUSE: Duration = Duration::from_millis(200);

/// How long an usher rests after each look at the waiting rooms.
const USHER_PAUSE: Duration = Duration::from_millis(200);

/// Longest time that the staff's running requests get when the server stops.
const ADMIN_DRAIN: Duration = Duration::from_secs(5);

/// A running server. [`App::stop`] ends it in order.
pub struct App {
    /// Where buyers come in; nothing without the role of a gateway.
    pub address: Option<SocketAddr>,
    /// Where the staff comes in.
    pub admin_address: SocketAddr,
    /// The file with the staff's token, when this server made it.
    pub admin_token_file: PathBuf,
    public: Option<PublicListener>,
    admin: JoinHandle<()>,
    admin_stop: signal::Sender<bool>,
    workers: Running,
    readiness: Arc<Readiness>,
    shared: Shared,
    site: Arc<Site>,
    opened: Opened,
    unready_delay: Duration,
}

impl App {
    /// Opens the backends, starts the workers and both listeners. Returns when buyers can come in;
    /// stocks may still be rebuilding, which `/readyz` tells.
    ///
    /// # Errors
    /// When a secret is weak or missing, a backend cannot be used, or a port is taken; the message
    /// says what to do.
    pub async fn start(config: &Config, clock: Arc<dyn Clock>, site: Site) -> anyhow::Result<Self> {
        let opened = backend::open(config, clock, ServerClocks::Own).await?;
        Self::start_on(opened, config, site).await
    }

    /// The same on backends that are open already.
    ///
    /// # Errors
    /// As [`App::start`].
    pub async fn start_on(opened: Opened, config: &Config, site: Site) -> anyhow::Result<Self> {
        let admin_token_file = admin::token_file(config)?;
        let staff = Tokens::read(&admin_token_file)?;
        let acceptors = Acceptors::open(config, opened.backends.clock.now())?;
        let observed = Arc::new(Observed::default());
        let shared = shared(observed.over(opened.backends.clone()), config)?;
        let limits = watch_limits(config);
        watch(&shared, limits).refresh().await?;
        if config.server.roles.contains(&Role::Gateway) {
            // Who is kept out is known before anybody comes in.
            doorman(&shared, shared.backends.clone(), config).step().await?;
        }
        let watchdog = config.server.roles.contains(&Role::Recorder).then(|| {
            // By real time, whatever clock a test moves: a step that runs meanwhile has not been stuck.
            Arc::new(Watchdog::new(config.server.recorder_stall_max, Arc::new(SystemClock::new())))
        });
        let bound = bind(config)?;
        let payments = payments(config, bound.as_ref(), &acceptors, &shared)?;
        let mut measured = workers(&shared, &observed, limits, config, watchdog.as_ref());
        let room = observed.room(Arc::clone(&opened.room), &shared.backends.clock);
        measured.extend(usher(&shared, &observed, &room, config));
        if let Some(payments) = &payments {
            measured.extend(payment_workers(payments, &shared, &observed, config));
        }
        measured.extend(relays(&shared, &observed, config).await?);
        let key_sets = Arc::new(KeySetReadings::default());
        measured.extend(key_set_reader(&shared, config, &key_sets)?);
        measured.extend(renewer(&acceptors, &shared));
        let measured = measured.into_iter();
        let workers = start(measured.map(|(worker, idle)| (observed.worker(worker), idle)).collect());
        let readiness = Readiness::new(bound.is_some(), watchdog);
        let verdicts = Arc::new(Verdicts::default());
        let siteverify = siteverify(config, &verdicts, &site)?;
        let (readiness, site) = (Arc::new(readiness), Arc::new(site));
        let front = Front {
            shared: shared.clone(),
            room,
            site: Arc::clone(&site),
            readiness: Arc::clone(&readiness),
            payments,
            siteverify,
            tls: acceptors.public.clone(),
            region_header: config.region_header(),
        };
        let public = bound.map(|bound| hot::start(bound, &config.server, &front)).transpose();
        let public = public.context("a thread of the public listener cannot be started")?;
        let metrics = Metrics {
            shared: shared.clone(),
            watch: Arc::new(watch(&shared, limits).turning(gate_limits(&shared, config))),
            observed,
            cores: public.as_ref().map(|public| public.figures.clone()).unwrap_or_default(),
            staff: Arc::default(),
            key_sets,
            verdicts,
            tls: acceptors.shown(),
        };
        let patience = patience(config);
        let admin =
            AdminListener::bind(config.admin.listen, patience, metrics, staff, Arc::clone(&readiness))
                .await
                .map_err(|error| taken(error, config.admin.listen, "admin.listen"))?;
        let admin_address = admin.address;
        let admin_stop = signal::Sender::new(false);
        let admin = spawn(admin.serve(acceptors.admin, admin_stop.subscribe()));
        let address = public.as_ref().map(|public| public.address);
        tell_serving(config, address, admin_address);
        Ok(Self {
            address,
            admin_address,
            admin_token_file,
            public,
            admin,
            admin_stop,
            workers,
            readiness,
            shared,
            site,
            opened,
            unready_delay: config.server.unready_delay,
        })
    }

    /// Where buyers come in, for those who started a gateway.
    ///
    /// # Panics
    /// Without the role of a gateway.
    pub fn public_address(&self) -> SocketAddr {
        self.address.expect("this process was started as a gateway")
    }

    /// Stages of the engine, for tests and the demo.
    pub fn backends(&self) -> &Backends {
        &self.opened.backends
    }

    /// What this server's pages show.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Whether buyers of this sale wait until they are let in.
    pub(crate) fn has_waiting_room(&self, sale: SaleId) -> bool {
        let catalog = self.shared.catalog.load();
        catalog.switches().room(sale).mode == RoomMode::On
    }

    /// Waits until no open sale is being rebuilt, at most `patience`.
    pub async fn ready_within(&self, patience: Duration) -> bool {
        let mut look = tokio::time::interval(Duration::from_millis(10));
        let ready = async {
            while !self.readiness.reasons(&self.shared).await.is_empty() {
                look.tick().await;
            }
        };
        tokio::time::timeout(patience, ready).await.is_ok()
    }

    /// Not ready → stop accepting → drain → finish batches → close.
    pub async fn stop(self) {
        self.readiness.drain();
        // The timeout is the wait: nothing ever arrives.
        let _ = tokio::time::timeout(self.unready_delay, std::future::pending::<()>()).await;
        if let Some(public) = self.public
            && tokio::task::spawn_blocking(move || public.stop()).await.is_err()
        {
            tracing::error!("the public listener ended in a panic");
        }
        self.admin_stop.send_replace(true);
        if tokio::time::timeout(ADMIN_DRAIN, self.admin).await.is_err() {
            tracing::warn!("closing staff connections that did not end in time");
        }
        self.workers.stop().await;
        tracing::info!("stopped");
    }
}

/// What the parts of a process share.
fn shared(backends: Backends, config: &Config) -> anyhow::Result<Shared> {
    Ok(Shared {
        backends,
        catalog: Arc::new(ArcSwap::from_pointee(Catalog::default())),
        backpressure: Arc::new(config.backpressure()),
        tokens: Arc::new(identity::verifier(config)?),
        sale_tokens: Arc::new(config.sale_tokens()?),
        limits: Arc::new(config.limits()),
        barred: Arc::default(),
        rooms: Arc::default(),
    })
}

#[expect(clippy::disallowed_methods, reason = "one task, for the staff's listener")]
fn spawn(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(work)
}

fn tell_serving(config: &Config, public: Option<SocketAddr>, admin: SocketAddr) {
    let roles = config.server.roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(",");
    tracing::info!(roles, public = public.map(tracing::field::display), %admin, "serving");
}

/// How long the staff's connections may take.
fn patience(config: &Config) -> Patience {
    let server = &config.server;
    Patience { handshake: server.header_timeout, head: server.idle_timeout, body: server.body_timeout }
}

/// The public listener's address, for a gateway.
fn bind(config: &Config) -> anyhow::Result<Option<Bound>> {
    if !config.server.roles.contains(&Role::Gateway) {
        return Ok(None);
    }
    let bound = hot::bind(&config.server);
    bound.map(Some).map_err(|error| taken(error, config.server.listen, "server.listen"))
}

/// The provider of payments, for those who let buyers pay or look after what they paid.
fn payments(
    config: &Config,
    bound: Option<&Bound>,
    acceptors: &Acceptors,
    shared: &Shared,
) -> anyhow::Result<Option<Arc<Payments>>> {
    if bound.is_none() && !config.server.roles.contains(&Role::Keeper) {
        return Ok(None);
    }
    let shown = acceptors.public.as_ref().map(|acceptor| Arc::clone(acceptor.shown()));
    let reached = bound.map(|bound| Reached { address: bound.address, shown });
    Ok(Payments::open(config, reached, &shared.backends.clock)?.map(Arc::new))
}

/// How far behind may be what stands behind the gate.
fn watch_limits(config: &Config) -> WatchLimits {
    WatchLimits {
        queue_lag_max: config.gate.queue_lag_max,
        outbox_age_max: config.gate.outbox_age_max,
        ledger_silence_max: config.gate.ledger_silence_max,
    }
}

fn watch(shared: &Shared, limits: WatchLimits) -> Watch {
    Watch::new(shared.backends.clone(), Arc::clone(&shared.catalog), Arc::clone(&shared.backpressure), limits)
}

/// The limits that the staff can turn: whoever serves no buyers keeps no tables for them.
fn gate_limits(shared: &Shared, config: &Config) -> Option<Arc<Limits>> {
    config.server.roles.contains(&Role::Gateway).then(|| Arc::clone(&shared.limits))
}

/// Whoever owns a rebuild must be heard of in this time; then another keeper takes it over.
const REBUILD_LEASE: Duration = Duration::from_secs(10);

/// The workers of this process' roles with how long each waits when it has nothing to do.
fn workers(
    shared: &Shared,
    observed: &Arc<Observed>,
    limits: WatchLimits,
    config: &Config,
    watchdog: Option<&Arc<Watchdog>>,
) -> Vec<(Box<dyn Worker>, Duration)> {
    let backends = || observed.for_workers(shared.backends.clone());
    let ms = Duration::from_millis;
    // The directory lock proves that no other process rebuilds: nothing is waited for.
    let lease = if config.uses_data_dir() { Duration::ZERO } else { REBUILD_LEASE };
    let watch = watch(shared, limits).telling(watchdog.cloned()).turning(gate_limits(shared, config));
    let mut workers: Vec<(Box<dyn Worker>, Duration)> = vec![(Box::new(watch), ms(100))];
    if let Some(watchdog) = watchdog {
        workers.push((watchdog.over(Box::new(Recorder::new(backends(), ms(250)))), ms(0)));
    }
    if config.server.roles.contains(&Role::Gateway) {
        // Sooner than a unit of theirs is on sale again.
        workers.push((Box::new(doorman(shared, backends(), config)), ms(200)));
    }
    if config.server.roles.contains(&Role::Keeper) {
        // Without a provider nobody can be asked, so nobody is waited for.
        let asked = config.payments.provider != ProviderName::None;
        let hold = if asked { config.payments.hold } else { Duration::ZERO };
        let late = match config.payments.late {
            LateName::Retake => LatePolicy::Retake,
            LateName::Refund => LatePolicy::Refund,
        };
        workers.extend::<[(Box<dyn Worker>, Duration); 8]>([
            (Box::new(Sweeper::new(backends())), ms(500)),
            (Box::new(Expirer::new(backends()).holding(hold)), ms(200)),
            (Box::new(Settler::new(backends(), late)), ms(250)),
            (Box::new(Releaser::new(backends())), ms(50)),
            (Box::new(Restocker::new(backends())), ms(500)),
            (Box::new(Rebuilder::new(backends(), lease)), ms(50)),
            // Each pass reads every order of one sale.
            (Box::new(Reconciler::new(backends())), ms(15_000)),
            (Box::new(SaleClock::new(backends(), config.sale.preheat_lead)), ms(100)),
        ]);
    }
    workers
}

/// Who lets users in from the waiting rooms, for a gateway.
fn usher(
    shared: &Shared,
    observed: &Arc<Observed>,
    room: &Arc<dyn Room>,
    config: &Config,
) -> Option<(Box<dyn Worker>, Duration)> {
    config.server.roles.contains(&Role::Gateway).then(|| {
        let tells = (Arc::clone(&shared.backpressure), Arc::clone(&shared.rooms));
        let (room, catalog) = (Arc::clone(room), Arc::clone(&shared.catalog));
        let backends = observed.for_workers(shared.backends.clone());
        let usher = Usher::new(backends, room, catalog, tells, config.gate.waiting_room.inside_percent);
        (Box::new(usher) as Box<dyn Worker>, USHER_PAUSE)
    })
}

fn doorman(shared: &Shared, backends: Backends, config: &Config) -> Doorman {
    let (catalog, barred) = (Arc::clone(&shared.catalog), Arc::clone(&shared.barred));
    Doorman::new(backends, catalog, barred, config.gate.strikes_max)
}

/// What a provider of payments needs done: the sandbox's webhooks, and for a keeper the provider's side.
fn payment_workers(
    payments: &Payments,
    shared: &Shared,
    observed: &Arc<Observed>,
    config: &Config,
) -> Vec<(Box<dyn Worker>, Duration)> {
    let mut workers: Vec<(Box<dyn Worker>, Duration)> = Vec::new();
    if let Some(sandbox) = payments.sandbox() {
        workers.push((Box::new(sandbox.sender()), SANDBOX_PAUSE));
    }
    if config.server.roles.contains(&Role::Keeper) {
        let backends = observed.for_workers(shared.backends.clone());
        workers.extend(payments.workers(&backends, config.payments.reread));
    }
    workers
}

/// What tells the shop of events, for a keeper: a relay for each endpoint.
async fn relays(
    shared: &Shared,
    observed: &Arc<Observed>,
    config: &Config,
) -> anyhow::Result<Vec<(Box<dyn Worker>, Duration)>> {
    if !config.server.roles.contains(&Role::Keeper) {
        return Ok(Vec::new());
    }
    let relays = outgoing::relays(config, &observed.for_workers(shared.backends.clone())).await?;
    Ok(relays.into_iter().map(|relay| (Box::new(relay) as Box<dyn Worker>, RELAY_PAUSE)).collect())
}

/// What keeps the identity provider's keys fresh, for a gateway that reads them from it.
fn key_set_reader(
    shared: &Shared,
    config: &Config,
    readings: &Arc<KeySetReadings>,
) -> anyhow::Result<Option<(Box<dyn Worker>, Duration)>> {
    if !config.server.roles.contains(&Role::Gateway) {
        return Ok(None);
    }
    let Some(set) = KeySet::of(config)? else { return Ok(None) };
    let (tokens, clock) = (Arc::clone(&shared.tokens), Arc::clone(&shared.backends.clock));
    let reader = KeySetReader::new(set, tokens, clock, config.gate.jwt.jwks_refresh, Arc::clone(readings));
    Ok(Some((Box::new(reader), KEYS_PAUSE)))
}

/// Who judges captchas, for a gateway whose captchas are another's.
fn siteverify(
    config: &Config,
    verdicts: &Arc<Verdicts>,
    site: &Site,
) -> anyhow::Result<Option<Arc<Siteverify>>> {
    if !config.server.roles.contains(&Role::Gateway) {
        return Ok(None);
    }
    let Some(siteverify) = Siteverify::of(config, verdicts)? else { return Ok(None) };
    site.let_captcha_in(siteverify.page_sources());
    Ok(Some(Arc::new(siteverify)))
}

/// What takes new certificates, where a listener has TLS.
fn renewer(acceptors: &Acceptors, shared: &Shared) -> Option<(Box<dyn Worker>, Duration)> {
    let renewer = Renewer::of(&acceptors.shown(), &shared.backends.clock)?;
    Some((Box::new(renewer), LOOK_PAUSE))
}

fn taken(error: std::io::Error, address: SocketAddr, key: &str) -> anyhow::Error {
    let what = match error.kind() {
        std::io::ErrorKind::AddrInUse => format!(
            "{address} is taken by another process: stop that one, or choose another address with {key} \
             (environment DOORBUSTER__{})",
            key.replace('.', "__").to_uppercase()
        ),
        std::io::ErrorKind::PermissionDenied => {
            format!("{address} may not be used by this user: choose a port above 1023 with {key}")
        }
        _ => format!("{address} ({key}) cannot be listened on"),
    };
    anyhow::Error::new(error).context(what)
}
