//! The instructions of what every decision does: counted by valgrind, they are the same on a busy machine and on an idle one.
//!
//! Each path runs N times and then 2N times under valgrind's cachegrind; the difference is what N runs take, without the start of
//! the process. Held against the figures that stand beside this file, a path may not have grown by more than a tenth.
//! `--record` writes them anew. Signatures are not made here: what they take is not ours.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a benchmark that cannot run should stop"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex, mpsc};

use mandate_core::api_key::KeyClass;
use mandate_core::es256::{self, SecretKey};
use mandate_core::json::Object;
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::verify::{Expected, verify_verdict};
use mandate_core::{
    AgentId, AgentName, Amount, Basis, DecisionId, EnvironmentKind, Evaluation, Mandate, MandateId, Nonce,
    PolicyVersion, Recipient, Request, RequestId, Terms, Timestamp, Total, VERDICT_LIFETIME_SECONDS, Verdict,
    VerdictClaims, evaluate, jwt,
};
use mandate_server::admin::organization;
use mandate_server::clock::{Ids, SystemEntropy};
use mandate_server::error::Fault;
use mandate_server::metrics::Metrics;
use mandate_server::service::{Answer, Call, Caller, agents, keys, mandates, organizations};
use mandate_server::store::records::{AgentKey, DecisionRecord, UsageKey};
use mandate_server::store::{self, Authorization, Decider, Loaded, Store};

/// A path that is counted.
struct Hot {
    name: &'static str,
    /// Runs it so many times.
    run: fn(usize),
    /// How often it runs at least.
    times: usize,
}

const PATHS: [Hot; 4] = [
    Hot { name: "evaluate", run: evaluating, times: 10_000 },
    Hot { name: "parse", run: parsing, times: 2_000 },
    Hot { name: "verify", run: verifying, times: 200 },
    Hot { name: "write", run: writing, times: 1_024 },
];
/// A path may take so many hundredths of what is recorded.
const MOST_PERCENT: u64 = 110;
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt");

const BODY: &[u8] = br#"{"amount":40.5,"currency":"USD","recipient":"vendor:acme","category":"software"}"#;
const TERMS: &str = r#"{
    "principal": "role:head-of-it", "agent": "agt_buyer", "categories": ["cloud", "office", "software", "travel"],
    "limits": {"per_transaction": 500, "per_month": 2000, "currency": "USD"}, "review_above": 200, "expires": "2099-12-31"
}"#;
const ISSUER: &str = "https://verdicts.example";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["run", name, times] => {
            let path = PATHS.iter().find(|path| path.name == *name).unwrap();
            (path.run)(times.parse().unwrap());
            ExitCode::SUCCESS
        }
        // Cargo says `--bench` to every benchmark.
        [] | ["--bench"] => compare(&count()),
        ["--record"] | ["--record", "--bench"] => record(&count()),
        _ => panic!("known are --record, and nothing; got {args:?}"),
    }
}

/// The instructions that each path takes.
fn count() -> BTreeMap<String, u64> {
    let counted = PATHS.map(|Hot { name, times, .. }| {
        let (once, twice) = (valgrind(name, times), valgrind(name, 2 * times));
        (name.to_owned(), (twice - once) / u64::try_from(times).unwrap())
    });
    counted.into()
}

/// The instructions of this process when it runs a path so many times.
fn valgrind(name: &str, times: usize) -> u64 {
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    let output =
        command.arg(std::env::current_exe().unwrap()).args(["run", name, &times.to_string()]).output();
    let output = output.unwrap_or_else(|e| panic!("valgrind is not to be had: {e}"));
    let told = String::from_utf8(output.stderr).unwrap();
    let refs = told.lines().find_map(|line| line.split_once("I refs:")).unwrap_or_else(|| panic!("{told}"));
    refs.1.trim().replace(',', "").parse().unwrap()
}

fn record(counted: &BTreeMap<String, u64>) -> ExitCode {
    let mut text = String::new();
    for (name, count) in counted {
        writeln!(text, "{name} {count}").unwrap();
    }
    std::fs::write(RECORDED, &text).unwrap();
    print!("{text}");
    ExitCode::SUCCESS
}

