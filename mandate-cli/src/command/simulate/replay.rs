//! The simulation: recorded requests are decided under other mandates, and compared.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use mandate_core::{
    AgentId, Amount, Basis, Currency, DecisionId, Evaluation, Mandate, Month, Request, Timestamp, Total,
    Verdict, evaluate,
};
use serde::Serialize;

use super::{FailOn, Reviews};
use crate::exit::{Exit, Failure};
use crate::export::{Decision, Inconsistent, Prologue, Record};

/// The state of a simulation.
pub(in crate::command) struct Replay {
    candidates: HashMap<AgentId, Mandate>,
    agents: HashSet<AgentId>,
    reviews: Reviews,
    /// What each agent has spent in a currency and a month, by the simulated verdicts.
    months: HashMap<(AgentId, Currency, Month), Total>,
    record: Record,
    /// Decisions of approvals that also happen in the simulation.
    approvals: HashSet<DecisionId>,
    /// Decisions of recorded approvals that do not happen in the simulation.
    dropped: HashSet<DecisionId>,
    verdicts: BTreeMap<(&'static str, &'static str), Pair>,
    money: BTreeMap<String, Money>,
    result: Simulated,
    newly: HashMap<&'static str, bool>,
}

/// How often one verdict became another.
#[derive(Debug, Clone, Serialize)]
pub(in crate::command) struct Pair {
    pub(in crate::command) recorded: Verdict,
    pub(in crate::command) simulated: Verdict,
    pub(in crate::command) count: u64,
}

/// What was allowed, and what would have been allowed.
#[derive(Debug, Clone, Serialize)]
pub(in crate::command) struct Money {
    pub(in crate::command) currency: Currency,
    pub(in crate::command) recorded: Total,
    pub(in crate::command) simulated: Total,
}

/// A decision whose verdict would change.
#[derive(Debug, Clone, Serialize)]
pub(in crate::command) struct Change {
    line: u64,
    decision: DecisionId,
    at: Timestamp,
    agent: AgentId,
    amount: Amount,
    currency: Currency,
    recorded: Verdict,
    simulated: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The result.
#[derive(Debug, Default, Serialize)]
pub(in crate::command) struct Simulated {
    pub(in crate::command) requests: u64,
    pub(in crate::command) approvals: u64,
    /// Recorded approvals of requests that need no review in the simulation.
    pub(in crate::command) without_approval: u64,
    /// Requests that need a review in the simulation and are not approved.
    pub(in crate::command) waiting: u64,
    pub(in crate::command) changed: u64,
    pub(in crate::command) verdicts: Vec<Pair>,
    pub(in crate::command) money: Vec<Money>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::command) first: Option<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::command) inconsistent: Option<Inconsistent>,
    #[serde(skip)]
    newly: HashMap<&'static str, bool>,
}

impl Replay {
    pub(in crate::command) fn new(
        candidates: Vec<Mandate>,
        agents: &[AgentId],
        reviews: Reviews,
    ) -> Result<Self, Failure> {
        let mut by_agent = HashMap::new();
        for candidate in candidates {
            let agent = candidate.terms.agent.clone();
            if by_agent.insert(agent.clone(), candidate).is_some() {
                return Err(Failure::new(Exit::Usage, format!("there are two candidates for {agent}"))
                    .next("simulate them one after the other"));
            }
        }
        Ok(Self {
            candidates: by_agent,
            agents: agents.iter().cloned().collect(),
            reviews,
            months: HashMap::new(),
            record: Record::default(),
            approvals: HashSet::new(),
            dropped: HashSet::new(),
            verdicts: BTreeMap::new(),
            money: BTreeMap::new(),
            result: Simulated::default(),
            newly: HashMap::new(),
        })
    }

    /// Decides one request again.
    pub(in crate::command) fn take(
        &mut self,
        prologue: &Prologue,
        line: u64,
        decision: &Decision,
    ) -> Result<Option<Change>, Failure> {
        let agent = &decision.claims.request.agent;
        let left_out = !self.candidates.is_empty() && !self.candidates.contains_key(agent)
            || !self.agents.is_empty() && !self.agents.contains(agent);
        if left_out {
            return Ok(None);
        }
        let mandate = match self.candidates.get(agent) {
            Some(candidate) => Some(candidate.clone()),
            None => prologue.governing(line, decision)?,
        };
        let recent_requests = self.rebuild(prologue, line, decision);
        if decision.claims.verdict == Verdict::Allow {
            let money = self.money(&decision.claims.request);
            money.recorded = money.recorded.plus(decision.claims.request.amount);
        }
        if decision.supersedes.is_some() {
            return Ok(self.approval(line, decision, mandate.as_ref(), recent_requests));
        }
        self.result.requests = self.result.requests.saturating_add(1);
        let (simulated, reason) =
            self.decide(decision, mandate.as_ref(), recent_requests, Evaluation::Request);
        let approved = decision.review.as_ref().and_then(|review| review.decision);
        if simulated == Verdict::Review {
            match (self.reviews, approved) {
                (Reviews::AsRecorded, Some(fresh)) => {
                    self.approvals.insert(fresh);
                }
                (Reviews::Approve, _) => {
                    self.decide(decision, mandate.as_ref(), recent_requests, Evaluation::Approval);
                    self.result.approvals = self.result.approvals.saturating_add(1);
                }
                _ => self.result.waiting = self.result.waiting.saturating_add(1),
            }
        } else if self.reviews == Reviews::AsRecorded {
            self.dropped.extend(approved);
        }
        Ok(self.compare(line, decision, simulated, reason))
    }

