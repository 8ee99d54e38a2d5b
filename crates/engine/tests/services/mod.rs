//! The real servers that tests run against, by the names under which the test command hands them over.

/// The address of a server: `REDIS` and `POSTGRES` are URLs, `KAFKA` is a list of brokers. Tests use
/// prefixes, schemas and topics of their own there. A missing server is a failure, never a skip.
pub(crate) fn address_of(service: &str) -> String {
    let variable = format!("DOORBUSTER_TEST_{service}_URL");
    std::env::var(&variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run these tests by `cargo xtask test`, or start the servers with \
             `cargo xtask services up` and set what it prints"
        )
    })
}

/// A word of its own for each test, to prefix keys with or to name schemas and topics by.
pub(crate) fn own_name(what: &str) -> String {
    format!("{what}_{:016x}", rand::random::<u64>())
}
