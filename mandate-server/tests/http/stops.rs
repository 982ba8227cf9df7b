//! A server that stops in order, beside another one that goes on: what it had taken the other has at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mandate_core::jwt::Unverified;
use tokio::time::timeout;

use crate::server::Server;
use crate::settlement::{Provider, ended, start};

/// Less than the other would wait for one that has died, by far.
const SOON: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn an_instruction_that_was_taken_is_sent_by_another_server_at_once() {
    let mut provider = Provider::start(0, "").await;
    let (server, path, _) = start(&provider).await;
    let Server { world, http } = server;
    let beside = world.beside(Arc::clone(&world.clock)).await;
    let (_, first) = provider.sent.recv().await.unwrap();
    // The next provider answers.
    *provider.answer.lock().unwrap() = (200, r#"{"status":"settled","reference":"x-1"}"#.to_owned());
    let began = Instant::now();
    world.running.stop().await;
    assert!(began.elapsed() < SOON, "it has stopped after {:?}", began.elapsed());
    let (_, second) = timeout(SOON, provider.sent.recv()).await.expect("it was not sent again").unwrap();
    let claims = |token: &str| Unverified::parse(token).unwrap().unverified_claims().to_owned();
    assert_eq!(claims(&first), claims(&second), "the same instruction");
    let beside = Server { world: beside, http };
    assert_eq!(ended(&beside, &path).await, "funded");
    assert!(beside.world.holds() > 0);
}
