//! A captcha without a picture, in the form of [ALTCHA](https://altcha.org/docs/v2/proof-of-work/): the client looks for
//! the number that was hashed. What it was asked is not kept; a proof says it all, for one user in one sale, and
//! counts once in each process.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::clock::Timestamp;
use crate::order::{SaleId, UserId};

/// Longest proof, in bytes of base64.
const PROOF_MAX: usize = 2_048;

/// Most proofs that are remembered as used; beyond, the older half is forgotten. It is its user's alone all the
/// same.
const USED_MAX: usize = 1 << 20;

const ALGORITHM: &str = "SHA-256";

/// How long an answer that another judged is remembered at least: no provider takes one for longer than this.
const JUDGED_LIFE: Duration = Duration::from_secs(300);

/// Stands where a question has its salt. No question has this one, so that a mark is no question's signature.
const MARK: &str = "mark";

/// What a client is asked: which number from 0 to `maxnumber`, behind `salt`, has the hash `challenge`?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// `SHA-256`.
    pub algorithm: String,
    /// The hash, in hexadecimal digits.
    pub challenge: String,
    /// The largest number that it may be.
    pub maxnumber: u32,
    /// What stands before the number; its end says when the question is over.
    pub salt: String,
    /// Comes back with the answer.
    pub signature: String,
}

/// How hard the question is, and how long it counts.
#[derive(Clone, Copy, Debug)]
pub struct CaptchaRules {
    /// The largest number: a client tries half as many on average.
    pub max_number: u32,
    /// How long an answer is taken.
    pub lifetime: Duration,
}

/// The answer to a [`Challenge`].
#[derive(Deserialize)]
struct Proof {
    algorithm: String,
    challenge: String,
    number: u64,
    salt: String,
    signature: String,
}

/// Forged, of another user or sale, over, or used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadProof;

/// Asks a user, under this gateway's key.
pub(super) fn ask(
    key: &[u8; 32],
    rules: CaptchaRules,
    (sale, user): (SaleId, &UserId),
    now: Timestamp,
) -> Challenge {
    let ends = now.plus(rules.lifetime).as_ms() / 1_000;
    let salt = format!("{:032x}?expires={ends}&", rand::random::<u128>());
    let challenge = hash(&salt, rand::random_range(0..=u64::from(rules.max_number)));
    let signature = sign(key, (sale, user), &salt, &challenge).to_hex().to_string();
    Challenge { algorithm: ALGORITHM.to_owned(), challenge, maxnumber: rules.max_number, salt, signature }
}

fn hash(salt: &str, number: u64) -> String {
    let digest = Sha256::new().chain_update(salt).chain_update(number.to_string()).finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sign(key: &[u8; 32], (sale, user): (SaleId, &UserId), salt: &str, challenge: &str) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&sale.0.to_be_bytes());
    // Lengths stand before what has none of its own: no two lists of parts are the same bytes.
    for part in [user.as_bytes(), salt.as_bytes(), challenge.as_bytes()] {
        hasher.update(&(part.len() as u64).to_be_bytes()).update(part);
    }
    hasher.finalize()
}

/// What an answer that another will judge carries, and the other repeats: it is this user's, in this sale.
pub(super) fn mark(key: &[u8; 32], of: (SaleId, &UserId)) -> blake3::Hash {
    sign(key, of, MARK, "")
}

/// When a question is over, as its salt says.
fn ends(salt: &str) -> Option<Timestamp> {
    let (_, rest) = salt.split_once("?expires=")?;
    let seconds: i64 = rest.strip_suffix('&')?.parse().ok()?;
    Some(Timestamp::from_ms(seconds.checked_mul(1_000)?))
}

/// Whether a proof answers a question to this user in this sale that was asked under one of `keys` and is not
/// over. Answers what names the question.
pub(super) fn check<'a>(
    mut keys: impl Iterator<Item = &'a [u8; 32]>,
    of: (SaleId, &UserId),
    proof: &[u8],
    now: Timestamp,
) -> Result<[u8; 32], BadProof> {
    if proof.len() > PROOF_MAX {
        return Err(BadProof);
    }
    let json = STANDARD.decode(proof).map_err(|_| BadProof)?;
    let proof: Proof = serde_json::from_slice(&json).map_err(|_| BadProof)?;
    let said = blake3::Hash::from_hex(&proof.signature).map_err(|_| BadProof)?;
    // Compares in constant time.
    let ours = keys.any(|key| sign(key, of, &proof.salt, &proof.challenge) == said);
    let in_time = ends(&proof.salt).is_some_and(|ends| now < ends);
    let solved = proof.algorithm == ALGORITHM && hash(&proof.salt, proof.number) == proof.challenge;
    if ours && in_time && solved { Ok(*said.as_bytes()) } else { Err(BadProof) }
}

/// Proofs that were used, in two halves: the older one is forgotten when its last proof is over.
#[derive(Debug, Default)]
pub(super) struct Used(Mutex<Halves>);

#[derive(Debug, Default)]
struct Halves {
    young: HashSet<[u8; 32]>,
    old: HashSet<[u8; 32]>,
    since: Duration,
}

impl Used {
    /// Notes that this proof is used now.
    pub(super) fn take(&self, proof: [u8; 32], now: Duration, lifetime: Duration) -> Result<(), BadProof> {
        let mut it = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_sub(it.since) >= lifetime || it.young.len() >= USED_MAX {
            it.old = std::mem::take(&mut it.young);
            it.since = now;
        }
        let new = !it.old.contains(&proof) && it.young.insert(proof);
        if new { Ok(()) } else { Err(BadProof) }
    }

