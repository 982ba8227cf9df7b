//! The logs that a log continues. Its first entry names the last checkpoint of the one before, and that one's first entry the
//! next: so the root of the newest says what all of them must be.

use mandate_core::log::{Checkpoint, Entry, SignedCheckpoint};

use super::Refused;
use super::entries::Entries;
use super::source::Source;
use crate::exit::{Exit, Failure};

/// How many logs may follow one another.
const MAX_LOGS: usize = 1_000;

/// A log at the end that the next one names.
#[derive(Debug)]
pub(crate) struct OlderLog {
    pub(crate) source: Source,
    /// Its last checkpoint, as the next one names it.
    pub(crate) named: SignedCheckpoint,
}

impl OlderLog {
    pub(crate) fn entries(&self) -> Entries<'_> {
        Entries { source: &self.source, checkpoint: self.named.checkpoint() }
    }
}

/// The logs that one continues, the newest first, as far as they can be read.
#[derive(Debug, Default)]
pub(crate) struct Older {
    pub(crate) logs: Vec<OlderLog>,
    /// Which one cannot be read, and why.
    pub(crate) unread: Option<String>,
}

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

impl Older {
    /// Those that the log of this checkpoint continues.
    pub(crate) fn of(source: &Source, checkpoint: &Checkpoint) -> Result<Self, Failure> {
        let mut older = Self::default();
        loop {
            let entries = older.logs.last().map_or(Entries { source, checkpoint }, OlderLog::entries);
            let Some(named) = named(entries)? else { break };
            let origin = named.checkpoint().origin().to_owned();
            if older.logs.len() == MAX_LOGS {
                older.unread =
                    Some(format!("the older log {origin} is not read: it is behind {MAX_LOGS} others"));
                break;
            }
            match open(entries.source, entries.checkpoint.origin(), named)? {
                Ok(log) => older.logs.push(log),
                Err(why) => {
                    older.unread = Some(format!("the older log {origin} cannot be read: {why}"));
                    break;
                }
            }
        }
        Ok(older)
    }
}

/// The log that `named` is of, beside the one that continues it; or why it cannot be read to that end.
fn open(
    next: &Source,
    next_origin: &str,
    named: SignedCheckpoint,
) -> Result<Result<OlderLog, String>, Failure> {
    let (origin, size) = (named.checkpoint().origin(), named.checkpoint().size());
    let Some(place) = next.place().beside(next_origin, origin) else {
        return Ok(Err(format!("nothing says where it is beside {}", next.place())));
    };
    let source = Source::new(place)?;
    let served = match source.checkpoint() {
        Ok(served) => SignedCheckpoint::parse(&served),
        Err(failure) if failure.exit == Exit::NotFound => return Ok(Err(failure.message().to_owned())),
        Err(failure) => return Err(failure),
    };
    // Only how far it goes is taken from there: its entries must lead to the root that is named.
    let served = served
        .map_err(|e| Refused::new(e.name(), e).of(&format!("the checkpoint at {}", source.place())))?
        .checkpoint()
        .size();
    if served < size {
        let has = format!("{} has {served} of its {size} entries", source.place());
        return Ok(Err(has));
    }
    Ok(Ok(OlderLog { source, named }))
}
