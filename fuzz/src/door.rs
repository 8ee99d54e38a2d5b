//! A gate with one sale, which is open and behind a waiting room, and two secrets for what is sealed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use doorbuster_engine::clock::{ManualClock, Timestamp};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::gate::{
    CaptchaRules, Gate, GateParts, JwtKey, JwtKeys, JwtRules, JwtVerifier, LimitOptions, Limits, Rates,
    RoomState, Rooms, SaleTokenRules, SaleTokens,
};
use doorbuster_engine::order::{ItemId, SaleId, Units};
use doorbuster_engine::sale::{Catalog, SaleState, Terms};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::token::signed;

pub(crate) const NOW_MS: i64 = 1_800_000_000_000;
pub(crate) const SALE: SaleId = SaleId(1);
pub(crate) const ITEM: ItemId = ItemId(1);
/// The first seals; the second still counts.
pub(crate) const SECRETS: [&[u8]; 2] =
    [b"the first secret of the fuzzer, 0123456789", b"the older secret of the fuzzer, 0123456789"];
pub(crate) const GRACE_MS: i64 = 60_000;
/// A proxy that is believed.
pub(crate) const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// The networks of such proxies: 10.0.0.0/8 and fd00::/8.
pub(crate) const PROXIES: [IpNet; 2] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8)),
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0), 8)),
];

/// Selling needs a sale token whose user has passed the captcha and was let in.
pub(crate) fn gate() -> Gate {
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(NOW_MS)));
    let terms = Terms {
        state: SaleState::Open,
        opens_at: Timestamp::from_ms(NOW_MS - 1_000),
        closes_at: Timestamp::from_ms(NOW_MS + 3_600_000),
        limit: Units(1),
    };
    let switches = sample::switches([("room", "on"), ("token_required", "on"), ("captcha_required", "on")]);
    let catalog = Catalog::new(vec![sample::known_sale(terms)]).with_switches(Arc::new(switches));
    let rooms = Rooms::default();
    rooms.replace(BTreeMap::from([(SALE, RoomState { is_needed: true, ..RoomState::default() })]));
    let limits = LimitOptions { rates: Rates::NONE, exempt: Vec::new(), trusted_proxies: PROXIES.to_vec() };
    Gate::new(GateParts {
        catalog: Arc::new(ArcSwap::from_pointee(catalog)),
        tokens: Arc::new(access_tokens()),
        sale_tokens: Arc::new(SaleTokens::new(SECRETS, rules()).expect("the secrets are long")),
        limits: Arc::new(Limits::new(limits)),
        barred: Arc::default(),
        rooms: Arc::new(rooms),
        clock,
    })
}

fn rules() -> SaleTokenRules {
    SaleTokenRules {
        issue_before: Duration::from_secs(600),
        issue_spread: Duration::from_secs(300),
        lifetime: Duration::from_secs(3_600),
        place_grace: Duration::from_millis(GRACE_MS.unsigned_abs()),
        captcha: CaptchaRules { max_number: 100, lifetime: Duration::from_secs(300) },
    }
}

fn access_tokens() -> JwtVerifier {
    let rules = JwtRules {
        issuer: "shop".into(),
        audience: "doorbuster".into(),
        leeway: Duration::from_secs(5),
        lifetime_max: Duration::from_secs(86_400),
    };
    let key = JwtKey::hs256(crate::token::SECRET).expect("the secret is long and varied");
    JwtVerifier::new(JwtKeys::new(vec![key]).expect("one key goes with itself"), rules)
}

/// A good access token of a user whose id needs no escaping.
pub(crate) fn access_token(user: &str) -> Vec<u8> {
    let now = NOW_MS / 1_000;
    let claims =
        format!(r#"{{"sub":"{user}","iss":"shop","aud":"doorbuster","iat":{now},"exp":{}}}"#, now + 600);
    signed(claims.as_bytes())
}
