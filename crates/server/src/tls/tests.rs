use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use doorbuster_engine::clock::{Clock, ManualClock, Timestamp};
use doorbuster_engine::workers::{Step, Worker};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use super::renew::{Looked, News};
use super::{Acceptor, Acceptors, Files, Renewer};
use crate::config::Config;

/// 2100-01-01T00:00:00Z.
const CENTURY: Timestamp = Timestamp::from_ms(4_102_444_800_000);
const NOW: Timestamp = Timestamp::from_ms(1_795_766_400_000);

/// A folder with a listener's two files.
struct Folder(tempfile::TempDir);

/// A certificate that ends with `year`'s first day, and its key, in PEM.
fn made(year: i32) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["shop.test".to_owned()]).unwrap();
    params.not_after = date_time_ymd(year, 1, 1);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

impl Folder {
    /// With a good pair.
    fn good() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.put(&made(2100));
        folder
    }

    fn cert(&self) -> PathBuf {
        self.0.path().join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("key.pem")
    }

    fn put(&self, (cert, key): &(String, String)) {
        std::fs::write(self.cert(), cert).unwrap();
        std::fs::write(self.key(), key).unwrap();
        self.allow(0o640);
    }

    fn allow(&self, mode: u32) {
        std::fs::set_permissions(self.key(), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn config(&self, more: &[(&str, &str)]) -> Config {
        let path = |path: PathBuf| path.display().to_string();
        let own =
            [("server.tls.certificate_file", path(self.cert())), ("server.tls.key_file", path(self.key()))];
        let more = more.iter().map(|(key, value)| (*key, (*value).to_owned()));
        let flags: Vec<_> = own.into_iter().chain(more).map(|(key, value)| (key.to_owned(), value)).collect();
        Config::read(None, [], &flags).unwrap()
    }

    fn files(&self) -> Files {
        let [public, staffs] = Files::of_listeners(&self.config(&[]));
        assert!(staffs.is_none());
        public.unwrap()
    }

    fn refusal(&self) -> String {
        format!("{:#}", self.files().read().err().unwrap())
    }
}

#[test]
fn a_pair_is_read_with_the_end_of_the_certificate_that_ends_first() {
    let folder = Folder::good();
    let alone = folder.files().read().unwrap();
    assert_eq!(alone.ends(), CENTURY);
    // One between it and the authority, which ends sooner.
    let mut chain = std::fs::read_to_string(folder.cert()).unwrap();
    chain.push_str(&made(2050).0);
    std::fs::write(folder.cert(), chain).unwrap();
    let chain = folder.files().read().unwrap();
    assert_eq!(chain.ends(), Timestamp::from_ms(2_524_608_000_000));
    assert!(!chain.is_same_as(&alone) && chain.is_same_as(&folder.files().read().unwrap()));
}

#[test]
fn files_that_cannot_be_used_are_refused_with_what_to_do_and_without_what_is_in_them() {
    let ((cert, key), (other, other_key)) = (made(2100), made(2100));
    let locked = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let spoilt = cert.replace("MII", "AAA");
    let cases = [
        ((cert.clone(), other_key.clone()), "is not that of the first certificate"),
        ((format!("{other}{cert}"), key.clone()), "the server's own certificate first"),
        ((String::new(), key.clone()), "no certificate in PEM"),
        ((key.clone(), key.clone()), "no certificate in PEM"),
        ((cert[..cert.len() / 2].to_owned(), key.clone()), "no certificate in PEM"),
        ((spoilt, key.clone()), "no certificate in PEM"),
        ((cert.clone(), String::new()), "no private key in PEM"),
        ((cert.clone(), cert.clone()), "no private key in PEM"),
        ((cert.clone(), locked), "without a password"),
        ((cert.clone(), key[..key.len() / 2].to_owned()), "no private key in PEM"),
    ];
    for (pair, says) in cases {
        let folder = Folder::good();
        folder.put(&pair);
        let error = folder.refusal();
        assert!(error.contains("server.tls.") && error.contains(says), "{says}: {error}");
        let inside = key.lines().nth(1).unwrap();
        assert!(!error.contains(&inside[..8]), "{error}");
    }
    let folder = Folder::good();
    for mode in [0o604, 0o644, 0o602] {
        folder.allow(mode);
        let error = folder.refusal();
        assert!(error.contains("server.tls.key_file") && error.contains("chmod 600"), "{error}");
    }
    std::fs::remove_file(folder.key()).unwrap();
    assert!(folder.refusal().contains("key.pem (server.tls.key_file) cannot be read"));
    std::fs::remove_file(folder.cert()).unwrap();
    assert!(folder.refusal().contains("cert.pem (server.tls.certificate_file) cannot be read"));
}

#[test]
fn a_listener_that_this_process_does_not_have_needs_no_files() {
    let folder = Folder::good();
    std::fs::remove_file(folder.cert()).unwrap();
    assert!(Acceptors::open(&folder.config(&[]), NOW).is_err());
    let servers = [("stock.backend", "redis"), ("queue.backend", "kafka"), ("ledger.backend", "postgres")];
    let keeper = [&servers[..], &[("server.roles", "keeper")]].concat();
    assert!(Acceptors::open(&folder.config(&keeper), NOW).unwrap().shown().is_empty());
}

#[test]
fn a_certificate_that_is_over_does_not_keep_a_server_from_starting() {
    let folder = Folder::good();
    folder.put(&made(2020));
    let acceptors = Acceptors::open(&folder.config(&[]), NOW).unwrap();
    assert!(acceptors.shown()[0].pair().ends() < NOW);
}

/// What a listener shows from a folder, and its files as the looks found them.
fn looked(folder: &Folder) -> Looked {
    let acceptor = Acceptor::open("public", folder.files(), NOW).unwrap();
    Looked::at(acceptor.shown())
}

#[test]
fn a_new_pair_is_shown_and_told_once() {
    let folder = Folder::good();
    let mut looked = looked(&folder);
    let look = |looked: &mut Looked| looked.judge(folder.files().read(), NOW);
    assert_eq!(look(&mut looked), News::None);
    folder.put(&made(2050));
    assert_eq!(look(&mut looked), News::Taken(Timestamp::from_ms(2_524_608_000_000)));
    assert_eq!(look(&mut looked), News::None);
    assert_eq!(looked.shown.pair().ends(), Timestamp::from_ms(2_524_608_000_000));
}

#[test]
fn what_cannot_be_used_leaves_what_was_good_and_is_told_once() {
    let folder = Folder::good();
    let (first, second) = (made(2050), made(2060));
    folder.put(&first);
    let mut looked = looked(&folder);
    let shown = Arc::clone(&looked.shown);
    let look = |looked: &mut Looked| looked.judge(folder.files().read(), NOW);
    // The files of a renewal come one after the other: that alone is told to nobody, but can be seen.
    std::fs::write(folder.cert(), &second.0).unwrap();
    assert_eq!(look(&mut looked), News::None);
    assert!(shown.is_unusable());
    // Left so, it is.
    let News::Unusable(why) = look(&mut looked) else { panic!("not told") };
    assert!(why.contains("is not that of the first certificate"), "{why}");
    for _ in 0..10 {
        assert_eq!(look(&mut looked), News::None);
    }
    // Another fault is told anew, and so is a certificate that is over.
    folder.allow(0o644);
    assert!(matches!(look(&mut looked), News::Unusable(why) if why.contains("chmod 600")));
    folder.put(&made(2020));
    assert!(matches!(look(&mut looked), News::Unusable(why) if why.contains("renew it")));
    assert_eq!(shown.pair().ends(), Timestamp::from_ms(2_524_608_000_000));
    assert!(shown.is_unusable());

    folder.put(&first);
    assert_eq!(look(&mut looked), News::Mended);
    assert!(!shown.is_unusable());
    folder.put(&second);
    assert!(matches!(look(&mut looked), News::Taken(_)));
}

#[tokio::test]
async fn a_step_of_the_renewer_looks_at_every_listener_and_is_idle_when_nothing_is_new() {
    let (public, staffs) = (Folder::good(), Folder::good());
    let path = |path: PathBuf| path.display().to_string();
    let config = public.config(&[
        ("admin.tls.certificate_file", &path(staffs.cert())),
        ("admin.tls.key_file", &path(staffs.key())),
    ]);
    let shown = Acceptors::open(&config, NOW).unwrap().shown();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(NOW));
    let mut renewer = Renewer::of(&shown, &clock).unwrap();
    assert_eq!(renewer.step().await.unwrap(), Step::Idle);
    staffs.put(&made(2050));
    assert_eq!(renewer.step().await.unwrap(), Step::Worked(1));
    assert_eq!(renewer.step().await.unwrap(), Step::Idle);
    let ends: Vec<_> = shown.iter().map(|shown| shown.pair().ends()).collect();
    assert_eq!(ends, [CENTURY, Timestamp::from_ms(2_524_608_000_000)]);
    assert!(Renewer::of(&[], &clock).is_none());
}
