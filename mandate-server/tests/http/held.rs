//! Bodies that are held back: what is done is done when the body has come, by who may do it then.

use mandate_core::Timestamp;
use mandate_server::clock::Clock as _;
use mandate_tests::wait::{DEADLINE, until_async};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::world::World;

/// A POST whose head has passed the gate, and whose body the server waits for.
struct DelayedBody {
    stream: TcpStream,
    body: &'static str,
}

impl DelayedBody {
    async fn begin(world: &World, path: &str, body: &'static str) -> Self {
        let mut stream = TcpStream::connect(world.running.api).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
            world.organization_key,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut goes_on = [0; 25];
        stream.read_exact(&mut goes_on).await.unwrap();
        assert_eq!(&goes_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        Self { stream, body }
    }

    /// The status, and the body as JSON.
    async fn released(mut self) -> (u16, serde_json::Value) {
        self.stream.write_all(self.body.as_bytes()).await.unwrap();
        let mut answer = String::new();
        self.stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }
}

#[tokio::test]
async fn what_is_asked_happens_when_the_body_has_come() {
    let world = World::start().await;
    let delayed = DelayedBody::begin(&world, "/v1/agents", r#"{"name":"late"}"#).await;
    world.clock.advance(10);
    let (status, agent) = delayed.released().await;
    assert_eq!((status, &agent["created_at"]), (201, &serde_json::json!(world.clock.now().to_string())));
}

#[tokio::test]
async fn a_key_that_is_revoked_before_the_body_has_come_does_nothing() {
    let world = World::start().await;
    let delayed = DelayedBody::begin(&world, "/v1/agents", r#"{"name":"late"}"#).await;
    world.change_key(&world.organization_key, |key| key.revoked_at = Some(Timestamp::from_millis(1)));
    until_async(DEADLINE, "the key is refused", async || {
        (world.get(&world.organization_key, "/v1/agents").await.status == 401).then_some(())
    })
    .await;
    let (status, refused) = delayed.released().await;
    assert_eq!((status, &refused["error"]["code"]), (401, &serde_json::json!("unauthorized")));
}
