//! What the hot path costs in instructions, as callgrind counts them, beside what it cost when that was written down.
//!
//! Instructions are the same on a busy machine and on an idle one. They are those of the tests' own build, hardly optimised, so
//! that no other build is needed: not what a server takes, but they grow with it. What the kernel does is not among them.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use mandate_core::es256::{self, SecretKey};
use mandate_core::json::Object;
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::verify::{Expected, verify_verdict};
use mandate_core::{
    Basis, EnvironmentKind, Evaluation, Mandate, Request, Timestamp, Total, Verdict, VerdictClaims, evaluate,
    jwt,
};
use mandate_server::clock::Clock as _;
use mandate_server::error::Fault;
use mandate_server::model::call::Caller;
use mandate_server::model::records::{AgentKey, Mode, UsageKey, UsageRecord};
use mandate_server::service::decide::Engine;
use mandate_server::service::decisions;
use mandate_server::store::sql;
use mandate_server::store::tx::Tx;
use mandate_server::store::{Authorization, Decider as _, Loaded};
use serde::{Deserialize, Serialize};

use crate::apart;
use crate::world::{ISSUER, World, claim};

/// What is counted, and in which function, with all that is called for it. Where a signature is among it, what is done beside
/// the signature is counted once more by itself: a tenth of the signature is more than a tenth of that.
const COUNTED: [(&str, &str); 8] = [
    ("claims written", "::VerdictClaims::to_json"),
    ("claims read", "::VerdictClaims::read"),
    ("decided", "::store::sqlite::batch::Deciding::decide"),
    ("written", "::store::sqlite::batch::Deciding::keep"),
    ("decided and signed", "counts::counted_decide"),
    ("evaluated", "counts::counted_evaluate"),
    ("request read", "counts::counted_parse"),
    ("verified", "counts::counted_verify"),
];
/// How often each is done while it is counted, at least. A function below does it so often at each call.
const TIMES: usize = 64;
/// More than this part of what is written down is too much.
const GROWTH: f64 = 0.10;

const BODY: &[u8] = br#"{"amount":40.5,"currency":"USD","recipient":"vendor:v","category":"c"}"#;

/// What was counted, and with what. Counts of other tools are others.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Counts {
    compiler: String,
    valgrind: String,
    /// Instructions of one of each.
    instructions: BTreeMap<String, u64>,
}

#[inline(never)]
fn counted_evaluate(mandate: &Mandate, basis: &Basis, request: &Request, now: Timestamp) {
    for _ in 0..TIMES {
        black_box(evaluate(Some(black_box(mandate)), basis, request, now, Evaluation::Request));
    }
}

#[inline(never)]
fn counted_parse(caller: &Caller) {
    for _ in 0..TIMES {
        black_box(read(caller, black_box(BODY)));
    }
}

#[inline(never)]
fn counted_verify(token: &str, keys: &KeySet, expected: &Expected<'_>) {
    for _ in 0..TIMES {
        let _ = black_box(verify_verdict(black_box(token), keys, expected).unwrap());
    }
}

#[inline(never)]
fn counted_decide(engine: &Engine, batch: &[&Authorization], now: Timestamp, loaded: &mut Loaded) {
    black_box(engine.decide(batch, now, loaded));
}

fn read(caller: &Caller, body: &[u8]) -> Request {
    Request::read(caller.agent.clone().unwrap(), Object::parse(body).unwrap()).unwrap()
}

/// What an agent's next requests are decided on.
fn load(tx: &mut Tx<'_>, agent: &AgentKey, now: Timestamp) -> Result<Loaded, Fault> {
    let mut loaded = Loaded { mark: Some(now), ..Loaded::default() };
    loaded.modes.insert(agent.environment, Mode::Enforce);
    loaded.agents.insert(agent.clone(), sql::agents::lock(tx, agent)?.unwrap());
    let currency = mandate_core::Currency::parse("USD")?;
    loaded
        .usage
        .insert(UsageKey { agent: agent.clone(), month: now.month(), currency }, UsageRecord::default());
    Ok(loaded)
}

