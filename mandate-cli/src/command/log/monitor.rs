//! `mandate log monitor`: what has come to a log since the last look, and whether it still begins with what it was then.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod governing;
mod late;
mod look;
mod state;
mod walk;

use std::path::{Path, PathBuf};

use mandate_core::Timestamp;
use mandate_core::log::VerifierKey;
use serde::Serialize;

use self::governing::{Changes, Known};
use self::late::Due;
use self::look::{KeySeen, Looked};
use self::state::State;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::output::Output;
use crate::public_log::pins;
use crate::public_log::place::{LogArgs, Place, kind_of};
use crate::public_log::source::Source;
use crate::public_log::trust::{Trust, TrustArgs};
use crate::public_log::watch_key;
use crate::style::{CAUTION, ERROR, GOOD, printable};

/// Watch a log: that it only grows, which keys appear, and what governs your environment
///
/// Each run is one look; run it from a timer. It reads every new entry and checks that they lead from the state of the last
/// look to the root that the log has signed now. New signing keys are shown: a key that was not announced can sign verdicts that
/// were never decided. With --watch-key, each governing change of your environment (an agent, a mandate, a mode, the answer to a
/// review) is found by its number: one that you did not make was made by another. A look with another watch key, or
/// after one without, reads the log from its beginning. Where no entry fits the watch key, it is another environment's or there
/// was no change yet: nothing was compared, and the exit code is 26. With --tokens, each token that
/// is older than a day must be in the log, or in one that it continues. One without a proof is late only if all entries were
/// read, none is of it, and a key that the log has published has signed it; otherwise it is not compared (26). With --policy,
/// the witnesses' cosignatures must be on what the log had a day ago, as the proof of an entry from then shows.
///
/// The file of --state holds the last checkpoint and is written when all is well. After a fork, a file beside it
/// (`STATE.fork`) holds the two signed checkpoints: they prove the fork to anyone.
///
/// A log that has ended is looked at to its end; then the exit code is 54 until --log-key goes over to the log that goes on.
/// That look reads each log between the last look and that one first, to the end that the next one names: other entries are a
/// fork. Where such a log is not served any more, the exit code is 26, and the state stays as it was.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate log monitor --issuer https://verdicts.example.com \\
      --state verdicts.monitor
  mandate log monitor --issuer https://verdicts.example.com \\
      --state verdicts.monitor --watch-key watch.key \\
      --policy witnesses.policy --tokens recent.txt --json

Exit codes:
  0 it only grew    52 fork    53 rollback    54 new origin    55 late
  23 a governing change is missing or there twice    26 not all can be compared
  51 not what it has signed    36, 37, 38 log not readable    2 usage    3 file")]
pub(crate) struct Monitor {
    /// The file that this command keeps between its looks
    #[arg(long, value_name = "FILE")]
    state: PathBuf,
    /// The file of your environment's watch key
    #[arg(long, value_name = "FILE")]
    watch_key: Option<PathBuf>,
    /// Tokens, one a line, that must be in the log a day after they were issued
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    trust: TrustArgs,
}

/// What a look has found in one log.
#[derive(Debug, Serialize)]
struct Part {
    log: String,
    /// The size at the last look; absent at the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<u64>,
    size: u64,
    keys: Vec<KeySeen>,
    /// Entries of types that this version does not know.
    unknown: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    governing: Option<Changes>,
}

