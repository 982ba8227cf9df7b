//! The nonce store under many processes, and under ones that are killed.

use std::io::{ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::Ran;
use crate::issuer::{PAYMENT, jwks_file, token, verify};

const PROCESSES: usize = 8;
const PATIENCE: Duration = Duration::from_mins(1);

fn claim(token: &str, jwks: &str, nonces: &Path) -> Command {
    let mut command = verify(token, jwks);
    command.args(PAYMENT).arg("--nonce-store").arg(nonces).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn numbered(n: usize) -> String {
    token(json!({ "nonce": format!("n_{n:026}") }))
}

#[test]
fn of_many_processes_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    // In the first round the file is made at the same time.
    for round in 0..5 {
        let token = numbered(round);
        let mut command = claim(&token, &jwks, &folder.path().join("nonces"));
        let racing: Vec<_> = (0..PROCESSES).map(|_| command.spawn().unwrap()).collect();
        let ran: Vec<Ran> =
            racing.into_iter().map(|child| child.wait_with_output().unwrap().into()).collect();
        let with = |code| ran.iter().filter(|r| r.code == Some(code)).count();
        assert_eq!((with(0), with(18)), (1, PROCESSES - 1), "{ran:#?}");
    }
}

/// A stream into which nothing more can be written until it is read, and its other end.
fn full() -> (UnixStream, UnixStream) {
    let (mut writer, reader) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    let blocked = loop {
        if let Err(e) = writer.write(b" ") {
            break e;
        }
    };
    assert_eq!(blocked.kind(), ErrorKind::WouldBlock);
    writer.set_nonblocking(false).unwrap();
    (writer, reader)
}

#[test]
fn a_claim_outlives_the_claimer_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let (jwks, nonces) = (jwks_file(folder.path()), folder.path().join("nonces"));
    let token = numbered(1);
    // It claims, and then hangs for ever, saying that the verdict is valid.
    let (writer, _reader) = full();
    let mut claimer = claim(&token, &jwks, &nonces).stdout(OwnedFd::from(writer)).spawn().unwrap();
    let kept = || -> rusqlite::Result<i64> {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let store = rusqlite::Connection::open_with_flags(&nonces, flags)?;
        store.query_row("SELECT count(*) FROM nonce", [], |row| row.get(0))
    };
    let start = Instant::now();
    while kept() != Ok(1) {
        assert!(start.elapsed() < PATIENCE, "{:?}", kept());
        std::thread::yield_now();
    }
    claimer.kill().unwrap();
    assert_eq!(claimer.wait().unwrap().signal(), Some(9));
    let again: Ran = claim(&token, &jwks, &nonces).output().unwrap().into();
    again.code(18);
}

#[test]
fn killed_at_any_moment_the_store_stays_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (jwks, nonces) = (jwks_file(folder.path()), folder.path().join("nonces"));
    for moment in 0..40 {
        let token = numbered(moment);
        let mut killed = claim(&token, &jwks, &nonces).stdout(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(250 * u64::try_from(moment).unwrap()) {
            std::thread::yield_now();
        }
        killed.kill().unwrap();
        let finished = killed.wait().unwrap().code();
        let first: Ran = claim(&token, &jwks, &nonces).output().unwrap().into();
        assert!(
            first.code == Some(18) || (first.code == Some(0) && finished.is_none()),
            "{finished:?} {first:?}"
        );
        let second: Ran = claim(&token, &jwks, &nonces).output().unwrap().into();
        second.code(18);
    }
}

#[test]
fn a_store_that_cannot_tell_accepts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = jwks_file(folder.path());
    let text = folder.path().join("text");
    std::fs::write(&text, "this is not a nonce store, and long enough to be seen as none at all").unwrap();
    for place in [folder.path(), &text, Path::new("/dev/null"), Path::new("/nowhere/nonces")] {
        let ran: Ran = claim(&numbered(1), &jwks, place).output().unwrap().into();
        let ran = ran.code(3).says("the nonce store cannot tell whether this is a replay");
        assert_eq!(ran.out, "");
    }
    // SQLite's own name for a database in memory is a file like any other.
    let memory = || -> Ran {
        claim(&numbered(2), &jwks, Path::new(":memory:")).current_dir(folder.path()).output().unwrap().into()
    };
    memory().code(0);
    memory().code(18);
}

#[test]
fn a_verdict_that_fails_another_check_uses_up_no_nonce() {
    let folder = tempfile::tempdir().unwrap();
    let (jwks, nonces) = (jwks_file(folder.path()), folder.path().join("nonces"));
    let run = |args: &[&str]| -> Ran {
        verify(&numbered(1), &jwks).args(args).arg("--nonce-store").arg(&nonces).output().unwrap().into()
    };
    run(&[&["--amount", "41"], &PAYMENT[2..]].concat()).code(17);
    // Nor does one of which a part was not compared: it may still be delivered.
    for missing in 0..3 {
        let mut some = PAYMENT.to_vec();
        some.drain(2 * missing..2 * missing + 2);
        let name = PAYMENT[2 * missing].trim_start_matches('-');
        run(&some).code(26).shows(&format!("NOT COMPARED: {name}, nonce;"));
    }
    run(&PAYMENT).code(0);
    run(&PAYMENT).code(18);
}
