//! The steps from what governs to what the directory has, and the hash that names them.

use std::collections::BTreeMap;

use mandate_core::json::{Object, canonical};
use mandate_core::{AgentId, MandateId, MandateStatus, Terms, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::directory::Written;
use crate::client::Client;
use crate::command::mandate::{Side, compare};
use crate::directory::hex;
use crate::exit::{Exit, Failure};
use crate::governed::Governing;
use crate::input::Source;
use crate::mistake;

/// The form of plans. Another form is another hash.
const VERSION: u32 = 1;

/// The members of a plan.
pub(in crate::command) const MEMBERS: [&str; 6] =
    ["version", "hash", "address", "environment", "made_at", "steps"];

/// What is done for an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    /// It has a file, and nothing lets it spend.
    Create,
    /// What governs it is not what its file says.
    Replace,
    /// It has no file, and its mandate is revoked.
    Revoke,
    /// It has a file, but is no agent here. Nothing can be done.
    Unregistered,
    /// It has no file. What governs it goes on.
    Unmanaged,
    /// What governs it is what its file says.
    Unchanged,
}

/// What governed an agent when the plan was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Before {
    pub(super) id: String,
    pub(super) status: String,
}

/// What is done for one agent.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) agent: String,
    pub(super) action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) governing: Option<Before>,
    /// What its file says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) terms: Option<Box<RawValue>>,
    /// The change, line by line.
    pub(super) words: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_30_days: Option<Box<RawValue>>,
}

/// A plan, as it is shown, kept in a file, and done.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The form of the plan.
    pub(super) version: u32,
    /// Names all that the plan does: service, environment, agents, actions, what governed and what will.
    pub(super) hash: String,
    pub(super) address: String,
    pub(super) environment: String,
    pub(super) made_at: String,
    pub(super) steps: Vec<Step>,
}

impl From<&Governing> for Before {
    fn from(governing: &Governing) -> Self {
        Self { id: governing.id.to_string(), status: governing.status.to_string() }
    }
}

impl Action {
    /// Whether it changes what governs.
    pub(super) fn acts(self) -> bool {
        matches!(self, Self::Create | Self::Replace | Self::Revoke)
    }

    /// Whether what governs is not what the directory has.
    pub(super) fn differs(self) -> bool {
        self != Self::Unchanged
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Revoke => "revoke",
            Self::Unregistered => "unregistered",
            Self::Unmanaged => "unmanaged",
            Self::Unchanged => "unchanged",
        }
    }
}

impl Plan {
    /// The plan of these steps for the client's service.
    pub(super) fn new(client: &Client, steps: Vec<Step>, now: Timestamp) -> Result<Self, Failure> {
        let mut plan = Self {
            version: VERSION,
            hash: String::new(),
            address: client.access().base.to_string(),
            environment: environment(client).to_owned(),
            made_at: now.to_string(),
            steps,
        };
        plan.hash = plan.computed()?;
        Ok(plan)
    }

    /// The hash of what the plan says.
    pub(super) fn computed(&self) -> Result<String, Failure> {
        let step = |step: &Step| {
            let terms = step.terms.as_ref().map(|terms| terms.get());
            json!({"agent": step.agent, "action": step.action, "governing": step.governing, "terms": terms})
        };
        let steps: Vec<_> = self.steps.iter().map(step).collect();
        let named = json!({"version": self.version, "address": self.address, "environment": self.environment,
            "steps": steps});
        let text = canonical(named.to_string().as_bytes())
            .map_err(|e| Failure::new(Exit::Io, format!("the plan cannot be written: {e}")))?;
        Ok(format!("sha256:{}", hex(&Sha256::digest(text))))
    }

    /// Reads a plan that was kept in a file.
    pub(super) fn read(text: &str, source: &Source) -> Result<Self, Failure> {
        const ADVICE: &str = "mandate plan DIR --out FILE writes one";
        Object::parse_as("plan", text.as_bytes()).map_err(|why| {
            mistake::refused("the plan", source, text, &why, Exit::InvalidRequest).only_next(ADVICE)
        })?;
        let refused = |why: String| {
            Failure::new(Exit::InvalidRequest, format!("{source} is no plan: {why}")).next(ADVICE)
        };
        let plan: Self = serde_json::from_str(text).map_err(|e| refused(e.to_string()))?;
        if plan.version != VERSION {
            return Err(refused(format!("its form is {}, and this program reads {VERSION}", plan.version)));
        }
        if plan.computed()? != plan.hash {
            return Err(refused("it was changed: its hash is another".to_owned()));
        }
        Ok(plan)
    }

    /// How many steps have this action.
    pub(super) fn count(&self, action: Action) -> usize {
        self.steps.iter().filter(|step| step.action == action).count()
    }

    /// The agents of the steps with this action.
    pub(super) fn agents(&self, action: Action) -> Vec<&str> {
        self.steps.iter().filter(|step| step.action == action).map(|step| step.agent.as_str()).collect()
    }
}

