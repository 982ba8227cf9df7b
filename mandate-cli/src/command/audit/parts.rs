//! The exports that are audited as one: each begins where the one before it ends.

use crate::exit::{Exit, Failure};
use crate::export::{Header, Prologue, Reader};
use crate::input::Source;

/// An export, read up to its first decision.
pub(super) struct Part<'a> {
    pub(super) source: &'a Source,
    pub(super) reader: Reader,
    pub(super) prologue: Prologue,
}

impl<'a> Part<'a> {
    /// Opens all of them.
    pub(super) fn open_all(sources: &'a [Source]) -> Result<Vec<Self>, Failure> {
        let parts = sources.iter().map(Self::open).collect::<Result<Vec<_>, _>>()?;
        for (before, part) in parts.iter().zip(parts.iter().skip(1)) {
            part.must_adjoin(before)?;
        }
        Ok(parts)
    }

    fn open(source: &'a Source) -> Result<Self, Failure> {
        let mut reader = Reader::open(source)?;
        let prologue = reader.prologue(source)?;
        Ok(Self { source, reader, prologue })
    }

    fn must_adjoin(&self, before: &Self) -> Result<(), Failure> {
        let refused = |why: String| {
            let message = format!("{} does not go on where {} ends: {why}", self.source, before.source);
            let next = "pass exports whose periods adjoin, the oldest first";
            Err(Failure::new(Exit::Usage, message).next(next))
        };
        let (Some(header), Some(earlier)) = (&self.prologue.header, &before.prologue.header) else {
            return refused("one of them has no header".to_owned());
        };
        let asked = |header: &Header| (header.environment.clone(), header.agent.clone(), header.verdict);
        if asked(header) != asked(earlier) {
            return refused("they have another environment, agent or verdict".to_owned());
        }
        match (earlier.until, header.since) {
            (Some(until), Some(since)) if until == since => Ok(()),
            (until, since) => {
                let shown = |at: Option<mandate_core::Timestamp>| {
                    at.map_or_else(|| "none".to_owned(), |at| at.to_string())
                };
                refused(format!("until is {}, and since is {}", shown(until), shown(since)))
            }
        }
    }
}

/// The header that one export of all their periods would have.
pub(super) fn spanning(parts: &[Part<'_>]) -> Option<Header> {
    let first = parts.first()?.prologue.header.clone()?;
    let last = parts.last()?.prologue.header.as_ref()?;
    Some(Header { until: last.until, last: last.last, ..first })
}
