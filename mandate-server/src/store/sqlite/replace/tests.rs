//! Whatever step a crash follows, the next to claim the database finds the old one or the new one, whole.

use rusqlite::Connection;

use super::super::upkeep::claim;
use super::*;
use crate::store::Holder;

const TIME: &str = "2026-11-21T16:04:39.330Z";
/// Set aside the database, its log and its index, sync, name the new one, sync.
const STEPS: usize = 6;

/// A folder with a database whose last row is only in its log, as after a kill, and with a new one that waits.
struct Scene {
    _folder: tempfile::TempDir,
    path: String,
}

impl Scene {
    fn new(pending: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mandate.db").to_str().unwrap().to_owned();
        let live = folder.path().join("live.db");
        let connection = Connection::open(&live).unwrap();
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x);
                INSERT INTO t VALUES ('old')",
            )
            .unwrap();
        for suffix in BESIDE {
            fs::copy(format!("{}{suffix}", live.display()), format!("{path}{suffix}")).unwrap();
        }
        drop(connection);
        fs::remove_file(live).unwrap();
        if pending {
            let fresh = Connection::open(pending_name(&path, TIME)).unwrap();
            fresh.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES ('new')").unwrap();
        }
        Self { _folder: folder, path }
    }

    fn aside(&self) -> String {
        format!("{}{ASIDE}{TIME}", self.path)
    }
}

/// What is in the database at `path`, which must be there and sound.
fn content(path: &str) -> String {
    assert!(Path::new(path).exists(), "{path} is not there");
    let connection = Connection::open(path).unwrap();
    let sound: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    connection.query_row("SELECT group_concat(x) FROM t", [], |row| row.get(0)).unwrap()
}

#[test]
fn before_the_new_file_has_its_name_the_old_database_is_the_one() {
    let scene = Scene::new(false);
    drop(claim(&scene.path, Holder::Server).unwrap());
    assert_eq!(content(&scene.path), "old");
}

#[test]
fn after_each_step_the_next_claim_finds_the_new_one_and_the_old_one_is_whole_beside_it() {
    for crash in 0..=STEPS {
        for holder in [Holder::Server, Holder::Alone] {
            let scene = Scene::new(true);
            let mut steps = 0;
            let ended = finish_by(&scene.path, &mut |step| {
                if steps == crash {
                    return Err(io::Error::other("crash"));
                }
                steps += 1;
                take(step)
            });
            assert_eq!((ended.is_ok(), steps), (crash == STEPS, crash), "{STEPS} steps and no more");
            drop(claim(&scene.path, holder).unwrap());
            assert_eq!(content(&scene.path), "new", "after {crash} steps");
            assert_eq!(content(&scene.aside()), "old", "after {crash} steps, its log included");
            assert!(!is_pending(&scene.path).unwrap());
        }
    }
}

#[test]
fn names_that_reach_the_disk_in_any_order_before_they_are_synced_lose_nothing() {
    for renamed in 0..1 << BESIDE.len() {
        let scene = Scene::new(true);
        for (bit, suffix) in BESIDE.iter().enumerate().filter(|(bit, _)| renamed & (1 << bit) != 0) {
            let aside = format!("{}{suffix}", scene.aside());
            fs::rename(format!("{}{suffix}", scene.path), aside).unwrap_or_else(|e| panic!("{bit}: {e}"));
        }
        drop(claim(&scene.path, Holder::Server).unwrap());
        assert_eq!((content(&scene.path), content(&scene.aside())), ("new".to_owned(), "old".to_owned()));
    }
}

#[test]
fn what_was_set_aside_before_is_never_overwritten() {
    let scene = Scene::new(true);
    fs::write(scene.aside(), "another").unwrap();
    let refused = claim(&scene.path, Holder::Alone).unwrap_err().to_string();
    assert!(refused.ends_with("is there already"), "{refused}");
    assert_eq!(
        (content(&scene.path).as_str(), fs::read(scene.aside()).unwrap().as_slice()),
        ("old", &b"another"[..])
    );
}

#[test]
fn a_database_that_is_being_replaced_cannot_be_read() {
    let scene = Scene::new(true);
    let refused = super::super::upkeep::schema(&scene.path).unwrap_err().to_string();
    assert!(refused.contains("a restore of it was interrupted"), "{refused}");
    fs::remove_file(&scene.path).unwrap();
    assert_eq!(super::super::upkeep::schema(&scene.path).unwrap_err().to_string(), refused);
}

#[test]
fn of_two_files_that_wait_none_is_taken() {
    let scene = Scene::new(true);
    fs::write(pending_name(&scene.path, "2026-11-22T00:00:00.000Z"), "").unwrap();
    let refused = claim(&scene.path, Holder::Server).unwrap_err().to_string();
    assert!(refused.contains("two files wait to take its place"), "{refused}");
    fs::remove_file(pending_name(&scene.path, "2026-11-22T00:00:00.000Z")).unwrap();
    drop(claim(&scene.path, Holder::Server).unwrap());
    assert_eq!(content(&scene.path), "new");
}
