//! A gate where everything is on, and users with a sale token that it lets through.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use doorbuster_engine::block::Blocked;
use doorbuster_engine::clock::{Clock, SystemClock};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::gate::{
    Attempt, Barred, BlockList, Caller, CaptchaRules, Claim, Gate, GateParts, JwtKey, JwtKeys, JwtRules,
    JwtVerifier, LimitOptions, Limits, Rate, Rates, RoomState, Rooms, SaleToken, SaleTokenRules, SaleTokens,
    Wish,
};
use doorbuster_engine::member::{Level, Profile, Region};
use doorbuster_engine::order::{ItemId, UserId};
use doorbuster_engine::sale::{Catalog, Terms};

use crate::BUCKET;

const SECRET: &[u8] = b"a secret of the benchmark, 0123456789";
const LIFETIME: Duration = Duration::from_secs(3_600);
/// Networks that are blocked, as many as a list of datacentres has.
const BLOCKS: u32 = 10_000;
/// The defaults of the configuration.
const RATES: Rates = Rates {
    address: Rate { per_second: 100, burst: 2_000 },
    user: Rate { per_second: 5, burst: 50 },
    others: Rate { per_second: 20, burst: 200 },
    bad_tokens: Rate { per_second: 1, burst: 20 },
};

/// The gate of one core.
pub(crate) fn gate(terms: Terms) -> Result<Gate, Box<dyn Error>> {
    let switches = sample::switches([
        ("token_required", "on"),
        ("captcha_required", "on"),
        ("room", "on"),
        ("regions", "DE,FR"),
        ("early_access", "gold=0s,*=1m"),
    ]);
    let catalog = Catalog::new(vec![sample::known_sale(terms)]).with_switches(Arc::new(switches));
    let rooms = Rooms::default();
    rooms.replace(BTreeMap::from([(BUCKET.sale, RoomState { is_needed: true, ..RoomState::default() })]));
    let barred = Barred::default();
    let blocked = (0..BLOCKS).map(|number| format!("{}/28", Ipv4Addr::from(0xc000_0000 | number << 8)));
    let blocked = blocked.map(|text| Blocked::of("network", &text)).collect::<Result<Vec<_>, _>>()?;
    barred.replace_blocks(BlockList::new(blocked.iter().map(|it| (None, it))));
    let limits = LimitOptions { rates: RATES, exempt: Vec::new(), trusted_proxies: Vec::new() };
    let rules = JwtRules {
        issuer: "shop".into(),
        audience: "doorbuster".into(),
        leeway: Duration::ZERO,
        lifetime_max: LIFETIME,
    };
    Ok(Gate::new(GateParts {
        catalog: Arc::new(ArcSwap::from_pointee(catalog)),
        tokens: Arc::new(JwtVerifier::new(JwtKeys::new(vec![JwtKey::hs256(SECRET)?])?, rules)),
        sale_tokens: Arc::new(sale_tokens()?),
        limits: Arc::new(Limits::new(limits)),
        barred: Arc::new(barred),
        rooms: Arc::new(rooms),
        clock: Arc::new(SystemClock::new()),
    }))
}

fn sale_tokens() -> Result<SaleTokens, Box<dyn Error>> {
    let rules = SaleTokenRules {
        issue_before: LIFETIME,
        issue_spread: LIFETIME,
        lifetime: LIFETIME,
        place_grace: LIFETIME,
        captcha: CaptchaRules { max_number: 1, lifetime: LIFETIME },
    };
    Ok(SaleTokens::new([SECRET], rules)?)
}

/// The sale tokens of `user(0)` and so on, made before the rush.
pub(crate) fn tokens(count: usize, user: impl Fn(usize) -> UserId) -> Result<Vec<String>, Box<dyn Error>> {
    let (signer, now) = (sale_tokens()?, SystemClock::new().now());
    let profile = Profile { level: Level(0), region: Region::of(b"DE") };
    let token = |number| {
        let token = SaleToken {
            sale: BUCKET.sale,
            user: &user(number),
            begins: now,
            ends: now.plus(LIFETIME),
            captcha: true,
            let_in: true,
            profile,
        };
        signer.sign(&token)
    };
    (0..count).map(token).collect::<Option<_>>().ok_or_else(|| "there is no key".into())
}

/// What the gate makes of click number `click`, which comes from an address of its own.
pub(crate) fn admit(gate: &Gate, token: &str, click: usize) -> Claim {
    let attempt = Attempt {
        item: ItemId(1),
        caller: Caller {
            peer: Ipv4Addr::from(u32::try_from(click).unwrap_or(0)).into(),
            forwarded: None,
            region: None,
        },
        bearer: Some(token.as_bytes()),
        sale_token: None,
        idempotency_key: None,
        wish: Wish::Wanted { quantity: 1, expected_price_minor: None },
        trace: None,
    };
    gate.admit(&attempt, || Some(Level(0))).unwrap_or_else(|refusal| panic!("the gate refuses: {refusal:?}"))
}
