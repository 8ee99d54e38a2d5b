//! Key sets of an identity provider: whatever it offers, a set is read or refused as a whole, each of its
//! keys is used or passed over with a reason, and nothing that stands in the set lets anybody in.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doorbuster_engine::clock::Timestamp;
use doorbuster_engine::gate::{JwtAlgorithm, JwtKeys, JwtRules, JwtVerifier};
use serde_json::{Value, json};

use crate::token::hmac;

const PUBLIC: [JwtAlgorithm; 5] =
    [JwtAlgorithm::RS256, JwtAlgorithm::PS256, JwtAlgorithm::ES256, JwtAlgorithm::ES384, JwtAlgorithm::EdDSA];

pub(crate) fn run(bytes: &[u8]) {
    let Ok(read) = JwtKeys::of_jwks(bytes, &PUBLIC) else { return };
    let set: Value = serde_json::from_slice(bytes).expect("what is no JSON was taken for a set");
    let offered = set["keys"].as_array().expect("what has no keys was taken for a set");
    assert!(!read.keys.is_empty(), "a set without a key was taken");
    assert_eq!(read.keys.len() + read.passed_over.len(), offered.len());
    let rules = JwtRules {
        issuer: "shop".into(),
        audience: "doorbuster".into(),
        leeway: Duration::from_secs(5),
        lifetime_max: Duration::from_secs(86_400),
    };
    let verifier = JwtVerifier::new(read.keys, rules);
    let claims = json!({"sub": "eve", "iss": "shop", "aud": "doorbuster", "iat": 100, "exp": 200});
    for jwk in offered {
        for algorithm in JwtAlgorithm::ALL {
            let header = json!({"alg": algorithm.as_str(), "kid": jwk["kid"], "jwk": jwk});
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let said = format!("{}.{}", part(&header), part(&claims));
            let mut signatures = vec![String::new(), "c2ln".to_owned(), URL_SAFE_NO_PAD.encode([0; 64])];
            // As if what stands in the set were a secret: its members, decoded and as they are, and all of it.
            let members = ["k", "n", "x", "y", "e"].iter().filter_map(|name| jwk[name].as_str());
            let secrets = members.flat_map(|text| {
                [URL_SAFE_NO_PAD.decode(text).unwrap_or_default(), text.as_bytes().to_vec()]
            });
            let secrets = secrets.chain([jwk.to_string().into_bytes(), bytes.to_vec()]);
            signatures.extend(secrets.map(|secret| URL_SAFE_NO_PAD.encode(hmac(&secret, said.as_bytes()))));
            for signature in signatures {
                let token = format!("{said}.{signature}");
                let user = verifier.verify(token.as_bytes(), Timestamp::from_ms(150_000));
                assert!(user.is_err(), "{token} was let in");
            }
        }
    }
}
