//! `mandate plan`, `apply` and `drift`: the mandates of a directory, one file for each agent.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod apply;
mod directory;
mod drift;
mod money;
mod steps;

use std::path::{Path, PathBuf};

use mandate_core::Timestamp;
use mandate_core::api_key::KeyClass;

pub(crate) use self::apply::Apply;
pub(crate) use self::drift::Drift;
pub(super) use self::steps::MEMBERS;
use self::steps::{Action, Plan as Planned, Step};
use crate::client::Client;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::governed;
use crate::input::Source;
use crate::output::Output;
use crate::service::Service;
use crate::style::{BOLD, CAUTION, DIM, ERROR, GOOD, printable};
use crate::value::source;

/// Show what a directory of mandates would change, and what the last 30 days would have been under it
///
/// The directory has one mandate for each agent, as JSON, in a file *.json. Each agent is `unchanged`, or its file would
/// `create` a mandate or `replace` the one that governs. An agent without a file is `unmanaged`: its mandate goes on. Only
/// with --revoke-missing such mandates are revoked. Nothing is changed by this command.
///
/// For each change the requests of the last 30 days are decided again. They are fetched, or read from an export with
/// --decisions.
///
/// The plan has a hash. It covers the service, the environment, the agents, what is done for each, the mandates that govern
/// now, by their ids, and what the files say. `mandate apply` does what a plan says, or nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate plan mandates/
  mandate plan mandates/ --out plan.json
  mandate plan mandates/ --revoke-missing --decisions export.ndjson

Exit codes: 0 planned    30 a file is refused    33 a file is for an agent that is not registered    3 no such directory")]
pub(crate) struct Plan {
    /// The directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Write the plan to this file, for mandate apply
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Revoke the mandates of agents that have no file
    #[arg(long)]
    revoke_missing: bool,
    /// Take the decisions of the last 30 days from this export instead of fetching them
    #[arg(long, value_name = "EXPORT|-", value_parser = source)]
    decisions: Option<Source>,
    #[command(flatten)]
    service: Service,
}

impl Plan {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        if self.decisions == Some(Source::Stdin) && self.service.key_file == Some(Source::Stdin) {
            return Err(super::both_from_standard_input("the export", "the key"));
        }
        let client = Client::new(&self.service, global, Some(KeyClass::Organization))?;
        let plan = planned(&client, &self.directory, self.revoke_missing, self.decisions.as_ref())?;
        if let Some(path) = &self.out {
            let text = serde_json::to_string_pretty(&plan).unwrap_or_default() + "\n";
            std::fs::write(path, text).map_err(|e| {
                Failure::new(Exit::Io, format!("the plan cannot be written to {}: {e}", path.display()))
            })?;
        }
        if output.is_json() {
            output.json(&plan)?;
        } else {
            print(&plan, output);
        }
        Ok(Exit::Success)
    }
}

/// The plan for a directory, with the money of the last 30 days. Files for agents that are not registered are refused.
fn planned(
    client: &Client,
    directory: &Path,
    revoke_missing: bool,
    decisions: Option<&Source>,
) -> Result<Planned, Failure> {
    let now = environment::now();
    let (mut steps, agents) = compared(client, directory, revoke_missing, now)?;
    let unregistered: Vec<&Step> = steps.iter().filter(|s| s.action == Action::Unregistered).collect();
    if let Some(first) = unregistered.first() {
        let failure = Failure::new(Exit::NotFound, "there are mandates for agents that are not registered");
        let name = |step: &Step| format!("{} ({})", step.agent, step.file.as_deref().unwrap_or_default());
        let failure = unregistered.iter().fold(failure, |failure, step| failure.note("agent", name(step)));
        let example = first.agent.trim_start_matches("agt_");
        return Err(
            failure.next(format_args!("register each, and keep its key: mandate agent create {example}"))
        );
    }
    money::add(&mut steps, &agents, decisions, client, now)?;
    Planned::new(client, steps, now)
}

type Agents = std::collections::BTreeMap<mandate_core::AgentId, Option<governed::Governing>>;

/// The steps from what governs to what the directory has.
fn compared(
    client: &Client,
    directory: &Path,
    revoke_missing: bool,
    now: Timestamp,
) -> Result<(Vec<Step>, Agents), Failure> {
    let written = directory::read(directory)?;
    if written.is_empty() && revoke_missing {
        let what = format!("{} has no mandate: is it the right directory?", directory.display());
        return Err(Failure::new(Exit::Usage, what)
            .next("mandate stop --all revokes every mandate; --revoke-missing wants at least one file"));
    }
    let agents = governed::all(client)?;
    Ok((steps::steps(&written, &agents, revoke_missing, now)?, agents))
}

/// Prints a plan: each step that acts line by line, the others by their agents' names.
fn print(plan: &Planned, output: &mut Output) {
    for step in plan.steps.iter().filter(|step| step.action != Action::Unchanged) {
        print_step(step, output);
    }
    let unchanged = plan.agents(Action::Unchanged);
    if !unchanged.is_empty() {
        output.line("unchanged", format_args!("{}: {}", agents(unchanged.len()), unchanged.join(", ")));
    }
    let revoked = plan.agents(Action::Revoke);
    if !revoked.is_empty() {
        let names = revoked.join(", ");
        output.line(
            "revoke",
            format_args!("{ERROR}{} without a file: {names}{ERROR:#}", agents(revoked.len())),
        );
    }
    let count = |action| plan.count(action);
    let (create, replace, revoke) = (count(Action::Create), count(Action::Replace), count(Action::Revoke));
    let rest = format!("{} unchanged, {} unmanaged", unchanged.len(), count(Action::Unmanaged));
    output.sentence(&if create + replace + revoke == 0 {
        format!("{GOOD}NOTHING TO CHANGE{GOOD:#}: {rest}")
    } else {
        format!("{BOLD}{create} TO CREATE, {replace} TO REPLACE, {revoke} TO REVOKE{BOLD:#}; {rest}")
    });
    output.line("plan", &plan.hash);
}

fn agents(count: usize) -> String {
    if count == 1 { "1 agent".to_owned() } else { format!("{count} agents") }
}

fn print_step(step: &Step, output: &mut Output) {
    let style = match step.action {
        Action::Revoke | Action::Unregistered => ERROR,
        Action::Create | Action::Replace => BOLD,
        Action::Unmanaged | Action::Unchanged => CAUTION,
    };
    let governing = step.governing.as_ref().map_or_else(
        || "nothing was ever written for it".to_owned(),
        |before| format!("{} is {}", before.id, before.status),
    );
    let file = step.file.as_deref().map_or_else(String::new, |file| format!("{}  ", printable(file)));
    output.line(
        step.action.word(),
        format_args!(
            "{style}{}{style:#}  {file}{DIM}{}{DIM:#}",
            printable(&step.agent),
            printable(&governing)
        ),
    );
    for words in &step.words {
        output.line("", printable(words));
    }
}
