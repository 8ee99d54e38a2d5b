//! What a proxy and its connections share: the toxics in force, and the counts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::sync::watch;

use super::dialect::{Protocol, Request};
use super::kafka;
use super::toxic::{Effect, Moment, Stream, Toxic};

/// What a proxy has seen and done since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Requests that were read; none of `Protocol::Bytes`.
    pub requests: u64,
    /// Requests that a toxic was meant for, once for each such toxic.
    pub matched: u64,
    /// Effects that have happened, of all toxics together.
    pub fired: u64,
    /// Connections that were passed on unread from some point on, since their bytes were not understood.
    pub unparsed: u64,
    /// Connections that were ended since a frame was too large.
    pub too_large: u64,
}

/// A toxic that was added to a proxy.
#[derive(Debug)]
pub struct Installed {
    pub(super) toxic: Toxic,
    /// Toxics are numbered as they are added.
    pub(super) id: u64,
    /// The first connection that came after it.
    next: u64,
    left: AtomicU64,
    fired: watch::Sender<u64>,
}

impl Installed {
    /// How often its effect has happened.
    pub fn fired(&self) -> u64 {
        *self.fired.borrow()
    }

    /// Waits until its effect has happened `times` times. It may never: give it a deadline.
    pub async fn until_fired(&self, times: u64) {
        let mut fired = self.fired.subscribe();
        fired.wait_for(|&it| it >= times).await.expect("the sender is in self");
    }

    pub(super) fn effect(&self) -> Effect {
        self.toxic.effect
    }

    pub(super) fn is_for(&self, connection: u64) -> bool {
        self.toxic.is_for(connection, self.next)
    }

    /// Whether its count allows one more.
    pub(super) fn take(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Whether it begins with a connection, or with the toxic, rather than with a request.
    pub(super) fn is_for_whole_connections(&self) -> bool {
        match self.effect() {
            Effect::Cut(Moment::Now | Moment::Accepted, _) => true,
            Effect::HalfOpen | Effect::OneWay(_) | Effect::Clog(_) => self.toxic.matching.is_none(),
            _ => false,
        }
    }

    /// Whether it is for this request: then one is taken off its count.
    fn takes(&self, connection: u64, request: &Request) -> bool {
        let per_request = match self.effect() {
            Effect::Refuse => false,
            Effect::Duplicate => request.repeatable,
            Effect::SwallowReply(_) | Effect::Delay(Stream::Downstream, _) => request.has_reply(),
            _ => !self.is_for_whole_connections(),
        };
        let meant = self.toxic.matching.as_ref().is_none_or(|it| it.matches(request));
        per_request && meant && self.is_for(connection) && self.take()
    }
}

/// What a proxy and its connections share.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) protocol: Protocol,
    /// The proxy's own address.
    pub(super) address: SocketAddr,
    pub(super) upstream: watch::Sender<Option<SocketAddr>>,
    /// Brokers that have proxies of their own, each with its proxy's address.
    pub(super) brokers: watch::Sender<Vec<(SocketAddr, SocketAddr)>>,
    pub(super) toxics: watch::Sender<Vec<Arc<Installed>>>,
    pub(super) counts: watch::Sender<Counts>,
    ids: AtomicU64,
}

impl Board {
    pub(super) fn new(protocol: Protocol, address: SocketAddr) -> Self {
        Self {
            protocol,
            address,
            upstream: watch::Sender::new(None),
            brokers: watch::Sender::default(),
            toxics: watch::Sender::default(),
            counts: watch::Sender::default(),
            ids: AtomicU64::new(1),
        }
    }

    pub(super) fn install(&self, toxic: Toxic) -> Arc<Installed> {
        let next = self.counts.borrow().connections + 1;
        let left = AtomicU64::new(toxic.first.unwrap_or(u64::MAX));
        let mut installed = Installed { toxic, id: 0, next, left, fired: watch::Sender::new(0) };
        // Numbered under the lock of the list, which so is in the order of the numbers.
        let mut added = None;
        self.toxics.send_modify(|toxics| {
            installed.id = self.ids.fetch_add(1, Ordering::Relaxed);
            let installed = Arc::new(installed);
            toxics.push(installed.clone());
            added = Some(installed);
        });
        added.expect("send_modify runs its closure")
    }

    pub(super) fn is_in_force(&self, toxic: &Installed) -> bool {
        self.toxics.borrow().iter().any(|it| it.id == toxic.id)
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }

    pub(super) fn fire(&self, toxic: &Installed) {
        toxic.fired.send_modify(|fired| *fired += 1);
        self.count(|counts| counts.fired += 1);
    }

    /// The same reply with the proxies' addresses in place of the brokers'.
    pub(super) fn readdressed(&self, reply: Bytes) -> Bytes {
        let own = self.upstream.borrow().map(|broker| (broker, self.address));
        let brokers = self.brokers.borrow();
        let all = own.into_iter().chain(brokers.iter().copied());
        all.fold(reply, |reply, (broker, proxy)| kafka::readdress(reply, broker, proxy))
    }

    /// The toxics that are for this request.
    pub(super) fn meant_for(&self, connection: u64, request: &Request) -> Vec<Arc<Installed>> {
        let toxics = self.toxics.borrow().clone();
        let meant: Vec<_> = toxics.into_iter().filter(|it| it.takes(connection, request)).collect();
        self.count(|counts| {
            counts.requests += 1;
            counts.matched += meant.len() as u64;
        });
        meant
    }
}
