//! Writes an export as the service does, of any length, with an issuer of its own: for tests, and to measure.
//!
//! `cargo run --release -p mandate-cli --example export -- 1000000 export.ndjson jwks.json`, and for tokens alone
//! `cargo run --release -p mandate-cli --example export -- tokens 100000 tokens.txt jwks.json`
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    dead_code,
    reason = "this is for tests and measurements"
)]

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use mandate_core::es256::{SecretKey, Signer, signer};
use mandate_core::json::Object;
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::{
    AgentId, Basis, DecisionId, EnvironmentKind, Evaluation, ExportId, Mandate, MandateId, Nonce,
    PolicyVersion, RecentRequests, Request, ReviewId, Terms, Timestamp, Total, VERDICT_LIFETIME_SECONDS,
    Verdict, VerdictClaims, evaluate, jwt,
};
use sha2::{Digest as _, Sha256};

pub(crate) const ISSUER: &str = "https://verdicts.example";
/// 2026-01-20T00:00:00Z.
const START_MILLIS: i64 = 1_768_867_200_000;
const STEP_MILLIS: i64 = 4_100;
pub(crate) const AGENTS: usize = 5;

/// What is exported.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) rows: usize,
    pub(crate) seed: u64,
    pub(crate) mode: &'static str,
    /// Of how many reviews one is approved; none when 0.
    pub(crate) approve_every: u64,
    /// Terms for each agent, in place of its usual ones.
    pub(crate) terms: HashMap<usize, String>,
    /// Whether mandates are replaced and revoked on the way.
    pub(crate) changes: bool,
}

impl Plan {
    pub(crate) fn new(rows: usize, seed: u64) -> Self {
        Self { rows, seed, mode: "enforce", approve_every: 2, terms: HashMap::new(), changes: true }
    }
}

/// The signer of the export.
pub(crate) fn key() -> Arc<dyn Signer> {
    let secret = SecretKey::from_bytes([9; 32]).unwrap();
    signer(&secret, Kid::for_key(secret.public_key(), EnvironmentKind::Sandbox)).unwrap()
}

pub(crate) fn jwks() -> String {
    let key = key();
    KeySet::new(vec![VerificationKey::new(key.kid().clone(), *key.public_key()).unwrap()]).unwrap().to_json()
}

