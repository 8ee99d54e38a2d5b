//! The keys that access tokens are signed with. The algorithm is the key's, never the header's: a token
//! chooses no more than which key it claims to be signed with.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Validation};
use serde::{Deserialize, Serialize};

/// Most keys of one set.
const KEYS_MAX: usize = 100;

/// Fewest bits of an RSA modulus.
const MODULUS_MIN_BITS: usize = 2_048;

/// How a PEM file begins that has a public key and nothing else: a private key or a certificate would be
/// read as well, and does not belong here.
const PUBLIC_PEM: [&[u8]; 2] = [b"-----BEGIN PUBLIC KEY-----", b"-----BEGIN RSA PUBLIC KEY-----"];

/// Fewest different bytes of a secret.
const DIFFERENT_MIN: usize = 8;

/// The algorithms that access tokens may be signed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the words are those of RFC 7518 and RFC 8037")]
pub enum JwtAlgorithm {
    HS256,
    HS384,
    HS512,
    RS256,
    PS256,
    ES256,
    ES384,
    EdDSA,
}

impl JwtAlgorithm {
    /// Every algorithm.
    pub const ALL: [Self; 8] = [
        Self::HS256,
        Self::HS384,
        Self::HS512,
        Self::RS256,
        Self::PS256,
        Self::ES256,
        Self::ES384,
        Self::EdDSA,
    ];

    /// Its name in a token's `alg`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HS256 => "HS256",
            Self::HS384 => "HS384",
            Self::HS512 => "HS512",
            Self::RS256 => "RS256",
            Self::PS256 => "PS256",
            Self::ES256 => "ES256",
            Self::ES384 => "ES384",
            Self::EdDSA => "EdDSA",
        }
    }

    /// Whether one secret both signs and verifies.
    pub const fn is_secret(self) -> bool {
        matches!(self, Self::HS256 | Self::HS384 | Self::HS512)
    }

    const fn inner(self) -> Algorithm {
        match self {
            Self::HS256 => Algorithm::HS256,
            Self::HS384 => Algorithm::HS384,
            Self::HS512 => Algorithm::HS512,
            Self::RS256 => Algorithm::RS256,
            Self::PS256 => Algorithm::PS256,
            Self::ES256 => Algorithm::ES256,
            Self::ES384 => Algorithm::ES384,
            Self::EdDSA => Algorithm::EdDSA,
        }
    }

    /// Fewest bytes of a secret: as many as the hash has (RFC 7518 section 3.2).
    const fn secret_min(self) -> usize {
        match self {
            Self::HS384 => 48,
            Self::HS512 => 64,
            _ => 32,
        }
    }
}

impl fmt::Display for JwtAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no algorithm for access tokens: HS256, HS384, HS512, RS256, PS256, ES256, ES384 or EdDSA")]
pub struct NotAnAlgorithm(String);

impl FromStr for JwtAlgorithm {
    type Err = NotAnAlgorithm;

    fn from_str(text: &str) -> Result<Self, NotAnAlgorithm> {
        let found = Self::ALL.into_iter().find(|it| it.as_str() == text);
        found.ok_or_else(|| NotAnAlgorithm(text.escape_default().to_string()))
    }
}

/// A key, or a set of them, that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableKey {
    /// A secret that could be guessed.
    #[error(
        "the {algorithm} secret is too weak: it needs at least {least} bytes that are not all alike, \
         such as from `openssl rand -base64 {}`", least * 3 / 2
    )]
    Weak {
        /// What it was to sign with.
        algorithm: JwtAlgorithm,
        /// Fewest bytes that it needs.
        least: usize,
    },
    /// The file has no public key of this algorithm's kind.
    #[error("it is no public key for {0} in PEM (`-----BEGIN PUBLIC KEY-----`)")]
    NotPem(JwtAlgorithm),
    /// A secret algorithm with a public key, or the reverse.
    #[error("{0} is signed with {kind}, and this is none", kind = if .0.is_secret() { "a secret" } else { "a private key" })]
    OtherKind(JwtAlgorithm),
    /// Whoever knows a public key could sign with it as if it were a secret.
    #[error("secrets (HS256, HS384, HS512) and public keys cannot be used together")]
    Mixed,
    /// Two keys answer to the same name.
    #[error("two keys have the id `{0}`")]
    Twice(String),
    /// Two keys have no id.
    #[error("more than one key has no id: only one may, which then verifies whatever names no other")]
    Nameless,
    /// Too many keys, or none.
    #[error("there are {0} keys: 1 to {KEYS_MAX} can be used")]
    Number(usize),
    /// Not a JWK set.
    #[error("it is no JWK set (`{{\"keys\":[…]}}`)")]
    NotJwks,
}

/// A key that tokens are signed with.
pub struct JwtKey {
    id: Option<String>,
    algorithm: JwtAlgorithm,
    pub(super) key: DecodingKey,
    pub(super) validation: Validation,
}

