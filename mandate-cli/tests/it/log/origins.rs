//! `mandate log monitor` where logs have followed one another: none of their entries is passed over.

use super::monitor::Watched;
use super::*;

/// Three logs that follow one another, each with its own key.
struct Followed {
    watched: Watched,
    logs: Vec<TestLog>,
}

impl Followed {
    /// The first one is looked at, and has grown since.
    fn new() -> Self {
        let mut watched = Watched::new();
        watched.look(&["--watch-key", &watched.watch_key()]).code(0);
        watched.log.push(&governing(3));
        watched.log.strangers(300);
        let mut followed = Self { logs: vec![watched.log.clone()], watched };
        followed.begin(&governing(4));
        followed.begin(&governing(5));
        followed.publish();
        followed
    }

    fn begin(&mut self, entry: &Entry) {
        let number = self.logs.len() + 1;
        let origin = format!("{}/{number}", self.logs[0].key.verifier().name());
        let mut log = TestLog::new(&origin);
        let secret = [u8::try_from(number).unwrap() + 7; 32];
        log.key = SigningKey::new(&origin, KeyKind::Note, &secret).unwrap();
        log.push(&Entry::OlderLog(self.logs.last().unwrap().checkpoint()));
        log.push(entry);
        log.strangers(260);
        self.logs.push(log);
    }

    fn publish(&self) {
        for log in &self.logs {
            log.publish(&self.watched.site);
        }
    }

    /// The look that goes over to the last one.
    fn over(&self) -> Ran {
        let key = self.logs.last().unwrap().verifier();
        self.watched.look(&["--log-key", &key, "--watch-key", &self.watched.watch_key(), "--json"])
    }
}

#[test]
fn each_log_on_the_way_is_looked_at_to_its_end() {
    let followed = Followed::new();
    let found = followed.over().code(54).json();
    let origin = followed.watched.log.key.verifier().name();
    assert_eq!(
        (&found["log"], &found["continues"]),
        (&json!(format!("{origin}/3")), &json!(format!("{origin}/2")))
    );
    let older = found["older"].as_array().unwrap();
    let seen: Vec<_> = older.iter().chain([&found]).map(|part| &part["governing"]["new"]).collect();
    assert_eq!(seen, [&json!({"3": 303}), &json!({"4": 1}), &json!({"5": 1})]);
    assert_eq!(
        (&older[0]["log"], &older[0]["before"], &older[0]["size"]),
        (&json!(origin), &json!(303), &json!(604))
    );
    assert_eq!(found["governing"]["count"], 5);
    followed.watched.look(&["--watch-key", &followed.watched.watch_key()]).code(0);
    // Their keys are known from now on: a token in the first one is not late.
    let state = String::from_utf8(followed.watched.state()).unwrap();
    assert!(followed.logs.iter().all(|log| state.contains(&log.verifier())), "{state}");
}

/// What another was shown of the older log's end is another root.
#[test]
fn a_forked_end_of_the_older_log_is_a_fork() {
    let state_of = |entries: usize| {
        let mut followed = Followed::new();
        let path = followed.watched.folder.path().join("state");
        std::fs::remove_file(&path).unwrap();
        let mut seen = followed.logs[0].clone();
        seen.entries.truncate(entries);
        seen.publish(&followed.watched.site);
        followed.watched.look(&["--log-key", &seen.verifier()]).code(0);
        followed.logs.truncate(1);
        followed
    };
    // Whether the last look was near the end, far behind, or at an empty log.
    for entries in [603, 303, 0] {
        for (grown, other_size) in [(0, 604), (0, 590), (5, 604)] {
            let mut followed = state_of(entries);
            if other_size < entries {
                continue;
            }
            let honest = followed.logs[0].clone();
            let mut other = honest.clone();
            other.entries.truncate(other_size);
            *other.entries.last_mut().unwrap() = strange(77_777).to_bytes();
            followed.logs = vec![other];
            followed.begin(&governing(4));
            followed.logs[0] = honest;
            followed.logs[0].strangers(grown);
            followed.publish();
            let before = followed.watched.state();
            followed.over().code(52).says("the log has forked");
            assert_eq!(followed.watched.state(), before, "{entries} {grown} {other_size}");
            let kept = std::fs::read_to_string(followed.watched.folder.path().join("state.fork")).unwrap();
            let kept: serde_json::Value = serde_json::from_str(&kept).unwrap();
            for name in ["before", "now"] {
                let signed = SignedCheckpoint::parse(kept[name].as_str().unwrap().as_bytes()).unwrap();
                signed.verify(followed.logs[0].key.verifier()).unwrap();
            }
        }
    }
}

/// The old log was published further than the new one says.
#[test]
fn entries_that_the_new_log_leaves_out_are_a_rollback() {
    let mut followed = Followed::new();
    followed.logs[0].strangers(4);
    followed.publish();
    let before = followed.watched.state();
    followed.over().code(53);
    assert_eq!(followed.watched.state(), before);
}

#[test]
fn a_log_that_is_not_served_any_more_is_named_with_what_to_do() {
    let followed = Followed::new();
    let before = followed.watched.state();
    let site = &followed.watched.site;
    let (first, second) = (followed.logs[0].key.verifier().name(), followed.logs[1].key.verifier().name());
    // The second one is gone.
    site.serve("/log/sandbox/2/", BTreeMap::new());
    followed
        .over()
        .code(26)
        .says(&format!("the log {second} had 262 entries"))
        .says("those from 0 on cannot be read")
        .says("mandate log monitor --log FOLDER");
    // The first one was restored to what it had at the last look, or before that.
    for entries in [303, 200] {
        let mut restored = followed.logs[0].clone();
        restored.entries.truncate(entries);
        followed.publish();
        restored.publish(site);
        followed.logs[1..].iter().for_each(|log| log.publish(site));
        let refused = followed.over().code(26);
        refused.says(&format!("the log {first} had 604 entries")).says("those from 303 on cannot be read");
    }
    assert_eq!(followed.watched.state(), before);
    // With a copy of it, the way goes on: each log is beside the one before, as files too.
    let copy = followed.watched.folder.path().join("copy");
    followed.logs[0].write(&copy);
    let key = followed.logs[0].verifier();
    let watch_key = followed.watched.watch_key();
    let state = followed.watched.folder.path().join("state");
    let at = |folder: &Path, key: &str| {
        let args =
            ["monitor", "--log", folder.to_str().unwrap(), "--log-key", key, "--watch-key", &watch_key];
        ran(log(followed.watched.folder.path(), &[&args[..], &["--state", state.to_str().unwrap()]].concat()))
    };
    at(&copy, &key).code(0).shows("604, 301 of them new");
    followed.over().code(54);
    std::fs::write(&state, before).unwrap();
    followed.logs[1].write(&copy.join("2"));
    followed.logs[2].write(&copy.join("3"));
    at(&copy.join("3"), &followed.logs[2].verifier()).code(54).shows("number 3").shows("number 5");
}

/// What serves the log between gives itself a key. The log that goes on names another's checkpoint.
#[test]
fn a_log_on_the_way_is_the_one_that_the_next_one_names() {
    let followed = Followed::new();
    let mut other = followed.logs[1].clone();
    other.key = SigningKey::new(other.key.verifier().name(), KeyKind::Note, &[99; 32]).unwrap();
    other.publish(&followed.watched.site);
    followed.over().code(51).says("(older_log)").says("no signature of the log's key");
    // Its key, and other entries.
    let mut other = followed.logs[1].clone();
    other.entries[9] = strange(9_999).to_bytes();
    other.publish(&followed.watched.site);
    followed.over().code(52).says("names");
}
