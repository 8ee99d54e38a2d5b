//! The listeners' certificates: whether they can be used, and how long.

use std::time::Duration;

use doorbuster_engine::clock::Timestamp;

use super::Check;
use crate::config::Config;
use crate::tls::Files;

const NAME: &str = "certificate";
/// Whoever renews certificates does it earlier than so long before the end: by itself, it did not happen.
const SOON: Duration = Duration::from_secs(14 * DAY);
const DAY: u64 = 24 * 3_600;

/// What can be said of each listener that has TLS.
pub(in crate::cli) fn certificates(config: &Config, now: Timestamp) -> Vec<Check> {
    Files::of_listeners(config).iter().flatten().map(|files| certificate(files, now)).collect()
}

fn certificate(files: &Files, now: Timestamp) -> Check {
    let section = files.section;
    let pair = match files.read() {
        Ok(pair) => pair,
        Err(error) => {
            let found = format!("{error:#}");
            // The message ends with what to do.
            let (found, remedy) = found.split_once(": ").unwrap_or((&found, "see docs/security.md"));
            return Check::fail(NAME, found, remedy);
        }
    };
    let remedy =
        "renew it, and look why that did not happen by itself; a running server takes it without a restart";
    let (left, end) = (pair.ends().since(now), crate::views::time(pair.ends()));
    if left.is_zero() {
        return Check::fail(NAME, format!("that of {section} is over since {end}"), remedy);
    }
    let found = format!("that of {section} ends in {} days, at {end}", left.as_secs() / DAY);
    if left < SOON { Check::warn(NAME, found, remedy) } else { Check::ok(NAME, found) }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::super::Level;
    use super::*;

    #[test]
    fn a_certificate_is_fine_near_its_end_over_or_of_no_use() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let pair = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["shop.test".to_owned()]).unwrap();
        params.not_after = date_time_ymd(2030, 1, 1);
        std::fs::write(&cert, params.self_signed(&pair).unwrap().pem()).unwrap();
        let ends = Timestamp::from_ms(1_893_456_000_000);
        let write_key = |key_pem: &str| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::write(&key, key_pem).unwrap();
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        write_key(&pair.serialize_pem());
        let flags = [("admin.tls.certificate_file", &cert), ("admin.tls.key_file", &key)];
        let flags = flags.map(|(key, path)| (key.to_owned(), path.display().to_string()));
        let config = Config::read(None, [], &flags).unwrap();
        let check = |now| certificates(&config, now).remove(0);
        for (days, level, says) in [
            (90, Level::Ok, "that of admin.tls ends in 90 days, at 2030-01-01T00:00:00.000Z"),
            (13, Level::Warn, "ends in 13 days"),
            (0, Level::Fail, "is over since"),
        ] {
            let found = check(ends.minus(Duration::from_secs(days * DAY)));
            assert!(found.level == level && found.found.contains(says), "{found:?}");
            assert_eq!(found.remedy.is_none(), level == Level::Ok);
        }
        write_key(&KeyPair::generate().unwrap().serialize_pem());
        let found = check(ends.minus(SOON));
        assert!(found.level == Level::Fail && found.found.contains("is not that of the first"), "{found:?}");
        assert!(found.remedy.unwrap().contains("name two files of one pair"));
        assert!(certificates(&Config::read(None, [], &[]).unwrap(), ends).is_empty());
    }
}
