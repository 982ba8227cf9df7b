//! Transactions on a real cluster: how they end, what they wait for, and how values are stored.

mod bounds;
mod filling;
mod hosts;
mod secure;
mod standby;

use std::cell::Cell;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use mandate_core::{DecisionId, Timestamp};
use mandate_tests::cluster::{OpenTransaction, query};
use mandate_tests::{Database, Kind};

use super::super::tx::{Tx, Value};
use super::address::Address;
use super::connection::{Parameter, Step};
use super::connection_worker::{ConnectionWorker, LEAVE};
use super::session::PostgresSession;
use super::{maintenance, upkeep};
use crate::error::Fault;
use crate::model::call::ScriptError;

const BUMP: [&str; 2] = [
    "UPDATE revisions SET revision = revision + 1 WHERE name = 'api_keys'",
    "UPDATE revisions SET revision = revision + 1 WHERE name = 'signing_keys'",
];
const REVISIONS: &str = "SELECT sum(revision)::bigint FROM revisions";
const WAITING: &str = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE NOT l.granted AND a.datname = current_database()";

/// A database with the newest schema, made at noon of 15 June 2026.
fn fresh() -> Database {
    fresh_at("2026-06-15T12:00:00Z")
}

/// The same, made at another time.
fn fresh_at(at: &str) -> Database {
    let database = Kind::Postgres.fresh();
    let at = Timestamp::parse(at).unwrap();
    upkeep::migrate(database.url(), &|_| at).unwrap();
    database
}

fn worker(url: &str) -> ConnectionWorker {
    ConnectionWorker::new(Address::parse(url).unwrap()).unwrap()
}

