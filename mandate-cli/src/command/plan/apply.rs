//! `mandate apply`: does what a plan says, step by step, or nothing.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::path::PathBuf;

use mandate_core::api_key::KeyClass;
use mandate_core::json::Object;
use mandate_core::{AgentId, MandateStatus, Terms};
use serde::Serialize;

use super::steps::{self, Action, Plan, Step, environment};
use super::{planned, print};
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::governed::{self, Governing};
use crate::input::Source;
use crate::output::Output;
use crate::prompt;
use crate::service::Service;
use crate::style::{GOOD, printable};

/// The longest plan that is read, in bytes.
const MAX_PLAN_BYTES: usize = 64 * 1024 * 1024;
/// How many digits of the hash are in an idempotency key.
const KEY_DIGITS: usize = 32;

/// Do exactly what a plan says, or nothing
///
/// The plan is the file that `mandate plan --out FILE` has written. With a directory, the plan is made, shown, and done if
/// a person at a terminal agrees.
///
/// Before anything is changed, every agent of the plan is compared with it: if another mandate governs than when the plan
/// was made, or it was revoked meanwhile, nothing is done (34). What governs an agent is read again before it is changed.
/// A change in the instant between that and the write is not prevented: `mandate drift` finds it.
///
/// A run that was interrupted is ended by the same command: it goes on where it stopped. Two runs at once with the same key
/// change nothing twice.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate apply plan.json
  mandate apply plan.json --hash sha256:5f1d... --yes
  mandate apply mandates/

Exit codes: 0 done    34 what governs is no longer what the plan was made from    30 the plan is refused    4 not confirmed")]
pub(crate) struct Apply {
    /// The plan, or a directory of mandates
    #[arg(value_name = "PLAN|DIR")]
    plan: PathBuf,
    /// Refuse the plan unless this is its hash
    #[arg(long, value_name = "HASH")]
    hash: Option<String>,
    /// With a directory: revoke the mandates of agents that have no file
    #[arg(long)]
    revoke_missing: bool,
    #[command(flatten)]
    service: Service,
}

/// Where an agent is on the way through its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// As it was when the plan was made.
    Before,
    /// As the step leaves it.
    Done,
    /// Neither.
    Elsewhere,
}

/// What was done for an agent.
#[derive(Debug, Serialize)]
struct Done {
    agent: String,
    action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    mandate: Option<String>,
    /// Whether an earlier run has done it.
    already: bool,
}

impl Apply {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.service, global, Some(KeyClass::Organization))?;
        let is_directory = self.plan.is_dir();
        let plan = if is_directory { self.of_directory(&client)? } else { self.of_file(&client)? };
        if let Some(hash) = self.hash.as_ref().filter(|hash| **hash != plan.hash) {
            return Err(Failure::new(
                Exit::InvalidRequest,
                format!("the plan's hash is {}, not {hash}", plan.hash),
            )
            .note("sent", "nothing")
            .next("show the plan again: mandate plan DIR --out FILE"));
        }
        if !output.is_json() {
            print(&plan, output);
        }
        let acting: Vec<&Step> = plan.steps.iter().filter(|step| step.action.acts()).collect();
        must_hold(&client, &plan)?;
        if !acting.is_empty() {
            confirm(&client, &plan, is_directory)?;
        }
        let done = carry_out(&client, &plan, &acting, output)?;
        if output.is_json() {
            output.json(&serde_json::json!({"hash": plan.hash, "done": done}))?;
        } else {
            output.text(&format!("{GOOD}APPLIED{GOOD:#}: {} of {}\n", done.len(), acting.len()));
        }
        Ok(Exit::Success)
    }

    fn of_directory(&self, client: &Client) -> Result<Plan, Failure> {
        if !prompt::can_ask() {
            return Err(Failure::new(
                Exit::Usage,
                "a directory is applied only where a person at a terminal agrees to its plan",
            )
            .next("mandate plan DIR --out plan.json, and then mandate apply plan.json"));
        }
        planned(client, &self.plan, self.revoke_missing, None)
    }

    fn of_file(&self, client: &Client) -> Result<Plan, Failure> {
        if self.revoke_missing {
            return Err(Failure::new(Exit::Usage, "what is revoked is in the plan")
                .next("pass --revoke-missing to mandate plan"));
        }
        let source = Source::File(self.plan.clone());
        let text = source.read("the plan", MAX_PLAN_BYTES, Exit::InvalidRequest)?;
        let plan = Plan::read(&text, &source)?;
        let here = (client.access().base.to_string(), environment(client));
        if (plan.address.as_str(), plan.environment.as_str()) != (here.0.as_str(), here.1) {
            let what = format!("the plan is for {} ({})", plan.address, plan.environment);
            return Err(Failure::new(Exit::InvalidRequest, what)
                .note("this is", format_args!("{} ({})", here.0, here.1))
                .note("sent", "nothing")
                .next("choose the profile or the key that the plan was made with"));
        }
        Ok(plan)
    }
}

