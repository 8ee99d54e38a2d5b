//! How often an address or a user may come. Counters are cells of tables of a fixed size that all cores
//! share without a lock: whoever comes under many names shares cells with others, drives nobody out, and
//! costs no memory.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipnet::IpNet;

use super::address::{Caller, client_of};
use crate::order::UserId;
use crate::switches::{SwitchName, Switches};

/// Cells in each of a table's two rows; eight bytes each.
const CELLS: usize = 1 << 17;

/// How many /64 of one /48 may be as busy as each may be alone.
const NETWORKS: u32 = 16;

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// For long; 0 is no limit.
    pub per_second: u32,
    /// At once.
    pub burst: u32,
}

impl Rate {
    /// No limit.
    pub const NONE: Self = Self { per_second: 0, burst: 0 };

    /// Nanoseconds that one request costs.
    fn cost(self) -> u64 {
        1_000_000_000 / u64::from(self.per_second.max(1))
    }

    /// Nanoseconds that may be owed.
    fn credit(self) -> u64 {
        self.cost().saturating_mul(u64::from(self.burst.max(1)) - 1)
    }

    /// Seconds in which a whole burst is allowed anew.
    pub fn window_s(self) -> u32 {
        self.burst.div_ceil(self.per_second.max(1)).max(1)
    }
}

/// How often what may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Clicks from one address: wide, since many people share one.
    pub address: Rate,
    /// Clicks of one user.
    pub user: Rate,
    /// What else one user looks at and, counted apart, changes.
    pub others: Rate,
    /// Tokens from one address that are checked by a public key and are not good. Beyond, none of its tokens
    /// is checked that was not seen to be good before.
    pub bad_tokens: Rate,
}

impl Rates {
    /// No limits.
    pub const NONE: Self =
        Self { address: Rate::NONE, user: Rate::NONE, others: Rate::NONE, bad_tokens: Rate::NONE };

    /// The same with what the staff has turned.
    #[must_use]
    fn under(self, switches: &Switches) -> Self {
        let turned = |configured: Rate, rate, burst| Rate {
            per_second: switches.number(rate).unwrap_or(configured.per_second),
            burst: switches.number(burst).unwrap_or(configured.burst),
        };
        Self {
            address: turned(self.address, SwitchName::AddressRate, SwitchName::AddressBurst),
            user: turned(self.user, SwitchName::UserRate, SwitchName::UserBurst),
            others: turned(self.others, SwitchName::OtherRate, SwitchName::OtherBurst),
            bad_tokens: turned(self.bad_tokens, SwitchName::BadTokenRate, SwitchName::BadTokenBurst),
        }
    }
}

/// Which limits hold, for whom.
#[derive(Clone, Debug)]
pub struct LimitOptions {
    /// As configured; the staff may turn them.
    pub rates: Rates,
    /// Addresses without a limit of their own.
    pub exempt: Vec<IpNet>,
    /// Proxies that are believed when they say whom they speak for.
    pub trusted_proxies: Vec<IpNet>,
}

/// A limit that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOften {
    /// Its name.
    pub policy: &'static str,
    /// What it allows.
    pub rate: Rate,
    /// How long until the next request is allowed.
    pub wait: Duration,
}

/// The limits of one process; its cores share them.
pub struct Limits {
    clicks: ByAddress,
    /// Tokens that were not good.
    bad_tokens: ByAddress,
    /// The same of tokens that name a holder while an item is flagged as sold out. Apart, so that what others
    /// hear does not tell whose name a forged token had.
    bad_holders: ByAddress,
    user: Table,
    reads: Table,
    changes: Table,
    configured: Rates,
    exempt: Vec<IpNet>,
    trusted_proxies: Vec<IpNet>,
}

/// Who is counted at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    One(IpAddr),
    /// The first 64 bits: what one connection to the internet usually has.
    Subnet(u64),
    /// The first 48 bits: what one customer may have.
    Network(u64),
}

impl Place {
    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::One(address),
            IpAddr::V6(address) => Self::Subnet(first_half(address)),
        }
    }

    fn around(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(Self::Network(first_half(address) >> 16)),
        }
    }
}

