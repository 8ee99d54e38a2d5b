//! Sale tokens: given out before the rush to users who were verified then, so that in the rush one keyed hash
//! says who buys. A token stands for one user in one sale, within its time.
//!
//! `dbs1.` and, in base64 without padding: the key's name (4 bytes), the sale (8), from and until when it
//! counts (8 each, milliseconds of the epoch), flags (1), the user's level (1) and region (2, zeros where it is not
//! known), the user's id, and a keyed BLAKE3 of all that (32). Whole numbers stand with their first byte first.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::captcha::{self, BadProof, CaptchaRules, Challenge, Used};
use super::place::{self, SealedPlace};
use crate::clock::Timestamp;
use crate::member::{Level, Profile, Region};
use crate::order::{SaleId, UserId};

/// How every sale token begins.
pub const SALE_TOKEN_PREFIX: &str = "dbs1.";

/// Fewest bytes of a secret that sale tokens are made with.
const SECRET_MIN: usize = 32;

/// Another purpose gives another key, whatever else a secret is used for.
const KEY_CONTEXT: &str = "Doorbuster 2026-12-01 sale token: key of the MAC, version 2";
const NAME_CONTEXT: &str = "Doorbuster 2026-12-01 sale token: name of the key, version 1";
const CAPTCHA_CONTEXT: &str = "Doorbuster 2026-12-01 sale token: key of the captcha, version 1";
const TURN_CONTEXT: &str = "Doorbuster 2026-12-01 sale token: when a user's turn is, version 1";

const NAME: usize = 4;
const MAC: usize = 32;
/// Where the flags stand; behind them, level and region.
const FLAGS: usize = NAME + 3 * 8;
/// Bytes before the user's id.
const HEAD: usize = FLAGS + 4;
/// Most bytes in a token, before base64.
const BODY_MAX: usize = HEAD + UserId::MAX_BYTES + MAC;

/// The flag of whoever has passed the captcha.
const CAPTCHA: u8 = 1;
/// The flag of whoever was let in from the waiting room.
const LET_IN: u8 = 2;

/// Room that a token's bytes are read into.
pub(super) type Room = [u8; BODY_MAX];

/// Such room, empty.
pub(super) const ROOM: Room = [0; BODY_MAX];

/// Gateways' clocks, which all follow the stock's, may still be so far apart.
const CLOCKS_APART: Duration = Duration::from_secs(5);

/// What a sale token says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaleToken<'a> {
    /// The sale it opens.
    pub sale: SaleId,
    /// Whose it is.
    pub user: &'a UserId,
    /// When it begins to count.
    pub begins: Timestamp,
    /// When it counts no more.
    pub ends: Timestamp,
    /// Whether its user has passed the captcha.
    pub captcha: bool,
    /// Whether its user was let in from the waiting room.
    pub let_in: bool,
    /// What was known of its user when it was made.
    pub profile: Profile,
}

/// What a good token says of its holder.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder<'a> {
    pub(super) user: &'a str,
    pub(super) captcha: bool,
    pub(super) let_in: bool,
    pub(super) profile: Profile,
}

/// Forged, of another sale, or not of this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSaleToken;

/// A secret that is too short to guard anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret of {0} bytes is too short for sale tokens: it needs {SECRET_MIN} random bytes or more, such as from `openssl rand -base64 48`"
)]
pub struct WeakSaleSecret(usize);

/// When sale tokens are given out, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct SaleTokenRules {
    /// From this long before a sale opens.
    pub issue_before: Duration,
    /// Each user's turn comes at a moment of its own within this time.
    pub issue_spread: Duration,
    /// How long a token counts, at most until its sale is over.
    pub lifetime: Duration,
    /// How long a place in the waiting room is kept for somebody who is not seen.
    pub place_grace: Duration,
    /// The captcha before a token, where a sale requires one.
    pub captcha: CaptchaRules,
}

/// Makes and verifies sale tokens. Without a key it takes none for good.
pub struct SaleTokens {
    /// The first makes tokens; all verify them.
    keys: Vec<Key>,
    rules: SaleTokenRules,
    /// Captchas that were answered.
    used: Used,
}

