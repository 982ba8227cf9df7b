//! Decides as the service does, on clocks that go on or step, and keeps what an export says of it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use mandate_core::es256::Signer;
use mandate_core::json::Object;
use mandate_core::{
    AgentId, Basis, DecisionId, Evaluation, Mandate, MandateId, Month, Nonce, PolicyVersion, RecentRequests,
    Request, ReviewId, Terms, Timestamp, Total, VERDICT_LIFETIME_SECONDS, Verdict, VerdictClaims, evaluate,
    jwt,
};

use super::{AGENTS, ISSUER, Plan, at, terms};

/// 2026-12-31T23:58:00Z: clocks that step cross the end of the year, and of months.
const STEPPING_FROM_MILLIS: i64 = 1_798_761_480_000;
/// By how much clocks step, back and ahead: 2 ms, 2 s, 60 s, 1 h, 40 days.
const STEPS_MILLIS: [i64; 5] = [2, 2_000, 60_000, 3_600_000, 40 * 86_400_000];
/// By how much the clock of the second server is ahead.
const APART_MILLIS: i64 = 2_000;
/// In an export of clocks that step this agent has no mandate before its fifth request.
const LATE: usize = 3;

/// Who answers every review.
const BY_KEY: &str = r#""resolved_by":{"kind":"key","id":"key_abababababab","name":"approvals"}"#;

struct State {
    plan: Plan,
    /// None: only the mandates are wanted, and nothing is signed.
    signer: Option<Arc<dyn Signer>>,
    random: u64,
    clock_millis: i64,
    agents: Vec<Agent>,
    /// The greatest id.
    last: u128,
    drawn: u64,
    reviews: u64,
    waiting: VecDeque<Row>,
    /// Reviews to be approved: how many requests from now.
    due: VecDeque<(usize, DecisionId)>,
}

/// An agent, as it is at the end.
#[derive(Default)]
pub(super) struct Agent {
    sequence: u64,
    last: u128,
    months: HashMap<(Month, String), Total>,
    recent: RecentRequests,
    pub(super) mandates: Vec<Mandate>,
    /// Those that a decision names: an export has no others.
    pub(super) named: HashSet<MandateId>,
}

struct Row {
    id: DecisionId,
    request: Request,
    agent: usize,
    head: String,
    /// The review's id, until it is known how it ends.
    pending: Option<ReviewId>,
    review: String,
    token: String,
}

/// Decides on everything. Returns the agents as they are at the end.
pub(super) fn decided(
    plan: &Plan,
    signer: Option<Arc<dyn Signer>>,
    emit: &mut dyn FnMut(&str),
) -> Vec<Agent> {
    let mut state = State::new(plan, signer);
    let mut number = 0;
    while number < plan.rows {
        let burst = if state.roll(97) == 0 { 13 } else { 1 };
        let agent = usize::try_from(state.roll(AGENTS as u64)).unwrap();
        for _ in 0..burst.min(plan.rows - number) {
            let now = state.now(number);
            state.change(number, agent, now);
            state.request(number, agent, now);
            number += 1;
            state.approvals(number);
            if !plan.steps {
                state.flush(false, emit);
            }
        }
    }
    // Of agents whose clocks were apart the rows interleave otherwise than they were decided.
    state.waiting.make_contiguous().sort_by_key(|row| row.id);
    state.flush(true, emit);
    state.agents
}

impl State {
    fn new(plan: &Plan, signer: Option<Arc<dyn Signer>>) -> Self {
        let mut state = Self {
            random: plan.seed.wrapping_mul(2).wrapping_add(1),
            clock_millis: STEPPING_FROM_MILLIS,
            agents: (0..AGENTS).map(|_| Agent::default()).collect(),
            last: 0,
            drawn: 0,
            signer,
            reviews: 0,
            waiting: VecDeque::new(),
            due: VecDeque::new(),
            plan: plan.clone(),
        };
        let first = if plan.steps { Timestamp::from_millis(STEPPING_FROM_MILLIS) } else { at(0) };
        for agent in (0..AGENTS).filter(|agent| !plan.steps || *agent != LATE) {
            let text = plan.terms.get(&agent).cloned().unwrap_or_else(|| terms(agent));
            state.grant(agent, first, &text);
        }
        state
    }

    fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64*: small, and the same everywhere.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }

    /// By which instant the next decision is made.
    fn now(&mut self, number: usize) -> Timestamp {
        if !self.plan.steps {
            return at(number);
        }
        self.clock_millis += i64::try_from(self.roll(1_500)).unwrap();
        if self.roll(12) == 0 {
            let step = STEPS_MILLIS[usize::try_from(self.roll(STEPS_MILLIS.len() as u64)).unwrap()];
            self.clock_millis += if self.roll(2) == 0 { step } else { -step };
        }
        let ahead = if self.roll(2) == 0 { APART_MILLIS } else { 0 };
        Timestamp::from_millis(self.clock_millis + ahead)
    }

    /// Random bits of a new id; two ids never have the same.
    fn bits(&mut self) -> u128 {
        (u128::from(self.mixed() >> 33) << 48) | u128::from(self.drawn)
    }

    /// A number that depends on how many were drawn, and on nothing else: what is decided does not change later requests.
    fn mixed(&mut self) -> u64 {
        self.drawn += 1;
        let mixed = (self.drawn ^ (self.drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    /// The next id of an agent: of its instant if that is greater than its id before, otherwise a small step behind that.
    /// Without steps all agents share one clock and one sequence of ids, as on SQLite.
    fn draw(&mut self, agent: usize, now: Timestamp) -> DecisionId {
        let fresh = u128::from_be_bytes(DecisionId::new(now, self.bits()).to_bytes());
        let before = if self.plan.steps { self.agents[agent].last } else { self.last };
        let step = 1 + u128::from(self.mixed() >> 32);
        self.last = if fresh > before { fresh } else { before + step };
        self.agents[agent].last = self.last;
        DecisionId::from_bytes(self.last.to_be_bytes())
    }

    fn grant(&mut self, agent: usize, now: Timestamp, text: &str) {
        let id = MandateId::new(now, self.bits());
        let terms = Terms::read(Object::parse(text.as_bytes()).unwrap()).unwrap();
        let agent = &mut self.agents[agent];
        if let Some(before) = agent.mandates.last_mut() {
            before.governed_until = Some(agent.sequence);
            before.replaced_by = before.revoked_at.is_none().then_some(id);
        }
        agent.mandates.push(Mandate { governs_from: agent.sequence + 1, ..Mandate::new(id, terms, now) });
    }

    fn revoke(&mut self, agent: usize, now: Timestamp) {
        let agent = &mut self.agents[agent];
        if let Some(mandate) = agent.mandates.last_mut().filter(|mandate| mandate.revoked_at.is_none()) {
            (mandate.revoked_at, mandate.revoked_after) = (Some(now), Some(agent.sequence));
        }
    }

    /// What is written and revoked before a request.
    fn change(&mut self, number: usize, agent: usize, now: Timestamp) {
        if !self.plan.changes {
            return;
        }
        if !self.plan.steps {
            if number == self.plan.rows / 2 {
                self.grant(1, now, &terms(1).replace("400", "300"));
            }
            if number == self.plan.rows * 3 / 4 {
                self.revoke(2, now);
            }
            return;
        }
        let is_late = self.agents[agent].mandates.is_empty() && self.agents[agent].sequence >= 4;
        let is_revoked =
            self.agents[agent].mandates.last().is_some_and(|mandate| mandate.revoked_at.is_some());
        if is_late || self.roll(if is_revoked { 4 } else { 40 }) == 0 && agent != LATE {
            let limit = ["400", "300", "350"][usize::try_from(self.roll(3)).unwrap()];
            self.grant(agent, now, &terms(agent).replace("400", limit));
        }
        if self.roll(40) == 0 {
            self.revoke(agent, now);
        }
    }

    fn request(&mut self, number: usize, agent: usize, now: Timestamp) {
        let amount = self.roll(50_000) + 1;
        let category =
            ["software", "software", "cloud", "cloud", "travel"][usize::try_from(self.roll(5)).unwrap()];
        let currency = if self.roll(40) == 0 { "EUR" } else { "USD" };
        let body = format!(
            r#"{{"amount":{}.{:02},"currency":"{currency}","recipient":"vendor:acme","category":"{category}"}}"#,
            amount / 100,
            amount % 100
        );
        let agent_id = AgentId::parse(&format!("agt_{agent}")).unwrap();
        let request = Request::read(agent_id, Object::parse(body.as_bytes()).unwrap()).unwrap();
        self.decide(number, agent, &request, now, None);
        self.agents[agent].recent.record(now);
    }

    fn approvals(&mut self, number: usize) {
        while self.due.front().is_some_and(|(due, _)| *due <= number) {
            let (_, original) = self.due.pop_front().unwrap();
            let place = self.waiting.iter().position(|row| row.id == original).unwrap();
            let (agent, request) = (self.waiting[place].agent, self.waiting[place].request.clone());
            let now = self.now(number);
            self.decide(number, agent, &request, now, Some(original));
            let fresh = self.waiting.back().unwrap().id;
            let row = &mut self.waiting[place];
            let review = row.pending.take().unwrap();
            row.review = format!(
                r#","review":{{"id":"{review}","status":"approved","waits_for":"role:cfo","expires_at":"2027-01-01T00:00:00.000Z","resolved_at":"{now}",{BY_KEY},"decision":"{fresh}"}}"#
            );
        }
    }

    fn decide(
        &mut self,
        number: usize,
        agent: usize,
        request: &Request,
        now: Timestamp,
        supersedes: Option<DecisionId>,
    ) {
        let id = self.draw(agent, now);
        let nonce = Nonce::new(now, self.bits());
        let is_asked_for =
            self.plan.approve_every > 0 && (self.reviews + 1).is_multiple_of(self.plan.approve_every);
        let decider = &mut self.agents[agent];
        decider.sequence += 1;
        let mandate = decider.mandates.last().cloned();
        decider.named.extend(mandate.as_ref().map(|mandate| mandate.id));
        let key = (now.month(), request.currency.as_str().to_owned());
        let spent = *decider.months.entry(key.clone()).or_default();
        let basis = Basis { spent, recent_requests: decider.recent.count_at(now) };
        let evaluation = if supersedes.is_some() { Evaluation::Approval } else { Evaluation::Request };
        let outcome = evaluate(mandate.as_ref(), &basis, request, now, evaluation);
        if outcome.verdict == Verdict::Allow {
            decider.months.insert(key, spent.plus(request.amount));
        }
        let sequence = decider.sequence;
        let claims = VerdictClaims {
            iss: ISSUER.to_owned(),
            jti: id,
            iat: now.seconds(),
            exp: now.seconds() + VERDICT_LIFETIME_SECONDS,
            verdict: outcome.verdict,
            mandate: mandate.as_ref().map(|mandate| mandate.id),
            policy_version: PolicyVersion::parse("pol_2026-01-01.1").unwrap(),
            nonce,
            request: request.clone(),
        }
        .to_json();
        let mut head = claims.strip_suffix('}').unwrap().to_owned();
        let _ = write!(head, r#","sequence":{sequence},"decided_at":"{now}","mode":"{}""#, self.plan.mode);
        if let Some(reason) = outcome.reason {
            let _ = write!(head, r#","reason":"{reason}""#);
        }
        if let Some(original) = supersedes {
            let _ = write!(head, r#","supersedes":"{original}""#);
        }
        if !outcome.denials.is_empty() {
            let _ = write!(head, r#","denials":{}"#, serde_json::to_string(&outcome.denials).unwrap());
        }
        let _ = write!(head, r#","basis":{}"#, serde_json::to_string(&basis).unwrap());
        let token = self.signer.as_ref().map_or_else(String::new, |key| jwt::sign(&**key, &claims).unwrap());
        let is_review = outcome.verdict == Verdict::Review;
        let mut row =
            Row { id, request: request.clone(), agent, head, pending: None, review: String::new(), token };
        if is_review {
            self.reviews += 1;
            let pending = ReviewId::new(now, self.bits());
            if is_asked_for {
                self.due.push_back((number + 20, id));
                row.pending = Some(pending);
            } else {
                row.review = format!(
                    r#","review":{{"id":"{pending}","status":"denied","waits_for":"role:cfo","expires_at":"2027-01-01T00:00:00.000Z","resolved_at":"{now}","resolved_after":{sequence},{BY_KEY}}}"#
                );
            }
        }
        self.waiting.push_back(row);
    }

    fn flush(&mut self, all: bool, emit: &mut dyn FnMut(&str)) {
        while let Some(row) = self.waiting.pop_front_if(|row| all || row.pending.is_none()) {
            let review = row.pending.map_or(row.review, |review| {
                format!(
                    r#","review":{{"id":"{review}","status":"pending","waits_for":"role:cfo","expires_at":"2027-01-01T00:00:00.000Z"}}"#
                )
            });
            emit(&format!(r#"{{"decision":{}{review},"verdict_token":"{}"}}}}"#, row.head, row.token));
        }
    }
}
