//! A check that cannot look: it says why, and finds nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Instant;

use mandate_tests::Kind;
use mandate_tests::cluster::{OpenTransaction, query, run};

use crate::harness::{DEADLINE, Ran, binary};

/// A user without rights.
const UNPRIVILEGED: u32 = 65_534;

/// An operator's command on a database.
fn operate(database: &str, args: &[&str]) -> Ran {
    let mut command = Command::new(binary("mandate-server"));
    command.env_clear().args(args).args(["--database", database]);
    Ran::from(command.output().unwrap())
}

/// There is no database; and no file may be longer than nothing.
#[test]
fn a_check_that_cannot_look_says_so_and_finds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("mandate.db");
    let database = format!("sqlite://{}", place.display());
    let missing = operate(&database, &["check"]).code(3);
    assert!(missing.out.is_empty() && missing.err.contains("there is no file"), "{missing:?}");
    operate(&database, &["migrate"]).code(0);

    let mut full = Command::new("/bin/sh");
    full.args(["-c", r#"trap '' XFSZ; ulimit -S -f 0; exec "$@""#, "sh"]).arg(binary("mandate-server"));
    let full = full.env_clear().args(["check", "--database", &database]).output().unwrap();
    let full = Ran::from(full).code(3);
    assert!(full.out.is_empty() && full.err.contains("could not be read to its end"), "{full:?}");

    assert_eq!(operate(&database, &["check"]).code(0).out, "sound\n");
}

/// Ends the statement that waits for a lock. Returns a row once there was one.
const CANCEL: &str = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// An error of PostgreSQL says nothing about what is stored, unless it is about damage.
#[test]
fn a_check_that_postgres_does_not_let_look_finds_nothing() {
    let database = Kind::Postgres.fresh();
    let (url, check) = (database.url(), || operate(database.url(), &["check"]));
    let empty = check().code(1);
    assert!(
        empty.out.starts_with("refinery_schema_history: found version 0; expected version "),
        "{empty:?}"
    );
    assert_eq!(empty.out.lines().count(), 1, "{empty:?}");
    operate(url, &["migrate"]).code(0);
    assert_eq!(check().code(0).out, "sound\n");

    let unseen = |ran: Ran, why: &str| {
        let ran = ran.code(3);
        assert!(ran.out.is_empty() && ran.err.contains("could not be read to its end"), "{ran:?}");
        assert!(ran.err.contains(why), "{ran:?}");
    };
    run(url, "REVOKE SELECT ON usage FROM mandate");
    unseen(check(), "permission denied for table usage (42501)");
    run(url, "GRANT SELECT ON usage TO mandate");

    let held = OpenTransaction::begin(url, "LOCK TABLE usage IN ACCESS EXCLUSIVE MODE");
    let canceled = std::thread::scope(|scope| {
        let checking = scope.spawn(check);
        let since = Instant::now();
        while query(url, CANCEL).is_empty() {
            assert!(since.elapsed() < DEADLINE, "the check waits for no lock");
        }
        checking.join().unwrap()
    });
    held.roll_back();
    unseen(canceled, "(57014)");

    run(url, "ALTER TABLE usage RENAME TO elsewhere");
    let lacking = check().code(1);
    assert!(lacking.out.contains("\"usage\" does not exist (42P01); expected pages"), "{lacking:?}");
}

/// SQLite writes beside a database to read it. The directory belongs to a user who may not write into it.
#[test]
fn a_check_in_a_directory_that_cannot_be_written_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, is_root) = (folder.path().join("data"), fs::metadata("/proc/self").unwrap().uid() == 0);
    fs::create_dir(&directory).unwrap();
    let database = format!("sqlite://{}", directory.join("mandate.db").display());
    operate(&database, &["migrate"]).code(0);
    let check = || {
        let mut command = Command::new(binary("mandate-server"));
        command.env_clear().args(["check", "--database", &database]);
        if is_root {
            // Nothing is forbidden to root.
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        Ran::from(command.output().unwrap())
    };
    let files = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().path());
    for path in files.chain([directory.clone()]).filter(|_| is_root) {
        chown(&path, Some(UNPRIVILEGED), None).unwrap();
    }
    for (path, mode) in [(folder.path(), 0o755), (directory.as_path(), 0o555)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let unseen = check();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
    let unseen = unseen.code(3);
    let named = format!("{} may not be written", directory.display());
    assert!(unseen.out.is_empty() && unseen.err.contains(&named), "{unseen:?}");
    assert_eq!(check().code(0).out, "sound\n");
}
