//! Computes from the decisions before one what its record must say: its number, its month's spending, and its
//! agent's recent requests. It uses each agent's sequence and `decided_at`, so wrong clocks make no difference.

use std::collections::HashMap;
use std::fmt;

use mandate_core::{
    AgentId, Currency, DecisionId, Month, RecentRequests, Timestamp, Total, VELOCITY_AHEAD_SECONDS,
    VELOCITY_REQUESTS, VELOCITY_WINDOW_SECONDS, Verdict,
};

use super::{Decision, Header};

/// The part of the decisions so far that later ones depend on. It grows with the number of agents and of the months
/// in which they spend, not with the number of decisions.
#[derive(Debug)]
pub(crate) struct History {
    since: Option<Timestamp>,
    /// Whether the export has all decisions of an agent, from its first row to its last.
    is_complete: bool,
    /// Whether it has all decisions that spend.
    has_spending: bool,
    agents: HashMap<AgentId, Agent>,
}

#[derive(Debug)]
struct Agent {
    last: u64,
    last_id: DecisionId,
    before: Before,
    months: Vec<Spent>,
    recent: RecentRequests,
    /// Unknown requests were made at this instant or before. Absent: all requests are known.
    unknown: Option<Timestamp>,
    /// Whether an unknown request may have pushed a known one out of the ten latest.
    may_lack: bool,
}

/// The decisions before the agent's first one in the export.
#[derive(Debug, Clone, Copy)]
enum Before {
    /// None: it is the agent's first decision.
    Nothing,
    /// Decisions whose ids were drawn before this instant. None was decided later.
    Since(Timestamp),
    /// Decisions that the export should have, and lacks.
    Missing,
}

/// What an agent has spent in a month and a currency.
#[derive(Debug)]
struct Spent {
    currency: Currency,
    month: Month,
    sum: Total,
    /// The sum by the last basis that disagreed. If the next basis agrees with it, a decision is missing. That is
    /// reported once.
    other: Option<Total>,
}

/// How a decision follows from those before it.
#[derive(Debug)]
pub(crate) struct Follows {
    pub(crate) order: Order,
    /// Whether its id is greater than that of the agent's decision before.
    pub(crate) ids_ascend: bool,
    pub(crate) spent: Spending,
    /// How many recent requests the engine saw. Absent: the export does not have all requests.
    pub(crate) recent: Option<Count>,
}

/// How the number of a decision follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// It is the next one, or the first that the export has.
    Next,
    /// Decisions from this number on are missing.
    Missing(u64),
    /// The agent's decision before has this number, which is not smaller. Nothing else is computed.
    Behind(u64),
}

/// The month's spending before a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spending {
    /// The export does not show it.
    Unknown,
    /// It is taken as recorded, since it depends on decisions before the export.
    Opening,
    /// The sum of the decisions, which is the recorded one.
    Holds,
    /// The sum of the decisions, which differs from the recorded one.
    Is(Total),
}

/// How many requests lie in the window before a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    Exactly(u32),
    /// Requests before the export may lie in it too.
    AtLeast(u32),
}

impl History {
    /// The history of an export with this header. Without one it is taken to have everything.
    pub(crate) fn new(header: Option<&Header>) -> Self {
        let is_complete = header.is_none_or(Header::is_complete);
        Self {
            since: header.and_then(|header| header.since),
            is_complete,
            has_spending: is_complete || header.is_some_and(|header| header.verdict == Some(Verdict::Allow)),
            agents: HashMap::new(),
        }
    }

    /// The last sequence of an agent so far.
    pub(crate) fn last(&self, agent: &AgentId) -> Option<u64> {
        self.agents.get(agent).map(|agent| agent.last)
    }

    /// Takes the next decision.
    pub(crate) fn take(&mut self, decision: &Decision) -> Follows {
        let (sequence, id) = (decision.sequence, decision.claims.jti);
        let name = &decision.claims.request.agent;
        let mut follows =
            Follows { order: Order::Next, ids_ascend: true, spent: Spending::Unknown, recent: None };
        let agent = if let Some(agent) = self.agents.get_mut(name) {
            follows.ids_ascend = id > agent.last_id;
            if sequence <= agent.last {
                follows.order = Order::Behind(agent.last);
                return follows;
            }
            let next = agent.last.saturating_add(1);
            if self.is_complete && sequence != next {
                follows.order = Order::Missing(next);
                *agent = Agent::new(Before::Missing, id);
            }
            agent
        } else {
            let before = match self.since {
                _ if sequence <= 1 => Before::Nothing,
                Some(since) => Before::Since(since),
                None if self.is_complete => {
                    follows.order = Order::Missing(1);
                    Before::Missing
                }
                None => Before::Nothing,
            };
            self.agents.entry(name.clone()).or_insert_with(|| Agent::new(before, id))
        };
        (agent.last, agent.last_id) = (sequence, id);
        if self.has_spending {
            follows.spent = agent.spend(decision);
        }
        if self.is_complete {
            follows.recent = Some(agent.ask(decision));
        }
        follows
    }
}

