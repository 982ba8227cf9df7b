//! Background work. No answer depends on it.

pub mod backoff;
pub mod deliver;
pub mod dial;
pub mod export;
pub mod public_log;
pub mod rotate;
pub mod settle;
pub mod sweep;
