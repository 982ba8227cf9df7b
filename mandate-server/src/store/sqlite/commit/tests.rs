//! What follows a COMMIT that has failed.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Mutex;

use mandate_core::{AgentId, DecisionId, EnvironmentKind, PolicyVersion, RequestId, Timestamp};
use rusqlite::ffi;
use tempfile::TempDir;

use super::super::checkpoint::{MOST_PAGES, checkpoint};
use super::*;
use crate::error::Refusal;
use crate::metrics::Metrics;
use crate::model::call::{Answer, Call, Caller, Environment};
use crate::model::records::AgentKey;
use crate::store::sql::uncounted;
use crate::store::tx::Tx;
use crate::store::uncounted::Uncounted;
use crate::store::{self, Authorization, Decider, Found, Owned, Signed, Store, UnsignedOutcome};

/// Answers everything.
struct Yes;

fn noon() -> Timestamp {
    Timestamp::parse("2026-06-15T12:00:00Z").unwrap()
}

impl Decider for Yes {
    fn now(&self) -> Timestamp {
        noon()
    }

    fn decide_unsigned(
        &self,
        _: &Authorization,
        _: Timestamp,
        _: &Found<'_>,
    ) -> Result<UnsignedOutcome, Fault> {
        let answer = Answer { status: 201, body: Vec::new(), secret: false, replayed: false, decided: None };
        Ok(UnsignedOutcome::Answered(Box::new(Signed::answered(answer))))
    }

    fn sign(&self, _: &Authorization, outcome: UnsignedOutcome, _: Timestamp) -> Result<Signed, Fault> {
        match outcome {
            UnsignedOutcome::Answered(signed) => Ok(*signed),
            UnsignedOutcome::Unsigned(_) => Err(Fault::new("nothing was decided")),
        }
    }
}

/// A store whose next commits succeed or fail with an error of SQLite, as a test decides.
struct World {
    store: Store,
    path: String,
    next: Arc<Mutex<VecDeque<c_int>>>,
    commits: Arc<Mutex<usize>>,
    _folder: TempDir,
}

impl World {
    fn new() -> Self {
        Self::checkpointing(checkpoint())
    }

    /// One whose log is checkpointed by `checkpoint`, beside the writer.
    fn checkpointing(checkpoint: Checkpoint) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db").display().to_string();
        let database = format!("sqlite://{path}");
        store::migrate(&database).unwrap();
        let (next, commits) = (Arc::<Mutex<VecDeque<c_int>>>::default(), Arc::<Mutex<usize>>::default());
        let (results, count) = (Arc::clone(&next), Arc::clone(&commits));
        let mut truly = commit();
        let commit: Commit = Box::new(move |connection| {
            *count.lock().unwrap() += 1;
            match results.lock().unwrap().pop_front() {
                None | Some(ffi::SQLITE_OK) => truly(connection),
                Some(code) => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
            }
        });
        let disk = Disk { commit, checkpoint };
        let owned = Owned::take(&database, Duration::ZERO).unwrap();
        let store =
            Store::open_with(owned, Arc::new(Yes), Metrics::new(), disk, Uncounted::default()).unwrap();
        Self { store, path, next, commits, _folder: folder }
    }

    fn fail_next(&self, code: c_int) {
        self.next.lock().unwrap().push_back(code);
    }

    /// Adds one to a number in the database.
    async fn add(&self) -> Result<(), String> {
        let sql = "UPDATE revisions SET revision = revision + 1 WHERE name = 'api_keys'";
        let added = self.store.write(move |tx| Ok(tx.execute_one(sql, &[])?)).await;
        added.map(|refused| refused.unwrap()).map_err(|fault| fault.to_string())
    }

    /// Writes about [`FILLED_PAGES`] pages in one transaction.
    async fn fill(&self) -> Result<(), String> {
        let sql = "INSERT INTO audit (at, action, subject, operator, details)
            VALUES (0, 'fill', 'fill', 'fill', hex(zeroblob(400000)))";
        let filled = self.store.write(move |tx| Ok(tx.execute_one(sql, &[])?)).await;
        filled.map(|refused| refused.unwrap()).map_err(|fault| fault.to_string())
    }

    /// The number.
    async fn number(&self) -> i64 {
        let sql = "SELECT revision FROM revisions WHERE name = 'api_keys'";
        self.store.read(move |tx| tx.row(sql, &[]).unwrap().unwrap().integer().unwrap()).await.unwrap()
    }

    async fn ask(&self) -> Result<Answer, String> {
        let policy_version = PolicyVersion::parse("pol_1").unwrap();
        let environment = Environment { id: 1, kind: EnvironmentKind::Sandbox, policy_version };
        let caller = Caller { key: 1, environment, agent: None, rate: 1, expires_at: None };
        let request_id = RequestId::from_bytes([1; 16]);
        let call = Call { caller: Arc::new(caller), request_id, at: noon(), idempotency: None };
        let request = Err(Refusal::invalid("it is answered all the same"));
        self.store.decide(Authorization::new(call, request)).await.map_err(|fault| fault.to_string())
    }

    fn log_bytes(&self) -> u64 {
        std::fs::metadata(format!("{}-wal", self.path)).unwrap().len()
    }
}