fn first_half(address: Ipv6Addr) -> u64 {
    u64::try_from(address.to_bits() >> 64).unwrap_or(u64::MAX)
}

impl Limits {
    /// Limits as `options` say.
    pub fn new(options: LimitOptions) -> Self {
        let LimitOptions { rates, exempt, trusted_proxies } = options;
        let limits = Self {
            clicks: ByAddress::new("address", "network"),
            bad_tokens: ByAddress::new("bad_token", "bad_token_network"),
            bad_holders: ByAddress::new("bad_token", "bad_token_network"),
            user: Table::new("user"),
            reads: Table::new("other"),
            changes: Table::new("other"),
            configured: rates,
            exempt,
            trusted_proxies,
        };
        limits.hold(rates);
        limits
    }

    /// No limits, and no proxies.
    pub fn none() -> Self {
        Self::new(LimitOptions { rates: Rates::NONE, exempt: Vec::new(), trusted_proxies: Vec::new() })
    }

    /// From now on the limits are as configured or as the staff has turned them. What came before counts: behind
    /// a smaller burst, who has come often waits until that is paid for.
    pub fn hold_to(&self, switches: &Switches) {
        self.hold(self.configured.under(switches));
    }

    fn hold(&self, rates: Rates) {
        self.clicks.hold(rates.address);
        self.bad_tokens.hold(rates.bad_tokens);
        self.bad_holders.hold(rates.bad_tokens);
        self.user.hold(rates.user);
        self.reads.hold(rates.others);
        self.changes.hold(rates.others);
    }

    /// Whether there are proxies that may say whom they speak for.
    pub fn has_proxies(&self) -> bool {
        !self.trusted_proxies.is_empty()
    }

    /// Whether this peer is believed when it says whom it speaks for.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|net| net.contains(&peer.to_canonical()))
    }

    /// The client's address.
    pub(super) fn address(&self, caller: Caller<'_>) -> IpAddr {
        client_of(caller, &self.trusted_proxies)
    }

    /// A client's address, if it has limits. A proxy that does not say whom it speaks for has them
    /// whatever is exempt: it stands for strangers.
    pub(super) fn client(&self, client: IpAddr) -> Option<IpAddr> {
        let is_in = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&client));
        let exempt = is_in(&self.exempt) && !is_in(&self.trusted_proxies);
        (!exempt).then_some(client)
    }

    /// Whether a token from this address is checked.
    pub(super) fn may_check(
        &self,
        client: Option<IpAddr>,
        flagged: bool,
        now: Duration,
    ) -> Result<(), TooOften> {
        let table = if flagged { &self.bad_holders } else { &self.bad_tokens };
        client.map_or(Ok(()), |client| table.look(client, now))
    }

    /// A token from this address was checked and is not good.
    pub(super) fn note_bad_token(&self, client: Option<IpAddr>, flagged: bool, now: Duration) {
        let table = if flagged { &self.bad_holders } else { &self.bad_tokens };
        if let Some(client) = client {
            table.take(client, now);
        }
    }

    /// Counts a click, against all limits or, where one is used up, none.
    pub(super) fn click(&self, client: Option<IpAddr>, user: &UserId, now: Duration) -> Result<(), TooOften> {
        self.user.look(user.as_bytes(), now)?;
        self.stranger(client, now)?;
        self.user.take(user.as_bytes(), now);
        Ok(())
    }

    /// Counts a click of somebody who is not known.
    pub(super) fn stranger(&self, client: Option<IpAddr>, now: Duration) -> Result<(), TooOften> {
        let Some(client) = client else { return Ok(()) };
        self.clicks.look(client, now)?;
        self.clicks.take(client, now);
        Ok(())
    }

    /// Counts another request of a user: whoever looks too often can still pay and cancel.
    pub(super) fn other(&self, user: &UserId, changes: bool, now: Duration) -> Result<(), TooOften> {
        let table = if changes { &self.changes } else { &self.reads };
        table.look(user.as_bytes(), now)?;
        table.take(user.as_bytes(), now);
        Ok(())
    }
}

