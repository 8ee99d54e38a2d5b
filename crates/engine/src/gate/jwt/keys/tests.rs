use std::cell::Cell;

use doorbuster_services::issuer::SigningKey;
use jsonwebtoken::Algorithm as Their;
use serde_json::json;

use super::super::tests::{NOW, SECRET, claims, rules};
use super::super::{BadToken, JwtVerifier};
use super::*;
use crate::clock::Timestamp;
use crate::order::UserId;

const PAIRS: [(JwtAlgorithm, Their); 5] = [
    (JwtAlgorithm::RS256, Their::RS256),
    (JwtAlgorithm::PS256, Their::PS256),
    (JwtAlgorithm::ES256, Their::ES256),
    (JwtAlgorithm::ES384, Their::ES384),
    (JwtAlgorithm::EdDSA, Their::EdDSA),
];

fn of_set(keys: &[&SigningKey], allowed: &[JwtAlgorithm]) -> Result<ReadJwks, UnusableKey> {
    let keys: Vec<_> = keys.iter().map(|key| &key.jwk).collect();
    JwtKeys::of_jwks(json!({ "keys": keys }).to_string().as_bytes(), allowed)
}

fn verifier(keys: JwtKeys) -> JwtVerifier {
    JwtVerifier::new(keys, rules())
}

fn now() -> Timestamp {
    Timestamp::from_ms(i64::try_from(NOW * 1_000).unwrap())
}

fn verify(verifier: &JwtVerifier, token: &str) -> Result<UserId, BadToken> {
    verifier.verify(token.as_bytes(), now()).map(|known| known.user)
}

#[test]
fn every_algorithm_verifies_by_pem_and_by_jwk() {
    for (ours, theirs) in PAIRS {
        let key = SigningKey::generate("one", theirs).unwrap();
        let token = key.sign(&claims()).unwrap();
        let pem = JwtKey::public(ours, key.public_pem.as_bytes()).unwrap();
        let pem = verifier(JwtKeys::new(vec![pem]).unwrap());
        let jwk = verifier(of_set(&[&key], &JwtAlgorithm::ALL).unwrap().keys);
        for verifier in [pem, jwk] {
            assert_eq!(verify(&verifier, &token).unwrap().as_str(), "alice", "{ours}");
            let checked = Cell::new(0);
            let again = verifier.verify_if(token.as_bytes(), now(), || {
                checked.set(checked.get() + 1);
                Ok::<_, BadToken>(())
            });
            assert_eq!((again.unwrap().user.as_str(), checked.get()), ("alice", 0), "{ours} is remembered");
            let stranger = SigningKey::generate("one", theirs).unwrap().sign(&claims()).unwrap();
            assert_eq!(verify(&verifier, &stranger), Err(BadToken::Invalid), "{ours}");
        }
    }
    for (ours, theirs) in [
        (JwtAlgorithm::HS256, Their::HS256),
        (JwtAlgorithm::HS384, Their::HS384),
        (JwtAlgorithm::HS512, Their::HS512),
    ] {
        let secret: Vec<u8> = (0..64).collect();
        let token = SigningKey::secret("one", theirs, &secret).unwrap().sign(&claims()).unwrap();
        let key = JwtKey::secret(ours, &secret).unwrap();
        assert!(verify(&verifier(JwtKeys::new(vec![key]).unwrap()), &token).is_ok(), "{ours}");
    }
}

/// The oldest attack on these tokens: a public key, which everybody has, used as if it were a secret.
#[test]
fn a_public_key_is_no_secret_and_an_algorithm_is_not_the_tokens_choice() {
    for (ours, theirs) in PAIRS {
        let key = SigningKey::generate("one", theirs).unwrap();
        let verifier = verifier(of_set(&[&key], &[ours]).unwrap().keys);
        for (their, alike) in [(Their::HS256, "HS256"), (Their::HS384, "HS384"), (Their::HS512, "HS512")] {
            for secret in [key.public_pem.as_bytes(), key.public_pem.trim_end().as_bytes()] {
                let forged = SigningKey::secret("one", their, secret).unwrap().sign(&claims()).unwrap();
                assert_eq!(verify(&verifier, &forged), Err(BadToken::Invalid), "{ours} as {alike}");
            }
        }
    }
    // Rightly signed by the same key, by another algorithm of its family.
    let key = SigningKey::generate("one", Their::RS256).unwrap();
    let by_pss = JwtKey::public(JwtAlgorithm::PS256, key.public_pem.as_bytes()).unwrap();
    let by_pss = verifier(JwtKeys::new(vec![by_pss]).unwrap());
    assert_eq!(verify(&by_pss, &key.sign(&claims()).unwrap()), Err(BadToken::Invalid));
}

