//! A server that is killed behind each of the system calls with which the public log grows: no size has two roots. And an export
//! of the log that is killed so.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mandate_core::log::{Frontier, Hash, SignedCheckpoint, Tile, TileKind, VerifierKey, read_bundle};
use mandate_tests::campaign::{Numbers, seed};
use tempfile::TempDir;

use super::operate;
use crate::harness::dying::{Dying, places, try_each};
use crate::harness::{Client, DEADLINE, Replicas, authorization};

/// How often the server is killed, below the scale for each call.
const SOME: usize = 8;
/// How many entries the log has at first: two fewer than a tile.
const ENTRIES: u64 = 254;
/// How often an export is killed, below the scale for each call.
const EXPORTS: usize = 32;
/// So many decisions are made at a time, before the log is awaited.
const DECISIONS: u64 = 2;
const TIMES: u64 = 3;

/// A database that servers and commands use.
struct Place {
    folder: TempDir,
}

/// The sizes of the log that were seen, each with its root.
#[derive(Default)]
struct Seen(BTreeMap<u64, Hash>);

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// What another place has: files, and a directory of files.
    fn copy(of: &Self) -> Self {
        let copy = Self::new();
        for file in fs::read_dir(of.folder.path()).unwrap().map(Result::unwrap) {
            let to = copy.folder.path().join(file.file_name());
            if file.file_type().unwrap().is_file() {
                fs::copy(file.path(), to).unwrap();
                continue;
            }
            fs::create_dir(&to).unwrap();
            for file in fs::read_dir(file.path()).unwrap().map(Result::unwrap) {
                fs::copy(file.path(), to.join(file.file_name())).unwrap();
            }
        }
        copy
    }

    fn database(&self) -> String {
        format!("sqlite://{}", self.folder.path().join("mandate.db").display())
    }

    /// The file with the last signed checkpoint.
    fn checkpoint(&self) -> PathBuf {
        self.folder.path().join("mandate.db-checkpoints/sandbox")
    }
}

impl Seen {
    /// A checkpoint that was signed. It is of the only root for its size so far.
    fn add(&mut self, signed: &[u8]) -> u64 {
        let signed = SignedCheckpoint::parse(signed).unwrap();
        let checkpoint = signed.checkpoint();
        let before = self.0.insert(checkpoint.size(), *checkpoint.root());
        let is_same = before.is_none_or(|root| root == *checkpoint.root());
        assert!(is_same, "size {} has two roots", checkpoint.size());
        checkpoint.size()
    }

    /// The checkpoint that a server publishes; an error where it is gone.
    fn look(&mut self, public: &Client) -> Result<u64, ureq::Error> {
        let answer = public.send("GET", "/log/sandbox/checkpoint", &[], "")?;
        Ok(if answer.status == 200 { self.add(answer.body.as_bytes()) } else { 0 })
    }

