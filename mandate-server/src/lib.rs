//! The mandate service: decides whether an autonomous agent may spend money, and records and signs each decision.

pub mod admin;
pub mod app;
pub mod clock;
pub mod config;
pub mod dev;
pub mod error;
pub mod http;
pub mod logs;
pub mod metrics;
pub mod model;
pub mod outgoing;
pub mod service;
pub mod settlement;
pub mod store;
pub mod traces;
pub mod worker;
