//! `mandate stop`: the emergency stop. It revokes what governs, says what remained, and can be repeated.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::collections::BTreeMap;

use mandate_core::AgentId;
use mandate_core::api_key::KeyClass;
use serde::Serialize;

use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::governed::{self, Governing};
use crate::named::{completed, to_read};
use crate::output::{Output, warn};
use crate::prompt;
use crate::resource::must_be_there;
use crate::service::Service;
use crate::style::{ERROR, GOOD, printable};
use crate::value::agent;

/// How often what governs is read and revoked: a mandate that is written meanwhile is revoked in the next round.
const ROUNDS: usize = 3;

/// Stop agents at once: revoke the mandates that govern them
///
/// From the next request on each of them is denied. In production one confirmation covers all. What cannot be revoked does
/// not keep the others from being revoked; at the end everything is read again, and what still lets an agent spend is
/// named. It is safe to repeat: an agent that is stopped stays so.
///
/// A token of a payment that was allowed before stays valid until it expires, five minutes after it was signed. In observe
/// mode nothing is blocked, and a warning says so. To let an agent spend again, write a mandate for it.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").args(["agent", "all"]))]
#[command(after_help = "\
Examples:
  mandate stop --agent buyer
  mandate stop --agent buyer --agent travel --yes
  mandate stop --all

Exit codes: 0 none of them can spend    3x one still can: why its mandate could not be revoked    4 not confirmed")]
pub(crate) struct Stop {
    /// Stop this agent; can be repeated [default: a choice]
    #[arg(long, value_name = "AGENT", value_parser = agent, add = completed::<AgentId>())]
    agent: Vec<AgentId>,
    /// Stop every agent of the environment
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    service: Service,
}

/// An agent, and the mandate that was revoked or still governs.
#[derive(Debug, Serialize)]
struct Named {
    agent: AgentId,
    mandate: String,
}

/// The members of what was done.
pub(super) const MEMBERS: [&str; 3] = ["stopped", "already", "remaining"];

/// What was done.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    stopped: Vec<Named>,
    /// Agents that could not spend before.
    already: Vec<AgentId>,
    /// Agents that can still spend.
    remaining: Vec<Named>,
}

impl Stop {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.service, global, Some(KeyClass::Organization))?;
        let asked = self.asked(&client)?;
        for id in asked.iter().flatten() {
            must_be_there(&client, &[("agent", id.to_string())])?;
        }
        let mut agents = governed(asked.as_deref(), &client)?;
        let mut done = Outcome {
            already: agents
                .iter()
                .filter(|(_, g)| !is_active(g.as_ref()))
                .map(|(id, _)| id.clone())
                .collect(),
            ..Outcome::default()
        };
        let names: Vec<String> = active(&agents).map(|(id, _)| id.to_string()).collect();
        if !names.is_empty() {
            let number =
                if names.len() == 1 { "the mandate".to_owned() } else { format!("{} mandates", names.len()) };
            client.confirm(&format!("revoke {number} of {}", names.join(", ")))?;
        }
        let mut failed = None;
        for _ in 0..ROUNDS {
            if active_count(&agents) == 0 {
                break;
            }
            failed = revoke(&client, &agents, &mut done, output);
            agents = governed(asked.as_deref(), &client).map_err(|failure| unread(failure, &done))?;
        }
        done.remaining = active(&agents)
            .map(|(id, governing)| Named { agent: id.clone(), mandate: governing.id.to_string() })
            .collect();
        say_mode(&client);
        conclude(&done, failed, output)
    }

    /// The agents that are to be stopped: those that are named, or the one that a person at the terminal chooses. None: all.
    fn asked(&self, client: &Client) -> Result<Option<Vec<AgentId>>, Failure> {
        if self.all {
            return Ok(None);
        }
        if !self.agent.is_empty() {
            return Ok(Some(self.agent.clone()));
        }
        if !prompt::can_ask() {
            return Err(Failure::new(Exit::Usage, "the agents to stop are not named")
                .next("--agent AGENT stops one, and can be repeated; --all stops every agent"));
        }
        Ok(Some(vec![to_read(None, client)?]))
    }
}

/// What governs the agents that are to be stopped.
fn governed(
    asked: Option<&[AgentId]>,
    client: &Client,
) -> Result<BTreeMap<AgentId, Option<Governing>>, Failure> {
    let Some(asked) = asked else { return governed::all(client) };
    asked.iter().map(|id| Ok((id.clone(), governed::one(client, id)?))).collect()
}

fn is_active(governing: Option<&Governing>) -> bool {
    governing.is_some_and(Governing::is_active)
}

/// The agents that can spend.
fn active(agents: &BTreeMap<AgentId, Option<Governing>>) -> impl Iterator<Item = (&AgentId, &Governing)> {
    agents.iter().filter_map(|(id, governing)| Some((id, governing.as_ref().filter(|g| g.is_active())?)))
}

fn active_count(agents: &BTreeMap<AgentId, Option<Governing>>) -> usize {
    active(agents).count()
}

/// Revokes each mandate that governs. Returns the last failure.
fn revoke(
    client: &Client,
    agents: &BTreeMap<AgentId, Option<Governing>>,
    done: &mut Outcome,
    output: &mut Output,
) -> Option<Failure> {
    let mut failed = None;
    for (agent, governing) in active(agents) {
        let id = governing.id;
        let revoked = client.afresh().and_then(|client| client.post(&format!("/mandates/{id}/revoke"), None));
        match revoked {
            Ok(_) => {
                if !output.is_json() {
                    output.line("stopped", format_args!("{}  {id}", printable(agent.as_str())));
                }
                done.stopped.push(Named { agent: agent.clone(), mandate: id.to_string() });
            }
            Err(failure) => failed = Some(failure),
        }
    }
    failed
}

/// The failure to read what governs after something was revoked.
fn unread(failure: Failure, done: &Outcome) -> Failure {
    let number = done.stopped.len();
    failure
        .unadvised()
        .note("done", format_args!("{number} mandates were revoked"))
        .next("what remains is not known: repeat the command, which revokes what it finds")
}

/// Says that nothing is blocked in observe mode. A mode that cannot be read is not worth a failure here.
fn say_mode(client: &Client) {
    let mode = client.get("/enforcement", &[]).ok().and_then(|body| fields::text(&body, "mode"));
    if mode.as_deref() == Some("observe") {
        warn(
            "the environment is in observe mode: a denial is advice, and blocks nothing; mandate enforcement set enforce",
        );
    }
}

fn conclude(done: &Outcome, failed: Option<Failure>, output: &mut Output) -> Result<Exit, Failure> {
    let Outcome { stopped, already, remaining } = done;
    if output.is_json() {
        output.json(done)?;
    } else {
        if !already.is_empty() {
            output.line("already", format_args!("{} could not spend before", already.len()));
        }
        for Named { agent, mandate } in remaining {
            output
                .line("remaining", format_args!("{ERROR}{}  {mandate}{ERROR:#}", printable(agent.as_str())));
        }
        output.text(&if remaining.is_empty() {
            format!("{GOOD}STOPPED{GOOD:#}: {} revoked, none remain\n", stopped.len())
        } else {
            format!("{ERROR}NOT STOPPED{ERROR:#}: {} revoked, {} remain\n", stopped.len(), remaining.len())
        });
    }
    if remaining.is_empty() {
        return Ok(Exit::Success);
    }
    let failure = failed
        .unwrap_or_else(|| Failure::new(Exit::Conflict, "mandates are written as fast as they are revoked"));
    Err(failure.only_next("repeat the command: it revokes what it finds"))
}