fn number(worker: &mut ConnectionWorker, sql: &'static str) -> i64 {
    worker.read(&|tx: &mut Tx<'_>| tx.row(sql, &[]).unwrap().unwrap().integer().unwrap()).unwrap()
}

/// Waits until a transaction waits for a lock.
fn until_one_waits(worker: &mut ConnectionWorker) {
    while number(worker, WAITING) == 0 {
        thread::yield_now();
    }
}

/// Writes the row that records a commit.
fn leave(session: &mut PostgresSession<'_>, number: [u8; 16]) -> Result<(), Fault> {
    session.send(vec![Step::Run(LEAVE, vec![Parameter::from(Value::from(number))])]).map(|_| ())
}

#[test]
fn values_are_what_they_were_whether_or_not_statements_are_prepared() {
    const SAID: &str = "SELECT $1::bigint, $2::text, $3::bytea, $4::text, $5::bigint";
    let database = fresh();
    let joined = if database.url().contains('?') { '&' } else { '?' };
    for url in [database.url().to_owned(), format!("{}{joined}statement_cache=off", database.url())] {
        let said = [7.into(), "é'\\".into(), vec![0, 255].into(), Value::Null, Value::Null];
        for _ in 0..2 {
            let given = said.clone();
            let mut row =
                worker(&url).read(&move |tx: &mut Tx<'_>| tx.row(SAID, &given)).unwrap().unwrap().unwrap();
            for value in &said {
                assert!(row.value().unwrap() == *value, "{value:?}");
            }
        }
    }
}

#[test]
fn a_value_of_another_type_than_the_column_is_a_fault() {
    let database = fresh();
    let wrong = |tx: &mut Tx<'_>| {
        tx.execute("INSERT INTO revisions (name, revision) VALUES ($1, $2)", &[1.into(), 2.into()])
    };
    let ended = worker(database.url()).write(&|tx: &mut Tx<'_>| Ok(wrong(tx)?));
    assert!(ended.is_err());
}

#[test]
fn what_is_read_is_read_again_where_the_connection_is_lost_beneath_it_and_not_for_ever() {
    const SUICIDE: &str = "SELECT count(*) FROM (SELECT pg_terminate_backend(pg_backend_pid())) AS ended";
    const COUNT: &str = "SELECT count(*) FROM revisions";
    let database = fresh();
    let mut worker = worker(database.url());
    for (losses, found, readings) in [(0, true, 1), (1, true, 2), (2, true, 3), (3, false, 3), (9, false, 3)]
    {
        let run = Cell::new(0);
        let read = worker.read(&|tx: &mut Tx<'_>| {
            run.set(run.get() + 1);
            if run.get() <= losses {
                tx.row(SUICIDE, &[])?;
            }
            tx.row(COUNT, &[])?.unwrap().integer()
        });
        assert_eq!((read.unwrap().is_ok(), run.get()), (found, readings), "{losses} losses");
    }
    // What was passed on cannot be taken back: an operator's reading is not repeated.
    let mut looks = 0;
    let lost = worker.look(|tx| {
        looks += 1;
        tx.row(SUICIDE, &[]).map(|_| ())
    });
    assert!(lost.unwrap().is_err() && looks == 1, "{looks} looks");
}

#[test]
fn the_outcome_of_a_transaction_is_known_by_the_row_it_left() {
    let database = fresh();
    let (mut works, mut asks) = (worker(database.url()), worker(database.url()));
    let (committed, absent) = ([1; 16], [2; 16]);
    works.transact(&mut |session| leave(session, committed)).unwrap();
    assert!(asks.has_committed(committed).unwrap());
    for _ in 0..2 {
        assert!(!asks.has_committed(absent).unwrap(), "asking twice changes nothing");
    }
    // A late COMMIT, from a connection that counted as lost, fails.
    let late = works.transact(&mut |session| {
        session.send(vec![Step::Run(BUMP[0], Vec::new())])?;
        leave(session, absent)
    });
    assert!(late.is_err());
    assert_eq!(number(&mut works, REVISIONS), 0);
}

#[test]
fn the_records_of_commits_lie_in_a_ring_of_days_and_the_one_that_is_over_is_emptied_as_a_whole() {
    const ALL: &str = "SELECT count(*) FROM commits";
    let database = fresh();
    let (mut works, mut asks) = (worker(database.url()), worker(database.url()));
    let day = works.read(&|tx: &mut Tx<'_>| maintenance::day(tx).unwrap()).unwrap();
    let at = |place: u64| {
        let count = format!("SELECT count(*) FROM commits_{place} WHERE get_byte(commit, 0) = {place}");
        query(database.url(), &count)
    };
    let before = number(&mut works, ALL);
    works.write(&|tx: &mut Tx<'_>| Ok(tx.execute(BUMP[0], &[])?)).unwrap().0.unwrap();
    assert_eq!(number(&mut works, ALL), before + 1);
    assert_ne!(at(day % 4), "0", "a transaction leaves its number at the place of its day");
    assert_eq!(at((day + 2) % 4), "0");
    let over = |worker: &mut ConnectionWorker| {
        worker.read(&move |tx: &mut Tx<'_>| maintenance::has_commits(tx, day).unwrap()).unwrap()
    };
    assert!(!over(&mut works));

    let numbers = [0_u8, 1, 2, 3].map(|place| [place; 16]);
    for number in numbers {
        works.transact(&mut |session| leave(session, number)).unwrap();
    }
    assert!(over(&mut works));
    let others = [day, day + 1, day + 3].map(|day| at(day % 4));
    works.write(&move |tx: &mut Tx<'_>| Ok(maintenance::empty_commits(tx, day)?)).unwrap().0.unwrap();
    assert!(!over(&mut works) && at((day + 2) % 4) == "0");
    assert_eq!([day + 1, day + 3].map(|day| at(day % 4)), others[1..]);
    assert!(others.iter().all(|count| count != "0"));
    for number in numbers {
        let is_over = u64::from(number[0]) == (day + 2) % 4;
        assert_eq!(asks.has_committed(number).unwrap(), !is_over, "{number:?}");
    }
}

#[test]
fn a_transaction_under_way_is_waited_for() {
    let database = fresh();
    let url = database.url();
    for commits in [true, false] {
        let left = [u8::from(commits); 16];
        let (mut works, mut looks) = (worker(url), worker(url));
        let committed = thread::scope(|scope| {
            let mut asking = None;
            let ended = works.transact(&mut |session| {
                leave(session, left)?;
                asking = Some(scope.spawn(move || worker(url).has_committed(left).unwrap()));
                until_one_waits(&mut looks);
                if commits { Ok(()) } else { Err(Fault::new("taken back")) }
            });
            assert_eq!(ended.is_ok(), commits);
            asking.unwrap().join().unwrap()
        });
        assert_eq!(committed, commits);
    }
}

#[test]
fn of_two_that_wait_for_each_other_one_is_run_again() {
    let database = fresh();
    let both = Barrier::new(2);
    let attempts: Vec<u32> = thread::scope(|scope| {
        let running = [[BUMP[0], BUMP[1]], [BUMP[1], BUMP[0]]].map(|[first, second]| {
            let (url, both) = (database.url(), &both);
            scope.spawn(move || {
                let mut attempts = 0;
                let run = &mut |session: &mut PostgresSession<'_>| {
                    attempts += 1;
                    session.wrote = true;
                    session.send(vec![Step::Run(first, Vec::new())])?;
                    if attempts == 1 {
                        both.wait();
                    }
                    session.send(vec![Step::Run(second, Vec::new())]).map(|_| ())
                };
                worker(url).transact(run).unwrap();
                attempts
            })
        });
        running.map(|thread| thread.join().unwrap()).into()
    });
    // The transaction that was rolled back may run again before the other.
    assert!(attempts.iter().sum::<u32>() >= 3, "{attempts:?}");
    assert_eq!(number(&mut worker(database.url()), REVISIONS), 4, "each has its effect once");
}

#[test]
fn what_comes_too_late_is_not_committed() {
    let database = fresh();
    let mut worker = worker(database.url());
    let bump = |tx: &mut Tx<'_>| Ok(tx.execute(BUMP[0], &[])?);
    let trying = std::mem::replace(&mut worker.trying, Duration::ZERO);
    let late = worker.write(&bump).err().unwrap().to_string();
    assert!(late.contains("took too long"), "{late}");
    assert_eq!(number(&mut worker, REVISIONS), 0);
    worker.trying = trying;
    worker.write(&bump).unwrap().0.unwrap();
    assert_eq!(number(&mut worker, REVISIONS), 1);
}

#[test]
fn a_fault_a_refusal_and_a_panic_leave_what_they_should() {
    let database = fresh();
    let mut worker = worker(database.url());
    let fault = worker.write(&|tx: &mut Tx<'_>| {
        tx.execute(BUMP[0], &[])?;
        Err::<(), _>(ScriptError::Fault(Fault::new("on purpose")))
    });
    assert_eq!(fault.err().unwrap().to_string(), "on purpose");
    let panicked = worker.write(&|tx: &mut Tx<'_>| -> Result<(), ScriptError> {
        tx.execute(BUMP[0], &[])?;
        panic!("on purpose")
    });
    assert!(panicked.is_err());
    assert_eq!(number(&mut worker, REVISIONS), 0);
    let refused = worker.write(&|tx: &mut Tx<'_>| {
        tx.execute(BUMP[0], &[])?;
        Err::<(), _>(ScriptError::Refused(crate::error::Refusal::not_found()))
    });
    assert!(refused.unwrap().0.is_err());
    assert_eq!(number(&mut worker, REVISIONS), 1);
}

#[test]
fn what_is_read_after_a_lock_is_what_was_committed_before_it() {
    const HOLD: &str = "SELECT 1 FROM revisions WHERE name = 'api_keys' FOR NO KEY UPDATE";
    const COUNT: &str = "SELECT count(*) FROM issuers";
    let database = fresh();
    let url = database.url();
    let (mut first, mut looks) = (worker(url), worker(url));
    let found = thread::scope(|scope| {
        let mut reading = None;
        let run = &mut |session: &mut PostgresSession<'_>| {
            let mut tx = Tx::new(session);
            tx.hold(HOLD, &[])?;
            tx.execute("INSERT INTO issuers (url) VALUES ('x')", &[])?;
            let read = |tx: &mut Tx<'_>| {
                tx.hold(HOLD, &[])?;
                Ok(tx.row(COUNT, &[])?.unwrap().integer()?)
            };
            reading = Some(scope.spawn(move || worker(url).write(&read).unwrap().0.unwrap()));
            until_one_waits(&mut looks);
            Ok(())
        };
        first.transact(run).unwrap();
        reading.unwrap().join().unwrap()
    });
    assert_eq!(found, 1);
}

