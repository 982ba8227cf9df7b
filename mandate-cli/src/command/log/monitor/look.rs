//! One look: from the last checkpoint to the newest, entry by entry.

use mandate_core::Timestamp;
use mandate_core::log::{Checkpoint, Entry, Policy, SignedCheckpoint, VerifierKey, WatchKey};
use serde::Serialize;
use serde_json::json;

use super::governing::{Changes, Seeker, mark};
use super::state::{State, Unwitnessed};
use crate::exit::{Exit, Failure};
use crate::public_log::Refused;
use crate::public_log::entries::Entries;
use crate::public_log::source::Source;
use crate::public_log::trust::Trust;

/// How many events of signing keys a look holds. A service has a few in a year.
const MAX_KEY_EVENTS: usize = 10_000;

/// What to do about a log that has ended.
pub(super) const GO_OVER: &str = "ask the operator why; then pass the new log's key with --log-key, and its first entry is compared with the last look";

/// An event of a signing key, as it is shown.
#[derive(Debug, Serialize)]
pub(super) struct KeySeen {
    pub(super) index: u64,
    pub(super) kid: String,
    pub(super) change: &'static str,
    pub(super) at: String,
}

/// What a look has found.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) signed: SignedCheckpoint,
    pub(super) checkpoint: Checkpoint,
    pub(super) keys: Vec<KeySeen>,
    pub(super) unknown: u64,
    pub(super) governing: Option<Changes>,
    /// The origin of the older log that this one continues, where the last look was at that.
    pub(super) continues: Option<String>,
    /// The log that goes on in place of this one, which has ended.
    pub(super) next: Option<String>,
}

/// Why a look has ended.
#[derive(Debug)]
pub(super) enum Found {
    Failed(Failure),
    /// The two checkpoints, of which neither can be a later state of the other.
    Fork(Box<Failure>, String),
}

impl From<Failure> for Found {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Found {
    pub(super) fn into_parts(self) -> (Failure, Option<String>) {
        match self {
            Self::Failed(failure) => (failure, None),
            Self::Fork(failure, proof) => (*failure, Some(proof)),
        }
    }
}

/// What is collected on the way. It is shown only after the root was reached.
#[derive(Default)]
struct Collected<'a> {
    keys: Vec<KeySeen>,
    unknown: u64,
    seeker: Option<Seeker<'a>>,
    /// The state of the last look, where that was at an older log.
    left: Option<&'a State>,
    older: Option<SignedCheckpoint>,
}

impl Looked {
    /// A log that has ended is looked at to its end like any other: what came to it last must not be overlooked.
    pub(super) fn look(
        source: &Source,
        trust: &Trust,
        before: Option<&State>,
        watch_key: Option<&WatchKey>,
    ) -> Result<Self, Found> {
        let next = source.next()?;
        let looked = Self::as_it_is(source, trust, before, watch_key);
        let Some(next) = next.as_ref().map(VerifierKey::name) else { return looked };
        match looked {
            Ok(looked) => Ok(Self { next: Some(next.to_owned()), ..looked }),
            Err(Found::Failed(failure)) => Err(ended(source, next, trust, failure).into()),
            fork => fork,
        }
    }

    /// The same, whether it has ended or not.
    pub(super) fn as_it_is(
        source: &Source,
        trust: &Trust,
        before: Option<&State>,
        watch_key: Option<&WatchKey>,
    ) -> Result<Self, Found> {
        let (signed, checkpoint) = newest(source, trust)?;
        let same_log = before.filter(|state| Some(&state.key) == trust.key.as_ref());
        let from = match same_log {
            Some(state) => must_not_shrink(state, &signed)?,
            None => 0,
        };
        let left = before.filter(|_| same_log.is_none());
        let mut collected = Collected { left, ..Collected::default() };
        // What is known was found with a watch key. With another one, or after a look without, all entries count.
        let known = same_log.and_then(|state| state.governing.as_ref());
        let known = known.filter(|known| watch_key.is_some_and(|key| mark(key) == known.key));
        let mut seeker = watch_key.map(|key| match known {
            Some(known) => Seeker::resumed(key, known.clone()),
            None => Seeker::fresh(key),
        });
        if known.is_some() || from == 0 {
            collected.seeker = seeker.take();
        }
        let entries = Entries { source, checkpoint: &checkpoint };
        let root = entries.scan(from, |index, bytes| collected.take(index, bytes))?;
        if let Some(state) = same_log.filter(|state| *state.checkpoint().root() != root) {
            return Err(fork(&state.signed, &state.whose(), &signed));
        }
        let continues = match left {
            Some(state) => Some(continues(state, collected.older.as_ref(), &signed)?),
            None => None,
        };
        if let Some(seeker) = seeker {
            let mut again = Collected { seeker: Some(seeker), ..Collected::default() };
            entries.scan(0, |index, bytes| again.take(index, bytes))?;
            collected.seeker = again.seeker;
        }
        let Collected { keys, unknown, seeker, .. } = collected;
        let governing = seeker.map(Seeker::end);
        Ok(Self { signed, checkpoint, keys, unknown, governing, continues, next: None })
    }

    /// The state for the next look.
    pub(super) fn state(
        &self,
        (key, older): (VerifierKey, Vec<VerifierKey>),
        unwitnessed: Option<Unwitnessed>,
        now: Timestamp,
    ) -> State {
        let governing = self.governing.as_ref().map(|changes| changes.known.clone());
        State { key, signed: self.signed.clone(), seen_at: now, governing, unwitnessed, older }
    }
}

