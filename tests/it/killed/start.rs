//! A first start that is killed behind one of its system calls that change a file: the next one makes it.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mandate_tests::campaign::{Numbers, scale, seed};

use super::{MASTER_KEY, SIGKILL};
use crate::harness::dying::{Dying, places, try_each};
use crate::harness::{DEADLINE, Ran, TestServer, binary};

/// How many first starts of `serve` are killed, below the scale for each call.
const STARTS: usize = 12;
/// How many first starts of `dev` are killed.
const DEMONSTRATIONS: u32 = 3;
/// A first start of `dev` makes more of these calls than this.
const DEMONSTRATION_CALLS: usize = 150;

/// Runs `serve` in a folder until the public logs have their first checkpoints, and stops it in order; unless it dies before.
fn serve(mut command: Command, folder: &Path) -> (bool, ExitStatus) {
    command.env("MANDATE_MASTER_KEY", MASTER_KEY).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap());
    let (mut line, mut is_ready) = (String::new(), false);
    while !is_ready && log.read_line(&mut line).unwrap() > 0 {
        let read = serde_json::from_str::<serde_json::Value>(&line);
        is_ready = read.is_ok_and(|read| read["message"] == "serving");
        line.clear();
    }
    let began = Instant::now();
    let has = |kind| fs::exists(folder.join("mandate.db-checkpoints").join(kind)).unwrap();
    while is_ready && !(has("sandbox") && has("production")) && server.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < DEADLINE, "there is no checkpoint");
        std::thread::sleep(Duration::from_millis(10));
    }
    // It may have died meanwhile.
    let stop = format!("kill -TERM {}", server.id());
    let _ = Command::new("sh").args(["-c", &stop]).output().unwrap();
    io::copy(&mut log, &mut io::sink()).unwrap();
    (is_ready, server.wait().unwrap())
}

#[test]
fn a_first_start_that_is_killed_anywhere_is_made_by_the_next() {
    let (dying, mut numbers) = (Dying::new(), Numbers::from_seed(seed("first start")));
    let any = "127.0.0.1:0";
    let mut args = vec!["serve", "--log-format", "json"];
    args.extend(["--api-address", any, "--public-address", any, "--ops-address", any]);
    let whole = tempfile::tempdir().unwrap();
    let (is_ready, ended) = serve(dying.command(&args, 0), whole.path());
    assert_eq!((is_ready, ended.code()), (true, Some(0)));
    let places = places(&dying.calls(), STARTS, &mut numbers);
    let (tried, killed) = (places.len(), AtomicUsize::new(0));
    try_each(places, |after| {
        let folder = tempfile::tempdir().unwrap();
        let (_, died) = serve(dying.command(&args, after), folder.path());
        let is_dead = died.signal() == Some(SIGKILL);
        assert!(is_dead || died.code() == Some(0), "call {after}: {died:?}");
        killed.fetch_add(usize::from(is_dead), Ordering::Relaxed);
        let mut next = Command::new(binary("mandate-server"));
        next.env_clear().args(&args);
        let (is_ready, ended) = serve(next, folder.path());
        assert!(is_ready && ended.code() == Some(0), "call {after}: {ended:?}");
        let mut check = Command::new(binary("mandate-server"));
        check.env_clear().env("MANDATE_MASTER_KEY", MASTER_KEY).current_dir(folder.path());
        let checked = Ran::from(check.args(["check", "--database", "sqlite://mandate.db"]).output().unwrap());
        assert_eq!(checked.code(0).out, "sound\n", "call {after}");
    });
    // Two starts need not make the very same calls: one that makes fewer ends by itself.
    let killed = killed.into_inner();
    println!("{killed} starts were killed");
    assert!(killed * 2 >= tried, "only {killed} of {tried} starts were killed");
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
