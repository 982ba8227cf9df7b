//! What the last 30 days' decisions would have been under a plan: the requests are decided again.

use std::collections::{BTreeMap, HashMap};

use mandate_core::json::Object;
use mandate_core::{AgentId, DecisionId, ExportId, Invalid, Mandate, MandateId, Terms, Timestamp, Verdict};
use serde::Serialize;
use serde_json::value::RawValue;

use super::steps::{Action, Step};
use crate::client::Client;
use crate::command::simulate::{Money, Pair, Replay, Reviews, Simulated};
use crate::exit::{Exit, Failure};
use crate::export::{Decision, Entry, Header, Prologue, Reader, walk, with_revocation};
use crate::governed::{Governing, list};
use crate::input::Source;
use crate::output::warn;

const DAY_SECONDS: i64 = 24 * 60 * 60;
/// How far back the decisions go that are decided again, in days.
const DAYS: i64 = 30;

/// What the last 30 days would have been, as JSON.
#[derive(Serialize)]
struct Last30Days<'a> {
    requests: u64,
    approvals: u64,
    waiting: u64,
    changed: u64,
    verdicts: &'a [Pair],
    money: &'a [Money],
}

/// Adds to each step that acts what the last 30 days would have been under it.
pub(super) fn add(
    steps: &mut [Step],
    agents: &BTreeMap<AgentId, Option<Governing>>,
    decisions: Option<&Source>,
    client: &Client,
    now: Timestamp,
) -> Result<(), Failure> {
    let since = now.plus_seconds(-DAYS * DAY_SECONDS);
    let mut replays = HashMap::new();
    for step in steps.iter().filter(|step| step.action.acts()) {
        let agent = AgentId::parse(&step.agent).map_err(|e| refused(&e))?;
        let candidate = candidate(step, agents.get(&agent).and_then(Option::as_ref))?;
        replays.insert(agent, Replay::new(vec![candidate], &[], Reviews::AsRecorded)?);
    }
    match decisions {
        Some(source) => from_export(&mut replays, source, since)?,
        None => fetched(&mut replays, client, since)?,
    }
    for step in steps.iter_mut() {
        let agent = AgentId::parse(&step.agent).map_err(|e| refused(&e))?;
        let Some(replay) = replays.remove(&agent) else { continue };
        let simulated = replay.conclude();
        step.words.extend(words(&simulated));
        let text = serde_json::to_string(&Last30Days::of(&simulated)).and_then(RawValue::from_string);
        step.last_30_days = Some(text.map_err(|e| Failure::new(Exit::Io, e.to_string()))?);
    }
    Ok(())
}

impl<'a> Last30Days<'a> {
    fn of(simulated: &'a Simulated) -> Self {
        let Simulated { requests, approvals, waiting, changed, .. } = *simulated;
        Self { requests, approvals, waiting, changed, verdicts: &simulated.verdicts, money: &simulated.money }
    }
}

/// The mandate that a step leaves in force: the file's, or the revoked one.
fn candidate(step: &Step, governing: Option<&Governing>) -> Result<Mandate, Failure> {
    let mandate = |terms| Mandate::new(MandateId::from_bytes([0; 16]), terms, Timestamp::from_seconds(0));
    match (&step.terms, governing) {
        (Some(terms), _) => {
            let terms =
                Object::parse(terms.get().as_bytes()).and_then(Terms::read).map_err(|e| refused(&e))?;
            Ok(mandate(terms))
        }
        (None, Some(governing)) => {
            let is_revoked = step.action == Action::Revoke;
            Ok(with_revocation(&mandate(governing.terms.clone()), is_revoked))
        }
        (None, None) => Err(Failure::new(Exit::InvalidRequest, "a step has neither a file nor a mandate")),
    }
}

fn refused(why: &Invalid) -> Failure {
    Failure::new(Exit::InvalidRequest, format!("the plan is refused: {why}"))
}

