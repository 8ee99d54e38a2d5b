//! Access tokens: JWTs after RFC 8725. The algorithm is the key's, never the header's.

mod keys;
mod profile;
mod verified;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde::Deserialize;

use crate::clock::Timestamp;
use crate::member::{Known, Levels};
use crate::order::UserId;
pub use keys::{JwtAlgorithm, JwtKey, JwtKeys, NotAnAlgorithm, ReadJwks, UnusableKey};
pub use profile::ProfileClaims;
use verified::{Name, Verified};

/// Longest token, in bytes.
const TOKEN_MAX: usize = 2_048;

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

/// Why a token is not good. The buyer hears no more than this; nobody hears more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadToken {
    /// Signature, form, issuer, audience or type.
    Invalid,
    /// Its time is over or has not begun.
    Expired,
    /// Its `sub` cannot be a user id.
    Subject,
    /// No key is known yet to verify it with. Nothing is wrong with the token.
    NoKeys,
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

/// When a token counts, in seconds of the epoch.
#[derive(Clone, Copy, Debug)]
struct Span {
    begins: u64,
    ends: u64,
}

/// Verifies access tokens. The keys may be replaced while it works.
pub struct JwtVerifier {
    keys: ArcSwap<Generation>,
    rules: JwtRules,
    profile: ProfileClaims,
    /// Whether a token named a key that is not known.
    unknown: AtomicBool,
    /// Made when the first public key has verified something.
    verified: OnceLock<Verified>,
}

/// A set of keys, and the how-manieth it is.
struct Generation {
    number: u64,
    keys: JwtKeys,
}

impl JwtVerifier {
    /// A verifier for tokens signed with one of `keys`.
    pub fn new(keys: JwtKeys, rules: JwtRules) -> Self {
        let keys = ArcSwap::from_pointee(Generation { number: 0, keys });
        let (profile, unknown) = (ProfileClaims::default(), AtomicBool::new(false));
        Self { keys, rules, profile, unknown, verified: OnceLock::new() }
    }

    /// The same, which also reads what these claims say of a user.
    #[must_use]
    pub fn reading(self, profile: ProfileClaims) -> Self {
        Self { profile, ..self }
    }

    /// The levels that users may have.
    pub fn levels(&self) -> &Levels {
        &self.profile.levels
    }

    /// Takes other keys from now on. A token that was verified before is verified anew.
    pub fn replace_keys(&self, keys: JwtKeys) {
        let number = self.keys.load().number + 1;
        self.keys.store(Generation { number, keys }.into());
    }

    /// How many keys are known.
    pub fn keys(&self) -> usize {
        self.keys.load().keys.len()
    }

    /// Whether a token named an unknown key since this was last asked.
    pub fn take_unknown(&self) -> bool {
        self.unknown.load(Ordering::Relaxed) && self.unknown.swap(false, Ordering::Relaxed)
    }

    /// Who the token belongs to, if it is good at `now`.
    ///
    /// # Errors
    /// [`BadToken`], in words that help no forger.
    pub fn verify(&self, token: &[u8], now: Timestamp) -> Result<Known, BadToken> {
        self.verify_if(token, now, || Ok(()))
    }

    /// The same, asking `may_check` before it does what is dear: a check by a public key, of a token that
    /// was not seen to be good before.
    ///
    /// # Errors
    /// [`BadToken`], or what `may_check` says.
    pub fn verify_if<E: From<BadToken>>(
        &self,
        token: &[u8],
        now: Timestamp,
        may_check: impl FnOnce() -> Result<(), E>,
    ) -> Result<Known, E> {
        if token.len() > TOKEN_MAX {
            return Err(BadToken::Invalid.into());
        }
        let set = self.keys.load();
        let name = set.keys.are_public().then(|| Name::of(token));
        let known = name.zip(self.verified.get());
        if let Some((known, span)) = known.and_then(|(name, verified)| verified.get(name, set.number)) {
            self.in_time(span, now)?;
            return Ok(known);
        }
        let key = self.key_of(token, &set.keys)?;
        if name.is_some() {
            may_check()?;
        }
        let (known, span) = self.read(token, key)?;
        self.in_time(span, now)?;
        if let Some(name) = name {
            self.verified.get_or_init(Verified::default).put(name, set.number, known.clone(), span);
        }
        Ok(known)
    }

    /// The one key that may have signed the token; its `kid` is believed for no more than this.
    fn key_of<'a>(&self, token: &[u8], keys: &'a JwtKeys) -> Result<&'a JwtKey, BadToken> {
        if keys.is_empty() {
            return Err(BadToken::NoKeys);
        }
        if let Some(key) = keys.secret_alone() {
            return Ok(key);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| BadToken::Invalid)?;
        let kid = header.kid.as_deref();
        if !keys.has(kid) {
            self.unknown.store(true, Ordering::Relaxed);
        }
        keys.find(kid).filter(|key| key.signs_by(header.alg)).ok_or(BadToken::Invalid)
    }

    /// What a token says that this key has signed.
    fn read(&self, token: &[u8], key: &JwtKey) -> Result<(Known, Span), BadToken> {
        let decoded = jsonwebtoken::decode::<Claims>(token, &key.key, &key.validation)
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
        if claims.exp.saturating_sub(claims.iat) > self.rules.lifetime_max.as_secs() {
            return Err(BadToken::Expired);
        }
        let subject = claims.sub.as_str().ok_or(BadToken::Subject)?;
        let user = UserId::new(subject).map_err(|_| BadToken::Subject)?;
        let span = Span { begins: claims.iat.max(claims.nbf.unwrap_or(0)), ends: claims.exp };
        Ok((Known { user, profile: self.profile.read(token) }, span))
    }

    fn in_time(&self, span: Span, now: Timestamp) -> Result<(), BadToken> {
        let now = u64::try_from(now.as_ms() / 1_000).unwrap_or(0);
        let leeway = self.rules.leeway.as_secs();
        let lived_out = now > span.ends.saturating_add(leeway);
        let early = span.begins > now.saturating_add(leeway);
        if lived_out || early { Err(BadToken::Expired) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
