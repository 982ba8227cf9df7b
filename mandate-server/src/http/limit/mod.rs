//! Limits on callers: rates of keys, connections of addresses, and slow bodies.

mod concurrency;
pub(super) mod peers;
pub(super) mod rate;
pub(super) mod slow_bodies;