impl Collected<'_> {
    fn take(&mut self, index: u64, bytes: &[u8]) -> Result<(), Failure> {
        let Ok(entry) = Entry::parse(bytes) else {
            self.unknown = self.unknown.saturating_add(1);
            return Ok(());
        };
        if let Some(seeker) = &mut self.seeker {
            seeker.take(index, &entry);
        }
        match entry {
            Entry::Key(event) => {
                if self.keys.len() >= MAX_KEY_EVENTS {
                    let why = format!("more than {MAX_KEY_EVENTS} events of signing keys");
                    return Err(Refused::new("key_events", why).of("the log"));
                }
                let (kid, change, at) = (event.kid.to_string(), event.change.as_str(), event.at.to_string());
                self.keys.push(KeySeen { index, kid, change, at });
            }
            Entry::OlderLog(older) if index == 0 => {
                if let Some(seeker) = &mut self.seeker {
                    seeker.continues(self.left.and_then(|state| state.changes(seeker.mark(), &older)));
                }
                self.older = Some(older);
            }
            Entry::OlderLog(_) => {
                let why = format!("entry {index} names an older log; only the first entry may");
                return Err(Refused::new("older_log", why).of("the log"));
            }
            Entry::Decision { .. } | Entry::Governing { .. } => {}
        }
        Ok(())
    }
}

/// The newest checkpoint. Cosignatures are looked at later: here only the log's own key counts.
pub(super) fn newest(source: &Source, trust: &Trust) -> Result<(SignedCheckpoint, Checkpoint), Failure> {
    let signed = SignedCheckpoint::parse(&source.checkpoint()?)
        .map_err(|e| Refused::new(e.name(), e).of("the log's checkpoint"))?;
    if let Some(failure) = another_origin(source, &signed, trust) {
        return Err(failure);
    }
    let own = Trust { policy: Policy::none(), ..trust.clone() };
    let accepted = own.accept(&signed).map_err(|e| e.of("the log's checkpoint"))?;
    Ok((signed, accepted.checkpoint))
}

/// The failure for a checkpoint of another origin than the key's.
fn another_origin(source: &Source, signed: &SignedCheckpoint, trust: &Trust) -> Option<Failure> {
    let (key, origin) = (trust.key.as_ref()?, signed.checkpoint().origin());
    if key.name() == origin || !source.place().may_have(origin) {
        return None;
    }
    Some(goes_on(source, origin, trust))
}

fn goes_on(source: &Source, origin: &str, trust: &Trust) -> Failure {
    let known = trust.key.as_ref().map_or("none", VerifierKey::name);
    let failure = Failure::new(
        Exit::NewOrigin,
        format!("the log at {} goes on as {origin}; the known key is that of {known}", source.place()),
    );
    failure.next(GO_OVER)
}

/// The failure for a log that has ended and cannot be looked at to its end. One that was restored to fewer entries than were
/// published ends for that reason: the first entry of the log that goes on says with how many.
fn ended(source: &Source, next: &str, trust: &Trust, failure: Failure) -> Failure {
    match failure.exit {
        Exit::Rollback | Exit::NotFound => goes_on(source, next, trust).note("besides", failure.message()),
        _ => failure.note("goes on as", next),
    }
}

/// The size to go on from, if the log has not become smaller.
fn must_not_shrink(state: &State, signed: &SignedCheckpoint) -> Result<u64, Found> {
    let (before, now) = (state.checkpoint(), signed.checkpoint());
    if now.size() < before.size() {
        return Err(rollback(before, now).into());
    }
    if now.size() == before.size() && now.root() != before.root() {
        return Err(fork(&state.signed, &state.whose(), signed));
    }
    Ok(before.size())
}

pub(super) fn rollback(before: &Checkpoint, now: &Checkpoint) -> Failure {
    Failure::new(
        Exit::Rollback,
        format!("the log had {} entries at the last look, and shows {} now", before.size(), now.size()),
    )
    .next("it was restored from an older copy, or shows an old state; entries that were there are gone")
}

/// Two checkpoints that one log's key has signed, and of which `now` does not begin with `before`, which `whose` says.
pub(super) fn fork(before: &SignedCheckpoint, whose: &str, now: &SignedCheckpoint) -> Found {
    let failure = Failure::new(
        Exit::Fork,
        format!(
            "the log has forked: its {} entries do not begin with the {} {whose}",
            now.checkpoint().size(),
            before.checkpoint().size()
        ),
    )
    .note("log", now.checkpoint().origin())
    .next("keep both checkpoints and show them: the log's key has signed both, and no honest log can");
    let proof = json!({"before": before.to_string(), "now": now.to_string()});
    Found::Fork(Box::new(failure), format!("{proof:#}\n"))
}

/// The origin of the older log, if the new one begins with the checkpoint of it that was looked at last.
fn continues(
    state: &State,
    older: Option<&SignedCheckpoint>,
    signed: &SignedCheckpoint,
) -> Result<String, Found> {
    let (origin, new) = (state.checkpoint().origin(), signed.checkpoint().origin());
    let refused = |why: String| Found::from(Refused::new("older_log", why).of(&format!("the log {new}")));
    let Some(older) = older else {
        return Err(refused(format!(
            "its first entry does not name the log {origin}, which it should continue"
        )));
    };
    let last = older.verify(&state.key).map_err(|e| refused(e.to_string()))?;
    if last.size() < state.size() {
        return Err(rollback(state.checkpoint(), last).into());
    }
    if last.size() > state.size() {
        return Err(refused("it was given another first entry while it was read".to_owned()));
    }
    if last.root() != state.checkpoint().root() {
        return Err(fork(&state.signed, &state.whose(), older));
    }
    Ok(origin.to_owned())
}
