//! `mandate log witness`: it cosigns what continues, and nothing else.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use super::*;
use mandate_core::log::{AddCheckpoint, NoteSignature, VerifierKey, prove_consistency};

/// A witness that runs until it is dropped.
struct Running {
    child: Child,
    address: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct World {
    folder: tempfile::TempDir,
    key: VerifierKey,
    log: TestLog,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("witness.key");
        let made =
            ran(log(folder.path(), &["key", "create", "w.example/w1", "-o", path.to_str().unwrap()])).code(0);
        let key = VerifierKey::parse(made.out.trim_end()).unwrap();
        ran(log(folder.path(), &["key", "create", "w.example/w1", "-o", path.to_str().unwrap()])).code(3);
        let mut test = TestLog::new("verdicts.example/log/sandbox");
        test.strangers(5);
        Self { folder, key, log: test }
    }

    fn command(&self) -> Command {
        let at = |name: &str| self.folder.path().join(name).to_str().unwrap().to_owned();
        let (key, state, log_key) = (at("witness.key"), at("state"), self.log.verifier());
        let args =
            ["witness", "--key", &key, "--state", &state, "--log-key", &log_key, "--listen", "127.0.0.1:0"];
        log(self.folder.path(), &args)
    }

    fn run(&self) -> Running {
        let mut child = self.command().stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.split_once("http://").unwrap().1.split_once(';').unwrap().0.to_owned();
        // Its other lines are read, so that it never waits.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Running { child, address }
    }

    fn ask(&self, old: u64) -> String {
        let consistency = prove_consistency(old, self.log.size(), &self.log.leaves()).unwrap();
        AddCheckpoint { old, consistency, checkpoint: self.log.checkpoint() }.to_string()
    }

    /// Whether an answer is the witness's cosignature of the log's checkpoint.
    fn is_cosigned(&self, body: &str) -> bool {
        let mut signed = self.log.checkpoint();
        NoteSignature::parse_lines(body.as_bytes()).unwrap().into_iter().for_each(|line| signed.add(line));
        signed.cosignature(&self.key).unwrap().is_some()
    }
}

impl Running {
    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    /// The status, the type and the body of the answer.
    fn post_to(&self, path: &str, body: &str) -> (u16, String, String) {
        let length = body.len();
        let answer =
            self.send(&format!("POST {path} HTTP/1.1\r\nhost: w\r\ncontent-length: {length}\r\n\r\n{body}"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let content_type =
            head.lines().find_map(|line| line.strip_prefix("content-type: ")).unwrap_or_default();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), content_type.to_owned(), body.to_owned())
    }

    fn post(&self, body: &str) -> (u16, String) {
        let (status, _, body) = self.post_to("/add-checkpoint", body);
        (status, body)
    }
}

#[test]
fn it_cosigns_what_continues_and_never_forgets() {
    let mut world = World::new();
    let witness = world.run();
    let (status, line) = witness.post(&world.ask(0));
    assert_eq!(status, 200, "{line}");
    assert!(world.is_cosigned(&line));
    // Asked again from the beginning it says where it is; asked from there it cosigns again.
    let first = world.ask(0);
    let conflict = witness.post_to("/add-checkpoint", &first);
    assert_eq!(conflict, (409, "text/x.tlog.size".to_owned(), "5\n".to_owned()));
    assert_eq!(witness.post(&world.ask(5)).0, 200);
    world.log.strangers(300);
    let (status, line) = witness.post(&world.ask(5));
    assert!(status == 200 && world.is_cosigned(&line), "{line}");
    // It remembers over a restart.
    drop(witness);
    let witness = world.run();
    assert_eq!(witness.post(&first).0, 409);
    let mut fork = world.log.clone();
    fork.entries[2] = strange(9_999).to_bytes();
    fork.strangers(1);
    let honest = std::mem::replace(&mut world.log, fork);
    assert_eq!(witness.post(&world.ask(305)).0, 422);
    assert_eq!(witness.post(&world.ask(0)).0, 409);
    world.log = honest;
    world.log.strangers(1);
    assert_eq!(witness.post(&world.ask(305)).0, 200);
}

