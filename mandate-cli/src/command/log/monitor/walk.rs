//! The way from the log of the last look to the one that goes on: what came to the logs between is looked at first, in order.

use mandate_core::Timestamp;
use mandate_core::log::{Checkpoint, Policy, SignedCheckpoint, VerifierKey, WatchKey};

use super::Part;
use super::look::{self, Found, Looked, fork};
use super::state::State;
use crate::exit::{Exit, Failure};
use crate::public_log::Refused;
use crate::public_log::entries::Entries;
use crate::public_log::older::named;
use crate::public_log::source::Source;
use crate::public_log::trust::Trust;

/// How many logs may lie between the last look and the one that goes on.
const MAX_LOGS: usize = 100;

/// A log on the way.
pub(super) struct Step {
    source: Source,
    key: VerifierKey,
    /// Its last checkpoint, which the first entry of the next one names.
    named: SignedCheckpoint,
    /// The origin of the next one.
    next: String,
}

/// The logs between the last look and the log of this key, the oldest first. Each first entry names the log before; that of the
/// last look is among them only if it went on after that look.
pub(super) fn steps(source: &Source, key: &VerifierKey, state: &State) -> Result<Vec<Step>, Failure> {
    let mut steps: Vec<Step> = Vec::new();
    while steps.len() < MAX_LOGS {
        let (source, key) = steps.last().map_or((source, key), |step| (&step.source, &step.key));
        let (_, checkpoint) = look::newest(source, &only(key))?;
        let Some(named) = named(Entries { source, checkpoint: &checkpoint })? else { break };
        let last = named.checkpoint();
        let is_left = last.origin() == state.checkpoint().origin();
        // What is wrong with it is said by the look that goes over.
        if is_left && (last.size() == state.size() || named.verify(&state.key).is_err()) {
            break;
        }
        let step = step(source, key, named, is_left.then_some(state))?;
        steps.push(step);
        if is_left {
            break;
        }
    }
    steps.reverse();
    Ok(steps)
}

/// The log that `named` is of, beside the one that continues it. That of the last look has a key that is known.
fn step(
    next: &Source,
    key: &VerifierKey,
    named: SignedCheckpoint,
    left: Option<&State>,
) -> Result<Step, Failure> {
    let (last, next_origin) = (named.checkpoint(), key.name());
    let from = left.map_or(0, State::size);
    let place = next.place().beside(next_origin, last.origin()).ok_or_else(|| {
        let why = format!("nothing says where it is beside {}", next.place());
        unread(last, from, next_origin, &why)
    })?;
    let source = Source::new(place)?;
    let key = match left {
        Some(state) => state.key.clone(),
        None => source.key().map_err(|failure| match failure.exit {
            Exit::NotFound => unread(last, from, next_origin, failure.message()),
            _ => failure,
        })?,
    };
    named.verify(&key).map_err(|e| Refused::new("older_log", e).of(&format!("the log {next_origin}")))?;
    Ok(Step { source, key, named, next: next_origin.to_owned() })
}

/// Looks at each of these logs to its end. Gives the state after the last one, and what was found in each.
pub(super) fn go(
    steps: &[Step],
    before: State,
    watch_key: Option<&WatchKey>,
    now: Timestamp,
) -> Result<(State, Vec<Part>), Found> {
    let (mut state, mut parts) = (before, Vec::new());
    for step in steps {
        let looked = Looked::as_it_is(&step.source, &only(&step.key), Some(&state), watch_key);
        let looked = looked.map_err(|found| step.is_unread(found, &state))?;
        step.must_be_the_end_of(&looked, &state)?;
        let (key, older) = (step.key.clone(), state.older_than(&step.key));
        let next = looked.state((key, older), None, now);
        parts.push(Part::of(looked, Some(&state).filter(|state| state.key == step.key)));
        state = next;
    }
    Ok((state, parts))
}

impl Step {
    /// Compares the end of the log with what the next one names.
    fn must_be_the_end_of(&self, looked: &Looked, state: &State) -> Result<(), Found> {
        let (named, has) = (self.named.checkpoint(), &looked.checkpoint);
        if named.size() > has.size() {
            let from = self.from(state).max(has.size());
            let why = format!("{} has its first {}", self.source.place(), has.size());
            return Err(unread(named, from, &self.next, &why).into());
        }
        let root = Entries { source: &self.source, checkpoint: has }.scan(named.size(), |_, _| Ok(()))?;
        if root == *named.root() {
            return if named.size() == has.size() { Ok(()) } else { Err(self.leaves_out(has).into()) };
        }
        Err(fork(&self.named, &format!("that {} names", self.next), &looked.signed))
    }

    /// The failure for a log that went on behind what the next one names.
    fn leaves_out(&self, has: &Checkpoint) -> Failure {
        let (named, next) = (self.named.checkpoint(), &self.next);
        let what = format!(
            "the log {} has {} entries, and {next} says that it ended with {}",
            named.origin(),
            has.size(),
            named.size()
        );
        Failure::new(Exit::Rollback, what).next(
            "ask the operator: what came to it last was published, and the new log does not continue it",
        )
    }

    /// From which entry on the log was not looked at.
    fn from(&self, state: &State) -> u64 {
        if state.key == self.key { state.size() } else { 0 }
    }

    /// The failure for a log of which the end cannot be read any more. What is wrong with it otherwise is said as it is.
    fn is_unread(&self, found: Found, state: &State) -> Found {
        let named = self.named.checkpoint();
        match found {
            Found::Failed(failure) if named.size() < self.from(state) => {
                look::rollback(state.checkpoint(), named).note("besides", failure.message()).into()
            }
            Found::Failed(failure)
                if failure.exit == Exit::NotFound
                    || (failure.exit == Exit::Rollback && state.key == self.key) =>
            {
                unread(named, self.from(state), &self.next, failure.message()).into()
            }
            other => other,
        }
    }
}

/// The failure for entries that cannot be looked at.
fn unread(last: &Checkpoint, from: u64, next: &str, why: &str) -> Failure {
    let (origin, size) = (last.origin(), last.size());
    let what = format!(
        "the log {origin} had {size} entries when {next} began, and those from {from} on cannot be read"
    );
    Failure::new(Exit::NotCompared, what)
        .note("why", why)
        .note("state", "as it was")
        .next(format_args!(
            "with a copy of {origin}, look at that first: mandate log monitor --log FOLDER --log-key KEY, with the same --state; then this command again. Without one, ask the operator; --state with another file begins at {next}, and never knows them"
        ))
}

fn only(key: &VerifierKey) -> Trust {
    Trust { key: Some(key.clone()), policy: Policy::none() }
}
