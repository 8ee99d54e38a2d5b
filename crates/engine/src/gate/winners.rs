//! Who holds units, as this core knows it: so that a winner who retries after the sell-out hears
//! of the order and not "sold out", while everybody else costs no crypto.
//!
//! A hit is never an answer: it goes on to the signature and to the stock. A miss costs nothing.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::order::{SaleId, UserId};

/// Longest token payload that is looked into, in bytes of JSON.
const PAYLOAD_MAX: usize = 1_536;

/// One core's lists; each at most as long as its sale has units.
#[derive(Debug, Default)]
pub(super) struct Winners {
    // One core's threads only: never contended.
    sales: Mutex<HashMap<SaleId, HashSet<UserId>>>,
}

impl Winners {
    fn sales(&self) -> MutexGuard<'_, HashMap<SaleId, HashSet<UserId>>> {
        self.sales.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, sale: SaleId, user: UserId) {
        self.sales().entry(sale).or_default().insert(user);
    }

    pub(super) fn replace(&self, sale: SaleId, users: Vec<UserId>) {
        self.sales().insert(sale, users.into_iter().collect());
    }

    /// Whether the token *says* it is a holder's; nothing about it is verified.
    pub(super) fn may_include(&self, sale: SaleId, bearer: &[u8]) -> bool {
        let mut json = [0_u8; PAYLOAD_MAX];
        let Some(user) = unverified_sub(bearer, &mut json) else { return false };
        self.sales().get(&sale).is_some_and(|users| users.contains(user.as_ref()))
    }
}

fn unverified_sub<'a>(bearer: &[u8], json: &'a mut [u8; PAYLOAD_MAX]) -> Option<Cow<'a, str>> {
    #[derive(Deserialize)]
    struct Sub<'a> {
        #[serde(borrow)]
        sub: Cow<'a, str>,
    }

    let payload = bearer.split(|byte| *byte == b'.').nth(1)?;
    if payload.len() > PAYLOAD_MAX / 3 * 4 {
        return None;
    }
    let length = URL_SAFE_NO_PAD.decode_slice(payload, &mut json[..]).ok()?;
    serde_json::from_slice::<Sub<'_>>(&json[..length]).ok().map(|it| it.sub)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::sample;

    fn token(payload: &str) -> Vec<u8> {
        format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(payload)).into_bytes()
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
