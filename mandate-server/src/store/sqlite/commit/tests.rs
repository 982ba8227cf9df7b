//! What follows a COMMIT that has failed.

use std::collections::VecDeque;
use std::sync::Mutex;

use mandate_core::{EnvironmentKind, PolicyVersion, RequestId, Timestamp};
use tempfile::TempDir;

use super::*;
use crate::error::{Fault, Refusal};
use crate::metrics::Metrics;
use crate::service::{Answer, Call, Caller, Environment};
use crate::store::{self, Authorization, Decider, Loaded, Store};

/// Answers everything.
struct Yes;

fn noon() -> Timestamp {
    Timestamp::parse("2026-06-15T12:00:00Z").unwrap()
}

impl Decider for Yes {
    fn now(&self) -> Timestamp {
        noon()
    }

    fn decide(&self, batch: &[Authorization], _: Timestamp, _: &mut Loaded) -> Vec<Result<Answer, Fault>> {
        let answer =
            || Answer { status: 201, body: Vec::new(), secret: false, replayed: false, decided: None };
        batch.iter().map(|_| Ok(answer())).collect()
    }
}

/// A store whose next commits end as they are told to: well, or with an error of SQLite.
struct World {
    store: Store,
    path: String,
    next: Arc<Mutex<VecDeque<c_int>>>,
    commits: Arc<Mutex<usize>>,
    _folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.db").display().to_string();
        let database = format!("sqlite://{path}");
        store::migrate(&database).unwrap();
        let (next, commits) = (Arc::<Mutex<VecDeque<c_int>>>::default(), Arc::<Mutex<usize>>::default());
        let (told, count) = (Arc::clone(&next), Arc::clone(&commits));
        let mut truly = commit();
        let commit: Commit = Box::new(move |connection| {
            *count.lock().unwrap() += 1;
            match told.lock().unwrap().pop_front() {
                None | Some(ffi::SQLITE_OK) => truly(connection),
                Some(code) => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
            }
        });
        let store = Store::open_with(&database, Arc::new(Yes), Metrics::new(), commit).unwrap();
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
        let call = Call { caller: Arc::new(caller), request_id, at: noon(), idempotency: None, traced: None };
        let request = Err(Refusal::invalid("it is answered all the same"));
        self.store.decide(Authorization { call, request }).await.map_err(|fault| fault.to_string())
    }

    fn log_bytes(&self) -> u64 {
        std::fs::metadata(format!("{}-wal", self.path)).unwrap().len()
    }
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
            assert_eq!(world.add().await.unwrap_err(), STOPPED);
            assert_eq!(world.ask().await.unwrap_err(), STOPPED);
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

#[test]
fn failures_are_told_once_in_a_while() {
    let mut committer = Committer::new(commit(), Arc::default());
    let start = Instant::now();
    let told = [0, 1, TELL_SECONDS - 1, TELL_SECONDS, TELL_SECONDS + 1, 2 * TELL_SECONDS]
        .map(|seconds| committer.is_to_be_told(start + Duration::from_secs(seconds)));
    assert_eq!(told, [true, false, false, true, false, true]);
}
