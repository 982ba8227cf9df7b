//! The public logs: what was said stays said, also against the operator. One for sandboxes and one for production
//! environments, all organizations in it, in the formats of C2SP's tlog-tiles.
//!
//! - **Made**: an entry is committed with what it is about. A decision's is made where it is signed (`decide.rs`), and
//!   waits in `log_pending`; what governs is a row of `log_records` ([`governing`]); keys are in [`keys`].
//! - **Appended**: [`append`] takes what waits and writes tiles, in one transaction that holds the log's row. So each
//!   committed decision has one entry, and no size has two roots, whatever crashes and however many servers there are.
//! - **Published**: [`publish`] signs the tree's size and root, and writes that down before a witness sees it.
//!   `worker/public_log.rs` runs these in turn.
//! - **Served**: [`serve`] reads checkpoints, tiles and proofs; [`shown`] is what a page shows of them.
//!
//! Nothing here goes by a clock.

pub mod append;
mod cut;
pub mod governing;
pub mod keys;
pub mod operated;
pub mod publish;
pub mod remembered;
pub mod secrets;
mod seen;
pub mod serve;
pub mod shown;

pub use governing::Governing;
pub use remembered::Remembered;
pub use secrets::{EnvironmentSecrets, LogSecrets};
