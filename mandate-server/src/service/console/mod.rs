//! What the console's pages show: each reads one snapshot of one environment, and nothing of it is kept.

pub mod decisions;
pub mod lists;
pub mod mandates;
pub mod queue;
pub mod review;
pub mod rules;
