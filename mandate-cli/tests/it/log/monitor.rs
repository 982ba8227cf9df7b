//! `mandate log monitor`: what has come to a log, and what no honest log does.

use super::*;
use mandate_core::log::SignedCheckpoint;
use serde_json::Value;

pub(super) struct Watched {
    pub(super) folder: tempfile::TempDir,
    pub(super) site: Site,
    pub(super) log: TestLog,
}

impl Watched {
    pub(super) fn new() -> Self {
        let (folder, site) = (tempfile::tempdir().unwrap(), Site::new());
        let mut log = TestLog::at(&site);
        log.push(&key_event(KeyChange::Published));
        log.push(&governing(1));
        log.strangers(300);
        log.push(&governing(2));
        log.publish(&site);
        Self { folder, site, log }
    }

    pub(super) fn look(&self, more: &[&str]) -> Ran {
        let state = self.folder.path().join("state");
        let (log_at, key) = (self.site.log(), self.log.verifier());
        let args = ["monitor", "--log", &log_at, "--state", state.to_str().unwrap()];
        let first = ["--log-key", &key];
        let first = if state.exists() || more.contains(&first[0]) { &[][..] } else { &first };
        ran(log(self.folder.path(), &[&args, first, more].concat()))
    }

    pub(super) fn state(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join("state")).unwrap()
    }

    pub(super) fn watch_key(&self) -> String {
        write(self.folder.path(), "watch.key", format!("{}\n", watch_key().reveal()))
    }
}

#[test]
fn a_log_that_grows_is_consistent_and_shows_its_keys() {
    let mut watched = Watched::new();
    let key = watched.watch_key();
    let first = watched.look(&["--watch-key", &key]).code(0);
    first
        .shows("entries      303\n")
        .shows("published")
        .shows("2 changes of your environment")
        .shows("CONSISTENT");
    let again = watched.look(&["--watch-key", &key, "--json"]).code(0).json();
    assert_eq!((&again["before"], &again["size"], &again["keys"]), (&json!(303), &json!(303), &json!([])));
    assert_eq!(again["governing"]["new"], json!({}));
    watched.log.strangers(400);
    watched.log.push(&governing(3));
    watched.log.push(&key_event(KeyChange::Revoked));
    watched.log.push(&Entry::Key(match key_event(KeyChange::Published) {
        Entry::Key(event) => event,
        _ => panic!(),
    }));
    watched.log.entries.push(vec![9, 9]);
    watched.log.publish(&watched.site);
    let grown = watched.look(&["--watch-key", &key, "--json"]).code(0).json();
    assert_eq!((&grown["before"], &grown["size"], &grown["unknown"]), (&json!(303), &json!(707), &json!(1)));
    assert_eq!(grown["governing"], json!({"count": 3, "new": {"3": 703}, "missing": [], "twice": []}));
    let changes: Vec<_> = grown["keys"].as_array().unwrap().iter().map(|key| &key["change"]).collect();
    assert_eq!(changes, ["revoked", "published"]);
    // A log that has grown since may have dropped its partial tiles.
    let partial = watched.log.clone();
    watched.log.strangers(100);
    let mut files = watched.log.files();
    files.insert("checkpoint".to_owned(), partial.checkpoint().to_string().into_bytes());
    watched.site.serve("/log/sandbox/", files);
    std::fs::remove_file(watched.folder.path().join("state")).unwrap();
    watched.look(&[]).code(0).shows("entries      707\n");
}

#[test]
fn changes_that_are_missing_or_twice_are_findings() {
    let mut watched = Watched::new();
    let key = watched.watch_key();
    watched.look(&["--watch-key", &key]).code(0);
    watched.log.push(&governing(4));
    watched.log.push(&governing(1));
    watched.log.publish(&watched.site);
    let found = watched.look(&["--watch-key", &key, "--json"]).code(23).json();
    assert_eq!(found["governing"], json!({"count": 2, "new": {"4": 303}, "missing": [3], "twice": [1]}));
    watched.log.push(&governing(3));
    watched.log.publish(&watched.site);
    let found = watched.look(&["--watch-key", &key, "--json"]).code(0).json();
    assert_eq!(found["governing"]["count"], 4);
    let other = write(watched.folder.path(), "other", "watch_AA");
    watched.look(&["--watch-key", &other]).code(2).says("holds no watch key");
}

