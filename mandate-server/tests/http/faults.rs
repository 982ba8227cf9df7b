//! Faults on the server's side: each is a 5xx with the id of its request and nothing else, and the server lives on.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mandate_core::Timestamp;
use mandate_server::clock::{Clock, Entropy, Sleep, SystemEntropy, TestClock};
use serde_json::json;

use crate::samples::{request, terms};
use crate::tenants::Tenants;
use crate::world::{World, noon};

const SECRET_REASON: &str = "the reason is for the log alone";

/// Works, until it is broken: then it panics in handlers that draw a key, or on the threads that decide.
struct Breakable {
    clock: Arc<TestClock>,
    broken: AtomicBool,
}

impl Breakable {
    fn new() -> Arc<Self> {
        Arc::new(Self { clock: noon(), broken: AtomicBool::new(false) })
    }

    fn panic_if(&self, here: bool) {
        assert!(!(here && self.broken.load(Ordering::SeqCst)), "{SECRET_REASON}");
    }
}

impl Clock for Breakable {
    fn now(&self) -> Timestamp {
        let deciding = |name: &str| ["writer", "ahead"].contains(&name) || name.starts_with("lane");
        self.panic_if(std::thread::current().name().is_some_and(deciding));
        self.clock.now()
    }

    fn elsewhere(&self, shown: Timestamp) -> Timestamp {
        self.clock.elsewhere(shown)
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep<'_> {
        self.clock.sleep_until(at)
    }
}

impl Entropy for Breakable {
    fn fill(&self, bytes: &mut [u8]) {
        self.panic_if(bytes.len() == 32);
        SystemEntropy.fill(bytes);
    }
}

async fn tenants(part: &Arc<Breakable>) -> Tenants {
    let clock = Arc::clone(&part.clock);
    Tenants::of(World::made_of(clock, Arc::clone(part) as _, Arc::clone(part) as _, |_| {}).await).await
}

#[tokio::test]
async fn a_handler_that_panics_is_a_500_with_an_id() {
    let part = Breakable::new();
    let Tenants { ours, .. } = &tenants(&part).await;
    let post = || {
        let post =
            ours.client.post("/v1/agents", &json!({"name": "late"})).bearer_auth(&ours.organization_key);
        post.header("Idempotency-Key", "once")
    };
    part.broken.store(true, Ordering::SeqCst);
    let answer = post().asked().await;
    let message = answer.refused(500, "server_error");
    assert!(!message.contains(SECRET_REASON), "{message}");
    part.broken.store(false, Ordering::SeqCst);
    let retried = post().asked().await;
    assert_eq!((retried.status, retried.replayed()), (201, false), "{}", retried.body);
}

#[tokio::test]
async fn a_batch_that_panics_is_a_500_with_an_id() {
    let part = Breakable::new();
    let Tenants { ours, .. } = &tenants(&part).await;
    let (agent, key) = ours.agent().await;
    ours.create("/v1/mandates", &terms(&agent)).await;
    let post = || {
        let post = ours.client.post("/v1/authorizations", &request(40)).bearer_auth(&key);
        post.header("Idempotency-Key", "once")
    };
    part.broken.store(true, Ordering::SeqCst);
    let message = post().asked().await.refused(500, "server_error");
    assert!(!message.contains(SECRET_REASON), "{message}");
    part.broken.store(false, Ordering::SeqCst);
    let retried = post().asked().await;
    assert_eq!((retried.status, retried.replayed()), (201, false), "{}", retried.body);
    assert_eq!(retried.json()["verdict"], "allow");
}

/// The test blocks its own thread alone: the server runs on others.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_there_is_no_room_for_is_told_to_come_again() {
    let Tenants { world, ours, .. } =
        &Tenants::of(World::start_with(|settings| settings.max_under_way = 1).await).await;
    let body = r#"{"name":"slow"}"#;
    let mut slow = TcpStream::connect(world.running.api).unwrap();
    let head = format!(
        "POST /v1/agents HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Expect: 100-continue\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        ours.organization_key,
        body.len()
    );
    slow.write_all(head.as_bytes()).unwrap();
    // It is asked for its body: so it is under way.
    let mut asked = [0; 25];
    slow.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");

    let list = || ours.client.get("/v1/agents").bearer_auth(&ours.organization_key);
    let busy = list().asked().await;
    assert!(busy.refused(503, "server_error").contains("busy"));
    assert_eq!(busy.header("Retry-After"), Some("1"));

    slow.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
    assert_eq!(list().asked().await.status, 200);
}