fn compare(counted: &BTreeMap<String, u64>) -> ExitCode {
    let text = std::fs::read_to_string(Path::new(RECORDED)).unwrap();
    let recorded = text.lines().map(|line| line.split_once(' ').unwrap());
    let recorded: BTreeMap<_, u64> = recorded.map(|(name, count)| (name, count.parse().unwrap())).collect();
    let mut grown = false;
    for (name, count) in counted {
        let before = recorded[name.as_str()];
        let percent = count * 100 / before;
        println!("{name}: {count} instructions, {percent} % of the {before} that are recorded");
        grown |= percent > MOST_PERCENT;
    }
    if grown {
        println!(
            "a path takes more instructions than before; where that is right, record it: see docs/performance.md"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn noon() -> Timestamp {
    Timestamp::parse("2026-06-01T12:00:00Z").unwrap()
}

fn request() -> Request {
    Request::read(AgentId::parse("agt_buyer").unwrap(), Object::parse(BODY).unwrap()).unwrap()
}

fn evaluating(times: usize) {
    let mandate = Mandate {
        id: MandateId::new(noon(), 1),
        terms: Terms::read(Object::parse(TERMS.as_bytes()).unwrap()).unwrap(),
        created_at: noon(),
        revoked_at: None,
        replaced_by: None,
    };
    let basis = Basis { spent: Total::parse("1500").unwrap(), recent_requests: 3 };
    let request = request();
    for _ in 0..times {
        let outcome = evaluate(Some(&mandate), &basis, black_box(&request), noon(), Evaluation::Request);
        assert_eq!(black_box(outcome).verdict, Verdict::Allow);
    }
}

fn parsing(times: usize) {
    for _ in 0..times {
        black_box(
            Request::read(AgentId::parse("agt_buyer").unwrap(), Object::parse(black_box(BODY)).unwrap())
                .unwrap(),
        );
    }
}

fn verifying(times: usize) {
    /// Enough for the key to be prepared for.
    const BEFORE: usize = 256;
    let secret = SecretKey::from_bytes([7; 32]).unwrap();
    let public = *secret.public_key();
    let kid = Kid::for_key(&public, EnvironmentKind::Sandbox);
    let signer = es256::signer(&secret, kid.clone()).unwrap();
    let iat = noon().seconds();
    let claims = VerdictClaims {
        iss: ISSUER.to_owned(),
        jti: DecisionId::new(noon(), 1),
        iat,
        exp: iat + VERDICT_LIFETIME_SECONDS,
        verdict: Verdict::Allow,
        mandate: Some(MandateId::new(noon(), 2)),
        policy_version: PolicyVersion::parse("pol_2026-01-01.1").unwrap(),
        nonce: Nonce::new(noon(), 3),
        request: request(),
    };
    let token = jwt::sign(&*signer, &claims.to_json()).unwrap();
    let set = KeySet::new(vec![VerificationKey::new(kid, public).unwrap()]).unwrap();
    let expected = Expected {
        amount: Some(Amount::parse("40.5").unwrap()),
        recipient: Some(Recipient::parse("vendor:acme").unwrap()),
        ..Expected::new(ISSUER, noon().plus_seconds(1))
    };
    for _ in 0..BEFORE + times {
        black_box(verify_verdict(black_box(&token), &set, &expected).unwrap());
    }
}

/// Decides without signing: what is counted is how a decision gets into the database.
struct Unsigned {
    ids: Ids,
    issuer: i64,
    signing_key: i64,
}

impl Decider for Unsigned {
    fn now(&self) -> Timestamp {
        noon()
    }

    fn decide(
        &self,
        batch: &[Authorization],
        now: Timestamp,
        loaded: &mut Loaded,
    ) -> Vec<Result<Answer, Fault>> {
        let decided = batch.iter().map(|authorization| {
            let environment = authorization.call.caller.environment.id;
            let request = authorization.request.clone().map_err(|refused| Fault::new(refused.message))?;
            let agent = AgentKey { environment, agent: request.agent.clone() };
            let key =
                UsageKey { agent: agent.clone(), month: now.month(), currency: request.currency.clone() };
            let state = loaded.agents.get_mut(&agent).unwrap();
            let usage = loaded.usage.get_mut(&key).unwrap();
            let decision = DecisionRecord {
                environment,
                id: DecisionId::from_bytes(self.ids.next(now)),
                iat: now.seconds(),
                verdict: Verdict::Allow,
                mandate: state.mandate.as_ref().map(|mandate| mandate.id),
                nonce: Nonce::from_bytes(self.ids.next(now)),
                mode: loaded.modes[&environment],
                reason: None,
                denials: mandate_core::Denials::default(),
                basis: Basis { spent: usage.spent, recent_requests: state.recent.count_at(now) },
                supersedes: None,
                review: None,
                issuer: self.issuer,
                signing_key: self.signing_key,
                signature: [7; 64],
                request,
            };
            state.recent.record(now);
            usage.requests += 1;
            usage.count(decision.verdict, &decision.request);
            loaded.made.agents.insert(agent);
            loaded.made.usage.insert(key);
            loaded.made.decisions.push(decision);
            Ok(Answer { status: 201, body: BODY.to_vec(), secret: false, replayed: false })
        });
        decided.collect()
    }
}

/// Requests that are in one batch.
const BATCH: usize = 64;
/// Agents that ask, in turn.
const AGENTS: usize = 256;

fn writing(times: usize) {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}", folder.path().join("count.db").display());
    store::migrate(&database).unwrap();
    let created = organization::draw(AgentName::parse("acme").unwrap(), noon(), &SystemEntropy);
    store::run_once(&database, |tx| organizations::create(tx, &created)).unwrap().unwrap();
    let key = created.sandbox_key.hash();
    let organization =
        store::run_once(&database, |tx| Ok(keys::find(tx, &key, noon())?)).unwrap().unwrap().unwrap();
    let numbers = store::run_once(&database, |tx| {
        tx.execute_one("INSERT INTO issuers (url) VALUES ('https://verdicts.example')", &[])?;
        Ok(())
    });
    numbers.unwrap().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let ids = Ids::new(Arc::new(SystemEntropy));
        let unsigned = Arc::new(Unsigned { ids, issuer: 1, signing_key: 1 });
        let store = Store::open(&database, unsigned, Metrics::new()).unwrap();
        let organization = Arc::new(organization);
        let mut callers = Vec::new();
        for number in 0..AGENTS {
            callers.push(register(&store, &organization, number).await);
        }
        for batch in 0..times / BATCH {
            together(&store, &callers, batch * BATCH).await;
        }
        store.close();
    });
}

