//! Drives the real `mandate` binary, without any network but loopback.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "these are tests")]

mod answered;
mod audit;
mod authorize;
mod events;
#[path = "../../examples/export/main.rs"]
mod export;
mod fields;
mod habits;
mod harness;
mod inspect;
mod issuer;
mod keys;
mod lists;
mod log;
mod many;
mod mcp;
mod mistakes;
mod network;
mod nonces;
mod order;
mod organization;
mod parts;
mod people;
mod proxies;
mod simulate;
mod stops;
mod template;
mod tls;
mod verify;
