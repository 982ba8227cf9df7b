//! A command that is killed behind one of its system calls that change a file, or send to PostgreSQL: the next one goes on.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use mandate_tests::Kind;
use mandate_tests::campaign::{Numbers, scale, seed};
use mandate_tests::cluster::{OpenTransaction, query, run};
use tempfile::TempDir;

use crate::harness::{DEADLINE, Ran, TestServer, binary, library};
use crate::transfer;

/// A library that kills its process behind a system call that changes a file or sends to a socket.
const DYING: &str = include_str!("disk/dying.c");
const SIGKILL: i32 = 9;
/// A user without rights.
const UNPRIVILEGED: u32 = 65_534;
/// From this scale on, commands are killed behind each of these calls; below it, within long runs of writes, behind some.
const EACH: u32 = 10;
/// How many first starts of `serve` are killed, below that scale.
const STARTS: usize = 8;
/// How many transfers are killed, below that scale, the last of them behind one of the last calls.
const TRANSFERS: usize = 16;
const LAST_CALLS: usize = 4;
/// How many first starts of `dev` are killed.
const DEMONSTRATIONS: u32 = 3;
/// A first start of `dev` makes more of these calls than this.
const DEMONSTRATION_CALLS: usize = 150;
const MASTER_KEY: &str = "4242424242424242424242424242424242424242424242424242424242424242";

/// Runs commands that die.
struct Dying {
    folder: TempDir,
    library: PathBuf,
}

impl Dying {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = library(folder.path(), DYING);
        Self { folder, library }
    }

    fn command(&self, args: &[&str], after: usize) -> Command {
        let mut command = Command::new("/usr/bin/env");
        command.env_clear().arg(format!("LD_PRELOAD={}", self.library.display()));
        command.arg(format!("DYING_AFTER={after}"));
        command.arg(format!("DYING_LOG={}", self.log().display()));
        command.arg(binary("mandate-server")).args(args);
        command
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("calls")
    }

    /// Runs a command to its end. Returns the places to kill it at.
    fn places(&self, args: &[&str], numbers: &mut Numbers) -> Vec<usize> {
        let _ = fs::remove_file(self.log());
        Ran::from(self.command(args, 0).output().unwrap()).code(0);
        chosen(&fs::read(self.log()).unwrap(), numbers)
    }

    /// Runs a command that dies behind this call. It ends in order where it makes fewer calls than it did when it was watched.
    fn kill(&self, args: &[&str], after: usize) {
        let died = self.command(args, after).output().unwrap();
        let is_dead = died.status.signal() == Some(SIGKILL);
        assert!(is_dead || died.status.code() == Some(0), "call {after} of {args:?}: {died:?}");
    }
}

/// The places to kill a command at that makes these calls: those that differ, and some within long runs of writes.
fn chosen(calls: &[u8], numbers: &mut Numbers) -> Vec<usize> {
    assert!(calls.len() > 10, "only {} calls change anything", calls.len());
    let within = |at: usize| {
        let around = at.checked_sub(1).and_then(|before| calls.get(before..at + 2));
        around.is_some_and(|around| around == b"www" || around == b"nnn")
    };
    let all = 0..calls.len();
    all.filter(|&at| scale() >= EACH || !within(at) || numbers.below(8) == 0).map(|at| at + 1).collect()
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
    for after in dying.places(&["migrate", "--database", &database], &mut numbers) {
        let (_folder, database) = fresh();
        dying.kill(&["migrate", "--database", &database], after);
        let looked = operate(&database, &["check"]);
        assert!([0, 1, 3].map(Some).contains(&looked.code), "call {after}: {looked:?}");
        operate(&database, &["migrate"]).code(0);
        assert_eq!(operate(&database, &["check"]).code(0).out, "sound\n", "call {after}");
    }
}

/// Runs `serve` in a folder until it serves, does what is to be done then, and stops it in order; unless it dies before.
fn serve(mut command: Command, folder: &Path, when_ready: impl FnOnce()) -> ExitStatus {
    command.env("MANDATE_MASTER_KEY", MASTER_KEY).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap());
    let mut line = String::new();
    while log.read_line(&mut line).unwrap() > 0 {
        let read = serde_json::from_str::<serde_json::Value>(&line);
        if read.is_ok_and(|read| read["message"] == "serving") {
            when_ready();
            let stop = format!("kill -TERM {}", server.id());
            // It may have died meanwhile.
            let _ = Command::new("sh").args(["-c", &stop]).output().unwrap();
            break;
        }
        line.clear();
    }
    io::copy(&mut log, &mut io::sink()).unwrap();
    server.wait().unwrap()
}

