//! Accepted nonces, in a file that any number of processes share.
//!
//! The file is one SQLite table, keyed by issuer and nonce. A claim is one transaction that begins with the
//! write lock (`BEGIN IMMEDIATE`). So of any number of processes exactly one finds the nonce fresh, and the
//! claim is on disk before the result is shown. A process that dies after its claim leaves a used nonce; one
//! that dies before leaves none.
//!
//! The journal is SQLite's rollback journal, not a write-ahead log: a process makes one small transaction and
//! ends, for which a log would need two more files and a checkpoint each time. Under `synchronous=EXTRA` the
//! removal of the journal, which is the commit, is on disk as well. Under `FULL` a power cut could bring the
//! journal back, and undo the claim.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mandate_core::Timestamp;
use mandate_core::replay::{Claimed, NonceStore};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use crate::exit::{Exit, Failure};

/// Marks the file as a nonce store (SQLite's `application_id`): `MNDn`.
const APPLICATION_ID: i32 = 0x4d4e_446e;
/// How long a claim waits for the claims of other processes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How much longer than necessary a nonce is kept, in seconds, so that a clock that is set back lets no
/// replay pass.
const GRACE_SECONDS: i64 = 24 * 60 * 60;

const SCHEMA: &str = "
    CREATE TABLE nonce (
        issuer TEXT NOT NULL,
        nonce TEXT NOT NULL,
        keep_until INTEGER NOT NULL, -- milliseconds since the Unix epoch
        PRIMARY KEY (issuer, nonce)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX nonce_by_keep_until ON nonce (keep_until);";

/// A nonce store in a file.
#[derive(Debug)]
pub(crate) struct FileNonces {
    connection: Connection,
    clock: Timestamp,
}

/// Claims that are written to disk together, at [`NonceBatch::commit`]. No answer may be given before.
#[derive(Debug)]
pub(crate) struct NonceBatch<'a> {
    transaction: Transaction<'a>,
    clock: Timestamp,
}

/// Why the store cannot be used. Nothing may be accepted then.
#[derive(Debug)]
pub(crate) enum NonceFileError {
    /// The path names something else.
    NotAStore(PathBuf),
    /// The file cannot be used.
    Unusable(PathBuf, std::io::Error),
    /// SQLite failed.
    Sqlite(rusqlite::Error),
}

impl FileNonces {
    /// Opens the store, or creates it. `clock` is the machine's time, by which nonces are deleted, even if
    /// tokens are verified as of another time.
    pub(crate) fn open(path: &Path, clock: Timestamp) -> Result<Self, NonceFileError> {
        // An absolute path is never one of SQLite's special names, such as `:memory:`.
        let path = std::path::absolute(path).map_err(|e| NonceFileError::Unusable(path.to_owned(), e))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags)?;
        let metadata = std::fs::metadata(&path).map_err(|e| NonceFileError::Unusable(path.clone(), e))?;
        if !metadata.is_file() {
            // A device accepts every write and keeps nothing.
            return Err(NonceFileError::NotAStore(path));
        }
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "synchronous", "EXTRA")?;
        let store = Self { connection, clock };
        if store.application_id()? == APPLICATION_ID || store.create()? {
            Ok(store)
        } else {
            Err(NonceFileError::NotAStore(path))
        }
    }

    /// Creates the table if the file is still empty. Returns whether the file is a store then.
    fn create(&self) -> rusqlite::Result<bool> {
        let transaction = self.begin()?;
        // Another process may have been faster.
        let id = self.application_id()?;
        let objects: i64 = transaction.query_row(
            "/* nonce_store.objects */ SELECT count(*) FROM sqlite_schema",
            [],
            |row| row.get(0),
        )?;
        if id == 0 && objects == 0 {
            transaction.execute_batch(SCHEMA)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.commit()?;
            return Ok(true);
        }
        Ok(id == APPLICATION_ID)
    }

    /// Begins claims that are committed together.
    pub(crate) fn batch(&self) -> Result<NonceBatch<'_>, NonceFileError> {
        let transaction = self.begin()?;
        transaction
            .prepare_cached("/* nonce_store.forget */ DELETE FROM nonce WHERE keep_until < ?1")?
            .execute([self.clock.millis()])?;
        Ok(NonceBatch { transaction, clock: self.clock })
    }

    fn application_id(&self) -> rusqlite::Result<i32> {
        self.connection.pragma_query_value(None, "application_id", |row| row.get(0))
    }

    fn begin(&self) -> rusqlite::Result<Transaction<'_>> {
        Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)
    }
}

