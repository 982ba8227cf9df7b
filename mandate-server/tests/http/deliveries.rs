//! Deliveries by a server that runs: woken by what is written and by its clock, through restarts, to many receivers.

use std::sync::Arc;

use mandate_tests::wait::{DEADLINE, until_async};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::receiver::{Answers, Receiver, claims};
use crate::server::Server;

async fn start() -> Server {
    Server::start_with(|settings| settings.loopback_webhooks = true).await
}

async fn webhook(server: &Server, receiver: &Receiver) -> String {
    let body = json!({"url": receiver.url, "events": ["mandate.revoked"]});
    let webhook = server.post(&server.organization_key, "/webhooks", &body, 201).await;
    format!("/webhooks/{}", webhook["webhook"].as_str().unwrap())
}

/// Pings a webhook. Returns the path of the event.
async fn ping(server: &Server, webhook: &str) -> String {
    let ping = server.post(&server.organization_key, &format!("{webhook}/ping"), &json!({}), 202).await;
    format!("/events/{}", ping["event"].as_str().unwrap())
}

/// Reads the one delivery of an event until as many attempts were written down.
async fn attempted(server: &Server, event: &str, attempts: usize) -> Value {
    until_async(DEADLINE, "the attempts are written down", async || {
        let delivery = server.read(&server.organization_key, event, 200).await["deliveries"][0].clone();
        (delivery["attempts"].as_array().unwrap().len() == attempts).then_some(delivery)
    })
    .await
}

#[tokio::test]
async fn what_is_written_is_delivered_at_once_and_again_when_the_clock_says_so() {
    let server = start().await;
    let mut receiver = Receiver::start(Answers::With(503)).await;
    let webhook = webhook(&server, &receiver).await;
    let event = ping(&server, &webhook).await;
    let first = claims(&receiver.next().await);
    let delivery = attempted(&server, &event, 1).await;
    assert_eq!(delivery["status"], "pending");
    assert!(receiver.received().is_empty());
    receiver.answer(Answers::With(200));
    server.advance(6);
    assert_eq!(claims(&receiver.next().await), first);
    let delivery = attempted(&server, &event, 2).await;
    assert_eq!((&delivery["status"], &delivery["attempts"][0]["status"]), (&json!("delivered"), &json!(503)));
    server.holds();
}

#[tokio::test]
async fn a_change_reaches_its_subscribers_with_the_object_as_the_api_shows_it() {
    let server = start().await;
    let mut receivers =
        [Receiver::start(Answers::With(200)).await, Receiver::start(Answers::With(200)).await];
    for receiver in &receivers {
        webhook(&server, receiver).await;
    }
    server.agent("a").await;
    let mandates = server.read(&server.organization_key, "/mandates", 200).await;
    let path = format!("/mandates/{}/revoke", mandates["data"][0]["id"].as_str().unwrap());
    let revoked = server.post(&server.organization_key, &path, &json!({}), 200).await;
    for receiver in &mut receivers {
        let claims = claims(&receiver.next().await);
        assert_eq!((&claims["type"], &claims["data"]), (&json!("mandate.revoked"), &revoked));
        assert_eq!(claims["iss"], server.running.urls.verdicts);
    }
    server.holds();
}

#[tokio::test]
async fn a_receiver_that_hangs_holds_up_no_other() {
    let server = start().await;
    let hanging = Arc::new(Semaphore::new(0));
    let mut slow = Receiver::start(Answers::Once(Arc::clone(&hanging))).await;
    let mut quick = Receiver::start(Answers::With(200)).await;
    let (to_slow, to_quick) = (webhook(&server, &slow).await, webhook(&server, &quick).await);
    for _ in 0..40 {
        ping(&server, &to_slow).await;
    }
    slow.next().await;
    for _ in 0..3 {
        let event = ping(&server, &to_quick).await;
        quick.next().await;
        assert_eq!(attempted(&server, &event, 1).await["status"], "delivered");
    }
    assert!(slow.received().len() < 32, "its share, and all of it hangs");
    hanging.add_permits(40);
    server.holds();
}

#[tokio::test]
async fn a_restart_goes_on_where_it_was() {
    let server = start().await;
    let mut receiver = Receiver::start(Answers::With(503)).await;
    let webhook = webhook(&server, &receiver).await;
    let event = ping(&server, &webhook).await;
    let agent = server.agent("a").await;
    server.ask(&agent, json!(1)).await;
    receiver.next().await;
    // It is written down before it stops, even if it is just under way.
    let server = server.restart().await;
    let delivery = attempted(&server, &event, 1).await;
    assert_eq!(delivery["status"], "pending");
    assert!(receiver.received().is_empty(), "it is not due yet");
    receiver.answer(Answers::With(200));
    server.advance(6);
    receiver.next().await;
    assert_eq!(attempted(&server, &event, 2).await["status"], "delivered");
    server.ask(&agent, json!(1)).await;
    assert_eq!(server.holds(), 2);
}
