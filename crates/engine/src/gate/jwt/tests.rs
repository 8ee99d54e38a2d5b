use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::*;
use crate::member::{Level, Profile, Region};

pub(super) const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
pub(super) const NOW: u64 = 1_800_000_000;

pub(super) fn rules() -> JwtRules {
    JwtRules {
        issuer: "shop".to_owned(),
        audience: "doorbuster".to_owned(),
        leeway: Duration::from_secs(5),
        lifetime_max: Duration::from_secs(24 * 3600),
    }
}

fn verifier() -> JwtVerifier {
    JwtVerifier::new(JwtKeys::new(vec![JwtKey::hs256(SECRET).unwrap()]).unwrap(), rules())
}

pub(super) fn claims() -> Value {
    json!({"exp": NOW + 60, "iat": NOW, "iss": "shop", "aud": "doorbuster", "sub": "alice"})
}

fn with(change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Value {
    let mut claims = claims();
    change(claims.as_object_mut().unwrap());
    claims
}

fn sign_with(header: &Header, claims: &Value, secret: &[u8]) -> String {
    encode(header, claims, &EncodingKey::from_secret(secret).unwrap()).unwrap()
}

fn sign(claims: &Value) -> String {
    sign_with(&Header::default(), claims, SECRET)
}

fn known(verifier: &JwtVerifier, token: &str) -> Result<Known, BadToken> {
    verifier.verify(token.as_bytes(), Timestamp::from_ms(i64::try_from(NOW * 1_000).unwrap()))
}

fn verify(token: &str) -> Result<UserId, BadToken> {
    known(&verifier(), token).map(|it| it.user)
}

/// A token over JSON text as it stands, rightly signed.
fn sign_text(header: &str, payload: &str) -> String {
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let signature = jsonwebtoken::crypto::sign(
        message.as_bytes(),
        &EncodingKey::from_secret(SECRET).unwrap(),
        Algorithm::HS256,
    );
    format!("{message}.{}", signature.unwrap())
}

#[test]
fn a_good_token_names_its_user() {
    assert_eq!(verify(&sign(&claims())).unwrap().as_str(), "alice");
    let audiences = with(|it| drop(it.insert("aud".into(), json!(["other", "doorbuster"]))));
    assert!(verify(&sign(&audiences)).is_ok());
}

#[test]
fn subjects_are_opaque_and_kept_byte_for_byte() {
    for subject in ["1 OR 1=1", "1}{", "*", "12345678901234567890", "１２"] {
        let token = sign(&with(|it| drop(it.insert("sub".into(), json!(subject)))));
        assert_eq!(verify(&token).unwrap().as_str(), subject);
    }
    for subject in
        [json!(""), json!("x".repeat(129)), json!("a\u{0}b"), json!(7), json!(["alice"]), json!(null)]
    {
        let token = sign(&with(|it| drop(it.insert("sub".into(), subject.clone()))));
        assert!(verify(&token).is_err(), "{subject}");
    }
}

#[test]
fn other_algorithms_and_unsigned_tokens_are_refused() {
    let payload = claims().to_string();
    for alg in ["none", "None", "nOnE", "HS512", "RS256", ""] {
        let header = format!(r#"{{"alg":"{alg}","typ":"JWT"}}"#);
        assert_eq!(verify(&sign_text(&header, &payload)), Err(BadToken::Invalid), "{alg}");
        let unsigned = format!("{}.{}.", URL_SAFE_NO_PAD.encode(&header), URL_SAFE_NO_PAD.encode(&payload));
        assert_eq!(verify(&unsigned), Err(BadToken::Invalid), "{alg} unsigned");
    }
    let hs512 = sign_with(&Header::new(Algorithm::HS512), &claims(), SECRET);
    assert_eq!(verify(&hs512), Err(BadToken::Invalid));
    let other_key = sign_with(&Header::default(), &claims(), b"another-secret-another-secret-123");
    assert_eq!(verify(&other_key), Err(BadToken::Invalid));
}

#[test]
fn times_are_whole_numbers_and_are_kept() {
    let cases = [
        ("exp", json!(NOW - 6)),
        ("exp", json!("9999999999")),
        ("exp", json!(1.5)),
        ("exp", json!(-1)),
        ("exp", json!(253_402_300_800_u64)),
        ("exp", json!(null)),
        ("nbf", json!(NOW + 6)),
        ("nbf", json!("1")),
        ("iat", json!(NOW + 6)),
        ("iat", json!("1")),
    ];
    for (claim, value) in cases {
        let token = sign(&with(|it| drop(it.insert(claim.into(), value.clone()))));
        assert!(verify(&token).is_err(), "{claim} {value}");
    }
    assert!(
        verify(&sign_text(
            r#"{"alg":"HS256"}"#,
            &claims().to_string().replace(&(NOW + 60).to_string(), "1e400")
        ))
        .is_err()
    );
    assert!(verify(&sign(&with(|it| drop(it.insert("exp".into(), json!(NOW - 5)))))).is_ok());
}

#[test]
fn every_claim_must_be_there_and_be_ours() {
    for claim in ["exp", "iat", "iss", "aud", "sub"] {
        assert!(verify(&sign(&with(|it| drop(it.remove(claim))))).is_err(), "without {claim}");
    }
    let cases = [
        ("iss", json!("shop/")),
        ("iss", json!("Shop")),
        ("aud", json!("other")),
        ("aud", json!(["other"])),
        ("aud", json!([])),
    ];
    for (claim, value) in cases {
        let token = sign(&with(|it| drop(it.insert(claim.into(), value.clone()))));
        assert_eq!(verify(&token), Err(BadToken::Invalid), "{claim} {value}");
    }
}

#[test]
fn other_kinds_of_tokens_are_refused() {
    for typ in ["id+jwt", "dbs", "admin+jwt"] {
        let header = Header { typ: Some(typ.to_owned()), ..Header::default() };
        assert_eq!(verify(&sign_with(&header, &claims(), SECRET)), Err(BadToken::Invalid), "{typ}");
    }
    let critical = sign_text(r#"{"alg":"HS256","crit":["exp"]}"#, &claims().to_string());
    assert_eq!(verify(&critical), Err(BadToken::Invalid));
}

#[test]
fn malformed_tokens_are_refused() {
    let twice = sign_text(r#"{"alg":"HS256"}"#, &claims().to_string().replacen('{', r#"{"sub":"bob","#, 1));
    let deep = sign_text(r#"{"alg":"HS256"}"#, &format!("{}1{}", "[".repeat(500), "]".repeat(500)));
    let good = sign(&claims());
    let cases = [
        twice,
        deep,
        String::new(),
        "..".to_owned(),
        format!("{good}."),
        format!(".{good}"),
        format!("{good}="),
        format!("{good}A"),
        good.replace('.', ".."),
        "x".repeat(3_000_000),
    ];
    for token in cases {
        assert!(verify(&token).is_err(), "{:.80}", token);
    }
}

/// What a token says of its user, whose claims are these and begin with the text as it stands.
fn profile(claims: &ProfileClaims, first: &str) -> Profile {
    let payload = self::claims().to_string().replacen('{', &format!("{{{first}"), 1);
    let verifier = verifier().reading(claims.clone());
    known(&verifier, &sign_text(r#"{"alg":"HS256"}"#, &payload)).unwrap().profile
}

#[test]
fn level_and_region_are_read_where_they_are_texts_of_the_chosen_claims() {
    let levels = Levels::new(["silver", "gold"]).unwrap();
    let claims =
        ProfileClaims { level: "tier".to_owned(), region: "https://shop/country".to_owned(), levels };
    for (first, level, region) in [
        ("", 0, ""),
        (r#""tier":"gold","#, 2, ""),
        (r#""tier":"silver","https://shop/country":"DE","#, 1, "DE"),
        (r#""t\u0069er":"gold","#, 2, ""),
        (r#""tier":"platin","https://shop/country":"DE","#, 0, "DE"),
        (r#""tier":"Gold","#, 0, ""),
        (r#""tier":2,"https://shop/country":"FR","#, 0, "FR"),
        (r#""tier":["gold"],"#, 0, ""),
        (r#""tier":{"tier":"gold"},"#, 0, ""),
        (r#""tier":null,"#, 0, ""),
        (r#""x":{"tier":"gold"},"#, 0, ""),
        (r#""":"gold","#, 0, ""),
        (r#""https://shop/country":"de","#, 0, ""),
        (r#""https://shop/country":"DEU","#, 0, ""),
        (r#""https://shop/country":"\u0000\u0000","#, 0, ""),
        // Which of the two counts is in doubt.
        (r#""tier":"silver","tier":"gold","https://shop/country":"DE","#, 0, ""),
    ] {
        let expected = Profile { level: Level(level), region: Region::of(region.as_bytes()) };
        assert_eq!(profile(&claims, first), expected, "{first}");
    }
    let both =
        ProfileClaims { region: "tier".to_owned(), levels: Levels::new(["DE"]).unwrap(), ..claims.clone() };
    assert_eq!(profile(&both, r#""tier":"DE","#), Profile { level: Level(1), region: Region::of(b"DE") });
    let off = ProfileClaims { level: String::new(), region: String::new(), ..claims };
    assert_eq!(profile(&off, r#""tier":"gold","":"gold","#), Profile::default());
}