fn from_export(
    replays: &mut HashMap<AgentId, Replay>,
    source: &Source,
    since: Timestamp,
) -> Result<(), Failure> {
    let (mut first, mut last) = (None::<Timestamp>, None::<Timestamp>);
    walk(
        Reader::open_in_order(source, false)?,
        source,
        |prologue| {
            if prologue.is_complete() {
                return Ok(());
            }
            Err(Failure::new(Exit::Usage, "the export holds the decisions of one verdict only")
                .next("export the decisions without a filter on the verdict"))
        },
        |prologue, line, decision| {
            first.get_or_insert(decision.decided_at);
            last = Some(decision.decided_at);
            match replays.get_mut(&decision.claims.request.agent) {
                Some(replay) if decision.placed_at() >= since => {
                    replay.take(prologue, line, decision).map(drop)
                }
                _ => Ok(()),
            }
        },
    )?;
    match (first, last) {
        (Some(first), _) if first > since.plus_seconds(DAY_SECONDS) => {
            warn(format_args!("the export begins at {first}: the money is that of less than {DAYS} days"));
        }
        (_, Some(last)) if last < since => {
            warn(format_args!("the export ends at {last}: it has no decision of the last {DAYS} days"));
        }
        _ => {}
    }
    Ok(())
}

fn fetched(replays: &mut HashMap<AgentId, Replay>, client: &Client, since: Timestamp) -> Result<(), Failure> {
    for (agent, replay) in replays {
        let filters = vec![("agent", agent.to_string()), ("since", since.to_string())];
        let prologue = Prologue { header: Some(header(agent, since)), ..Prologue::default() };
        // A list begins with the newest.
        let decisions = list(client, "/decisions", filters)?;
        for (line, shown) in (1_u64..).zip(decisions.iter().rev()) {
            replay.take(&prologue, line, &decision(shown)?)?;
        }
    }
    Ok(())
}

/// What an export of these decisions would say of itself.
fn header(agent: &AgentId, since: Timestamp) -> Header {
    Header {
        id: ExportId::from_bytes([0; 16]),
        environment: String::new(),
        verdict: None::<Verdict>,
        agent: Some(agent.clone()),
        since: Some(since),
        until: None,
        last: None::<DecisionId>,
    }
}

fn decision(shown: &str) -> Result<Decision, Failure> {
    let line = format!("{{\"decision\":{shown}}}");
    match Entry::read(line.as_bytes()) {
        Ok(Entry::Decision(decision)) => Ok(*decision),
        Ok(_) => Err(Failure::new(Exit::UnknownAnswer, "the service's decision is not one")),
        Err(e) => {
            Err(Failure::new(Exit::UnknownAnswer, format!("the service's decision is not understood: {e}")))
        }
    }
}

/// What would have changed, for people.
fn words(simulated: &Simulated) -> Vec<String> {
    if simulated.requests == 0 && simulated.approvals == 0 {
        return vec![format!("last {DAYS} days: no request")];
    }
    let mut words = Vec::new();
    for money in &simulated.money {
        words.push(format!(
            "last {DAYS} days: {} {currency} allowed; under this plan {} {currency}",
            money.recorded,
            money.simulated,
            currency = money.currency
        ));
    }
    if words.is_empty() {
        words.push(format!("last {DAYS} days: nothing allowed; under this plan nothing either"));
    }
    let changed = simulated.verdicts.iter().filter(|pair| pair.recorded != pair.simulated);
    words.extend(changed.map(|pair| {
        let was = if pair.count == 1 { "request that was" } else { "requests that were" };
        format!("  {} {was} {} would be {}", pair.count, pair.recorded, pair.simulated)
    }));
    if simulated.changed == 0 {
        words.push(match simulated.requests {
            1 => "  the one request would be decided alike".to_owned(),
            requests => format!("  none of {requests} requests would be decided otherwise"),
        });
    }
    words
}
