//! `mandate agent`: register agents.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::Subcommand;
use mandate_core::AgentName;
use mandate_core::api_key::KeyClass;

use super::Answer;
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::output::{Output, printable, warn};
use crate::service::Service;

#[derive(Debug, Subcommand)]
pub(crate) enum Agent {
    /// Register an agent; its key is shown once
    #[command(after_help = "\
Examples:
  mandate agent create buyer
  mandate agent create buyer --json | jq -r .agent_key > agent.key

Needs an organization key: MANDATE_ORGANIZATION_KEY, MANDATE_ORGANIZATION_KEY_FILE or --key-file.")]
    Create {
        /// The agent's name, unique in the organization; its id becomes `agt_<NAME>`
        #[arg(value_parser = AgentName::parse)]
        name: AgentName,
        #[command(flatten)]
        service: Service,
    },
}

pub(super) fn run(args: Agent, output: &mut Output) -> Result<Exit, Failure> {
    let Agent::Create { name, service } = args;
    let client = Client::new(&service, KeyClass::Organization)?;
    let body = client.post("/agents", Some(&serde_json::json!({ "name": name }).to_string()))?;
    client.note_if_lost(output);
    if output.is_json() {
        output.body(&body);
        return Ok(Exit::Success);
    }
    tell(&body, output).map_err(|failure| client.told(failure))?;
    if !output.is_lost() {
        warn("the agent key is shown this once: keep it where only the agent can read it");
    }
    Ok(Exit::Success)
}

fn tell(body: &str, output: &mut Output) -> Result<(), Failure> {
    let mut agent = Answer::read(body)?;
    let (id, key) = (agent.text("id")?, agent.text("agent_key")?);
    output.line("agent", printable(&id));
    output.line("agent_key", printable(&key));
    Ok(())
}
