//! One suite per trait, one function per promise; every backend runs them all.
//!
//! A backend's tests name a way to make it and call the suite's list:
//! [`stock_promises`](crate::stock_promises), [`queue_promises`](crate::queue_promises),
//! [`ledger_promises`](crate::ledger_promises), [`event_promises`](crate::event_promises),
//! [`room_promises`](crate::room_promises). A broken promise panics.

mod blocks;
pub mod events;
pub mod ledger;
pub mod queue;
pub mod room;
pub mod sample;
mod settlement;
mod staff;
pub mod stock;

use crate::fault::BackendError;

/// The answer of a backend that must not fail here.
#[track_caller]
pub(crate) fn sound<T>(result: Result<T, BackendError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("the backend failed: {}", error.chain()),
    }
}