/// What a look has found holds for its watch key alone.
#[test]
fn changes_are_counted_for_the_watch_key_that_is_given() {
    let mut watched = Watched::new();
    let (key, folder) = (watched.watch_key(), watched.folder.path().to_owned());
    let other = write(&folder, "other.key", WatchKey::new([6; 32]).reveal());
    let count = |watched: &Watched, key: &str| {
        let report = watched.look(&["--watch-key", key, "--json"]).code(0).json();
        (report["governing"]["count"].as_u64().unwrap(), report["governing"]["new"].clone())
    };
    // The first looks have none, and another one.
    watched.look(&[]).code(0);
    watched.look(&["--watch-key", &other]).code(26).shows("no entry fits the watch key");
    watched.log.push(&governing(3));
    watched.log.publish(&watched.site);
    assert_eq!(count(&watched, &key), (3, json!({"1": 1, "2": 302, "3": 303})));
    assert_eq!(count(&watched, &key), (3, json!({})));
    // What comes at a look without the key is found at the next one.
    watched.log.push(&governing(4));
    watched.log.publish(&watched.site);
    watched.look(&[]).code(0);
    watched.log.push(&governing(5));
    watched.log.publish(&watched.site);
    assert_eq!(count(&watched, &key).0, 5);
    let state = String::from_utf8(watched.state()).unwrap();
    assert!(!state.contains(&watch_key().reveal()));
}

/// A look with another environment's watch key has compared nothing.
#[test]
fn a_watch_key_that_fits_nothing_is_named_with_the_one_that_is_expected() {
    let watched = Watched::new();
    let (key, folder) = (watched.watch_key(), watched.folder.path().to_owned());
    let other = write(&folder, "other.key", WatchKey::new([6; 32]).reveal());
    let said = watched.look(&["--watch-key", &other, "--json"]).code(26).json();
    let why = said["not_compared"][0].as_str().unwrap();
    for part in ["no governing change of", &other, "log watch-key ORGANIZATION --environment sandbox"] {
        assert!(why.contains(part), "{why}");
    }
    let shown = watched.look(&["--watch-key", &other]).code(26);
    shown.shows("not compared").shows("NOT ALL COMPARED");
    let chosen = watched.look(&["--watch-key", &other, "--json=not_compared"]).code(26).json();
    assert_eq!(chosen["not_compared"], said["not_compared"]);
    // After one that has found changes, nothing of what is known is given up.
    watched.look(&["--watch-key", &key]).code(0);
    let state = watched.state();
    watched.look(&["--watch-key", &other]).code(26).says("up to number 2").says("another --state");
    assert_eq!(watched.state(), state);
}

/// The numbers of an environment go on from log to log.
#[test]
fn a_log_that_continues_another_begins_at_the_first_change_that_it_has() {
    let watched = Watched::new();
    let key = watched.watch_key();
    watched.look(&["--watch-key", &key]).code(0);
    let origin = watched.log.key.verifier().name().to_owned();
    let mut new = TestLog::new(&format!("{origin}/2"));
    new.push(&Entry::OlderLog(watched.log.checkpoint()));
    new.publish(&watched.site);
    let (new_key, before) = (new.verifier(), watched.state());
    // One who goes over, and one who begins at the new log.
    let over = |more: &[&str]| watched.look(&[&["--watch-key", &key, "--log-key", &new_key], more].concat());
    over(&[]).code(54);
    new.push(&governing(3));
    new.push(&governing(4));
    new.publish(&watched.site);
    let found = over(&["--json"]).code(0).json();
    assert_eq!(found["governing"]["missing"], json!([]));
    assert_eq!(found["governing"]["new"], json!({"3": 1, "4": 2}));
    let path = watched.folder.path().join("state");
    std::fs::remove_file(&path).unwrap();
    over(&[]).code(0).shows("4 changes of your environment, those before number 3 in an older log");
    // A change that came to neither is missing, to one who has looked at both.
    new.entries.remove(1);
    new.publish(&watched.site);
    std::fs::write(&path, before).unwrap();
    assert_eq!(over(&["--json"]).code(23).json()["governing"]["missing"], json!([3]));
}

#[test]
fn a_fork_is_kept_with_both_signatures() {
    let mut watched = Watched::new();
    watched.look(&[]).code(0);
    let state = watched.state();
    let honest = watched.log.clone();
    let proves = |fork: &TestLog| {
        fork.publish(&watched.site);
        watched.look(&[]).code(52).says("the log has forked");
        assert_eq!(watched.state(), state);
        let kept = std::fs::read(watched.folder.path().join("state.fork")).unwrap();
        let kept: Value = serde_json::from_slice(&kept).unwrap();
        let both = ["before", "now"].map(|name| {
            let signed = SignedCheckpoint::parse(kept[name].as_str().unwrap().as_bytes()).unwrap();
            let checkpoint = signed.verify(honest.key.verifier()).unwrap().clone();
            (checkpoint.size(), *checkpoint.root())
        });
        assert_eq!((both[0].0, both[1].0), (honest.size(), fork.size()));
        assert_ne!(both[0].1, both[1].1);
    };
    // Of the same size, and of a greater one.
    let mut fork = honest.clone();
    fork.entries[7] = strange(9_999).to_bytes();
    proves(&fork);
    fork.strangers(500);
    proves(&fork);
    // The honest log goes on as if nothing had been.
    watched.log.strangers(1);
    watched.log.publish(&watched.site);
    watched.look(&[]).code(0);
}

