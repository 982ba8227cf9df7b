//! `mandate jwks`: an issuer's public keys, and which of them are pinned.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::io::{BufRead as _, IsTerminal as _};

use mandate_core::jwks::{KeySet, VerificationKey};
use serde::Serialize;

use crate::environment;
use crate::exit::{Exit, Failure};
use crate::key_set::pins::{self, Pin, thumbprint};
use crate::key_set::{document, parse, published_at, well_formed};
use crate::output::{Output, note, say};
use crate::style::{CAUTION, printable};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Jwks {
    /// Show the keys that an issuer publishes, or the keys in a file
    #[command(after_help = "\
Examples:
  mandate jwks show https://verdicts.example.com
  mandate jwks show --jwks jwks.json --json")]
    Show {
        /// The issuer
        #[arg(value_name = "ISSUER", required_unless_present = "jwks")]
        issuer: Option<String>,
        /// Read this key set instead
        #[arg(long, value_name = "FILE|URL")]
        jwks: Option<String>,
    },
    Pin(PinKeys),
    /// Remove an issuer's pinned keys
    #[command(after_help = "Examples:\n  mandate jwks unpin https://verdicts.example.com")]
    Unpin {
        /// The issuer
        #[arg(value_name = "ISSUER")]
        issuer: String,
    },
    /// List pinned keys
    #[command(alias = "ls", after_help = "Examples:\n  mandate jwks list\n  mandate jwks list --json")]
    List,
}

/// Pin an issuer's keys, so that `mandate verify --pinned` trusts no others
///
/// Shows the keys with their RFC 7638 thumbprints and asks for confirmation. Compare the thumbprints with those that the
/// issuer gave you through another channel. Without a terminal, choose the keys by an option: --fingerprint pins the keys
/// with these thumbprints, and fails if one of them is not published; --trust-on-first-use pins all published keys, but
/// never replaces pinned keys.
#[derive(Debug, clap::Args)]
#[command(after_help = PIN_HELP)]
pub(crate) struct PinKeys {
    /// The issuer
    #[arg(value_name = "ISSUER")]
    issuer: String,
    /// Read this key set instead of the one that the issuer publishes
    #[arg(long, value_name = "FILE|URL")]
    jwks: Option<String>,
    /// Pin the key with this thumbprint; can be repeated
    #[arg(
        long,
        value_name = "THUMBPRINT",
        allow_hyphen_values = true,
        conflicts_with = "trust_on_first_use"
    )]
    fingerprint: Vec<String>,
    /// Pin all keys without asking, if none is pinned yet
    #[arg(long)]
    trust_on_first_use: bool,
}

const PIN_HELP: &str = "\
Examples:
  mandate jwks pin https://verdicts.example.com
  mandate jwks pin https://verdicts.example.com \\
      --fingerprint 0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I
  mandate jwks pin https://verdicts.example.com --jwks jwks.json \\
      --trust-on-first-use

Exit codes:
  0 pinned    19 no key set    23 the keys are not those named or pinned    4 not confirmed";

/// The members of what is shown of a key set.
pub(super) const MEMBERS: [&str; 3] = ["issuer", "pinned_at", "keys"];
/// Those of one that is not pinned.
pub(super) const UNPINNED: [&str; 2] = ["issuer", "keys"];

#[derive(Serialize)]
struct Shown<'a> {
    issuer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned_at: Option<String>,
    keys: Vec<ShownKey>,
}

#[derive(Serialize)]
struct ShownKey {
    kid: String,
    thumbprint: String,
    environment: &'static str,
}

pub(crate) fn run(args: &Jwks, output: &mut Output) -> Result<Exit, Failure> {
    match args {
        Jwks::Show { issuer, jwks } => {
            let place = match (issuer, jwks) {
                (_, Some(place)) => place.clone(),
                (issuer, None) => published_at(issuer.as_deref().unwrap_or_default())?.to_string(),
            };
            let keys = parse(&document(&place)?, &place)?;
            show(&[Shown { issuer: issuer.as_deref(), pinned_at: None, keys: shown(&keys) }], false, output)?;
        }
        Jwks::Pin(args) => pin(args, output)?,
        Jwks::Unpin { issuer } => {
            if !pins::remove(issuer)? {
                return Err(Failure::new(Exit::NotFound, format!("no keys are pinned for `{issuer}`"))
                    .next("`mandate jwks list` shows what is pinned"));
            }
            if output.is_json() {
                show(&[Shown { issuer: Some(issuer), pinned_at: None, keys: Vec::new() }], false, output)?;
            } else {
                output.line("unpinned", printable(issuer));
            }
        }
        Jwks::List => {
            let pins = pins::all()?;
            if pins.is_empty() && !output.is_json() {
                note("none are pinned; mandate jwks pin does it");
            }
            let all: Vec<_> = pins.iter().map(|pin| of_pin(pin)).collect();
            show(&all, true, output)?;
        }
    }
    Ok(Exit::Success)
}

