//! `organization`: onboarding.

use std::io::Write;

use clap::Subcommand;
use mandate_core::api_key::{ApiKey, KeyClass};
use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use serde::Serialize;
use zeroize::Zeroizing;

use super::{Common, Failure};
use crate::clock::{Clock as _, Entropy, SystemClock, SystemEntropy};
use crate::error::{Fault, Refusal};
use crate::service::organizations;
use crate::store;

/// Onboarding.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create an organization; the keys of its two environments are shown once
    #[command(after_help = CREATE_HELP)]
    Create {
        /// Its name: lower-case letters, digits, `_` and `-`
        #[arg(value_parser = AgentName::parse)]
        name: AgentName,

        #[command(flatten)]
        common: Common,
    },
}

const CREATE_HELP: &str = "\
Examples:
  mandate-server organization create acme
  mandate-server organization create acme --database sqlite:///var/lib/mandate/mandate.db --json

The server may be running. `serve` creates the database, so start it once before.";

impl Command {
    /// Does what the command says.
    ///
    /// # Errors
    /// The name is taken, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        let Self::Create { name, common } = self;
        let settings = common.settings()?;
        let created = create(&settings.database, name, SystemClock.now(), &SystemEntropy)
            .map_err(Failure::failed)?
            .map_err(|refusal| Failure::failed(refusal.message))?;
        let mut out = std::io::stdout().lock();
        let shown = if common.json { created.json(&mut out) } else { created.tell(&mut out) };
        shown.map_err(|e| Failure::failed(format!("the keys could not be shown, and are lost: {e}")))
    }
}

/// An organization and its keys, to be shown once.
#[derive(Debug)]
pub struct Created {
    name: AgentName,
    sandbox_key: ApiKey,
    live_key: ApiKey,
}

#[derive(Serialize)]
struct View<'a> {
    organization: &'a AgentName,
    organization_key: &'a str,
    live_organization_key: &'a str,
}

/// A new organization key.
#[must_use]
pub fn new_key(kind: EnvironmentKind, entropy: &dyn Entropy) -> ApiKey {
    let mut random = Zeroizing::new([0; 32]);
    entropy.fill(&mut *random);
    ApiKey::from_random(KeyClass::Organization, kind, &random)
}

/// Creates the organization `name` with a key for each of its environments.
///
/// # Errors
/// The database fails; or, inside, the name is taken.
pub fn create(
    database: &str,
    name: AgentName,
    at: Timestamp,
    entropy: &dyn Entropy,
) -> Result<Result<Created, Refusal>, Fault> {
    let sandbox_key = new_key(EnvironmentKind::Sandbox, entropy);
    let live_key = new_key(EnvironmentKind::Production, entropy);
    let command = organizations::Create { name, sandbox_key, live_key, at };
    let created = store::run_once(database, |tx| organizations::create(tx, &command))?;
    let organizations::Create { name, sandbox_key, live_key, .. } = command;
    Ok(created.map(|()| Created { name, sandbox_key, live_key }))
}

impl Created {
    /// The key of its sandbox.
    #[must_use]
    pub fn sandbox_key(&self) -> &ApiKey {
        &self.sandbox_key
    }

    /// The key of its production environment.
    #[must_use]
    pub fn live_key(&self) -> &ApiKey {
        &self.live_key
    }

    /// Shows the keys, for a person.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn tell(&self, out: &mut impl Write) -> std::io::Result<()> {
        writeln!(out, "organization     {}", self.name)?;
        writeln!(out, "sandbox key      {}", self.sandbox_key.expose())?;
        writeln!(out, "production key   {}", self.live_key.expose())?;
        writeln!(out, "\nThe keys are shown this once and are stored nowhere: keep them now.")
    }

    /// Shows the keys as one line of JSON.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn json(&self, out: &mut impl Write) -> std::io::Result<()> {
        let view = View {
            organization: &self.name,
            organization_key: self.sandbox_key.expose(),
            live_organization_key: self.live_key.expose(),
        };
        serde_json::to_writer(&mut *out, &view)?;
        writeln!(out)
    }
}
