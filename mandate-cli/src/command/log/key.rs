//! `mandate log key`: the keys of logs, which of them is pinned, and new keys of witnesses.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;

use mandate_core::log::{KeyKind, VerifierKey};
use serde_json::{Value, json};

use super::witness::secret;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::output::{Output, note, say, warn};
use crate::public_log::pins::{self, Pin};
use crate::public_log::place::{LogArgs, Place};
use crate::public_log::source::Source;
use crate::public_log::trust::key;
use crate::style::printable;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Key {
    /// Show the key that a log publishes, with its fingerprint
    ///
    /// Where a log has ended and others have begun in its place, it is the key of the newest one, or of the one that --number
    /// names. An address that ends with a number, and a folder, have one log.
    #[command(after_help = "\
Examples:
  mandate log key show --issuer https://verdicts.example.com
  mandate log key show --issuer https://verdicts.example.com --jq .key > log.key
  mandate log key show --issuer https://verdicts.example.com --number 1")]
    Show {
        /// Which of the logs that have followed one another, from 1 [default: the newest]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        number: Option<u64>,
        #[command(flatten)]
        log: LogArgs,
    },
    Pin(PinKey),
    /// Remove a log's pinned key
    #[command(after_help = "Examples:\n  mandate log key unpin --issuer https://verdicts.example.com")]
    Unpin {
        #[command(flatten)]
        log: LogArgs,
    },
    /// List pinned keys
    #[command(after_help = "Examples:\n  mandate log key list\n  mandate log key list --json")]
    List,
    /// Make a key for `mandate log witness`, and print the verifier key to give to logs and verifiers
    #[command(after_help = "Examples:\n  mandate log key create witness.example.org/w1 -o witness.key")]
    Create {
        /// The witness's name: by convention an address of yours without a scheme
        #[arg(value_name = "NAME")]
        name: String,
        /// Write the secret key to this file, which must not be there
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
}

/// Pin a log's key, so that nothing else passes for the log
///
/// Shows the key with its fingerprint and asks for confirmation. Compare the fingerprint with the one that the operator gave
/// you through another channel. Without a terminal: --fingerprint pins the key with this fingerprint and no other;
/// --trust-on-first-use pins whatever is published, if nothing is pinned yet. A log never changes its key. Another key is
/// another log: it is refused until the old one is unpinned, or the new one is named with --fingerprint.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate log key pin --issuer https://verdicts.example.com
  mandate log key pin --issuer https://verdicts.example.com \\
      --fingerprint 0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I
  mandate log key pin --issuer https://verdicts.example.com --trust-on-first-use

Exit codes:
  0 pinned    4 not confirmed    23 the key is not the one named or pinned    51 no key of this log    2 usage")]
pub(crate) struct PinKey {
    /// Take this key instead of the one that the log publishes
    #[arg(long, value_name = "KEY|@FILE")]
    key: Option<String>,
    /// Pin the key with this fingerprint
    #[arg(
        long,
        value_name = "FINGERPRINT",
        allow_hyphen_values = true,
        conflicts_with = "trust_on_first_use"
    )]
    fingerprint: Option<String>,
    /// Pin the key without asking, if none is pinned yet
    #[arg(long)]
    trust_on_first_use: bool,
    #[command(flatten)]
    log: LogArgs,
}

impl Key {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        match self {
            Self::Show { log, number } => {
                let place = log.place(None, global)?;
                let key = published(&place, *number)?;
                show(&described(&place.to_string(), &key, None), output)?;
            }
            Self::Pin(args) => args.run(global, output)?,
            Self::Unpin { log } => {
                let place = log.place(None, global)?.to_string();
                if !pins::remove(&place)? {
                    return Err(Failure::new(
                        Exit::NotFound,
                        format!("no key is pinned for the log at {place}"),
                    )
                    .next("`mandate log key list` shows what is pinned"));
                }
                output.line("unpinned", printable(&place));
            }
            Self::List => {
                let all: Vec<_> =
                    pins::all()?.iter().map(|pin| described(&pin.log, &pin.key, Some(pin))).collect();
                if output.is_json() {
                    output.json(&all)?;
                } else {
                    if all.is_empty() {
                        note("none is pinned; mandate log key pin does it");
                    }
                    all.iter().try_for_each(|one| show(one, output))?;
                }
            }
            Self::Create { name, output: path } => {
                let verifier = secret::create(name, path)?;
                if output.is_json() {
                    output.json(&json!({"key": verifier.to_string(), "file": path.display().to_string()}))?;
                } else {
                    output.text(&format!("{verifier}\n"));
                }
            }
        }
        Ok(Exit::Success)
    }
}

