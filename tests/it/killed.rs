//! A command that is killed behind one of its system calls that change a file, or send to PostgreSQL: the next one goes on.

mod log;
mod start;

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use mandate_tests::Kind;
use mandate_tests::campaign::{Numbers, seed};
use mandate_tests::cluster::query;

use crate::harness::dying::{Dying, places, try_each};
use crate::harness::{DEADLINE, Ran, binary};
use crate::transfer;

const SIGKILL: i32 = 9;
/// How often a command is killed, below the scale for each call.
const SOME: usize = 64;
/// How often a transfer is, which takes longer.
const TRANSFERS: usize = 16;
const MASTER_KEY: &str = "4242424242424242424242424242424242424242424242424242424242424242";

impl Dying {
    /// Runs a command to its end. Returns the places to kill it at.
    fn places(&self, args: &[&str], most: usize, numbers: &mut Numbers) -> Vec<usize> {
        Ran::from(self.command(args, 0).output().unwrap()).code(0);
        places(&self.calls(), most, numbers)
    }

    /// Runs a command that dies behind this call. It ends in order where it makes fewer calls than it did when it was watched.
    fn kill(&self, args: &[&str], after: usize) {
        let died = self.command(args, after).output().unwrap();
        let is_dead = died.status.signal() == Some(SIGKILL);
        assert!(is_dead || died.status.code() == Some(0), "call {after} of {args:?}: {died:?}");
    }
}

/// An operator's command on a database.
fn operate(database: &str, args: &[&str]) -> Ran {
    let mut command = Command::new(binary("mandate-server"));
    command.env_clear().args(args).args(["--database", database]);
    Ran::from(command.output().unwrap())
}

/// Has decisions made for an organization `acme`, and leaves nothing in the log of the server that made them. Returns its key.
fn decided(database: &str) -> String {
    let key = transfer::decided(database, "acme");
    operate(database, &["migrate"]).code(0);
    key
}

fn organizations(database: &str) -> Vec<String> {
    let listed = operate(database, &["organization", "list", "--json"]).code(0).json();
    let name = |one: &serde_json::Value| one["organization"].as_str().unwrap().to_owned();
    listed.as_array().unwrap().iter().map(name).collect()
}

/// The names of the files in a folder that an interrupted command left.
fn unfinished(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("unfinished")).collect()
}

#[test]
fn a_first_migration_that_is_killed_anywhere_is_made_by_the_next() {
    let (dying, mut numbers) = (Dying::new(), Numbers::from_seed(seed("first migration")));
    let fresh = || {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("sqlite://{}", folder.path().join("mandate.db").display());
        (folder, database)
    };
    let (_whole, database) = fresh();
    let places = dying.places(&["migrate", "--database", &database], SOME, &mut numbers);
    try_each(places, |after| {
        let (_folder, database) = fresh();
        dying.kill(&["migrate", "--database", &database], after);
        let mut check = Command::new(binary("mandate-server"));
        check.env_clear().env("MANDATE_MASTER_KEY", MASTER_KEY).args(["check", "--database", &database]);
        let looked = Ran::from(check.output().unwrap());
        assert!([0, 1, 3].map(Some).contains(&looked.code), "call {after}: {looked:?}");
        // That the schema is not there yet is all that it finds.
        let expected = |line: &str| line == "sound" || line.starts_with("refinery_schema_history: ");
        assert!(looked.out.lines().all(expected), "call {after}: {looked:?}");
        operate(&database, &["migrate"]).code(0);
        assert_eq!(operate(&database, &["check"]).code(0).out, "sound\n", "call {after}");
    });
}

#[test]
fn a_restore_that_is_killed_anywhere_leaves_the_old_database_or_the_new_one() {
    let (dying, mut numbers) = (Dying::new(), Numbers::from_seed(seed("restore")));
    let template = tempfile::tempdir().unwrap();
    let place = template.path().join("mandate.db");
    let database = format!("sqlite://{}", place.display());
    let backup = template.path().join("backup.db");
    let backup = backup.to_str().unwrap();
    operate(&database, &["migrate"]).code(0);
    let key = decided(&database);
    operate(&database, &["backup", "create", backup]).code(0);
    operate(&database, &["organization", "create", "old"]).code(0);
    let fresh = || {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("mandate.db");
        fs::copy(&place, &copy).unwrap();
        (folder, format!("sqlite://{}", copy.display()))
    };
    let restore = |database: &str| {
        ["backup", "restore", backup, "--force", "--database", database].map(ToOwned::to_owned)
    };
    let (_whole, whole) = fresh();
    let arguments = restore(&whole);
    let (old, new, last) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(None));
    let places = dying.places(&arguments.each_ref().map(String::as_str), SOME, &mut numbers);
    try_each(places, |after| {
        let (folder, database) = fresh();
        let arguments = restore(&database);
        let arguments = arguments.each_ref().map(String::as_str);
        dying.kill(&arguments, after);
        operate(&database, &["migrate"]).code(0);
        let which = if organizations(&database).len() == 1 { &new } else { &old };
        which.fetch_add(1, Ordering::Relaxed);
        assert_eq!(operate(&database, &["check"]).code(0).out, "sound\n", "call {after}");
        Ran::from(Command::new(binary("mandate-server")).env_clear().args(arguments).output().unwrap())
            .code(0);
        assert_eq!(organizations(&database), ["acme"], "call {after}");
        assert_eq!(unfinished(folder.path()), Vec::<String>::new(), "call {after}");
        *last.lock().unwrap() = Some((folder, database));
    });
    let (_folder, database) = last.into_inner().unwrap().unwrap();
    assert_eq!(transfer::holds(&database, &key), 4);
    let (old, new) = (old.into_inner(), new.into_inner());
    assert!(old > 0 && new > 0, "{old} old, {new} new");
}