/// How many large transactions there are: what they write is much more than the log may have.
const FILLS: i64 = 80;
/// What one of them writes.
const FILLED_PAGES: u64 = 200;
/// A page in the log, with its header.
const PAGE_BYTES: u64 = 4096 + 24;

fn fails(code: c_int) -> Checkpoint {
    Box::new(move |_| Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)))
}

#[tokio::test]
async fn the_log_stays_short_however_it_is_checkpointed_beside_the_writer() {
    let checkpoints = Arc::<Mutex<usize>>::default();
    let (count, mut truly) = (Arc::clone(&checkpoints), checkpoint());
    let counted: Checkpoint = Box::new(move |connection| {
        *count.lock().unwrap() += 1;
        truly(connection)
    });
    // While a slow disk delays the checkpoint, the writer goes on.
    let long = u64::try_from(MOST_PAGES).unwrap();
    let truly_or_not: [(Checkpoint, u64); 3] =
        [(counted, 2 * long), (Box::new(|_| Ok(0)), long), (fails(ffi::SQLITE_BUSY), long)];
    for (checkpoint, most) in truly_or_not {
        let world = World::checkpointing(checkpoint);
        for _ in 0..FILLS {
            world.fill().await.unwrap();
        }
        let most = most + 2 * FILLED_PAGES;
        assert!(world.log_bytes() < most * PAGE_BYTES, "{}", world.log_bytes());
        assert!(!world.store.has_stopped());
        world.store.close();
        let alone = Connection::open(&world.path).unwrap();
        let sql = "SELECT count(*), (SELECT integrity_check FROM pragma_integrity_check) FROM audit";
        let found = alone.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
        assert_eq!(found, Ok((FILLS, "ok".to_owned())));
    }
    assert!(*checkpoints.lock().unwrap() > 0);
}

#[tokio::test]
async fn a_disk_that_fails_at_a_checkpoint_stops_the_store() {
    let world = World::checkpointing(fails(ffi::SQLITE_IOERR_FSYNC));
    world.add().await.unwrap();
    let before = world.number().await;
    let mut filled = 0;
    while !world.store.has_stopped() {
        filled += u32::from(world.fill().await.is_ok());
        assert!(filled < 1_000, "the disk never filled");
    }
    assert_eq!(world.add().await.unwrap_err(), stopped().to_string());
    assert_eq!(world.ask().await.unwrap_err(), stopped().to_string());
    assert_eq!(world.number().await, before, "what is there can be read");
    let log_bytes = world.log_bytes();
    world.store.close();
    assert!(log_bytes > 0 && world.log_bytes() == log_bytes, "the log is left as it was");
    let alone = Connection::open(&world.path).unwrap();
    let found: u32 = alone.query_row("SELECT count(*) FROM audit", [], |row| row.get(0)).unwrap();
    assert_eq!(found, filled, "what was acknowledged is there");
}

#[tokio::test]
async fn after_a_failed_fsync_nothing_is_acknowledged_and_all_can_be_read() {
    let io_errors = [ffi::SQLITE_IOERR, ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_WRITE];
    for code in io_errors {
        let world = World::new();
        world.add().await.unwrap();
        assert_eq!(world.ask().await.unwrap().status, 201);
        let before = world.number().await;
        world.fail_next(code);
        // Whichever comes first is in the batch that fails; the other is beside it, or after it.
        let (added, asked) = tokio::join!(world.add(), world.ask());
        let (added, asked) = (added.unwrap_err(), asked.unwrap_err());
        assert!([&added, &asked].iter().any(|why| why.starts_with("database: cannot commit: ")), "{added}");
        assert!(world.store.has_stopped());
        let commits = *world.commits.lock().unwrap();
        for _ in 0..2 {
            assert_eq!(world.add().await.unwrap_err(), stopped().to_string());
            assert_eq!(world.ask().await.unwrap_err(), stopped().to_string());
        }
        assert_eq!(*world.commits.lock().unwrap(), commits, "it is not even tried");
        assert_eq!(world.number().await, before);
        let log_bytes = world.log_bytes();
        world.store.close();
        assert!(log_bytes > 0 && world.log_bytes() == log_bytes, "the log is left as it was");
    }
}

