//! The metering in the agents' rows, and the copy of the mandate's end beside it, which PostgreSQL alone has.

use std::sync::Arc;

use mandate_core::Request;
use mandate_core::json::Object;
use mandate_server::model::call::Caller;
use mandate_server::store::Authorization;
use mandate_tests::cluster::query;

use crate::check::found;
use crate::world::{World, json};

const METERED: &str = "SELECT count(*) FROM agents WHERE metered <> ''";
const IN_EUROS: &str = "SELECT count(*) FROM agents WHERE starts_with(metered, '2026-07 EUR ')";
const BEHIND: &str =
    "SELECT count(*) FROM usage u JOIN agents a ON a.environment = u.environment AND a.agent = u.agent
    WHERE starts_with(a.metered, u.month || ' ' || u.currency || ' ')
        AND u.requests < CAST(split_part(a.metered, ' ', 4) AS BIGINT)";
const REVOKED: &str = "SELECT count(*) FROM agents a JOIN mandates m ON m.environment = a.environment AND m.mandate = a.governing
    WHERE a.revoked_at = m.revoked_at";
const NOT_REVOKED: &str = "SELECT count(*) FROM agents WHERE revoked_at IS NULL";
const BACKENDS: &str =
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
/// The transactions whose outcome can be asked for.
const EUROS: &str = r#"{"principal":"role:cfo","agent":"agt_a","categories":["c"],"expires":"2026-12-31",
    "limits":{"per_transaction":500,"per_month":1000,"currency":"EUR"},"review_above":200}"#;
const DAY: i64 = 86_400;

fn request(caller: &Caller, amount: &str, currency: &str) -> Request {
    let body =
        format!(r#"{{"amount":{amount},"currency":"{currency}","recipient":"vendor:v","category":"c"}}"#);
    Request::read(caller.agent.clone().unwrap(), Object::parse(body.as_bytes()).unwrap()).unwrap()
}

async fn ask_in(world: &World, caller: &Arc<Caller>, currency: &str) {
    let asked = Authorization::new(world.call(caller), Ok(request(caller, "1", currency)));
    assert_eq!(world.store.decide(asked).await.unwrap().status, 201);
}

#[tokio::test]
async fn every_request_in_an_agents_row_counts_once() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, r#","review_above":200"#).await;
    for currency in ["USD", "USD", "EUR", "USD", "EUR"] {
        ask_in(&world, &agent, currency).await;
    }
    assert_eq!((world.number(METERED), world.number(BEHIND)), (1, 1));
    assert_eq!(found(&world.database), Vec::<String>::new());
    // A script that takes the agent puts its metering back, and a decision, its own or the next, has it there again.
    let (first, second) = (world.ask(&agent, "300").await, world.ask(&agent, "300").await);
    assert_eq!(world.approve(&first["review"]["id"]).await.status, 201);
    assert_eq!(world.number(METERED), 1);
    assert_eq!(found(&world.database), Vec::<String>::new());
    assert_eq!(world.deny(&second["review"]["id"], None).await.status, 200);
    assert_eq!(world.number(METERED), 0);
    world.ask(&agent, "10").await;
    assert_eq!(world.number(METERED), 1);
    assert_eq!(found(&world.database), Vec::<String>::new());
    // Another month takes the place; what was there stays counted.
    world.clock.advance(20 * DAY);
    for currency in ["EUR", "USD", "EUR"] {
        ask_in(&world, &agent, currency).await;
    }
    assert_eq!(world.number(IN_EUROS), 1);
    assert_eq!(found(&world.database), Vec::<String>::new());
    world.store.close();
    // What is damaged there is found, as it is in `usage`.
    world.change("UPDATE agents SET metered = replace(metered, '2026-07 EUR 0 2', '2026-07 EUR 0 3')");
    assert_eq!(found(&world.database), ["usage: spent 0, requests 3, deny_limit 2"]);
}

/// An approval is written as a batch of one is: with its metering in the agent's row.
#[tokio::test]
async fn an_approval_takes_the_place_of_another_month_and_currency() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.write_mandate(EUROS).await;
    // A minute before July.
    world.clock.advance(15 * DAY + DAY / 2 - 60);
    ask_in(&world, &agent, "USD").await;
    let asked = Authorization::new(world.call(&agent), Ok(request(&agent, "300", "EUR")));
    let reviewed = json(&world.store.decide(asked).await.unwrap());
    assert_eq!((world.number(METERED), world.number(IN_EUROS)), (1, 0));
    world.clock.advance(120);
    assert_eq!(json(&world.approve(&reviewed["review"]["id"]).await)["verdict"], "allow");
    assert_eq!(world.number(IN_EUROS), 1);
    assert_eq!(found(&world.database), Vec::<String>::new());
    for currency in ["EUR", "USD", "EUR"] {
        ask_in(&world, &agent, currency).await;
    }
    assert_eq!(world.number(IN_EUROS), 1);
    assert_eq!(found(&world.database), Vec::<String>::new());
}

#[tokio::test]
async fn the_agents_row_follows_its_mandate() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = world.mandate(&agent, 1_000, "").await;
    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");
    world.revoke(&first).await;
    assert_eq!((world.number(REVOKED), world.number(NOT_REVOKED)), (1, 0));
    assert_eq!(world.ask(&agent, "1").await["verdict"], "deny_revoked");
    // It decides, so that a copy that is another is found.
    assert_eq!(found(&world.database), Vec::<String>::new());
    world.change("UPDATE agents SET revoked_at = NULL");
    assert_eq!(found(&world.database), [format!("agents: not revoked when mandate {first} is")]);
    world.change("UPDATE agents SET revoked_at = (SELECT max(revoked_at) FROM mandates)");
    assert_eq!(found(&world.database), Vec::<String>::new());
    world.mandate(&agent, 1_000, "").await;
    assert_eq!(world.number(NOT_REVOKED), 1);
    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");
    // Whichever statement writes it, whatever it is.
    world.change("UPDATE mandates SET revoked_at = 7");
    assert_eq!(world.number(REVOKED), 1);
    assert_eq!(world.ask(&agent, "1").await["verdict"], "deny_revoked");
}

/// A backend that has compiled a plan has the library for that among its memory's maps.
#[tokio::test]
async fn no_plan_is_compiled_each_time_that_it_is_run() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    for _ in 0..3 {
        world.ask(&agent, "10").await;
        world.clock.advance(5);
    }
    let backends = query(&world.database, BACKENDS);
    let compiles = |pid: &&str| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
        maps.is_ok_and(|maps| maps.contains("llvmjit"))
    };
    assert!(!backends.is_empty());
    assert_eq!(backends.lines().filter(compiles).count(), 0, "{backends}");
}