#[test]
fn a_kid_chooses_among_the_keys_and_nothing_else() {
    let (old, new) = (
        SigningKey::generate("old", Their::ES256).unwrap(),
        SigningKey::generate("new", Their::EdDSA).unwrap(),
    );
    let verifier = verifier(of_set(&[&old, &new], &JwtAlgorithm::ALL).unwrap().keys);
    for key in [&old, &new] {
        assert!(verify(&verifier, &key.sign(&claims()).unwrap()).is_ok());
    }
    assert_eq!(verify(&verifier, &old.sign_as(Some("new"), &claims()).unwrap()), Err(BadToken::Invalid));
    assert!(!verifier.take_unknown(), "no unknown key was named");
    assert_eq!(verify(&verifier, &old.sign_as(None, &claims()).unwrap()), Err(BadToken::Invalid));
    assert!(verifier.take_unknown(), "one of several keys, and nobody knows which: a newer set may say");
    for kid in ["gone", "", "../../etc/passwd", "'; DROP TABLE orders;--", "\0", "OLD"] {
        assert_eq!(verify(&verifier, &old.sign_as(Some(kid), &claims()).unwrap()), Err(BadToken::Invalid));
        assert!(verifier.take_unknown() && !verifier.take_unknown(), "{kid}");
    }
    let huge = "k".repeat(10_000);
    assert_eq!(verify(&verifier, &old.sign_as(Some(&huge), &claims()).unwrap()), Err(BadToken::Invalid));
    assert!(!verifier.take_unknown(), "it is not even read");
}

#[test]
fn keys_are_replaced_with_an_overlap_and_what_was_remembered_goes_with_them() {
    let (old, new) = (
        SigningKey::generate("old", Their::ES256).unwrap(),
        SigningKey::generate("new", Their::ES256).unwrap(),
    );
    let set = |keys: &[&SigningKey]| of_set(keys, &[JwtAlgorithm::ES256]).unwrap().keys;
    let verifier = verifier(JwtKeys::none());
    let (by_old, by_new) = (old.sign(&claims()).unwrap(), new.sign(&claims()).unwrap());
    assert_eq!(verify(&verifier, &by_old), Err(BadToken::NoKeys));
    verifier.replace_keys(set(&[&old]));
    assert!(verify(&verifier, &by_old).is_ok() && verify(&verifier, &by_new).is_err());
    verifier.replace_keys(set(&[&new, &old]));
    assert!(verify(&verifier, &by_old).is_ok() && verify(&verifier, &by_new).is_ok());
    verifier.replace_keys(set(&[&new]));
    assert!(verify(&verifier, &by_old).is_err() && verify(&verifier, &by_new).is_ok());
}

#[test]
fn a_remembered_token_ends_in_time() {
    let key = SigningKey::generate("one", Their::ES256).unwrap();
    let verifier = verifier(of_set(&[&key], &[JwtAlgorithm::ES256]).unwrap().keys);
    let token = key.sign(&claims()).unwrap();
    let at =
        |s: u64| verifier.verify(token.as_bytes(), Timestamp::from_ms(i64::try_from(s * 1_000).unwrap()));
    assert!(at(NOW).is_ok());
    assert!(at(NOW + 65).is_ok(), "the leeway");
    assert_eq!(at(NOW + 66), Err(BadToken::Expired));
    assert_eq!(at(NOW - 6), Err(BadToken::Expired), "and a clock that went back");
    assert!(at(NOW).is_ok());
}

