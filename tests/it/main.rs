//! One binary of tests over real binaries and real listeners.
#![allow(clippy::arithmetic_side_effects, reason = "an overflow in a test is a failure of the test")]

mod engine;
mod harness;
