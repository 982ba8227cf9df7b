//! What goes on beside the requests. No answer depends on it.

pub mod export;
pub mod settle;
pub mod sweep;