/// The trailer's line for the lines before it.
pub(crate) fn trailer(export: ExportId, rows: usize, sha256: &[u8]) -> String {
    let hash = sha256.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let claims =
        format!(r#"{{"iss":"{ISSUER}","iat":1,"export":"{export}","rows":{rows},"sha256":"{hash}"}}"#);
    format!(r#"{{"trailer":"{}"}}"#, jwt::sign(&*key(), &claims).unwrap())
}

pub(crate) fn export_id() -> ExportId {
    ExportId::new(Timestamp::from_millis(START_MILLIS), 1)
}

/// The usual terms of an agent.
pub(crate) fn terms(agent: usize) -> String {
    let month = if agent == 4 { "" } else { r#""per_month":3000,"# };
    let review = if agent == 0 { "" } else { r#""review_above":200,"# };
    format!(
        r#"{{"principal":"role:cfo","agent":"agt_{agent}","limits":{{"per_transaction":400,{month}"currency":"USD"}},"categories":["software","cloud"],{review}"expires":"2027-12-31"}}"#
    )
}

struct State {
    plan: Plan,
    random: u64,
    last: u128,
    months: HashMap<(usize, mandate_core::Month, String), Total>,
    recent: Vec<RecentRequests>,
    mandates: Vec<Vec<Mandate>>,
    signer: Arc<dyn Signer>,
    reviews: u64,
    waiting: VecDeque<Row>,
    /// Reviews to be approved: how many requests from now.
    due: VecDeque<(usize, DecisionId)>,
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

/// Writes the export, a line at a time.
pub(crate) fn write(plan: &Plan, emit: &mut dyn FnMut(&str)) {
    let mut hash = Sha256::new();
    let mut rows = 0;
    let mut line = |text: &str| {
        hash.update(text);
        hash.update("\n");
        emit(text);
        hash.clone()
    };
    let header = format!(
        r#"{{"export":{{"id":"{}","environment":"sandbox","policy_version":"pol_2026-01-01.1","created_at":"2026-06-01T00:00:00.000Z"}}}}"#,
        export_id()
    );
    line(&header);
    let mut state = State::new(plan);
    let end = at(plan.rows);
    for mandate in state.mandates.iter().flatten() {
        line(&format!(r#"{{"mandate":{}}}"#, serde_json::to_string(&mandate.view(end)).unwrap()));
    }
    let mut before = None;
    let mut number = 0;
    while number < plan.rows {
        let burst = if state.roll(97) == 0 { 13 } else { 1 };
        let agent = usize::try_from(state.roll(AGENTS as u64)).unwrap();
        for _ in 0..burst.min(plan.rows - number) {
            state.request(number, agent);
            number += 1;
            state.approvals(number);
            state.flush(false, &mut |text| {
                rows += 1;
                before = Some(line(text));
            });
        }
    }
    state.flush(true, &mut |text| {
        rows += 1;
        before = Some(line(text));
    });
    let sha256 = before.unwrap_or_else(|| line("")).finalize();
    line(&trailer(export_id(), rows, &sha256));
}

fn at(row: usize) -> Timestamp {
    Timestamp::from_millis(START_MILLIS + STEP_MILLIS * i64::try_from(row).unwrap())
}

impl State {
    fn new(plan: &Plan) -> Self {
        let mandate = |agent: usize, created_at: Timestamp, text: &str| {
            let terms = Terms::read(Object::parse(text.as_bytes()).unwrap()).unwrap();
            Mandate::new(MandateId::new(created_at, agent as u128 + 1), terms, created_at)
        };
        let mut mandates: Vec<_> = (0..AGENTS)
            .map(|agent| vec![mandate(agent, at(0), plan.terms.get(&agent).unwrap_or(&terms(agent)))])
            .collect();
        if plan.changes {
            mandates[1].push(mandate(1, at(plan.rows / 2), &terms(1).replace("400", "300")));
            mandates[2][0].revoked_at = Some(at(plan.rows * 3 / 4));
        }
        Self {
            random: plan.seed.wrapping_mul(2).wrapping_add(1),
            last: 0,
            months: HashMap::new(),
            recent: vec![RecentRequests::default(); AGENTS],
            mandates,
            signer: key(),
            reviews: 0,
            waiting: VecDeque::new(),
            due: VecDeque::new(),
            plan: plan.clone(),
        }
    }

    fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64*: small, and the same everywhere.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }

    fn draw(&mut self, at: Timestamp) -> [u8; 16] {
        let drawn = u128::from(u64::try_from(at.millis()).unwrap()) << 80;
        self.last = drawn.max(self.last + 1);
        self.last.to_be_bytes()
    }

    fn request(&mut self, number: usize, agent: usize) {
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
        // A burst is of one moment.
        let now = at(number);
        self.decide(agent, &request, now, None);
        self.recent[agent].record(now);
    }

    fn approvals(&mut self, number: usize) {
        while self.due.front().is_some_and(|(due, _)| *due <= number) {
            let (_, original) = self.due.pop_front().unwrap();
            let place = self.waiting.iter().position(|row| row.id == original).unwrap();
            let (agent, request) = (self.waiting[place].agent, self.waiting[place].request.clone());
            self.decide(agent, &request, at(number), Some(original));
            let fresh = self.waiting.back().unwrap().id;
            let row = &mut self.waiting[place];
            let review = row.pending.take().unwrap();
            row.review = format!(
                r#","review":{{"id":"{review}","status":"approved","waits_for":"role:cfo","expires_at":"2027-01-01T00:00:00.000Z","decision":"{fresh}"}}"#
            );
        }
    }

    fn decide(&mut self, agent: usize, request: &Request, now: Timestamp, supersedes: Option<DecisionId>) {
        let governing = self.mandates[agent].iter().rfind(|m| m.created_at <= now).unwrap();
        let mandate =
            Mandate { revoked_at: governing.revoked_at.filter(|at| *at <= now), ..governing.clone() };
        let key = (agent, now.month(), request.currency.as_str().to_owned());
        let spent = *self.months.entry(key.clone()).or_default();
        let basis = Basis { spent, recent_requests: self.recent[agent].count_at(now) };
        let evaluation = if supersedes.is_some() { Evaluation::Approval } else { Evaluation::Request };
        let outcome = evaluate(Some(&mandate), &basis, request, now, evaluation);
        if outcome.verdict == Verdict::Allow {
            self.months.insert(key, spent.plus(request.amount));
        }
        let id = DecisionId::from_bytes(self.draw(now));
        let pending = (outcome.verdict == Verdict::Review).then(|| ReviewId::from_bytes(self.draw(now)));
        let claims = VerdictClaims {
            iss: ISSUER.to_owned(),
            jti: id,
            iat: now.seconds(),
            exp: now.seconds() + VERDICT_LIFETIME_SECONDS,
            verdict: outcome.verdict,
            mandate: Some(mandate.id),
            policy_version: PolicyVersion::parse("pol_2026-01-01.1").unwrap(),
            nonce: Nonce::from_bytes(self.draw(now)),
            request: request.clone(),
        }
        .to_json();
        let token = jwt::sign(&*self.signer, &claims).unwrap();
        let mut head = claims.strip_suffix('}').unwrap().to_owned();
        let _ = write!(head, r#","mode":"{}""#, self.plan.mode);
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
        let (mut review, mut open) = (String::new(), None);
        if let Some(pending) = pending {
            self.reviews += 1;
            if self.plan.approve_every > 0 && self.reviews.is_multiple_of(self.plan.approve_every) {
                let asked = usize::try_from((now.millis() - START_MILLIS) / STEP_MILLIS).unwrap();
                self.due.push_back((asked + 20, id));
                open = Some(pending);
            } else {
                review = format!(
                    r#","review":{{"id":"{pending}","status":"denied","waits_for":"role:cfo","expires_at":"2027-01-01T00:00:00.000Z"}}"#
                );
            }
        }
        self.waiting.push_back(Row {
            id,
            request: request.clone(),
            agent,
            head,
            pending: open,
            review,
            token,
        });
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

/// The export as lines.
pub(crate) fn lines(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    write(plan, &mut |line| lines.push(line.to_owned()));
    lines
}

/// The lines as a file, under a new trailer for what comes before the last line.
pub(crate) fn sealed(lines: &[String]) -> String {
    let (_, before) = lines.split_last().unwrap();
    let rows = before.iter().filter(|line| line.starts_with(r#"{"decision""#)).count();
    let text = before.join("\n") + "\n";
    let seal = trailer(export_id(), rows, &Sha256::digest(&text));
    format!("{text}{seal}\n")
}

/// A token that allows, each of its own nonce, all of one moment: the first of an export.
fn token(signer: &dyn Signer, number: u64) -> String {
    let body = r#"{"amount":40,"currency":"USD","recipient":"vendor:acme","category":"software"}"#;
    let agent = AgentId::parse("agt_0").unwrap();
    let claims = VerdictClaims {
        iss: ISSUER.to_owned(),
        jti: DecisionId::new(at(0), u128::from(number)),
        iat: at(0).seconds(),
        exp: at(0).seconds() + VERDICT_LIFETIME_SECONDS,
        verdict: Verdict::Allow,
        mandate: Some(MandateId::new(at(0), 1)),
        policy_version: PolicyVersion::parse("pol_2026-01-01.1").unwrap(),
        nonce: Nonce::new(at(0), u128::from(number)),
        request: Request::read(agent, Object::parse(body.as_bytes()).unwrap()).unwrap(),
    };
    jwt::sign(signer, &claims.to_json()).unwrap()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ([_, rows, path, jwks_path] | [_, "tokens", rows, path, jwks_path]) = args.as_slice() else {
        eprintln!("export ROWS EXPORT JWKS\nexport tokens COUNT TOKENS JWKS");
        std::process::exit(2);
    };
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    if args.len() == 4 {
        write(&Plan::new(rows.parse().unwrap(), 7), &mut |line| writeln!(file, "{line}").unwrap());
    } else {
        let signer = key();
        (0..rows.parse().unwrap()).for_each(|n| writeln!(file, "{}", token(&*signer, n)).unwrap());
    }
    file.flush().unwrap();
    std::fs::write(jwks_path, jwks()).unwrap();
}