#[test]
fn a_first_start_that_is_killed_anywhere_is_made_by_the_next() {
    let (dying, mut numbers) = (Dying::new(), Numbers::from_seed(seed("first start")));
    let any = "127.0.0.1:0";
    let mut args = vec!["serve", "--log-format", "json"];
    args.extend(["--api-address", any, "--public-address", any, "--ops-address", any]);
    let (whole, mut calls) = (tempfile::tempdir().unwrap(), Vec::new());
    let ended = serve(dying.command(&args, 0), whole.path(), || calls = fs::read(dying.log()).unwrap());
    assert_eq!(ended.code(), Some(0));
    let mut places = chosen(&calls, &mut numbers);
    while scale() < EACH && places.len() > STARTS {
        places.swap_remove(numbers.below(places.len()));
    }
    let mut killed = 0;
    for after in places {
        let folder = tempfile::tempdir().unwrap();
        let died = serve(dying.command(&args, after), folder.path(), || {});
        assert!(died.signal() == Some(SIGKILL) || died.code() == Some(0), "call {after}: {died:?}");
        killed += usize::from(died.signal() == Some(SIGKILL));
        let mut next = Command::new(binary("mandate-server"));
        next.env_clear().args(&args);
        let mut is_ready = false;
        let ended = serve(next, folder.path(), || is_ready = true);
        assert!(is_ready && ended.code() == Some(0), "call {after}: {ended:?}");
        let database = format!("sqlite://{}", folder.path().join("mandate.db").display());
        assert_eq!(operate(&database, &["check"]).code(0).out, "sound\n", "call {after}");
    }
    // Two starts need not make the very same calls.
    assert!(killed >= STARTS - 1, "only {killed} starts were killed");
}

#[test]
fn a_first_demonstration_that_is_killed_anywhere_is_made_by_the_next() {
    let (dying, mut numbers) = (Dying::new(), Numbers::from_seed(seed("first demonstration")));
    for _ in 0..DEMONSTRATIONS * scale() {
        let (data, after) = (tempfile::tempdir().unwrap(), 1 + numbers.below(DEMONSTRATION_CALLS));
        let args = ["dev", "--json", "--port", "0", "--data", data.path().to_str().unwrap()];
        let mut command = dying.command(&args, after);
        let mut start = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while start.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < DEADLINE, "no call {after}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(start.wait().unwrap().signal(), Some(SIGKILL), "call {after}");
        let server = TestServer::start_in(data.path());
        assert_eq!(server.demo().client.get("/agents").status, 200, "call {after}");
        assert_eq!(server.operate(&["check"]).code(0).out, "sound\n", "call {after}");
    }
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
    let (mut old, mut new, mut last) = (0, 0, None);
    for after in dying.places(&arguments.each_ref().map(String::as_str), &mut numbers) {
        let (folder, database) = fresh();
        let arguments = restore(&database);
        let arguments = arguments.each_ref().map(String::as_str);
        dying.kill(&arguments, after);
        operate(&database, &["migrate"]).code(0);
        match organizations(&database).len() {
            1 => new += 1,
            _ => old += 1,
        }
        assert_eq!(operate(&database, &["check"]).code(0).out, "sound\n", "call {after}");
        Ran::from(Command::new(binary("mandate-server")).env_clear().args(arguments).output().unwrap())
            .code(0);
        assert_eq!(organizations(&database), ["acme"], "call {after}");
        assert_eq!(unfinished(folder.path()), Vec::<String>::new(), "call {after}");
        last = Some((folder, database));
    }
    let (_folder, database) = last.unwrap();
    assert_eq!(transfer::holds(&database, &key), 4);
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
    let from = format!("sqlite://{}", folder.path().join("mandate.db").display());
    operate(&from, &["migrate"]).code(0);
    let key = decided(&from);
    let mut last = Kind::Postgres.fresh();
    let (mut refused, mut ended) = (0, 0);
    // In the order of the calls.
    let mut places = dying.places(&["transfer", "--from", &from, "--to", last.url()], &mut numbers);
    while scale() < EACH && places.len() > TRANSFERS {
        places.remove(numbers.below(places.len() - LAST_CALLS));
    }
    for after in places {
        let target = Kind::Postgres.fresh();
        let arguments = ["transfer", "--from", &from, "--to", target.url()];
        dying.kill(&arguments, after);
        wait_for_sessions(target.url());
        let looked = operate(target.url(), &["organization", "list"]);
        if looked.code == Some(0) {
            ended += 1;
        } else {
            // Before the transfer has left anything, there is no table.
            let names_command = looked.err.contains("run `mandate-server transfer` again");
            let is_empty = refused == 0 && looked.err.contains("has schema 0");
            assert!(names_command || is_empty, "call {after}: {looked:?}");
            refused += usize::from(names_command);
            let mut next = Command::new(binary("mandate-server"));
            Ran::from(next.env_clear().args(arguments).output().unwrap()).code(0);
        }
        assert_eq!(organizations(target.url()), ["acme"], "call {after}");
        assert_eq!(operate(target.url(), &["check"]).code(0).out, "sound\n", "call {after}");
        last = target;
    }
    assert_eq!(transfer::holds(last.url(), &key), 4);
    assert!(refused > 0 && ended > 0, "{refused} refused with the command that goes on, {ended} had ended");
}

#[test]
fn what_a_killed_backup_leaves_is_deleted_by_the_next() {
    let (dying, mut numbers) = (Dying::new(), Numbers::from_seed(seed("backup")));
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}", folder.path().join("mandate.db").display());
    operate(&database, &["migrate"]).code(0);
    let key = decided(&database);
    let name = |number: usize| folder.path().join(format!("{number}.db")).to_str().unwrap().to_owned();
    let places = dying.places(&["backup", "create", &name(0), "--database", &database], &mut numbers);
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