#[tokio::test]
async fn after_a_full_disk_and_other_errors_the_writer_goes_on() {
    let world = World::new();
    for code in [ffi::SQLITE_FULL, ffi::SQLITE_BUSY] {
        let before = world.number().await;
        world.fail_next(code);
        assert!(world.add().await.unwrap_err().starts_with("database: cannot commit: "));
        assert!(!world.store.has_stopped());
        assert_eq!(world.number().await, before);
        world.add().await.unwrap();
        assert_eq!(world.number().await, before + 1);
    }
}

#[tokio::test]
async fn what_a_commit_that_failed_was_to_add_to_the_uncounted_is_gone() {
    let world = World::new();
    let key = AgentKey { environment: 1, agent: AgentId::parse("agt_a").unwrap() };
    let (agent, id) = (key.clone(), DecisionId::new(noon(), 1));
    world.fail_next(ffi::SQLITE_FULL);
    let uncounted = world.store.write(move |tx| Ok(uncounted::add(tx, &agent, id)?)).await;
    assert!(uncounted.is_err());
    let has = world.store.read(move |tx| tx.uncounted().unwrap().has(&key)).await.unwrap();
    assert!(!has);
}

#[tokio::test]
async fn a_script_that_fails_adds_nothing_to_the_uncounted() {
    let world = World::new();
    let key = AgentKey { environment: 1, agent: AgentId::parse("agt_a").unwrap() };
    let (agent, id) = (key.clone(), DecisionId::new(noon(), 1));
    let uncounted: Result<Result<(), Refusal>, Fault> = world
        .store
        .write(move |tx| {
            uncounted::add(tx, &agent, id)?;
            Err(Fault::new("it goes no further").into())
        })
        .await;
    assert!(uncounted.is_err());
    let has = world.store.read(move |tx| tx.uncounted().unwrap().has(&key)).await.unwrap();
    assert!(!has);
}

#[test]
fn repeated_failures_are_logged_at_intervals() {
    let mut committer = Committer::new(commit(), Arc::default());
    let start = Instant::now();
    let logged = [0, 1, LOG_SECONDS - 1, LOG_SECONDS, LOG_SECONDS + 1, 2 * LOG_SECONDS]
        .map(|seconds| committer.is_to_be_logged(start + Duration::from_secs(seconds)));
    assert_eq!(logged, [true, false, false, true, false, true]);
}

#[tokio::test]
async fn what_waits_for_a_transaction_that_cannot_begin_gets_the_reason() {
    let world = World::new();
    let other = Connection::open(&world.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (script, authorization) = tokio::join!(world.add(), world.ask());
    assert_eq!(script.unwrap_err(), "database: database is locked");
    assert_eq!(authorization.unwrap_err(), "database: database is locked");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!((world.add().await, world.number().await), (Ok(()), 1));
}

#[tokio::test]
async fn scripts_that_wait_share_one_commit() {
    let world = World::new();
    let ((begun, is_begun), (end, is_ended)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let store = world.store.clone();
    let first = tokio::spawn(async move {
        let holds_up = move |_: &mut Tx<'_>| {
            begun.send(()).unwrap();
            is_ended.recv().unwrap();
            Ok(())
        };
        store.write(holds_up).await
    });
    tokio::task::spawn_blocking(move || is_begun.recv().unwrap()).await.unwrap();
    let released = async {
        while world.store.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        end.send(()).unwrap();
    };
    let (one, other, ()) = tokio::join!(world.add(), world.add(), released);
    assert_eq!((one, other), (Ok(()), Ok(())));
    first.await.unwrap().unwrap().unwrap();
    assert_eq!(*world.commits.lock().unwrap(), 2, "that of the first, and that of both others");
    assert_eq!(world.number().await, 2);
}
