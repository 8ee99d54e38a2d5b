//! What failure scenarios stand on: the [`books`] as they stand outside the product, read from
//! PostgreSQL and Redis themselves.
//!
//! The crate never imports the engine or the server. What it knows of the product is its tables and
//! its keys, read by decoders of its own, so that a fault in the product cannot hide itself here.

pub mod books;
mod ids;

pub use ids::{ItemId, OrderId, SaleId};
