//! `log`: the public logs, and the witnesses that cosign them.

mod files;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use mandate_core::log::{KeyKind, VerifierKey};
use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use serde::Serialize;
use serde_json::json;

use super::selection::environment;
use super::{Common, Failure, operator, terminal};
use crate::clock::SystemEntropy;
use crate::config;
use crate::service::public_log::{Remembered, operated, publish};
use crate::service::signing::rotation::Maker;
use crate::store::sql::public_log::PublicLog;
use crate::store::sql::witnesses::{self, Witness};
use crate::store::tx::Tx;

/// The public logs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the logs: names, keys, sizes, and what waits to be appended
    #[command(after_help = SHOW_HELP)]
    Show {
        #[command(flatten)]
        common: Common,
    },
    /// Write a log as files, for a static host
    #[command(after_help = EXPORT_HELP)]
    Export {
        /// The log: sandbox or production
        #[arg(value_name = "KIND", value_parser = environment)]
        kind: EnvironmentKind,

        /// The directory; it is created if it is not there
        #[arg(value_name = "DIR")]
        directory: PathBuf,

        /// Which log of the kind, from 1; an older one has ended [default: the newest]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        number: Option<u64>,

        #[command(flatten)]
        common: Common,
    },
    /// Print the secret by which an organization, or its auditor, finds its entries
    #[command(after_help = WATCH_KEY_HELP)]
    WatchKey {
        /// The organization
        #[arg(value_name = "NAME", value_parser = AgentName::parse)]
        organization: AgentName,

        /// Its sandbox, or production
        #[arg(long, value_name = "KIND", value_parser = environment)]
        environment: EnvironmentKind,

        #[command(flatten)]
        common: Common,
    },
    /// Add, list and remove the witnesses that are asked to cosign
    #[command(subcommand, after_help = "Examples:\n  mandate-server log witness list")]
    Witness(WitnessCommand),
    /// Let a stopped log go on
    #[command(after_help = CONTINUE_HELP)]
    Continue {
        /// The log: sandbox or production
        #[arg(value_name = "KIND", value_parser = environment)]
        kind: EnvironmentKind,

        #[command(flatten)]
        common: Common,
    },
    /// Begin another log, with another name and key, in place of one that cannot go on
    #[command(after_help = NEW_ORIGIN_HELP)]
    NewOrigin {
        /// The log: sandbox or production
        #[arg(value_name = "KIND", value_parser = environment)]
        kind: EnvironmentKind,

        /// Do not ask
        #[arg(long)]
        yes: bool,

        #[command(flatten)]
        common: Common,
    },
}

/// The witnesses.
#[derive(Debug, Subcommand)]
pub enum WitnessCommand {
    /// Ask a witness to cosign each checkpoint
    #[command(after_help = ADD_HELP)]
    Add {
        /// The key of its cosignatures, as it publishes it: a name, 8 digits and a key, with `+` between them
        #[arg(value_name = "KEY")]
        key: String,

        /// Where it is asked; `/add-checkpoint` is appended
        #[arg(value_name = "URL")]
        url: String,

        #[command(flatten)]
        common: Common,
    },
    /// List the witnesses
    #[command(after_help = "Examples:\n  mandate-server log witness list --json")]
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Ask a witness no more
    #[command(after_help = "Examples:\n  mandate-server log witness remove witness.example")]
    Remove {
        /// Its name, or its whole key
        #[arg(value_name = "NAME")]
        name: String,

        #[command(flatten)]
        common: Common,
    },
}

const SHOW_HELP: &str = "\
Examples:
  mandate-server log show
  mandate-server log show --json | jq -r '.logs[].verifier_key'

A log of each kind holds an entry for each decision, each change of what governs, and each signing key. docs/proof.md says what \
it proves. Publish the verifier keys where counterparties find them, and the fingerprints in another place, so that no one account can change both.";

const EXPORT_HELP: &str = "\
Examples:
  mandate-server log export production /srv/log/production
  mandate-server log export production /srv/log/production --number 1
  mandate-server log export production /srv/log/production/2

Writes the published part: `key`, `keys`, `tile/…` and `checkpoint`, under the names that the server uses below /log/production/, and of \
a log that has ended `next`, the key of the log that follows. Run it again to add what is new, or after it was \
killed: files that are there as they should be are kept. The newest log is written, or --number.";

const WATCH_KEY_HELP: &str = "\
Examples:
  (umask 077; MANDATE_MASTER_KEY_FILE=mandate-master.key \\
      mandate-server log watch-key acme --environment production > watch.key)

