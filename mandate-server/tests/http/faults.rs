//! Faults on the server's side: each is a 5xx with the id of its request and nothing else, and the server lives on.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mandate_core::Timestamp;
use mandate_server::clock::{Clock, Entropy, Sleep, SystemEntropy, TestClock};
use serde_json::json;

use crate::samples::{request, terms};
use crate::tenants::Tenants;
use crate::world::{World, noon, spend};

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

/// Whether this is a thread that decides.
fn is_deciding() -> bool {
    let deciding = |name: &str| name == "writer" || name.starts_with("batch-worker");
    std::thread::current().name().is_some_and(deciding)
}

impl Clock for Breakable {
    fn now(&self) -> Timestamp {
        self.panic_if(is_deciding());
        self.clock.now()
    }

    fn database(&self, shown: Timestamp) -> Timestamp {
        self.panic_if(is_deciding());
        self.clock.database(shown)
    }

    fn uptime_millis(&self) -> i64 {
        self.clock.uptime_millis()
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
    let Tenants { ours, world, .. } = &tenants(&part).await;
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
    let key = retried.json()["agent_key"].as_str().unwrap().to_owned();
    assert_eq!(world.post(&key, "/v1/authorizations", &spend(1)).await.status, 201);
    assert!(world.holds() > 0);
}

#[tokio::test]
async fn a_batch_that_panics_is_a_500_with_an_id() {
    let part = Breakable::new();
    let Tenants { world, ours, .. } = &tenants(&part).await;
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
    assert_eq!(world.holds(), 1);
}

/// Blocks a handler that draws a key, once a test wants it: reports that it is there, and waits.
struct Blocking {
    clock: Arc<TestClock>,
    blocks: AtomicBool,
    there: SyncSender<()>,
    on: Mutex<Receiver<()>>,
}

impl Entropy for Blocking {
    fn fill(&self, bytes: &mut [u8]) {
        if bytes.len() == 32 && self.blocks.swap(false, Ordering::SeqCst) {
            // Without this, what the thread was to run next would wait with it.
            tokio::task::block_in_place(|| {
                self.there.send(()).unwrap();
                self.on.lock().unwrap().recv().unwrap();
            });
        }
        SystemEntropy.fill(bytes);
    }
}

/// The test blocks one thread of the server's: others answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_request_without_room_gets_a_retry_after() {
    let ((there, arrived), (go_on, on)) = (sync_channel(1), sync_channel(1));
    let (clock, on) = (noon(), Mutex::new(on));
    let blocking = Arc::new(Blocking { clock, blocks: AtomicBool::new(false), there, on });
    let world = World::made_of(
        Arc::clone(&blocking.clock),
        Arc::clone(&blocking.clock) as _,
        Arc::clone(&blocking) as _,
        |settings| settings.max_under_way = 1,
    );
    let Tenants { ours, .. } = &Tenants::of(world.await).await;
    blocking.blocks.store(true, Ordering::SeqCst);
    let slow = ours.client.post("/v1/agents", &json!({"name": "slow"})).bearer_auth(&ours.organization_key);
    let slow = tokio::spawn(async move { slow.asked().await.status });
    tokio::task::spawn_blocking(move || arrived.recv().unwrap()).await.unwrap();

    let list = || ours.client.get("/v1/agents").bearer_auth(&ours.organization_key);
    let busy = list().asked().await;
    assert!(busy.refused(503, "server_error").contains("busy"));
    assert_eq!(busy.header("Retry-After"), Some("1"));

    go_on.send(()).unwrap();
    assert_eq!(slow.await.unwrap(), 201);
    assert_eq!(list().asked().await.status, 200);
}

/// Sends the head of a POST, and waits until its body is asked for.
fn withhold(world: &World, key: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(world.running.api).unwrap();
    let head = format!(
        "POST /v1/agents HTTP/1.1\r\nHost: api\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Expect: 100-continue\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n",
    );
    stream.write_all(head.as_bytes()).unwrap();
    // It was asked for, and is under way.
    let mut asked = [0; 25];
    stream.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

fn read_to_end(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The test blocks its own thread alone: the server runs on others.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_withheld_takes_no_room_from_others() {
    let Tenants { world, ours, .. } =
        &Tenants::of(World::start_with(|settings| settings.max_under_way = 1).await).await;
    let body = r#"{"name":"slow"}"#;
    let mut slow = withhold(world, &ours.organization_key, body.len());
    let began = Instant::now();
    let list = || ours.client.get("/v1/agents").bearer_auth(&ours.organization_key);
    // For a moment it has the one place there is.
    loop {
        let listed = list().asked().await;
        if listed.status == 200 {
            break;
        }
        listed.refused(503, "server_error");
        assert!(began.elapsed() < Duration::from_secs(5), "long before a body is given up");
    }
    slow.write_all(body.as_bytes()).unwrap();
    let answer = read_to_end(slow);
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
    assert_eq!(list().asked().await.status, 200);
}

/// As many bodies of one key as are waited for at a time.
const MAX_WITHHELD: usize = 64;

#[tokio::test(flavor = "multi_thread")]
async fn of_one_key_so_many_bodies_are_waited_for_and_no_more() {
    let Tenants { world, ours, theirs } = &Tenants::new().await;
    let body = |number: usize| format!(r#"{{"name":"slow{number:02}"}}"#);
    let slow = (0..=MAX_WITHHELD).map(|_| withhold(world, &ours.organization_key, body(0).len()));
    let slow: Vec<_> = slow.collect();
    // One of them is answered before its body has come: nothing else can be read yet.
    let answered = |mut stream: &TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).is_ok().then_some(first)
    };
    let began = Instant::now();
    let refused = loop {
        assert!(began.elapsed() < Duration::from_secs(10), "long before a body is given up");
        if let Some(found) = slow.iter().enumerate().find_map(|(at, s)| Some((at, answered(s)?))) {
            break found;
        }
    };
    assert_eq!(&refused.1, b"HTTP/1.1 429");
    for (number, mut stream) in slow.into_iter().enumerate() {
        stream.set_read_timeout(None).unwrap();
        if number == refused.0 {
            let rest = read_to_end(stream).to_lowercase();
            assert!(rest.contains("retry-after: 1\r\n") && rest.contains("rate_limited"), "{rest}");
        } else {
            stream.write_all(body(number).as_bytes()).unwrap();
            let answer = read_to_end(stream);
            assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
        }
    }
    let post = theirs.client.post("/v1/agents", &json!({"name": "quick"}));
    assert_eq!(post.bearer_auth(&theirs.organization_key).asked().await.status, 201);
}
