//! What the API means: scripts, each in one transaction, and the pure middle of the hot path.
//!
//! Nothing here knows of HTTP, of async, or of a particular database.

pub mod actors;
pub mod agents;
pub mod audit;
pub mod check;
pub mod console;
pub mod decide;
pub mod decisions;
pub mod deliveries;
pub mod endpoint;
pub mod enforcement;
pub mod escrows;
pub mod events;
pub mod exports;
pub mod gauges;
pub mod idempotency;
pub mod issuance;
pub mod keys;
pub mod listing;
pub mod mandates;
pub mod moments;
pub mod notices;
pub mod organizations;
pub mod outbox;
pub mod people;
pub mod public_log;
pub mod rates;
pub mod retention;
pub mod reviews;
pub mod settlements;
pub mod signing;
pub mod transfer;
pub mod usage;
pub mod webhooks;