/// Another session may still be at work on what the killed command sent last.
fn wait_for_sessions(database: &str) {
    const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let began = Instant::now();
    while query(database, OTHERS) != "0" {
        assert!(began.elapsed() < DEADLINE, "a session goes on");
    }
}

#[test]
fn a_transfer_that_is_killed_anywhere_goes_on() {
    let (dying, mut numbers) = (Dying::new(), Numbers::from_seed(seed("killed transfer")));
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("mandate.db");
    let from = format!("sqlite://{}", place.display());
    operate(&from, &["migrate"]).code(0);
    let key = decided(&from);
    let whole = Kind::Postgres.fresh();
    let places = dying.places(&["transfer", "--from", &from, "--to", whole.url()], TRANSFERS, &mut numbers);
    let (found, last) = (Mutex::new(Vec::new()), Mutex::new(whole));
    try_each(places, |after| {
        // Of several transfers at a time each has a source of its own.
        let (copy, target) = (tempfile::tempdir().unwrap(), Kind::Postgres.fresh());
        let source = copy.path().join("mandate.db");
        fs::copy(&place, &source).unwrap();
        let source = format!("sqlite://{}", source.display());
        let arguments = ["transfer", "--from", &source, "--to", target.url()];
        dying.kill(&arguments, after);
        wait_for_sessions(target.url());
        let left = Left::by(&operate(target.url(), &["organization", "list"]), after);
        if left != Left::All {
            let mut next = Command::new(binary("mandate-server"));
            Ran::from(next.env_clear().args(arguments).output().unwrap()).code(0);
        }
        assert_eq!(organizations(target.url()), ["acme"], "call {after}");
        assert_eq!(operate(target.url(), &["check"]).code(0).out, "sound\n", "call {after}");
        found.lock().unwrap().push((after, left));
        *last.lock().unwrap() = target;
    });
    assert_eq!(transfer::holds(last.into_inner().unwrap().url(), &key), 4);
    let mut found = found.into_inner().unwrap();
    found.sort_unstable();
    assert!(found.is_sorted_by_key(|(_, left)| left), "{found:?}");
    let count = |of| found.iter().filter(|(_, left)| *left == of).count();
    let (refused, ended) = (count(Left::Some), count(Left::All));
    assert!(refused > 0 && ended > 0, "{refused} refused with the command that goes on, {ended} had ended");
}

/// What a killed transfer has left, in the order of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    /// No table.
    Nothing,
    /// Some. Nothing but the transfer works on it, and the refusal names the command.
    Some,
    All,
}

impl Left {
    /// By what another command says.
    fn by(looked: &Ran, after: usize) -> Self {
        if looked.code == Some(0) {
            return Self::All;
        }
        let left = if looked.err.contains("has schema 0") { Self::Nothing } else { Self::Some };
        let names_command = looked.err.contains("run `mandate-server transfer` again");
        assert!(left == Self::Nothing || names_command, "call {after}: {looked:?}");
        left
    }
}

#[test]
fn what_a_killed_backup_leaves_is_deleted_by_the_next() {
    let (dying, mut numbers) = (Dying::new(), Numbers::from_seed(seed("backup")));
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}", folder.path().join("mandate.db").display());
    operate(&database, &["migrate"]).code(0);
    let key = decided(&database);
    let name = |number: usize| folder.path().join(format!("{number}.db")).to_str().unwrap().to_owned();
    let places = dying.places(&["backup", "create", &name(0), "--database", &database], SOME, &mut numbers);
    let (mut left, mut orphans) = (0, 0);
    for after in places {
        let file = name(after);
        dying.kill(&["backup", "create", &file, "--database", &database], after);
        left += unfinished(folder.path()).len();
        let (is_made, has_manifest) =
            (Path::new(&file).exists(), Path::new(&format!("{file}.manifest.json")).exists());
        orphans += usize::from(has_manifest && !is_made);
        let again = operate(&database, &["backup", "create", &file]);
        if is_made {
            assert!(again.code == Some(1) && again.err.contains("name another file"), "{again:?}");
            let next = operate(&database, &["backup", "create", &name(after + 10_000)]).code(0);
            assert_eq!(unfinished(folder.path()), Vec::<String>::new(), "{next:?}");
        } else {
            assert_eq!(again.code, Some(0), "call {after}: {again:?}");
            assert_eq!(unfinished(folder.path()), Vec::<String>::new(), "{again:?}");
        }
        let verified =
            Command::new(binary("mandate-server")).env_clear().args(["backup", "verify", &file]).output();
        let verified = Ran::from(verified.unwrap()).code(0);
        assert!(!verified.err.contains("warning"), "it has its manifest: {verified:?}");
        assert_eq!(operate(&database, &["check"]).code(0).out, "sound\n");
    }
    assert_eq!(transfer::holds(&database, &key), 4);
    assert!(orphans > 0, "no kill left a manifest without its backup");
    assert!(left > 0, "no kill left anything");
}
