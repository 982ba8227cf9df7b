//! One binary of tests over real binaries and real listeners.
//!
//! `tests/run` installs what they need and builds the binaries; after that `cargo nextest run --workspace` does too.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "what cannot go on is a failed test"
)]

mod harness;

mod agents;
mod authorizations;
mod beside;
mod browser;
mod cli;
mod clocks;
mod concurrency;
mod console;
mod crash;
mod data;
mod decisions;
mod deliveries;
mod descriptors;
mod enforcement;
mod engine;
mod export;
mod faults;
mod first_command;
mod flow;
mod full_disks;
mod generated;
mod javascript;
mod jwks;
mod killed;
mod layers;
mod library;
mod load;
mod log_strangers;
mod mandates;
mod mcp;
mod operations;
mod operators;
mod packaging;
mod pages;
mod plots;
mod postgres;
mod recipes;
mod reviews;
mod serving;
mod signing_keys;
mod strangers;
mod tidy;
mod transfer;
mod unlooked;
mod unread;
mod x402;