fn call(caller: &Arc<Caller>) -> Call {
    Call {
        caller: Arc::clone(caller),
        request_id: RequestId::from_bytes([1; 16]),
        at: noon(),
        idempotency: None,
    }
}

/// An agent with a mandate.
async fn register(store: &Store, organization: &Arc<Caller>, number: usize) -> Arc<Caller> {
    let name = format!("agent-{number}");
    let bytes = |first: u8| {
        let mut bytes = [first; 16];
        bytes[8..].copy_from_slice(&u64::try_from(number).unwrap().to_be_bytes());
        bytes
    };
    let mut random = [0; 32];
    random[..16].copy_from_slice(&bytes(9));
    let key = mandate_core::api_key::ApiKey::from_random(KeyClass::Agent, EnvironmentKind::Sandbox, &random);
    let create =
        agents::Create { name: AgentName::parse(&name).unwrap(), key: key.clone(), id: bytes(1), at: noon() };
    let terms = TERMS.replace("agt_buyer", &format!("agt_{name}"));
    let terms = Terms::read(Object::parse(terms.as_bytes()).unwrap()).unwrap();
    let (id, event) = (MandateId::from_bytes(bytes(1)), mandate_core::EventId::from_bytes(bytes(2)));
    let mandate = mandates::Create { terms, id, event, at: noon() };
    let call = call(organization);
    let written = store.write(move |tx| {
        agents::create(tx, &call, &create)?;
        mandates::create(tx, &call, &mandate)
    });
    assert_eq!(written.await.unwrap().unwrap().status, 201);
    let hash = key.hash();
    Arc::new(store.read(move |tx| keys::find(tx, &hash, noon())).await.unwrap().unwrap().unwrap())
}

/// Has a batch of requests wait until the writer takes them all at once.
async fn together(store: &Store, callers: &[Arc<Caller>], first: usize) {
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let hold = store.write(move |_| {
        let _ = gate.lock().unwrap().recv();
        Ok(())
    });
    let asked = (first..first + BATCH).map(|number| {
        let caller = &callers[number % callers.len()];
        let request = Request { agent: caller.agent.clone().unwrap(), ..request() };
        store.decide(Authorization { call: call(caller), request: Ok(request) })
    });
    let asked = futures_util::future::join_all(asked);
    let (_, answers, ()) = tokio::join!(hold, asked, async { release.send(()).unwrap() });
    assert!(answers.into_iter().all(|answer| answer.is_ok_and(|answer| answer.status == 201)));
}
