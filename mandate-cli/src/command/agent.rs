//! `mandate agent`: register agents, and show them.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::Subcommand;
use mandate_core::api_key::KeyClass;
use mandate_core::{AgentId, AgentName};

use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::named::{Given, completed, given};
use crate::output::{Output, warn};
use crate::resource::{ListOptions, Resource};
use crate::service::{Change, Service};
use crate::table::{text, time, whole};

/// What the id of an agent begins with.
const AGENT_PREFIX: &str = "agt_";

const AGENTS: Resource = Resource {
    path: "/agents",
    class: None,
    id: Some("id"),
    columns: &[text("AGENT", "id"), time("CREATED", "created_at")],
    lines: &[
        whole("agent", "id"),
        text("agent_key", "agent_key"),
        text("mandate", "mandate"),
        text("created", "created_at"),
    ],
    tables: &[],
};

#[derive(Debug, Subcommand)]
pub(crate) enum Agent {
    /// Register an agent, and show its key, once
    #[command(after_help = "\
Examples:
  mandate agent create buyer
  (umask 077; mandate agent create buyer --jq .agent_key > agent.key)

Needs an organization key: a profile's, MANDATE_ORGANIZATION_KEY, MANDATE_ORGANIZATION_KEY_FILE or --key-file.")]
    Create {
        /// The agent's name, unique in the organization; its id becomes `agt_<NAME>`
        #[arg(value_parser = new_name)]
        name: AgentName,
        #[command(flatten)]
        change: Change,
    },
    /// List agents, newest first; with an agent key, only that agent
    #[command(
        alias = "ls",
        after_help = "\
Examples:
  mandate agent list
  mandate agent list --all --jq '.[].id'"
    )]
    List(ListOptions),
    /// Show an agent
    #[command(after_help = "\
Examples:
  mandate agent show buyer
  mandate agent show agt_buyer --json=id,created_at")]
    Show {
        /// The agent: its name, or its id, `agt_...` [default: a choice]
        #[arg(value_name = "AGENT", value_parser = given::<AgentId>, add = completed::<AgentId>())]
        id: Option<Given<AgentId>>,
        #[command(flatten)]
        service: Service,
    },
}

/// The name of a new agent. An id in its place would become a part of the id.
fn new_name(text: &str) -> Result<AgentName, String> {
    if let Some(name) = text.strip_prefix(AGENT_PREFIX) {
        return Err(format!("its id would be agt_{text}; the name alone is `{name}`"));
    }
    AgentName::parse(text).map_err(|e| e.to_string())
}

impl Agent {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        match self {
            Self::Create { name, change } => create(name, change, global, output),
            Self::List(list) => list.run(&AGENTS, Vec::new(), global, output),
            Self::Show { id, service } => AGENTS.get(service, id.as_ref(), global, output),
        }
    }
}

fn create(name: &AgentName, change: &Change, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
    let client = Client::for_change(change, global, Some(KeyClass::Organization))?;
    client.confirm(&format!("register the agent {name}"))?;
    let body = serde_json::json!({ "name": name }).to_string();
    AGENTS.change(&client, AGENTS.path, Some(&body), output)?;
    if !output.is_json() && !output.is_lost() {
        warn("the agent key is shown this once: keep it where only the agent can read it");
    }
    Ok(Exit::Success)
}
