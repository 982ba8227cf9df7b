//! Reads an export with lines in any order as if the service had written it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use mandate_core::DecisionId;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::exit::{Exit, Failure};
use crate::input::Source;
use crate::lines::{Line, Lines, MAX_LINE_BYTES, unreadable};

/// The lines of a file, by position.
pub(super) struct Sorted {
    file: File,
    /// Where the file would be read next without a seek.
    at: u64,
    places: std::vec::IntoIter<Place>,
}

/// A line's position in the source, and its key in the sorted order. The help of `simulate` states its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    id: [u8; 16],
    line: u64,
    at: u64,
    length: u64,
    kind: Kind,
}

const _: () = assert!(size_of::<Place>() == 48, "the help of simulate says so");

/// The kinds of lines, in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Export,
    Mandate,
    Governing,
    Decision,
    /// The trailer, and lines of no known kind, which the reader of the lines refuses.
    Last,
}

/// The part of a line that decides its position.
#[derive(Deserialize)]
struct Shape {
    export: Option<IgnoredAny>,
    mandate: Option<IgnoredAny>,
    governing: Option<IgnoredAny>,
    decision: Option<Id>,
    number: Option<u64>,
}

#[derive(Deserialize)]
struct Id {
    jti: String,
}

impl Sorted {
    /// Reads the source once to find its lines. Standard input is copied to a temporary file first.
    pub(super) fn open(source: &Source) -> Result<Self, Failure> {
        let failed = |e: io::Error| unreadable("the export", source, &e);
        let mut file = match source {
            Source::File(path) => File::open(path).map_err(failed)?,
            Source::Stdin => copied().map_err(|e| {
                Failure::new(Exit::Io, format!("the export cannot be copied into a temporary file: {e}"))
                    .next("save it, and pass the file; or set TMPDIR to where there is room")
            })?,
        };
        let mut lines = Lines::new(Box::new(file.try_clone().map_err(failed)?));
        let (mut places, mut at) = (Vec::new(), 0_u64);
        loop {
            let mut length = 0_u64;
            let line = lines.next(|bytes| {
                length = length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            });
            let Some(line) = line.map_err(failed)? else { break };
            let (kind, id) = belongs(&line.bytes);
            places.push(Place { kind, id, line: line.number, at, length });
            at = at.saturating_add(length);
        }
        places.sort_unstable_by_key(|place| (place.kind, place.id, place.line));
        file.rewind().map_err(failed)?;
        Ok(Self { file, at: 0, places: places.into_iter() })
    }

    /// The next line.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        let Some(Place { line: number, at, length, .. }) = self.places.next() else { return Ok(None) };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_LINE_BYTES.saturating_add(2) {
            return Ok(Some(Line { number, bytes: Vec::new(), too_long: true }));
        }
        if self.at != at {
            self.file.seek(SeekFrom::Start(at))?;
        }
        let mut bytes = vec![0; length];
        self.file.read_exact(&mut bytes)?;
        self.at = at.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        for end in [b'\n', b'\r'] {
            bytes.pop_if(|last| *last == end);
        }
        Ok(Some(Line { number, bytes, too_long: false }))
    }
}

/// Copies standard input to a private temporary file.
fn copied() -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(&mut io::stdin().lock(), &mut file)?;
    file.rewind()?;
    Ok(file)
}

fn belongs(line: &[u8]) -> (Kind, [u8; 16]) {
    const NONE: [u8; 16] = [0; 16];
    match serde_json::from_slice(line) {
        Ok(Shape { export: Some(_), .. }) => (Kind::Export, NONE),
        Ok(Shape { mandate: Some(_), .. }) => (Kind::Mandate, NONE),
        Ok(Shape { governing: Some(_), number, .. }) => {
            (Kind::Governing, u128::from(number.unwrap_or_default()).to_be_bytes())
        }
        Ok(Shape { decision: Some(Id { jti }), .. }) => {
            DecisionId::parse(&jti).map_or((Kind::Last, NONE), |id| (Kind::Decision, id.to_bytes()))
        }
        _ => (Kind::Last, NONE),
    }
}