/// A token of the request, and the keys that verify it.
fn token(request: &Request, now: Timestamp) -> (String, KeySet) {
    let secret = SecretKey::from_bytes([7; 32]).unwrap();
    let kid = Kid::for_key(secret.public_key(), EnvironmentKind::Production);
    let signer = es256::signer(&secret, kid.clone()).unwrap();
    let claims = VerdictClaims {
        iss: ISSUER.to_owned(),
        jti: mandate_core::DecisionId::new(now, 1),
        iat: now.seconds(),
        exp: now.seconds() + mandate_core::VERDICT_LIFETIME_SECONDS,
        verdict: Verdict::Allow,
        mandate: Some(mandate_core::MandateId::new(now, 2)),
        policy_version: mandate_core::PolicyVersion::parse("pol_2026-01-01.1").unwrap(),
        nonce: mandate_core::Nonce::new(now, 3),
        request: request.clone(),
    };
    let keys = KeySet::new(vec![VerificationKey::new(kid, *secret.public_key()).unwrap()]).unwrap();
    (jwt::sign(&*signer, &claims.to_json()).unwrap(), keys)
}

#[tokio::test]
async fn what_is_counted_does_its_work() {
    let world = World::new().await;
    let caller = world.agent("a").await;
    world.mandate(&caller, 100_000, r#","review_above":200"#).await;
    let (now, request) = (world.clock.now(), read(&caller, BODY));
    let key = AgentKey { environment: caller.environment.id, agent: request.agent.clone() };
    let mut loaded = apart::run_once(&world.database, |tx| Ok(load(tx, &key, now)?)).unwrap().unwrap();
    let mandate = Arc::clone(loaded.agents[&key].mandate.as_ref().unwrap());

    let basis = Basis { spent: Total::default(), recent_requests: 0 };
    assert_eq!(evaluate(Some(&*mandate), &basis, &request, now, Evaluation::Request).verdict, Verdict::Allow);
    counted_evaluate(&mandate, &basis, &request, now);

    counted_parse(&caller);

    let (token, keys) = token(&request, now);
    let expected = Expected {
        amount: Some(request.amount),
        currency: Some(request.currency.clone()),
        recipient: Some(request.recipient.clone()),
        ..Expected::new(ISSUER, now)
    };
    assert_eq!(verify_verdict(&token, &keys, &expected).unwrap().claims().request, request);
    counted_verify(&token, &keys, &expected);

    let ask = || Authorization::new(world.call(&caller), Ok(request.clone()));
    // The first has the keys opened.
    world.engine.decide(&[&ask()], now, &mut loaded);
    let batch: Vec<_> = (0..TIMES).map(|_| ask()).collect();
    let batch: Vec<_> = batch.iter().collect();
    counted_decide(&world.engine, &batch, now, &mut loaded);
    assert_eq!(loaded.made.decisions.len(), TIMES + 1);

    through_the_store(&world, &caller).await;
}

/// Has the store decide, as it does in use: signed and written. One in two is under an idempotency key, one in eight
/// waits for a person, and with one in sixteen the agent's counters are written.
async fn through_the_store(world: &World, caller: &Arc<Caller>) {
    let environment = caller.environment.id;
    for number in 0..TIMES {
        // So that the agent is never too fast.
        world.clock.advance(7);
        let mut call = world.call(caller);
        if number % 2 == 1 {
            let body = String::from_utf8_lossy(BODY);
            call.idempotency = Some(claim(&format!("{number}"), &body, &world.organization_key));
        }
        let amount = if number % 8 == 7 { "300" } else { "40.5" };
        assert_eq!(world.decide(call, amount).await.status, 201);
    }
    let all = decisions::Filter::default();
    let made = world.store.read(move |tx| sql::decisions::onward(tx, environment, &all, [0; 16], 1_000));
    let made = made.await.unwrap().unwrap();
    assert_eq!(made.len(), TIMES);
    assert_eq!(made.iter().filter(|made| made.review.is_some()).count(), TIMES / 8);
}

/// With `MANDATE_WRITE_COUNTS=1` the counts are written down instead.
#[test]
fn the_hot_path_takes_no_more_instructions_than_were_written_down() {
    let counts = count();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/service/counts.json");
    if crate::rotation::number("MANDATE_WRITE_COUNTS") == Some(1) {
        std::fs::write(path, serde_json::to_string_pretty(&counts).unwrap() + "\n").unwrap();
        return;
    }
    let kept: Counts = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    println!("{counts:#?}");
    assert!(counts.instructions.keys().eq(kept.instructions.keys()), "other things are counted: {AGAIN}");
    if (&counts.compiler, &counts.valgrind) != (&kept.compiler, &kept.valgrind) {
        println!("nothing is compared: {} and {} counted what is written down", kept.compiler, kept.valgrind);
        return;
    }
    let grown = counts.instructions.iter().filter_map(|(what, count)| {
        let growth = ratio(*count, kept.instructions[what]) - 1.0;
        println!("{what}: {:+.1} %", growth * 100.0);
        (growth > GROWTH).then(|| format!("{what} takes {:.0} % more instructions", growth * 100.0))
    });
    let grown: Vec<_> = grown.collect();
    assert!(grown.is_empty(), "{}; if it is worth that: {AGAIN}", grown.join(", "));
}

/// What is to be done when the counts are meant to change.
const AGAIN: &str = "run this test with MANDATE_WRITE_COUNTS=1";

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2⁵³")]
fn ratio(one: u64, other: u64) -> f64 {
    one as f64 / other as f64
}

/// Runs the other test of this file under callgrind.
fn count() -> Counts {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet", &format!("--callgrind-out-file={}", out.display())]);
    valgrind.arg(std::env::current_exe().unwrap()).args(["--exact", "counts::what_is_counted_does_its_work"]);
    let ran =
        valgrind.output().unwrap_or_else(|e| panic!("valgrind: {e}; it counts: apt-get install valgrind"));
    assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
    let instructions = costs(&std::fs::read_to_string(out).unwrap());
    let version = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        text(&output.stdout)
    };
    let compiler = version("rustc", &["--version", "--verbose"]);
    let line =
        |name: &str| compiler.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    let compiler = format!("rustc {} for {}", line("release:"), line("host:"));
    Counts { compiler, valgrind: version("valgrind", &["--version"]).trim().to_owned(), instructions }
}

