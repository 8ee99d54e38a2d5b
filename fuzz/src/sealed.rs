//! What we seal and users show: sale tokens, and places in the waiting room. Only those that were sealed for the
//! user, the sale and the time count, and they say what was sealed.
//!
//! The first byte chooses: the rest is shown as it is, or it is the inside of something that is sealed as it should
//! be, so that what reads the inside is reached.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doorbuster_engine::gate::{Attempt, Caller, Gate, Wish};
use doorbuster_engine::member::Level;
use doorbuster_engine::order::UserId;

use crate::door::{GRACE_MS, ITEM, NOW_MS, PROXY, SALE, SECRETS, access_token, gate};

/// Gateways' clocks may be so far apart.
const APART_MS: i64 = 5_000;
const USER: &str = "user-1";
const MAC: usize = 32;

/// The names under which secrets become keys: part of the format, as in `gate/sale_token.rs` and `gate/place.rs`.
const NAME: &str = "Doorbuster 2026-12-01 sale token: name of the key, version 1";
const TOKEN_KEY: &str = "Doorbuster 2026-12-01 sale token: key of the MAC, version 2";
const PLACE_KEY: &str = "Doorbuster 2026-12-01 waiting room: key of the seal, version 1";

thread_local! {
    static GATE: Gate = gate();
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((mode, rest)) = bytes.split_first() else { return };
    let secret = SECRETS[usize::from(mode / 4 % 2)];
    GATE.with(|gate| match mode % 4 {
        0 => token(gate, rest),
        1 => token(gate, &sealed("dbs1.", secret, TOKEN_KEY, rest, b"")),
        2 => place(gate, rest),
        _ => place(gate, &sealed("dbp1.", secret, PLACE_KEY, rest, USER.as_bytes())),
    });
}

/// Shows it for a purchase, alone and beside an access token.
fn token(gate: &Gate, token: &[u8]) {
    let access = access_token(USER);
    let caller = Caller { peer: PROXY, forwarded: None, region: None };
    for (bearer, sale_token) in [(token, None), (access.as_slice(), Some(token))] {
        let attempt = Attempt {
            item: ITEM,
            caller,
            bearer: Some(bearer),
            sale_token,
            idempotency_key: None,
            wish: Wish::Wanted { quantity: 1, expected_price_minor: None },
            trace: None,
        };
        let Ok(claim) = gate.admit(&attempt, || Some(Level(0))) else { continue };
        let said = unsealed("dbs1.", TOKEN_KEY, token, b"").expect("a badly sealed token was taken");
        assert_eq!(number(&said, 0), SALE.0, "of another sale");
        assert!(number(&said, 1) <= NOW_MS + APART_MS && NOW_MS < number(&said, 2), "not of this time");
        assert_eq!(said[28] & 3, 3, "of somebody who did not pass the captcha, or was not let in");
        assert_eq!(&said[32..], claim.user.as_bytes());
        assert!(sale_token.is_none() || claim.user.as_str() == USER, "another user's");
    }
}

/// Shows it at the waiting room's door.
fn place(gate: &Gate, place: &[u8]) {
    let caller = Caller { peer: PROXY, forwarded: None, region: None };
    let visitor = gate.authenticate(&access_token(USER), caller, false).expect("a good access token");
    let door = gate.at_door(SALE, &visitor, Some(place)).expect("the sale is open");
    let door = door.expect("the sale has a room");
    if door.shown.is_none() && !door.passed_captcha {
        return;
    }
    let user = UserId::new(USER).expect("a good id");
    assert_eq!(door.known.user, user);
    let said = unsealed("dbp1.", PLACE_KEY, place, USER.as_bytes()).expect("a badly sealed place was taken");
    assert_eq!(number(&said, 0), SALE.0, "of another sale");
    assert!(NOW_MS.saturating_sub(number(&said, 1)) <= GRACE_MS, "sealed too long ago");
    assert_eq!(door.passed_captcha, said[28] & 1 != 0);
    assert_eq!(said.len(), 29);
}

/// Whole number `n` behind the key's name.
fn number(said: &[u8], n: usize) -> i64 {
    let at = 4 + 8 * n;
    i64::from_be_bytes(said[at..at + 8].try_into().expect("eight bytes"))
}

/// `inside` behind the key's name, with the MAC that belongs to it.
fn sealed(prefix: &str, secret: &[u8], key: &str, inside: &[u8], user: &[u8]) -> Vec<u8> {
    let mut body = blake3::derive_key(NAME, secret)[..4].to_vec();
    body.extend(inside);
    let mac = blake3::keyed_hash(&blake3::derive_key(key, secret), &[&body, user].concat());
    body.extend(mac.as_bytes());
    format!("{prefix}{}", URL_SAFE_NO_PAD.encode(body)).into_bytes()
}

/// What stands before the MAC, if that is right, by our own account of it.
fn unsealed(prefix: &str, key: &str, shown: &[u8], user: &[u8]) -> Option<Vec<u8>> {
    let mut said = URL_SAFE_NO_PAD.decode(shown.strip_prefix(prefix.as_bytes())?).ok()?;
    let mac = said.split_off(said.len().checked_sub(MAC)?);
    let right = SECRETS.iter().any(|secret| {
        let key = blake3::derive_key(key, secret);
        said.starts_with(&blake3::derive_key(NAME, secret)[..4])
            && blake3::keyed_hash(&key, &[&said, user].concat()).as_bytes()[..] == mac
    });
    right.then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(sale: i64, begins: i64, ends: i64, behind: &[u8]) -> Vec<u8> {
        let numbers = [sale, begins, ends].map(i64::to_be_bytes).concat();
        [numbers.as_slice(), behind].concat()
    }

    #[test]
    fn what_is_sealed_here_is_taken_there() {
        let inside = inside(SALE.0, NOW_MS, NOW_MS + 1, b"\x03\0\0\0user-1");
        let token = sealed("dbs1.", SECRETS[1], TOKEN_KEY, &inside, b"");
        let attempt = Attempt {
            item: ITEM,
            caller: Caller { peer: PROXY, forwarded: None, region: None },
            bearer: Some(&token),
            sale_token: None,
            idempotency_key: None,
            wish: Wish::Wanted { quantity: 1, expected_price_minor: None },
            trace: None,
        };
        let claim = gate().admit(&attempt, || Some(Level(0))).expect("a good token");
        assert_eq!(claim.user.as_str(), USER);
        place_is_taken();
    }

    fn place_is_taken() {
        let gate = gate();
        let caller = Caller { peer: PROXY, forwarded: None, region: None };
        let visitor = gate.authenticate(&access_token(USER), caller, false).expect("a good access token");
        let inside = inside(SALE.0, NOW_MS, 12, b"\x01");
        let place = sealed("dbp1.", SECRETS[0], PLACE_KEY, &inside, USER.as_bytes());
        let door = gate.at_door(SALE, &visitor, Some(&place)).expect("the sale is open").expect("a room");
        assert!(door.shown.is_some() && door.passed_captcha);
    }
}
