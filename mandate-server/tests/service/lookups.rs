//! Deliveries beside names whose name servers do not answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use mandate_server::clock::SystemEntropy;
use mandate_server::metrics::Metrics;
use mandate_server::outgoing::Names;
use mandate_server::service::endpoint::EgressPolicy;
use mandate_server::worker::deliver::Deliverer;
use mandate_server::worker::dial::{ATTEMPT, Dialer};
use serde_json::json;
use tokio::sync::mpsc;

use crate::deliveries::{delivery, pinged, webhook, webhook_of};
use crate::events::{delete, ping};
use crate::receiver::{Answers, Receiver, claims};
use crate::world::{World, json as body};

/// How many names an environment may have looked up at a time, and how many webhooks it may have.
const MOST: usize = 16;

/// Every name in `localhost` resolves to this machine. No other is ever answered, and each is reported.
struct Hanging(mpsc::UnboundedSender<String>);

impl Names for Hanging {
    fn look_up(&self, name: &str) -> BoxFuture<'static, Vec<SocketAddr>> {
        if name.ends_with(".localhost") {
            return std::future::ready(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]).boxed();
        }
        self.0.send(name.to_owned()).unwrap();
        std::future::pending().boxed()
    }
}

/// A server's part that delivers; all have one dialer.
fn deliverer(world: &World, dialer: &Arc<Dialer>) -> Deliverer {
    let (keyring, clock, entropy) = (world.keyring.clone(), Arc::clone(&world.clock), SystemEntropy);
    let (dialer, entropy) = (Arc::clone(dialer), Arc::new(entropy));
    Deliverer::new(world.store.clone(), keyring, dialer, clock, entropy, Metrics::new())
}

#[tokio::test]
async fn an_environment_whose_names_hang_holds_up_no_other() {
    let world = World::new().await;
    let (asked, mut hanging) = mpsc::unbounded_channel();
    let egress = EgressPolicy { loopback: true, networks: Vec::new() };
    let dialer = Arc::new(Dialer::with(egress, Arc::new(Hanging(asked)), ATTEMPT, 64).unwrap());

    // As many names as it may look up hang, also when no attempt waits for them any more.
    let mut webhooks = Vec::new();
    for number in 0..MOST {
        let id = webhook(&world, &format!("https://old{number}.example.com/in")).await;
        pinged(&world, &id).await;
        webhooks.push(id);
    }
    let mut first = deliverer(&world, &dialer);
    let working = tokio::spawn(async move { first.deliver_due().await });
    for _ in 0..MOST {
        assert!(hanging.recv().await.unwrap().starts_with("old"));
    }
    working.abort();
    assert!(working.await.unwrap_err().is_cancelled());

    // Other webhooks take the place of those.
    let mut events = Vec::new();
    for (number, id) in webhooks.into_iter().enumerate() {
        assert_eq!(delete(&world, &id).await.status, 204);
        let id = webhook(&world, &format!("https://new{number}.example.com/in")).await;
        events.push(pinged(&world, &id).await);
    }
    let stranger = world.stranger().await;
    let mut receiver = Receiver::start(Answers::With(204)).await;
    let url = receiver.url.replace("127.0.0.1", "hooks.localhost");
    let healthy = webhook_of(&world, &stranger, &url).await;
    let pinged = body(&ping(&world, world.call(&stranger), &healthy).await);

    let mut second = deliverer(&world, &dialer);
    let mut working = tokio::spawn(async move { second.deliver_due().await.unwrap() });
    tokio::select! {
        token = receiver.next() => assert_eq!(claims(&token)["jti"], pinged["event"]),
        _ = &mut working => panic!("it was waited for the others"),
    }
    assert_eq!(working.await.unwrap(), MOST + 1);
    for event in events {
        let delivery_now = delivery(&world, &event).await;
        assert_eq!(
            (&delivery_now["status"], &delivery_now["attempts"][0]["error"]),
            (&json!("pending"), &json!("not sent: too many other names are being looked up"))
        );
    }
    assert!(hanging.try_recv().is_err(), "no further name was asked for");
}
