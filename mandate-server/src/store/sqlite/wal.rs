//! Whether the write-ahead log is whole, before SQLite reads it.
//!
//! SQLite ends the log at the first frame without its checksum, and drops every transaction from there on. A crash can
//! leave only the last one torn, since each is synced before the next begins. So where another transaction begins behind
//! such a frame, the file has changed since it was written.
//!
//! A frame's checksum continues that of the frame before it. So a frame that continues the checksum of the end of a
//! transaction was written after that was committed, and is not left over from an earlier one that was not.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};

use crate::error::Fault;

/// The header of the log: its kind, the version of its format, the size of a page, a number, two salts, and a checksum.
const HEADER: usize = 32;
/// The header of a frame: its page, at the end of a transaction the database's pages, the salts, and a checksum.
const FRAME_HEADER: usize = 24;
/// The kind of a log. Its last bit says in which order a checksum takes the bytes of a word.
const MAGIC: u32 = 0x377f_0682;
const LARGEST_PAGE: u32 = 65_536;
/// How much is read at a time.
const READ: usize = 1 << 18;

type Checksum = (u32, u32);

/// Where a log does not have its checksum.
#[derive(Debug, PartialEq, Eq)]
struct Damage {
    /// By this, a log that was begun anew is another one.
    header: [u8; HEADER],
    /// The number of the frame, the first is 1. None for the header.
    frame: Option<u64>,
}

/// Refuses a database whose write-ahead log lacks what was committed. Other processes may write to it meanwhile.
pub(super) fn must_be_whole(path: &str) -> Result<(), Fault> {
    let name = format!("{path}-wal");
    let look = || {
        let found = match File::open(&name) {
            Ok(file) => damage(BufReader::with_capacity(READ, file)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        };
        found.map_err(|e| Fault::Unavailable(format!("database: the file {name} cannot be read: {e}")))
    };
    let Some(found) = look()? else { return Ok(()) };
    // What another process was writing is whole at a second look.
    if look()?.as_ref() != Some(&found) {
        return Ok(());
    }
    let place = found.frame.map_or("its header".to_owned(), |number| format!("its frame {number}"));
    Err(Fault::corrupt(format!(
        "database: the write-ahead log {name} is damaged: {place} does not have its checksum, and what was committed from \
         there on would be lost. Copy the database and its log elsewhere, then restore a backup: see \"the database is \
         damaged\" in operations.md"
    )))
}

/// Where what was committed is lost.
fn damage(mut log: impl Read) -> io::Result<Option<Damage>> {
    let mut header = [0; HEADER];
    if !fill(&mut log, &mut header)? {
        return Ok(None);
    }
    let Some((format, mut checksum)) = Format::of(&header) else {
        // It is synced before the first frame is written.
        return Ok(fill(&mut log, &mut [0; FRAME_HEADER])?.then_some(Damage { header, frame: None }));
    };
    let (mut head, mut page) = ([0; FRAME_HEADER], vec![0; format.page]);
    let (mut number, mut broken) = (0, None);
    // The checksum of the frame before, if that may be the end of a transaction, and is not before the broken one.
    let mut ends = Vec::new();
    while fill(&mut log, &mut head)? && fill(&mut log, &mut page)? {
        number += 1;
        let [_, pages, salt, other_salt, first, second] = words(&head);
        let (is_of_this_log, stored) = ((salt, other_salt) == format.salts, (first, second));
        if broken.is_some() {
            if is_of_this_log && ends.iter().any(|end| format.checksum(*end, &head, &page) == stored) {
                return Ok(Some(Damage { header, frame: broken }));
            }
            ends.clear();
            ends.extend((is_of_this_log && pages != 0).then_some(stored));
            continue;
        }
        let own = format.checksum(checksum, &head, &page);
        if is_of_this_log && own == stored {
            checksum = stored;
            continue;
        }
        broken = Some(number);
        if pages != 0 || format.was_an_end(checksum, head, &page, stored) {
            ends.extend([stored, own]);
        }
    }
    Ok(None)
}

/// How the frames of a log are written.
struct Format {
    order: fn([u8; 4]) -> u32,
    /// The size of a page.
    page: usize,
    salts: (u32, u32),
}

impl Format {
    /// As the header of a log says, with its checksum. None if it does not have that.
    fn of(header: &[u8; HEADER]) -> Option<(Self, Checksum)> {
        let [kind, _, page, _, salt, other_salt, first, second] = words(header);
        let order = match kind {
            MAGIC => u32::from_le_bytes,
            _ if kind == MAGIC + 1 => u32::from_be_bytes,
            _ => return None,
        };
        let page = Some(page).filter(|page| page.is_power_of_two() && *page <= LARGEST_PAGE)?;
        let format = Self { order, page: usize::try_from(page).ok()?, salts: (salt, other_salt) };
        let is_whole = format.add((0, 0), &header[..HEADER - 8]) == (first, second);
        is_whole.then_some((format, (first, second)))
    }

    fn add(&self, (mut first, mut second): Checksum, bytes: &[u8]) -> Checksum {
        for [one, other] in bytes.as_chunks().0.as_chunks().0 {
            first = first.wrapping_add((self.order)(*one)).wrapping_add(second);
            second = second.wrapping_add((self.order)(*other)).wrapping_add(first);
        }
        (first, second)
    }

    /// The checksum of a frame, which continues the one before it.
    fn checksum(&self, before: Checksum, head: &[u8; FRAME_HEADER], page: &[u8]) -> Checksum {
        self.add(self.add(before, &head[..8]), page)
    }

    /// Whether one bit more in its header makes a frame the end of a transaction, with its checksum.
    fn was_an_end(&self, before: Checksum, head: [u8; FRAME_HEADER], page: &[u8], stored: Checksum) -> bool {
        (0..32).any(|bit| {
            let mut head = head;
            head[4..8].copy_from_slice(&(1_u32 << bit).to_be_bytes());
            self.checksum(before, &head, page) == stored
        })
    }
}

/// The words of a header.
fn words<const BYTES: usize, const WORDS: usize>(header: &[u8; BYTES]) -> [u32; WORDS] {
    let mut words = header.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word));
    std::array::from_fn(|_| words.next().unwrap_or_default())
}

/// Reads as many bytes. False if there are fewer.
fn fill(log: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match log.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests;
