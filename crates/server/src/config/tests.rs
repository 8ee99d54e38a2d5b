use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use toml::Value;

use super::keys::{self, Key, Kind};
use super::{Config, schema};

fn read(environment: &[(&str, &str)], flags: &[(&str, &str)]) -> anyhow::Result<Config> {
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    Config::read(None, owned(environment), &owned(flags))
}

fn read_file(text: &str) -> anyhow::Result<Config> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("doorbuster.toml");
    std::fs::write(&path, text).unwrap();
    Config::read(Some(&path), [], &[])
}

/// Another legal value of a key than its default, from the key's own schema and kind.
fn another_value(key: &Key) -> Value {
    let pointer: String = key.name.split('.').map(|part| format!("/properties/{part}")).collect();
    let words = schema().pointer(&pointer).and_then(|node| node["enum"].as_array().cloned());
    if let Some(words) = words {
        let other =
            words.iter().filter_map(|word| word.as_str()).find(|word| key.default.as_str() != Some(word));
        return Value::String(other.unwrap().to_owned());
    }
    match (key.kind(), &key.default) {
        (Kind::Text, _)
            if ["gate.jwt.jwks_url", "gate.captcha.siteverify_url", "gate.captcha.script_url"]
                .contains(&key.name.as_str()) =>
        {
            Value::String("https://id.example/keys".to_owned())
        }
        (Kind::Text, _) => Value::String("another".to_owned()),
        (Kind::Address, _) => Value::String("127.0.0.1:9999".to_owned()),
        // The buyer waits for it too.
        (Kind::Duration, _) if key.name == "gate.captcha.timeout" => Value::String("4s".to_owned()),
        // A token that is over counts for no longer.
        (Kind::Duration, _) if key.name == "gate.jwt.leeway" => Value::String("4s".to_owned()),
        // A turn is not shorter than the grace.
        (Kind::Duration, _) if key.name == "gate.waiting_room.turn" => Value::String("4m".to_owned()),
        (Kind::Duration, _) => Value::String("77s".to_owned()),
        (Kind::Whole, Value::Integer(number)) => Value::Integer(number + 1),
        (Kind::Number, Value::Float(number)) => Value::Float(number / 2.0),
        (Kind::Switch, Value::Boolean(on)) => Value::Boolean(!on),
        // A list of words in another order: fewer of them might not do.
        (Kind::List, Value::Array(words))
            if ["server.roles", "gate.jwt.jwks_algorithms"].contains(&key.name.as_str()) =>
        {
            Value::Array(words.iter().rev().cloned().collect())
        }
        (Kind::List, _) if key.name == "events.endpoints" => {
            let one = r#"it = [{ name = "a", url = "https://b.example/", secret_file = "c", types = [] }]"#;
            toml::from_str::<toml::Table>(one).unwrap().remove("it").unwrap()
        }
        (Kind::List, _) if key.name == "gate.jwt.keys" => {
            let one = r#"it = [{ id = "a", algorithm = "RS256", secret_file = "", public_key_file = "c" }]"#;
            toml::from_str::<toml::Table>(one).unwrap().remove("it").unwrap()
        }
        (Kind::List, _) if ["server.trusted_proxies", "gate.limits.exempt"].contains(&key.name.as_str()) => {
            Value::Array(vec![Value::String("192.0.2.0/24".to_owned())])
        }
        (Kind::List, _) => Value::Array(vec![Value::String("192.0.2.1".to_owned())]),
        (kind, default) => panic!("{}: {kind:?} with the default {default}", key.name),
    }
}

/// What a value of this key cannot do without.
fn beside(name: &str) -> Vec<(String, Value)> {
    let of = |section: &str, keys: &[&str]| {
        keys.iter().map(|key| (format!("{section}.{key}"), Value::from("beside"))).collect()
    };
    match name.rsplit_once('.') {
        // It is believed of a proxy alone.
        Some(("gate", "region_header")) => {
            vec![("server.trusted_proxies".to_owned(), Value::Array(vec!["192.0.2.1".into()]))]
        }
        Some(("gate.captcha", "provider")) => of("gate.captcha", &["site_key", "secret"]),
        Some((section, "certificate_file")) if section.ends_with(".tls") => of(section, &["key_file"]),
        Some((section, "key_file")) if section.ends_with(".tls") => of(section, &["certificate_file"]),
        _ => Vec::new(),
    }
}