struct Key {
    name: [u8; NAME],
    mac: [u8; 32],
    turn: [u8; 32],
    captcha: [u8; 32],
    place: [u8; 32],
    draw: [u8; 32],
}

impl Key {
    fn new(secret: &[u8]) -> Result<Self, WeakSaleSecret> {
        if secret.len() < SECRET_MIN {
            return Err(WeakSaleSecret(secret.len()));
        }
        let [a, b, c, d, ..] = blake3::derive_key(NAME_CONTEXT, secret);
        let (mac, turn) = (blake3::derive_key(KEY_CONTEXT, secret), blake3::derive_key(TURN_CONTEXT, secret));
        let captcha = blake3::derive_key(CAPTCHA_CONTEXT, secret);
        let (place, draw) =
            (blake3::derive_key(place::KEY_CONTEXT, secret), blake3::derive_key(place::DRAW_CONTEXT, secret));
        Ok(Self { name: [a, b, c, d], mac, turn, captcha, place, draw })
    }
}

impl SaleTokens {
    /// Tokens made with the first of `secrets` and verified with any of them.
    ///
    /// # Errors
    /// [`WeakSaleSecret`] when one has less than 32 bytes.
    pub fn new<'a>(
        secrets: impl IntoIterator<Item = &'a [u8]>,
        rules: SaleTokenRules,
    ) -> Result<Self, WeakSaleSecret> {
        let keys = secrets.into_iter().map(Key::new).collect::<Result<_, _>>()?;
        Ok(Self { keys, rules, used: Used::default() })
    }

    /// None is made, and none is good.
    pub fn none() -> Self {
        let rules = SaleTokenRules {
            issue_before: Duration::ZERO,
            issue_spread: Duration::ZERO,
            lifetime: Duration::ZERO,
            place_grace: Duration::ZERO,
            captcha: CaptchaRules { max_number: 0, lifetime: Duration::ZERO },
        };
        Self { keys: Vec::new(), rules, used: Used::default() }
    }

    /// When tokens are given out, and for how long.
    pub fn rules(&self) -> SaleTokenRules {
        self.rules
    }

    /// Whether there is a key.
    pub fn are_on(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The token that says this; nothing without a key.
    pub fn sign(&self, token: &SaleToken<'_>) -> Option<String> {
        let key = self.keys.first()?;
        let mut body = Vec::with_capacity(BODY_MAX);
        body.extend(key.name);
        for number in [token.sale.0, token.begins.as_ms(), token.ends.as_ms()] {
            body.extend(number.to_be_bytes());
        }
        let flags = if token.captcha { CAPTCHA } else { 0 } | if token.let_in { LET_IN } else { 0 };
        body.extend([flags, token.profile.level.0]);
        body.extend(Region::letters(token.profile.region));
        body.extend(token.user.as_bytes());
        body.extend(blake3::keyed_hash(&key.mac, &body).as_bytes());
        Some(format!("{SALE_TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(body)))
    }

    /// Whose a token is, if it is good for this sale at `now`.
    pub(super) fn verify<'a>(
        &self,
        token: &[u8],
        sale: SaleId,
        now: Timestamp,
        room: &'a mut Room,
    ) -> Result<Holder<'a>, BadSaleToken> {
        let body = body(token, room).ok_or(BadSaleToken)?;
        let (said, mac) = body.split_at(body.len() - MAC);
        let key = self.keys.iter().find(|key| said.starts_with(&key.name)).ok_or(BadSaleToken)?;
        let mac = <[u8; MAC]>::try_from(mac).map_err(|_| BadSaleToken)?;
        // Compares in constant time.
        if blake3::keyed_hash(&key.mac, said) != mac {
            return Err(BadSaleToken);
        }
        let number = |place: usize| {
            let at = NAME + 8 * place;
            said[at..at + 8].try_into().map(i64::from_be_bytes).map_err(|_| BadSaleToken)
        };
        let (begins, ends) = (Timestamp::from_ms(number(1)?), Timestamp::from_ms(number(2)?));
        if number(0)? != sale.0 || begins > now.plus(CLOCKS_APART) || now >= ends {
            return Err(BadSaleToken);
        }
        let user = std::str::from_utf8(&said[HEAD..]).map_err(|_| BadSaleToken)?;
        let flags = said[FLAGS];
        let profile = Profile { level: Level(said[FLAGS + 1]), region: Region::of(&said[FLAGS + 2..HEAD]) };
        Ok(Holder { user, captcha: flags & CAPTCHA != 0, let_in: flags & LET_IN != 0, profile })
    }

    /// Asks a user for a captcha; nothing without a key.
    pub(super) fn ask_captcha(&self, sale: SaleId, user: &UserId, now: Timestamp) -> Option<Challenge> {
        Some(captcha::ask(&self.keys.first()?.captcha, self.rules.captcha, (sale, user), now))
    }

    /// Takes the answer, once; `since_start` is a time that only grows.
    pub(super) fn take_captcha(
        &self,
        (sale, user): (SaleId, &UserId),
        proof: &[u8],
        now: Timestamp,
        since_start: Duration,
    ) -> Result<(), BadProof> {
        let keys = self.keys.iter().map(|key| &key.captcha);
        let question = captcha::check(keys, (sale, user), proof, now)?;
        self.used.take(question, since_start, self.rules.captcha.lifetime)
    }

    /// What a user draws for a place in the waiting room: the same each time; nothing without a key.
    pub(super) fn draw(&self, of: (SaleId, &UserId)) -> Option<[u8; 8]> {
        Some(drawn(&self.keys.first()?.draw, of))
    }

    /// Seals a user's place in the waiting room; nothing without a key.
    pub(super) fn seal_place(&self, of: (SaleId, &UserId), place: SealedPlace) -> Option<String> {
        let key = self.keys.first()?;
        Some(place::seal((key.name, &key.place), of, place))
    }

    /// The place that a user shows, if it was sealed for this user, at most the grace ago.
    pub(super) fn unseal_place(
        &self,
        of: (SaleId, &UserId),
        shown: &[u8],
        now: Timestamp,
    ) -> Option<SealedPlace> {
        let keys = self.keys.iter().map(|key| (key.name, &key.place));
        place::unseal(keys, of, shown).filter(|place| now.since(place.at) <= self.rules.place_grace)
    }

    /// What an answer that another judges has to carry, in hexadecimal digits; nothing without a key.
    pub(super) fn captcha_mark(&self, of: (SaleId, &UserId)) -> Option<String> {
        Some(captcha::mark(&self.keys.first()?.captcha, of).to_hex().to_string())
    }

    /// Whether an answer that another judged carries the mark of this user in this sale.
    pub(super) fn is_captcha_mark(&self, of: (SaleId, &UserId), said: &str) -> bool {
        // Compares in constant time.
        blake3::Hash::from_hex(said)
            .is_ok_and(|said| self.keys.iter().any(|key| captcha::mark(&key.captcha, of) == said))
    }

    /// Takes an answer that another found good, once; `since_start` is a time that only grows.
    pub(super) fn take_judged_captcha(&self, answer: &[u8], since_start: Duration) -> Result<(), BadProof> {
        self.used.take_judged(answer, since_start, self.rules.captcha.lifetime)
    }

    /// How long behind the first moment a user's turn to get a token comes: so that not all ask in one second.
    /// The same each time, and nobody can tell another's.
    pub(super) fn turn(&self, sale: SaleId, user: &UserId) -> Duration {
        let Some(key) = self.keys.first() else { return Duration::ZERO };
        let random = drawn(&key.turn, (sale, user));
        let spread = u64::try_from(self.rules.issue_spread.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(u64::from_be_bytes(random) % spread.max(1))
    }
}

/// Eight bytes that follow from sale and user, and that nobody foresees without the key.
fn drawn(key: &[u8; 32], (sale, user): (SaleId, &UserId)) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&sale.0.to_be_bytes()).update(user.as_bytes());
    let mut random = [0; 8];
    hasher.finalize_xof().fill(&mut random);
    random
}