impl JwtKey {
    fn new(algorithm: JwtAlgorithm, key: DecodingKey) -> Self {
        let mut validation = Validation::new(algorithm.inner());
        // Signature and algorithm only: times, issuer and audience are checked by us, by type, against
        // our own clock.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        Self { id: None, algorithm, key, validation }
    }

    /// Whether it is a key of the algorithm that a token says; the token's word chooses nothing.
    pub(super) fn signs_by(&self, said: Algorithm) -> bool {
        self.algorithm.inner() == said
    }

    /// The same key under this `kid`.
    #[must_use]
    pub fn named(self, id: String) -> Self {
        Self { id: Some(id), ..self }
    }

    /// An HS256 key.
    ///
    /// # Errors
    /// [`UnusableKey::Weak`] for fewer than 32 bytes or fewer than 8 different ones.
    pub fn hs256(secret: &[u8]) -> Result<Self, UnusableKey> {
        Self::secret(JwtAlgorithm::HS256, secret)
    }

    /// A secret that both signs and verifies.
    ///
    /// # Errors
    /// [`UnusableKey`] when it could be guessed, or the algorithm wants a public key.
    pub fn secret(algorithm: JwtAlgorithm, secret: &[u8]) -> Result<Self, UnusableKey> {
        if !algorithm.is_secret() {
            return Err(UnusableKey::OtherKind(algorithm));
        }
        let weak = UnusableKey::Weak { algorithm, least: algorithm.secret_min() };
        let different = secret.iter().collect::<HashSet<_>>().len();
        if secret.len() < algorithm.secret_min() || different < DIFFERENT_MIN {
            return Err(weak);
        }
        DecodingKey::from_secret(secret).map(|key| Self::new(algorithm, key)).map_err(|_| weak)
    }

    /// A public key in PEM.
    ///
    /// # Errors
    /// [`UnusableKey`] when it is none, or the algorithm wants a secret.
    pub fn public(algorithm: JwtAlgorithm, pem: &[u8]) -> Result<Self, UnusableKey> {
        if !PUBLIC_PEM.iter().any(|label| pem.trim_ascii_start().starts_with(label)) {
            return Err(UnusableKey::NotPem(algorithm));
        }
        let key = match algorithm.inner().family() {
            AlgorithmFamily::Hmac => return Err(UnusableKey::OtherKind(algorithm)),
            AlgorithmFamily::Rsa => DecodingKey::from_rsa_pem(pem),
            AlgorithmFamily::Ec => DecodingKey::from_ec_pem(pem),
            AlgorithmFamily::Ed => DecodingKey::from_ed_pem(pem),
        };
        let key = key.map_err(|_| UnusableKey::NotPem(algorithm))?;
        if !key.try_get_as_bytes().is_ok_and(|bytes| is_long_enough(algorithm, bytes)) {
            return Err(UnusableKey::NotPem(algorithm));
        }
        Ok(Self::new(algorithm, key))
    }

    /// A key of a JWK set, or why it is passed over.
    fn of_jwk(jwk: &Jwk, allowed: &[JwtAlgorithm]) -> Result<Self, &'static str> {
        if jwk.common.public_key_use.as_ref().is_some_and(|used| *used != PublicKeyUse::Signature) {
            return Err("it is not for signatures");
        }
        let fits = |algorithm: &JwtAlgorithm| match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => matches!(algorithm, JwtAlgorithm::RS256 | JwtAlgorithm::PS256),
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => *algorithm == JwtAlgorithm::ES256,
                EllipticCurve::P384 => *algorithm == JwtAlgorithm::ES384,
                _ => false,
            },
            AlgorithmParameters::OctetKeyPair(key) => {
                key.curve == EllipticCurve::Ed25519 && *algorithm == JwtAlgorithm::EdDSA
            }
            // Whoever reads the set could sign with it.
            _ => false,
        };
        let said = |algorithm: &JwtAlgorithm| {
            jwk.common.key_algorithm.is_none_or(|said| said.to_string() == algorithm.as_str())
        };
        let algorithm = allowed.iter().copied().find(|it| fits(it) && said(it));
        let algorithm = algorithm.ok_or("it is for no algorithm that is allowed here")?;
        let key = DecodingKey::from_jwk(jwk).map_err(|_| "it cannot be read")?;
        let long_enough = match &jwk.algorithm {
            AlgorithmParameters::RSA(key) => {
                URL_SAFE_NO_PAD.decode(&key.n).is_ok_and(|modulus| bits(&modulus) >= MODULUS_MIN_BITS)
            }
            _ => key.try_get_as_bytes().is_ok_and(|bytes| is_long_enough(algorithm, bytes)),
        };
        if !long_enough {
            return Err("it is too short");
        }
        let id = jwk.common.key_id.clone();
        Ok(Self { id, ..Self::new(algorithm, key) })
    }
}

