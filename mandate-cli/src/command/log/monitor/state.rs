//! What a monitor keeps between its looks: one file, written whole or not at all.

use std::path::Path;

use mandate_core::json::{Field, Object};
use mandate_core::log::{Checkpoint, Hash, KeyKind, SignedCheckpoint, VerifierKey};
use mandate_core::{Invalid, Timestamp};
use serde_json::{Value, json};

use super::governing::Known;
use crate::exit::{Exit, Failure};
use crate::input::Source;
use crate::public_log::trust::parse;

/// The longest file: a checkpoint with its signatures, and numbers.
const MAX_BYTES: usize = 512 * 1024;
const VERSION: i64 = 2;

/// The state after a look.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) key: VerifierKey,
    /// The last checkpoint, which the key has signed.
    pub(super) signed: SignedCheckpoint,
    pub(super) seen_at: Timestamp,
    /// The governing changes. None: the last look had no watch key.
    pub(super) governing: Option<Known>,
    /// Since when entries wait for the witnesses of the policy.
    pub(super) unwitnessed: Option<Unwitnessed>,
    /// The keys of the logs that this one continues, as far as looks have gone over from one to the next.
    pub(super) older: Vec<VerifierKey>,
}

/// Entries that wait for witnesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unwitnessed {
    /// At which look they were found to wait.
    pub(super) since: Timestamp,
    /// How many entries the log had then.
    pub(super) size: u64,
}

impl State {
    pub(super) fn checkpoint(&self) -> &Checkpoint {
        self.signed.checkpoint()
    }

    pub(super) fn size(&self) -> u64 {
        self.checkpoint().size()
    }

    /// Whose checkpoint it is, for people.
    pub(super) fn whose(&self) -> String {
        format!("of the last look, {}", self.seen_at)
    }

    /// The keys of the logs that the one of this key continues, as far as looks have gone over.
    pub(super) fn older_than(&self, key: &VerifierKey) -> Vec<VerifierKey> {
        let left = Some(&self.key).filter(|before| *before != key);
        left.into_iter().chain(&self.older).cloned().collect()
    }

    /// Up to which number this log had the changes of the holder of a watch key, if it was looked at to this end of it.
    pub(super) fn changes(&self, mark: Hash, end: &SignedCheckpoint) -> Option<u64> {
        let known = self.governing.as_ref().filter(|known| known.key == mark)?;
        known.last().filter(|_| end.checkpoint().size() == self.size())
    }

    /// The state in the file. None: there is no file yet.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        if !path.exists() {
            return Ok(None);
        }
        let text = Source::File(path.to_owned()).read("the state", MAX_BYTES, Exit::Io)?;
        Self::parse(&text).map(Some).map_err(|why| {
            Failure::new(Exit::Io, format!("{} is no state of a monitor: {why}", path.display()))
                .next("name another file, or remove this one to begin again")
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let invalid = |e: Invalid| e.to_string();
        let mut file = Object::parse_as("state", text.as_bytes()).map_err(invalid)?;
        let version = file.require("monitor").and_then(|f| f.integer()).map_err(invalid)?;
        if version != VERSION {
            return Err(format!("its version is {version}; this program writes {VERSION}"));
        }
        let mut member = |name| file.require(name).map_err(invalid);
        let key = parse(&member("key")?.string().map_err(invalid)?, KeyKind::Note)?;
        let signed = member("checkpoint")?.string().map_err(invalid)?;
        let signed = SignedCheckpoint::parse(signed.as_bytes()).map_err(|e| e.to_string())?;
        signed.verify(&key).map_err(|e| e.to_string())?;
        let seen_at = instant(&member("seen_at")?).map_err(invalid)?;
        let governing = some(&member("governing")?, governing).map_err(invalid)?;
        let unwitnessed = some(&member("unwitnessed")?, unwitnessed).map_err(invalid)?;
        let older = member("older")?.array().map_err(invalid)?;
        let older = older.iter().map(|key| parse(&key.string().map_err(invalid)?, KeyKind::Note));
        Ok(Self { key, signed, seen_at, governing, unwitnessed, older: older.collect::<Result<_, _>>()? })
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        let file = json!({
            "monitor": VERSION, "key": self.key.to_string(), "checkpoint": self.signed.to_string(),
            "seen_at": self.seen_at.to_string(), "governing": self.governing.as_ref().map(written),
            "unwitnessed": self.unwitnessed.map(|waits| json!({"since": waits.since.to_string(), "size": waits.size})),
            "older": self.older.iter().map(VerifierKey::to_string).collect::<Vec<_>>(),
        });
        super::super::write(path, format!("{file}\n").as_bytes())
    }
}

/// What a member says that may be null.
fn some<T>(field: &Field<'_>, read: impl Fn(&Field<'_>) -> Result<T, Invalid>) -> Result<Option<T>, Invalid> {
    (!field.is_null()).then(|| read(field)).transpose()
}

fn count(field: &Field<'_>) -> Result<u64, Invalid> {
    u64::try_from(field.integer()?).map_err(|_| Invalid::new(field.path(), "must not be negative"))
}

fn instant(field: &Field<'_>) -> Result<Timestamp, Invalid> {
    Timestamp::parse(&field.string()?)
}

fn unwitnessed(field: &Field<'_>) -> Result<Unwitnessed, Invalid> {
    let mut waits = field.object()?;
    Ok(Unwitnessed { since: instant(&waits.require("since")?)?, size: count(&waits.require("size")?)? })
}

fn governing(field: &Field<'_>) -> Result<Known, Invalid> {
    let mut known = field.object()?;
    let key = known.require("watch_key")?;
    let key = Hash::parse(&key.string()?).ok_or_else(|| Invalid::new(key.path(), "must be a hash"))?;
    let (first, count_of) = (some(&known.require("first")?, count)?, some(&known.require("count")?, count)?);
    let ahead = known.require("ahead")?.array()?.iter().map(count).collect::<Result<_, _>>()?;
    Ok(Known { key, first, count: count_of, ahead })
}

fn written(known: &Known) -> Value {
    let Known { key, first, count, ahead } = known;
    json!({"watch_key": key.to_string(), "first": first, "count": count, "ahead": ahead})
}