    /// Notes that this answer, which another found good, is used now.
    pub(super) fn take_judged(
        &self,
        answer: &[u8],
        now: Duration,
        lifetime: Duration,
    ) -> Result<(), BadProof> {
        self.take(*blake3::hash(answer).as_bytes(), now, lifetime.max(JUDGED_LIFE))
    }
}

/// What a client does: tries number after number. The answer is what [`Challenge`] is answered with.
pub fn solve(challenge: &Challenge) -> Option<String> {
    let number = (0..=u64::from(challenge.maxnumber))
        .find(|number| hash(&challenge.salt, *number) == challenge.challenge)?;
    let proof = serde_json::json!({
        "algorithm": challenge.algorithm, "challenge": challenge.challenge, "number": number,
        "salt": challenge.salt, "signature": challenge.signature,
    });
    Some(STANDARD.encode(proof.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::sample;

    const KEY: [u8; 32] = [7; 32];
    const RULES: CaptchaRules = CaptchaRules { max_number: 100, lifetime: Duration::from_secs(300) };

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn check(user: u64, sale: i64, proof: &str, now: Timestamp) -> Result<[u8; 32], BadProof> {
        let keys = [[1; 32], KEY];
        super::check(keys.iter(), (SaleId(sale), &sample::user(user)), proof.as_bytes(), now)
    }

    fn proof_of(user: u64) -> String {
        solve(&ask(&KEY, RULES, (SaleId(7), &sample::user(user)), at(1_000_000))).unwrap()
    }

    #[test]
    fn a_proof_is_good_for_its_user_its_sale_and_its_time() {
        let proof = proof_of(1);
        assert!(check(1, 7, &proof, at(1_000_000)).is_ok());
        assert!(check(1, 7, &proof, at(1_299_999)).is_ok());
        assert_eq!(check(1, 7, &proof, at(1_300_000)), Err(BadProof), "over");
        assert_eq!(check(2, 7, &proof, at(1_000_000)), Err(BadProof), "another user");
        assert_eq!(check(1, 8, &proof, at(1_000_000)), Err(BadProof), "another sale");
        assert_ne!(check(1, 7, &proof, at(1_000_000)), check(1, 7, &proof_of(1), at(1_000_000)));
    }

    #[test]
    fn nobody_makes_a_question_of_his_own_or_bends_one() {
        let good: serde_json::Value = serde_json::from_slice(&STANDARD.decode(proof_of(1)).unwrap()).unwrap();
        let bent = |member: &str, value: serde_json::Value| {
            let mut proof = good.clone();
            proof[member] = value;
            STANDARD.encode(proof.to_string())
        };
        let later = good["salt"].as_str().unwrap().replace("?expires=1300&", "?expires=9300&");
        let own = ask(&[9; 32], RULES, (SaleId(7), &sample::user(1)), at(1_000_000));
        for proof in [
            bent("salt", later.into()),
            bent("number", 101.into()),
            bent("number", (-1).into()),
            bent("algorithm", "SHA-1".into()),
            bent("challenge", hash("x", 1).into()),
            bent("signature", "00".repeat(32).into()),
            bent("signature", "not hex".into()),
            solve(&own).unwrap(),
            String::new(),
            "!".to_owned(),
            "A".repeat(9_000),
            STANDARD.encode("[".repeat(1_000)),
        ] {
            assert_eq!(check(1, 7, &proof, at(1_000_000)), Err(BadProof), "{proof}");
        }
    }

    #[test]
    fn a_mark_is_one_users_in_one_sale_and_no_signature() {
        let of = |user, sale| mark(&KEY, (SaleId(sale), &sample::user(user)));
        assert_eq!(of(1, 7), of(1, 7));
        assert!(of(1, 7) != of(2, 7) && of(1, 7) != of(1, 8));
        let proof = serde_json::json!({
            "algorithm": ALGORITHM, "challenge": "", "number": 0, "salt": MARK, "signature": of(1, 7).to_hex().to_string(),
        });
        assert_eq!(check(1, 7, &STANDARD.encode(proof.to_string()), at(1_000_000)), Err(BadProof));
    }

    #[test]
    fn an_answer_that_another_judged_counts_once_for_as_long_as_a_provider_takes_it() {
        let (used, s) = (Used::default(), Duration::from_secs);
        assert_eq!(used.take_judged(b"answer", s(1_000), s(60)), Ok(()));
        assert_eq!(used.take_judged(b"another", s(1_000), s(60)), Ok(()));
        assert_eq!(used.take_judged(b"answer", s(1_299), s(60)), Err(BadProof));
    }

    #[test]
    fn a_proof_counts_once_and_is_not_remembered_for_ever() {
        let (used, s) = (Used::default(), Duration::from_secs);
        let life = s(300);
        assert_eq!(used.take([1; 32], s(1_000), life), Ok(()));
        assert_eq!(used.take([1; 32], s(1_001), life), Err(BadProof));
        assert_eq!(used.take([2; 32], s(1_299), life), Ok(()));
        assert_eq!(used.take([1; 32], s(1_300), life), Err(BadProof), "now in the older half");
        assert_eq!(used.take([3; 32], s(1_600), life), Ok(()));
        let halves = used.0.lock().unwrap();
        assert_eq!((halves.young.len(), halves.old.len()), (1, 0));
    }
}