/// Whether these bytes of a public key are as many as the algorithm's have.
fn is_long_enough(algorithm: JwtAlgorithm, bytes: &[u8]) -> bool {
    match algorithm {
        JwtAlgorithm::RS256 | JwtAlgorithm::PS256 => {
            modulus(bytes).is_some_and(|modulus| bits(modulus) >= MODULUS_MIN_BITS)
        }
        // An uncompressed point: a byte and two coordinates.
        JwtAlgorithm::ES256 => bytes.len() == 65,
        JwtAlgorithm::ES384 => bytes.len() == 97,
        JwtAlgorithm::EdDSA => bytes.len() == 32,
        JwtAlgorithm::HS256 | JwtAlgorithm::HS384 | JwtAlgorithm::HS512 => false,
    }
}

/// The modulus in the DER of an RSA key, whose lengths have two bytes each as in all that are long enough.
fn modulus(der: &[u8]) -> Option<&[u8]> {
    let [0x30, 0x82, _, _, 0x02, 0x82, high, low, rest @ ..] = der else { return None };
    rest.get(..usize::from(u16::from_be_bytes([*high, *low])))
}

/// The bits of a number, without the zeros before it.
fn bits(number: &[u8]) -> usize {
    let digits = number.iter().position(|byte| *byte != 0).map_or(&[][..], |first| &number[first..]);
    let zeros = digits.first().map_or(0, |first| first.leading_zeros() as usize);
    digits.len() * 8 - zeros
}

/// The keys of one issuer.
pub struct JwtKeys(Vec<JwtKey>);

/// A set that was read, and what of it is not used, in words.
pub struct ReadJwks {
    /// The keys that can be used; never none.
    pub keys: JwtKeys,
    /// The other keys, each with why.
    pub passed_over: Vec<String>,
}

impl JwtKeys {
    /// No key yet: nobody can be let in.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// A set of keys.
    ///
    /// # Errors
    /// [`UnusableKey`] when they are mixed, too many, or answer to the same name.
    pub fn new(keys: Vec<JwtKey>) -> Result<Self, UnusableKey> {
        if !(1..=KEYS_MAX).contains(&keys.len()) {
            return Err(UnusableKey::Number(keys.len()));
        }
        if keys.iter().any(|key| key.algorithm.is_secret() != keys[0].algorithm.is_secret()) {
            return Err(UnusableKey::Mixed);
        }
        let mut ids = HashSet::new();
        for key in &keys {
            if !ids.insert(&key.id) {
                return Err(key.id.clone().map_or(UnusableKey::Nameless, UnusableKey::Twice));
            }
        }
        Ok(Self(keys))
    }

    /// The public keys of a JWK set that are for one of the `allowed` algorithms. Others are passed over:
    /// a set may hold keys for other uses.
    ///
    /// # Errors
    /// [`UnusableKey`] when it is no set, or no key of it can be used.
    pub fn of_jwks(text: &[u8], allowed: &[JwtAlgorithm]) -> Result<ReadJwks, UnusableKey> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<serde_json::Value>,
        }

        let set: Set = serde_json::from_slice(text).map_err(|_| UnusableKey::NotJwks)?;
        if set.keys.len() > KEYS_MAX {
            return Err(UnusableKey::Number(set.keys.len()));
        }
        let (mut keys, mut passed_over) = (Vec::<JwtKey>::new(), Vec::new());
        for (number, value) in (1..).zip(set.keys) {
            let key = serde_json::from_value::<Jwk>(value).map_err(|_| "it is no JWK");
            let key = key.and_then(|jwk| JwtKey::of_jwk(&jwk, allowed));
            match key {
                Ok(key) if keys.iter().any(|other| other.id == key.id) => {
                    passed_over.push(format!("key {number}: another one has its id"));
                }
                Ok(key) => keys.push(key),
                Err(why) => passed_over.push(format!("key {number}: {why}")),
            }
        }
        Ok(ReadJwks { keys: Self::new(keys)?, passed_over })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether verifying is dear: with public keys it takes 30 to 110 µs, with a secret about one.
    pub(super) fn are_public(&self) -> bool {
        self.0.first().is_some_and(|key| !key.algorithm.is_secret())
    }

    /// The only key, when it is a secret without a name: whatever comes is checked by it, which is as cheap
    /// as to look first.
    pub(super) fn secret_alone(&self) -> Option<&JwtKey> {
        match self.0.as_slice() {
            [key] if key.id.is_none() && key.algorithm.is_secret() => Some(key),
            _ => None,
        }
    }

    /// Whether the set says which key this is; a newer set may, where this one does not.
    pub(super) fn has(&self, kid: Option<&str>) -> bool {
        self.0.iter().any(|key| key.id.as_deref() == kid) || (kid.is_none() && self.0.len() == 1)
    }

    /// The one key that a token with this `kid` may be signed with.
    pub(super) fn find(&self, kid: Option<&str>) -> Option<&JwtKey> {
        let named = kid.and_then(|kid| self.0.iter().find(|key| key.id.as_deref() == Some(kid)));
        named.or_else(|| self.0.iter().find(|key| key.id.is_none())).or_else(|| match self.0.as_slice() {
            [only] if kid.is_none() => Some(only),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
