//! A flash sale's load generator and independent witness.
//!
//! [`storm`] lets simulated users click: each once, at its own random moment, over real HTTP, with
//! its own token. It is an open loop: a click is due at its moment whether the server keeps up or
//! not, and latencies count from that moment. The [`Storm`] is what the clients saw. [`settle`]
//! waits until the ledger has caught up, [`balance`] holds the clients' own lists against the
//! ledger's, and the [`Report`] says whether anything was oversold, lost or sold twice. With [`live_on`] the
//! winners pay in the sandbox, cancel or abandon, and [`count_till`] holds their money against the ledger's.
//!
//! The crate knows the server by its HTTP interface alone and never reads its counters, so a fault
//! in the engine cannot hide itself here.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use doorbuster_loadtest::*;
//! # async fn rehearse() -> Result<(), Box<dyn std::error::Error>> {
//! let admin = AdminClient::new("http://127.0.0.1:8081", "admin-token")?;
//! let sale = admin.sale("1").await?;
//! let tokens = TokenSigner::with_defaults(b"the secret of the server's configuration")?;
//! let plan = Plan::new(vec!["http://127.0.0.1:8080".to_owned()], "1", 500_000, tokens);
//!
//! let storm = storm(plan, |_| {}).await?;
//! let settled = settle(&admin, "1", &storm, Duration::from_secs(30)).await?;
//! let quantities = sale.items.iter().map(|i| (i.item_id.clone(), i.quantity)).collect();
//! let limit = u64::from(sale.max_units_per_user);
//! let balance = balance(&quantities, limit, &storm, &settled.rows);
//! let report = Report::new(&storm, &balance, Audit::from(&admin.audit().await?));
//! assert!(report.verdict(), "{}", report.render());
//! # Ok(())
//! # }
//! ```
//!
//! Not here: providers of payments other than the sandbox, captchas, sale tokens and waiting rooms; a buyer that meets one of these
//! takes the refusal as final. Storms go over plain `http://` only; the [`AdminClient`] speaks TLS too.

mod admin;
mod aftermath;
mod asserts;
mod balance;
mod buyer;
mod campaign;
mod compare;
mod course;
mod cpu;
mod html;
mod latency;
mod link;
mod machine;
mod plan;
mod render;
mod report;
mod schedule;
mod storm;
mod stream;
mod tally;
mod till;
mod timeline;
mod token;
mod trust;
mod witness;

pub use admin::{AdminClient, AdminError};
pub use aftermath::{Aftermath, Life, Lived, Shares, Spent, TooManyShares, Winner, find_sandbox, live_on};
pub use asserts::{Assert, AssertError, Asserted};
pub use balance::{Balance, Settled, balance, settle};
pub use compare::{Change, Comparison, Noise, Row, Unreadable};
pub use course::Course;
pub use latency::Latency;
pub use link::UrlError;
pub use machine::Machine;
pub use plan::{MAX_CONNECTIONS, MAX_SPAN, MAX_THREADS, MAX_USERS, Plan, StormError};
pub use report::{Audit, Conditions, Report};
pub use storm::{Progress, storm};
pub use tally::SeenOrder;
pub use till::{Money, Till, count_till, till};
pub use timeline::Timeline;
pub use token::{DEFAULT_ISSUER_AND_AUDIENCE, EmptySecret, TokenSigner};
pub use witness::{Pace, Storm};
