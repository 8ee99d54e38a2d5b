//! Private servers of other makers: a Redis, a PostgreSQL, a Kafka for tests and for trying things out.
//!
//! Each runs on free ports of the loopback, in a folder of its own below the system's temporary folder.
//! A [`Server`] is one service, made of nodes: processes that can be killed, frozen and started again
//! where they were. It ends with its value and its folder goes with it, unless it is [kept](Server::keep)
//! for a later command.
//!
//! With the feature `issuer` there is an identity provider too, and with `judge` a provider of captchas, which run in
//! the test's own process.
//!
//! Read [`server`] first, then one of [`redis_server`], [`postgres`] and [`kafka`], which know how each is set up.

mod certificates;
pub mod command;
mod disk;
#[cfg(any(feature = "issuer", feature = "judge"))]
mod http;
#[cfg(feature = "issuer")]
pub mod issuer;
#[cfg(feature = "judge")]
pub mod judge;
pub mod kafka;
mod launch;
pub mod postgres;
mod process;
pub mod redis_server;
pub mod server;

pub use disk::SmallDisk;
pub use launch::{await_true, free_ports};
pub use process::Process;
pub use server::Server;