#[test]
fn sets_keep_what_can_be_used_and_say_why_the_rest_is_not() {
    let key = SigningKey::generate("one", Their::RS256).unwrap();
    let with = |name: &str, value: serde_json::Value| {
        let mut jwk = key.jwk.clone();
        jwk[name] = value;
        jwk
    };
    let secret = SigningKey::secret("secret", Their::HS256, SECRET).unwrap();
    let set = json!({"keys": [
        json!({"kty": "EC", "crv": "P-256", "kid": "short", "x": "AA", "y": "AA"}),
        json!({"kty": "OKP", "crv": "Ed25519", "kid": "short", "x": "AA"}),
        with("use", json!("enc")), with("n", json!("AQAB")), with("n", json!("!")), with("alg", json!("RS512")),
        with("alg", json!("ES256")), with("kty", json!("magic")), secret.jwk, 7, key.jwk, key.jwk,
        with("kid", json!("two")),
    ]});
    let read = JwtKeys::of_jwks(set.to_string().as_bytes(), &JwtAlgorithm::ALL).unwrap();
    assert_eq!((read.keys.len(), read.passed_over.len()), (2, 11), "{:?}", read.passed_over);
    let only_ed = JwtKeys::of_jwks(set.to_string().as_bytes(), &[JwtAlgorithm::EdDSA]);
    assert_eq!(only_ed.err(), Some(UnusableKey::Number(0)));
    for text in ["", "{}", "[]", r#"{"keys":7}"#, "<html>"] {
        assert!(JwtKeys::of_jwks(text.as_bytes(), &JwtAlgorithm::ALL).is_err(), "{text}");
    }
    let many: Vec<_> = (0..101).map(|n| with("kid", json!(n.to_string()))).collect();
    let many = JwtKeys::of_jwks(json!({ "keys": many }).to_string().as_bytes(), &JwtAlgorithm::ALL);
    assert_eq!(many.err(), Some(UnusableKey::Number(101)));
}

#[test]
fn keys_that_do_not_go_together_are_refused() {
    let rsa = SigningKey::generate("one", Their::RS256).unwrap();
    let public = || JwtKey::public(JwtAlgorithm::RS256, rsa.public_pem.as_bytes()).unwrap();
    let secret = || JwtKey::hs256(SECRET).unwrap();
    for (keys, why) in [
        (vec![], UnusableKey::Number(0)),
        (vec![public(), secret().named("b".to_owned())], UnusableKey::Mixed),
        (vec![secret(), secret()], UnusableKey::Nameless),
        (
            vec![secret().named("a".to_owned()), secret().named("a".to_owned())],
            UnusableKey::Twice("a".to_owned()),
        ),
    ] {
        assert_eq!(JwtKeys::new(keys).err(), Some(why));
    }
    for algorithm in JwtAlgorithm::ALL {
        let found = JwtKey::public(algorithm, rsa.public_pem.as_bytes()).is_ok();
        assert_eq!(found, matches!(algorithm, JwtAlgorithm::RS256 | JwtAlgorithm::PS256), "{algorithm}");
        assert_eq!(algorithm.as_str().parse(), Ok(algorithm));
    }
    assert!(JwtKey::secret(JwtAlgorithm::RS256, SECRET).is_err());
    // What the issuer keeps to itself, or wraps around its key, is no public key.
    for label in ["PRIVATE KEY", "RSA PRIVATE KEY", "CERTIFICATE", "EC PRIVATE KEY"] {
        let other = rsa.public_pem.replace("PUBLIC KEY", label);
        let refused = JwtKey::public(JwtAlgorithm::RS256, other.as_bytes());
        assert_eq!(refused.err(), Some(UnusableKey::NotPem(JwtAlgorithm::RS256)), "{label}");
    }
    assert!(JwtKey::public(JwtAlgorithm::RS256, rsa.private_pem.as_bytes()).is_err());
    assert_eq!([bits(&[0, 0x80]), bits(&[0x7f, 0xff]), bits(&[]), bits(&[0])], [8, 15, 0, 0]);
    assert!("none".parse::<JwtAlgorithm>().is_err());
}

#[test]
fn weak_secrets_are_refused() {
    for weak in [&b""[..], b"secret", &[0; 64], b"abababababababababababababababababab"] {
        assert!(JwtKey::hs256(weak).is_err());
    }
    let secret: Vec<u8> = (0..63).collect();
    assert!(JwtKey::secret(JwtAlgorithm::HS384, &secret).is_ok());
    let weak = JwtKey::secret(JwtAlgorithm::HS512, &secret).err().unwrap().to_string();
    assert!(weak.contains("HS512") && weak.contains("at least 64 bytes"), "{weak}");
}
