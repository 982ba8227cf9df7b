//! The replay: recorded requests in, verdicts under other mandates out, and what differs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use mandate_core::{
    AgentId, Amount, Basis, Currency, DecisionId, Evaluation, Mandate, Month, Request, Timestamp, Total,
    Verdict, evaluate,
};
use serde::Serialize;

use super::{FailOn, Reviews};
use crate::exit::{Exit, Failure};
use crate::export::{Decision, Prologue, Recent};

/// The state of a simulation.
pub(super) struct Replay {
    candidates: HashMap<AgentId, Mandate>,
    agents: HashSet<AgentId>,
    reviews: Reviews,
    months: HashMap<(AgentId, Currency), Spent>,
    recent: Recent,
    /// When the first decision was made.
    begun: Option<Timestamp>,
    /// Decisions of approvals that take place in the simulation, too.
    approvals: HashSet<DecisionId>,
    /// Decisions of approvals that were recorded and do not take place.
    dropped: HashSet<DecisionId>,
    verdicts: BTreeMap<(&'static str, &'static str), Pair>,
    money: BTreeMap<String, Money>,
    result: Simulated,
    newly: HashMap<&'static str, bool>,
}

/// What an agent has spent in a month and a currency.
#[derive(Debug, Clone, Copy)]
struct Spent {
    month: Month,
    /// By the verdicts of the record.
    recorded: Total,
    /// By those of the simulation.
    simulated: Total,
}

/// Decisions of which the record says otherwise than the decisions before them.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Inconsistent {
    pub(super) decisions: u64,
    pub(super) first_line: u64,
}

/// How often one verdict became another.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Pair {
    pub(super) recorded: Verdict,
    pub(super) simulated: Verdict,
    pub(super) count: u64,
}

/// What was allowed, and what would have been.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Money {
    pub(super) currency: Currency,
    pub(super) recorded: Total,
    pub(super) simulated: Total,
}

/// One decision that would have been another.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Change {
    line: u64,
    decision: DecisionId,
    at: mandate_core::Timestamp,
    agent: AgentId,
    amount: Amount,
    currency: Currency,
    recorded: Verdict,
    simulated: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// What came out.
#[derive(Debug, Default, Serialize)]
pub(super) struct Simulated {
    pub(super) requests: u64,
    pub(super) approvals: u64,
    /// Recorded approvals of requests that do not wait in the simulation.
    pub(super) without_approval: u64,
    /// Requests that wait in the simulation and are not approved.
    pub(super) waiting: u64,
    pub(super) changed: u64,
    pub(super) verdicts: Vec<Pair>,
    pub(super) money: Vec<Money>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first: Option<Change>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) inconsistent: Option<Inconsistent>,
    #[serde(skip)]
    newly: HashMap<&'static str, bool>,
}

impl Replay {
    pub(super) fn new(
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
            recent: Recent::default(),
            begun: None,
            approvals: HashSet::new(),
            dropped: HashSet::new(),
            verdicts: BTreeMap::new(),
            money: BTreeMap::new(),
            result: Simulated::default(),
            newly: HashMap::new(),
        })
    }

    /// Makes one decision again.
    pub(super) fn take(
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

    /// A recorded approval: made again if its request waits in the simulation, too, or lies before the export.
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

    /// The state in which the engine was: begins a month, compares the record with what the decisions before it come to, and
    /// counts what was recorded as spent. Gives the requests of the last minute.
    fn rebuild(&mut self, prologue: &Prologue, line: u64, decision: &Decision) -> u32 {
        let request = &decision.claims.request;
        let since = prologue.header.as_ref().and_then(|header| header.since);
        // A window cut out of an export lacks the minute before it.
        let begun = *self.begun.get_or_insert(decision.at());
        let counts = self.recent.take(decision, Some(begun));
        let (month, basis) = (decision.at().month(), &decision.basis);
        let begins = || {
            // In a month that began within the export, nothing was spent before.
            let is_whole = since.is_none_or(|since| since.month() < month);
            let recorded = if is_whole { Total::ZERO } else { basis.spent };
            Spent { month, recorded, simulated: basis.spent }
        };
        let spent =
            self.months.entry((request.agent.clone(), request.currency.clone())).or_insert_with(begins);
        if spent.month != month {
            *spent = begins();
        }
        let follows = spent.recorded == basis.spent && counts.contains(&basis.recent_requests);
        // From here on as the record has it, so that one gap is reported once.
        spent.recorded = basis.spent;
        if decision.claims.verdict == Verdict::Allow {
            spent.recorded = spent.recorded.plus(request.amount);
        }
        if !follows {
            let odd = self.result.inconsistent.get_or_insert(Inconsistent { decisions: 0, first_line: line });
            odd.decisions = odd.decisions.saturating_add(1);
        }
        basis.recent_requests.clamp(*counts.start(), *counts.end())
    }

    /// The engine's verdict; what it allows is spent.
    fn decide(
        &mut self,
        decision: &Decision,
        mandate: Option<&Mandate>,
        recent_requests: u32,
        evaluation: Evaluation,
    ) -> (Verdict, Option<String>) {
        let request = &decision.claims.request;
        let key = (request.agent.clone(), request.currency.clone());
        let spent = self.months.get(&key).map_or(Total::ZERO, |spent| spent.simulated);
        let basis = Basis { spent, recent_requests };
        let outcome = evaluate(mandate, &basis, request, decision.at(), evaluation);
        let (verdict, reason) = (outcome.verdict, outcome.reason.map(|reason| reason.to_string()));
        if verdict == Verdict::Allow {
            if let Some(spent) = self.months.get_mut(&key) {
                spent.simulated = spent.simulated.plus(request.amount);
            }
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
            at: decision.at(),
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

    pub(super) fn conclude(self) -> Simulated {
        Simulated {
            verdicts: self.verdicts.into_values().collect(),
            money: self.money.into_values().collect(),
            newly: self.newly,
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
    /// Whether `what` is so.
    pub(super) fn is(&self, what: FailOn) -> bool {
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