/// A value as the environment and flags write it.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn every_key_is_reached_by_file_environment_and_flag() {
    for key in keys::all() {
        let value = another_value(&key);
        let all = [beside(&key.name), vec![(key.name.clone(), value.clone())]].concat();
        let mut file = toml::Table::new();
        for (name, value) in &all {
            let (section, last) = name.rsplit_once('.').unwrap();
            let table = section.split('.').fold(&mut file, |table, part| {
                table.entry(part).or_insert_with(|| toml::Table::new().into()).as_table_mut().unwrap()
            });
            table.insert(last.to_owned(), value.clone());
        }
        let texts: Vec<(&str, String)> =
            all.iter().map(|(name, value)| (name.as_str(), text(value))).collect();
        let flags: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let ways = [
            ("file", read_file(&file.to_string())),
            ("environment", read(&[(&key.variable(), &text(&value))], &flags[..flags.len() - 1])),
            ("flag", read(&[], &flags)),
        ];
        for (way, config) in ways {
            let config = config.unwrap_or_else(|error| panic!("{} by {way}: {error:#}", key.name));
            let shown = toml::Table::try_from(&config).unwrap();
            let expected = match key.kind() {
                _ if super::schema::is_secret(&key.name) => Value::String("(set)".to_owned()),
                Kind::Duration if text(&value) == "77s" => Value::String("1m 17s".to_owned()),
                _ => value.clone(),
            };
            assert_eq!(keys::find(&shown, &key.name), Some(&expected), "{} by {way}", key.name);
        }
    }
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    std::fs::write(&path, "[server]\ncores = 1\nidle_timeout = \"7s\"\n[data]\ndir = \"file\"\n").unwrap();
    let environment = [("DOORBUSTER__SERVER__CORES", "2"), ("DOORBUSTER__DATA__DIR", "environment")];
    let environment = environment.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let flags = [("data.dir".to_owned(), "flag".to_owned())];
    let config = Config::read(Some(&path), environment, &flags).unwrap();
    assert_eq!(config.data.dir, Path::new("flag"));
    assert_eq!(config.server.cores, 2);
    assert_eq!(config.server.idle_timeout, Duration::from_secs(7));
}

