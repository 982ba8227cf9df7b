//! Limits on callers: rates of keys, connections of addresses, slow bodies, downloads, and answers that are not read.

mod concurrency;
pub(super) mod downloads;
pub(super) mod peers;
pub(super) mod rate;
pub(super) mod slow_bodies;
pub(super) mod unread;
