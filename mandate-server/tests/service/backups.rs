//! Backups beside a server under load, and what a full disk does.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mandate_server::admin::backup;
use mandate_server::store::{self, Authorization, Holder, upkeep};
use mandate_tests::wait::{DEADLINE, until_async};

use crate::check::found;
use crate::oracle;
use crate::world::{World, json};

const BACKUPS: usize = 4;

/// All ids in the log of a file, in their order.
fn log(path: &Path) -> Vec<String> {
    let connection = rusqlite::Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY);
    let connection = connection.unwrap();
    let mut statement = connection.prepare("SELECT decision FROM decisions ORDER BY decision").unwrap();
    let ids = statement.query_map([], |row| row.get::<_, [u8; 16]>(0)).unwrap();
    ids.map(|id| mandate_core::DecisionId::from_bytes(id.unwrap()).to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_sound_and_holds_all_that_was_acknowledged_before() {
    let world = Arc::new(World::new().await);
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let folder = tempfile::tempdir().unwrap();
    let acknowledged = Arc::new(std::sync::Mutex::new(Vec::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..8)
        .map(|_| {
            let (world, agent) = (Arc::clone(&world), Arc::clone(&agent));
            let (acknowledged, stop) = (Arc::clone(&acknowledged), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let answer = world.ask(&agent, "1").await;
                    acknowledged.lock().unwrap().push(answer["decision"].as_str().unwrap().to_owned());
                }
            })
        })
        .collect();
    let mut backups = Vec::new();
    for number in 0..BACKUPS {
        // Under load: more has been acknowledged since the last one.
        let wanted = acknowledged.lock().unwrap().len() + 50;
        let are_there = async || (acknowledged.lock().unwrap().len() >= wanted).then_some(());
        until_async(DEADLINE, "more is acknowledged", are_there).await;
        let before = acknowledged.lock().unwrap().clone();
        let (database, to) = (world.database.clone(), folder.path().join(format!("{number}.db")));
        let path = to.clone();
        let manifest =
            tokio::task::spawn_blocking(move || backup::create(&database, &to)).await.unwrap().unwrap();
        backups.push((path, before, manifest));
    }
    stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
    world.store.close();
    let all = log(Path::new(world.database.strip_prefix("sqlite://").unwrap()));
    assert_eq!(all.len(), acknowledged.lock().unwrap().len());
    for (path, before, manifest) in backups {
        assert_eq!(found(&format!("sqlite://{}", path.display())), Vec::<String>::new());
        let kept = log(&path);
        assert_eq!(kept, all[..kept.len()], "a prefix of the log");
        assert!(before.iter().all(|id| kept.contains(id)), "what was acknowledged before is in it");
        assert_eq!(manifest.rows["decisions"], i64::try_from(kept.len()).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(&std::fs::read(&path).unwrap()[18..20], [1, 1], "one file, without a log beside it");
        assert_eq!(oracle::holds(&format!("sqlite://{}", path.display())), kept.len());
    }
}

#[tokio::test]
async fn a_backup_that_is_there_is_never_overwritten_and_one_that_fails_leaves_nothing() {
    let world = World::new().await;
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("b.db");
    let absent = backup::create("sqlite:///nowhere/at/all.db", &to).unwrap_err().to_string();
    assert_eq!(absent, "database: there is no file /nowhere/at/all.db");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    backup::create(&world.database, &to).unwrap();
    let refused = backup::create(&world.database, &to).unwrap_err().to_string();
    assert!(refused.ends_with("exists; name another file"), "{refused}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "the backup and its manifest");
}

#[tokio::test]
async fn a_damaged_database_is_not_backed_up() {
    let world = World::new().await;
    world.store.close();
    let path = world.database.strip_prefix("sqlite://").unwrap();
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.pragma_update(None, "foreign_keys", "OFF").unwrap();
    connection.execute("DELETE FROM environments", []).unwrap();
    drop(connection);
    let folder = tempfile::tempdir().unwrap();
    let refused = backup::create(&world.database, &folder.path().join("b.db")).unwrap_err().to_string();
    assert!(refused.contains("is not sound: a row refers to environments in api_keys"), "{refused}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn an_open_database_cannot_be_replaced() {
    let world = World::new().await;
    let refused = upkeep::claim(&world.database, Holder::Alone).unwrap_err().to_string();
    assert!(refused.ends_with("is in use by another process: wait until that has ended"), "{refused}");
    let database = world.database.clone();
    world.store.close();
    drop(world.store);
    let held = upkeep::claim(&database, Holder::Alone).unwrap();
    let refused = store::run_once(&database, |_| Ok(())).unwrap_err().to_string();
    assert!(refused.contains(" is taken by process ") && refused.contains(" on host "), "{refused}");
    drop(held);
    store::run_once(&database, |_| Ok(())).unwrap().unwrap();
}

#[tokio::test]
async fn an_older_database_is_refused_by_the_names_of_its_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.db");
    let database = format!("sqlite://{}", path.display());
    store::migrate(&database).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let history = "DELETE FROM refinery_schema_history; INSERT INTO refinery_schema_history
        VALUES (1, 'the_beginning', '', '1'), (2, 'escrows', '', '2'), (3, 'schema', '', '3')";
    connection.execute_batch(history).unwrap();
    let found = upkeep::schema(&database).unwrap().found();
    assert_eq!(found, "version 1 (the beginning) of another schema, where this program's is named schema");
    let to = tempfile::tempdir().unwrap();
    let refusals = [
        store::migrate(&database).map(|_| ()),
        store::run_once(&database, |_| Ok(())).map(|_| ()),
        backup::create(&database, &to.path().join("b.db")).map(|_| ()),
    ];
    for refused in refusals.map(|refused| refused.unwrap_err().to_string()) {
        let words = "m.db has another schema than this program: its schema change 1 is named the beginning, where this \
                     program's is named schema, and this program cannot upgrade it. ";
        assert!(refused.contains(words), "{refused}");
    }
    connection.execute("DELETE FROM refinery_schema_history", []).unwrap();
    let empty = backup::create(&database, &to.path().join("b.db")).unwrap_err().to_string();
    assert!(empty.ends_with("/m.db is not a database of this program"), "{empty}");
}

#[tokio::test]
async fn a_schema_that_is_not_the_newest_is_refused_in_so_many_words() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.db");
    let database = format!("sqlite://{}", path.display());
    let fresh = upkeep::schema(&database).unwrap();
    assert_eq!((fresh.current, fresh.missing.last().map(|step| step.version)), (0, Some(fresh.newest)));
    assert!(!path.exists(), "to look changes nothing");
    store::migrate(&database).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let schema = upkeep::schema(&database).unwrap();
    assert_eq!((schema.current, schema.missing.len()), (fresh.newest, 0));

    let connection = rusqlite::Connection::open(&path).unwrap();
    let change = |sql| connection.execute(sql, []).unwrap();
    let refusals = || {
        let migrated = store::migrate(&database).unwrap_err().to_string();
        let used = store::run_once(&database, |_| Ok(())).unwrap_err().to_string();
        assert_eq!(migrated, used);
        assert!(migrated.contains("m.db has another schema than this program: "), "{migrated}");
        assert!(migrated.contains("Nothing is released before 0.1.0"), "{migrated}");
        assert!(
            migrated.contains("Make a new database: name one that is empty or does not exist"),
            "{migrated}"
        );
        migrated
    };
    change("INSERT INTO refinery_schema_history VALUES (99, 'of_tomorrow', '', '')");
    let newer = refusals();
    assert!(newer.contains("it has the schema change 99 (of tomorrow), and this program has "), "{newer}");
    assert_eq!(upkeep::schema(&database).unwrap().found(), "version 99 (of tomorrow)");
    // The same number and name, and another text.
    change("DELETE FROM refinery_schema_history WHERE version = 99");
    change("UPDATE refinery_schema_history SET checksum = '7'");
    let other = refusals();
    assert!(
        other.contains("its schema change 1 (schema) has the checksum 7, where this program's has "),
        "{other}"
    );
    let found = upkeep::schema(&database).unwrap().found();
    assert!(found.starts_with("version 1 (schema) of another schema, with the checksum 7 where "), "{found}");
    change("DELETE FROM refinery_schema_history");
    let none = store::run_once(&database, |_| Ok(())).unwrap_err().to_string();
    assert!(
        none.ends_with("has schema 0, and this program needs 1: run `mandate-server migrate` first"),
        "{none}"
    );

    let junk = folder.path().join("junk.db");
    std::fs::write(&junk, [7; 4096]).unwrap();
    let refused = store::migrate(&format!("sqlite://{}", junk.display())).unwrap_err().to_string();
    assert!(refused.ends_with(&format!("file is not a database: {}", junk.display())), "{refused}");
}

/// The pages that the file may have: fewer than it will ask for, and then more.
const FULL: &str = "PRAGMA max_page_count = 60";
const ROOM: &str = "PRAGMA max_page_count = 1000000";

#[tokio::test]
async fn on_a_full_disk_nothing_is_acknowledged_and_with_room_again_all_goes_on() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let limit = |pragma: &'static str| {
        world.store.write(move |tx| tx.query(pragma, &[]).map(|_| ()).map_err(Into::into))
    };
    let ask = || world.store.decide(Authorization::new(world.call(&agent), Ok(World::request(&agent, "1"))));
    limit(FULL).await.unwrap().unwrap();
    let mut acknowledged = Vec::new();
    let full = loop {
        match ask().await {
            Ok(answer) => acknowledged.push(json(&answer)["decision"].as_str().unwrap().to_owned()),
            Err(fault) => break fault.to_string(),
        }
    };
    assert!(full.contains("database or disk is full"), "{full}");
    for _ in 0..3 {
        assert!(ask().await.is_err(), "it stays so while the disk is full");
    }
    let last = serde_json::Value::from(acknowledged.last().unwrap().as_str());
    assert_eq!(world.decision(&agent, &last).await["jti"], last, "what is there can be read");
    limit(ROOM).await.unwrap().unwrap();
    acknowledged.push(json(&ask().await.unwrap())["decision"].as_str().unwrap().to_owned());
    world.store.close();
    let path = Path::new(world.database.strip_prefix("sqlite://").unwrap());
    assert_eq!(log(path), acknowledged, "what was acknowledged, and no more");
    assert_eq!(oracle::holds(&world.database), acknowledged.len());
}

#[tokio::test]
async fn a_clock_set_back_opens_no_limit_and_what_it_leaves_is_sound() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 100, "").await;
    assert_eq!(world.ask(&agent, "90").await["verdict"], "allow");
    world.clock.advance(-4);
    assert_eq!(world.ask(&agent, "20").await["verdict"], "deny_limit");
    for _ in 0..8 {
        world.ask(&agent, "1").await;
    }
    assert_eq!(
        world.ask(&agent, "1").await["verdict"],
        "deny_velocity",
        "an instant a few seconds ahead counts"
    );
    world.clock.advance(40 * 86_400);
    assert_eq!(world.ask(&agent, "90").await["verdict"], "allow", "another month");
    world.store.close();
    assert_eq!(oracle::holds(&world.database), 12);
}
