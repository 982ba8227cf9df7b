//! Events: written with the change that they report, and delivered to the webhooks that subscribe.

use std::sync::Arc;

use futures_util::future::join_all;
use mandate_core::cursor::CursorKey;
use mandate_core::json::Object;
use mandate_core::{EventKind, WebhookId};
use mandate_server::clock::Clock as _;
use mandate_server::model::call::{Answer, Call, Caller, ScriptError, Scripted};
use mandate_server::service::endpoint::EgressPolicy;
use mandate_server::service::listing::{Cursors, From, Query};
use mandate_server::service::webhooks::{self, MAX_WEBHOOKS, Subscription};
use mandate_server::service::{events, mandates};
use mandate_server::store::tx::Tx;
use mandate_tests::Kind;
use serde_json::{Value, json};

use crate::world::{World, claim, json, random_key};

const REVIEWED: &str = r#","review_above":200"#;

fn subscription(body: &Value) -> Subscription {
    Subscription::read(Object::parse(body.to_string().as_bytes()).unwrap(), &EgressPolicy::PUBLIC).unwrap()
}

async fn create(world: &World, kinds: &[&str]) -> Answer {
    let subscription = subscription(&json!({"url": "https://hooks.example/in", "events": kinds}));
    let id = WebhookId::from_bytes(world.event().to_bytes());
    let create = webhooks::Create { subscription, id, at: world.clock.now() };
    world.write(world.call(&world.organization), move |tx, call| webhooks::create(tx, call, &create)).await
}

/// Registers a webhook. Returns its id.
pub(crate) async fn webhook(world: &World, kinds: &[&str]) -> String {
    let answer = create(world, kinds).await;
    assert_eq!(answer.status, 201);
    json(&answer)["webhook"].as_str().unwrap().to_owned()
}

pub(crate) async fn delete(world: &World, id: &str) -> Answer {
    let id = id.to_owned();
    let deleted = move |tx: &mut Tx<'_>, call: &Call| webhooks::delete(tx, call, &id);
    world.write(world.call(&world.organization), deleted).await
}

pub(crate) async fn ping(world: &World, call: Call, id: &str) -> Answer {
    let ping = webhooks::Ping { id: id.to_owned(), moments: Arc::clone(&world.moments) };
    world.write(call, move |tx, call| webhooks::ping(tx, call, &ping)).await
}

/// What a script that reads answers, or the code of its refusal.
async fn read<S>(world: &World, caller: &Arc<Caller>, script: S) -> Result<Value, &'static str>
where
    S: Fn(&mut Tx<'_>, &Call) -> Scripted + Send + 'static,
{
    let call = world.call(caller);
    match world.store.read(move |tx| script(tx, &call)).await.unwrap() {
        Ok(answer) => Ok(json(&answer)),
        Err(ScriptError::Refused(refusal)) => Err(refusal.code.as_str()),
        Err(ScriptError::Fault(fault)) => panic!("{fault}"),
    }
}

pub(crate) async fn event(world: &World, id: &Value) -> Value {
    let id = id.as_str().unwrap().to_owned();
    read(world, &world.organization, move |tx, call| events::get(tx, call, &id)).await.unwrap()
}

async fn page(world: &World, kind: Option<EventKind>, limit: u32, from: From) -> Value {
    let cursors = Cursors { key: Arc::new(CursorKey::new([1; 32])), now: world.clock.now() };
    let query = Query { limit, from };
    let listed = move |tx: &mut Tx<'_>, call: &Call| events::list(tx, call, kind, &query, &cursors);
    read(world, &world.organization, listed).await.unwrap()
}

/// All events, newest first.
pub(crate) async fn log(world: &World) -> Vec<Value> {
    let page = page(world, None, 100, From::Newest).await;
    assert_eq!(page["has_more"], false);
    page["data"].as_array().unwrap().clone()
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// The webhooks that an event goes to, with the status of each delivery.
pub(crate) async fn deliveries(world: &World, id: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let event = event(world, id).await;
    let deliveries = event["deliveries"].as_array().unwrap();
    deliveries.iter().map(|d| (text(&d["webhook"]), text(&d["status"]))).collect()
}

#[tokio::test]
async fn a_review_has_an_event_when_it_begins_and_when_it_is_resolved() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 10_000, REVIEWED).await;
    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");
    assert!(log(&world).await.is_empty(), "an allow is no event");

    let asked = world.ask(&agent, "300").await;
    let pending = world.decision(&agent, &asked["decision"]).await;
    let other = world.ask(&agent, "300").await;
    let events = log(&world).await;
    assert_eq!(types(&events), ["decision.review_pending"; 2]);
    assert_eq!(
        events[1],
        json!({"event": events[1]["event"], "type": "decision.review_pending",
            "created_at": "2026-06-15T12:00:00.000Z", "data": pending}),
        "the decision as the API shows it"
    );

    world.clock.advance(60);
    let fresh = json(&world.approve(&asked["review"]["id"]).await);
    let approved = world.decision(&world.organization, &asked["decision"]).await;
    assert_eq!((&approved["review"]["decision"], &fresh["verdict"]), (&fresh["decision"], &json!("allow")));
    let denied = json(&world.deny(&other["review"]["id"], Some("too dear")).await);
    assert_eq!(world.approve(&other["review"]["id"]).await.status, 400);
    let events = log(&world).await;
    assert_eq!(types(&events[..2]), ["decision.resolved"; 2]);
    assert_eq!(events.len(), 4, "what is refused is no event");
    assert_eq!((&events[0]["data"], &events[1]["data"]), (&denied, &approved));
    assert_eq!(events[0]["created_at"], "2026-06-15T12:01:00.000Z");
    assert_eq!(events[3]["data"], pending, "an event stays as it was written");
}