/// Whether a bearer says of itself that it is a sale token.
pub(super) fn is_sale_token(bearer: &[u8]) -> bool {
    bearer.starts_with(SALE_TOKEN_PREFIX.as_bytes())
}

/// A token's bytes; nothing about them is verified but that all parts are there.
fn body<'a>(token: &[u8], room: &'a mut Room) -> Option<&'a [u8]> {
    let text = token.strip_prefix(SALE_TOKEN_PREFIX.as_bytes())?;
    let length = URL_SAFE_NO_PAD.decode_slice(text, &mut room[..]).ok()?;
    (length > HEAD + MAC).then(|| &room[..length])
}

/// Whose a token says it is; nothing about it is verified.
pub(super) fn unverified_user<'a>(token: &[u8], room: &'a mut Room) -> Option<&'a str> {
    let body = body(token, room)?;
    std::str::from_utf8(&body[HEAD..body.len() - MAC]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::sample;

    const OLD: &[u8] = b"the old secret, which has 32 bytes";
    const NEW: &[u8] = b"the new secret, which has 32 bytes";
    const RULES: SaleTokenRules = SaleTokenRules {
        issue_before: Duration::from_secs(600),
        issue_spread: Duration::from_secs(300),
        lifetime: Duration::from_secs(3_600),
        place_grace: Duration::from_secs(60),
        captcha: CaptchaRules { max_number: 100, lifetime: Duration::from_secs(300) },
    };

    fn tokens(secrets: &[&[u8]]) -> SaleTokens {
        SaleTokens::new(secrets.iter().copied(), RULES).unwrap()
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn sign(tokens: &SaleTokens, user: &UserId, captcha: bool) -> String {
        sign_for(tokens, user, captcha, Profile::default())
    }

    fn sign_for(tokens: &SaleTokens, user: &UserId, captcha: bool, profile: Profile) -> String {
        let said = SaleToken {
            sale: SaleId(7),
            user,
            begins: at(10_000),
            ends: at(70_000),
            captcha,
            let_in: false,
            profile,
        };
        tokens.sign(&said).unwrap()
    }

    #[test]
    fn a_token_is_good_for_its_user_its_sale_and_its_time() {
        let tokens = tokens(&[NEW]);
        let mut room = ROOM;
        for user in ["a", "élise:42", &"x".repeat(UserId::MAX_BYTES)] {
            let user = UserId::new(user).unwrap();
            for captcha in [false, true] {
                let token = sign(&tokens, &user, captcha);
                let mut verify = |sale, ms| {
                    let found = tokens.verify(token.as_bytes(), SaleId(sale), at(ms), &mut room);
                    found.map(|holder| (holder.user.to_owned(), holder.captcha))
                };
                assert_eq!(verify(7, 10_000), Ok((user.as_str().to_owned(), captcha)));
                assert_eq!(verify(7, 5_000), Ok((user.as_str().to_owned(), captcha)), "clocks differ");
                assert_eq!(verify(7, 69_999), Ok((user.as_str().to_owned(), captcha)));
                assert_eq!(verify(8, 10_000), Err(BadSaleToken), "another sale");
                assert_eq!(verify(7, 4_999), Err(BadSaleToken), "not yet");
                assert_eq!(verify(7, 70_000), Err(BadSaleToken), "over");
            }
        }
    }

    #[test]
    fn a_token_tells_of_its_user_what_was_known_when_it_was_made() {
        let tokens = tokens(&[NEW]);
        let mut room = ROOM;
        for (level, region) in [(0, ""), (2, "DE"), (7, "ZZ"), (255, "AA")] {
            let profile = Profile { level: Level(level), region: Region::of(region.as_bytes()) };
            for captcha in [false, true] {
                let token = sign_for(&tokens, &sample::user(1), captcha, profile);
                let holder = tokens.verify(token.as_bytes(), SaleId(7), at(20_000), &mut room).unwrap();
                assert_eq!((holder.profile, holder.captcha), (profile, captcha));
            }
        }
    }

    #[test]
    fn no_bit_of_a_token_can_be_changed() {
        let tokens = tokens(&[NEW]);
        let token = sign(&tokens, &sample::user(1), false).into_bytes();
        let mut room = ROOM;
        assert!(tokens.verify(&token, SaleId(7), at(20_000), &mut room).is_ok());
        for place in 0..token.len() {
            for bit in 0..8 {
                let mut other = token.clone();
                other[place] ^= 1 << bit;
                assert_eq!(tokens.verify(&other, SaleId(7), at(20_000), &mut room), Err(BadSaleToken));
            }
            assert_eq!(tokens.verify(&token[..place], SaleId(7), at(20_000), &mut room), Err(BadSaleToken));
        }
        let longer = [&token[..], b"AAAA"].concat();
        assert_eq!(tokens.verify(&longer, SaleId(7), at(20_000), &mut room), Err(BadSaleToken));
        for garbage in [&b"dbs1."[..], b"dbs1.!", b"dbs1.AAAA", b"", &[b'A'; 9_000], &b"dbs1.".repeat(900)] {
            assert_eq!(tokens.verify(garbage, SaleId(7), at(20_000), &mut room), Err(BadSaleToken));
            assert_eq!(unverified_user(garbage, &mut room), None);
        }
    }

    #[test]
    fn a_new_secret_is_introduced_before_the_old_one_goes() {
        let (old, both, new) = (tokens(&[OLD]), tokens(&[NEW, OLD]), tokens(&[NEW]));
        let mut room = ROOM;
        for (maker, verifier, good) in [
            (&old, &both, true),
            (&both, &new, true),
            (&both, &both, true),
            (&both, &old, false),
            (&old, &new, false),
            (&old, &SaleTokens::none(), false),
        ] {
            let token = sign(maker, &sample::user(1), false);
            assert_eq!(verifier.verify(token.as_bytes(), SaleId(7), at(20_000), &mut room).is_ok(), good);
        }
        assert_eq!(
            SaleTokens::new([&b"short"[..]], RULES).err().map(|weak| weak.to_string()),
            Some(
                "a secret of 5 bytes is too short for sale tokens: it needs 32 random bytes or more, such as from `openssl rand -base64 48`"
                    .to_owned()
            )
        );
    }

    #[test]
    fn turns_are_spread_evenly_and_stay_the_same() {
        let tokens = tokens(&[NEW]);
        let turns: Vec<_> = (0..1_000).map(|user| tokens.turn(SaleId(7), &sample::user(user))).collect();
        for minute in 0..5_u64 {
            let within = |turn: &&Duration| turn.as_secs() / 60 == minute;
            let users = turns.iter().filter(within).count();
            assert!((150..250).contains(&users), "{users} of 1,000 in minute {minute}");
        }
        assert_eq!(tokens.turn(SaleId(7), &sample::user(3)), turns[3]);
        assert_ne!(tokens.turn(SaleId(8), &sample::user(3)), turns[3]);
    }

    /// Spearman's: 1 for the same order, -1 for the opposite one, about 0 for orders that know nothing of each other.
    fn correlation_with_arrival(ranks: &[u64]) -> f64 {
        let mut order: Vec<usize> = (0..ranks.len()).collect();
        order.sort_by_key(|&user| ranks[user]);
        let apart = |(place, &user): (usize, &usize)| (place as f64 - user as f64).powi(2);
        let sum: f64 = order.iter().enumerate().map(apart).sum();
        let count = ranks.len() as f64;
        1.0 - 6.0 * sum / (count * (count * count - 1.0))
    }

    #[test]
    fn places_in_a_waiting_room_know_nothing_of_who_came_first() {
        let tokens = tokens(&[NEW]);
        let draw = |sale, user| u64::from_be_bytes(tokens.draw((SaleId(sale), &sample::user(user))).unwrap());
        for sale in 1..=20 {
            let ranks: Vec<u64> = (0..1_000).map(|user| draw(sale, user)).collect();
            // One in a thousand draws of a thousand is further from 0 than 0.104.
            let correlation = correlation_with_arrival(&ranks);
            assert!(correlation.abs() < 0.13, "sale {sale}: {correlation}");
            let first_half = ranks.iter().filter(|rank| **rank < u64::MAX / 2).count();
            assert!((420..580).contains(&first_half), "sale {sale}: {first_half} of 1,000");
        }
        // The same again, another in another sale, and none of it without the secret.
        assert_eq!(draw(1, 5), draw(1, 5));
        assert_ne!(draw(1, 5), draw(2, 5));
        let other = SaleTokens::new([OLD], RULES).unwrap().draw((SaleId(1), &sample::user(5)));
        assert_ne!(other, tokens.draw((SaleId(1), &sample::user(5))));
        assert_eq!(SaleTokens::none().draw((SaleId(1), &sample::user(5))), None);
    }
}