/// Counters of one limit by address, and by what is around an address.
struct ByAddress {
    one: Table,
    network: Table,
}

impl ByAddress {
    fn new(policy: &'static str, network: &'static str) -> Self {
        Self { one: Table::new(policy), network: Table::new(network) }
    }

    fn hold(&self, rate: Rate) {
        self.one.hold(rate);
        self.network.hold(Rate {
            per_second: rate.per_second.saturating_mul(NETWORKS),
            burst: rate.burst.saturating_mul(NETWORKS),
        });
    }

    /// The network first: a busy one does not even fill the cells of its addresses.
    fn look(&self, client: IpAddr, now: Duration) -> Result<(), TooOften> {
        if let Some(network) = Place::around(client) {
            self.network.look(&network, now)?;
        }
        self.one.look(&Place::of(client), now)
    }

    fn take(&self, client: IpAddr, now: Duration) {
        if let Some(network) = Place::around(client) {
            self.network.take(&network, now);
        }
        self.one.take(&Place::of(client), now);
    }
}

/// Counters of one limit. A key has a cell in each row and is as busy as the quieter of them says, so that it
/// is taken for another one only where it meets a busy one in both. A cell holds the moment until which what
/// came is paid for (the generic cell rate algorithm). Two cores that count one key at the same moment may
/// let one more through.
struct Table {
    policy: &'static str,
    /// Rate and burst, which the staff may turn at any time.
    rate: AtomicU64,
    /// Made when there is first a limit.
    rows: OnceLock<[Box<[AtomicU64]>; 2]>,
    hashes: RandomState,
}

impl Table {
    fn new(policy: &'static str) -> Self {
        Self { policy, rate: AtomicU64::new(0), rows: OnceLock::new(), hashes: RandomState::new() }
    }

    fn hold(&self, rate: Rate) {
        if rate.per_second > 0 {
            let row = || (0..CELLS).map(|_| AtomicU64::new(0)).collect();
            self.rows.get_or_init(|| [row(), row()]);
        }
        let both = u64::from(rate.per_second) << 32 | u64::from(rate.burst);
        self.rate.store(both, Ordering::Release);
    }

    /// The cells and the rate, while there is a limit.
    fn limit(&self) -> Option<(&[Box<[AtomicU64]>; 2], Rate)> {
        let both = self.rate.load(Ordering::Acquire);
        let half = |half: u64| u32::try_from(half & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let rate = Rate { per_second: half(both >> 32), burst: half(both) };
        let rows = self.rows.get().filter(|_| rate.per_second > 0)?;
        Some((rows, rate))
    }

    /// Its two cells. Nobody who does not know the process' random keys can aim at another's.
    fn cells<'a>(&self, rows: &'a [Box<[AtomicU64]>; 2], key: &(impl Hash + ?Sized)) -> [&'a AtomicU64; 2] {
        let hash = self.hashes.hash_one(key);
        let place = |hash: u64| usize::try_from(hash % CELLS as u64).unwrap_or_default();
        [&rows[0][place(hash)], &rows[1][place(hash >> 32)]]
    }

    /// Whether one more is allowed.
    fn look(&self, key: &(impl Hash + ?Sized), now: Duration) -> Result<(), TooOften> {
        let Some((rows, rate)) = self.limit() else { return Ok(()) };
        let cells = self.cells(rows, key);
        let paid_until = cells.map(|cell| cell.load(Ordering::Relaxed)).into_iter().min().unwrap_or(0);
        let owed = paid_until.saturating_sub(nanoseconds(now));
        let credit = rate.credit();
        if owed <= credit {
            return Ok(());
        }
        Err(TooOften { policy: self.policy, rate, wait: Duration::from_nanos(owed - credit) })
    }