const PARTITIONS: &str = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'events'::regclass";

/// Makes the partitions that a server makes at this time.
fn make_partitions(worker: &mut ConnectionWorker, now: Timestamp) {
    for (table, month) in maintenance::partitions(now).unwrap() {
        let made = worker.write(&|tx: &mut Tx<'_>| Ok(maintenance::make_partition(tx, table, &month)?));
        made.unwrap().0.unwrap();
    }
}

#[test]
fn partitions_are_made_a_year_ahead_and_a_row_without_one_is_refused_in_words() {
    const INSERT: &str = "INSERT INTO events (environment, event, type, created_at, data, checksum) VALUES (1, $1, 'ping', 0, '{}', 0)";
    let database = fresh_at("2026-11-21T12:00:00Z");
    let mut worker = worker(database.url());
    let insert = |worker: &mut ConnectionWorker, at: &str| {
        let id = DecisionId::new(Timestamp::parse(at).unwrap(), 1).to_bytes();
        let written = worker.write(&|tx: &mut Tx<'_>| Ok(tx.execute_one(INSERT, &[id.into()])?));
        written.map(|(ended, _)| ended.unwrap())
    };
    let until = |worker: &mut ConnectionWorker, now: &str| {
        let now = Timestamp::parse(now).unwrap();
        worker.read(&move |tx: &mut Tx<'_>| maintenance::end(tx, now).unwrap()).unwrap().to_string()
    };
    assert_eq!(number(&mut worker, PARTITIONS), 14, "October's, November's, and a year");
    assert_eq!(until(&mut worker, "2026-11-21T12:00:00Z"), "2027-12-01T00:00:00.000Z");
    for inside in ["2026-10-01T00:00:00Z", "2026-11-30T23:59:59.999Z", "2027-11-30T23:59:59.999Z"] {
        insert(&mut worker, inside).unwrap();
    }
    for outside in ["2026-09-30T23:59:59.999Z", "2027-12-01T00:00:00Z"] {
        let fault = insert(&mut worker, outside).unwrap_err();
        let (kind, refused) = (fault.kind(), fault.to_string());
        assert_eq!(kind, "setup", "{refused}");
        assert!(
            refused.contains("events has no partition for this time: run `mandate-server migrate`"),
            "{refused}"
        );
    }
    let later = Timestamp::parse("2027-12-01T00:00:00Z").unwrap();
    assert_eq!(until(&mut worker, "2027-12-01T00:00:00Z"), "2027-12-01T00:00:00.000Z");
    // A partition that is wider than a month is left as it is.
    let wide = [later.plus_seconds(40 * 86_400), later.plus_seconds(60 * 86_400)];
    let [first, behind] = wide.map(|at| {
        DecisionId::new(at, 0).to_bytes().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    });
    let wide = format!(
        r"CREATE TABLE events_wide PARTITION OF events FOR VALUES FROM ('\x{first}') TO ('\x{behind}')"
    );
    mandate_tests::cluster::run(database.url(), &wide);
    for _ in 0..2 {
        make_partitions(&mut worker, later);
        assert_eq!(number(&mut worker, PARTITIONS), 14 + 12 + 1, "but for January, and the wide one");
    }
    insert(&mut worker, "2027-12-01T00:00:00Z").unwrap();
    assert_eq!(until(&mut worker, "2027-12-01T00:00:00Z"), "2028-01-01T00:00:00.000Z");
}

#[test]
fn a_migration_analyzes_every_table() {
    // Since PostgreSQL 14 a table that never was has -1 rows. Partitions have none yet.
    const NEVER: &str =
        "SELECT string_agg(relname, ', ') FROM pg_class WHERE relnamespace = 'public'::regnamespace
        AND relkind = 'r' AND NOT relispartition AND reltuples < 0";
    assert_eq!(mandate_tests::cluster::query(fresh_at("2026-11-21T12:00:00Z").url(), NEVER), "");
}

#[test]
fn those_who_make_a_partition_at_once_make_it_once() {
    const SERVERS: usize = 6;
    let (database, together) = (fresh_at("2026-11-21T12:00:00Z"), Barrier::new(SERVERS));
    thread::scope(|scope| {
        for _ in 0..SERVERS {
            scope.spawn(|| {
                let mut worker = worker(database.url());
                for year in 2027..2030 {
                    together.wait();
                    make_partitions(
                        &mut worker,
                        Timestamp::parse(&format!("{year}-11-21T12:00:00Z")).unwrap(),
                    );
                }
            });
        }
    });
    let made = number(&mut worker(database.url()), PARTITIONS);
    assert_eq!(made, 14 + 3 * 12, "those of the beginning, and twelve a year");
}

#[test]
fn those_who_migrate_at_once_migrate_once() {
    const MIGRATING: usize = 4;
    let database = Kind::Postgres.fresh();
    let url = Arc::new(database.url().to_owned());
    // All have seen the old schema before one of them can change it.
    let held = OpenTransaction::begin(&url, upkeep::HOLD.strip_prefix("BEGIN; ").unwrap());
    let running: Vec<_> = (0..MIGRATING)
        .map(|_| {
            thread::spawn({
                let url = Arc::clone(&url);
                move || upkeep::migrate(&url, &|shown| shown)
            })
        })
        .collect();
    let mut looking = worker(&url);
    while number(&mut looking, WAITING) < i64::try_from(MIGRATING).unwrap() {
        thread::yield_now();
    }
    held.commit();
    let before = running.into_iter().map(|thread| thread.join().unwrap().unwrap());
    let changed = before.filter(|before| !before.missing.is_empty()).count();
    assert_eq!(changed, 1, "one process changed the schema");
    let schema = upkeep::schema(&url).unwrap();
    assert_eq!((schema.current, schema.missing.len()), (schema.newest, 0));
}
