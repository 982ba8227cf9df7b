//! What bounds the callers: rates of keys, connections of addresses, and bodies that are slow to arrive.

mod concurrency;
pub(super) mod peers;
pub(super) mod rate;
pub(super) mod slow_bodies;
