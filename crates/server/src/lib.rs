//! The doorbuster server: HTTP in front of the engine, pages, command line, configuration.
//!
//! Reading order: [`app`] starts and stops everything, [`hot`] is the public listener with the
//! purchase path, [`api`] the buyers' other routes, [`admin`] the staff's, [`cli`] the commands.

mod accepting;
pub mod admin;
pub mod api;
pub mod app;
pub mod backend;
pub mod cli;
pub mod config;
pub mod directory;
mod docs;
pub mod hot;
mod identity;
mod metrics;
mod outgoing;
mod pages;
mod payments;
mod problem;
mod purchase;
mod request_id;
mod signature;
mod siteverify;
mod telemetry;
mod tls;
mod views;

pub use purchase::wish;