fn pin(args: &PinKeys, output: &mut Output) -> Result<(), Failure> {
    // With another spelling of the issuer, the keys would never be found again.
    let address = published_at(&well_formed(&args.issuer)?)?;
    let place = match &args.jwks {
        Some(place) => place.clone(),
        None => address.to_string(),
    };
    let published = parse(&document(&place)?, &place)?;
    let before = pins::find(&args.issuer)?;
    let keys = chosen(args, &published, before.as_ref())?;
    let now = environment::now();
    pins::write(&args.issuer, &keys, now)?;
    show(
        &[Shown { issuer: Some(&args.issuer), pinned_at: Some(now.to_string()), keys: shown(&keys) }],
        false,
        output,
    )
}

/// The keys to pin, confirmed in one of three ways.
fn chosen(args: &PinKeys, published: &KeySet, before: Option<&Pin>) -> Result<KeySet, Failure> {
    let other = |message: String| Failure::new(Exit::Findings, message);
    if published.is_empty() {
        return Err(Failure::new(Exit::KeySet, "the key set has no ES256 key, so there is nothing to pin"));
    }
    if !args.fingerprint.is_empty() {
        let named = |key: &&VerificationKey| args.fingerprint.contains(&thumbprint(key));
        let keys: Vec<_> = published.iter().filter(named).cloned().collect();
        let missing =
            args.fingerprint.iter().find(|print| !keys.iter().any(|key| thumbprint(key) == **print));
        if let Some(print) = missing {
            return Err(other(format!("no key of the set has the thumbprint `{print}`")).next(
                "ask the issuer for the thumbprints of its keys, through another channel than this network",
            ));
        }
        return KeySet::archive(keys).map_err(|e| Failure::new(Exit::KeySet, e.to_string()));
    }
    let prints = |keys: &KeySet| keys.iter().map(thumbprint).collect::<std::collections::BTreeSet<_>>();
    let changed = before.is_some_and(|pin| prints(&pin.keys) != prints(published));
    if args.trust_on_first_use {
        if changed {
            return Err(other(format!(
                "the keys pinned for `{}` are not those that it publishes",
                args.issuer
            ))
            .next(
                "if the issuer announces new keys, pin them with --fingerprint, or unpin the old ones first",
            ));
        }
        return Ok(published.clone());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(Exit::Usage, "the keys cannot be confirmed without a terminal")
            .next("pass --fingerprint THUMBPRINT for each key, or --trust-on-first-use"));
    }
    if changed {
        say(&format!("{CAUTION}warning:{CAUTION:#} these differ from the keys that are pinned now\n"));
    }
    for key in published.iter() {
        say(&format!("  {}  {}\n", thumbprint(key), environment_of(key)));
    }
    say(&format!("pin these keys for {}? [y/N] ", printable(&args.issuer)));
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    if read.is_ok() && ["y", "yes"].contains(&line.trim().to_ascii_lowercase().as_str()) {
        return Ok(published.clone());
    }
    Err(Failure::new(Exit::Declined, "nothing was pinned"))
}

fn environment_of(key: &VerificationKey) -> &'static str {
    if key.kid().is_sandbox() { "sandbox" } else { "production" }
}

fn shown(keys: &KeySet) -> Vec<ShownKey> {
    let one = |key: &VerificationKey| ShownKey {
        kid: key.kid().to_string(),
        thumbprint: thumbprint(key),
        environment: environment_of(key),
    };
    keys.iter().map(one).collect()
}

fn of_pin(pin: &Pin) -> Shown<'_> {
    Shown { issuer: Some(&pin.issuer), pinned_at: Some(pin.pinned_at.to_string()), keys: shown(&pin.keys) }
}

fn show(sets: &[Shown<'_>], many: bool, output: &mut Output) -> Result<(), Failure> {
    if output.is_json() {
        return match sets {
            [one] if !many => output.json(one),
            _ => output.json(&sets),
        };
    }
    for set in sets {
        if let Some(issuer) = set.issuer {
            output.line("issuer", printable(issuer));
        }
        if let Some(at) = &set.pinned_at {
            output.line("pinned", at);
        }
        for key in &set.keys {
            output.line("key", format_args!("{}  {}", key.thumbprint, key.environment));
        }
    }
    Ok(())
}