/// What a look has found.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    newest: Part,
    late: Vec<String>,
    /// What nothing proves to be late or in time.
    not_compared: Vec<String>,
    /// The logs that were looked at on the way from the last look to this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    older: Vec<Part>,
    /// The origin of the log that this one continues, at the look that goes over to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    continues: Option<String>,
    /// The origin of the log that goes on in place of this one, which has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl Monitor {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let before = State::read(&self.state)?;
        let place = self.log.place(None, global)?;
        let key = self.key(before.as_ref(), &place)?;
        let source = Source::of(&place, Some(&key))?;
        let trust = Trust { key: Some(key.clone()), policy: self.trust.policy()? };
        let watch_key = self.watch_key.as_deref().map(watch_key::read).transpose()?;
        let now = environment::now();
        let known = before.as_ref().and_then(|state| state.governing.clone());
        let steps = match &before {
            Some(state) if state.key != key => walk::steps(&source, &key, state)?,
            _ => Vec::new(),
        };
        let went = before.map(|state| walk::go(&steps, state, watch_key.as_ref(), now)).transpose();
        let (before, parts) = went.map_err(|found| self.keep_fork(found))?.unzip();
        let looked = Looked::look(&source, &trust, before.as_ref(), watch_key.as_ref());
        let mut looked = looked.map_err(|failure| self.keep_fork(failure))?;
        let older = before.as_ref().map_or_else(Vec::new, |state| state.older_than(&key));
        let (mut due, mut unwitnessed) = (Due::default(), None);
        // A log that has ended gets no more entries and cosignatures: what it lacks may be in the one that goes on.
        if looked.next.is_none() {
            if let Some(tokens) = &self.tokens {
                let listed = trust.policy.logs().map(|(key, _)| key);
                let others: Vec<_> = older.iter().chain(listed).cloned().collect();
                let found = due.tokens(tokens, &source, (&key, &others), (&looked, now));
                found.map_err(|found| self.keep_fork(found))?;
            }
            let waited = before.as_ref().filter(|state| state.key == key).and_then(|state| state.unwitnessed);
            let witnessed = due.witnesses(&source, &trust, &looked, waited, now);
            unwitnessed = witnessed.map_err(|found| self.keep_fork(found))?;
        }
        if let (Some(key), Some(path)) = (&watch_key, &self.watch_key) {
            let of_older = parts.iter().flatten().filter_map(|part| part.governing.as_ref());
            let mut changes = of_older.chain(&looked.governing);
            if changes.all(Changes::are_none) {
                let none = no_match(looked.checkpoint.origin(), path);
                // What the last look knows must not be lost.
                must_be_known(known.as_ref().filter(|known| !known.is_of(key)), &none)?;
                due.not_compared.push(none);
            }
        }
        looked.state((key.clone(), older), unwitnessed, now).write(&self.state)?;
        let report = Report {
            late: due.late,
            not_compared: due.not_compared,
            older: parts.unwrap_or_default(),
            continues: looked.continues.take(),
            next: looked.next.take(),
            newest: Part::of(looked, before.as_ref().filter(|state| state.key == key)),
        };
        report.print(now, output)
    }

    /// The log's key: the one of the option, of the last look, the policy's only one, or the pinned one.
    fn key(&self, before: Option<&State>, place: &Place) -> Result<VerifierKey, Failure> {
        if let Some(key) = self.trust.named()? {
            return Ok(key);
        }
        if let Some(state) = before {
            return Ok(state.key.clone());
        }
        if let Some(trust) = self.trust.known(place)?
            && trust.key.is_none()
        {
            let logs: Vec<_> = trust.policy.logs().map(|(key, _)| key).collect();
            return match logs.as_slice() {
                [only] => Ok((*only).clone()),
                _ => pins::find(place)?.map(|pin| pin.key).ok_or_else(|| {
                    Failure::new(Exit::Usage, "a log is watched under one key")
                        .next("pass --log-key KEY: the policy has several")
                }),
            };
        }
        self.trust
            .trust(place)?
            .key
            .ok_or_else(|| Failure::new(Exit::Usage, "a log is watched under one key"))
    }

    /// Keeps the proof of a fork beside the state.
    fn keep_fork(&self, found: look::Found) -> Failure {
        let (failure, proof) = found.into_parts();
        let Some(proof) = proof else { return failure };
        let mut path = self.state.clone().into_os_string();
        path.push(".fork");
        let path = PathBuf::from(path);
        match super::write(&path, proof.as_bytes()) {
            Ok(()) => failure.note("both signed", path.display()),
            Err(lost) => failure.note("not kept", lost.message()),
        }
    }
}

