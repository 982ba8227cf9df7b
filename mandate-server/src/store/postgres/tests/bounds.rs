//! A job that has waited too long is neither started nor committed, whatever it waited for.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use mandate_core::{AgentId, EnvironmentKind, EventId, EventKind, PolicyVersion, RequestId, Timestamp};
use mandate_tests::Database;
use mandate_tests::cluster::{query, run};
use serde_json::value::RawValue;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use super::fresh;
use crate::error::{Fault, Refusal};
use crate::metrics::Metrics;
use crate::model::call::{Answer, Call, Caller, Environment};
use crate::model::records::EventRecord;
use crate::store::postgres::address::Address;
use crate::store::postgres::jobs::After;
use crate::store::postgres::pool::Pool;
use crate::store::tx::Tx;
use crate::store::{Authorization, Decider, Found, Loaded, Signed, UnsignedOutcome};

/// How long a job may wait here.
const MAX_WAIT: Duration = Duration::from_millis(1_500);
/// Longer than that, and shorter than the database's own limit for a transaction.
const TOO_LONG: Duration = Duration::from_secs(3);
/// As many as there are writers.
const BLOCKERS: usize = 4;
const BUMP: &str = "UPDATE revisions SET revision = revision + 1 WHERE name = 'api_keys'";
const TENANT: &str = "INSERT INTO organizations (organization, name, created_at) VALUES (1, 'a', 0);
    INSERT INTO environments VALUES (1, 1, 'sandbox', 'pol_1', 'enforce', 0);
    INSERT INTO agents VALUES (1, 'agt_a', decode(repeat('00', 16), 'hex'), 0, NULL, '')";

/// Writes an event for each request. The first batch takes longer than any job may wait.
#[derive(Default)]
struct Slow {
    batches: AtomicUsize,
    /// How many requests were decided.
    requests: AtomicUsize,
    /// Receives a message when the first batch is being decided.
    begun: Option<mpsc::Sender<()>>,
}

fn noon() -> Timestamp {
    Timestamp::parse("2026-06-15T12:00:00Z").unwrap()
}

fn pass(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::thread::yield_now();
    }
}

impl Decider for Slow {
    fn now(&self) -> Timestamp {
        noon()
    }

    fn database(&self, _: Timestamp) -> Timestamp {
        noon()
    }

    fn decide_unsigned(
        &self,
        _: &Authorization,
        _: Timestamp,
        _: &Found<'_>,
    ) -> Result<UnsignedOutcome, Fault> {
        Err(Fault::new("nothing is decided apart from its batch"))
    }

    fn sign(&self, _: &Authorization, _: UnsignedOutcome, _: Timestamp) -> Result<Signed, Fault> {
        Err(Fault::new("nothing is signed apart from its batch"))
    }

    fn decide(
        &self,
        batch: &[&Authorization],
        now: Timestamp,
        loaded: &mut Loaded,
    ) -> Vec<Result<Answer, Fault>> {
        let earlier = self.requests.fetch_add(batch.len(), Ordering::SeqCst);
        if self.batches.fetch_add(1, Ordering::SeqCst) == 0 {
            self.begun.as_ref().unwrap().send(()).unwrap();
            pass(TOO_LONG);
        }
        let decided = batch.iter().enumerate().map(|(number, _)| {
            let id = EventId::new(now, (earlier + number) as u128);
            let data = RawValue::from_string("{}".to_owned()).unwrap();
            loaded.made.events.push(EventRecord { environment: 1, id, kind: EventKind::Ping, at: now, data });
            Ok(Answer { status: 201, body: Vec::new(), secret: false, replayed: false, decided: None })
        });
        decided.collect()
    }
}

fn authorization() -> Authorization {
    let policy_version = PolicyVersion::parse("pol_1").unwrap();
    let environment = Environment { id: 1, kind: EnvironmentKind::Sandbox, policy_version };
    let agent = Some(AgentId::parse("agt_a").unwrap());
    let caller = Caller { key: 1, environment, agent, rate: 1, expires_at: None };
    let request_id = RequestId::from_bytes([1; 16]);
    let call = Call { caller: Arc::new(caller), request_id, at: noon(), idempotency: None };
    Authorization::new(call, Err(Refusal::invalid("it is answered all the same")))
}

