//! The logs that a log continues. Its first entry names the last checkpoint of the one before, and that one's first entry the
//! next: so the root of the newest says what all of them must be.

use mandate_core::log::{Entry, SignedCheckpoint};

use super::entries::Entries;
use crate::exit::Failure;

/// The checkpoint that the first entry of a log names. None: it continues no other.
pub(crate) fn named(entries: Entries<'_>) -> Result<Option<SignedCheckpoint>, Failure> {
    if entries.checkpoint.size() == 0 {
        return Ok(None);
    }
    let (entry, _) = entries.entry(0)?;
    Ok(match Entry::parse(&entry) {
        Ok(Entry::OlderLog(named)) => Some(named),
        _ => None,
    })
}