/// Where an agent with this governing mandate is.
fn stage(step: &Step, governing: Option<&Governing>) -> Stage {
    let before = step.governing.as_ref();
    let is_before = match (before, governing) {
        (None, None) => true,
        (Some(before), Some(now)) => {
            before.id == now.id.to_string() && before.status == now.status.to_string()
        }
        _ => false,
    };
    let is_done = governing.is_some_and(|now| match step.action {
        Action::Create | Action::Replace => now.is_active() && says(step, now),
        Action::Revoke => {
            now.status == MandateStatus::Revoked
                && before.is_some_and(|before| before.id == now.id.to_string())
        }
        Action::Unregistered | Action::Unmanaged | Action::Unchanged => false,
    });
    match (is_done, is_before) {
        (true, _) => Stage::Done,
        (false, true) => Stage::Before,
        (false, false) => Stage::Elsewhere,
    }
}

/// Whether a mandate is what the step's file says.
fn says(step: &Step, governing: &Governing) -> bool {
    let terms = step.terms.as_ref().map(|terms| Object::parse(terms.get().as_bytes()).and_then(Terms::read));
    matches!(terms, Some(Ok(terms)) if steps::same(&terms, &governing.terms))
}

/// Refuses a plan that was made from other mandates than those that govern now.
fn must_hold(client: &Client, plan: &Plan) -> Result<(), Failure> {
    let agents = governed::all(client)?;
    let mut moved = Vec::new();
    for step in &plan.steps {
        let agent = agent(step)?;
        let governing = agents.get(&agent).and_then(Option::as_ref);
        if stage(step, governing) == Stage::Elsewhere {
            moved.push(other(step, governing));
        }
    }
    if moved.is_empty() {
        return Ok(());
    }
    let failure = Failure::new(Exit::Conflict, "what governs is no longer what the plan was made from");
    let failure = moved.iter().fold(failure, |failure, why| failure.note("changed", why));
    Err(failure
        .note("done", "nothing")
        .next("make the plan again, and look at it: mandate plan DIR --out FILE"))
}

/// What is other than in the plan.
fn other(step: &Step, governing: Option<&Governing>) -> String {
    let was = step
        .governing
        .as_ref()
        .map_or_else(|| "no mandate".to_owned(), |before| format!("{}, {}", before.id, before.status));
    let is = governing.map_or_else(|| "no mandate".to_owned(), |now| format!("{}, {}", now.id, now.status));
    format!("{}: {was} in the plan; now {is}", step.agent)
}

fn agent(step: &Step) -> Result<AgentId, Failure> {
    AgentId::parse(&step.agent)
        .map_err(|e| Failure::new(Exit::InvalidRequest, format!("the plan is refused: {e}")))
}

/// Asks in a live environment, and for a directory in each.
fn confirm(client: &Client, plan: &Plan, is_directory: bool) -> Result<(), Failure> {
    let count = |action| plan.count(action);
    let change = format!(
        "create {}, replace {} and revoke {} mandates",
        count(Action::Create),
        count(Action::Replace),
        count(Action::Revoke)
    );
    if is_directory && !client.access().is_live() && !prompt::confirm(&format!("{change}?"))? {
        return Err(Failure::new(Exit::Declined, format!("not confirmed: {change}")).note("done", "nothing"));
    }
    client.confirm(&change)
}

/// Does the steps that are not done yet, in their order.
fn carry_out(
    client: &Client,
    plan: &Plan,
    acting: &[&Step],
    output: &mut Output,
) -> Result<Vec<Done>, Failure> {
    let mut done = Vec::new();
    for step in acting {
        let agent = agent(step)?;
        let ended = one(client, plan, step, &agent).map_err(|failure| {
            let so_far = format!("{} of {} steps", done.len(), acting.len());
            failure.unadvised().note("done", so_far).next("repeat the command: it goes on where it stopped")
        })?;
        if !output.is_json() {
            let mandate = ended.mandate.as_deref().unwrap_or_default();
            let already = if ended.already { "  (was done before)" } else { "" };
            let label = if step.action == Action::Revoke { "revoked" } else { "written" };
            output.line(label, format_args!("{}  {}{already}", printable(&step.agent), printable(mandate)));
        }
        done.push(ended);
    }
    Ok(done)
}

/// Does one step, unless it is done.
fn one(client: &Client, plan: &Plan, step: &Step, agent: &AgentId) -> Result<Done, Failure> {
    let governing = governed::one(client, agent)?;
    let done = |mandate: Option<String>, already| Done {
        agent: step.agent.clone(),
        action: step.action,
        mandate,
        already,
    };
    match stage(step, governing.as_ref()) {
        Stage::Done => return Ok(done(governing.map(|now| now.id.to_string()), true)),
        Stage::Elsewhere => {
            return Err(Failure::new(Exit::Conflict, other(step, governing.as_ref())));
        }
        Stage::Before => {}
    }
    // The same change of the same plan has the same key: the service makes it once.
    let digits = plan.hash.trim_start_matches("sha256:");
    let key = format!("plan-{}-{agent}", digits.get(..KEY_DIGITS).unwrap_or(digits));
    let client = Client::with(client.access().clone(), Some(key), true)?;
    let body = match (&step.governing, &step.terms) {
        (Some(before), None) => client.post(&format!("/mandates/{}/revoke", steps::id(before)?), None)?,
        (_, Some(terms)) => client.post("/mandates", Some(terms.get()))?,
        (None, None) => {
            return Err(Failure::new(Exit::InvalidRequest, "the plan is refused: a step says nothing"));
        }
    };
    Ok(done(fields::text(&body, "id"), false))
}
