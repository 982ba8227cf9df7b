//! Notices: a message in a chat for each review that waits, sent as events are, by a webhook that the API does not show.

use std::sync::Arc;

use mandate_core::{AgentName, EnvironmentKind, WebhookId};
use mandate_server::clock::{Clock as _, SystemEntropy};
use mandate_server::model::master_key::MasterKey;
use mandate_server::model::records::NoticeFormat;
use mandate_server::service::audit::{self, Operator};
use mandate_server::service::endpoint::{self, EgressPolicy};
use mandate_server::service::notices::{self, Settings, Shown};
use mandate_server::service::signing::rotation::Maker;
use mandate_server::service::webhooks;
use serde_json::{Value, json};

use crate::apart;
use crate::deliveries::{deliverer, webhook};
use crate::events::{deliveries, log};
use crate::receiver::{Answers, Receiver};
use crate::world::{World, json};

const REVIEWED: &str = r#","review_above":200"#;

fn by(world: &World) -> Operator {
    Operator { name: "root (uid 0)".to_owned(), at: world.clock.now() }
}

fn acme() -> AgentName {
    AgentName::parse("acme").unwrap()
}

/// Has the sandbox's notices sent to this URL.
pub(crate) fn set(world: &World, url: &str, format: NoticeFormat, has_details: bool) {
    let egress = EgressPolicy { loopback: true, networks: Vec::new() };
    let settings = Settings { url: endpoint::parse(url, &egress).unwrap(), format, has_details };
    let (of, webhook) = (acme(), WebhookId::from_bytes(world.new_id()));
    let maker = Maker { master: world.keyring.master(), entropy: &SystemEntropy };
    let set = apart::run_once(&world.database, |tx| {
        notices::set(tx, (&of, EnvironmentKind::Sandbox), &settings, (maker, webhook), &by(world))
    });
    set.unwrap().unwrap();
}

fn remove(world: &World) -> Result<(), String> {
    let of = acme();
    let removed = apart::run_once(&world.database, |tx| {
        notices::remove(tx, (&of, EnvironmentKind::Sandbox), &by(world))
    });
    removed.unwrap().map_err(|refusal| refusal.message)
}

fn shown(world: &World) -> Vec<Shown> {
    let of = acme();
    apart::run_once(&world.database, |tx| notices::show(tx, &of)).unwrap().unwrap()
}

/// An agent whose requests above 200 wait for a review.
async fn reviewed(world: &World) -> Arc<mandate_server::model::call::Caller> {
    let agent = world.agent("a").await;
    world.mandate(&agent, 10_000, REVIEWED).await;
    agent
}