    /// Looks until so many entries are published; an error where the server is gone.
    fn await_size(&mut self, public: &Client, size: u64) -> Result<(), ureq::Error> {
        let began = Instant::now();
        while self.look(public)? < size {
            assert!(began.elapsed() < DEADLINE, "no checkpoint of {size} entries");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Each of them is a size that the log, written as files, once had, with its root.
    fn are_of(&self, log: &Path) {
        let key = fs::read_to_string(log.join("key")).unwrap();
        let signed = SignedCheckpoint::parse(&fs::read(log.join("checkpoint")).unwrap()).unwrap();
        let size = signed.verify(&VerifierKey::parse(key.trim()).unwrap()).unwrap().size();
        let mut grown = Frontier::default();
        for tile in Tile::between(0, size).filter(|tile| tile.kind == TileKind::Entries) {
            for entry in read_bundle(&fs::read(log.join(tile.path())).unwrap(), tile.width).unwrap() {
                grown.append(Hash::of_leaf(entry), |_, _| {}).unwrap();
                let seen = self.0.get(&grown.size());
                assert!(seen.is_none_or(|root| *root == grown.root()), "another root at {}", grown.size());
            }
        }
        assert_eq!(grown.root(), *signed.checkpoint().root());
        assert!(self.0.keys().all(|seen| *seen <= size), "{:?} beyond {size}", self.0.keys());
    }
}

/// A log two entries before its first tile is full, published, and an agent's key.
fn template() -> (Place, String) {
    let place = Place::new();
    let replicas = Replicas::start(&place.database(), 1);
    let agent = replicas.organization("acme").buyer("a").client;
    let (public, mut seen) = (replicas.public(0), Seen::default());
    let rows = || replicas.operate(&["log", "show", "--json"]).code(0).json();
    let settled = |rows: &serde_json::Value| {
        let log =
            rows["logs"].as_array().unwrap().iter().find(|log| log["environment"] == "sandbox").unwrap();
        (rows["oldest_waiting"].is_null() && log["entries"] == log["published"])
            .then(|| log["entries"].as_u64().unwrap())
    };
    let began = Instant::now();
    let entries = loop {
        if let Some(entries) = settled(&rows()) {
            break entries;
        }
        assert!(began.elapsed() < DEADLINE, "{}", rows());
    };
    (entries..ENTRIES).for_each(|_| assert_eq!(agent.post("/authorizations", &authorization(1)).status, 201));
    seen.await_size(&public, ENTRIES).unwrap();
    assert_eq!(seen.look(&public).unwrap(), ENTRIES);
    drop(replicas);
    (place, agent.key().to_owned())
}

/// Has decisions made, and awaits their entries each time. Returns the errors of a server that is gone.
fn grow(server: &Replicas, key: &str, seen: &mut Seen) -> Result<(), ureq::Error> {
    let (agent, public) = (server.client(0, key), server.public(0));
    for time in 1..=TIMES {
        for number in 0..DECISIONS {
            agent.post_once(&format!("{time}-{number}"), "/authorizations", &authorization(1))?;
        }
        seen.await_size(&public, ENTRIES + time * DECISIONS)?;
    }
    Ok(())
}

#[test]
fn a_server_that_is_killed_anywhere_while_its_log_grows_leaves_no_size_with_two_roots() {
    let (dying, mut numbers) = (Dying::new(), Numbers::from_seed(seed("log that grows")));
    let (template, key) = template();
    let begin = |place: &Place, after: usize| {
        let from = place.folder.path().join("from");
        let server = Replicas::with_environment(&place.database(), &dying.environment(after, Some(&from)));
        fs::write(&from, "").unwrap();
        server
    };
    let whole = Place::copy(&template);
    let server = begin(&whole, 0);
    grow(&server, &key, &mut Seen::default()).unwrap();
    let places = places(&dying.calls(), SOME, &mut numbers);
    drop(server);

    let (tried, killed) = (places.len(), AtomicUsize::new(0));
    try_each(places, |after| {
        let (place, mut seen) = (Place::copy(&template), Seen::default());
        seen.add(&fs::read(place.checkpoint()).unwrap());
        let server = begin(&place, after);
        let is_dead = grow(&server, &key, &mut seen).is_err();
        drop(server);
        killed.fetch_add(usize::from(is_dead), Ordering::Relaxed);
        seen.add(&fs::read(place.checkpoint()).unwrap());

        let server = Replicas::start(&place.database(), 1);
        seen.look(&server.public(0)).unwrap();
        // What had been answered is answered alike, so that each is decided once.
        let all = ENTRIES + TIMES * DECISIONS;
        grow(&server, &key, &mut seen).unwrap();
        seen.add(&fs::read(place.checkpoint()).unwrap());
        assert_eq!(seen.0.last_key_value().unwrap().0, &all, "call {after}");
        assert_eq!(server.operate(&["check"]).code(0).out, "sound\n", "call {after}");
        let log = place.folder.path().join("log");
        server.operate(&["log", "export", "sandbox", log.to_str().unwrap()]).code(0);
        seen.are_of(&log);
    });
    let killed = killed.into_inner();
    println!("{killed} servers were killed");
    // A server batches as time has it, so that some make fewer calls than the first and end by themselves.
    assert!(killed * 2 >= tried, "only {killed} of {tried} servers were killed");
}

/// The files below a folder, with what they hold.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(below) = folders.pop() {
        for entry in fs::read_dir(below).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let name = entry.path().strip_prefix(folder).unwrap().to_owned();
                files.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

#[test]
fn an_export_that_is_killed_anywhere_is_made_whole_by_the_next() {
    let (dying, mut numbers) = (Dying::new(), Numbers::from_seed(seed("export of a log")));
    let (template, key) = template();
    let server = Replicas::start(&template.database(), 1);
    grow(&server, &key, &mut Seen::default()).unwrap();
    drop(server);
    let folder = tempfile::tempdir().unwrap();
    let export = |to: &Path| ["log", "export", "sandbox", to.to_str().unwrap()].map(ToOwned::to_owned);
    let kill = |place: &Place, to: &Path, after: usize| {
        let (arguments, database) = (export(to), place.database());
        let mut arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        arguments.extend(["--database", &database]);
        dying.kill(&arguments, after);
    };
    let first = folder.path().join("whole");
    kill(&template, &first, 0);
    let (places, whole) = (places(&dying.calls(), EXPORTS, &mut numbers), files(&first));
    let full = ["tile/0/000", "tile/entries/000"];
    assert!(full.iter().all(|full| whole.contains_key(Path::new(full))), "{:?}", whole.keys());

    let last = places.last().copied();
    try_each(places, |after| {
        let (place, to) = (Place::copy(&template), folder.path().join(after.to_string()));
        kill(&place, &to, after);
        assert!(!to.join("checkpoint").exists() || files(&to) == whole, "call {after}: it is the last");
        // What a disk has made of tiles that were not durable.
        let [other, short] = full.map(|full| to.join(full));
        let damaged = other.exists() && short.exists();
        if damaged {
            let mut content = fs::read(&other).unwrap();
            content.fill(0);
            fs::write(&other, content).unwrap();
            fs::OpenOptions::new().write(true).open(&short).unwrap().set_len(100).unwrap();
        }
        assert!(damaged || Some(after) != last, "the last one had ended");
        let again = export(&to);
        let again = again.each_ref().map(String::as_str);
        operate(&place.database(), &again).code(0);
        assert_eq!(files(&to), whole, "call {after}");
        let again = operate(&place.database(), &[&again[..], &["--json"]].concat()).code(0).json();
        assert_eq!(again["files_written"], 0, "call {after}");
    });
}