The holder finds each entry of this environment, and no other's, with `mandate log monitor` and `mandate log audit`. It signs \
and decrypts nothing. The command writes an audit record. The master key comes from MANDATE_MASTER_KEY or \
MANDATE_MASTER_KEY_FILE.";

const CONTINUE_HELP: &str = "\
Examples:
  mandate-server log continue production

A log is stopped by `backup restore`, and where the server finds that it is behind a checkpoint that was published. Decisions go \
on meanwhile, and their entries wait. Let it go on only if no checkpoint was published after the backup was taken: a log with two \
roots for one size convicts its operator. Otherwise run `log new-origin`.";

const NEW_ORIGIN_HELP: &str = "\
Examples:
  MANDATE_MASTER_KEY_FILE=mandate-master.key \\
      mandate-server log new-origin production

The new log has another name and key. Its first entry is the last published checkpoint of the old one. What was in the old one \
stays as it is; monitors report the change, and counterparties need the new verifier key. The master key comes from \
MANDATE_MASTER_KEY or MANDATE_MASTER_KEY_FILE.";

const ADD_HELP: &str = "\
Examples:
  mandate-server log witness add \\
      witness.example+3fa2b1c0+BASE64 https://witness.example

Running servers ask it from the next checkpoint on. A checkpoint waits at most 2 seconds for its witnesses, and has its quorum \
when more than half have cosigned. `mandate log witness` runs a witness.";

#[derive(Serialize)]
struct View<'a> {
    environment: &'static str,
    origin: &'a str,
    verifier_key: &'a str,
    fingerprint: String,
    entries: u64,
    published: u64,
    /// The size of the newest checkpoint that had its quorum of witnesses.
    witnessed: u64,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<&'a str>,
}

impl<'a> View<'a> {
    fn of(log: &'a PublicLog) -> Result<Self, Failure> {
        let size = |text: Option<&String>| {
            let checkpoint = text.map(|text| publish::stored(log, text)).transpose();
            checkpoint
                .map(|found| found.map_or(0, |found| found.checkpoint().size()))
                .map_err(Failure::failed)
        };
        Ok(Self {
            environment: log.kind.as_str(),
            origin: &log.origin,
            verifier_key: &log.verifier_key,
            fingerprint: fingerprint(log)?,
            entries: log.tree.size(),
            published: size(log.checkpoint.as_ref())?,
            witnessed: size(log.witnessed.as_ref())?,
            created_at: log.created_at,
            stopped: log.stopped.as_deref(),
        })
    }
}

/// What counterparties compare before they pin the key.
fn fingerprint(log: &PublicLog) -> Result<String, Failure> {
    let key = VerifierKey::parse(&log.verifier_key);
    key.map(|key| key.fingerprint())
        .map_err(|why| Failure::failed(format!("the key of the log {}: {why}", log.origin)))
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The command was refused, there is no master key, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Show { common } => show(&common),
            Self::Export { kind, directory, number, common } => export((kind, number), &directory, &common),
            Self::WatchKey { organization, environment, common } => {
                let (by, database) = (operator::here(), common.settings()?.database);
                let master = config::master_key().map_err(Failure::unusable)?;
                let of = (&organization, environment);
                let key = terminal::run(&database, |tx| operated::watch_key(tx, &master, of, &by))?;
                terminal::print(common.json, &json!({ "watch_key": key }), |out| writeln!(out, "{key}"))
            }
            Self::Witness(command) => command.run(),
            Self::Continue { kind, common } => go_on(kind, &common),
            Self::NewOrigin { kind, yes, common } => new_origin(kind, yes, &common),
        }
    }
}

impl WitnessCommand {
    fn run(self) -> Result<(), Failure> {
        match self {
            Self::Add { key, url, common } => add(&key, url, &common),
            Self::List { common } => {
                let found = terminal::run(&common.settings()?.database, |tx| Ok(witnesses::all(tx)?))?;
                let view = |one: &Witness| json!({ "name": one.key.name(), "key": one.key.to_string(), "url": one.url, "created_at": one.created_at });
                let views: Vec<_> = found.iter().map(view).collect();
                terminal::print(common.json, &views, |out| {
                    let rows = found.iter().map(|one| [one.key.to_string(), one.url.clone()]);
                    terminal::table(out, ["KEY", "URL"], rows)
                })
            }
            Self::Remove { name, common } => {
                let (by, database) = (operator::here(), common.settings()?.database);
                let key = terminal::run(&database, |tx| operated::remove_witness(tx, &name, &by))?;
                terminal::print(common.json, &json!({ "removed": key.to_string() }), |out| {
                    writeln!(out, "{} is asked no more.", key.name())
                })
            }
        }
    }
}

