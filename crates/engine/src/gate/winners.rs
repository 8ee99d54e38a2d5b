//! Who holds units, as this core knows it: so that a winner who retries after the sell-out hears
//! of the order and not "sold out", while everybody else costs no crypto.
//!
//! A hit is never an answer: it goes on to the signature and to the stock. A miss costs nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use memchr::memmem::Finder;
use memchr::{memchr, memchr2, memrchr};
use serde::Deserialize;

use super::sale_token::{self, is_sale_token};
use crate::order::{SaleId, UserId};

/// Longest token payload that is looked into, in bytes of JSON.
const PAYLOAD_MAX: usize = 1_536;

/// How a `sub` begins that is a string, when nobody puts spaces between.
const SUB: &[u8] = br#""sub":""#;

/// A sale's list is read from the stock at most this often: with many items, one of them sells out or
/// is asked for again all the time, and each reading is as long as the list. A retry at another gateway
/// may hear "sold out" for a second; this and the flag's life are less.
const READ_EVERY: Duration = Duration::from_millis(500);

/// One core's lists; each at most as long as its sale has units.
#[derive(Debug)]
pub(super) struct Winners {
    // One core's threads only: never contended.
    sales: Mutex<BTreeMap<SaleId, List>>,
    sub: Finder<'static>,
}

/// Who holds units of one sale.
#[derive(Debug, Default)]
struct List {
    users: HashSet<UserId>,
    /// At which of the stock's steps it was last read, and when.
    read: Option<(u64, Duration)>,
}

impl Default for Winners {
    fn default() -> Self {
        Self { sales: Mutex::default(), sub: Finder::new(SUB) }
    }
}

impl Winners {
    fn sales(&self) -> MutexGuard<'_, BTreeMap<SaleId, List>> {
        self.sales.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, sale: SaleId, user: UserId) {
        self.sales().entry(sale).or_default().users.insert(user);
    }

    /// Whether the list is to be read anew now that the stock was seen at this step: it has moved since
    /// the last reading, which is long enough ago. The caller reads if so.
    pub(super) fn is_due(&self, sale: SaleId, seq: u64, now: Duration) -> bool {
        let mut sales = self.sales();
        let list = sales.entry(sale).or_default();
        let due =
            list.read.is_none_or(|(read, begun)| read != seq && now.saturating_sub(begun) >= READ_EVERY);
        if due {
            list.read = Some((seq, now));
        }
        due
    }

    pub(super) fn replace(&self, sale: SaleId, users: Vec<UserId>) {
        self.sales().entry(sale).or_default().users = users.into_iter().collect();
    }

    /// Whether the token *says* it is a holder's; nothing about it is verified.
    pub(super) fn may_include(&self, sale: SaleId, bearer: &[u8]) -> bool {
        if is_sale_token(bearer) {
            let mut room = sale_token::ROOM;
            return sale_token::unverified_user(bearer, &mut room).is_some_and(|user| self.has(sale, user));
        }
        let mut json = [0_u8; PAYLOAD_MAX];
        let Some(json) = unverified_payload(bearer, &mut json) else { return false };
        let Some(user) = plain_sub(json, &self.sub).map(Cow::Borrowed).or_else(|| sub(json)) else {
            return false;
        };
        self.has(sale, user.as_ref())
    }

    fn has(&self, sale: SaleId, user: &str) -> bool {
        self.sales().get(&sale).is_some_and(|list| list.users.contains(user))
    }
}

/// What stands between the token's dots.
fn unverified_payload<'a>(bearer: &[u8], json: &'a mut [u8; PAYLOAD_MAX]) -> Option<&'a [u8]> {
    // The header and the signature are short; the payload, which may not be, is passed over once.
    let payload = bearer.get(memchr(b'.', bearer)? + 1..memrchr(b'.', bearer)?)?;
    if payload.len() > PAYLOAD_MAX / 3 * 4 {
        return None;
    }
    let length = URL_SAFE_NO_PAD.decode_slice(payload, &mut json[..]).ok()?;
    Some(&json[..length])
}

/// The `sub` of an object without objects, escapes or spaces in it, as nearly every issuer writes
/// it: there, the first `"sub":"` is the member itself. Half of a refusal went into reading the
/// other members. [`sub`] is what it stands for, and reads the rest.
fn plain_sub<'a>(json: &'a [u8], finder: &Finder<'_>) -> Option<&'a str> {
    let members = json.strip_prefix(b"{")?;
    if memchr2(b'{', b'\\', members).is_some() {
        return None;
    }
    let value = &members[finder.find(members)? + SUB.len()..];
    std::str::from_utf8(&value[..memchr(b'"', value)?]).ok()
}

