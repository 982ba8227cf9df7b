//! What is asked of a database with a flipped bit, and what a sound server answers.

use std::sync::Arc;

use mandate_core::Request;
use mandate_core::json::Object;
use mandate_server::clock::Clock as _;
use mandate_server::model::call::{Call, Caller};
use mandate_server::service::{self, idempotency, reviews};
use mandate_server::store::sql::keys;
use mandate_server::store::tx::Tx;
use mandate_server::store::{Authorization, Store};
use serde_json::Value;

use super::escrows;
use crate::apart;
use crate::world::{World, claim, json};

/// What is said of a key that is not in force.
const NOT_IN_FORCE: &str = "not in force";

/// What is asked, and which verdict a sound server gives.
pub(super) struct Question {
    pub(super) caller: Arc<Caller>,
    /// The hash of the caller's key, by which it is looked up.
    hash: [u8; 32],
    pub(super) what: What,
    pub(super) verdict: &'static str,
}

impl Question {
    pub(super) fn new(world: &World, caller: &Arc<Caller>, what: What, verdict: &'static str) -> Self {
        Self { caller: Arc::clone(caller), hash: hash(world, caller), what, verdict }
    }

    fn usd(world: &World, caller: &Arc<Caller>, amount: &'static str, verdict: &'static str) -> Self {
        Self::new(world, caller, What::Request(amount, "USD", "c"), verdict)
    }
}

/// The hash of a caller's key.
fn hash(world: &World, caller: &Caller) -> [u8; 32] {
    let key = caller.key;
    let read = move |tx: &mut Tx<'_>| {
        tx.row("SELECT hash FROM api_keys WHERE api_key = $1", &[key.into()])?.unwrap().bytes()
    };
    apart::snapshot(&world.database, read).unwrap()
}

