//! Checks the public logs: the tree is that of the entries, and each row has its entry.

mod damaged;
mod granted;
mod logged;
mod registered;
mod reviewed;
mod signing_keys;

use std::collections::BTreeMap;

use mandate_core::log::{
    CheckpointUntrusted, Entry, Frontier, HASH_BYTES, Hash, SignedCheckpoint, TILE_WIDTH, VerifierKey,
    decision_record, record_hash, token_hash,
};
use mandate_core::{EnvironmentKind, Timestamp};

use self::damaged::Damaged;
use self::granted::Granted;
use self::logged::{Logged, Named};
use self::registered::Registered;
use self::reviewed::Reviewed;
use self::signing_keys::LoggedKeys;
use super::{Finding, Listener, MAX_FINDINGS, shown};
use crate::error::Fault;
use crate::service::decisions;
use crate::service::public_log::append::{self, RUN, entries_of, governing_entry};
use crate::service::public_log::{LogSecrets, publish};
use crate::store::sql;
use crate::store::sql::check::{IdKind, each};
use crate::store::sql::decisions::Whole;
use crate::store::sql::environments::EnvironmentRecord;
use crate::store::sql::public_log::{self as rows, ENTRIES, PublicLog, TilePlace};
use crate::store::tx::Tx;

const TABLE: &str = "logs";
/// How many rows are read at a time.
const PAGE: i64 = 1_000;

pub(super) fn walk(
    tx: &mut Tx<'_>,
    secrets: Option<&LogSecrets>,
    listener: &mut dyn Listener,
) -> Result<(), Fault> {
    let environments = sql::environments::all(tx)?;
    let damaged = Damaged::read(tx)?;
    for kind in EnvironmentKind::ALL {
        let mut decided = Vec::new();
        let (mut governed, mut logged_keys) = (Vec::new(), LoggedKeys::default());
        // The oldest first, so that what happened to a key comes in its order.
        for log in rows::of_kind(tx, kind)?.into_iter().rev() {
            tree(tx, &log, listener, &mut |entry| match entry {
                Entry::Decision { .. } => decided.extend(Named::of(entry, secrets.is_some())),
                Entry::Governing { .. } => governed.extend(Named::of(entry, secrets.is_some())),
                Entry::Key(event) => logged_keys.take(event),
                Entry::OlderLog(_) => {}
            })?;
        }
        waiting(tx, kind, &mut |entry| match entry {
            Entry::Decision { .. } => decided.extend(Named::of(&entry, secrets.is_some())),
            Entry::Key(event) => logged_keys.take(&event),
            Entry::Governing { .. } | Entry::OlderLog(_) => {}
        })?;
        logged_keys.compare(tx, kind, listener)?;
        let (mut decided, mut governed) = (Logged::new(decided), Logged::new(governed));
        for environment in environments.iter().filter(|environment| environment.kind == kind) {
            let reviewed = if let Some(secrets) = secrets {
                Some(compare_records(tx, (environment, secrets), (&mut governed, &damaged), listener)?)
            } else {
                granted::look(tx, environment.environment, &damaged, listener)?;
                None
            };
            compare_decisions(tx, (environment, secrets), (&mut decided, reviewed), listener)?;
        }
        if secrets.is_some() {
            // These rows are never deleted.
            let without = governed.without_a_row();
            if without > 0 {
                let found = format!("{without} entries of governing records that are not there");
                listener.finding(Finding::whole(TABLE, found, "none"));
            }
        }
        let closed = sql::check::closed_rows(tx, kind)?;
        let without = decided.without_a_row();
        if without > closed {
            let found = format!("{without} entries of decisions that are not there");
            listener.finding(Finding::whole(TABLE, found, format!("at most {closed}, of closed months")));
        }
    }
    Ok(())
}

