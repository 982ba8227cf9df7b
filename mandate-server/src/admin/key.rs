//! `key`: API keys, of organizations and of agents.

use std::io::{self, Write};
use std::time::Duration;

use clap::Subcommand;
use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use serde::Serialize;
use zeroize::Zeroizing;

use super::selection::{KeyArguments, OwnerArguments, environment};
use super::{Common, Failure, operator, terminal};
use crate::clock::{Entropy, SystemEntropy};
use crate::service::audit::Operator;
use crate::service::issuance::{self, Issue, Issued, KeyId, KeyStatus, MAX_RATE, Rotate};
use crate::service::keys::DEFAULT_RATE;
use crate::store::sql::keys::IssuedKey;
use crate::store::tx::Tx;

/// The longest duration that is accepted, in days.
const MAX_DAYS: u64 = 3_660;
const SECONDS_A_DAY: u64 = 24 * 60 * 60;

/// API keys.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Issue a key and show it once
    #[command(after_help = ISSUE_HELP)]
    Issue {
        #[command(flatten)]
        owner: OwnerArguments,

        /// A label for the key, which is shown wherever the key is named
        #[arg(long = "label", alias = "name", value_name = "TEXT")]
        name: Option<String>,

        /// How long the key is valid, such as 90d [default: no end]
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires_in: Option<Duration>,

        /// Requests in any 60 seconds
        #[arg(long, value_name = "REQUESTS", default_value_t = DEFAULT_RATE,
            value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RATE)))]
        rate: u32,

        #[command(flatten)]
        common: Common,
    },
    /// List keys by their ids; the keys themselves are not stored
    #[command(after_help = LIST_HELP)]
    List {
        /// Only keys of this organization
        #[arg(long, value_name = "NAME", value_parser = AgentName::parse)]
        organization: Option<AgentName>,

        /// Only keys of sandboxes, or of production
        #[arg(long, value_name = "KIND", value_parser = environment)]
        environment: Option<EnvironmentKind>,

        /// Only keys of this agent
        #[arg(long, value_name = "NAME", value_parser = AgentName::parse)]
        agent: Option<AgentName>,

        /// Include expired and revoked keys
        #[arg(long)]
        all: bool,

        #[command(flatten)]
        common: Common,
    },
    /// Issue a new key and let the old one expire
    #[command(after_help = ROTATE_HELP)]
    Rotate {
        #[command(flatten)]
        keys: KeyArguments,

        /// How long the old key stays valid; 0s revokes it at once
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration)]
        overlap: Duration,

        /// How long the new key is valid, such as 90d [default: no end]
        #[arg(long, value_name = "TIME", value_parser = duration)]
        expires_in: Option<Duration>,

        #[command(flatten)]
        common: Common,
    },
    /// Revoke keys: every server refuses them within a second
    #[command(after_help = REVOKE_HELP)]
    Revoke {
        #[command(flatten)]
        keys: KeyArguments,

        /// Do not ask
        #[arg(long)]
        yes: bool,

        #[command(flatten)]
        common: Common,
    },
}

const ISSUE_HELP: &str = "\
Examples:
  mandate-server key issue --organization acme --environment production \\
      --label ci --expires-in 90d
  mandate-server key issue --organization acme --environment sandbox --json \\
      | jq -r .api_key
  mandate-server key issue --organization acme --environment sandbox \\
      --agent buyer

The key is written to standard output first. If that fails, nothing is stored. Only its hash is stored: it cannot be shown \
again.";

const LIST_HELP: &str = "\
Examples:
  mandate-server key list --organization acme
  mandate-server key list --organization acme --environment production \\
      --agent buyer --all
  # the id digits of a key that was found somewhere
  printf %s \"$FOUND_KEY\" | sha256sum | cut -c1-12";

const ROTATE_HELP: &str = "\
Examples:
  mandate-server key rotate --key key_0a1b2c3d4e5f --overlap 7d
  mandate-server key rotate --organization acme --environment production \\
      --agent buyer
  mandate-server key rotate --organization acme --environment sandbox \\
      --overlap 0s --json | jq -r .api_key

The new key has the owner, name and rate of the old one. An idempotency key belongs to the API key it was sent with: under \
the new key a retry is a new request.";

const REVOKE_HELP: &str = "\
Examples:
  mandate-server key revoke --key key_0a1b2c3d4e5f
  mandate-server key revoke --organization acme --environment production \\
      --agent buyer --yes

A revoked key never becomes valid again; `key issue` makes a new one.";

/// A key as it is shown, without the secret.
#[derive(Debug, Serialize)]
pub struct KeyView<'a> {
    key: KeyId,
    organization: &'a str,
    environment: &'static str,
    class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<&'a str>,
    rate: u32,
    status: KeyStatus,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<Timestamp>,
}

impl<'a> KeyView<'a> {
    /// The view of `key` at `now`.
    #[must_use]
    pub fn of(key: &'a IssuedKey, now: Timestamp) -> Self {
        Self {
            key: KeyId::of(&key.hash),
            organization: &key.organization,
            environment: key.kind.as_str(),
            class: if key.agent.is_some() { "agent" } else { "organization" },
            agent: key.agent.as_ref().map(mandate_core::AgentId::name),
            label: key.name.as_deref(),
            rate: key.rate,
            status: KeyStatus::of(key, now),
            created_at: key.created_at,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
        }
    }
}

