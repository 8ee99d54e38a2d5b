//! The real servers that tests run against, by the names under which the test command hands them over.

/// The URL of a Redis that tests may fill and empty under prefixes of their own.
pub fn redis_url() -> String {
    named("DOORBUSTER_TEST_REDIS_URL")
}

/// The URL of a PostgreSQL database in which tests make schemas of their own.
pub fn postgres_url() -> String {
    named("DOORBUSTER_TEST_POSTGRES_URL")
}

/// The bootstrap brokers of a Kafka in which tests make topics of their own.
pub fn kafka_brokers() -> String {
    named("DOORBUSTER_TEST_KAFKA_URL")
}

/// A word of its own for each test, to prefix keys with or to name schemas and topics by.
pub fn own_name(what: &str) -> String {
    format!("{what}_{:016x}", rand::random::<u64>())
}

/// A missing server is a failure, never a skip.
fn named(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run these tests by `cargo xtask test`, or start the servers with `cargo xtask services up` and set what it prints")
    })
}