fn text(message: &str) -> String {
    serde_json::from_str::<Value>(message).unwrap()["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn each_review_that_waits_is_one_message_and_nothing_else_is() {
    let world = World::new().await;
    let agent = reviewed(&world).await;
    let mut receiver = Receiver::of("application/json", Answers::With(200)).await;
    set(&world, &receiver.url, NoticeFormat::Slack, false);
    let mut deliverer = deliverer(&world);

    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");
    let asked = world.ask(&agent, "300").await;
    world.clock.advance(60 * 60);
    assert_eq!(deliverer.deliver_due().await.unwrap(), 1);
    let review = asked["review"]["id"].as_str().unwrap();
    let wanted = format!("A review waits: {review} (sandbox). 23 h left.");
    assert_eq!(text(&receiver.next().await), wanted);

    world.approve(&asked["review"]["id"]).await;
    assert_eq!(deliverer.deliver_due().await.unwrap(), 0, "an answer is no message");
    assert_eq!((shown(&world)[0].pending, shown(&world)[0].failed), (0, 0));
}

#[tokio::test]
async fn a_chat_that_does_not_answer_is_asked_for_24_hours() {
    let world = World::new().await;
    let agent = reviewed(&world).await;
    let mut receiver = Receiver::of("application/json", Answers::With(503)).await;
    set(&world, &receiver.url, NoticeFormat::Teams, true);
    let mut deliverer = deliverer(&world);
    world.ask(&agent, "300").await;
    assert_eq!(deliverer.deliver_due().await.unwrap(), 1);
    let first: Value = serde_json::from_str(&receiver.next().await).unwrap();
    let run = &first["attachments"][0]["content"]["body"][0]["inlines"][0]["text"];
    assert!(run.as_str().unwrap().ends_with(" 300 USD from agt_a to vendor:v, c."), "{run}");
    assert_eq!((shown(&world)[0].pending, shown(&world)[0].failed), (1, 0));
    world.clock.advance(25 * 60 * 60);
    deliverer.deliver_due().await.unwrap();
    assert_eq!((shown(&world)[0].pending, shown(&world)[0].failed), (0, 1));
}

#[tokio::test]
async fn the_api_does_not_show_them() {
    let world = World::new().await;
    let agent = reviewed(&world).await;
    let receiver = Receiver::of("application/json", Answers::With(200)).await;
    set(&world, &receiver.url, NoticeFormat::Slack, false);
    world.ask(&agent, "300").await;
    let event = log(&world).await[0]["event"].clone();
    assert_eq!(deliveries(&world, &event).await, [], "the event is shown without the delivery");

    let id = shown(&world)[0].notice.webhook.to_string();
    for attempt in ["get", "delete"] {
        let id = id.clone();
        let answer = world.write(world.call(&world.organization), move |tx, call| match attempt {
            "get" => webhooks::get(tx, call, &id),
            _ => webhooks::delete(tx, call, &id),
        });
        assert_eq!(json(&answer.await)["error"]["code"], "not_found", "{attempt}");
    }
    // Sixteen may be registered beside it.
    for number in 0..webhooks::MAX_WEBHOOKS {
        webhook(&world, &format!("http://127.0.0.1:9/{number}")).await;
    }
}

#[tokio::test]
async fn they_are_set_again_and_end_with_what_waits() {
    let world = World::new().await;
    let agent = reviewed(&world).await;
    let mut former = Receiver::of("application/json", Answers::With(200)).await;
    let mut receiver = Receiver::of("application/json", Answers::With(200)).await;
    set(&world, &former.url, NoticeFormat::Slack, false);
    world.ask(&agent, "300").await;
    set(&world, &receiver.url, NoticeFormat::Slack, true);
    world.ask(&agent, "301").await;
    let mut deliverer = deliverer(&world);
    assert_eq!(deliverer.deliver_due().await.unwrap(), 1);
    assert!(text(&receiver.next().await).contains("301 USD"));
    assert_eq!(former.received(), Vec::<String>::new(), "what waited for the former place is not sent");

    world.ask(&agent, "302").await;
    remove(&world).unwrap();
    assert_eq!(deliverer.deliver_due().await.unwrap(), 0);
    assert_eq!(remove(&world).unwrap_err(), "acme has no notices in sandbox; `notice set` sets them");
    let records = apart::run_once(&world.database, |tx| Ok(audit::newest(tx, None, by(&world).at, 10)?));
    let actions: Vec<_> = records.unwrap().unwrap().into_iter().map(|record| record.action).collect();
    assert_eq!(actions[..3], ["notice.remove", "notice.set", "notice.set"]);
}

#[tokio::test]
async fn the_url_is_secret_and_goes_with_the_master_key() {
    let world = World::new().await;
    let url = "https://hooks.example.com/services/s3cret";
    set(&world, url, NoticeFormat::Slack, false);
    let notice = || shown(&world).remove(0);
    assert_eq!(notice().host, "https://hooks.example.com/…");
    let stored = notice().notice.sealed;
    assert!(!stored.windows(6).any(|bytes| bytes == b"s3cret"));
    let records = apart::run_once(&world.database, |tx| Ok(audit::newest(tx, None, by(&world).at, 10)?));
    assert!(!format!("{:?} {:?}", records, notice()).contains("s3cret"));

    let (old, new) = (world.keyring.master(), MasterKey::from_bytes([8; 32]));
    assert_eq!(notices::open(&notice().notice, old).unwrap().as_str(), url);
    let maker = || Maker { master: &new, entropy: &SystemEntropy };
    let resealed = apart::run_once(&world.database, |tx| Ok(notices::reseal(tx, old, maker())?));
    resealed.unwrap().unwrap();
    assert_eq!(notices::open(&notice().notice, &new).unwrap().as_str(), url);
    assert!(notices::open(&notice().notice, old).is_err());
}

#[tokio::test]
async fn another_environment_has_none() {
    let world = World::of(EnvironmentKind::Production).await;
    let agent = reviewed(&world).await;
    let mut receiver = Receiver::of("application/json", Answers::With(200)).await;
    set(&world, &receiver.url, NoticeFormat::Slack, false);
    assert_eq!(world.ask(&agent, "300").await["verdict"], "review");
    assert_eq!(deliverer(&world).deliver_due().await.unwrap(), 0);
    assert_eq!(receiver.received(), Vec::<String>::new());
    assert_eq!(json!(shown(&world)[0].notice.kind.as_str()), "sandbox");
}
