//! The metering, as its readers see it.

use std::sync::Arc;

use mandate_core::cursor::CursorKey;
use mandate_core::json::Object;
use mandate_core::{AgentId, Month, Request};
use mandate_server::clock::Clock as _;
use mandate_server::model::call::Caller;
use mandate_server::service::listing::Cursors;
use mandate_server::service::usage::{self, Query};
use mandate_server::store::Authorization;
use serde_json::{Value, json};

use crate::world::{self, World};
use crate::{apart, oracle};

const AGENT: &str =
    "INSERT INTO agents (environment, agent, position, created_at, recent) VALUES ($1, $2, $3, 0, $4)";
/// How many rows a page holds at most.
const PAGE: usize = 100;
const METER: &str = "INSERT INTO usage (environment, month, agent, currency, spent, requests, allow, review,
        deny_no_mandate, deny_revoked, deny_expired, deny_limit, deny_category, deny_velocity)
    SELECT environment, '2026-06', agent, column1, '1', 1, 1, 0, 0, 0, 0, 0, 0, 0
    FROM agents, (VALUES ('EUR'), ('USD')) AS currencies";

async fn ask(world: &World, caller: &Arc<Caller>, query: Query) -> Value {
    let call = world.call(caller);
    let cursors = Cursors { key: Arc::new(CursorKey::new([1; 32])), now: world.clock.now() };
    let read = world.store.read(move |tx| usage::list(tx, &call, &query, &cursors)).await;
    world::json(&read.unwrap().unwrap())
}

fn everything() -> Query {
    Query { month: None, agent: None, limit: 100, cursor: None }
}

fn of(agent: &str) -> Query {
    Query { agent: Some(AgentId::parse(agent).unwrap()), ..everything() }
}

#[tokio::test]
async fn the_counters_show_what_was_decided_and_spent() {
    let world = World::new().await;
    let (a, b) = (world.agent("a").await, world.agent("b").await);
    world.mandate(&a, 1_000, r#","review_above":200"#).await;
    assert_eq!(ask(&world, &world.organization, everything()).await["data"], json!([]));
    world.ask(&a, "40.5").await;
    world.ask(&a, "501").await;
    let reviewed = world.ask(&a, "300").await;
    world.approve(&reviewed["review"]["id"]).await;
    world.ask(&b, "1").await;
    let counted = |verdicts: &[(&str, i64)]| {
        let mut all = json!({"allow": 0, "review": 0, "deny_no_mandate": 0, "deny_revoked": 0, "deny_expired": 0,
            "deny_limit": 0, "deny_category": 0, "deny_velocity": 0});
        for (name, count) in verdicts {
            all[*name] = (*count).into();
        }
        all
    };
    let of_a = json!({"agent": "agt_a", "currency": "USD", "requests": 3, "spent": 340.5, "per_month": 1000,
        "verdicts": counted(&[("allow", 2), ("review", 1), ("deny_limit", 1)]), "remaining": 659.5});
    let of_b = json!({"agent": "agt_b", "currency": "USD", "requests": 1, "spent": 0,
        "verdicts": counted(&[("deny_no_mandate", 1)])});
    let all = ask(&world, &world.organization, everything()).await;
    assert_eq!(all, json!({"month": "2026-06", "data": [of_a, of_b], "has_more": false}));

    assert_eq!(ask(&world, &world.organization, of("agt_b")).await["data"], json!([of_b]));
    assert_eq!(ask(&world, &world.organization, of("agt_ghost")).await["data"], json!([]));
    assert_eq!(ask(&world, &a, everything()).await["data"], json!([of_a]));
    assert_eq!(ask(&world, &a, of("agt_a")).await["data"], json!([of_a]));
    assert_eq!(ask(&world, &a, of("agt_b")).await["data"], json!([]), "another agent is unknown to this one");
}

#[tokio::test]
async fn the_remaining_amount_is_shown_only_under_a_cap() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = world.mandate(&agent, 1_000, "").await;
    world.ask(&agent, "400").await;
    let row = |all: Value| all["data"][0].clone();
    let remaining = async || row(ask(&world, &agent, everything()).await)["remaining"].clone();
    assert_eq!(remaining().await, 600);
    world.mandate(&agent, 300, "").await;
    assert_eq!(remaining().await, 0, "the newest mandate governs, and more is spent than it allows");
    let other = r#"{"principal":"role:cfo","agent":"agt_a","categories":["c"],"expires":"2026-12-31",
        "limits":{"per_transaction":500,"per_month":5,"currency":"EUR"}}"#;
    world.write_mandate(other).await;
    assert_eq!(remaining().await, Value::Null, "a cap in another currency");
    let governing = world.mandate(&agent, 1_000, "").await;
    world.revoke(&governing).await;
    assert_eq!(remaining().await, Value::Null, "a revoked mandate");
    assert_ne!(first, governing);

    world.mandate(&agent, 1_000, "").await;
    world.clock.advance(16 * 86_400);
    assert_eq!(
        ask(&world, &agent, everything()).await,
        json!({"month": "2026-07", "data": [], "has_more": false})
    );
    let june = Query { month: Some(Month::parse("2026-06").unwrap()), ..everything() };
    let june = row(ask(&world, &agent, june).await);
    assert_eq!((&june["spent"], june.get("per_month"), june.get("remaining")), (&json!(400), None, None));
}