fn pool(database: &Database, slow: Slow) -> (Arc<Pool>, Arc<Slow>) {
    let (address, slow) = (Address::parse(database.url()).unwrap(), Arc::new(slow));
    let after = After::new(Metrics::new(), Arc::new(Notify::new()));
    let decider = Arc::clone(&slow) as Arc<dyn Decider>;
    (Arc::new(Pool::start(&address, &decider, after, MAX_WAIT).unwrap()), slow)
}

#[test]
fn what_has_waited_too_long_for_a_writer_is_not_begun_and_what_took_too_long_is_not_committed() {
    let (database, runtime) = (fresh(), Runtime::new().unwrap());
    let (pool, _) = pool(&database, Slow::default());
    let (begun, begins) = mpsc::channel();
    let blocked: Vec<_> = (0..BLOCKERS)
        .map(|_| {
            let (pool, begun) = (Arc::clone(&pool), begun.clone());
            let block = move |tx: &mut Tx<'_>| {
                let _ = begun.send(());
                pass(TOO_LONG);
                Ok(tx.execute(BUMP, &[])?)
            };
            runtime.spawn(async move { pool.write(block).await })
        })
        .collect();
    for _ in 0..BLOCKERS {
        begins.recv().unwrap();
    }
    let was_run = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&was_run);
    let late = pool.write(move |tx| {
        runs.store(true, Ordering::SeqCst);
        Ok(tx.execute(BUMP, &[])?)
    });
    let error = runtime.block_on(late).unwrap_err().to_string();
    assert!(error.contains("waited 20 seconds for a thread or for a lock"), "{error}");
    for blocked in blocked {
        let error = runtime.block_on(blocked).unwrap().unwrap_err().to_string();
        assert!(error.contains("took too long"), "{error}");
    }
    assert!(!was_run.load(Ordering::SeqCst));
    let count = "SELECT revision FROM revisions WHERE name = 'api_keys'";
    assert_eq!(query(database.url(), count), "0", "what is late has changed nothing");
    runtime.block_on(pool.write(|tx| Ok(tx.execute(BUMP, &[])?))).unwrap().unwrap();
    assert_eq!(query(database.url(), count), "1");
    pool.close();
}

#[test]
fn what_has_waited_too_long_for_a_batch_is_not_decided_and_a_batch_that_is_late_not_committed() {
    const EVENTS: &str = "SELECT count(*) FROM events";
    let (database, runtime) = (fresh(), Runtime::new().unwrap());
    run(database.url(), TENANT);
    let (begun, begins) = mpsc::channel();
    let (pool, slow) = pool(&database, Slow { begun: Some(begun), ..Slow::default() });
    // On a slow machine the first ones may be late before the worker has connected.
    let ask = || {
        let pool = Arc::clone(&pool);
        runtime.spawn(async move { pool.decide(authorization()).await })
    };
    let mut first = ask();
    while begins.recv_timeout(Duration::from_millis(1)).is_err() {
        if first.is_finished() {
            first = ask();
        }
    }
    let error = runtime.block_on(pool.decide(authorization())).unwrap_err().to_string();
    assert!(error.contains("waited 20 seconds for a thread or for a lock"), "{error}");
    assert_eq!(slow.requests.load(Ordering::SeqCst), 1, "the one that waited was never decided on");
    let error = runtime.block_on(first).unwrap().unwrap_err().to_string();
    assert!(error.contains("took too long"), "{error}");
    assert_eq!(query(database.url(), EVENTS), "0", "nothing is committed late");
    runtime.block_on(pool.decide(authorization())).unwrap();
    assert_eq!((slow.requests.load(Ordering::SeqCst), query(database.url(), EVENTS).as_str()), (2, "1"));
    pool.close();
}