#[test]
fn a_wrong_value_is_an_error_that_names_its_key_its_place_and_what_is_right() {
    for (key, value, says) in [
        ("server.cors", "2", "did you mean `server.cores`"),
        ("server.cores", "many", "whole number"),
        ("server.cores", "-1", "whole number of 0 or more"),
        ("server.listen", "8080", "address with a port"),
        ("server.idle_timeout", "soon", "\"500ms\""),
        ("server.idle_timeout", "30", "write \"30s\""),
        ("server.idle_timeout", "1.5", "is not a duration"),
        ("server.idle_timeout", "-3", "is not a duration"),
        ("server.idle_timeout", "0s", "longer than nothing"),
        ("log.level", "loud", "expected one of"),
        ("gate.jwt.issuer", "", "must not be empty"),
        ("data.dir", "", "must name a folder"),
        ("admin.listen", "127.0.0.1:8080", "a port each"),
        ("server.roles", "", "at least one"),
        ("server.roles", "gateway,gateway,recorder,keeper", "gateway twice"),
        ("server.roles", "gateway", "lacks recorder and keeper"),
        ("server.roles", "cashier", "expected one of `gateway`, `recorder`, `keeper`"),
        ("stock.backend", "valkey", "expected `embedded` or `redis`"),
        ("redis.response_timeout", "0s", "longer than nothing"),
        ("kafka.partitions", "0", "at least 1"),
        ("kafka.brokers", "", "must not be empty"),
        ("kafka.poll_interval_max", "5s", "from 6s to 1day"),
        ("kafka.poll_interval_max", "25h", "from 6s to 1day"),
        ("postgres.schema", "", "must not be empty"),
        ("server.tls.certificate_file", "a.pem", "`server.tls.key_file` is not"),
        ("admin.tls.key_file", "a.key", "`admin.tls.certificate_file` is not"),
        ("gate.levels", "silver,gold,silver", "two levels have the same name"),
        ("gate.levels", "very gold", "a level's name needs"),
        ("gate.levels", "a,b,c,d,e,f,g,h", "at most 7"),
        ("gate.shed_from_percent", "0", "from 1 to 99"),
        ("gate.shed_from_percent", "100", "from 1 to 99"),
        ("gate.region_header", "CF-IPCountry", "`server.trusted_proxies` names none"),
        ("gate.region_header", "CF IPCountry", "is no name of a header"),
        ("events.timeout", "0s", "longer than nothing"),
        ("events.endpoints", r#"[{ nam = "a" }]"#, "unknown field `nam`"),
        (
            "events.endpoints",
            r#"[{ name = "A", url = "https://b.example/", secret_file = "c" }]"#,
            "is no name",
        ),
        ("events.endpoints", r#"[{ name = "a", url = "https://b.example/" }]"#, "needs a secret_file"),
        (
            "events.endpoints",
            r#"[{ name = "a", url = "https://127.0.0.1/", secret_file = "c" }]"#,
            "a loopback address",
        ),
        (
            "events.endpoints",
            r#"[{ name = "a", url = "https://b.example/", secret_file = "c", types = ["order.payed"] }]"#,
            "is no type of events",
        ),
        (
            "events.endpoints",
            r#"[{ name = "a", url = "https://b.example/", secret_file = "c" }, { name = "a", url = "https://b.example/", secret_file = "c" }]"#,
            "has a twice",
        ),
    ] {
        let variable = format!("DOORBUSTER__{}", key.replace('.', "__").to_uppercase());
        for config in [read(&[(&variable, value)], &[]), read(&[], &[(key, value)])] {
            let error = format!("{:#}", config.unwrap_err());
            assert!(error.contains(key) && error.contains(says), "{error}");
        }
    }
    let error = read_file("[server]\nidle_timeout = 30\n").unwrap_err().to_string();
    assert!(error.contains("write \"30s\"") && error.contains("doorbuster.toml"), "{error}");
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let error = read(
        &[("DOORBUSTER__SERVER__CORS", "2"), ("DOORBUSTER__LOG__LEVEL", "loud")],
        &[("gate.jwt.issuer", ""), ("sale.preheat_lead", "10")],
    );
    let error = error.unwrap_err().to_string();
    for named in ["server.cors", "DOORBUSTER__LOG__LEVEL", "gate.jwt.issuer", "sale.preheat_lead"] {
        assert!(error.contains(named), "{error}");
    }
    assert_eq!(error.matches("\n  - ").count(), 4, "{error}");
}

#[test]
fn a_variable_with_single_underscores_is_not_ignored() {
    let error = read(&[("DOORBUSTER_SERVER_LISTEN", "0.0.0.0:80")], &[]).unwrap_err().to_string();
    assert!(error.contains("write DOORBUSTER__SERVER__LISTEN"), "{error}");
    // These are the command line's own.
    read(&[("DOORBUSTER_ADMIN_TOKEN_FILE", "x"), ("DOORBUSTER_CONFIG", "x")], &[]).unwrap();
}

#[test]
fn text_that_looks_like_a_number_stays_as_it_was_written() {
    let config = read(&[("DOORBUSTER__GATE__JWT__SECRET", "007e1")], &[("gate.jwt.issuer", "0010")]).unwrap();
    assert_eq!(config.gate.jwt.secret.reveal(), "007e1");
    assert_eq!(config.gate.jwt.issuer, "0010");
}

#[test]
fn a_secret_may_stand_in_a_file_named_by_every_layer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, "from-the-file\r\n").unwrap();
    let allow = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    let file = [("gate.jwt.secret_file".to_owned(), path.display().to_string())];
    for mode in [0o604, 0o606, 0o644] {
        allow(mode);
        let error = Config::read(None, [], &file).unwrap().jwt_secret().unwrap_err().to_string();
        assert!(error.contains("gate.jwt.secret_file") && error.contains("chmod 600"), "{error}");
    }
    allow(0o640);
    let path = path.display().to_string();
    for config in [
        read_file(&format!("[gate.jwt]\nsecret_file = \"{path}\"\n")),
        read(&[("DOORBUSTER__GATE__JWT__SECRET_FILE", &path)], &[]),
        read(&[], &[("gate.jwt.secret_file", &path)]),
        // The nearer layer wins, whichever of the two keys it uses.
        read(&[("DOORBUSTER__GATE__JWT__SECRET", "far")], &[("gate.jwt.secret_file", &path)]),
    ] {
        assert_eq!(config.unwrap().jwt_secret().unwrap().reveal(), "from-the-file");
    }
    let near = read(&[("DOORBUSTER__GATE__JWT__SECRET_FILE", &path)], &[("gate.jwt.secret", "near")]);
    assert_eq!(near.unwrap().jwt_secret().unwrap().reveal(), "near");
    let missing = read(&[], &[("gate.jwt.secret_file", "not-there")]).unwrap().jwt_secret().unwrap_err();
    assert!(format!("{missing:#}").contains("not-there"), "{missing:#}");
}