#[tokio::test]
async fn a_revocation_has_one_event() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = world.mandate(&agent, 1_000, "").await;
    let second = world.mandate(&agent, 1_000, "").await;
    assert_eq!(world.revoke(&first).await.status, 400);
    assert!(log(&world).await.is_empty());
    let revoked = json(&world.revoke(&second).await);
    world.clock.advance(5);
    assert_eq!(json(&world.revoke(&second).await), revoked);
    let events = log(&world).await;
    assert_eq!(types(&events), ["mandate.revoked"]);
    assert_eq!(events[0]["data"], revoked);
}

#[tokio::test]
async fn a_change_whose_event_cannot_be_written_does_not_happen() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let id = world.mandate(&agent, 1_000, "").await;
    webhook(&world, &["mandate.revoked"]).await;
    let (close, open) = match crate::KIND {
        Kind::Sqlite => (
            "CREATE TRIGGER closed BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'closed'); END",
            "DROP TRIGGER closed",
        ),
        Kind::Postgres => (
            "ALTER TABLE events ADD CONSTRAINT closed CHECK (false) NOT VALID",
            "ALTER TABLE events DROP CONSTRAINT closed",
        ),
    };
    for (change, revoked) in [(close, false), (open, true)] {
        world.change(change);
        let call = world.call(&world.organization);
        let revoke = mandates::Revoke { id: id.clone(), moments: Arc::clone(&world.moments) };
        let written = world.store.write(move |tx| mandates::revoke(tx, &call, &revoke)).await;
        assert_eq!(written.is_ok(), revoked);
        assert_eq!(world.ask(&agent, "1").await["verdict"], if revoked { "deny_revoked" } else { "allow" });
        assert_eq!(log(&world).await.len(), usize::from(revoked));
    }
}

#[tokio::test]
async fn a_replayed_request_writes_no_second_event() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 10_000, REVIEWED).await;
    let key = random_key(mandate_core::api_key::KeyClass::Agent);
    for replayed in [false, true] {
        let mut call = world.call(&agent);
        call.idempotency = Some(claim("one", "{}", &key));
        assert_eq!(world.decide(call, "300").await.replayed, replayed);
    }
    assert_eq!(log(&world).await.len(), 1);
    let id = webhook(&world, &["mandate.revoked"]).await;
    for replayed in [false, true] {
        let mut call = world.call(&world.organization);
        call.idempotency = Some(claim("two", "{}", &world.organization_key));
        assert_eq!(ping(&world, call, &id).await.replayed, replayed);
    }
    assert_eq!(log(&world).await.len(), 2);
}

#[tokio::test]
async fn an_event_goes_to_the_webhooks_that_subscribe_to_its_type() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let mandate = world.mandate(&agent, 10_000, REVIEWED).await;
    world.ask(&agent, "300").await;
    let both = webhook(&world, &["mandate.revoked", "decision.review_pending", "ping"]).await;
    let one = webhook(&world, &["mandate.revoked"]).await;
    webhook(&world, &["escrow.funded"]).await;
    world.ask(&agent, "300").await;
    world.revoke(&mandate).await;

    let pending = |id: &String| (id.clone(), "pending".to_owned());
    let events = log(&world).await;
    assert_eq!(
        types(&events),
        ["mandate.revoked", "decision.review_pending", "decision.review_pending"],
        "newest first"
    );
    assert_eq!(deliveries(&world, &events[0]["event"]).await, [pending(&both), pending(&one)]);
    assert_eq!(deliveries(&world, &events[1]["event"]).await, [pending(&both)]);
    assert!(deliveries(&world, &events[2]["event"]).await.is_empty(), "it was there before the webhooks");

    // A ping is for one webhook alone, whatever it and others subscribe to.
    let pinged = ping(&world, world.call(&world.organization), &one).await;
    let shown = json(&pinged);
    assert_eq!(
        (pinged.status, &shown["type"], &shown["data"]),
        (202, &json!("ping"), &json!({"webhook": one}))
    );
    assert_eq!(log(&world).await[0], shown);
    assert_eq!(deliveries(&world, &shown["event"]).await, [pending(&one)]);
}

