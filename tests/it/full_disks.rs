//! The disk of a server is full again and again, wherever in a write it ends.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::thread;

use mandate_tests::campaign::{Numbers, scale, seed};
use serde_json::Value;

use crate::harness::{Agent, TestServer, authorization, library};

/// A library that lets files grow by so many bytes.
const FULL: &str = include_str!("disk/full.c");
/// How often the disk is full in a campaign of scale 1.
const ROUNDS: usize = 8;
/// Agents that ask at the same time, each on a thread of its own.
const AGENTS: usize = 4;
/// The room that a round begins with, in bytes, is less than this.
const MOST_ROOM: usize = 100_000;
/// Room for all that there is.
const PLENTY: i64 = i64::MAX;
/// How often an agent asks in a round until the disk is full, at most.
const UNTIL_FULL: usize = 5_000;
/// How often it asks then.
const WHILE_FULL: usize = 3;

/// The bytes by which the database may still grow.
struct Room(File);

impl Room {
    fn set(&self, bytes: i64) {
        self.0.write_all_at(&bytes.to_ne_bytes(), 0).unwrap();
    }
}

/// A request: its idempotency key, its body, and the answer if it was decided.
struct Asked {
    key: String,
    body: Value,
    answer: Option<String>,
}

/// An agent with a mandate, which may ask as often as it can.
fn buyer(server: &TestServer, name: &str) -> Agent {
    let buyer = server.demo().buyer(name);
    let key = ["--organization", "demo", "--environment", "sandbox", "--agent", name];
    server.operate(&[&["rate", "set"], &key[..], &["1000000"]].concat()).code(0);
    buyer
}

/// Asks on and on until the disk is full, and then a few times more.
fn ask_on(agent: &Agent, name: &str, numbers: &mut Numbers) -> Vec<Asked> {
    let (mut asked, mut refused) = (Vec::new(), 0);
    while refused < WHILE_FULL {
        assert!(asked.len() < UNTIL_FULL, "the disk never filled");
        let amount = u32::try_from(1 + numbers.below(40)).unwrap();
        let (key, body) = (format!("{name}-{}", asked.len()), authorization(amount));
        let answer = agent.client.post_once(&key, "/authorizations", &body).unwrap();
        let is_decided = answer.status == 201;
        assert!(is_decided || answer.status == 500, "{answer:?}");
        refused += usize::from(!is_decided);
        asked.push(Asked { key, body, answer: is_decided.then_some(answer.body) });
    }
    asked
}

/// Asks for everything again: what was decided is answered as before, and the rest is decided now.
fn ask_again(agent: &Agent, asked: &[Asked]) {
    for Asked { key, body, answer } in asked {
        let again = agent.client.post_once(key, "/authorizations", body).unwrap();
        assert_eq!(again.status, 201, "{again:?}");
        let replayed = again.header("idempotency-replayed");
        assert_eq!(replayed, answer.as_ref().map(|_| "true"), "nothing that was not answered is there");
        assert!(answer.as_ref().is_none_or(|answer| *answer == again.body), "{answer:?}, {again:?}");
    }
}

#[test]
fn what_meets_a_full_disk_is_not_there_and_with_room_again_the_server_goes_on() {
    let mut numbers = Numbers::from_seed(seed("full disks"));
    let (data, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (library, files) = (library(beside.path(), FULL), data.path().join("mandate-dev.db"));
    let path = beside.path().join("room");
    let room = Room(File::options().create_new(true).write(true).open(&path).unwrap());
    room.set(PLENTY);
    let server = TestServer::start_with_library(
        data.path(),
        &library,
        &[("FULL_FILES", &files), ("FULL_ROOM", &path)],
    );
    let agents: Vec<_> = (0..AGENTS).map(|number| buyer(&server, &format!("buyer-{number}"))).collect();
    let (mut decided, mut refused) = (0, 0);
    for round in 0..ROUNDS * scale() as usize {
        room.set(i64::try_from(numbers.below(MOST_ROOM)).unwrap());
        let own: [Numbers; AGENTS] = [(); AGENTS].map(|()| Numbers::from_seed(numbers.draw()));
        let asked: Vec<_> = thread::scope(|scope| {
            let asking = agents.iter().zip(own).enumerate().map(|(number, (agent, mut own))| {
                scope.spawn(move || ask_on(agent, &format!("{round}-{number}"), &mut own))
            });
            asking.collect::<Vec<_>>().into_iter().map(|asking| asking.join().unwrap()).collect()
        });
        assert_eq!(agents[0].client.get("/decisions").status, 200, "what is there can be read");
        room.set(PLENTY);
        for (agent, asked) in agents.iter().zip(&asked) {
            ask_again(agent, asked);
            decided += asked.len();
            refused += asked.iter().filter(|asked| asked.answer.is_none()).count();
        }
    }
    println!("full disks: {decided} requests, {refused} of them refused at first");
    assert_eq!(server.stranger("ops_url").get("/readyz").status, 200);
    assert_eq!(server.hold(&server.demo().client, &[server.issuer()]), decided, "each was decided once");
}
