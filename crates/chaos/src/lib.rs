//! What failure scenarios stand on: buyers who write down what they asked and heard, the books as
//! they stand outside the product, and a checker that holds the one against the other.
//!
//! A [`proxy`] breaks connections at chosen requests; [`buyers`] click over real HTTP and keep a
//! [`history`]; [`books`] reads PostgreSQL and Redis themselves; [`checker::check`] says which of the protocol's invariants I1 to I20 the two together
//! disprove. (I21 is about the embedded log, which nobody outside can read: it is the product's own
//! audit and kill tests that show it.)
//!
//! The crate never imports the engine or the server. What it knows of the product is its HTTP
//! contract, its tables and its keys, read by decoders of its own, so that a fault in the product
//! cannot hide itself here.

pub mod books;
pub mod buyers;
pub mod checker;
pub mod history;
mod ids;
pub mod proxy;

pub use ids::{ItemId, OrderId, SaleId};