#[tokio::test]
async fn an_answer_is_bounded_and_says_where_the_next_begins() {
    let world = World::new().await;
    let environment = world.organization.environment.id;
    let filled = apart::run_once(&world.database, |tx| {
        for number in 1..=PAGE {
            let (agent, position) = (format!("agt_{number:05}"), (number as u128).to_be_bytes());
            tx.execute_one(AGENT, &[environment.into(), agent.into(), position.into(), Vec::new().into()])?;
        }
        Ok(tx.execute(METER, &[])?)
    });
    assert_eq!(filled.unwrap().unwrap(), 2 * PAGE);

    let first = ask(&world, &world.organization, everything()).await;
    let cursor = first["next_cursor"].as_str().map(ToOwned::to_owned);
    assert!(cursor.is_some());
    let second = ask(&world, &world.organization, Query { cursor: cursor.clone(), ..everything() }).await;
    let rows = |page: &Value| {
        let rows = page["data"].as_array().unwrap().iter();
        rows.map(|row| format!("{} {}", row["agent"], row["currency"])).collect::<Vec<_>>()
    };
    let walked = [rows(&first), rows(&second)].concat();
    assert_eq!((rows(&first).len(), walked.len()), (PAGE, 2 * PAGE));
    assert!(walked.is_sorted() && walked.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!((&second["has_more"], second.get("next_cursor")), (&json!(false), None));

    let (call, now) = (world.call(&world.organization), world.clock.now());
    let cursors = Cursors { key: Arc::new(CursorKey::new([1; 32])), now };
    let other = Query { cursor, ..of("agt_00001") };
    let refused = world.store.read(move |tx| usage::list(tx, &call, &other, &cursors)).await.unwrap();
    assert!(format!("{refused:?}").contains("cursor expired or malformed"), "another filter, another walk");
}

fn in_euros(caller: &Caller, amount: &str) -> Request {
    let body = format!(r#"{{"amount":{amount},"currency":"EUR","recipient":"vendor:v","category":"c"}}"#);
    Request::read(caller.agent.clone().unwrap(), Object::parse(body.as_bytes()).unwrap()).unwrap()
}

#[tokio::test]
async fn what_was_not_decided_is_not_metered() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let call = |body: &str| {
        let mut call = world.call(&agent);
        call.idempotency = Some(world::claim("order-1", body, &world.organization_key));
        call
    };
    world.decide(call("{}"), "1").await;
    let other = Authorization::new(call(r#"{"a":1}"#), Ok(in_euros(&agent, "1")));
    assert_eq!(world.store.decide(other).await.unwrap().status, 409);
    // The first decision of a month is written at once, with all that the agent's rows lack.
    world.clock.advance(30 * 24 * 60 * 60);
    world.ask(&agent, "1").await;
    assert_eq!(world.number("SELECT count(*) FROM usage WHERE currency = 'EUR'"), 0);
    world.store.close();
    oracle::holds(&world.database);
}

/// Such an approval changes neither what is spent nor the number of requests.
#[tokio::test]
async fn a_denied_approval_is_counted_whatever_follows_it() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, r#","review_above":200"#).await;
    world.ask(&agent, "1").await;
    let review = world.ask(&agent, "300").await["review"]["id"].clone();
    let euros = r#"{"principal":"role:cfo","agent":"agt_a","categories":["c"],"expires":"2026-12-31",
        "limits":{"per_transaction":500,"per_month":1000,"currency":"EUR"}}"#;
    world.write_mandate(euros).await;
    assert_eq!(world::json(&world.approve(&review).await)["verdict"], "deny_limit");
    let asked = Authorization::new(world.call(&agent), Ok(in_euros(&agent, "1")));
    assert_eq!(world.store.decide(asked).await.unwrap().status, 201);
    let dollars = ask(&world, &agent, everything()).await["data"][1].clone();
    assert_eq!((&dollars["currency"], &dollars["verdicts"]["deny_limit"]), (&json!("USD"), &json!(1)));
    world.store.close();
    oracle::holds(&world.database);
}

/// It is no request, and counts in the month in which it is made, whatever the agent was metered in before.
#[tokio::test]
async fn an_approval_counts_in_its_own_month_and_currency() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let euros = r#"{"principal":"role:cfo","agent":"agt_a","categories":["c"],"expires":"2026-12-31",
        "limits":{"per_transaction":500,"per_month":1000,"currency":"EUR"},"review_above":200}"#;
    world.write_mandate(euros).await;
    let asks = async |amount| {
        let asked = Authorization::new(world.call(&agent), Ok(in_euros(&agent, amount)));
        world::json(&world.store.decide(asked).await.unwrap())
    };
    // A minute before July.
    world.clock.advance(15 * 86_400 + 12 * 3_600 - 60);
    world.ask(&agent, "1").await;
    let reviewed = asks("300").await;
    world.clock.advance(120);
    assert_eq!(world::json(&world.approve(&reviewed["review"]["id"]).await)["verdict"], "allow");
    assert!(world.number("SELECT mark FROM clock") >= world.clock.now().millis());
    let metered = async |month: &str| {
        let query = Query { month: Some(Month::parse(month).unwrap()), ..everything() };
        let rows = ask(&world, &agent, query).await["data"].clone();
        let row = |row: &Value| {
            let verdicts = ["allow", "review", "deny_limit"].map(|verdict| row["verdicts"][verdict].clone());
            json!([row["currency"], row["requests"], row["spent"], verdicts])
        };
        rows.as_array().unwrap().iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(metered("2026-07").await, [json!(["EUR", 0, 300, [1, 0, 0]])]);
    assert_eq!(asks("1").await["verdict"], "allow");
    world.ask(&agent, "1").await;
    let june = [json!(["EUR", 1, 0, [0, 1, 0]]), json!(["USD", 1, 0, [0, 0, 1]])];
    assert_eq!(metered("2026-06").await, june);
    let july = [json!(["EUR", 1, 301, [2, 0, 0]]), json!(["USD", 1, 0, [0, 0, 1]])];
    assert_eq!(metered("2026-07").await, july);
    world.store.close();
    assert_eq!(oracle::holds(&world.database), 5);
}