impl PinKey {
    fn run(&self, global: &Global, output: &mut Output) -> Result<(), Failure> {
        let place = self.log.place(None, global)?;
        let Place::Url(address) = &place else {
            return Err(Failure::new(
                Exit::Usage,
                "the key of a folder is not pinned: it is a copy of a log",
            )
            .next("pass the log's address, or --log-key where the folder is used"));
        };
        let key = match &self.key {
            Some(text) => key(text, KeyKind::Note)?,
            None => published(&place, None)?,
        };
        if !place.may_have(key.name()) {
            return Err(Failure::new(
                Exit::NotProved,
                format!("the key is that of the log {}, which is not the log at {place}", key.name()),
            )
            .next("check the address; the log's key has the log's address as its name"));
        }
        self.must_be_confirmed(&place, &key, pins::find(&place)?.as_ref())?;
        let pin = Pin { log: address.as_str().to_owned(), pinned_at: environment::now(), key };
        pins::write(&pin)?;
        show(&described(&pin.log, &pin.key, Some(&pin)), output)
    }

    /// Confirms the key in one of three ways.
    fn must_be_confirmed(
        &self,
        place: &Place,
        key: &VerifierKey,
        before: Option<&Pin>,
    ) -> Result<(), Failure> {
        let print = key.fingerprint();
        if let Some(wanted) = &self.fingerprint {
            if *wanted == print {
                return Ok(());
            }
            return Err(Failure::new(
                Exit::Findings,
                format!("the log's key has the fingerprint {print}, not {wanted}"),
            )
            .next("ask the operator for the fingerprint, through another channel than this network"));
        }
        if let Some(before) = before {
            if before.key == *key {
                return Ok(());
            }
            return Err(Failure::new(Exit::Findings, format!("the log at {place} shows another key than the one that is pinned"))
                .note("pinned", format_args!("{} of {}", before.key.fingerprint(), before.key.name()))
                .note("shown", format_args!("{print} of {}", key.name()))
                .next("a log never changes its key; if the operator has announced a new log, pin it with --fingerprint"));
        }
        if self.trust_on_first_use {
            return Ok(());
        }
        if !std::io::stdin().is_terminal() {
            return Err(Failure::new(Exit::Usage, "the key cannot be confirmed without a terminal")
                .next("pass --fingerprint FINGERPRINT, or --trust-on-first-use"));
        }
        say(&format!("  {print}  {}\npin this key for {place}? [y/N] ", printable(key.name())));
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        if read.is_ok() && ["y", "yes"].contains(&line.trim().to_ascii_lowercase().as_str()) {
            return Ok(());
        }
        Err(Failure::new(Exit::Declined, "nothing was pinned"))
    }
}

/// How many logs may follow one another at an address.
const MAX_LOGS: usize = 1_000;

/// The key that a place shows now: of the log with this number, or of the newest one. A folder, and an address that ends with
/// a number, have one log.
fn published(place: &Place, number: Option<u64>) -> Result<VerifierKey, Failure> {
    let mut source = Source::new(number.map_or_else(|| Ok(place.clone()), |number| place.numbered(number))?)?;
    for _ in 0..MAX_LOGS {
        let (key, next) = (source.key()?, source.next()?);
        let Some(next) = next else { return Ok(key) };
        if number.is_some() || !place.leads_to(next.name()) {
            warn(format_args!(
                "the log {} has ended, and goes on as {}",
                printable(key.name()),
                printable(next.name())
            ));
            return Ok(key);
        }
        source = Source::of(place, Some(&next))?;
    }
    Err(Failure::new(
        Exit::NotProved,
        format!("the log at {place} has begun again more than {MAX_LOGS} times"),
    ))
}

fn described(log: &str, key: &VerifierKey, pin: Option<&Pin>) -> Value {
    let (origin, print, key) = (key.name(), key.fingerprint(), key.to_string());
    match pin.map(|pin| pin.pinned_at.to_string()) {
        Some(at) => json!({"log": log, "origin": origin, "fingerprint": print, "key": key, "pinned_at": at}),
        None => json!({"log": log, "origin": origin, "fingerprint": print, "key": key}),
    }
}

fn show(shown: &Value, output: &mut Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(shown);
    }
    for name in ["log", "origin", "fingerprint", "key", "pinned_at"] {
        if let Some(text) = shown.get(name).and_then(Value::as_str) {
            output.line(name, printable(text));
        }
    }
    Ok(())
}
