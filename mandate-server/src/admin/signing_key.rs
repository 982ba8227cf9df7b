//! `signing-key` and `master-key`: the keys that sign, and the key that encrypts them.

use std::io::{self, Write};

use clap::Subcommand;
use mandate_core::{EnvironmentKind, Timestamp};
use serde::Serialize;

use super::selection::environment;
use super::{Common, Failure, operator, terminal};
use crate::clock::SystemEntropy;
use crate::config;
use crate::model::master_key::MasterKey;
use crate::service::notices;
use crate::service::signing;
use crate::service::signing::rotation::{self, CACHE_SECONDS, KeyState, Maker};
use crate::store::sql::signing_keys::SigningKeyRecord;

/// Signing keys.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List signing keys and their state
    #[command(after_help = LIST_HELP)]
    List {
        /// Those that are retired or revoked, too
        #[arg(long)]
        all: bool,

        #[command(flatten)]
        common: Common,
    },
    /// Publish new signing keys, which take over by themselves
    #[command(after_help = ROTATE_HELP)]
    Rotate {
        /// Only the key of sandboxes, or of production
        #[arg(long, value_name = "KIND", value_parser = environment)]
        environment: Option<EnvironmentKind>,

        #[command(flatten)]
        common: Common,
    },
    /// Unpublish a signing key at once: for when its private part has become known
    #[command(after_help = REVOKE_HELP)]
    Revoke {
        /// Its name, as `signing-key list` shows it
        kid: String,

        /// Do not ask
        #[arg(long)]
        yes: bool,

        #[command(flatten)]
        common: Common,
    },
    /// Print every public key that there ever was, as a JWK Set
    #[command(after_help = ARCHIVE_HELP)]
    Archive {
        #[command(flatten)]
        common: Common,
    },
}

/// The master key.
#[derive(Debug, Subcommand)]
pub enum MasterCommand {
    /// Seal the signing keys under a new master key
    #[command(after_help = MASTER_HELP)]
    Rotate {
        /// Do not ask
        #[arg(long)]
        yes: bool,

        #[command(flatten)]
        common: Common,
    },
}

const LIST_HELP: &str = "\
Examples:
  mandate-server signing-key list
  mandate-server signing-key list --all --json

incoming: published, not yet signing. signing. outgoing: published, until its last token has long expired. \
retired: kept to verify exports. revoked: not trusted any more.";

const ROTATE_HELP: &str = "\
Examples:
  MANDATE_MASTER_KEY_FILE=mandate-master.key mandate-server signing-key rotate
  mandate-server signing-key rotate --environment production --json

The new key is published at once. About six minutes later no client caches a key set without it, and every server signs \
with it. The old key stays published until its last token has expired. The switch needs no action, and clients do not \
notice it. `serve --signing-key-rotation-days 90` rotates automatically.
The master key comes from MANDATE_MASTER_KEY or MANDATE_MASTER_KEY_FILE.";

const REVOKE_HELP: &str = "\
Examples:
  mandate-server signing-key list
  MANDATE_MASTER_KEY_FILE=mandate-master.key \\
      mandate-server signing-key revoke sandbox-BASE64URL

For an emergency: `signing-key rotate` has no gap. The key is unpublished at once, and another signs at once. For up to \
5 minutes, clients with a cached key set refuse new tokens and accept tokens of the revoked key.";

const ARCHIVE_HELP: &str = "\
Examples:
  mandate-server signing-key archive > keys.json

The server publishes only the keys that valid tokens need. This set also verifies older exports and contracts. It holds no \
secret, and no revoked key.";

const MASTER_HELP: &str = "\
Examples:
  (umask 077; openssl rand -hex 32 > new-master.key)
  MANDATE_MASTER_KEY_FILE=mandate-master.key \\
      MANDATE_NEW_MASTER_KEY_FILE=new-master.key \\
      mandate-server master-key rotate

The present key comes from MANDATE_MASTER_KEY or MANDATE_MASTER_KEY_FILE, the new one from MANDATE_NEW_MASTER_KEY_FILE. \
Running servers continue with the signing keys they have decrypted. Restart them with the new master key soon, and before \
the next rotation of a signing key. List cursors issued before the restart become invalid. A backup needs the master key \
of its time.";

/// A signing key as it is shown, without its private part.
#[derive(Serialize)]
struct View<'a> {
    kid: &'a str,
    environment: &'static str,
    state: KeyState,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_from: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sign_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    publish_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<Timestamp>,
}

