//! What every line of an export is checked against.

use mandate_core::jwks::KeySet;

use crate::export::{Header, Mandates, People};

/// What every line is checked against.
#[derive(Clone, Copy)]
pub(super) struct Auditor<'a> {
    pub(super) issuers: &'a [String],
    pub(super) keys: &'a KeySet,
    pub(super) header: Option<&'a Header>,
    pub(super) mandates: &'a Mandates,
    pub(super) people: &'a People,
    /// The number of the export's newest governing record.
    pub(super) newest: u64,
}
