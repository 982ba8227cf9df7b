//! What is pending for a webhook that is deleted: it has ended at once, however much it is, and its rows follow in pieces.

use std::sync::Arc;

use mandate_server::clock::Clock as _;
use mandate_server::model::gauges::Stored;
use mandate_server::model::records::LeaseRecord;
use mandate_server::service::deliveries::{self, Round};
use mandate_server::service::gauges;
use mandate_server::store::tx::Tx;
use mandate_server::worker::export::Exports;
use mandate_server::worker::sweep::Sweep;
use mandate_tests::Kind;

use crate::deliveries::{delivery, pinged, webhook};
use crate::events::delete;
use crate::world::World;

/// What the tests make pending for the one webhook.
const MANY: i64 = 2_500;
const EVENTS: [&str; 2] = [
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
    INSERT INTO events (environment, event, type, created_at, data, checksum)
    SELECT w.environment, CAST(printf('%016d', i) AS BLOB), 'ping', 0, '{}', 0 FROM n, webhooks w",
    "INSERT INTO events (environment, event, type, created_at, data, checksum)
    SELECT w.environment, convert_to(lpad(i::text, 16, '0'), 'UTF8'), 'ping', 0, '{}', 0
    FROM generate_series(1, 2500) i, webhooks w",
];
const DELIVERIES: &str = "INSERT INTO deliveries (environment, event, webhook, state, due_at, attempts)
    SELECT w.environment, e.event, w.webhook, 'pending', w.created_at, 1 FROM webhooks w
    JOIN events e ON e.environment = w.environment AND e.data = '{}'";
const PENDING: &str = "SELECT count(*) FROM deliveries WHERE state = 'pending'";
const QUEUED: &str = "SELECT count(*) FROM webhooks WHERE due_at IS NOT NULL";

/// A webhook with an event whose delivery is pending, and with [`MANY`] others.
async fn flooded(world: &World) -> (String, serde_json::Value) {
    let id = webhook(world, "http://127.0.0.1:9/in").await;
    let [sqlite, postgres] = EVENTS;
    world.change(if crate::KIND == Kind::Sqlite { sqlite } else { postgres });
    world.change(DELIVERIES);
    let event = pinged(world, &id).await;
    (id, event)
}

/// A scheduler over a world; another one each time, as after a restart.
fn sweeper(world: &World) -> Sweep {
    let (exports, clock) = (Arc::new(Exports::new("/nowhere/exports".into())), Arc::clone(&world.clock));
    Sweep::new(world.store.clone(), exports, Arc::clone(&world.moments), clock)
}

async fn stored(world: &World) -> Stored {
    let now = world.clock.now();
    world.store.read(move |tx| gauges::read(tx, now)).await.unwrap().unwrap()
}

async fn lease(world: &World) -> Vec<LeaseRecord> {
    let (now, round) = (world.clock.now(), Round { room: 10, ..Round::default() });
    let taken = world.store.write(move |tx| Ok(deliveries::run_round(tx, &round, now)?)).await;
    taken.unwrap().unwrap()
}

async fn due(world: &World, lease: &LeaseRecord) -> usize {
    let (now, lease) = (world.clock.now(), lease.clone());
    world.store.read(move |tx| deliveries::due(tx, &lease, now, 32)).await.unwrap().unwrap().len()
}

#[tokio::test]
async fn a_deletion_changes_none_of_the_deliveries_and_all_of_them_have_ended() {
    let world = World::new().await;
    let (id, event) = flooded(&world).await;
    let lease = lease(&world).await.remove(0);
    assert_eq!(
        (due(&world, &lease).await, delivery(&world, &event).await["status"].as_str()),
        (32, Some("pending"))
    );
    let before = stored(&world).await;
    assert_eq!((before.deliveries_pending, before.delivery_due_at), (MANY + 1, Some(world.clock.now())));

    assert_eq!(delete(&world, &id).await.status, 204);
    assert_eq!(world.number(PENDING), MANY + 1, "it took no longer than with none");
    let shown = delivery(&world, &event).await;
    assert_eq!((shown["status"].as_str(), shown.get("next_attempt_at")), (Some("ended"), None));
    assert_eq!(due(&world, &lease).await, 0, "the server that has leased it finds nothing any more");
    let after = stored(&world).await;
    assert_eq!((after.deliveries_pending, after.delivery_due_at), (0, None));
}

#[tokio::test]
async fn the_rows_of_deliveries_whose_webhook_is_gone_are_ended_in_pieces() {
    let world = World::new().await;
    let (id, event) = flooded(&world).await;
    let other = webhook(&world, "http://127.0.0.1:9/other").await;
    let kept = pinged(&world, &other).await;
    assert_eq!(world.store.read(deliveries::left_over).await.unwrap().unwrap(), None);
    delete(&world, &id).await;

    let mut left = world.store.read(deliveries::left_over).await.unwrap().unwrap();
    for pending in [1_502, 502, 1] {
        let some = left.unwrap();
        let end = move |tx: &mut Tx<'_>| Ok(deliveries::end_left_over(tx, &some, 1_000)?);
        left = world.store.write(end).await.unwrap().unwrap();
        assert_eq!(world.number(PENDING), pending, "the other webhook's stays");
    }
    assert_eq!((left, world.store.read(deliveries::left_over).await.unwrap().unwrap()), (None, None));
    assert_eq!(delivery(&world, &event).await["status"], "ended");
    assert_eq!(delivery(&world, &kept).await["status"], "pending");
}

#[tokio::test]
async fn what_a_deletion_leaves_is_ended_by_the_next_sweep() {
    let world = World::new().await;
    let (id, event) = flooded(&world).await;
    let sweep = sweeper(&world);
    sweep.sweep().await;
    delete(&world, &id).await;
    assert_eq!(world.number(PENDING), MANY + 1);
    // The one that runs looks every minute, one that has begun just now at once.
    world.clock.advance(59);
    sweep.sweep().await;
    assert_eq!(world.number(PENDING), MANY + 1);
    world.clock.advance(1);
    sweep.sweep().await;
    assert_eq!(world.number(PENDING), 0);
    assert_eq!(delivery(&world, &event).await["status"], "ended");

    let (id, _) = (webhook(&world, "http://127.0.0.1:9/in").await, world.change(DELIVERIES));
    delete(&world, &id).await;
    sweeper(&world).sweep().await;
    assert_eq!(world.number(PENDING), 0);
}

#[tokio::test]
async fn a_webhook_that_is_out_of_the_line_although_something_is_pending_is_put_back() {
    let world = World::new().await;
    let id = webhook(&world, "http://127.0.0.1:9/in").await;
    pinged(&world, &id).await;
    world.change("UPDATE webhooks SET due_at = NULL");
    assert!(lease(&world).await.is_empty());
    sweeper(&world).sweep().await;
    assert_eq!((world.number(QUEUED), world.number(PENDING)), (1, 1));
    assert_eq!(lease(&world).await.len(), 1);
}
