//! What goes on beside the requests. No answer depends on it.

pub mod settle;