#[test]
fn malformed_foreign_and_wrong_requests_are_refused_by_their_status() {
    let world = World::new();
    let witness = world.run();
    let good = world.ask(0);
    let mut foreign = World::new();
    foreign.log = TestLog::new("other.example/log");
    foreign.log.strangers(1);
    for (body, status, check) in [
        (String::new(), 400, "old"),
        (good.replace("old 0", "old 00"), 400, "old"),
        (good.replace("old 0\n", "old 0\nAAAA\n"), 400, "proof_hash"),
        (good.replace("old 0", "old 6"), 400, "shrunk"),
        (good.replace("old 0", "old 3"), 409, ""),
        (good.replace("\n5\n", "\n6\n"), 403, "signature"),
        (foreign.ask(0), 404, "unknown_log"),
    ] {
        let (found, said) = witness.post(&body);
        assert_eq!(found, status, "{said}");
        assert!(said.starts_with(check), "{said}");
    }
    assert_eq!(witness.post_to("/other", &good).0, 404);
    assert!(witness.send("GET /add-checkpoint HTTP/1.1\r\nhost: w\r\n\r\n").starts_with("HTTP/1.1 405"));
    let long = "POST /add-checkpoint HTTP/1.1\r\nhost: w\r\ncontent-length: 139265\r\n\r\n";
    assert!(witness.send(long).starts_with("HTTP/1.1 413"));
    // Nothing of that was kept, and strangers' signatures are not either.
    let crowd: Vec<_> = (0..63).map(|number| format!("\u{2014} s{number}.example AAAAAQI=\n")).collect();
    assert_eq!(witness.post(&format!("{good}{}", crowd.concat())).0, 200);
    assert_eq!(witness.post(&world.ask(5)).0, 200);
}

#[test]
fn requests_at_once_never_get_two_cosignatures_of_one_size() {
    let world = World::new();
    let witness = world.run();
    let mut fork =
        World { folder: tempfile::tempdir().unwrap(), key: world.key.clone(), log: world.log.clone() };
    fork.log.entries[2] = strange(9_999).to_bytes();
    let bodies = [world.ask(0), fork.ask(0)];
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8)
            .map(|n| (&bodies[n % 2], &witness))
            .map(|(body, w)| scope.spawn(|| w.post(body).0))
            .collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 409)), "{statuses:?}");
}

#[test]
fn slow_clients_do_not_keep_others_out() {
    let world = World::new();
    let witness = world.run();
    let slow: Vec<_> = (0..7)
        .map(|_| {
            let mut stream = TcpStream::connect(&witness.address).unwrap();
            stream.write_all(b"POST /add-checkpoint HTTP/1.1\r\ncontent-length: 9\r\n\r\no").unwrap();
            stream
        })
        .collect();
    assert_eq!(witness.post(&world.ask(0)).0, 200);
    drop(slow);
}

#[test]
fn a_damaged_state_and_a_second_witness_end_it() {
    let world = World::new();
    let witness = world.run();
    assert_eq!(witness.post(&world.ask(0)).0, 200);
    ran(world.command()).code(34).says("another witness uses");
    let state = world.folder.path().join("state");
    let file = std::fs::read_dir(&state).unwrap().map(|file| file.unwrap().path());
    let file = file.filter(|path| path.extension().is_some_and(|e| e == "checkpoint")).collect::<Vec<_>>();
    let [file] = file.as_slice() else { panic!("{file:?}") };
    let text = std::fs::read_to_string(file).unwrap();
    // While it runs, too: a state that cannot be read is no state from the beginning.
    std::fs::write(file, text.replace("\n5\n", "\n4\n")).unwrap();
    assert_eq!(witness.post(&world.ask(0)).0, 500);
    drop(witness);
    ran(world.command()).code(3).says("is not what this witness has written");
    std::fs::write(file, text).unwrap();
    let witness = world.run();
    assert_eq!(witness.post(&world.ask(5)).0, 200);
    drop(witness);
    let mut none = log(world.folder.path(), &["witness", "--key", "k", "--state", "s"]);
    ran({
        none.current_dir(world.folder.path());
        none
    })
    .code(2);
}
