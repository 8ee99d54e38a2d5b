//! What a token says of its user beside who it is: level and region, each by a claim that the shop chose.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::TOKEN_MAX;
use crate::member::{Level, Levels, Profile, Region};

/// Which claims say what. An empty name says nothing.
#[derive(Clone, Debug, Default)]
pub struct ProfileClaims {
    /// The claim with the name of a level.
    pub level: String,
    /// The claim with a region.
    pub region: String,
    /// The levels that there are.
    pub levels: Levels,
}

impl ProfileClaims {
    /// What a token says, whose signature and other claims are good. A claim that is missing, of another type, or
    /// there twice, says nothing: nobody is kept from buying what is for everybody.
    pub(super) fn read(&self, token: &[u8]) -> Profile {
        if self.level.is_empty() && self.region.is_empty() {
            return Profile::default();
        }
        self.read_payload(token).unwrap_or_default()
    }

    fn read_payload(&self, token: &[u8]) -> Option<Profile> {
        let payload = token.split(|byte| *byte == b'.').nth(1)?;
        let mut room = [0; TOKEN_MAX];
        let length = URL_SAFE_NO_PAD.decode_slice(payload, &mut room).ok()?;
        let mut reader = serde_json::Deserializer::from_slice(&room[..length]);
        let said = reader.deserialize_map(Reading(self)).ok()?;
        Some(Profile { level: said.level.unwrap_or_default(), region: said.region.flatten() })
    }
}

/// What was found; `Some` of nothing is a claim that is there and says nothing.
#[derive(Default)]
struct Said {
    level: Option<Level>,
    region: Option<Option<Region>>,
}

/// A name, copied only where it is written with escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads the claims one by one, and keeps no other.
struct Reading<'a>(&'a ProfileClaims);

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = Said;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("claims")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut claims: A) -> Result<Said, A::Error> {
        let wanted = |name: &str, claim: &str| !claim.is_empty() && name == claim;
        let mut said = Said::default();
        while let Some(Name(name)) = claims.next_key()? {
            let (is_level, is_region) = (wanted(&name, &self.0.level), wanted(&name, &self.0.region));
            if !is_level && !is_region {
                claims.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: Value = claims.next_value()?;
            let text = value.as_str().unwrap_or_default();
            // One claim may say both.
            let twice = is_level && said.level.replace(self.0.levels.level(text)).is_some()
                || is_region && said.region.replace(Region::of(text.as_bytes())).is_some();
            if twice {
                return Err(A::Error::custom("a claim stands twice"));
            }
        }
        Ok(said)
    }
}