#[test]
fn a_fork_that_hides_behind_other_tiles_is_refused() {
    let mut watched = Watched::new();
    watched.look(&[]).code(0);
    let honest = watched.log.clone();
    let mut fork = honest.clone();
    fork.entries[7] = strange(9_999).to_bytes();
    fork.strangers(10);
    // The old tiles, with a checkpoint that does not belong to them.
    let mut longer = honest;
    longer.strangers(10);
    let mut files = longer.files();
    files.insert("checkpoint".to_owned(), fork.checkpoint().to_string().into_bytes());
    watched.site.serve("/log/sandbox/", files);
    watched.look(&[]).code(51).says("(root)");
    watched.log = longer;
    watched.log.publish(&watched.site);
    watched.look(&[]).code(0);
}

#[test]
fn a_log_that_shrinks_was_rolled_back() {
    let watched = Watched::new();
    watched.look(&[]).code(0);
    let mut older = watched.log.clone();
    older.entries.truncate(200);
    older.publish(&watched.site);
    watched.look(&[]).code(53).says("had 303 entries at the last look, and shows 200 now");
    watched.log.publish(&watched.site);
    watched.look(&[]).code(0);
}

#[test]
fn a_new_origin_is_told_apart_and_must_continue_the_old_log() {
    let watched = Watched::new();
    watched.look(&[]).code(0);
    let origin = watched.log.key.verifier().name().to_owned();
    let second = |first: Option<Entry>| {
        let mut second = TestLog::new(&format!("{origin}/2"));
        second.key = SigningKey::new(&format!("{origin}/2"), KeyKind::Note, &[9; 32]).unwrap();
        if let Some(entry) = &first {
            second.push(entry);
        }
        second.strangers(3);
        second.publish(&watched.site);
        let next = format!("{}\n", second.verifier());
        watched.site.add("/log/sandbox/next", next.into_bytes());
        second
    };
    let key = second(None).verifier();
    watched.look(&[]).code(54).shows(&format!("goes on as   {origin}/2")).shows("--log-key");
    let goes_over = || watched.look(&["--log-key", &key]);
    goes_over().code(51).says("does not name the log");
    // The old log's last checkpoint must not be behind the last look, nor another.
    let mut behind = watched.log.clone();
    behind.entries.truncate(302);
    second(Some(Entry::OlderLog(behind.checkpoint())));
    goes_over().code(53);
    let mut other = watched.log.clone();
    other.entries[7] = strange(9_999).to_bytes();
    second(Some(Entry::OlderLog(other.checkpoint())));
    goes_over().code(52);
    let mut unsigned = watched.log.clone();
    unsigned.key = SigningKey::new(&origin, KeyKind::Note, &[8; 32]).unwrap();
    second(Some(Entry::OlderLog(unsigned.checkpoint())));
    goes_over().code(51).says("(older_log)");
    second(Some(Entry::OlderLog(watched.log.checkpoint())));
    goes_over().code(54).shows(&format!("continues    {origin}\n")).shows("NEW ORIGIN");
    watched.look(&[]).code(0).shows(&format!("{origin}/2"));
    // An older log is named nowhere else.
    let mut late = second(Some(Entry::OlderLog(watched.log.checkpoint())));
    late.push(&Entry::OlderLog(watched.log.checkpoint()));
    late.publish(&watched.site);
    watched.look(&[]).code(51).says("only the first entry may");
}

