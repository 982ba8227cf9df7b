//! Drives the real `mandate` binary, without any network but loopback.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "these are tests")]

mod authorize;
mod events;
mod habits;
mod harness;
mod inspect;
mod issuer;
mod keys;
mod many;
mod nonces;
mod organization;
mod tls;
mod verify;