#[tokio::test]
async fn a_registered_webhook_gets_each_event_whatever_is_under_way() {
    let world = World::new().await;
    let mut agents = Vec::new();
    for number in 0..9 {
        let agent = world.agent(&format!("a{number}")).await;
        world.mandate(&agent, 10_000, REVIEWED).await;
        agents.push(agent);
    }
    let (last, others) = agents.split_last().unwrap();
    let under_way = join_all(others.iter().map(async |agent| {
        for _ in 0..4 {
            world.ask(agent, "300").await;
        }
    }));
    let asked = async {
        let id = webhook(&world, &["decision.review_pending"]).await;
        (id, world.ask(last, "300").await["review"]["id"].clone())
    };
    let (_, (id, review)) = tokio::join!(under_way, asked);

    let events = log(&world).await;
    assert_eq!(events.len(), 33);
    let pending = events.iter().find(|event| event["data"]["review"]["id"] == review).unwrap();
    assert_eq!(deliveries(&world, &pending["event"]).await, [(id, "pending".to_owned())]);
}

#[tokio::test]
async fn an_event_shows_what_was_tried_and_when_it_will_be_tried_again() {
    let world = World::new().await;
    let id = webhook(&world, &["mandate.revoked"]).await;
    let shown = json(&ping(&world, world.call(&world.organization), &id).await);
    let due = "2026-06-15T12:00:00.000Z";
    let delivery = json!({"webhook": id, "status": "pending", "attempts": [], "next_attempt_at": due});
    assert_eq!(event(&world, &shown["event"]).await["deliveries"], json!([delivery]), "due at once");

    let at = world.clock.now();
    let tried = world.store.write(move |tx| {
        for (attempt, status, error) in [(1, None, Some("connection refused")), (2, Some(204), None)] {
            let row = [attempt.into(), at.plus_seconds(attempt).millis().into(), status.into(), error.into()];
            tx.execute_one(
                "INSERT INTO attempts (environment, event, webhook, attempt, at, status, error)
                SELECT environment, event, webhook, $1, $2, $3, $4 FROM deliveries",
                &row,
            )?;
        }
        Ok(tx.execute_one("UPDATE deliveries SET state = 'delivered', attempts = 2", &[])?)
    });
    tried.await.unwrap().unwrap();
    let attempts = json!([
        {"at": "2026-06-15T12:00:01.000Z", "error": "connection refused"},
        {"at": "2026-06-15T12:00:02.000Z", "status": 204},
    ]);
    let delivery = json!({"webhook": id, "status": "delivered", "attempts": attempts});
    assert_eq!(event(&world, &shown["event"]).await["deliveries"], json!([delivery]));
    delete(&world, &id).await;
    assert_eq!(deliveries(&world, &shown["event"]).await, [(id, "delivered".to_owned())], "it is over");
}

#[tokio::test]
async fn a_deleted_webhook_is_gone_and_its_deliveries_end() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let mandate = world.mandate(&agent, 10_000, "").await;
    let (kept, gone) =
        (webhook(&world, &["mandate.revoked"]).await, webhook(&world, &["mandate.revoked"]).await);
    let pinged = json(&ping(&world, world.call(&world.organization), &gone).await);
    let kept_ping = json(&ping(&world, world.call(&world.organization), &kept).await);
    let deleted = delete(&world, &gone).await;
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));

    assert_eq!(deliveries(&world, &pinged["event"]).await, [(gone.clone(), "ended".to_owned())]);
    assert_eq!(event(&world, &pinged["event"]).await["deliveries"][0].get("next_attempt_at"), None);
    assert_eq!(deliveries(&world, &kept_ping["event"]).await, [(kept.clone(), "pending".to_owned())]);
    world.revoke(&mandate).await;
    let revoked = log(&world).await[0]["event"].clone();
    assert_eq!(deliveries(&world, &revoked).await, [(kept, "pending".to_owned())]);

    assert_eq!(delete(&world, &gone).await.status, 404);
    assert_eq!(ping(&world, world.call(&world.organization), &gone).await.status, 404);
    let found = read(&world, &world.organization, move |tx, call| webhooks::get(tx, call, &gone)).await;
    assert_eq!(found, Err("not_found"));
}