/// What came to a log last is looked at although another one goes on.
#[test]
fn an_ended_log_is_looked_at_to_its_end() {
    let mut watched = Watched::new();
    let watch_key = watched.watch_key();
    let look = |watched: &Watched| watched.look(&["--watch-key", &watch_key, "--json"]);
    look(&watched).code(0);
    let (before, seen) = (watched.state(), watched.log.clone());
    let origin = watched.log.key.verifier().name().to_owned();
    let second = SigningKey::new(&format!("{origin}/2"), KeyKind::Note, &[9; 32]).unwrap();
    let next = format!("{}\n", second.verifier());
    let goes_on = |watched: &Watched| watched.site.add("/log/sandbox/next", next.clone().into_bytes());
    watched.log.push(&governing(3));
    watched.log.push(&key_event(KeyChange::Revoked));
    watched.log.publish(&watched.site);
    goes_on(&watched);
    let last = look(&watched).code(54).json();
    assert_eq!((&last["before"], &last["size"]), (&json!(303), &json!(305)));
    assert_eq!(
        (&last["keys"][0]["change"], &last["governing"]["new"]),
        (&json!("revoked"), &json!({"3": 303}))
    );
    assert_eq!(last["next"], format!("{origin}/2"));
    let again = look(&watched).code(54).json();
    assert_eq!((&again["before"], &again["governing"]["new"]), (&json!(305), &json!({})));
    // A change that is there twice is a finding first: it is found once.
    watched.log.push(&governing(1));
    watched.log.publish(&watched.site);
    goes_on(&watched);
    look(&watched).code(23);
    look(&watched).code(54);
    // A fork is one although the log has ended. One that was restored to fewer entries has ended for that.
    let state = watched.folder.path().join("state");
    std::fs::write(&state, &before).unwrap();
    let mut fork = seen.clone();
    fork.entries[7] = strange(9_999).to_bytes();
    fork.strangers(1);
    fork.publish(&watched.site);
    goes_on(&watched);
    look(&watched).code(52);
    let mut restored = seen;
    restored.entries.truncate(200);
    restored.publish(&watched.site);
    goes_on(&watched);
    watched.look(&[]).code(54).says("goes on as").says("shows 200 now");
    assert_eq!(watched.state(), before);
    // What was published behind the last look cannot be looked at any more.
    let mut new = TestLog::new(&format!("{origin}/2"));
    new.key = second;
    new.push(&Entry::OlderLog(watched.log.checkpoint()));
    new.publish(&watched.site);
    watched.look(&["--log-key", &new.verifier()]).code(26).says("had 306 entries").says("from 303 on");
}

/// A site that answers every path with a page says nothing about the log.
#[test]
fn a_page_in_the_place_of_a_key_is_no_new_origin() {
    let watched = Watched::new();
    watched.look(&[]).code(0);
    let state = watched.state();
    for page in ["<!doctype html>\n", "", &format!("{}\n", witness(1).verifier())] {
        watched.site.add("/log/sandbox/next", page.as_bytes().to_vec());
        watched.look(&[]).code(38).says("is not the key of a log");
        let shown = ["key", "show", "--log", &watched.site.log()];
        ran(log(watched.folder.path(), &shown)).code(38).says("is not the key of a log");
    }
    assert_eq!(watched.state(), state);
    watched.site.remove("/log/sandbox/next");
    watched.look(&[]).code(0);
}

/// A policy that names the log says under which key it is watched; with several, the pinned one is meant.
#[test]
fn a_policy_with_a_log_line_needs_no_other_key() {
    let watched = Watched::new();
    let (at, key) = (watched.site.log(), watched.log.verifier());
    let of = |lines: &str, name: &str| write(watched.folder.path(), name, format!("{lines}quorum none\n"));
    let other = SigningKey::new("other.example/log/sandbox", KeyKind::Note, &[8; 32]).unwrap();
    let other = other.verifier();
    let one = of(&format!("log {key}\n"), "one");
    let two = of(&format!("log {other}\nlog {key}\n"), "two");
    let look = |policy: &str| {
        let state = write(watched.folder.path(), "none", "");
        std::fs::remove_file(&state).unwrap();
        ran(log(watched.folder.path(), &["monitor", "--log", &at, "--state", &state, "--policy", policy]))
    };
    look(&one).code(0).shows("CONSISTENT");
    look(&two).code(2).says("--log-key KEY");
    ran(log(watched.folder.path(), &["key", "pin", "--log", &at, "--trust-on-first-use"])).code(0);
    look(&one).code(0);
    look(&two).code(0).shows("CONSISTENT");
}

#[test]
fn a_hostile_log_is_read_within_bounds() {
    let watched = Watched::new();
    for (path, code) in [("checkpoint", 38), ("tile/entries/000", 38)] {
        watched.log.publish(&watched.site);
        watched.site.flood(&format!("/log/sandbox/{path}"));
        watched.look(&[]).code(code);
        assert!(!watched.folder.path().join("state").exists());
    }
    watched.log.publish(&watched.site);
    watched.look(&[]).code(0);
    let state = watched.state();
    for (from, to) in
        [("\"monitor\":2", "\"monitor\":1"), ("\"governing\":null", "\"governing\":-1"), ("303", "304")]
    {
        let edited = String::from_utf8(state.clone()).unwrap().replacen(from, to, 1);
        std::fs::write(watched.folder.path().join("state"), edited).unwrap();
        watched.look(&[]).code(3).says("is no state of a monitor");
    }
}
