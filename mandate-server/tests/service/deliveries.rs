//! Deliveries: tried until they are acknowledged, deleted, or 24 hours have passed, and fair to every receiver.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mandate_core::jwks::KeySet;
use mandate_core::verify::{Expected, verify_event};
use mandate_core::{EventId, Timestamp, WebhookId};
use mandate_server::clock::{Clock as _, SystemEntropy};
use mandate_server::metrics::Metrics;
use mandate_server::model::call::Caller;
use mandate_server::service::audit::{self, Operator};
use mandate_server::service::deliveries::{self as service, LEASE_SECONDS, LEASE_SKEW_SECONDS, Round};
use mandate_server::service::endpoint::EgressPolicy;
use mandate_server::service::webhooks::{self, Subscription};
use mandate_server::store::Store;
use mandate_server::worker::deliver::Deliverer;
use mandate_server::worker::dial::Dialer;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::apart;
use crate::events::{delete, event, ping};
use crate::receiver::{Answers, Receiver, claims};
use crate::world::{ISSUER, World, json};

const HOUR: i64 = 60 * 60;

fn deliverer_over(world: &World, store: &Store) -> Deliverer {
    let dialer = Dialer::new(EgressPolicy { loopback: true, networks: Vec::new() }, 64).unwrap();
    let (keyring, clock) = (world.keyring.clone(), Arc::clone(&world.clock));
    Deliverer::new(store.clone(), keyring, Arc::new(dialer), clock, Arc::new(SystemEntropy), Metrics::new())
}

pub(crate) fn deliverer(world: &World) -> Deliverer {
    deliverer_over(world, &world.store)
}

/// Registers a webhook for pings alone. Returns its id.
pub(crate) async fn webhook(world: &World, url: &str) -> String {
    webhook_of(world, &world.organization, url).await
}

/// The same, for any organization.
pub(crate) async fn webhook_of(world: &World, organization: &Arc<Caller>, url: &str) -> String {
    let egress = EgressPolicy { loopback: true, networks: Vec::new() };
    let body = json!({"url": url, "events": ["ping"]}).to_string();
    let body = mandate_core::json::Object::parse(body.as_bytes()).unwrap();
    let subscription = Subscription::read(body, &egress).unwrap();
    let id = WebhookId::from_bytes(world.new_id());
    let create = webhooks::Create { subscription, id, at: world.clock.now() };
    let call = world.call(organization);
    assert_eq!(world.write(call, move |tx, call| webhooks::create(tx, call, &create)).await.status, 201);
    id.to_string()
}

/// Pings a webhook. Returns the event's id.
pub(crate) async fn pinged(world: &World, webhook: &str) -> Value {
    json(&ping(world, world.call(&world.organization), webhook).await)["event"].clone()
}

/// The one delivery of an event.
pub(crate) async fn delivery(world: &World, id: &Value) -> Value {
    let event = event(world, id).await;
    assert_eq!(event["deliveries"].as_array().unwrap().len(), 1);
    event["deliveries"][0].clone()
}

#[tokio::test]
async fn an_acknowledged_event_is_a_token_that_anyone_verifies() {
    let world = World::new().await;
    let mut receiver = Receiver::start(Answers::With(204)).await;
    let mut deliverer = deliverer(&world);
    let id = webhook(&world, &receiver.url).await;
    let event = pinged(&world, &id).await;
    assert_eq!(deliverer.deliver_due().await.unwrap(), 1);

    let token = receiver.next().await;
    let keys = KeySet::parse(world.keyring.public_key_set(world.clock.now()).unwrap().as_bytes()).unwrap();
    let expected = Expected { environment: None, ..Expected::new(ISSUER, world.clock.now()) };
    verify_event(&token, &keys, &expected).unwrap();
    assert_eq!(
        claims(&token),
        json!({"iss": ISSUER, "jti": event, "iat": 1_781_524_800, "type": "ping", "data": {"webhook": id}})
    );
    assert_eq!(
        delivery(&world, &event).await,
        json!({"webhook": id, "status": "delivered",
            "attempts": [{"at": "2026-06-15T12:00:00.000Z", "status": 204}]})
    );
    world.clock.advance(48 * HOUR);
    assert_eq!((deliverer.deliver_due().await.unwrap(), receiver.received().len()), (0, 0));
}