/// What is asked.
pub(super) enum What {
    /// An amount, in a currency, of a category.
    Request(&'static str, &'static str, &'static str),
    /// The same request as before, under the key that its answer is kept under.
    Retry(&'static str),
    /// The approval of this review.
    Approval(Value),
    /// An escrow of this decision.
    Escrow(Value),
    /// The release of the funds of this escrow.
    Release(Value),
}

fn request(caller: &Caller, amount: &str, currency: &str, category: &str) -> Request {
    let body = format!(
        r#"{{"amount":{amount},"currency":"{currency}","recipient":"vendor:v","category":"{category}"}}"#
    );
    Request::read(caller.agent.clone().unwrap(), Object::parse(body.as_bytes()).unwrap()).unwrap()
}

async fn ask(world: &World, caller: &Arc<Caller>, amount: &str) -> Value {
    world.clock.advance(7);
    world.ask(caller, amount).await
}

/// What agents have spent, and what they may not: the questions that show it.
pub(super) async fn live(world: &World) -> Vec<Question> {
    let mut asked = Vec::new();
    beyond_the_month(world, &mut asked).await;
    not_mandated(world, &mut asked).await;
    reviewed(world, &mut asked).await;
    not_in_force(world, &mut asked).await;
    kept(world, &mut asked).await;
    escrows::escrowed(world, &mut asked).await;
    // In one minute, right before what is asked.
    for (name, requests, verdict) in [("fast", 10, "deny_velocity"), ("slow", 9, "allow")] {
        let agent = world.agent(name).await;
        world.mandate(&agent, 1_000, "").await;
        for _ in 0..requests {
            world.ask(&agent, "1").await;
        }
        asked.push(Question::usd(world, &agent, "1", verdict));
    }
    asked
}

/// Of an agent of the world's organization, when that is another one: its decisions are not counted yet.
pub(super) async fn of_another(world: &World) -> [Question; 2] {
    let agent = world.agent("theirs").await;
    world.mandate(&agent, 1_000, "").await;
    for amount in ["490", "1", "1", "1", "1", "1", "1", "490"] {
        assert_eq!(ask(world, &agent, amount).await["verdict"], "allow");
    }
    [("30", "deny_limit"), ("0.5", "allow")]
        .map(|(amount, verdict)| Question::usd(world, &agent, amount, verdict))
}

/// Of decisions that are all counted, of some that are not, of few, and of two currencies.
async fn beyond_the_month(world: &World, asked: &mut Vec<Question>) {
    for (name, decisions) in [("spent", 16), ("uncounted", 21), ("few", 3)] {
        let agent = world.agent(name).await;
        world.mandate(&agent, 1_000, "").await;
        ask(world, &agent, "490").await;
        ask(world, &agent, "490").await;
        for _ in 2..decisions {
            assert_eq!(ask(world, &agent, "1").await["verdict"], "allow");
        }
        asked.push(Question::usd(world, &agent, "30", "deny_limit"));
        asked.push(Question::usd(world, &agent, "0.5", "allow"));
    }
    let two = world.agent("two").await;
    world.mandate(&two, 900, "").await;
    ask(world, &two, "450").await;
    ask(world, &two, "449").await;
    let euros = request(&two, "1", "EUR", "c");
    world.store.decide(Authorization::new(world.call(&two), Ok(euros))).await.unwrap();
    asked.push(Question::usd(world, &two, "2", "deny_limit"));
    asked.push(Question::new(world, &two, What::Request("1", "EUR", "c"), "deny_limit"));
}

/// Under a mandate that is revoked, under one that has expired, for another category, and under none.
async fn not_mandated(world: &World, asked: &mut Vec<Question>) {
    let revoked = world.agent("revoked").await;
    let mandate = world.mandate(&revoked, 1_000, "").await;
    ask(world, &revoked, "1").await;
    world.revoke(&mandate).await;
    asked.push(Question::usd(world, &revoked, "1", "deny_revoked"));

    let expired = world.agent("expired").await;
    let today = r#"{"principal":"role:cfo","agent":"agt_expired","categories":["c"],"expires":"2026-06-15",
        "limits":{"per_transaction":500,"per_month":1000,"currency":"USD"}}"#;
    world.write_mandate(today).await;
    assert_eq!(ask(world, &expired, "1").await["verdict"], "allow");
    asked.push(Question::usd(world, &expired, "1", "deny_expired"));

    let other = world.agent("other").await;
    world.mandate(&other, 1_000, "").await;
    ask(world, &other, "1").await;
    asked.push(Question::new(world, &other, What::Request("1", "USD", "d"), "deny_category"));
    asked.push(Question::usd(world, &other, "1", "allow"));
    let unmandated = world.agent("unmandated").await;
    asked.push(Question::usd(world, &unmandated, "1", "deny_no_mandate"));
}

/// With a key that was revoked, and with one that has expired.
async fn not_in_force(world: &World, asked: &mut Vec<Question>) {
    let past = Some(world.clock.now());
    for (name, is_revoked) in [("gone", true), ("late", false)] {
        let agent = world.agent(name).await;
        world.mandate(&agent, 1_000, "").await;
        let hash = hash(world, &agent);
        let ended = apart::run_once(&world.database, |tx| {
            let mut key = keys::with_hash(tx, hash, hash)?.pop().unwrap();
            if is_revoked {
                key.revoked_at = past;
            } else {
                key.expires_at = past;
            }
            Ok(keys::update(tx, &key)?)
        });
        ended.unwrap().unwrap();
        asked.push(Question::usd(world, &agent, "1", NOT_IN_FORCE));
    }
}

/// Of two reviews one is approved, on the next day, and nothing is left for the other.
async fn reviewed(world: &World, asked: &mut Vec<Question>) {
    let agent = world.agent("reviewed").await;
    world.mandate(&agent, 600, r#","review_above":200"#).await;
    let first = ask(world, &agent, "450").await["review"]["id"].clone();
    let second = ask(world, &agent, "400").await["review"]["id"].clone();
    world.clock.advance(86_400 - 3_600);
    assert_eq!(json(&world.approve(&first).await)["verdict"], "allow");
    asked.push(Question::new(world, &agent, What::Approval(second), "deny_limit"));
    asked.push(Question::usd(world, &agent, "250", "deny_limit"));
}

/// What was allowed, and would not be any more.
async fn kept(world: &World, asked: &mut Vec<Question>) {
    let agent = world.agent("kept").await;
    world.mandate(&agent, 1_000, "").await;
    assert_eq!(json(&world.decide(once(world, &agent), "490").await)["verdict"], "allow");
    ask(world, &agent, "490").await;
    asked.push(Question::new(world, &agent, What::Retry("490"), "allow"));
    asked.push(Question::usd(world, &agent, "490", "deny_limit"));
}

/// A call under an idempotency key, always the same.
fn once(world: &World, caller: &Arc<Caller>) -> Call {
    let idempotency = Some(claim("order-1", "{}", &world.organization_key));
    Call { idempotency, ..world.call(caller) }
}

/// The verdict on a question, or why there is none.
pub(super) async fn answer(world: &World, store: &Store, question: &Question) -> Result<String, String> {
    let (hash, now) = (question.hash, world.clock.now());
    let found = store.read(move |tx| service::keys::find(tx, &hash, now)).await.and_then(|found| found);
    let caller = match found.map_err(|fault| fault.to_string())? {
        Some(caller) => Arc::new(caller),
        None if question.verdict == NOT_IN_FORCE => return Ok(NOT_IN_FORCE.to_owned()),
        None => return Err(NOT_IN_FORCE.to_owned()),
    };
    // Who asks by this key is known by it alone.
    assert_eq!(
        (&caller.agent, caller.environment.id),
        (&question.caller.agent, question.caller.environment.id)
    );
    let call = world.call(&caller);
    let answer = match &question.what {
        What::Request(amount, currency, category) => {
            let request = request(&caller, amount, currency, category);
            store.decide(Authorization::new(call, Ok(request))).await
        }
        What::Retry(amount) => {
            let request = request(&caller, amount, "USD", "c");
            store.decide(Authorization::new(once(world, &caller), Ok(request))).await
        }
        What::Escrow(decision) => return escrows::opened(world, store, decision, question.verdict).await,
        What::Release(escrow) => return escrows::released(world, store, escrow, question.verdict).await,
        What::Approval(review) => {
            let id = review.as_str().unwrap().to_owned();
            let approve = reviews::Approve { id, engine: Arc::clone(&world.engine) };
            let call = world.call(&world.organization);
            let run = move |tx: &mut Tx<'_>| {
                Ok(idempotency::once(tx, &call, |tx| reviews::approve(tx, &call, &approve))?)
            };
            match store.write(run).await {
                Ok(Err(refusal)) => return Ok(refusal.message),
                Ok(Ok(answer)) => Ok(answer),
                Err(fault) => Err(fault),
            }
        }
    };
    let answer = answer.map_err(|fault| fault.to_string())?;
    if answer.status >= 400 {
        return Err(String::from_utf8_lossy(&answer.body).into_owned());
    }
    let body = json(&answer);
    let verdict = body["verdict"].as_str().or_else(|| body["decision"]["verdict"].as_str());
    Ok(verdict.unwrap_or_else(|| panic!("no verdict: {body}")).to_owned())
}