/// What one of each has cost, with all that was called for it: <https://valgrind.org/docs/manual/cl-format.html>.
fn costs(text: &str) -> BTreeMap<String, u64> {
    let (mut names, mut costs) = (BTreeMap::new(), BTreeMap::<&str, _>::new());
    let (mut called, mut calls) = ("", None);
    for line in text.lines() {
        if let Some(function) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
            // A name is written once, behind its number, and then given by the number.
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            called = names.entry(number).or_insert(name);
        } else if let Some(call) = line.strip_prefix("calls=") {
            calls = call.split(' ').next();
        } else if let Some(calls) = calls.take()
            && let Some((what, function)) = COUNTED.iter().find(|(_, function)| called.ends_with(function))
        {
            // The line behind a call says what it has cost.
            let times = if function.starts_with("counts::") { TIMES as u64 } else { 1 };
            let (cost, count): &mut (u64, u64) = costs.entry(*what).or_default();
            *cost += line.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
            *count += calls.parse::<u64>().unwrap() * times;
        }
    }
    assert!(
        costs.len() == COUNTED.len() && costs.values().all(|(_, count)| *count >= TIMES as u64),
        "{costs:?}"
    );
    costs.into_iter().map(|(what, (cost, count))| (what.to_owned(), cost / count)).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
