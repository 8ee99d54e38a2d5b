//! A place in a waiting room, sealed: a user who comes back within the grace shows it, and a room that forgot
//! who waits gives it back to him. It is one user's in one sale, and of no use to anybody else.
//!
//! `dbp1.` and, in base64 without padding: the key's name (4 bytes), the sale (8), when it was sealed (8), the
//! rank (8, masked, so that nobody reads before the opening which place he drew), flags (1), and a keyed BLAKE3 of all
//! that and the user's id (32).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::clock::Timestamp;
use crate::order::{SaleId, UserId};

/// How every sealed place begins.
const PREFIX: &str = "dbp1.";

pub(super) const KEY_CONTEXT: &str = "Doorbuster 2026-12-01 waiting room: key of the seal, version 1";
pub(super) const DRAW_CONTEXT: &str =
    "Doorbuster 2026-12-01 waiting room: which place a user draws, version 1";

const NAME: usize = 4;
const HEAD: usize = NAME + 3 * 8 + 1;
const MAC: usize = 32;

/// The flag of whoever has passed the captcha.
const CAPTCHA: u8 = 1;

/// What a sealed place says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SealedPlace {
    /// Nothing for somebody who got none, and has passed the captcha for it.
    pub(super) rank: Option<u64>,
    pub(super) at: Timestamp,
    pub(super) captcha: bool,
}

/// What no rank is.
const NONE: u64 = u64::MAX;

/// Hides the rank; another for each user and moment.
fn mask(key: &[u8; 32], before_rank: &[u8], user: &UserId) -> u64 {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(before_rank).update(user.as_bytes());
    let mut mask = [0; 8];
    hasher.finalize_xof().fill(&mut mask);
    u64::from_be_bytes(mask)
}

fn mac(key: &[u8; 32], head: &[u8], user: &UserId) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(head).update(user.as_bytes());
    hasher.finalize()
}

/// Seals a place of this user in this sale.
pub(super) fn seal(
    (name, key): ([u8; NAME], &[u8; 32]),
    (sale, user): (SaleId, &UserId),
    place: SealedPlace,
) -> String {
    let mut bytes = Vec::with_capacity(HEAD + MAC);
    bytes.extend(name);
    bytes.extend(sale.0.to_be_bytes());
    bytes.extend(place.at.as_ms().to_be_bytes());
    let mask = mask(key, &bytes, user);
    bytes.extend((place.rank.unwrap_or(NONE) ^ mask).to_be_bytes());
    bytes.push(if place.captcha { CAPTCHA } else { 0 });
    bytes.extend(mac(key, &bytes, user).as_bytes());
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// What a place says that one of the keys sealed for this user in this sale; nothing of any other.
pub(super) fn unseal<'a>(
    keys: impl IntoIterator<Item = ([u8; NAME], &'a [u8; 32])>,
    (sale, user): (SaleId, &UserId),
    text: &[u8],
) -> Option<SealedPlace> {
    let mut bytes = [0; HEAD + MAC];
    let text = text.strip_prefix(PREFIX.as_bytes())?;
    let length = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
    if length != bytes.len() {
        return None;
    }
    let (head, said) = bytes.split_at(HEAD);
    let (_, key) = keys.into_iter().find(|(name, _)| head.starts_with(name))?;
    let said = <[u8; MAC]>::try_from(said).ok()?;
    // Compares in constant time.
    if mac(key, head, user) != said {
        return None;
    }
    let number = |place: usize| head[NAME + 8 * place..NAME + 8 * place + 8].try_into().ok();
    if i64::from_be_bytes(number(0)?) != sale.0 {
        return None;
    }
    let at = Timestamp::from_ms(i64::from_be_bytes(number(1)?));
    let rank = u64::from_be_bytes(number(2)?) ^ mask(key, &head[..NAME + 16], user);
    Some(SealedPlace {
        rank: Some(rank).filter(|rank| *rank != NONE),
        at,
        captcha: head[HEAD - 1] & CAPTCHA != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];
    const OTHER: [u8; 32] = [8; 32];
    const SALE: SaleId = SaleId(3);

    fn user(text: &str) -> UserId {
        UserId::new(text).unwrap()
    }

    fn place() -> SealedPlace {
        SealedPlace { rank: Some(1 << 51), at: Timestamp::from_ms(1_800_000_000_123), captcha: true }
    }

    #[test]
    fn a_place_is_its_users_in_its_sale_under_a_known_key() {
        let sealed = seal(([1; 4], &KEY), (SALE, &user("a")), place());
        let keys = [([1; 4], &KEY), ([2; 4], &OTHER)];
        let read = |sale, name: &str, text: &str| unseal(keys, (sale, &user(name)), text.as_bytes());
        assert_eq!(read(SALE, "a", &sealed), Some(place()));
        assert_eq!(read(SALE, "b", &sealed), None);
        assert_eq!(read(SaleId(4), "a", &sealed), None);
        assert_eq!(unseal([([1; 4], &OTHER)], (SALE, &user("a")), sealed.as_bytes()), None);
        let plain = SealedPlace { captcha: false, rank: None, ..place() };
        let second = seal(([2; 4], &OTHER), (SALE, &user("a")), plain);
        assert_eq!(read(SALE, "a", &second), Some(plain));
    }

    #[test]
    fn nobody_reads_a_rank() {
        let rank = |user_name: &str, at: i64| {
            let sealed = SealedPlace { at: Timestamp::from_ms(at), ..place() };
            let text = seal(([1; 4], &KEY), (SALE, &user(user_name)), sealed);
            let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX).unwrap()).unwrap();
            u64::from_be_bytes(bytes[NAME + 16..NAME + 24].try_into().unwrap())
        };
        let shown = [rank("a", 1), rank("a", 2), rank("b", 1)];
        assert!(shown.iter().all(|rank| *rank != 1 << 51));
        assert!(shown[0] != shown[1] && shown[0] != shown[2], "{shown:?}");
    }

    #[test]
    fn no_changed_place_is_taken() {
        let sealed = seal(([1; 4], &KEY), (SALE, &user("a")), place());
        let read = |text: &[u8]| unseal([([1; 4], &KEY)], (SALE, &user("a")), text);
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.clone().into_bytes();
                changed[at] ^= 1 << bit;
                assert_eq!(read(&changed), None, "{at} {bit}");
            }
            assert_eq!(read(&sealed.as_bytes()[..at]), None);
        }
        assert_eq!(read(format!("{sealed}A").as_bytes()), None);
        assert_eq!(read(format!("{sealed}{}", "A".repeat(10_000)).as_bytes()), None);
        assert_eq!(read(b""), None);
    }
}