#[test]
fn secrets_are_never_printed() {
    let config = read(&[("DOORBUSTER__GATE__JWT__SECRET", "hush-hush-hush")], &[]).unwrap();
    assert_eq!(config.jwt_secret().unwrap().reveal(), "hush-hush-hush");
    assert!(!format!("{config:?}").contains("hush"));
    assert!(!toml::to_string(&config).unwrap().contains("hush"));
    for text in [
        "[gate.jwt]\nsecret = 424242\n",
        "[gate.jwt]\nsecret = 424242 hush\n",
        "[gate.jwt]\nsecret = hush424242\n",
    ] {
        let error = format!("{:#}", read_file(text).unwrap_err());
        assert!(!error.contains("hush") && !error.contains("4242"), "{error}");
    }
}

#[test]
fn one_issuer_signs_and_public_keys_are_not_mixed_with_secrets() {
    let https = ("gate.jwt.jwks_url", "https://id.example/jwks");
    let key = |text: &str| format!("[{{ id = \"a\", {text} }}]");
    let cases = [
        (vec![https, ("gate.jwt.secret", "x")], "choose one of the three"),
        (vec![("gate.jwt.jwks_url", "http://id.example/jwks")], "does not begin with https://"),
        (vec![("gate.jwt.jwks_url", "file:///etc/keys")], "does not begin with https://"),
        (vec![("gate.jwt.jwks_url", "https://me:pw@id.example/")], "a user or a password"),
        (vec![("gate.jwt.jwks_url", "id.example")], "is not a URL"),
        (vec![https, ("gate.jwt.jwks_algorithms", "RS256,HS256")], "could sign with a secret"),
        (vec![https, ("gate.jwt.jwks_algorithms", "")], "must name some of"),
        (vec![https, ("gate.jwt.jwks_algorithms", "none")], "gate.jwt.jwks_algorithms"),
        (vec![https, ("gate.jwt.jwks_refresh", "0s")], "longer than nothing"),
        (vec![("gate.jwt.algorithm", "RS256")], "name the public key in `gate.jwt.keys`"),
        (vec![("gate.jwt.leeway", "6s")], "at most 5s"),
    ];
    for (flags, says) in cases {
        let error = read(&[], &flags).unwrap_err().to_string();
        assert!(error.contains(says), "{flags:?}: {error}");
    }
    for (text, says) in [
        ("public_key_file = \"a.pem\"", "needs an algorithm"),
        ("algorithm = \"RS256\"", "needs a public_key_file"),
        ("algorithm = \"HS256\", public_key_file = \"a.pem\"", "needs a secret_file and no other"),
        ("algorithm = \"RS256\", public_key_file = \"a.pem\", secret_file = \"b\"", "and no other"),
        ("algorithm = \"none\", secret_file = \"b\"", "gate.jwt.keys"),
    ] {
        let error = read(&[], &[("gate.jwt.keys", &key(text))]).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    let missing =
        read(&[], &[("gate.jwt.keys", &key("algorithm = \"ES256\", public_key_file = \"not-there\""))]);
    let missing = format!("{:#}", missing.unwrap().jwt_keys().err().unwrap());
    assert!(missing.contains("not-there") && missing.contains("`a`"), "{missing}");
    assert!(read(&[], &[https]).unwrap().jwt_keys().unwrap().is_empty());
    assert!(read(&[], &[("gate.jwt.jwks_url", "http://127.0.0.1:8080/jwks")]).is_ok());
}

#[test]
fn a_captcha_of_others_has_both_its_keys_and_is_asked_in_private() {
    let turnstile = ("gate.captcha.provider", "turnstile");
    let (site, secret) = (("gate.captcha.site_key", "s"), ("gate.captcha.secret", "hush-hush"));
    for (flags, says) in [
        (vec![turnstile, site], "without turnstile's secret no answer can be judged"),
        (vec![turnstile, secret], "`gate.captcha.site_key` is missing"),
        (vec![("gate.captcha.provider", "recaptcha")], "gate.captcha.provider"),
        (vec![("gate.captcha.siteverify_url", "http://verify.example/")], "does not begin with https://"),
        (vec![("gate.captcha.script_url", "https://me:pw@script.example/")], "a user or a password"),
        (vec![("gate.captcha.timeout", "0s")], "longer than nothing"),
        (vec![("gate.captcha.timeout", "31s")], "at most 30s"),
        (vec![("gate.captcha.calls_max", "0")], "from 1 to 10000"),
    ] {
        let error = read(&[], &flags).unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains("hush"), "{flags:?}: {error}");
    }
    let good = read(&[], &[turnstile, site, secret]).unwrap();
    assert_eq!(good.captcha_secret().unwrap().reveal(), "hush-hush");
    assert!(!format!("{good:?}{}", toml::to_string(&good).unwrap()).contains("hush"));
    let missing = read(&[], &[turnstile, site, ("gate.captcha.secret_file", "not-there")]).unwrap();
    assert!(format!("{:#}", missing.captcha_secret().unwrap_err()).contains("not-there"));
}

