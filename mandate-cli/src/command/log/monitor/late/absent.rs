//! Tokens without a proof: late are those that a key of the log has signed, and that none of the log's entries is of.

use std::collections::{HashMap, HashSet};

use mandate_core::jwks::{KeySet, VerificationKey};
use mandate_core::jwt::Unverified;
use mandate_core::log::{Checkpoint, Entry, Hash, KeyEvent};
use mandate_core::verify::audit_verdict_ignoring_expiry;

use super::Due;
use crate::exit::Failure;
use crate::public_log::entries::Entries;
use crate::public_log::older::{Older, OlderLog};
use crate::public_log::proof::issuer;
use crate::public_log::source::Source;

/// A token that is due and was not proved.
pub(super) struct Suspect {
    /// Which one, for people.
    pub(super) what: String,
    pub(super) token: String,
    pub(super) hash: Hash,
    pub(super) why: String,
}

/// What all entries of a log, and of those that it continues, say of these tokens.
#[derive(Default)]
struct Read {
    /// Where a token's entry is.
    found: HashMap<Hash, String>,
    keys: Vec<KeyEvent>,
}

impl Due {
    /// Reads the log up to its checkpoint, and the older ones that it continues up to theirs.
    pub(super) fn suspects(
        &mut self,
        source: &Source,
        checkpoint: &Checkpoint,
        suspects: Vec<Suspect>,
    ) -> Result<(), Failure> {
        let older = Older::of(source, checkpoint)?;
        let logs = older.logs.iter().map(OlderLog::entries);
        let mut read = Read::default();
        let wanted: HashSet<_> = suspects.iter().map(|one| one.hash).collect();
        for entries in [Entries { source, checkpoint }].into_iter().chain(logs) {
            read.log(entries, &wanted)?;
        }
        let (origin, size) = (checkpoint.origin(), checkpoint.size());
        for Suspect { what, token, hash, why } in suspects {
            if let Some(place) = read.found.get(&hash) {
                self.not_compared.push(format!("{what} is {place}, but {why}"));
            } else if let Some(unread) = &older.unread {
                self.not_compared.push(format!("{what} is not proved: {why}; {unread}"));
            } else if !read.has_key_of(&token) {
                self.not_compared.push(format!("{what} is signed by no key that the log has published"));
            } else {
                let besides = if older.logs.is_empty() { "" } else { ", and of no older log's" };
                self.late.push(format!("{what} is none of the {size} entries of {origin}{besides}"));
            }
        }
        Ok(())
    }
}

impl Read {
    fn log(&mut self, entries: Entries<'_>, wanted: &HashSet<Hash>) -> Result<(), Failure> {
        let origin = entries.checkpoint.origin();
        entries.scan(0, |index, bytes| {
            match Entry::parse(bytes) {
                Ok(Entry::Decision { token, .. }) if wanted.contains(&token) => {
                    self.found.insert(token, format!("entry {index} of {origin}"));
                }
                Ok(Entry::Key(event)) => self.keys.push(event),
                _ => {}
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Whether a key that the log has published has signed this token: anyone can write one that says so.
    fn has_key_of(&self, token: &str) -> bool {
        let Some((unverified, issuer)) = Unverified::parse(token).ok().zip(issuer(token)) else {
            return false;
        };
        self.keys.iter().filter(|event| event.kid == *unverified.kid()).any(|event| {
            let key = VerificationKey::new(event.kid.clone(), event.public);
            let keys = key.ok().and_then(|key| KeySet::new(vec![key]).ok());
            keys.is_some_and(|keys| audit_verdict_ignoring_expiry(token, &keys, &issuer).is_ok())
        })
    }
}