impl NonceStore for FileNonces {
    type Error = NonceFileError;

    fn claim(
        &self,
        issuer: &str,
        nonce: &str,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Claimed, NonceFileError> {
        let batch = self.batch()?;
        let claimed = batch.claim(issuer, nonce, until, now)?;
        batch.commit()?;
        Ok(claimed)
    }
}

impl NonceBatch<'_> {
    /// Writes the claims to disk.
    pub(crate) fn commit(self) -> Result<(), NonceFileError> {
        Ok(self.transaction.commit()?)
    }
}

impl NonceStore for NonceBatch<'_> {
    type Error = NonceFileError;

    fn claim(
        &self,
        issuer: &str,
        nonce: &str,
        until: Timestamp,
        _now: Timestamp,
    ) -> Result<Claimed, NonceFileError> {
        let keep_until = until.max(self.clock).plus_seconds(GRACE_SECONDS);
        let mut insert = self.transaction.prepare_cached(
            "/* nonce_store.claim */ INSERT INTO nonce (issuer, nonce, keep_until) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
        )?;
        let added = insert.execute((issuer, nonce, keep_until.millis()))?;
        Ok(if added == 1 { Claimed::Fresh } else { Claimed::Replayed })
    }
}

impl From<rusqlite::Error> for NonceFileError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sqlite(e)
    }
}

impl From<NonceFileError> for Failure {
    fn from(e: NonceFileError) -> Self {
        Self::new(Exit::Io, format!("the nonce store cannot tell whether this is a replay: {e}"))
    }
}

impl std::error::Error for NonceFileError {}

impl std::fmt::Display for NonceFileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAStore(path) => write!(f, "{} is there and not a nonce store", path.display()),
            Self::Unusable(path, e) => write!(f, "{}: {e}", path.display()),
            Self::Sqlite(e) => e.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = GRACE_SECONDS;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn claim(path: &Path, clock: i64, issuer: &str, nonce: &str, until: i64) -> Claimed {
        let store = FileNonces::open(path, at(clock)).unwrap();
        store.claim(issuer, nonce, at(until), at(0)).unwrap()
    }

    #[test]
    fn one_nonce_of_one_issuer_is_fresh_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nonces");
        for (issuer, nonce, claimed) in [
            ("a", "1", Claimed::Fresh),
            ("a", "1", Claimed::Replayed),
            ("b", "1", Claimed::Fresh),
            ("a", "2", Claimed::Fresh),
            ("b", "1", Claimed::Replayed),
        ] {
            assert_eq!(claim(&path, 0, issuer, nonce, 10), claimed, "{issuer} {nonce}");
        }
    }

    #[test]
    fn a_nonce_is_forgotten_a_day_after_it_could_have_been_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nonces");
        assert_eq!(claim(&path, 1000, "a", "1", 1300), Claimed::Fresh);
        assert_eq!(claim(&path, 1300 + DAY, "a", "1", 1300), Claimed::Replayed);
        assert_eq!(claim(&path, 1301 + DAY, "b", "1", 9000), Claimed::Fresh);
        let store = FileNonces::open(&path, at(0)).unwrap();
        let kept: i64 =
            store.connection.query_row("SELECT count(*) FROM nonce", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, 1);
    }

    #[test]
    fn verifying_for_the_past_is_remembered_by_the_clock_of_today() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nonces");
        let today = 50 * DAY;
        assert_eq!(claim(&path, today, "a", "old", 300), Claimed::Fresh);
        assert_eq!(claim(&path, today + 1, "a", "new", today + 300), Claimed::Fresh);
        assert_eq!(claim(&path, today + 2, "a", "old", 300), Claimed::Replayed);
    }

    #[test]
    fn what_is_no_store_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path| FileNonces::open(path, at(0)).map(|_| ()).map_err(|e| e.to_string());

        let other = folder.path().join("other.db");
        Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
        let before = std::fs::read(&other).unwrap();
        assert!(open(&other).unwrap_err().ends_with("is there and not a nonce store"));
        assert_eq!(std::fs::read(&other).unwrap(), before);

        let text = folder.path().join("text");
        std::fs::write(&text, "not a database, but long enough to be looked at as one").unwrap();
        assert!(open(&text).unwrap_err().contains("not a database"));

        assert!(open(folder.path()).is_err());
        assert!(open(Path::new("")).is_err());
        if cfg!(unix) {
            assert!(open(Path::new("/dev/null")).is_err());
        }
    }
}