fn show(common: &Common) -> Result<(), Failure> {
    let (logs, oldest) = terminal::run(&common.settings()?.database, operated::overview)?;
    let views: Vec<_> = logs.iter().map(View::of).collect::<Result<_, _>>()?;
    let shown = json!({ "logs": views, "oldest_waiting": oldest });
    terminal::print(common.json, &shown, |out| {
        for view in &views {
            writeln!(out, "log          {}", view.origin)?;
            writeln!(out, "key          {}", view.verifier_key)?;
            writeln!(out, "fingerprint  {}", view.fingerprint)?;
            writeln!(out, "entries      {}", view.entries)?;
            writeln!(out, "published    {}", view.published)?;
            writeln!(out, "witnessed    {}", view.witnessed)?;
            if let Some(stopped) = view.stopped {
                writeln!(out, "stopped      {stopped}")?;
            }
            writeln!(out)?;
        }
        match oldest {
            Some(at) => writeln!(out, "waiting      since {at}"),
            None => writeln!(out, "waiting      nothing"),
        }
    })
}

fn export(log: (EnvironmentKind, Option<u64>), directory: &Path, common: &Common) -> Result<(), Failure> {
    let database = common.settings()?.database;
    let written = files::write(&database, log, directory).map_err(Failure::failed)?;
    let Some((size, new)) = written else {
        return Err(Failure::failed(format!(
            "the {} log has no checkpoint; a running server signs one, unless the log has ended",
            log.0
        )));
    };
    let shown = json!({ "directory": directory, "entries": size, "files_written": new });
    terminal::print(common.json, &shown, |out| {
        writeln!(out, "{size} entries are in {}; {new} files were written", directory.display())
    })
}

fn go_on(kind: EnvironmentKind, common: &Common) -> Result<(), Failure> {
    let (by, settings) = (operator::here(), common.settings()?);
    let remembered = Remembered::new(settings.checkpoints_directory());
    let log = terminal::run(&settings.database, |tx| operated::go_on(tx, kind, &remembered, &by))?;
    terminal::print(common.json, &json!({ "log": log.origin }), |out| {
        writeln!(out, "{} goes on. A running server appends what waits within seconds.", log.origin)
    })
}

fn new_origin(kind: EnvironmentKind, yes: bool, common: &Common) -> Result<(), Failure> {
    let (by, settings) = (operator::here(), common.settings()?);
    let remembered = Remembered::new(settings.checkpoints_directory());
    let master = config::master_key().map_err(Failure::unusable)?;
    let question = format!(
        "The {kind} log ends here, and another with another key begins. Monitors report it, and counterparties need the new key."
    );
    terminal::confirm(&question, yes)?;
    let maker = Maker { master: &master, entropy: &SystemEntropy };
    let of = (kind, settings.verdicts_url.as_deref());
    let replace = |tx: &mut Tx<'_>| operated::new_origin(tx, maker, of, &remembered, &by);
    let (before, begun) = terminal::run(&settings.database, replace)?;
    let print = fingerprint(&begun)?;
    let shown = json!({
        "log": begun.origin, "verifier_key": begun.verifier_key, "fingerprint": print, "replaces": before.origin,
    });
    terminal::print(common.json, &shown, |out| {
        writeln!(
            out,
            "{} begins in place of {}. Publish its key:\n{}\nfingerprint {print}",
            begun.origin, before.origin, begun.verifier_key
        )
    })
}

fn add(key: &str, url: String, common: &Common) -> Result<(), Failure> {
    let (by, database) = (operator::here(), common.settings()?.database);
    let key = VerifierKey::parse(key).map_err(|e| Failure::unusable(format!("KEY: {e}")))?;
    if key.kind() != KeyKind::Cosignature {
        return Err(Failure::unusable(
            "KEY must be that of cosignatures (type 4), as a witness publishes it",
        ));
    }
    let is_url =
        url::Url::parse(&url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    if !is_url {
        return Err(Failure::unusable(format!(
            "URL must begin with https:// or http:// and a host; got `{url}`"
        )));
    }
    let witness = Witness { key, url, created_at: by.at };
    terminal::run(&database, |tx| operated::add_witness(tx, &witness, &by))?;
    let Witness { key, url, .. } = witness;
    terminal::print(common.json, &json!({ "key": key.to_string(), "url": url }), |out| {
        writeln!(out, "{} is asked at {url} from the next checkpoint on.", key.name())
    })
}