impl<'a> View<'a> {
    fn of(key: &'a SigningKeyRecord, now: Timestamp) -> Self {
        let (sign_from, sign_until) = key.window().unzip();
        Self {
            kid: &key.kid,
            environment: key.kind.as_str(),
            state: KeyState::of(key, now),
            created_at: key.created_at,
            sign_from,
            sign_until: sign_until.flatten(),
            publish_until: key.publish_until,
            revoked_at: key.revoked_at,
        }
    }
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The command was refused, there is no master key, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::List { all, common } => list(all, &common),
            Self::Rotate { environment, common } => rotate(environment, &common),
            Self::Revoke { kid, yes, common } => revoke(&kid, yes, &common),
            Self::Archive { common } => {
                let set = terminal::run(&common.settings()?.database, |tx| Ok(signing::archive(tx)?))?;
                writeln!(io::stdout(), "{set}").map_err(Failure::failed)
            }
        }
    }
}

impl MasterCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// One of the two keys is missing or invalid, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        let Self::Rotate { yes, common } = self;
        let (by, database) = (operator::here(), common.settings()?.database);
        let old = config::master_key().map_err(Failure::unusable)?;
        let new = config::new_master_key(&old).map_err(Failure::unusable)?;
        let question = "This seals the signing keys under the new master key. Without it they are lost; with the old one \
                        no server starts any more.";
        terminal::confirm(question, yes)?;
        let maker = maker(&new);
        let sealed = terminal::run(&database, |tx| {
            notices::reseal(tx, &old, maker)?;
            rotation::reseal(tx, &old, maker, &by)
        })?;
        terminal::print(common.json, &serde_json::json!({ "signing_keys": sealed }), |out| {
            writeln!(
                out,
                "{sealed} signing keys are sealed under the new master key. Start the servers anew with it."
            )
        })
    }
}

fn list(all: bool, common: &Common) -> Result<(), Failure> {
    let now = operator::here().at;
    let mut keys = terminal::run(&common.settings()?.database, |tx| Ok(rotation::list(tx)?))?;
    let ended =
        |key: &SigningKeyRecord| matches!(KeyState::of(key, now), KeyState::Retired | KeyState::Revoked);
    keys.retain(|key| all || !ended(key));
    print(&keys, common.json, now)
}

fn rotate(environment: Option<EnvironmentKind>, common: &Common) -> Result<(), Failure> {
    let (by, database) = (operator::here(), common.settings()?.database);
    let master = config::master_key().map_err(Failure::unusable)?;
    let kinds = environment.map_or(EnvironmentKind::ALL.to_vec(), |only| vec![only]);
    let new = terminal::run(&database, |tx| rotation::rotate(tx, maker(&master), &kinds, &by))?;
    print(&new, common.json, by.at)
}

fn revoke(kid: &str, yes: bool, common: &Common) -> Result<(), Failure> {
    let (by, database) = (operator::here(), common.settings()?.database);
    let master = config::master_key().map_err(Failure::unusable)?;
    let key = terminal::run(&database, |tx| rotation::find(tx, kid, by.at))?;
    let refused = format!(
        "for up to {} minutes clients that have kept the key set refuse new tokens",
        CACHE_SECONDS.div_euclid(60)
    );
    let state = KeyState::of(&key, by.at);
    let effect = match state {
        KeyState::Signing => format!("It signs now: another key takes its place at once, and {refused}."),
        _ => format!("It is {}: no new token is concerned.", state.as_str()),
    };
    terminal::confirm(&format!("This unpublishes {kid} of {} for ever. {effect}", key.kind), yes)?;
    let revoked = terminal::run(&database, |tx| rotation::revoke(tx, maker(&master), kid, &by))?;
    terminal::note(&match &revoked.successor {
        Some(next) => format!("{kid} is revoked. {} signs in its place, and {refused}.", next.kid),
        None => format!("{kid} is revoked. It was {}: no new token is concerned.", state.as_str()),
    });
    let changed: Vec<_> = [Some(revoked.key), revoked.successor].into_iter().flatten().collect();
    print(&changed, common.json, by.at)
}

fn maker(master: &MasterKey) -> Maker<'_> {
    Maker { master, entropy: &SystemEntropy }
}

fn print(keys: &[SigningKeyRecord], json: bool, now: Timestamp) -> Result<(), Failure> {
    let views: Vec<_> = keys.iter().map(|key| View::of(key, now)).collect();
    terminal::print(json, &views, |out| {
        let heads = ["KID", "ENVIRONMENT", "STATE", "SIGNS FROM", "SIGNS UNTIL", "PUBLISHED UNTIL"];
        let rows = views.iter().map(|key| {
            [
                key.kid.to_owned(),
                key.environment.to_owned(),
                key.state.as_str().to_owned(),
                terminal::instant(key.sign_from),
                terminal::instant(key.sign_until),
                terminal::instant(key.revoked_at.or(key.publish_until)),
            ]
        });
        terminal::table(out, heads, rows)
    })
}
