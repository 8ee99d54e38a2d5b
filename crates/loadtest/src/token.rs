//! The tokens the simulated buyers carry: HS256 JWTs, minted one click ahead of their use.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde::Serialize;
use thiserror::Error;

/// `{"typ":"JWT","alg":"HS256"}` in base64url: the same in every token.
const HEADER: &str = "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9";

/// The issuer and the audience of a signer that was not given others.
pub const DEFAULT_ISSUER_AND_AUDIENCE: &str = "doorbuster";

/// Signs the tokens of simulated users.
///
/// The server must be configured with the same secret, issuer and audience. The same arguments
/// always give the same token, so a retry can mint its token again and nobody has to keep it.
#[derive(Clone)]
pub struct TokenSigner {
    key: EncodingKey,
    issuer: String,
    audience: String,
}

/// A signer cannot be made from an empty secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the secret that signs the tokens is empty")]
pub struct EmptySecret;

/// What a token says. The members are those that the gate checks.
#[derive(Serialize)]
struct Claims<'a> {
    exp: u64,
    iat: u64,
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
}

impl TokenSigner {
    /// A signer for one issuer and audience.
    ///
    /// # Errors
    /// [`EmptySecret`]. RFC 7518 asks for at least 32 bytes, which only the server checks.
    pub fn new(
        secret: &[u8],
        issuer: impl Into<String>,
        audience: impl Into<String>,
    ) -> Result<Self, EmptySecret> {
        Ok(Self {
            key: EncodingKey::from_secret(secret).map_err(|_| EmptySecret)?,
            issuer: issuer.into(),
            audience: audience.into(),
        })
    }

    /// A signer whose issuer and audience are both [`DEFAULT_ISSUER_AND_AUDIENCE`].
    ///
    /// # Errors
    /// [`EmptySecret`].
    pub fn with_defaults(secret: &[u8]) -> Result<Self, EmptySecret> {
        Self::new(secret, DEFAULT_ISSUER_AND_AUDIENCE, DEFAULT_ISSUER_AND_AUDIENCE)
    }

    /// A token for the user `sub`, issued at `now_epoch_secs` and valid for `lifetime_secs`.
    pub fn sign(&self, sub: &str, now_epoch_secs: u64, lifetime_secs: u64) -> String {
        let mut token = String::with_capacity(320);
        self.sign_into(&mut token, sub, now_epoch_secs, lifetime_secs);
        token
    }

    /// Appends the token to `out`: the buyers write it directly behind `Bearer `.
    pub(crate) fn sign_into(&self, out: &mut String, sub: &str, now_epoch_secs: u64, lifetime_secs: u64) {
        let claims = Claims {
            exp: now_epoch_secs.saturating_add(lifetime_secs),
            iat: now_epoch_secs,
            iss: &self.issuer,
            aud: &self.audience,
            sub,
        };
        let claims = serde_json::to_vec(&claims).expect("a struct of integers and strings is always JSON");
        let start = out.len();
        out.push_str(HEADER);
        out.push('.');
        BASE64_URL_SAFE_NO_PAD.encode_string(&claims, out);
        let signature = jsonwebtoken::crypto::sign(&out.as_bytes()[start..], &self.key, Algorithm::HS256)
            .expect("the key was made from a secret, so it fits HS256");
        out.push('.');
        out.push_str(&signature);
    }
}

impl std::fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenSigner")
            .field("issuer", &self.issuer)
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{DecodingKey, Validation, decode};
    use serde_json::Value;

    use super::{EmptySecret, TokenSigner};

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    #[test]
    fn token_carries_the_claims_and_verifies() {
        let signer = TokenSigner::new(SECRET, "shop", "gate").unwrap();
        let token = signer.sign("user \"1\"", 4_000_000_000, 60);
        let mut rules = Validation::new(jsonwebtoken::Algorithm::HS256);
        rules.set_audience(&["gate"]);
        rules.set_issuer(&["shop"]);
        let read = decode::<Value>(&token, &DecodingKey::from_secret(SECRET).unwrap(), &rules).unwrap();
        assert_eq!(read.header.typ.as_deref(), Some("JWT"));
        assert_eq!(
            read.claims,
            serde_json::json!({"exp": 4_000_000_060_u64, "iat": 4_000_000_000_u64,
                               "iss": "shop", "aud": "gate", "sub": "user \"1\""})
        );
        assert_eq!(token, signer.sign("user \"1\"", 4_000_000_000, 60));
    }

    #[test]
    fn empty_secret_is_refused() {
        assert_eq!(TokenSigner::with_defaults(b"").err(), Some(EmptySecret));
    }
}