/// A key that was just issued, with its secret.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    view: KeyView<'a>,
    api_key: &'a str,
    /// The key that it replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<KeyView<'a>>,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The command was refused, standard output cannot be written, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        let by = operator::here();
        match self {
            Self::Issue { owner, name, expires_in, rate, common } => {
                let expires_at = expires_in.map(|time| after(&by, time));
                // Not when the arguments are parsed: a refusal would repeat it, and it may hold a key.
                let name = name.as_deref().map(issuance::name).transpose();
                let name = name.map_err(|e| Failure::unusable(format!("--{e}")))?;
                let issue = Issue { owner: owner.into(), random: random(), name, rate, expires_at };
                let (database, json) = (common.settings()?.database, common.json);
                let script = |tx: &mut Tx<'_>| issuance::issue(tx, &issue, &by);
                terminal::hand_out(&database, script, |issued, out| show(out, json, issued, None, &by))?;
                terminal::note("The key is in force. It is shown this once: keep it now.");
                Ok(())
            }
            Self::List { organization, environment, agent, all, common } => {
                let database = common.settings()?.database;
                let mut keys = terminal::run(&database, |tx| issuance::list(tx, organization.as_ref()))?;
                keys.retain(|key| environment.is_none_or(|kind| kind == key.kind));
                let named = |key: &IssuedKey| key.agent.as_ref().map(|id| id.name().to_owned());
                keys.retain(|key| {
                    agent.as_ref().is_none_or(|name| named(key).as_deref() == Some(name.as_str()))
                });
                keys.retain(|key| all || KeyStatus::of(key, by.at) == KeyStatus::InForce);
                print(&keys, common.json, by.at)
            }
            Self::Rotate { keys, overlap, expires_in, common } => {
                let rotate = Rotate {
                    selection: keys.selection()?,
                    random: random(),
                    overlap_seconds: seconds(overlap),
                    expires_at: expires_in.map(|time| after(&by, time)),
                };
                let (database, json) = (common.settings()?.database, common.json);
                let script = |tx: &mut Tx<'_>| issuance::rotate(tx, &rotate, &by);
                let (_, old) = terminal::hand_out(&database, script, |(issued, old), out| {
                    show(out, json, issued, Some(old), &by)
                })?;
                terminal::note(&format!("The new key is in force. {}.", end_of(&old)));
                Ok(())
            }
            Self::Revoke { keys, yes, common } => {
                let (selection, database) = (keys.selection()?, common.settings()?.database);
                let meant = terminal::run(&database, |tx| issuance::select(tx, &selection, by.at))?;
                terminal::confirm(&question(&meant), yes)?;
                let revoked = terminal::run(&database, |tx| issuance::revoke(tx, &selection, &by))?;
                print(&revoked, common.json, by.at)
            }
        }
    }
}

/// Writes keys as a table.
///
/// # Errors
/// `out` cannot be written.
pub fn table(out: &mut dyn Write, keys: &[KeyView<'_>]) -> io::Result<()> {
    let heads = ["KEY", "ORGANIZATION", "ENVIRONMENT", "AGENT", "LABEL", "RATE", "STATUS", "CREATED", "ENDS"];
    let rows = keys.iter().map(|key| {
        [
            key.key.to_string(),
            key.organization.to_owned(),
            key.environment.to_owned(),
            key.agent.unwrap_or_default().to_owned(),
            key.label.unwrap_or_default().to_owned(),
            key.rate.to_string(),
            key.status.as_words().to_owned(),
            terminal::instant(Some(key.created_at)),
            terminal::instant(key.revoked_at.or(key.expires_at)),
        ]
    });
    terminal::table(out, heads, rows)
}

fn print(keys: &[IssuedKey], json: bool, now: Timestamp) -> Result<(), Failure> {
    let views: Vec<_> = keys.iter().map(|key| KeyView::of(key, now)).collect();
    terminal::print(json, &views, |out| table(out, &views))
}

fn show(
    out: &mut dyn Write,
    json: bool,
    issued: &Issued,
    old: Option<&IssuedKey>,
    by: &Operator,
) -> io::Result<()> {
    let (view, secret) = (KeyView::of(&issued.key, by.at), issued.secret.expose());
    if json {
        let replaces = old.map(|old| KeyView::of(old, by.at));
        return terminal::json(out, &Shown { view, api_key: secret, replaces });
    }
    table(out, &[view])?;
    writeln!(out, "\n{secret}\n")
}

/// What happens to a key that was replaced.
fn end_of(old: &IssuedKey) -> String {
    let id = labelled(old);
    match (old.revoked_at, old.expires_at) {
        (None, Some(end)) => format!("The old one, {id}, ends at {}", terminal::instant(Some(end))),
        _ => format!("The old one, {id}, is revoked"),
    }
}

/// A key's id, and its label if it has one.
fn labelled(key: &IssuedKey) -> String {
    let id = KeyId::of(&key.hash);
    key.name.as_ref().map_or_else(|| id.to_string(), |label| format!("{id} ({label})"))
}

fn question(keys: &[IssuedKey]) -> String {
    let whose = |key: &IssuedKey| match &key.agent {
        Some(agent) => format!("agent {} of {}", agent.name(), key.organization),
        None => key.organization.clone(),
    };
    let lines = keys.iter().map(|key| format!("  {} of {}, {}", labelled(key), whose(key), key.kind));
    format!("This revokes, for ever:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

fn random() -> Zeroizing<[u8; 32]> {
    let mut random = Zeroizing::new([0; 32]);
    SystemEntropy.fill(&mut *random);
    random
}

fn after(by: &Operator, time: Duration) -> Timestamp {
    by.at.plus_seconds(seconds(time))
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// Reads a duration such as `24h` or `90d`.
fn duration(text: &str) -> Result<Duration, String> {
    let accepted = || format!("must be a length of time such as 30m, 24h or 90d, of at most {MAX_DAYS}d");
    let time = humantime::parse_duration(text).map_err(|_| accepted())?;
    if time.as_secs() > MAX_DAYS * SECONDS_A_DAY { Err(accepted()) } else { Ok(time) }
}