impl Agent {
    fn new(before: Before, id: DecisionId) -> Self {
        let unknown = match before {
            Before::Nothing => None,
            Before::Since(since) => Some(since),
            Before::Missing => Some(Timestamp::from_millis(i64::MAX)),
        };
        let (months, recent) = (Vec::new(), RecentRequests::default());
        Self { last: 0, last_id: id, before, months, recent, unknown, may_lack: false }
    }

    /// Compares what was spent before the decision with what was recorded, and adds what it spends.
    fn spend(&mut self, decision: &Decision) -> Spending {
        let (request, said) = (&decision.claims.request, decision.basis.spent);
        let month = decision.decided_at.month();
        let is_its = |spent: &Spent| spent.month == month && spent.currency == request.currency;
        let known = self.months.iter().rposition(is_its);
        let mut spending = Spending::Holds;
        let place = known.unwrap_or_else(|| {
            let sum = match self.before {
                Before::Nothing => Total::ZERO,
                // Nothing before the export was decided in a later month.
                Before::Since(since) if since.month() < month => Total::ZERO,
                _ => {
                    spending = Spending::Opening;
                    said
                }
            };
            self.months.push(Spent { currency: request.currency.clone(), month, sum, other: None });
            self.months.len().saturating_sub(1)
        });
        let Some(spent) = self.months.get_mut(place) else { return Spending::Unknown };
        if spent.sum == said {
            spent.other = None;
        } else if spent.other == Some(said) {
            (spent.sum, spent.other) = (said, None);
        } else {
            spending = Spending::Is(spent.sum);
            spent.other = Some(said);
        }
        if decision.claims.verdict == Verdict::Allow {
            spent.sum = spent.sum.plus(request.amount);
            spent.other = spent.other.map(|sum| sum.plus(request.amount));
        }
        spending
    }

    /// How many requests the engine saw before this one, which is added.
    fn ask(&mut self, decision: &Decision) -> Count {
        let now = decision.decided_at;
        let window = VELOCITY_WINDOW_SECONDS.saturating_mul(1000);
        let count = match self.unknown {
            Some(unknown) if now.millis_since(unknown) < window => {
                Count::AtLeast(if self.may_lack { 0 } else { self.recent.count_at(now) })
            }
            _ => Count::Exactly(self.recent.count_at(now)),
        };
        // A decision that an approval made is no request.
        if decision.supersedes.is_none() {
            self.may_lack |= self.unknown.is_some_and(|unknown| unknown > now);
            self.recent.record(now);
            let latest = now.plus_seconds(VELOCITY_AHEAD_SECONDS);
            self.unknown = self.unknown.map(|unknown| unknown.min(latest));
        }
        count
    }
}

impl Follows {
    /// Whether the basis is taken as recorded, in part or whole, since it rests on decisions that are not there.
    pub(crate) fn rests_on_openings(&self) -> bool {
        self.spent == Spending::Opening || matches!(self.recent, Some(Count::AtLeast(_)))
    }

    /// Whether number and basis are those that the decisions before give.
    pub(crate) fn holds(&self, decision: &Decision) -> bool {
        let said = decision.basis.recent_requests;
        let has_spent = !matches!(self.spent, Spending::Is(_));
        self.order == Order::Next && has_spent && self.recent.is_none_or(|count| count.allows(said))
    }
}

impl Count {
    /// Whether the recorded count is possible.
    pub(crate) fn allows(self, said: u32) -> bool {
        self.nearest(said) == said
    }