#[tokio::test]
async fn webhooks_are_shown_as_they_were_registered_and_are_few() {
    let world = World::new().await;
    let created = json(&create(&world, &["ping", "mandate.revoked"]).await);
    assert_eq!(
        created,
        json!({"webhook": created["webhook"], "url": "https://hooks.example/in",
            "events": ["mandate.revoked", "ping"], "status": "active", "created_at": "2026-06-15T12:00:00.000Z"})
    );
    let id = created["webhook"].as_str().unwrap().to_owned();
    let got = read(&world, &world.organization, move |tx, call| webhooks::get(tx, call, &id)).await;
    assert_eq!(got.unwrap(), created);

    let mut made = vec![created["webhook"].clone()];
    for _ in 1..MAX_WEBHOOKS {
        made.push(webhook(&world, &["ping"]).await.into());
    }
    let refused = create(&world, &["ping"]).await;
    assert_eq!(
        (refused.status, &json(&refused)["error"]["message"]),
        (400, &json!("there are 16 webhooks, the most that there can be; delete one first"))
    );
    let (mut listed, mut from) = (Vec::new(), From::Newest);
    loop {
        let cursors = Cursors { key: Arc::new(CursorKey::new([1; 32])), now: world.clock.now() };
        let query = Query { limit: 5, from };
        let list = move |tx: &mut Tx<'_>, call: &Call| webhooks::list(tx, call, &query, &cursors);
        let page = read(&world, &world.organization, list).await.unwrap();
        listed.extend(page["data"].as_array().unwrap().iter().map(|w| w["webhook"].clone()));
        let Some(cursor) = page.get("next_cursor") else { break };
        from = From::Cursor(cursor.as_str().unwrap().to_owned());
    }
    made.reverse();
    assert_eq!(listed, made, "newest first");
    assert_eq!(delete(&world, made[3].as_str().unwrap()).await.status, 204);
    assert_eq!(create(&world, &["ping"]).await.status, 201);
}

#[tokio::test]
async fn the_log_is_walked_by_type() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let id = webhook(&world, &["ping"]).await;
    let mut pings = Vec::new();
    for _ in 0..3 {
        pings.push(json(&ping(&world, world.call(&world.organization), &id).await));
        let mandate = world.mandate(&agent, 1_000, "").await;
        world.revoke(&mandate).await;
    }
    pings.reverse();
    let first = page(&world, Some(EventKind::Ping), 2, From::Newest).await;
    assert_eq!(
        (first["data"].as_array().unwrap().as_slice(), &first["has_more"]),
        (&pings[..2], &json!(true))
    );
    let cursor = || From::Cursor(first["next_cursor"].as_str().unwrap().to_owned());
    let rest = page(&world, Some(EventKind::Ping), 2, cursor()).await;
    assert_eq!(
        (rest["data"].as_array().unwrap().as_slice(), &rest["has_more"]),
        (&pings[2..], &json!(false))
    );
    let oldest = pings[2]["event"].as_str().unwrap().to_owned();
    let newer = page(&world, Some(EventKind::Ping), 5, From::Before(oldest)).await;
    assert_eq!(newer["data"].as_array().unwrap().as_slice(), &pings[..2]);
    let cursors = Cursors { key: Arc::new(CursorKey::new([1; 32])), now: world.clock.now() };
    let query = Query { limit: 2, from: cursor() };
    let other = move |tx: &mut Tx<'_>, call: &Call| events::list(tx, call, None, &query, &cursors);
    assert_eq!(
        read(&world, &world.organization, other).await,
        Err("invalid_request"),
        "the type is bound in"
    );
}

#[tokio::test]
async fn another_environment_sees_neither_webhooks_nor_events() {
    let world = World::new().await;
    let id = webhook(&world, &["ping"]).await;
    let pinged = json(&ping(&world, world.call(&world.organization), &id).await);
    let stranger = world.stranger().await;
    let webhook = id.clone();
    let found = read(&world, &stranger, move |tx, call| webhooks::get(tx, call, &webhook)).await;
    assert_eq!(found, Err("not_found"));
    let event = pinged["event"].as_str().unwrap().to_owned();
    assert_eq!(
        read(&world, &stranger, move |tx, call| events::get(tx, call, &event)).await,
        Err("not_found")
    );
    assert_eq!(ping(&world, world.call(&stranger), &id).await.status, 404);
    let gone = id.clone();
    let deleted = move |tx: &mut Tx<'_>, call: &Call| webhooks::delete(tx, call, &gone);
    assert_eq!(world.write(world.call(&stranger), deleted).await.status, 404);
    assert_eq!(deliveries(&world, &pinged["event"]).await, [(id, "pending".to_owned())]);
}