/// The environment of the client's key.
pub(super) fn environment(client: &Client) -> &'static str {
    if client.access().is_live() { "live" } else { "sandbox" }
}

/// The steps by agent.
pub(super) fn steps(
    written: &BTreeMap<AgentId, Written>,
    agents: &BTreeMap<AgentId, Option<Governing>>,
    revoke_missing: bool,
    now: Timestamp,
) -> Result<Vec<Step>, Failure> {
    let mut steps = Vec::new();
    for (agent, file) in written {
        let governing = agents.get(agent).and_then(Option::as_ref);
        steps.push(of_file(file, agents.contains_key(agent), governing, now)?);
    }
    for (agent, governing) in agents.iter().filter(|(agent, _)| !written.contains_key(*agent)) {
        let Some(governing) = governing.as_ref().filter(|governing| governing.is_active()) else { continue };
        let (action, words) = if revoke_missing {
            (Action::Revoke, "it has no file: denied: everything, from the next request on")
        } else {
            (Action::Unmanaged, "it has no file: its mandate goes on")
        };
        steps.push(Step {
            agent: agent.to_string(),
            action,
            file: None,
            governing: Some(governing.into()),
            terms: None,
            words: vec![words.to_owned()],
            last_30_days: None,
        });
    }
    steps.sort_by(|a, b| (a.action, &a.agent).cmp(&(b.action, &b.agent)));
    Ok(steps)
}

/// The step for an agent with a file.
fn of_file(
    written: &Written,
    is_registered: bool,
    governing: Option<&Governing>,
    now: Timestamp,
) -> Result<Step, Failure> {
    let Written { file, terms } = written;
    let agent = &terms.agent;
    let is_same = governing.is_some_and(|governing| same(&governing.terms, terms));
    // A mandate whose last day has passed cannot be written again, and need not be.
    let has_ended = is_same && governing.is_some_and(|governing| governing.status == MandateStatus::Expired);
    if !has_ended {
        terms.must_hold_at(now).map_err(|e| {
            Failure::new(Exit::InvalidRequest, format!("the mandate in {file} is refused: {e}"))
        })?;
    }
    let (action, words) = match governing {
        None if !is_registered => (Action::Unregistered, vec![format!("there is no agent {agent}")]),
        None => (Action::Create, vec![described(terms)]),
        Some(governing) if is_same && governing.is_active() => (Action::Unchanged, Vec::new()),
        Some(_) if has_ended => (Action::Unchanged, vec!["its last day has passed".to_owned()]),
        Some(governing) => {
            let action = if governing.is_active() { Action::Replace } else { Action::Create };
            (action, changes(governing, terms, now)?)
        }
    };
    Ok(Step {
        agent: agent.to_string(),
        action,
        file: Some(file.clone()),
        governing: governing.map(Before::from),
        terms: Some(raw(terms)?),
        words,
        last_30_days: None,
    })
}

/// Each field that changes, and its effect.
fn changes(governing: &Governing, terms: &Terms, now: Timestamp) -> Result<Vec<String>, Failure> {
    let before = Side::read(&governing.shown, now)
        .map_err(|e| Failure::new(Exit::UnknownAnswer, format!("{} is not understood: {e}", governing.id)))?;
    let after = Side::active(terms.clone());
    let lines = compare(&before, &after).into_iter();
    Ok(lines
        .flat_map(|d| [format!("{}: {} -> {}", d.field, d.before, d.after), format!("  {}", d.effect)])
        .collect())
}

/// The terms in a sentence.
fn described(terms: &Terms) -> String {
    let Terms { limits, categories, review_above, principal, expires, .. } = terms;
    let currency = &limits.currency;
    let month = limits.per_month.map_or_else(String::new, |most| format!(", {most} {currency} a month"));
    let review = match review_above {
        Some(above) => format!("; above {above} {principal} decides"),
        None => "; nothing is reviewed".to_owned(),
    };
    let names: Vec<String> = categories.iter().map(ToString::to_string).collect();
    format!(
        "up to {} {currency} a payment{month}, for {}{review}; until {expires}",
        limits.per_transaction,
        names.join(", ")
    )
}

/// Whether both decide and say the same. The order of categories means nothing.
pub(super) fn same(one: &Terms, other: &Terms) -> bool {
    let sorted = |terms: &Terms| {
        let mut terms = terms.clone();
        terms.categories.sort();
        terms
    };
    sorted(one) == sorted(other)
}

fn raw(terms: &Terms) -> Result<Box<RawValue>, Failure> {
    serde_json::to_string(terms)
        .and_then(RawValue::from_string)
        .map_err(|e| Failure::new(Exit::Io, format!("the mandate cannot be written: {e}")))
}

/// The id of what governed, as it is in a plan.
pub(super) fn id(before: &Before) -> Result<MandateId, Failure> {
    MandateId::parse(&before.id)
        .map_err(|e| Failure::new(Exit::InvalidRequest, format!("the plan is refused: {e}")))
}
