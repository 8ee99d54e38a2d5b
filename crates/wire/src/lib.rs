//! The request and response types of Doorbuster's HTTP API: JSON shapes, nothing else.
//!
//! Rules that hold for every type here:
//! - ids of sales and items are 64-bit integers written as **strings**, orders are UUIDs;
//! - money is an integer of minor units with its ISO 4217 currency ([`Money`]);
//! - times are RFC 3339 in UTC with milliseconds, as strings;
//! - members are added, never renamed or removed.

mod admin;
mod blocks;
mod events;
mod refunds;
mod shop;
mod staff;

pub use admin::*;
pub use blocks::*;
pub use events::*;
pub use refunds::*;
pub use shop::*;
pub use staff::*;
