//! `organization`: creates and lists organizations.

use std::io::{self, Write};

use clap::Subcommand;
use mandate_core::api_key::{ApiKey, KeyClass};
use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use serde::Serialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::{Common, Failure, operator, terminal};
use crate::clock::{Entropy, SystemEntropy};
use crate::model::call::ScriptError;
use crate::model::records::Mode;
use crate::service::audit::{self, AuditEntry, Operator};
use crate::service::organizations::{self, EnvironmentRecord};
use crate::store::tx::Tx;

/// Organizations.
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
    /// List the organizations
    #[command(after_help = LIST_HELP)]
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Show an organization's environments
    #[command(after_help = SHOW_HELP)]
    Show {
        /// Its name
        #[arg(value_parser = AgentName::parse)]
        name: AgentName,

        #[command(flatten)]
        common: Common,
    },
}

const CREATE_HELP: &str = "\
Examples:
  mandate-server organization create acme
  mandate-server organization create acme \\
      --database sqlite:///var/lib/mandate/mandate.db --json

The server may be running. `serve` creates the database: start it once before.
The keys are written to standard output first. If that fails, nothing is stored.";

const LIST_HELP: &str = "\
Examples:
  mandate-server organization list
  mandate-server organization list --json | jq -r '.[].organization'";

const SHOW_HELP: &str = "\
Examples:
  mandate-server organization show acme
  mandate-server organization show acme --json

`key list --organization acme` shows its keys.";

/// An organization, as it is shown.
#[derive(Serialize)]
struct OrganizationView<'a> {
    organization: &'a str,
    created_at: Timestamp,
    environments: Vec<EnvironmentView<'a>>,
}

#[derive(Serialize)]
struct EnvironmentView<'a> {
    environment: &'static str,
    mode: Mode,
    since: Timestamp,
    agents: i64,
    policy_version: &'a str,
}

#[derive(Serialize)]
struct Created<'a> {
    organization: &'a AgentName,
    organization_key: &'a str,
    live_organization_key: &'a str,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// The name is taken or unknown, standard output cannot be written, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Create { name, common } => create(name, &common),
            Self::List { common } => list(&common, None),
            Self::Show { name, common } => list(&common, Some(&name)),
        }
    }
}

/// A new organization key.
#[must_use]
pub fn new_key(kind: EnvironmentKind, entropy: &dyn Entropy) -> ApiKey {
    let mut random = Zeroizing::new([0; 32]);
    entropy.fill(&mut *random);
    ApiKey::from_random(KeyClass::Organization, kind, &random)
}

/// The record of a new organization `name`, created at `at`, with new keys.
#[must_use]
pub fn draw(name: AgentName, at: Timestamp, entropy: &dyn Entropy) -> organizations::Create {
    let [sandbox_key, live_key] = EnvironmentKind::ALL.map(|kind| new_key(kind, entropy));
    organizations::Create { name, sandbox_key, live_key, at }
}

fn create(name: AgentName, common: &Common) -> Result<(), Failure> {
    let by = operator::here();
    let create = draw(name, by.at, &SystemEntropy);
    let database = common.settings()?.database;
    let script = |tx: &mut Tx<'_>| onboard(tx, &create, &by);
    terminal::hand_out(&database, script, |(), out| show(&create, common.json, out))?;
    terminal::note("The keys are in force. They are shown this once: keep them now.");
    Ok(())
}

fn onboard(tx: &mut Tx<'_>, create: &organizations::Create, by: &Operator) -> Result<(), ScriptError> {
    organizations::create(tx, create)?;
    let name = create.name.as_str();
    let entry = AuditEntry {
        action: "organization.create",
        organization: Some(name),
        environment: None,
        subject: name,
        details: json!({}),
    };
    Ok(audit::write(tx, by, &entry)?)
}

fn show(create: &organizations::Create, json: bool, out: &mut dyn Write) -> io::Result<()> {
    let organizations::Create { name, sandbox_key, live_key, .. } = create;
    let (organization_key, live_organization_key) = (sandbox_key.expose(), live_key.expose());
    if json {
        return terminal::json(out, &Created { organization: name, organization_key, live_organization_key });
    }
    writeln!(out, "organization     {name}")?;
    writeln!(out, "sandbox key      {organization_key}")?;
    writeln!(out, "production key   {live_organization_key}\n")
}

/// Lists all organizations, or shows one.
fn list(common: &Common, name: Option<&AgentName>) -> Result<(), Failure> {
    let database = common.settings()?.database;
    let found = terminal::run(&database, |tx| organizations::list(tx, name))?;
    let views: Vec<_> = found.chunk_by(|a, b| a.organization == b.organization).filter_map(view).collect();
    let format = |out: &mut dyn Write| {
        let heads = ["ORGANIZATION", "ENVIRONMENT", "MODE", "SINCE", "AGENTS", "POLICY VERSION", "CREATED"];
        let rows = found.iter().map(|record| {
            [
                record.organization.clone(),
                record.kind.to_string(),
                record.mode.as_str().to_owned(),
                terminal::instant(Some(record.since)),
                record.agents.to_string(),
                record.policy_version.to_string(),
                terminal::instant(Some(record.created_at)),
            ]
        });
        terminal::table(out, heads, rows)
    };
    match (name, views.first()) {
        (Some(_), Some(view)) => terminal::print(common.json, view, format),
        _ => terminal::print(common.json, &views, format),
    }
}

fn view(environments: &[EnvironmentRecord]) -> Option<OrganizationView<'_>> {
    let first = environments.first()?;
    let environments = environments.iter().map(|record| EnvironmentView {
        environment: record.kind.as_str(),
        mode: record.mode,
        since: record.since,
        agents: record.agents,
        policy_version: record.policy_version.as_str(),
    });
    Some(OrganizationView {
        organization: &first.organization,
        created_at: first.created_at,
        environments: environments.collect(),
    })
}