    /// Counts one.
    fn take(&self, key: &(impl Hash + ?Sized), now: Duration) {
        let Some((rows, rate)) = self.limit() else { return };
        for cell in self.cells(rows, key) {
            let later = |paid_until: u64| Some(paid_until.max(nanoseconds(now)).saturating_add(rate.cost()));
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::conformance::sample;
    use crate::switches::{SwitchChange, TurnedSwitch};

    fn limits(rate: Rate) -> Limits {
        let options = LimitOptions {
            rates: Rates { address: rate, bad_tokens: rate, ..Rates::NONE },
            exempt: vec!["127.0.0.0/8".parse().unwrap()],
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()],
        };
        Limits::new(options)
    }

    const RATE: Rate = Rate { per_second: 2, burst: 5 };

    /// How many of so many clicks at one moment come through.
    fn through(limits: &Limits, from: &str, clicks: u32, at_ms: u64) -> usize {
        let client = limits.client(limits.address(Caller {
            peer: from.parse().unwrap(),
            forwarded: None,
            region: None,
        }));
        let click = |_| limits.click(client, &sample::user(1), Duration::from_millis(at_ms)).is_ok();
        (0..clicks).map(click).filter(|it| *it).count()
    }

    #[test]
    fn a_burst_comes_through_and_then_the_rate() {
        let limits = limits(RATE);
        assert_eq!(through(&limits, "203.0.113.9", 100, 0), 5);
        assert_eq!(through(&limits, "203.0.113.9", 100, 499), 0);
        assert_eq!(through(&limits, "203.0.113.9", 100, 500), 1);
        assert_eq!(
            through(&limits, "203.0.113.9", 100, 60_000),
            5,
            "what was not used is kept for one burst"
        );
        assert_eq!(through(&limits, "127.0.0.1", 100, 0), 100, "who is exempt");
        let client = Some("203.0.113.9".parse().unwrap());
        let told = limits.click(client, &sample::user(1), Duration::from_secs(60)).unwrap_err();
        assert_eq!((told.policy, told.rate, told.wait), ("address", RATE, Duration::from_millis(500)));
    }

    #[test]
    fn a_refused_request_is_not_counted_and_a_clock_that_stands_forgives_nothing() {
        let limits = limits(RATE);
        through(&limits, "203.0.113.9", 10_000, 1_000);
        assert_eq!(through(&limits, "203.0.113.9", 1, 1_000), 0);
        assert_eq!(through(&limits, "203.0.113.9", 100, 0), 0, "nor one that went back");
        assert_eq!(through(&limits, "203.0.113.9", 1, 1_500), 1);
    }

    #[test]
    fn a_limit_that_the_staff_turns_holds_at_once() {
        let limits = limits(RATE);
        let turn = |name: &str, value: &str| {
            let (name, value) = (name.to_owned(), Some(value.to_owned()));
            let (sale, reason, by) = (None, String::new(), String::new());
            let change = SwitchChange { name, sale, value, reason, by };
            let turned = TurnedSwitch { id: 1, change, at: Timestamp::from_ms(0) };
            limits.hold_to(&Switches::new(&[turned]));
        };
        assert_eq!(through(&limits, "203.0.113.9", 100, 0), 5);
        turn("address_rate", "0");
        assert_eq!(through(&limits, "203.0.113.9", 100, 0), 100, "no limit");
        turn("address_burst", "50");
        assert_eq!(through(&limits, "203.0.113.9", 100, 0), 45, "five of fifty were used");
        limits.hold_to(&Switches::default());
        assert_eq!(through(&limits, "203.0.113.8", 100, 0), 5, "as configured again");
        assert_eq!(through(&limits, "203.0.113.9", 100, 60_000), 5);
        turn("user_rate", "1");
        assert_eq!(through(&limits, "203.0.113.7", 100, 90_000), 1, "a limit that there was not before");
    }

    #[test]
    fn one_address_has_one_counter_in_all_its_forms() {
        let limits = limits(RATE);
        assert_eq!(through(&limits, "203.0.113.9", 3, 0) + through(&limits, "::ffff:203.0.113.9", 3, 0), 5);
        let subnet: usize = (0..=u16::MAX).map(|n| through(&limits, &format!("2001:db8::{n:x}"), 1, 0)).sum();
        assert_eq!(subnet, 5, "65,536 addresses of one /64");
        let network: usize =
            (1..=u16::MAX).map(|n| through(&limits, &format!("2001:db8:7:{n:x}::1"), 1, 0)).sum();
        assert_eq!(network, 80, "65,535 subnets of one /48");
    }

    #[test]
    fn a_million_others_drive_nobody_out_and_hurt_nobody() {
        let limits = limits(Rate { per_second: 2, burst: 40 });
        assert_eq!(through(&limits, "203.0.113.9", 100, 0), 40);
        let others =
            |n: u32| through(&limits, &std::net::Ipv4Addr::from_bits(0x1400_0000 + n).to_string(), 1, 0);
        let refused = (0..1_000_000).filter(|n| others(*n) == 0).count();
        assert_eq!(refused, 0);
        assert_eq!(through(&limits, "203.0.113.9", 100, 0), 0, "the counter of the one who was busy");
    }

    #[test]
    fn bad_tokens_close_the_door_for_their_address_alone() {
        let limits = limits(RATE);
        let address = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        let (evil, good) = (address("203.0.113.9"), address("203.0.113.10"));
        let (start, later) = (Duration::ZERO, Duration::from_millis(500));
        for _ in 0..5 {
            assert!(limits.may_check(evil, false, start).is_ok());
            limits.note_bad_token(evil, false, start);
        }
        assert_eq!(limits.may_check(evil, false, start).unwrap_err().policy, "bad_token");
        assert!(limits.may_check(evil, true, start).is_ok(), "a count of its own");
        assert!(limits.may_check(good, false, start).is_ok() && limits.may_check(None, false, start).is_ok());
        assert!(limits.may_check(evil, false, later).is_ok());
        // 65,535 subnets of one /48.
        let subnets = (1..=u16::MAX).map(|n| address(&format!("2001:db8:7:{n:x}::1")));
        let checked = subnets.filter(|it| {
            let may = limits.may_check(*it, false, start).is_ok();
            if may {
                limits.note_bad_token(*it, false, start);
            }
            may
        });
        assert_eq!(checked.count(), 80);
    }

    #[test]
    fn a_proxy_that_does_not_say_for_whom_it_speaks_is_not_exempt() {
        let client = |trusted: &str, forwarded: Option<&str>| {
            let options = LimitOptions {
                rates: Rates { address: RATE, bad_tokens: RATE, ..Rates::NONE },
                exempt: vec!["127.0.0.0/8".parse().unwrap()],
                trusted_proxies: vec![trusted.parse().unwrap()],
            };
            let peer = std::net::Ipv4Addr::LOCALHOST.into();
            let limits = Limits::new(options);
            let forwarded = forwarded.map(str::as_bytes);
            limits.client(limits.address(Caller { peer, forwarded, region: None }))
        };
        assert_eq!(client("10.0.0.0/8", None), None, "somebody on this machine");
        for nothing in [None, Some(""), Some("unknown")] {
            assert!(client("127.0.0.1/32", nothing).is_some(), "{nothing:?}");
        }
        assert!(client("127.0.0.1/32", Some("198.51.100.1")).is_some());
        assert_eq!(client("127.0.0.1/32", Some("127.0.0.2")), None);
    }

    #[test]
    fn what_one_limit_refuses_is_charged_to_no_other() {
        let rate = |burst| Rate { per_second: 1, burst };
        let options = LimitOptions {
            rates: Rates { address: rate(3), user: rate(5), ..Rates::NONE },
            exempt: Vec::new(),
            trusted_proxies: Vec::new(),
        };
        let limits = Limits::new(options);
        let office = Some("203.0.113.9".parse().unwrap());
        for click in 0..100 {
            assert_eq!(limits.click(office, &sample::user(1), Duration::ZERO).is_ok(), click < 3);
        }
        let elsewhere = Some("203.0.113.10".parse().unwrap());
        assert!(
            limits.click(elsewhere, &sample::user(1), Duration::ZERO).is_ok(),
            "two are left of his five"
        );
    }

    #[test]
    fn many_threads_let_through_what_one_would_and_a_few() {
        let limits = limits(Rate { per_second: 1, burst: 1_000 });
        let through = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| through(&limits, "203.0.113.9", 10_000, 0)));
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert!((1_000..1_000 + 100).contains(&through), "{through}");
    }
}