/// Reads all entries of a log, and compares its tiles and checkpoints with the tree that they make.
fn tree(
    tx: &mut Tx<'_>,
    log: &PublicLog,
    listener: &mut dyn Listener,
    take: &mut dyn FnMut(&Entry),
) -> Result<(), Fault> {
    let wrong = |found: String, expected: &str| Finding {
        id: Some(log.origin.clone()),
        ..Finding::whole(TABLE, found, expected)
    };
    let (size, checkpoints) = (log.tree.size(), checkpoints(log, listener)?);
    let (mut grown, mut keys) = (Frontier::default(), String::new());
    let mut tiles: BTreeMap<i64, (i64, Vec<u8>)> = BTreeMap::new();
    while grown.size() < size {
        let first = grown.size();
        let tile = rows::tile_of(first)?;
        let bundle = rows::tile(tx, log.id, TilePlace { level: ENTRIES, tile })?.unwrap_or_default();
        let Some(entries) = entries_of(&bundle) else {
            listener.finding(wrong(format!("bundle {tile} that ends within an entry"), "whole entries"));
            return Ok(());
        };
        for bytes in &entries {
            keys.extend(append::key_line(grown.size(), bytes));
            grow(&mut grown, bytes, &mut tiles);
            let of_size = |signed: &&SignedCheckpoint| signed.checkpoint().size() == grown.size();
            let is_other = |signed: &SignedCheckpoint| grown.root() != *signed.checkpoint().root();
            if checkpoints.iter().filter(of_size).any(is_other) {
                let found = format!("another root at {} than its checkpoint has", grown.size());
                listener.finding(wrong(found, "the tree that was signed"));
            }
            match Entry::parse(bytes) {
                Ok(entry) => take(&entry),
                Err(e) => listener.finding(wrong(format!("entry {}: {e}", grown.size() - 1), "an entry")),
            }
        }
        let full = grown.size() == first + u64::from(TILE_WIDTH);
        if !full && grown.size() != size {
            listener.finding(wrong(format!("{} entries in bundle {tile}", entries.len()), "256 entries"));
            return Ok(());
        }
        for (level, (tile, hashes)) in &mut tiles {
            let is_full = hashes.len() == usize::from(TILE_WIDTH) * HASH_BYTES;
            if hashes.is_empty() || !(is_full || grown.size() == size) {
                continue;
            }
            let place = TilePlace { level: *level, tile: *tile };
            if rows::tile(tx, log.id, place)?.as_ref() != Some(hashes) {
                listener.finding(wrong(
                    format!("other hashes in tile {tile} at level {level}"),
                    "those of its entries",
                ));
            }
            *tile += 1;
            hashes.clear();
        }
    }
    if grown != log.tree {
        listener.finding(wrong("another right edge of the tree".to_owned(), "that of its entries"));
    }
    if keys != log.key_entries {
        listener.finding(wrong("other places of keys".to_owned(), "those of the entries of signing keys"));
    }
    if let Some(found) = index(tx, log)? {
        listener.finding(wrong(found, "the places of its entries"));
    }
    Ok(())
}

/// What is wrong with the index of a log, whose entries were read.
fn index(tx: &mut Tx<'_>, log: &PublicLog) -> Result<Option<String>, Fault> {
    if log.indexed != log.tree.size() / RUN * RUN {
        return Ok(Some(format!("an index of {} entries", log.indexed)));
    }
    let mut expected = BTreeMap::new();
    for run in 0..log.indexed / RUN {
        for (first, places) in append::places(tx, log, run)? {
            expected.insert((first, run), Hash::sha256(&places));
        }
    }
    for first in 0..=u8::MAX {
        for (run, places) in rows::places(tx, log.id, first)? {
            if expected.remove(&(first, run)) != Some(Hash::sha256(&places)) {
                return Ok(Some(format!("other places in run {run} of the index, at {first:02x}")));
            }
        }
    }
    let lost = expected.first_key_value();
    Ok(lost.map(|((first, run), _)| format!("no places in run {run} of the index, at {first:02x}")))
}

/// The checkpoints: the one that is signed and not published yet, the newest that is, and the newest with its quorum.
fn checkpoints(log: &PublicLog, listener: &mut dyn Listener) -> Result<Vec<SignedCheckpoint>, Fault> {
    let mut checkpoints: Vec<SignedCheckpoint> = Vec::new();
    for text in [&log.signed, &log.checkpoint, &log.witnessed].into_iter().flatten() {
        let checkpoint = publish::stored(log, text)?;
        let untrusted = match VerifierKey::parse(&log.verifier_key) {
            Ok(key) => checkpoint.verify(&key).err().as_ref().map(CheckpointUntrusted::to_string),
            Err(e) => Some(e.to_string()),
        };
        let size = checkpoint.checkpoint().size();
        let newest = checkpoints.last().map_or(log.tree.size(), |newer| newer.checkpoint().size());
        let ahead = (size > newest).then(|| format!("a checkpoint of {size} entries"));
        for found in untrusted.into_iter().chain(ahead) {
            let expected = format!("a signed checkpoint of at most {newest} entries");
            listener
                .finding(Finding { id: Some(log.origin.clone()), ..Finding::whole(TABLE, found, expected) });
        }
        checkpoints.push(checkpoint);
    }
    Ok(checkpoints)
}

/// Appends an entry to a tree, and its hashes to the tile that grows at their level.
fn grow(grown: &mut Frontier, entry: &[u8], tiles: &mut BTreeMap<i64, (i64, Vec<u8>)>) {
    // A log in a database has fewer entries than a tree can have.
    let _ = grown.append(Hash::of_leaf(entry), |node, hash| {
        if node.level.is_multiple_of(8) {
            let (_, hashes) = tiles.entry(i64::from(node.level / 8)).or_default();
            hashes.extend_from_slice(hash.as_bytes());
        }
    });
}

/// Reads the entries that wait to be appended.
fn waiting(tx: &mut Tx<'_>, kind: EnvironmentKind, take: &mut dyn FnMut(Entry)) -> Result<(), Fault> {
    for pending in rows::pending(tx, kind, i64::MAX)? {
        let entries = entries_of(&pending.entries).unwrap_or_default().into_iter();
        entries.filter_map(|bytes| Entry::parse(bytes).ok()).for_each(&mut *take);
    }
    Ok(())
}

