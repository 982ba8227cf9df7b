//! What a monitor keeps between its looks: one file, written whole or not at all.

use std::path::Path;

use mandate_core::Timestamp;
use mandate_core::json::{Field, Object};
use mandate_core::log::{Checkpoint, KeyKind, SignedCheckpoint, VerifierKey};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::input::Source;
use crate::public_log::trust::parse;

/// The longest file: a checkpoint with its signatures, and numbers.
const MAX_BYTES: usize = 512 * 1024;
const VERSION: i64 = 1;

/// The state after a look.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) key: VerifierKey,
    /// The last checkpoint, which the key has signed.
    pub(super) signed: SignedCheckpoint,
    pub(super) seen_at: Timestamp,
    /// How many governing changes there are, from 1 on without a gap.
    pub(super) governing: u64,
    /// Governing changes behind a gap.
    pub(super) ahead: Vec<u64>,
    /// Since when entries wait for the witnesses of the policy.
    pub(super) unwitnessed_since: Option<Timestamp>,
}

impl State {
    pub(super) fn checkpoint(&self) -> &Checkpoint {
        self.signed.checkpoint()
    }

    pub(super) fn size(&self) -> u64 {
        self.checkpoint().size()
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
        let invalid = |e: mandate_core::Invalid| e.to_string();
        let mut file = Object::parse_as("state", text.as_bytes()).map_err(invalid)?;
        let version = file.require("monitor").and_then(|f| f.integer()).map_err(invalid)?;
        if version != VERSION {
            return Err(format!("its version is {version}; this program writes {VERSION}"));
        }
        let instant = |f: Field<'_>| Timestamp::parse(&f.string()?);
        let count = |f: &Field<'_>| {
            u64::try_from(f.integer()?)
                .map_err(|_| mandate_core::Invalid::new(f.path(), "must not be negative"))
        };
        let mut member = |name| file.require(name).map_err(invalid);
        let key = parse(&member("key")?.string().map_err(invalid)?, KeyKind::Note)?;
        let signed = member("checkpoint")?.string().map_err(invalid)?;
        let signed = SignedCheckpoint::parse(signed.as_bytes()).map_err(|e| e.to_string())?;
        signed.verify(&key).map_err(|e| e.to_string())?;
        let seen_at = instant(member("seen_at")?).map_err(invalid)?;
        let governing = count(&member("governing")?).map_err(invalid)?;
        let ahead = member("ahead")?.array().map_err(invalid)?;
        let ahead = ahead.iter().map(count).collect::<Result<_, _>>().map_err(invalid)?;
        let unwitnessed_since = member("unwitnessed_since")?;
        let unwitnessed_since = (unwitnessed_since.raw() != "null")
            .then(|| instant(unwitnessed_since))
            .transpose()
            .map_err(invalid)?;
        Ok(Self { key, signed, seen_at, governing, ahead, unwitnessed_since })
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        let file = json!({
            "monitor": VERSION, "key": self.key.to_string(), "checkpoint": self.signed.to_string(),
            "seen_at": self.seen_at.to_string(), "governing": self.governing, "ahead": self.ahead,
            "unwitnessed_since": self.unwitnessed_since.map(|since| since.to_string()),
        });
        super::super::write(path, format!("{file}\n").as_bytes())
    }
}