#[test]
fn limits_and_proxies_are_networks_that_make_sense() {
    for (key, value, says) in [
        ("server.trusted_proxies", "0.0.0.0/0", "everybody may say who he is"),
        ("server.trusted_proxies", "10.0.0.0/8,::/0", "everybody may say who he is"),
        ("server.trusted_proxies", "::ffff:0.0.0.0/96", "everybody may say who he is"),
        ("server.trusted_proxies", "proxy.example", "nor an address"),
        ("gate.limits.exempt", "10.0.0.0/33", "nor an address"),
        ("gate.limits.user_burst", "0", "must be at least 1"),
        ("gate.limits.user_rate", "-1", "gate.limits.user_rate"),
    ] {
        let error = read(&[], &[(key, value)]).unwrap_err().to_string();
        assert!(error.contains(says), "{key} = {value}: {error}");
    }
    let proxies = read(
        &[],
        &[("server.trusted_proxies", "10.1.2.3, fd00::1/64, ::ffff:10.0.0.0/104, ::ffff:10.0.0.9")],
    )
    .unwrap()
    .server
    .trusted_proxies;
    assert_eq!(
        proxies.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.1.2.3/32", "fd00::/64", "10.0.0.0/8", "10.0.0.9/32"]
    );
    assert!(read(&[], &[("gate.limits.user_rate", "0"), ("gate.limits.user_burst", "0")]).is_ok());
}
