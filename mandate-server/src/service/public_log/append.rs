//! Appends what waits to a log, in one transaction: entries, tiles, and the new right edge of the tree.

use std::collections::BTreeMap;

use mandate_core::log::{Entry, Hash, Node, TILE_WIDTH, record_hash};
use mandate_core::{EnvironmentKind, Timestamp};
use serde::Deserialize;

use super::LogSecrets;
use crate::error::Fault;
use crate::store::sql;
use crate::store::sql::log_records::LogRecord;
use crate::store::sql::public_log::{self, ENTRIES, Pending, PublicLog, TilePlace};
use crate::store::tx::Tx;

/// How many transactions of the store one append takes at most. On SQLite nothing else is written meanwhile.
const MAX_TRANSACTIONS: i64 = 32;
/// How many governing records one append takes at most.
const MAX_RECORDS: i64 = 512;
/// How many entries the index takes at a time.
pub const RUN: u64 = 1 << 16;
/// The bytes of the length before an entry.
const LENGTH_BYTES: usize = 2;
/// The height of a tile: 2⁸ hashes.
const TILE_HEIGHT: u8 = 8;

/// Whether something waits to be appended to a log of a kind.
///
/// # Errors
/// The database fails.
pub fn waits(tx: &mut Tx<'_>, kind: EnvironmentKind) -> Result<bool, Fault> {
    Ok(!public_log::pending(tx, kind, 1)?.is_empty() || !sql::log_records::pending(tx, kind, 1)?.is_empty())
}

/// When the oldest of what waits was made: of the decisions, and of the records that are appended next.
///
/// # Errors
/// The database fails.
pub fn waits_since(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    #[derive(Deserialize)]
    struct Made {
        at: String,
    }
    let mut oldest = public_log::oldest(tx)?;
    for record in sql::log_records::next(tx, MAX_RECORDS)? {
        let made: Option<Made> = serde_json::from_str(&record).ok();
        let at = made.and_then(|made| Timestamp::parse(&made.at).ok());
        let at =
            at.ok_or_else(|| Fault::corrupt("database: a record of the public log without its instant"))?;
        oldest = Some(oldest.map_or(at, |oldest| oldest.min(at)));
    }
    Ok(oldest)
}

/// Appends to the newest log of a kind some of what waits, and says how many entries. None, if that log is stopped.
///
/// # Errors
/// The database fails, or what it has of the log is damaged.
pub fn append(tx: &mut Tx<'_>, kind: EnvironmentKind, secrets: &LogSecrets) -> Result<u64, Fault> {
    let newest = public_log::newest(tx, kind)?.id;
    public_log::hold(tx, newest)?;
    // Read again, now that it is locked.
    let mut log = public_log::newest(tx, kind)?;
    if log.id != newest || log.stopped.is_some() {
        return Ok(0);
    }
    let pending = public_log::pending(tx, kind, MAX_TRANSACTIONS)?;
    let records = sql::log_records::pending(tx, kind, MAX_RECORDS)?;
    let before = log.tree.size();
    let mut tiles = OpenTiles::new(log.id);
    for record in &records {
        tiles.append(tx, &mut log, &governing_entry(record, secrets).to_bytes())?;
        sql::log_records::logged(tx, record)?;
    }
    for waiting in &pending {
        for entry in entries(waiting)? {
            tiles.append(tx, &mut log, entry)?;
        }
        public_log::take(tx, waiting)?;
    }
    tiles.close(tx)?;
    while log.tree.size() >= log.indexed + RUN {
        index(tx, &log)?;
        log.indexed += RUN;
    }
    public_log::grow(tx, &log)?;
    Ok(log.tree.size() - before)
}

/// Begins a log with these entries.
pub(super) fn begin(tx: &mut Tx<'_>, log: &mut PublicLog, entries: &[Vec<u8>]) -> Result<(), Fault> {
    let mut tiles = OpenTiles::new(log.id);
    for entry in entries {
        tiles.append(tx, log, entry)?;
    }
    tiles.close(tx)?;
    public_log::grow(tx, log)
}

