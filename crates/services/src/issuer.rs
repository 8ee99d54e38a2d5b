//! An identity provider: it signs access tokens by every algorithm, and offers its public keys as a JWK
//! set over HTTP, as real ones do. It answers as the test wants: other keys, errors, nonsense, nothing.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

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

/// Longest wait for a request's bytes.
const PATIENCE: Duration = Duration::from_secs(5);

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
    thread: Option<JoinHandle<()>>,
}

struct Told {
    says: Mutex<Says>,
    asked: AtomicU64,
    over: AtomicBool,
}

impl Issuer {
    /// A provider that offers these keys.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(keys: &[&SigningKey]) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("a port for the identity provider")?;
        let address = listener.local_addr()?;
        let told = Arc::new(Told {
            says: Mutex::new(set_of(keys)),
            asked: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let heard = Arc::clone(&told);
        let thread = std::thread::spawn(move || {
            // Those who hear nothing are kept, or they would hear that the connection ended.
            let mut silent = Vec::new();
            for connection in listener.incoming() {
                if heard.over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut connection) = connection else { continue };
                if answer(&mut connection, &heard).is_ok_and(|answered| !answered) {
                    silent.push(connection);
                }
            }
        });
        Ok(Self { address, told, thread: Some(thread) })
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

impl Drop for Issuer {
    fn drop(&mut self) {
        self.told.over.store(true, Ordering::SeqCst);
        // Wakes the thread, which then sees that it is over.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn set_of(keys: &[&SigningKey]) -> Says {
    let keys: Vec<&Value> = keys.iter().map(|key| &key.jwk).collect();
    Says::Body(json!({ "keys": keys }).to_string())
}

/// Reads one request and answers it; whether it did.
fn answer(connection: &mut TcpStream, told: &Told) -> std::io::Result<bool> {
    connection.set_read_timeout(Some(PATIENCE))?;
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        match connection.read(&mut part)? {
            0 => return Ok(true),
            read => head.extend_from_slice(&part[..read]),
        }
    }
    told.asked.fetch_add(1, Ordering::SeqCst);
    let says = told.says.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (status, location, body) = match says {
        Says::Body(body) => (200, String::new(), body),
        Says::Status(status) => (status, String::new(), "{}".to_owned()),
        Says::Redirect(to) => (302, format!("Location: {to}\r\n"), String::new()),
        Says::Silence => return Ok(false),
    };
    let length = body.len();
    write!(
        connection,
        "HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{location}Connection: close\r\n\r\n{body}"
    )?;
    Ok(true)
}