/// What is said of a watch key that no entry fits.
fn no_match(origin: &str, path: &Path) -> String {
    let kind = kind_of(origin).map_or_else(|| "KIND".to_owned(), |kind| kind.to_string());
    format!(
        "no governing change of {origin} fits the watch key in {}: the key of your environment is what \
         `mandate-server log watch-key ORGANIZATION --environment {kind}` prints; while no agent and no mandate was made \
         in it, there is nothing to compare",
        path.display()
    )
}

/// Refuses a watch key that fits nothing after one that did.
fn must_be_known(other: Option<&Known>, none: &str) -> Result<(), Failure> {
    let Some(last) = other.and_then(Known::last).filter(|last| *last > 0) else { return Ok(()) };
    Err(Failure::new(Exit::NotCompared, none)
        .note("last look", format_args!("had another watch key, which found changes up to number {last}"))
        .note("state", "as it was")
        .next("pass the watch key of the last look; for another environment, keep another --state"))
}

impl Part {
    /// What was found since the last look at this log.
    fn of(looked: Looked, before: Option<&State>) -> Self {
        Self {
            log: looked.checkpoint.origin().to_owned(),
            before: before.map(State::size),
            size: looked.checkpoint.size(),
            keys: looked.keys,
            unknown: looked.unknown,
            governing: looked.governing,
        }
    }

    fn print(&self, continues: Option<&String>, output: &mut Output) {
        output.line("log", printable(&self.log));
        if let Some(older) = continues {
            output.line("continues", format_args!("{CAUTION}{}{CAUTION:#}", printable(older)));
        }
        match self.before {
            Some(before) => {
                let new = self.size.saturating_sub(before);
                output.line("entries", format_args!("{}, {new} of them new", self.size));
            }
            None => output.line("entries", self.size),
        }
        for KeySeen { index, kid, change, at } in &self.keys {
            output.line("key", format_args!("{CAUTION}{kid}{CAUTION:#} {change} {at}, entry {index}"));
        }
        if self.unknown > 0 {
            let unknown = self.unknown;
            output
                .line("unknown", format_args!("{unknown} entries of types that this version does not know"));
        }
        if let Some(changes) = &self.governing {
            changes.print(output);
        }
    }
}

impl Report {
    fn exit(&self) -> Exit {
        let mut changes = self.older.iter().chain([&self.newest]).filter_map(|part| part.governing.as_ref());
        // What is said once comes first.
        if changes.any(|changes| !changes.are_whole()) {
            Exit::Findings
        } else if self.continues.is_some() || self.next.is_some() {
            Exit::NewOrigin
        } else if !self.late.is_empty() {
            Exit::LateLog
        } else if !self.not_compared.is_empty() {
            Exit::NotCompared
        } else {
            Exit::Success
        }
    }

    fn print(&self, now: Timestamp, output: &mut Output) -> Result<Exit, Failure> {
        let exit = self.exit();
        if output.is_json() {
            output.json(self)?;
            return Ok(exit);
        }
        for older in &self.older {
            older.print(None, output);
        }
        self.newest.print(self.continues.as_ref(), output);
        for late in &self.late {
            output.line("late", format_args!("{ERROR}{}{ERROR:#}", printable(late)));
        }
        for not_compared in &self.not_compared {
            output.line("not compared", format_args!("{CAUTION}{}{CAUTION:#}", printable(not_compared)));
        }
        if let Some(next) = &self.next {
            output.line(
                "goes on as",
                format_args!("{CAUTION}{}{CAUTION:#}; {}", printable(next), look::GO_OVER),
            );
        }
        output.text(&match exit {
            Exit::Success => format!("{GOOD}CONSISTENT{GOOD:#} as of {now}\n"),
            Exit::NewOrigin => format!("{CAUTION}NEW ORIGIN{CAUTION:#}: the log goes on under another key\n"),
            Exit::LateLog => format!("{ERROR}LATE{ERROR:#}: the log lacks what it must have had for a day\n"),
            Exit::NotCompared => {
                format!("{CAUTION}NOT ALL COMPARED{CAUTION:#}: the rest is consistent as of {now}\n")
            }
            _ => format!("{ERROR}FINDINGS{ERROR:#}: the governing changes are not 1, 2, 3 … each once\n"),
        });
        Ok(exit)
    }
}