/// The entry of a governing record.
#[must_use]
pub fn governing_entry(record: &LogRecord, secrets: &LogSecrets) -> Entry {
    let secrets = secrets.environment(record.environment);
    let blind = secrets.blind.governing(record.number);
    Entry::Governing {
        tag: secrets.watch.governing(record.number),
        random: secrets.random(record.number),
        record: record_hash(&blind, record.record.as_bytes()),
    }
}

/// The entries that one transaction left.
fn entries(pending: &Pending) -> Result<Vec<&[u8]>, Fault> {
    let damaged = || Fault::corrupt(format!("database: log_pending {} ends within an entry", pending.id));
    entries_of(&pending.entries).ok_or_else(damaged)
}

/// Entries that each have their length before them. None if they end within one.
#[must_use]
pub fn entries_of(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let (mut entries, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let (entry, behind) = first_entry(rest)?;
        entries.push(entry);
        rest = behind;
    }
    Some(entries)
}

/// The first of entries that each have their length before them, and what comes behind it.
fn first_entry(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// How many bytes the first `count` entries of a bundle have. None if it does not have as many.
pub(super) fn bytes_of_entries(bundle: &[u8], count: u16) -> Option<usize> {
    let mut rest = bundle;
    for _ in 0..count {
        (_, rest) = first_entry(rest)?;
    }
    Some(bundle.len() - rest.len())
}

/// The line by which an entry of a signing key is found. None: it is another entry.
#[must_use]
pub fn key_line(index: u64, entry: &[u8]) -> Option<String> {
    match Entry::parse(entry) {
        Ok(Entry::Key(event)) => Some(format!("{index} {}\n", event.kid)),
        _ => None,
    }
}

/// The lines of the entries before `size`.
#[must_use]
pub fn key_lines(lines: &str, size: u64) -> String {
    let is_before = |line: &&str| {
        line.split_once(' ').and_then(|(index, _)| index.parse().ok()).is_some_and(|index: u64| index < size)
    };
    lines.split_inclusive('\n').filter(is_before).collect()
}

/// The tiles at the right edge, which grow.
struct OpenTiles {
    log: i64,
    tiles: BTreeMap<i64, (i64, Vec<u8>)>,
}

impl OpenTiles {
    fn new(log: i64) -> Self {
        Self { log, tiles: BTreeMap::new() }
    }

    /// Appends one entry to the log.
    fn append(&mut self, tx: &mut Tx<'_>, log: &mut PublicLog, entry: &[u8]) -> Result<(), Fault> {
        let index = log.tree.size();
        let mut hashes: Vec<(Node, Hash)> = Vec::new();
        let grown = log.tree.append(Hash::of_leaf(entry), |node, hash| {
            if node.level.is_multiple_of(TILE_HEIGHT) {
                hashes.push((node, hash));
            }
        });
        grown.map_err(|full| Fault::new(full.to_string()))?;
        if let Some(line) = key_line(index, entry) {
            log.key_entries += &line;
        }
        let length = u16::try_from(entry.len()).map_err(|_| Fault::new("a log entry is too long"))?;
        self.add(tx, ENTRIES, index, &[&length.to_be_bytes(), entry].concat())?;
        for (node, hash) in hashes {
            self.add(tx, i64::from(node.level / TILE_HEIGHT), node.index, hash.as_bytes())?;
        }
        Ok(())
    }

    /// Adds what a tile has in place `index` of its level, which is the next. A tile that is full then is written.
    fn add(&mut self, tx: &mut Tx<'_>, level: i64, index: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (tile, place) = (public_log::tile_of(index)?, index % u64::from(TILE_WIDTH));
        if place == 0 {
            self.tiles.insert(level, (tile, Vec::new()));
        } else if !self.tiles.contains_key(&level) {
            let stored = public_log::tile(tx, self.log, TilePlace { level, tile })?;
            let lost = || Fault::corrupt(format!("database: tile {tile} at level {level} of a log is lost"));
            self.tiles.insert(level, (tile, stored.ok_or_else(lost)?));
        }
        let Some((_, content)) = self.tiles.get_mut(&level) else { return Ok(()) };
        content.extend_from_slice(bytes);
        if place + 1 == u64::from(TILE_WIDTH)
            && let Some((tile, content)) = self.tiles.remove(&level)
        {
            public_log::put_tile(tx, self.log, TilePlace { level, tile }, content)?;
        }
        Ok(())
    }

    /// Writes the tiles that are not full.
    fn close(self, tx: &mut Tx<'_>) -> Result<(), Fault> {
        let mut tiles = self.tiles.into_iter();
        tiles.try_for_each(|(level, (tile, content))| {
            public_log::put_tile(tx, self.log, TilePlace { level, tile }, content)
        })
    }
}

/// Adds the next run of entries to the index.
fn index(tx: &mut Tx<'_>, log: &PublicLog) -> Result<(), Fault> {
    let run = log.indexed / RUN;
    let mut places = places(tx, log, run)?.into_iter();
    places.try_for_each(|(first, places)| public_log::put_places(tx, log.id, first, run, places))
}

/// What the index has of a run, by the first byte of the hashes.
///
/// # Errors
/// The database fails, or a bundle is damaged.
pub fn places(tx: &mut Tx<'_>, log: &PublicLog, run: u64) -> Result<BTreeMap<u8, Vec<u8>>, Fault> {
    let mut places: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
    let begins = run * RUN;
    for bundle in (begins..begins + RUN).step_by(usize::from(TILE_WIDTH)) {
        for (index, token, _) in decisions(tx, log, bundle)? {
            let Ok(place) = u16::try_from(index - begins) else { continue };
            let [first, prefix @ ..] = token.as_bytes();
            let of_first = places.entry(*first).or_default();
            of_first.extend_from_slice(prefix.get(..PREFIX_BYTES).unwrap_or_default());
            of_first.extend_from_slice(&place.to_be_bytes());
        }
    }
    Ok(places)
}

/// How many bytes of a hash, behind the first, the index has.
const PREFIX_BYTES: usize = 8;

/// Which entry is the decision with this token. Reads the index, and the entries that are not in it yet.
pub(super) fn find(tx: &mut Tx<'_>, log: &PublicLog, token: &Hash) -> Result<Option<(u64, Entry)>, Fault> {
    let [first, prefix @ ..] = token.as_bytes();
    let prefix = prefix.get(..PREFIX_BYTES).unwrap_or_default();
    let mut bundles: Vec<u64> = Vec::new();
    for (run, places) in public_log::places(tx, log.id, *first)? {
        for found in places.as_chunks::<{ PREFIX_BYTES + 2 }>().0 {
            let [of_token @ .., high, low] = found;
            if of_token == prefix {
                bundles.push(run * RUN + u64::from(u16::from_be_bytes([*high, *low])));
            }
        }
    }
    // Behind the index, the newest first: most are asked for soon.
    let mut recent: Vec<u64> = (log.indexed..log.tree.size()).step_by(usize::from(TILE_WIDTH)).collect();
    recent.reverse();
    bundles.extend(recent);
    for within in bundles {
        let found = decisions(tx, log, within)?.into_iter().find(|(_, of, _)| of == token);
        if let Some((index, _, entry)) = found {
            return Ok(Some((index, entry)));
        }
    }
    Ok(None)
}

/// The decisions in the bundle that has the entry `within`: each with its index and its token's hash.
fn decisions(tx: &mut Tx<'_>, log: &PublicLog, within: u64) -> Result<Vec<(u64, Hash, Entry)>, Fault> {
    let tile = public_log::tile_of(within)?;
    let bundle = public_log::tile(tx, log.id, TilePlace { level: ENTRIES, tile })?;
    let damaged = || Fault::corrupt(format!("database: bundle {tile} of the log {} is damaged", log.origin));
    let bundle = bundle.ok_or_else(damaged)?;
    let first = within - within % u64::from(TILE_WIDTH);
    let entries = entries_of(&bundle).ok_or_else(damaged)?.into_iter();
    let found = (first..).zip(entries).filter_map(|(index, entry)| match Entry::parse(entry) {
        Ok(entry @ Entry::Decision { token, .. }) => Some((index, token, entry)),
        _ => None,
    });
    Ok(found.collect())
}
