//! Access tokens: only well-signed ones with the right claims verify.
//!
//! The first byte chooses: the rest is a token, or the rest is the claims of a token that is signed
//! as it should be, so that what reads claims is reached.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doorbuster_engine::clock::Timestamp;
use doorbuster_engine::gate::{JwtKey, JwtKeys, JwtRules, JwtVerifier, ProfileClaims};
use doorbuster_engine::member::{Level, Levels, Region};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub(crate) const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
const NOW_S: u64 = 1_800_000_000;
const LEEWAY_S: u64 = 5;
const LIFETIME_MAX_S: u64 = 86_400;

pub(crate) fn run(bytes: &[u8]) {
    let Some((mode, rest)) = bytes.split_first() else { return };
    let token = if *mode % 2 == 0 { rest.to_vec() } else { signed(rest) };
    let rules = JwtRules {
        issuer: "shop".into(),
        audience: "doorbuster".into(),
        leeway: Duration::from_secs(LEEWAY_S),
        lifetime_max: Duration::from_secs(LIFETIME_MAX_S),
    };
    let key = JwtKey::hs256(SECRET).expect("the secret is long and varied");
    let keys = JwtKeys::new(vec![key]).expect("one key goes with itself");
    let now = Timestamp::from_ms(i64::try_from(NOW_S * 1_000).expect("is before the year 10000"));

    let profile = ProfileClaims { level: "level".into(), region: "region".into(), levels: levels() };
    if let Ok(known) = JwtVerifier::new(keys, rules).reading(profile).verify(&token, now) {
        let user = known.user;
        assert!(token.len() <= 2_048, "a token of {} bytes verified", token.len());
        let claims = well_signed(&token).expect("a badly signed token verified");
        assert!(claims_are_good(&claims), "verified with {claims}");
        assert_eq!(claims["sub"].as_str(), Some(user.as_str()));
        assert!((1..=128).contains(&user.as_str().len()), "{user:?}");
        assert!(!user.as_str().chars().any(char::is_control), "{user:?}");
        // What stands twice says nothing, and by our own account the last of them counts.
        let said = |name: &str| claims[name].as_str().unwrap_or_default().to_owned();
        let (level, region) = (known.profile.level, known.profile.region);
        assert!(level == Level(0) || level == levels().level(&said("level")), "{level:?} with {claims}");
        assert!(
            region.is_none() || region == Region::of(said("region").as_bytes()),
            "{region:?} with {claims}"
        );
    }
}

fn levels() -> Levels {
    Levels::new(["silver", "gold"]).expect("two names that differ")
}

/// A token with these claims that is signed as it should be.
pub(crate) fn signed(claims: &[u8]) -> Vec<u8> {
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let said = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
    format!("{said}.{}", URL_SAFE_NO_PAD.encode(hmac(SECRET, said.as_bytes()))).into_bytes()
}

/// The claims of a token whose signature is right, by our own account of it.
fn well_signed(token: &[u8]) -> Option<Value> {
    let token = std::str::from_utf8(token).ok()?;
    let (said, signature) = token.rsplit_once('.')?;
    let (_, claims) = said.split_once('.')?;
    let right = URL_SAFE_NO_PAD.decode(signature).ok()? == hmac(SECRET, said.as_bytes());
    if !right {
        return None;
    }
    // Claims that nobody reads may hold what is no text; they are signed all the same.
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    serde_json::from_str(&String::from_utf8_lossy(&claims)).ok()
}

fn claims_are_good(claims: &Value) -> bool {
    let number = |name: &str| claims[name].as_u64();
    let (Some(exp), Some(iat)) = (number("exp"), number("iat")) else { return false };
    let nbf_is_good = match &claims["nbf"] {
        Value::Null => true,
        nbf => nbf.as_u64().is_some_and(|nbf| nbf <= NOW_S + LEEWAY_S),
    };
    let for_us = match &claims["aud"] {
        Value::Array(many) => many.iter().any(|one| one == "doorbuster"),
        one => one == "doorbuster",
    };
    NOW_S <= exp.saturating_add(LEEWAY_S)
        && iat <= NOW_S + LEEWAY_S
        && exp.saturating_sub(iat) <= LIFETIME_MAX_S
        && nbf_is_good
        && for_us
        && claims["iss"] == "shop"
}

/// HMAC-SHA-256 after RFC 2104, apart from the library under test.
pub(crate) fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let key = if key.len() > 64 { Sha256::digest(key).to_vec() } else { key.to_vec() };
    let padded = |pad: u8| -> Vec<u8> {
        let mut block = [pad; 64];
        block.iter_mut().zip(&key).for_each(|(byte, key)| *byte ^= key);
        block.to_vec()
    };
    let inner = Sha256::digest([padded(0x36), message.to_vec()].concat());
    Sha256::digest([padded(0x5c), inner.to_vec()].concat()).to_vec()
}