/// Compares each decision of an environment with its entry, and its review with the governing records.
fn compare_decisions(
    tx: &mut Tx<'_>,
    (environment, secrets): (&EnvironmentRecord, Option<&LogSecrets>),
    (logged, mut reviewed): (&mut Logged, Option<Reviewed>),
    listener: &mut dyn Listener,
) -> Result<(), Fault> {
    let (of, mut findings) = (environment.environment, 0);
    each::decision(tx, of, &mut |id, row| {
        let committed = row.and_then(|whole| match committed(&whole, environment, secrets) {
            Ok(named) => Ok((whole, named)),
            Err(fault) => Err(fault.to_string()),
        });
        let finding = match committed {
            Ok((whole, named)) => {
                if let (Some(reviewed), Some(review)) = (&mut reviewed, &whole.review) {
                    reviewed.compare(review, listener);
                }
                compared(of, &whole, logged.find(&named))
            }
            Err(why) => {
                logged.pass();
                let found = format!("a row that cannot be compared with the public log: {why}");
                let id = shown(id, IdKind::Decision);
                Some(Finding::row("decisions", of, id, found, "a decision that can be read"))
            }
        };
        if let Some(finding) = finding {
            findings += 1;
            if findings <= MAX_FINDINGS {
                listener.finding(finding);
            }
        }
        Ok(())
    })
}

/// The finding that a decision is not what its entry says, of which `entries` were found, and whether one says the same.
fn compared(environment: i64, whole: &Whole, entries: (usize, bool)) -> Option<Finding> {
    let (found, expected) = match entries {
        (1, true) => return None,
        (0, _) => ("no entry in the public log", "the entry of its token"),
        (1, false) => ("a row that is not that of its entry in the public log", "the row that was decided"),
        _ => ("several entries in the public log", "one entry"),
    };
    let finding = Finding::row("decisions", environment, whole.decision.id.to_string(), found, expected);
    Some(finding.of(Some(whole.decision.request.agent.to_string()), Some(whole.decision.sequence)))
}

/// The entry of a decision. Without the secrets it is known by its token alone.
fn committed(
    whole: &Whole,
    environment: &EnvironmentRecord,
    secrets: Option<&LogSecrets>,
) -> Result<Named, Fault> {
    let token = decisions::token(whole, &environment.policy_version)?;
    let token = token_hash(&token).ok_or_else(|| Fault::corrupt("database: a token that has no hash"))?;
    let Some(secrets) = secrets else { return Ok(Named::unopened(&token)) };
    // The record has nothing of what a review became, and so not of this instant.
    let row = decisions::show(whole, &environment.policy_version, Timestamp::from_millis(0))?;
    let record = decision_record(&mandate_core::json::one_line(row.get()))?;
    let secrets = secrets.environment(environment.environment);
    let record = record_hash(&secrets.blind.decision(whole.decision.id), record.as_bytes());
    let sequence = u64::try_from(whole.decision.sequence)
        .map_err(|_| Fault::corrupt("database: decisions.sequence is negative"))?;
    let tag = secrets.watch.decision(&whole.decision.request.agent, sequence);
    Named::of(&Entry::Decision { tag, token, record }, true)
        .ok_or_else(|| Fault::new("a decision has no entry"))
}

/// Compares each governing record of an environment with its entry, but for those that wait to be appended, and what is governed
/// with the records. Returns what the records say of reviews.
fn compare_records(
    tx: &mut Tx<'_>,
    (environment, secrets): (&EnvironmentRecord, &LogSecrets),
    (logged, damaged): (&mut Logged, &Damaged),
    listener: &mut dyn Listener,
) -> Result<Reviewed, Fault> {
    let (mut after, mut before, mut granted) = (0, 0, Granted::default());
    let (mut registered, mut reviewed) = (Registered::default(), Reviewed::of(environment.environment));
    loop {
        let page = sql::log_records::onward(tx, environment.environment, after, PAGE)?;
        let Some(last) = page.last() else {
            registered.compare(tx, environment.environment, damaged, listener)?;
            granted.compare(tx, environment, damaged, listener)?;
            return Ok(reviewed);
        };
        after = last.number;
        for record in page {
            let mut report = |found: &str, expected: &str| {
                let (number, of) = (record.number.to_string(), environment.environment);
                listener.finding(Finding::row("log_records", of, number, found, expected));
            };
            if record.number != before + 1 {
                report("a gap before this number", "1, 2, 3 … without a gap");
            }
            before = record.number;
            granted.take(&record.record);
            registered.take(&record.record);
            reviewed.take(&record.record);
            if let Some(expected) = Named::of(&governing_entry(&record, secrets), true) {
                match logged.find(&expected) {
                    (1, true) if record.logged => {}
                    (1, true) => {
                        report("an entry in the public log already", "a record that waits to be appended");
                    }
                    (0, _) if !record.logged => {}
                    (0, _) => report("no entry in the public log", "its entry"),
                    _ => report(
                        "a record that is not that of its entry in the public log",
                        "the record that was written",
                    ),
                }
            }
        }
    }
}