/// Moves the clock to the moment when the next attempt is due. Returns that in seconds since noon.
async fn advance_to_next(world: &World, event: &Value) -> Option<i64> {
    let delivery = delivery(world, event).await;
    let next = delivery.get("next_attempt_at")?.as_str().unwrap().to_owned();
    let next = mandate_core::Timestamp::parse(&next).unwrap();
    let noon = mandate_core::Timestamp::parse("2026-06-15T12:00:00Z").unwrap();
    let wait = next.millis_since(world.clock.now());
    world.clock.advance((wait + 999) / 1000);
    Some(next.millis_since(noon) / 1000)
}

#[tokio::test]
async fn a_receiver_that_never_acknowledges_is_tried_for_24_hours() {
    let world = World::new().await;
    let mut receiver = Receiver::start(Answers::With(500)).await;
    let mut deliverer = deliverer(&world);
    let id = webhook(&world, &receiver.url).await;
    let event = pinged(&world, &id).await;
    let (mut times, mut tokens) = (vec![0], Vec::new());
    // Every answer other than 2xx leads to another attempt, redirects and 410 included.
    for status in [500, 301, 307, 404, 410, 429, 503].into_iter().cycle() {
        receiver.answer(Answers::With(status));
        assert_eq!(deliverer.deliver_due().await.unwrap(), 1);
        assert_eq!(deliverer.deliver_due().await.unwrap(), 0, "not before its time");
        tokens.extend(receiver.received());
        assert_eq!(tokens.len(), times.len(), "no redirect is followed");
        let Some(next) = advance_to_next(&world, &event).await else { break };
        times.push(next);
    }
    let stated = [0, 5, 30, 120, 600, 1800, HOUR].into_iter();
    let stated = stated.chain((3..24).step_by(2).map(|hour| hour * HOUR));
    let stated: Vec<_> = stated.chain([24 * HOUR - 600]).collect();
    assert_eq!(times.len(), stated.len(), "{times:?}");
    let mut before = 0;
    for (time, stated) in times.iter().zip(stated) {
        assert!((stated..=stated + (stated - before) / 10).contains(time), "{time} for {stated}");
        before = stated;
    }

    let first = claims(&tokens[0]);
    assert!(tokens.iter().all(|token| claims(token) == first), "jti and iat are those of the event");
    let signatures: BTreeSet<_> = tokens.iter().map(|token| token.rsplit('.').next().unwrap()).collect();
    assert_eq!(signatures.len(), tokens.len(), "each attempt is signed anew");

    let failed = delivery(&world, &event).await;
    assert_eq!((&failed["status"], failed.get("next_attempt_at")), (&json!("failed"), None));
    let attempts = failed["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), times.len());
    assert_eq!((&attempts[1]["status"], &attempts[4]["status"]), (&json!(301), &json!(410)));
    world.clock.advance(24 * HOUR);
    assert_eq!(deliverer.deliver_due().await.unwrap(), 0, "it is over");
}

#[tokio::test]
async fn a_delivery_that_has_failed_can_be_made_again_for_another_24_hours() {
    let world = World::new().await;
    let mut receiver = Receiver::start(Answers::With(500)).await;
    let mut deliverer = deliverer(&world);
    let id = webhook(&world, &receiver.url).await;
    let event = pinged(&world, &id).await;
    let retry = async |event: &Value| {
        let event = EventId::parse(event.as_str().unwrap()).unwrap();
        let webhook = WebhookId::parse(&id).unwrap();
        let by = Operator { name: "root (uid 0)".to_owned(), at: world.clock.now() };
        let retried = world.store.write(move |tx| service::retry(tx, event, webhook, &by)).await.unwrap();
        retried.map_err(|refusal| refusal.message)
    };
    assert_eq!(
        retry(&event).await.unwrap_err(),
        "the delivery is pending: only one that has failed can be made again"
    );
    assert_eq!(deliverer.deliver_due().await.unwrap(), 1);
    // The server was down meanwhile: its time is over without another attempt.
    world.clock.advance(25 * HOUR);
    assert_eq!((deliverer.deliver_due().await.unwrap(), receiver.received().len()), (1, 1));
    assert_eq!(delivery(&world, &event).await["status"], "failed");

    retry(&event).await.unwrap();
    assert_eq!(delivery(&world, &event).await["next_attempt_at"], "2026-06-16T13:00:00.000Z");
    assert_eq!(deliverer.deliver_due().await.unwrap(), 1);
    assert_eq!(delivery(&world, &event).await["status"], "pending");
    world.clock.advance(23 * HOUR);
    receiver.answer(Answers::With(200));
    assert_eq!(deliverer.deliver_due().await.unwrap(), 1);
    let shown = delivery(&world, &event).await;
    let statuses: Vec<_> = shown["attempts"].as_array().unwrap().iter().map(|a| &a["status"]).collect();
    assert_eq!(
        (&shown["status"], statuses),
        (&json!("delivered"), vec![&json!(500), &json!(500), &json!(200)])
    );
    let tokens = receiver.received();
    assert!(tokens.iter().all(|token| claims(token)["iat"] == 1_781_524_800));
    let records = world.store.write(|tx| Ok(audit::newest(tx, Some("acme"), Timestamp::from_millis(0), 9)?));
    let records = json!(records.await.unwrap().unwrap_or_else(|refusal| panic!("{}", refusal.message)));
    assert_eq!(records.as_array().unwrap().len(), 1, "what was refused leaves none: {records}");
    assert_eq!((&records[0]["action"], &records[0]["subject"]), (&json!("webhook.retry"), &json!(id)));
    assert_eq!((&records[0]["environment"], &records[0]["details"]["event"]), (&json!("sandbox"), &event));
    let other = json!(world.event().to_string());
    assert!(retry(&other).await.unwrap_err().starts_with("there is no delivery of evt_"));
}

#[tokio::test]
async fn what_was_never_tried_is_tried_once_however_late() {
    let world = World::new().await;
    let mut receiver = Receiver::start(Answers::With(500)).await;
    let id = webhook(&world, &receiver.url).await;
    let event = pinged(&world, &id).await;
    world.clock.advance(30 * HOUR);
    assert_eq!(deliverer(&world).deliver_due().await.unwrap(), 1);
    assert_eq!((receiver.received().len(), &delivery(&world, &event).await["status"]), (1, &json!("failed")));
}

#[tokio::test]
async fn a_failed_attempt_is_reported_without_the_url() {
    let world = World::new().await;
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let id = webhook(&world, &format!("http://{free}/s3cret")).await;
    let event = pinged(&world, &id).await;
    assert_eq!(deliverer(&world).deliver_due().await.unwrap(), 1);
    let delivery = delivery(&world, &event).await;
    assert_eq!(
        delivery["attempts"],
        json!([{"at": "2026-06-15T12:00:00.000Z", "error": "the connection was refused"}])
    );
}

#[tokio::test]
async fn a_receiver_that_hangs_or_is_flooded_holds_up_no_other() {
    let world = World::new().await;
    let hanging = Arc::new(Semaphore::new(0));
    let mut slow = Receiver::start(Answers::Once(Arc::clone(&hanging))).await;
    let mut quick = Receiver::start(Answers::With(200)).await;
    let (to_slow, to_quick) = (webhook(&world, &slow.url).await, webhook(&world, &quick.url).await);
    let flood = 200;
    for _ in 0..flood {
        pinged(&world, &to_slow).await;
    }
    let mut deliverer = deliverer(&world);
    let working = tokio::spawn(async move { (deliverer.deliver_due().await.unwrap(), deliverer) });
    slow.next().await;
    // The flooded one has all that it may have, and hangs. What comes for the other is delivered at once.
    let second = pinged(&world, &to_quick).await;
    let other = deliverer_over(&world, &world.store).deliver_due().await.unwrap();
    assert_eq!((other, claims(&quick.next().await)["jti"].clone()), (1, second));
    assert!(slow.received().len() < 32, "its share");
    assert!(!working.is_finished());
    hanging.add_permits(flood);
    let (count, _) = working.await.unwrap();
    assert_eq!(count, flood);
}

#[tokio::test]
async fn a_process_that_dies_leaves_its_deliveries_to_others() {
    let world = World::new().await;
    let mut receiver = Receiver::start(Answers::Once(Arc::new(Semaphore::new(0)))).await;
    let id = webhook(&world, &receiver.url).await;
    let event = pinged(&world, &id).await;
    let mut first = deliverer(&world);
    let dying = tokio::spawn(async move { first.deliver_due().await });
    receiver.next().await;
    dying.abort();
    assert!(dying.await.unwrap_err().is_cancelled());

    receiver.answer(Answers::With(200));
    let mut second = deliverer(&world);
    assert_eq!(second.deliver_due().await.unwrap(), 0, "it is the first one's, while its lease holds");
    world.clock.advance(LEASE_SECONDS);
    assert_eq!(second.deliver_due().await.unwrap(), 1);
    assert_eq!(claims(&receiver.next().await)["jti"], event);
    let delivery = delivery(&world, &event).await;
    assert_eq!(
        (&delivery["status"], delivery["attempts"].as_array().unwrap().len()),
        (&json!("delivered"), 1)
    );
}

#[tokio::test]
async fn a_lease_that_only_a_wrong_clock_can_have_given_holds_up_nothing() {
    let world = World::new().await;
    let mut receiver = Receiver::start(Answers::Once(Arc::new(Semaphore::new(0)))).await;
    let id = webhook(&world, &receiver.url).await;
    let event = pinged(&world, &id).await;
    // Leased while the clock was ahead, by a server that died: for longer than a server whose clock is right would.
    let ahead = LEASE_SKEW_SECONDS + 1;
    world.clock.advance(ahead);
    let mut first = deliverer(&world);
    let dying = tokio::spawn(async move { first.deliver_due().await });
    receiver.next().await;
    dying.abort();
    assert!(dying.await.unwrap_err().is_cancelled());

    receiver.answer(Answers::With(200));
    let mut second = deliverer(&world);
    world.clock.advance(-LEASE_SKEW_SECONDS);
    assert_eq!(second.deliver_due().await.unwrap(), 0, "clocks may differ by so much");
    world.clock.advance(LEASE_SKEW_SECONDS - ahead);
    assert_eq!(second.deliver_due().await.unwrap(), 1);
    assert_eq!(claims(&receiver.next().await)["jti"], event);
    assert_eq!(delivery(&world, &event).await["status"], "delivered");
}

#[tokio::test]
async fn what_is_under_way_when_the_clock_is_set_back_is_not_begun_again() {
    let world = World::new().await;
    let hanging = Arc::new(Semaphore::new(0));
    let mut receiver = Receiver::start(Answers::Once(Arc::clone(&hanging))).await;
    let id = webhook(&world, &receiver.url).await;
    let first = pinged(&world, &id).await;
    world.clock.advance(HOUR);
    let mut deliverer = deliverer(&world);
    let second = {
        let delivering = deliverer.deliver_due();
        tokio::pin!(delivering);
        tokio::select! {
            _ = &mut delivering => unreachable!("the receiver hangs"),
            token = receiver.next() => assert_eq!(claims(&token)["jti"], first),
        }
        world.clock.advance(-HOUR);
        pinged(&world, &id).await
    };
    // It leases the webhook anew, and begins what is not under way.
    let delivering = tokio::spawn(async move { deliverer.deliver_due().await.unwrap() });
    assert_eq!(claims(&receiver.next().await)["jti"], second);
    hanging.add_permits(2);
    assert_eq!((delivering.await.unwrap(), receiver.received().len()), (2, 0), "each was sent once");
}

/// Leases what is due and gives it back untried: the webhook goes to the end of the line.
async fn give_back(world: &World) {
    let now = world.clock.now();
    let take = async |round: Round| {
        let taken = world.store.write(move |tx| Ok(service::run_round(tx, &round, now)?)).await;
        taken.unwrap().unwrap()
    };
    let released = take(Round { room: 10, ..Round::default() }).await;
    assert_eq!(released.len(), 1);
    take(Round { released, ..Round::default() }).await;
}

#[tokio::test]
async fn no_webhook_stays_at_the_end_of_the_line_as_a_clock_saw_it_that_was_ahead() {
    // How far ahead, and whether the server was started again since.
    for (ahead, anew) in [(HOUR, false), (9_600 * HOUR, false), (9_600 * HOUR, true)] {
        let world = World::new().await;
        let mut receiver = Receiver::start(Answers::With(200)).await;
        let id = webhook(&world, &receiver.url).await;
        let event = pinged(&world, &id).await;
        world.clock.advance(ahead);
        give_back(&world).await;
        let before = deliverer(&world);
        world.clock.advance(-ahead);
        let mut server = if anew { deliverer(&world) } else { before };
        assert_eq!(server.deliver_due().await.unwrap(), 1, "{ahead} s ahead, started anew: {anew}");
        assert_eq!(claims(&receiver.next().await)["jti"], event);
        assert_eq!((server.deliver_due().await.unwrap(), receiver.received().len()), (0, 0));
    }
}

#[tokio::test]
async fn an_attempt_that_was_put_off_by_a_clock_that_was_ahead_is_made_when_it_is_set_back() {
    let world = World::new().await;
    let mut receiver = Receiver::start(Answers::With(500)).await;
    let id = webhook(&world, &receiver.url).await;
    let event = pinged(&world, &id).await;
    world.clock.advance(12 * HOUR);
    assert_eq!(deliverer(&world).deliver_due().await.unwrap(), 1);
    receiver.next().await;
    world.clock.advance(-12 * HOUR);
    assert_eq!(deliverer(&world).deliver_due().await.unwrap(), 1, "in 13 hours by the record");
    receiver.next().await;
    assert_eq!(deliverer(&world).deliver_due().await.unwrap(), 0, "and then as the schedule says");
    receiver.answer(Answers::With(200));
    advance_to_next(&world, &event).await.unwrap();
    assert_eq!(deliverer(&world).deliver_due().await.unwrap(), 1);
    assert_eq!(delivery(&world, &event).await["status"], "delivered");
}

#[tokio::test]
async fn an_event_of_a_clock_that_was_ahead_is_tried_for_24_hours_and_no_more() {
    let world = World::new().await;
    let mut receiver = Receiver::start(Answers::With(500)).await;
    let id = webhook(&world, &receiver.url).await;
    world.clock.advance(720 * HOUR);
    let event = pinged(&world, &id).await;
    world.clock.advance(-720 * HOUR);
    let mut times = Vec::new();
    for _ in 0..30 {
        assert_eq!(deliverer(&world).deliver_due().await.unwrap(), 1);
        receiver.next().await;
        let Some(next) = advance_to_next(&world, &event).await else { break };
        times.push(next);
    }
    assert!(times.len() == 18 && times[..1] == [5] && times[17] < 24 * HOUR, "{times:?}");
    assert_eq!(delivery(&world, &event).await["status"], "failed");
}

#[tokio::test]
async fn two_servers_share_the_work_and_nothing_is_sent_twice() {
    let world = World::new().await;
    let store = apart::another(&world.store, &world.database, Arc::clone(&world.engine) as _).unwrap();
    let mut receivers = Vec::new();
    let mut sent = BTreeSet::new();
    for _ in 0..4 {
        let receiver = Receiver::start(Answers::With(200)).await;
        let id = webhook(&world, &receiver.url).await;
        receivers.push(receiver);
        for _ in 0..50 {
            sent.insert(pinged(&world, &id).await.as_str().unwrap().to_owned());
        }
    }
    let (mut one, mut other) = (deliverer(&world), deliverer_over(&world, &store));
    let (by_one, by_other) = tokio::join!(one.deliver_due(), other.deliver_due());
    assert_eq!(by_one.unwrap() + by_other.unwrap(), 200);
    let tokens: Vec<_> = receivers.iter_mut().flat_map(Receiver::received).collect();
    let got: BTreeSet<_> =
        tokens.iter().map(|token| claims(token)["jti"].as_str().unwrap().to_owned()).collect();
    assert_eq!((tokens.len(), got), (200, sent));
}

#[tokio::test]
async fn deleting_a_webhook_ends_what_is_under_way() {
    let world = World::new().await;
    let hanging = Arc::new(Semaphore::new(0));
    let mut receiver = Receiver::start(Answers::Once(Arc::clone(&hanging))).await;
    let id = webhook(&world, &receiver.url).await;
    let (first, second) = (pinged(&world, &id).await, pinged(&world, &id).await);
    let mut deliverer = deliverer(&world);
    let working = tokio::spawn(async move { deliverer.deliver_due().await });
    receiver.next().await;
    delete(&world, &id).await;
    hanging.add_permits(2);
    working.await.unwrap().unwrap();
    for event in [&first, &second] {
        assert_eq!(delivery(&world, event).await["status"], "ended");
    }
    let attempts = delivery(&world, &first).await["attempts"].clone();
    assert_eq!(attempts, json!([{"at": "2026-06-15T12:00:00.000Z", "status": 200}]), "the attempt is shown");
}

#[tokio::test]
async fn the_store_says_that_there_is_something_to_deliver_and_only_then() {
    let world = World::new().await;
    let announced = async || tokio::time::timeout(Duration::ZERO, world.store.announced()).await.is_ok();
    let agent = world.agent("a").await;
    let mandate = world.mandate(&agent, 10_000, r#","review_above":200"#).await;
    let id = webhook(&world, "http://127.0.0.1:9/in").await;
    for subscribed in [false, true] {
        world.ask(&agent, "300").await;
        assert_eq!(announced().await, subscribed);
        world.change("INSERT INTO subscriptions SELECT environment, 'decision.review_pending', webhook FROM webhooks WHERE 1 > (SELECT count(*) FROM subscriptions WHERE type <> 'ping')");
    }
    assert!(world.revoke(&mandate).await.status == 200 && !announced().await, "no subscription is left");
    pinged(&world, &id).await;
    assert!(announced().await && !announced().await, "once a commit");
}
