//! Signatures of webhooks: HMAC-SHA256 over the time and the body as they came, under any of several
//! secrets, compared in constant time.

use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doorbuster_engine::clock::Timestamp;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::config::Secret;
use crate::payments::Refusal;

/// Most signatures of one webhook that are looked at: one for each secret while they change.
const SIGNATURES_MAX: usize = 8;

/// How secrets begin at those who keep to Standard Webhooks, and at Stripe.
const PREFIX: &str = "whsec_";

/// The keys that webhooks may be signed with, at least one, and how far their time may be off.
pub(crate) struct Secrets {
    keys: Vec<Vec<u8>>,
    tolerance: Duration,
}

impl Secrets {
    /// As Standard Webhooks writes them: behind `whsec_` stands base64; other text is taken as it is.
    /// `None` without any. The configuration's `key` has them.
    pub(crate) fn standard(
        secrets: &[Secret],
        tolerance: Duration,
        key: &str,
    ) -> anyhow::Result<Option<Self>> {
        let mut keys = Vec::with_capacity(secrets.len());
        for secret in secrets {
            keys.push(match secret.reveal().strip_prefix(PREFIX) {
                None => secret.reveal().as_bytes().to_vec(),
                Some(text) => {
                    let broken = || format!("what stands behind whsec_ in {key} is not base64");
                    let bytes = STANDARD.decode(text).with_context(broken)?;
                    if bytes.len() < 16 {
                        bail!("a secret in {key} is shorter than 16 bytes");
                    }
                    bytes
                }
            });
        }
        Ok((!keys.is_empty()).then_some(Self { keys, tolerance }))
    }

    /// As Stripe takes them: the whole text is the key. `None` without any.
    pub(crate) fn plain(secrets: &[Secret], tolerance: Duration) -> Option<Self> {
        let keys: Vec<Vec<u8>> = secrets.iter().map(|it| it.reveal().as_bytes().to_vec()).collect();
        (!keys.is_empty()).then_some(Self { keys, tolerance })
    }

    /// One key that follows from another secret and tells nothing of it.
    pub(crate) fn derived(secret: &[u8], tolerance: Duration) -> Self {
        Self { keys: vec![sign(secret, &[b"doorbuster sandbox"])], tolerance }
    }

    /// The signature of the first key.
    pub(crate) fn sign(&self, parts: &[&[u8]]) -> Vec<u8> {
        sign(&self.keys[0], parts)
    }

    /// What a webhook that we send carries as `webhook-signature`, as Standard Webhooks writes it: a
    /// signature of each key, so that whoever takes it may know an old one or a new one.
    pub(crate) fn header(&self, id: &str, at: &str, body: &[u8]) -> String {
        let parts: [&[u8]; 5] = [id.as_bytes(), b".", at.as_bytes(), b".", body];
        let each = self.keys.iter().map(|key| format!("v1,{}", STANDARD.encode(sign(key, &parts))));
        each.collect::<Vec<_>>().join(" ")
    }

    /// Whether one of the signatures is one of the keys'.
    pub(crate) fn fit(&self, parts: &[&[u8]], signatures: &[Vec<u8>]) -> bool {
        let fits = |key: &Vec<u8>, given: &Vec<u8>| mac(key, parts).verify_slice(given).is_ok();
        let mut pairs = self.keys.iter().flat_map(|key| signatures.iter().map(move |given| (key, given)));
        pairs.any(|(key, given)| fits(key, given))
    }

    /// Whether a time in seconds is near enough to ours.
    pub(crate) fn check_time(&self, text: &str, now: Timestamp) -> Result<(), Refusal> {
        let plain = (1..=12).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        let seconds: i64 = text.parse().ok().filter(|_| plain).ok_or(Refusal::NotSigned)?;
        let apart = now.as_ms().div_euclid(1_000).abs_diff(seconds);
        if apart > self.tolerance.as_secs() { Err(Refusal::Stale) } else { Ok(()) }
    }
}

/// The first few of what a header lists, each decoded; what cannot be is left out.
pub(crate) fn listed<'a>(
    signatures: impl Iterator<Item = &'a str>,
    decode: impl Fn(&str) -> Option<Vec<u8>>,
) -> Vec<Vec<u8>> {
    signatures.take(SIGNATURES_MAX).filter_map(decode).collect()
}

/// Bytes from hexadecimal digits.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let digits = text.len().is_multiple_of(2) && text.bytes().all(|it| it.is_ascii_hexdigit());
    if digits { pairs.map(byte).collect() } else { None }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac
}

fn sign(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    mac(key, parts).finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTES: Duration = Duration::from_secs(300);

    #[test]
    fn the_example_of_standard_webhooks_is_signed_as_it_says() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let secrets = Secrets::standard(&[secret], MINUTES, "key").unwrap().unwrap();
        let parts: [&[u8]; 5] =
            [b"msg_p5jXN8AQM9LWM0D4loKWxJek", b".", b"1614265330", b".", br#"{"test": 2432232314}"#];
        assert_eq!(STANDARD.encode(secrets.sign(&parts)), "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn what_is_sent_is_signed_by_every_key() {
        let secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "another secret of some length"];
        let secrets = secrets.map(|it| Secret::new(it.to_owned()));
        let secrets = Secrets::standard(&secrets, MINUTES, "key").unwrap().unwrap();
        let header = secrets.header("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#);
        let (first, second) = header.split_once(' ').unwrap();
        assert_eq!(first, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(second.starts_with("v1,") && second != first);
    }

    #[test]
    fn any_secret_fits_and_a_removed_one_does_not() {
        let [old, new] = ["an old secret of some length", "a new secret of some length"];
        let secrets = |them: &[&str]| {
            let them: Vec<Secret> = them.iter().map(|it| Secret::new((*it).to_owned())).collect();
            Secrets::plain(&them, MINUTES).unwrap()
        };
        let signed = secrets(&[old]).sign(&[b"body"]);
        assert!(secrets(&[new, old]).fit(&[b"body"], &[b"noise".to_vec(), signed.clone()]));
        assert!(!secrets(&[new]).fit(&[b"body"], std::slice::from_ref(&signed)));
        assert!(!secrets(&[old]).fit(&[b"body "], std::slice::from_ref(&signed)));
        assert!(!secrets(&[old]).fit(&[b"body"], &[signed[..31].to_vec()]));
        assert!(!secrets(&[old]).fit(&[b"body"], &[]));
    }

    #[test]
    fn a_time_may_be_five_minutes_off_either_way_and_is_whole_seconds() {
        let secrets = Secrets::derived(b"secret", MINUTES);
        let now = Timestamp::from_ms(1_000_000_999);
        for (text, expected) in [
            ("1000000", Ok(())),
            ("999700", Ok(())),
            ("1000300", Ok(())),
            ("999699", Err(Refusal::Stale)),
            ("1000301", Err(Refusal::Stale)),
            ("-1000000", Err(Refusal::NotSigned)),
            ("+1000000", Err(Refusal::NotSigned)),
            ("1000000.0", Err(Refusal::NotSigned)),
            ("", Err(Refusal::NotSigned)),
            ("99999999999999999999", Err(Refusal::NotSigned)),
        ] {
            assert_eq!(secrets.check_time(text, now), expected, "{text}");
        }
    }

    #[test]
    fn hexadecimal_digits_come_in_pairs() {
        assert_eq!(from_hex("00fF"), Some(vec![0, 255]));
        for bad in ["0", "0g", "+1", "é"] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }
}
