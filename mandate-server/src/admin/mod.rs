//! The operator's commands: one transaction each, beside a server that may be running.

pub mod organization;
