//! An identity provider: it signs access tokens by every algorithm, and offers its public keys as a JWK
//! set over HTTP, as real ones do. It answers as the test wants: other keys, errors, nonsense, nothing.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
pub use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::http::{Http, Reply};

/// A private key with its public side.
pub struct SigningKey {
    /// Its `kid`.
    pub id: String,
    /// The public key in PEM; empty for a secret.
    pub public_pem: String,
    /// The private key in PEM; empty for a secret.
    pub private_pem: String,
    /// The public key as a JWK with its id and algorithm.
    pub jwk: Value,
    algorithm: Algorithm,
    key: EncodingKey,
}

impl SigningKey {
    /// Makes a key for RS256, PS256, ES256, ES384 or EdDSA.
    ///
    /// # Errors
    /// Another algorithm, or no randomness.
    pub fn generate(id: &str, algorithm: Algorithm) -> Result<Self> {
        let random = SystemRandom::new();
        let (private, public) = match algorithm {
            Algorithm::RS256 | Algorithm::PS256 => {
                let pair = rsa::KeyPair::generate(KeySize::Rsa2048)?;
                let private: Pkcs8V1Der<'_> = pair.as_der()?;
                (private.as_ref().to_vec(), pair.public_key().as_der()?.as_ref().to_vec())
            }
            Algorithm::ES256 | Algorithm::ES384 => {
                let kind = match algorithm {
                    Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED_SIGNING,
                    _ => &ECDSA_P384_SHA384_FIXED_SIGNING,
                };
                let private = EcdsaKeyPair::generate_pkcs8(kind, &random)?.as_ref().to_vec();
                let pair = EcdsaKeyPair::from_pkcs8(kind, &private)?;
                (private, pair.public_key().as_der()?.as_ref().to_vec())
            }
            Algorithm::EdDSA => {
                let private = Ed25519KeyPair::generate_pkcs8v1(&random)?.as_ref().to_vec();
                let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&private)?;
                (private, pair.public_key().as_der()?.as_ref().to_vec())
            }
            other => bail!("{other:?} has no key pair here"),
        };
        let private = pem("PRIVATE KEY", &private);
        let key = match algorithm {
            Algorithm::RS256 | Algorithm::PS256 => EncodingKey::from_rsa_pem(private.as_bytes())?,
            Algorithm::EdDSA => EncodingKey::from_ed_pem(private.as_bytes())?,
            _ => EncodingKey::from_ec_pem(private.as_bytes())?,
        };
        let mut jwk = serde_json::to_value(Jwk::from_encoding_key(&key, algorithm)?)?;
        jwk["kid"] = json!(id);
        jwk["use"] = json!("sig");
        Ok(Self {
            id: id.to_owned(),
            public_pem: pem("PUBLIC KEY", &public),
            private_pem: private,
            jwk,
            algorithm,
            key,
        })
    }

    /// A secret for HS256, HS384 or HS512.
    ///
    /// # Errors
    /// An empty secret.
    pub fn secret(id: &str, algorithm: Algorithm, secret: &[u8]) -> Result<Self> {
        let key = EncodingKey::from_secret(secret)?;
        let jwk = json!({"kty": "oct", "kid": id, "k": base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(secret)});
        Ok(Self {
            id: id.to_owned(),
            public_pem: String::new(),
            private_pem: String::new(),
            jwk,
            algorithm,
            key,
        })
    }

    /// A token with these claims, naming this key.
    ///
    /// # Errors
    /// The claims cannot be signed.
    pub fn sign(&self, claims: &Value) -> Result<String> {
        self.sign_as(Some(&self.id), claims)
    }

    /// A token with these claims, naming `kid`, or no key.
    ///
    /// # Errors
    /// The claims cannot be signed.
    pub fn sign_as(&self, kid: Option<&str>, claims: &Value) -> Result<String> {
        let header = Header { kid: kid.map(str::to_owned), ..Header::new(self.algorithm) };
        encode(&header, claims, &self.key).context("signing a token")
    }

    /// A token with these claims that brings its own key along, and says that it is to be found at `url`.
    ///
    /// # Errors
    /// The claims cannot be signed.
    pub fn sign_pointing_at(&self, url: &str, claims: &Value) -> Result<String> {
        let header = Header {
            kid: Some(self.id.clone()),
            jku: Some(url.to_owned()),
            x5u: Some(url.to_owned()),
            jwk: Some(serde_json::from_value(self.jwk.clone())?),
            ..Header::new(self.algorithm)
        };
        encode(&header, claims, &self.key).context("signing a token")
    }
}

fn pem(what: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|it| std::str::from_utf8(it).ok()).collect();
    format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", lines.join("\n"))
}

/// What the provider answers whoever asks for its keys.
#[derive(Clone, Debug)]
pub enum Says {
    /// 200 with this body.
    Body(String),
    /// This status, and a body that says nothing.
    Status(u16),
    /// 302 to this address.
    Redirect(String),
    /// Nothing: it takes the request and keeps the connection open.
    Silence,
}

/// A provider on a port of the loopback. It ends with its value.
pub struct Issuer {
    /// Where its keys are.
    pub address: SocketAddr,
    told: Arc<Told>,
    _http: Http,
}

struct Told {
    says: Mutex<Says>,
    asked: AtomicU64,
}

impl Issuer {
    /// A provider that offers these keys.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(keys: &[&SigningKey]) -> Result<Self> {
        let told = Arc::new(Told { says: Mutex::new(set_of(keys)), asked: AtomicU64::new(0) });
        let heard = Arc::clone(&told);
        let http = Http::start(move |_| answer(&heard))?;
        Ok(Self { address: http.address, told, _http: http })
    }

    /// The address of its JWK set.
    pub fn url(&self) -> String {
        format!("http://{}/jwks.json", self.address)
    }

    /// Offers these keys from now on.
    pub fn offer(&self, keys: &[&SigningKey]) {
        self.say(set_of(keys));
    }

    /// Answers so from now on.
    pub fn say(&self, says: Says) {
        *self.told.says.lock().unwrap_or_else(PoisonError::into_inner) = says;
    }

    /// How often it was asked for its keys.
    pub fn asked(&self) -> u64 {
        self.told.asked.load(Ordering::SeqCst)
    }
}

fn set_of(keys: &[&SigningKey]) -> Says {
    let keys: Vec<&Value> = keys.iter().map(|key| &key.jwk).collect();
    Says::Body(json!({ "keys": keys }).to_string())
}

fn answer(told: &Told) -> Reply {
    told.asked.fetch_add(1, Ordering::SeqCst);
    let says = told.says.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match says {
        Says::Body(body) => Reply::json(200, body),
        Says::Status(status) => Reply::json(status, "{}"),
        Says::Redirect(to) => Reply::redirect(&to),
        Says::Silence => Reply::Silence,
    }
}
