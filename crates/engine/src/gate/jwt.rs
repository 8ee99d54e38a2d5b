//! Access tokens: JWTs after RFC 8725. The algorithm is the key's, never the header's.

use std::time::Duration;

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;

use crate::clock::Timestamp;
use crate::order::UserId;

/// Longest token, in bytes.
const TOKEN_MAX: usize = 2_048;

/// Fewest bytes of an HS256 secret: as many as the hash has (RFC 7518 section 3.2).
const SECRET_MIN: usize = 32;

/// What a token must say beside its signature.
#[derive(Clone, Debug)]
pub struct JwtRules {
    /// `iss`, byte for byte.
    pub issuer: String,
    /// One of `aud`.
    pub audience: String,
    /// How far clocks may differ.
    pub leeway: Duration,
    /// Most that may lie between `iat` and `exp`.
    pub lifetime_max: Duration,
}

/// The key that tokens are signed with.
pub struct JwtKey(DecodingKey);

/// A secret that could be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the HS256 secret is too weak: it needs at least {SECRET_MIN} bytes that are not all alike, \
     such as from `openssl rand -base64 48`"
)]
pub struct WeakSecret;

impl JwtKey {
    /// An HS256 key.
    ///
    /// # Errors
    /// [`WeakSecret`] for fewer than 32 bytes or fewer than 8 different ones.
    pub fn hs256(secret: &[u8]) -> Result<Self, WeakSecret> {
        let different = secret.iter().collect::<std::collections::HashSet<_>>().len();
        if secret.len() < SECRET_MIN || different < 8 {
            return Err(WeakSecret);
        }
        DecodingKey::from_secret(secret).map(Self).map_err(|_| WeakSecret)
    }
}

/// Why a token is not good. The buyer hears no more than this; nobody hears more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadToken {
    /// Signature, form, issuer, audience or type.
    Invalid,
    /// Its time is over or has not begun.
    Expired,
    /// Its `sub` cannot be a user id.
    Subject,
}

#[derive(Deserialize)]
struct Claims {
    exp: u64,
    iat: u64,
    #[serde(default)]
    nbf: Option<u64>,
    iss: String,
    aud: Audience,
    sub: serde_json::Value,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn includes(&self, wanted: &str) -> bool {
        match self {
            Self::One(audience) => audience == wanted,
            Self::Many(audiences) => audiences.iter().any(|audience| audience == wanted),
        }
    }
}

/// Verifies access tokens.
pub struct JwtVerifier {
    key: DecodingKey,
    rules: JwtRules,
    validation: Validation,
}

impl JwtVerifier {
    /// A verifier for tokens signed with `key`.
    pub fn new(key: JwtKey, rules: JwtRules) -> Self {
        let mut validation = Validation::new(Algorithm::HS256);
        // Signature and algorithm only: times, issuer and audience are checked below, by type,
        // against our own clock.
        validation.required_spec_claims.clear();
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        Self { key: key.0, rules, validation }
    }

    /// Who the token belongs to, if it is good at `now`.
    ///
    /// # Errors
    /// [`BadToken`], in words that help no forger.
    pub fn verify(&self, token: &[u8], now: Timestamp) -> Result<UserId, BadToken> {
        if token.len() > TOKEN_MAX {
            return Err(BadToken::Invalid);
        }
        let decoded = jsonwebtoken::decode::<Claims>(token, &self.key, &self.validation)
            .map_err(|_| BadToken::Invalid)?;
        let plain_type = decoded
            .header
            .typ
            .as_deref()
            .is_none_or(|typ| typ.eq_ignore_ascii_case("JWT") || typ.eq_ignore_ascii_case("at+jwt"));
        let claims = decoded.claims;
        let for_us = claims.iss == self.rules.issuer && claims.aud.includes(&self.rules.audience);
        if !plain_type || decoded.header.crit.is_some() || !for_us {
            return Err(BadToken::Invalid);
        }
        self.in_time(&claims, now)?;
        let subject = claims.sub.as_str().ok_or(BadToken::Subject)?;
        UserId::new(subject).map_err(|_| BadToken::Subject)
    }

    fn in_time(&self, claims: &Claims, now: Timestamp) -> Result<(), BadToken> {
        let now = u64::try_from(now.as_ms() / 1_000).unwrap_or(0);
        let leeway = self.rules.leeway.as_secs();
        let lived_out = now > claims.exp.saturating_add(leeway);
        let early = claims.iat.max(claims.nbf.unwrap_or(0)) > now.saturating_add(leeway);
        let too_long = claims.exp.saturating_sub(claims.iat) > self.rules.lifetime_max.as_secs();
        if lived_out || early || too_long { Err(BadToken::Expired) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