    /// Repeats a recorded approval, if its request needs a review in the simulation too, or is not in the
    /// export.
    fn approval(
        &mut self,
        line: u64,
        decision: &Decision,
        mandate: Option<&Mandate>,
        recent_requests: u32,
    ) -> Option<Change> {
        let id = decision.claims.jti;
        let waits = self.approvals.remove(&id);
        let is_dropped = self.dropped.remove(&id);
        if self.reviews != Reviews::AsRecorded || is_dropped && !waits {
            self.result.without_approval = self.result.without_approval.saturating_add(1);
            return None;
        }
        self.result.approvals = self.result.approvals.saturating_add(1);
        let (simulated, reason) = self.decide(decision, mandate, recent_requests, Evaluation::Approval);
        self.compare(line, decision, simulated, reason)
    }

    /// Rebuilds the engine's state: begins a month, and compares the record with the earlier decisions. Returns
    /// the number of requests in the last minute.
    fn rebuild(&mut self, prologue: &Prologue, line: u64, decision: &Decision) -> u32 {
        let follows = self.record.take(prologue, line, decision);
        let request = &decision.claims.request;
        let key = (request.agent.clone(), request.currency.clone(), decision.decided_at.month());
        self.months.entry(key).or_insert(decision.basis.spent);
        let said = decision.basis.recent_requests;
        follows.recent.map_or(said, |count| count.nearest(said))
    }

    /// The engine's verdict. An allowed amount counts as spent.
    fn decide(
        &mut self,
        decision: &Decision,
        mandate: Option<&Mandate>,
        recent_requests: u32,
        evaluation: Evaluation,
    ) -> (Verdict, Option<String>) {
        let request = &decision.claims.request;
        let key = (request.agent.clone(), request.currency.clone(), decision.decided_at.month());
        let spent = self.months.get(&key).copied().unwrap_or_default();
        let basis = Basis { spent, recent_requests };
        let outcome = evaluate(mandate, &basis, request, decision.decided_at, evaluation);
        let (verdict, reason) = (outcome.verdict, outcome.reason.map(|reason| reason.to_string()));
        if verdict == Verdict::Allow {
            self.months.insert(key, spent.plus(request.amount));
            let money = self.money(request);
            money.simulated = money.simulated.plus(request.amount);
        }
        (verdict, reason)
    }

    fn money(&mut self, request: &Request) -> &mut Money {
        self.money.entry(request.currency.as_str().to_owned()).or_insert_with(|| Money {
            currency: request.currency.clone(),
            recorded: Total::ZERO,
            simulated: Total::ZERO,
        })
    }

    fn compare(
        &mut self,
        line: u64,
        decision: &Decision,
        simulated: Verdict,
        reason: Option<String>,
    ) -> Option<Change> {
        let recorded = decision.claims.verdict;
        let count = self.verdicts.entry((recorded.as_str(), simulated.as_str())).or_insert(Pair {
            recorded,
            simulated,
            count: 0,
        });
        count.count = count.count.saturating_add(1);
        if recorded == simulated {
            return None;
        }
        self.result.changed = self.result.changed.saturating_add(1);
        if kind(recorded) != kind(simulated) {
            self.newly.insert(kind(simulated), true);
        }
        let request = &decision.claims.request;
        let change = Change {
            line,
            decision: decision.claims.jti,
            at: decision.decided_at,
            agent: request.agent.clone(),
            amount: request.amount,
            currency: request.currency.clone(),
            recorded,
            simulated,
            reason,
        };
        self.result.first.get_or_insert_with(|| change.clone());
        Some(change)
    }

    pub(in crate::command) fn conclude(self) -> Simulated {
        Simulated {
            verdicts: self.verdicts.into_values().collect(),
            money: self.money.into_values().collect(),
            newly: self.newly,
            inconsistent: self.record.inconsistent,
            ..self.result
        }
    }
}

fn kind(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Review => "review",
        _ => "deny",
    }
}

impl Simulated {
    /// Whether `what` applies.
    pub(in crate::command) fn is(&self, what: FailOn) -> bool {
        let newly = |kind| self.newly.get(kind).copied().unwrap_or_default();
        match what {
            FailOn::Any => self.changed > 0 || self.money.iter().any(|m| m.simulated != m.recorded),
            FailOn::MoreDenials => newly("deny"),
            FailOn::MoreAllows => newly("allow"),
            FailOn::MoreReviews => newly("review"),
            FailOn::MoreSpent => self.money.iter().any(|m| m.simulated > m.recorded),
            FailOn::LessSpent => self.money.iter().any(|m| m.simulated < m.recorded),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, decision, at, agent, amount, currency, recorded, simulated, reason } = self;
        write!(f, "line {line}  {at}  {decision}  {agent}  {amount} {currency}  {recorded} -> {simulated}")?;
        reason.iter().try_for_each(|reason| write!(f, ": {reason}"))
    }
}
