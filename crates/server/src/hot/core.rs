//! One core: its runtime, its accept loop, what is in flight on it.

use std::collections::HashMap;
use std::net::{IpAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use doorbuster_engine::engine::{Detach, Engine};
use doorbuster_engine::room::Desk;
use doorbuster_engine::stock::{Batcher, BatcherLimits};
use hyper::header::HeaderName;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::connection::Serving;
use super::deadline::{Activity, LAST_LOOK, Open, pace};
use super::encrypted::Encrypted;
use super::{CoreContext, Limits};
use crate::accepting::accepted;
use crate::api;
use crate::metrics::CoreFigures;
use crate::request_id::RequestIds;

/// What a core's connections share.
pub(super) struct Core {
    pub(super) engine: Arc<Engine>,
    pub(super) router: Router,
    pub(super) request_ids: RequestIds,
    pub(super) limits: Limits,
    pub(super) figures: Arc<CoreFigures>,
    pub(super) region_header: Option<HeaderName>,
    places: Arc<Places>,
    open: Open,
}

/// Serves this core's socket until told to stop; then drains.
pub(super) fn run(socket: StdListener, context: CoreContext) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "a core's runtime cannot be started: this core serves nobody");
            return;
        }
    };
    runtime.block_on(serve(socket, context));
}

#[expect(
    clippy::disallowed_methods,
    reason = "a core starts its batcher, its desk, its looks, its admitted orders and its connections, each bounded"
)]
async fn serve(socket: StdListener, context: CoreContext) {
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a core's socket cannot be used: this core serves nobody");
            return;
        }
    };
    let in_flight = watch::Sender::new(0_usize);
    let (batcher, work) = Batcher::new(Arc::clone(&context.shared.backends.stock), BatcherLimits::default());
    tokio::spawn(work.counting(Arc::clone(&context.figures.reserve_repeats)).run());
    let engine = Arc::new(Engine::new(context.shared.clone(), batcher, detach(in_flight.clone())));
    let (desk, work) = Desk::new(Arc::clone(&context.room));
    tokio::spawn(work.run());
    let router = api::router(Arc::clone(&engine), desk, &context);
    let core = Arc::new(Core {
        engine,
        router,
        request_ids: RequestIds::new(),
        limits: context.limits,
        figures: Arc::clone(&context.figures),
        region_header: context.region_header.clone(),
        places: Arc::clone(&context.places),
        open: Open::default(),
    });
    tokio::spawn(keep_deadlines(Arc::clone(&core)));
    let mut stop = context.stop.clone();
    while let Some((stream, peer)) = accepted(&listener, &mut stop).await {
        match Place::take(&core, peer.ip()) {
            Some(place) => {
                // Answers are small and whole: waiting to fill a packet would only delay them.
                let _ = stream.set_nodelay(true);
                match &context.tls {
                    None => tokio::spawn(Serving::new(stream, place)),
                    Some(acceptor) => tokio::spawn(Encrypted::new(stream, acceptor, place)),
                };
            }
            None => {
                core.figures.turned_away.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    drop(listener);
    drain(&core, &in_flight).await;
}

/// Looks at the open connections as long as the core runs.
async fn keep_deadlines(core: Arc<Core>) {
    let mut looks = tokio::time::interval(pace(&core.limits));
    loop {
        looks.tick().await;
        core.open.look(&core.limits);
    }
}

/// Starts admitted orders outside their request, and counts them for the drain.
#[expect(clippy::disallowed_methods, reason = "bounded by the batcher's queue: more are refused as BUSY")]
fn detach(in_flight: watch::Sender<usize>) -> Detach {
    Arc::new(move |work| {
        in_flight.send_modify(|count| *count += 1);
        let in_flight = in_flight.clone();
        tokio::spawn(async move {
            work.await;
            in_flight.send_modify(|count| *count -= 1);
        });
    })
}

/// Waits for open connections and admitted orders, as long as the limits allow.
async fn drain(core: &Core, in_flight: &watch::Sender<usize>) {
    core.open.finish();
    let mut looks = tokio::time::interval(LAST_LOOK);
    let drained = async {
        while core.figures.connections.load(Ordering::Relaxed) > 0 || *in_flight.borrow() > 0 {
            looks.tick().await;
            core.open.end_quiet();
        }
    };
    if tokio::time::timeout(core.limits.drain, drained).await.is_err() {
        tracing::warn!(
            connections = core.figures.connections.load(Ordering::Relaxed),
            "closing connections that did not end in time"
        );
    }
}

/// The open connections of all cores. Its lock is taken when a connection comes and goes, never
/// for a request.
#[derive(Debug, Default)]
pub(crate) struct Places {
    open: AtomicUsize,
    by_address: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection's place; given back when dropped.
pub(super) struct Place {
    core: Arc<Core>,
    address: IpAddr,
    key: usize,
    activity: Arc<Activity>,
}

impl Place {
    /// `None` when there are too many connections, or too many from this address: the new one is
    /// closed.
    fn take(core: &Arc<Core>, address: IpAddr) -> Option<Self> {
        let places = &core.places;
        if places.open.load(Ordering::Relaxed) >= core.limits.connections {
            return None;
        }
        let mut by_address = places.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_address.entry(address).or_default();
        if *count >= core.limits.connections_per_address {
            return None;
        }
        *count += 1;
        places.open.fetch_add(1, Ordering::Relaxed);
        core.figures.connections.fetch_add(1, Ordering::Relaxed);
        let (key, activity) = core.open.enter();
        Some(Self { core: Arc::clone(core), address, key, activity })
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(super) fn peer(&self) -> IpAddr {
        self.address
    }

    pub(super) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.core.open.leave(self.key);
        let places = &self.core.places;
        self.core.figures.connections.fetch_sub(1, Ordering::Relaxed);
        places.open.fetch_sub(1, Ordering::Relaxed);
        let mut by_address = places.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}
