//! Doorbuster's pipeline: gate, stock, queue, ledger, and the workers between them.
//!
//! ```text
//! buyer ─► gate ─► stock ─► queue ─► ledger
//!          98 % end here   permits  transport  the truth
//! ```

pub mod audit;
pub mod block;
pub mod clock;
pub mod conformance;
pub mod delivery;
pub mod engine;
pub mod fault;
pub mod fault_points;
pub mod gate;
pub mod ledger;
pub mod member;
pub mod my_orders;
pub mod observed;
pub mod operate;
pub mod order;
pub mod queue;
#[cfg(feature = "distributed")]
mod redis_links;
pub mod room;
pub mod sale;
pub mod stock;
pub mod switches;
pub mod told;
pub mod workers;