fn sub(json: &[u8]) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Sub<'a> {
        #[serde(borrow)]
        sub: Cow<'a, str>,
    }

    serde_json::from_slice::<Sub<'_>>(json).ok().map(|it| it.sub)
}

#[cfg(test)]
mod tests {
    use super::super::sale_token::{SaleToken, SaleTokens};
    use super::*;
    use crate::clock::Timestamp;
    use crate::conformance::sample;
    use crate::member::Profile;

    fn token(payload: &str) -> Vec<u8> {
        format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(payload)).into_bytes()
    }

    #[test]
    fn a_list_is_read_when_the_stock_has_moved_and_not_too_often() {
        let (winners, ms) = (Winners::default(), Duration::from_millis);
        assert!(winners.is_due(SaleId(1), 7, ms(0)));
        assert!(!winners.is_due(SaleId(1), 7, ms(900)), "nothing moved");
        assert!(winners.is_due(SaleId(1), 8, ms(900)));
        for (seq, at) in [(9, 1_000), (10, 1_399)] {
            assert!(!winners.is_due(SaleId(1), seq, ms(at)), "it was read a moment ago");
        }
        assert!(winners.is_due(SaleId(1), 10, ms(1_400)));
        assert!(winners.is_due(SaleId(2), 1, ms(1_400)), "every sale has its own list");
    }

    #[test]
    fn a_holders_token_is_recognised_without_its_signature() {
        let winners = Winners::default();
        winners.add(SaleId(1), sample::user(7));
        assert!(winners.may_include(SaleId(1), &token(r#"{"aud":["a"],"sub":"user-7","exp":1}"#)));
        assert!(winners.may_include(SaleId(1), &token(r#"{"sub":"user\u002d7"}"#)));
        assert!(!winners.may_include(SaleId(2), &token(r#"{"sub":"user-7"}"#)));
        assert!(!winners.may_include(SaleId(1), &token(r#"{"sub":"user-8"}"#)));
    }

    #[test]
    fn a_holders_sale_token_is_recognised_without_its_mac() {
        let winners = Winners::default();
        winners.add(SaleId(1), sample::user(7));
        let rules = SaleTokens::none().rules();
        let tokens = SaleTokens::new([&[7_u8; 32][..]], rules).unwrap();
        let token = |user| {
            let (user, at) = (sample::user(user), Timestamp::from_ms(0));
            let said = SaleToken {
                sale: SaleId(1),
                user: &user,
                begins: at,
                ends: at,
                captcha: false,
                let_in: false,
                profile: Profile::default(),
            };
            tokens.sign(&said).unwrap().into_bytes()
        };
        assert!(winners.may_include(SaleId(1), &token(7)));
        assert!(!winners.may_include(SaleId(1), &token(8)) && !winners.may_include(SaleId(2), &token(7)));
    }

    #[test]
    fn the_short_way_to_the_sub_leads_where_the_long_one_does() {
        let finder = Finder::new(SUB);
        for (payload, is_plain) in [
            (r#"{"sub":"user-7"}"#, true),
            (r#"{"exp":4,"aud":["sub","a"],"sub":"user-7","iss":"sub"}"#, true),
            (r#"{"sub":""}"#, true),
            (r#"{"iss":"sub","sub" : "user-7"}"#, false),
            (r#"{"act":{"sub":"eve"},"sub":"user-7"}"#, false),
            (r#"{"x":"\"sub\":\"eve","sub":"user-7"}"#, false),
            (r#"{"sub":"user\u002d7"}"#, false),
            (r#"{"sub":7}"#, false),
            (r#"[{"sub":"eve"}]"#, false),
            ("", false),
        ] {
            let short = plain_sub(payload.as_bytes(), &finder);
            assert_eq!(short.is_some(), is_plain, "{payload}");
            if is_plain {
                assert_eq!(short, sub(payload.as_bytes()).as_deref(), "{payload}");
            }
        }
    }

    #[test]
    fn garbage_is_nobodys_token() {
        let winners = Winners::default();
        winners.add(SaleId(1), sample::user(7));
        for garbage in [
            &b""[..],
            b".",
            b"..",
            b"a.!!.c",
            b"a.e30.c",
            &token(r#"{"sub":7}"#),
            &[b'.'; 3_000],
            &vec![b'a'; 9_000],
        ] {
            assert!(!winners.may_include(SaleId(1), garbage));
        }
    }

    #[test]
    fn reading_the_list_anew_forgets_who_holds_no_more() {
        let winners = Winners::default();
        winners.add(SaleId(1), sample::user(7));
        winners.replace(SaleId(1), vec![sample::user(8)]);
        assert!(!winners.may_include(SaleId(1), &token(r#"{"sub":"user-7"}"#)));
        assert!(winners.may_include(SaleId(1), &token(r#"{"sub":"user-8"}"#)));
    }
}