    /// The possible count that is nearest to the recorded one.
    pub(crate) fn nearest(self, said: u32) -> u32 {
        match self {
            Self::Exactly(count) => count,
            Self::AtLeast(count) => said.clamp(count, VELOCITY_REQUESTS.max(count)),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(count) => write!(f, "{count}"),
            Self::AtLeast(count) => write!(f, "{count} to {VELOCITY_REQUESTS}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_core::json::Object;
    use mandate_core::{
        Basis, Denials, ExportId, Nonce, PolicyVersion, Request, VERDICT_LIFETIME_SECONDS, VerdictClaims,
    };
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn decision(sequence: u64, at_millis: i64, basis: Basis) -> Decision {
        let decided_at = Timestamp::from_millis(at_millis);
        let body = br#"{"amount":1,"currency":"USD","recipient":"vendor:v","category":"c"}"#;
        let agent = AgentId::parse("agt_a").unwrap();
        let claims = VerdictClaims {
            iss: "https://verdicts.example".to_owned(),
            jti: DecisionId::from_bytes(u128::from(sequence).to_be_bytes()),
            iat: decided_at.seconds(),
            exp: decided_at.seconds() + VERDICT_LIFETIME_SECONDS,
            verdict: Verdict::Allow,
            mandate: None,
            policy_version: PolicyVersion::parse("pol_2026-01-01.1").unwrap(),
            nonce: Nonce::new(decided_at, u128::from(sequence)),
            request: Request::read(agent, Object::parse(body).unwrap()).unwrap(),
        };
        Decision {
            claims,
            sequence,
            decided_at,
            mode: "enforce".to_owned(),
            reason: None,
            supersedes: None,
            denials: Denials::default(),
            basis,
            review: None,
            verdict_token: String::new(),
        }
    }

    fn header(since: Timestamp) -> Header {
        let (id, environment) = (ExportId::from_bytes([0; 16]), "sandbox".to_owned());
        Header { id, environment, verdict: None, agent: None, since: Some(since), until: None, last: None }
    }

    /// Instants of a clock that mostly goes on, and now and then steps, and what the engine saw at each.
    fn recorded() -> impl Strategy<Value = Vec<(i64, Basis)>> {
        let step = prop_oneof![
            6 => 0_i64..2_500,
            2 => prop_oneof![Just(0), Just(5_000), Just(59_999), Just(60_000)],
            4 => prop_oneof![Just(-2), Just(-2_000), Just(-4_999), Just(-5_001), Just(-60_000)],
            1 => prop_oneof![Just(3_600_000), Just(-3_600_000), Just(3_456_000_000), Just(-3_456_000_000)],
        ];
        vec(step, 2..60).prop_map(|steps| {
            let (mut now, mut recent) = (1_798_761_540_000, RecentRequests::default());
            let mut months = HashMap::<Month, Total>::new();
            let mut recorded = Vec::new();
            for step in steps {
                now += step;
                let at = Timestamp::from_millis(now);
                let spent = months.entry(at.month()).or_default();
                recorded.push((now, Basis { spent: *spent, recent_requests: recent.count_at(at) }));
                *spent = spent.plus(mandate_core::Amount::parse("1").unwrap());
                recent.record(at);
            }
            recorded
        })
    }

    proptest! {
        #[test]
        fn what_was_recorded_follows_whatever_the_clock_did(recorded in recorded()) {
            let mut history = History::new(None);
            for (sequence, (at, basis)) in (1..).zip(recorded) {
                let decision = decision(sequence, at, basis);
                let follows = history.take(&decision);
                prop_assert!(follows.holds(&decision) && !follows.rests_on_openings(), "{follows:?}");
            }
        }

        #[test]
        fn what_rests_on_openings_can_be_what_was_recorded(recorded in recorded(), cut in 1_usize..60) {
            let cut = cut.min(recorded.len() - 1);
            let latest = recorded[..cut].iter().map(|(at, _)| *at).max().unwrap();
            let since = Timestamp::from_millis(latest + 1);
            let mut history = History::new(Some(&header(since)));
            for (sequence, (at, basis)) in (1..).zip(recorded).skip(cut) {
                let decision = decision(sequence, at, basis);
                let follows = history.take(&decision);
                prop_assert!(follows.holds(&decision), "{follows:?} {basis:?}");
                let is_later = decision.decided_at.millis_since(since) >= 60_000;
                let is_exact = matches!(follows.recent, Some(Count::Exactly(_)));
                prop_assert!(is_exact || !is_later, "{follows:?}");
            }
        }
    }

    #[test]
    fn known_requests_count_beside_those_before_the_export() {
        let basis =
            |spent: &str, recent_requests| Basis { spent: Total::parse(spent).unwrap(), recent_requests };
        let since = 1_000_000;
        let mut history = History::new(Some(&header(Timestamp::from_millis(since))));
        let mut take = |sequence, at, basis| history.take(&decision(sequence, at, basis)).recent.unwrap();
        assert_eq!(take(8, since, basis("7", 7)), Count::AtLeast(0));
        assert_eq!(take(9, since + 1_000, basis("8", 8)), Count::AtLeast(1));
        assert_eq!(take(10, since + 59_999, basis("9", 2)), Count::AtLeast(2));
        assert!(!Count::AtLeast(2).allows(1) && Count::AtLeast(2).allows(2));
        assert_eq!(take(11, since + 60_000, basis("10", 2)), Count::Exactly(2));
        assert_eq!(take(12, since + 59_000, basis("11", 3)), Count::AtLeast(4));
    }

    #[test]
    fn a_gap_opens_the_history_again() {
        let basis =
            |spent: &str, recent_requests| Basis { spent: Total::parse(spent).unwrap(), recent_requests };
        let mut history = History::new(None);
        let mut take = |sequence, at, basis| history.take(&decision(sequence, at, basis));
        assert_eq!(take(2, 0, basis("7", 3)).order, Order::Missing(1));
        assert_eq!(take(3, 10_000, basis("8", 1)).order, Order::Next);
        assert_eq!(take(5, 20_000, basis("90", 10)).order, Order::Missing(4));
        assert_eq!(take(5, 20_000, basis("90", 10)).order, Order::Behind(5));
        assert_eq!(take(4, 20_000, basis("90", 10)).order, Order::Behind(5));
        let next = take(6, 30_000, basis("92", 0));
        assert_eq!((next.order, next.spent), (Order::Next, Spending::Is(Total::parse("91").unwrap())));
        assert_eq!(next.recent, Some(Count::AtLeast(0)));
        assert!([0, 10].into_iter().all(|said| next.recent.unwrap().allows(said)));
        assert!(!next.recent.unwrap().allows(11));
        let exact = take(7, 85_000, basis("93", 1));
        assert_eq!((exact.spent, exact.recent), (Spending::Holds, Some(Count::Exactly(1))));
    }
}
