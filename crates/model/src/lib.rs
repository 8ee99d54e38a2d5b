//! A small model of the protocol: every order of steps, and every fault at every place, within a scope.
//!
//! The simulation runs the real engine along many random paths. This does the opposite: it has none of
//! the engine's code, only the protocol's rules, and follows *all* paths that a scope has. A rule that
//! is wrong, or that somebody takes for superfluous, shows itself here as a shortest list of steps
//! that ends in a broken invariant.
//!
//! ```text
//!    calls, copies of calls           Reserve · Repeat · Publish                  gateway
//!          │
//!          ▼
//!    stock, per epoch ─► queue        Read · Commit · DeadLetter                  recorder ×2
//!          ▲               │          Confirm · NoteEnd · PublishAgain            sweeper ×2
//!          │               ▼          Expire · Cancel · Pay · Settle              closer, payer
//!    release rows ◄──── ledger        ReadRelease · Release · DeleteRelease       releaser ×2
//!          ▲               ▲
//!          └─ loader ×2 ───┘          Begin · FenceOld · ReadEnd · StoreBarrier · … · Flip · LiftFence
//!
//!    faults: Flush · Save, GoBack · LoseRecord · Duplicate, and whoever stops between two steps
//! ```
//!
//! # Reading order
//!
//! [`state`] is what there is; `actions` what can happen. Then one file per actor with its steps:
//! `gateway`, `recorder`, `sweeper`, `closer`, `payer`, `releaser`, `loader`, `faults`, on top of the
//! scripts and transactions in `stock`, `queue` and `ledger`. [`properties`] says what must hold in
//! every state, `heal` what must hold once everybody has done their work; [`planted`] breaks rules on
//! purpose, [`scopes`] says how much there is of everything.
//!
//! # What it leaves out
//!
//! One item, one bucket, one partition; two users, at most three orders and two payments. No restock,
//! no sold-out flag, no window. Time has no number: a deadline may pass, a worker may stall, and a
//! copy may arrive at any moment. No seq numbers: what they notice early, that the stock went back, any
//! process may notice here at any moment or never, since a rebuild may begin whenever the scope has one
//! left. A record is a batch. The refund of a paid order and the prolonged `hold_until` are missing. A
//! loader's call is never late behind its own next one; the other loader's is.
//!
//! The model is more hostile than the world in one place: a call that was repeated may arrive again at
//! any time, in any epoch, for ever.
//!
//! # Reading a counterexample
//!
//! `cargo test -p doorbuster-model --test scopes -- --nocapture` prints the steps in order, one a line,
//! then the last state. With one thread the path is the shortest there is, so every step matters: ask
//! of each which rule let it happen. Invariants at rest are those of the state after healing, which
//! starts where the path ends. Counting starts from 0 everywhere: epoch 0 is the first.

mod actions;
mod closer;
mod faults;
mod gateway;
mod heal;
mod ledger;
mod loader;
mod model;
mod payer;
pub mod planted;
pub mod properties;
mod queue;
mod recorder;
mod releaser;
pub mod scopes;
pub mod state;
mod stock;
mod sweeper;
pub mod witness;

pub use model::Protocol;
