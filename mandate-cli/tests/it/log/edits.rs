//! Every byte of a small log edited: refused by the check that failed.

use std::collections::BTreeSet;

use super::*;

/// Reads the whole log in the folder, and says how that ended.
fn read(folder: &Path, key: &str, state: &str) -> Ran {
    let _ = std::fs::remove_file(folder.join(state));
    let (log_folder, state) = (folder.join("log"), folder.join(state));
    let (log_folder, state) = (log_folder.to_str().unwrap(), state.to_str().unwrap());
    ran(log(folder, &["monitor", "--log", log_folder, "--log-key", key, "--state", state]))
}

#[test]
fn an_edited_byte_of_a_checkpoint_or_an_entry_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut test = TestLog::new("verdicts.example/log/sandbox");
    test.push(&key_event(KeyChange::Published));
    test.strangers(2);
    let at = folder.path().join("log");
    test.write(&at);
    let key = test.verifier();
    read(folder.path(), &key, "state").code(0);
    let mut names = BTreeSet::new();
    for path in ["checkpoint", "tile/entries/000.p/3"] {
        let bytes = std::fs::read(at.join(path)).unwrap();
        for place in 0..bytes.len() {
            let mut edited = bytes.clone();
            edited[place] ^= 1 << (place % 8);
            std::fs::write(at.join(path), &edited).unwrap();
            let refused = read(folder.path(), &key, "state");
            // An origin that a copy may have is another log's.
            assert!(matches!(refused.code, Some(51 | 54)), "{path} byte {place}: {refused:?}");
            let name = refused.err.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
            names.insert(name.map_or("new_origin", |(name, _)| name).to_owned());
        }
        std::fs::write(at.join(path), &bytes).unwrap();
    }
    for name in ["signature", "root", "entry_cut", "new_origin", "signature_line", "note_utf8"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    read(folder.path(), &key, "state").code(0);
}

/// From a state that a monitor has, the nodes of the older log come from tiles.
#[test]
fn an_edited_byte_of_a_tile_of_hashes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut test = TestLog::new("verdicts.example/log/sandbox");
    test.strangers(3);
    let at = folder.path().join("log");
    test.write(&at);
    let key = test.verifier();
    read(folder.path(), &key, "state").code(0);
    let before = std::fs::read(folder.path().join("state")).unwrap();
    test.strangers(1);
    test.write(&at);
    let look = || {
        std::fs::write(folder.path().join("state"), &before).unwrap();
        let (at, state) = (at.to_str().unwrap(), folder.path().join("state"));
        ran(log(folder.path(), &["monitor", "--log", at, "--state", state.to_str().unwrap()]))
    };
    look().code(0).shows("4, 1 of them new");
    let path = at.join("tile/0/000.p/4");
    let bytes = std::fs::read(&path).unwrap();
    for place in 0..bytes.len() {
        let mut edited = bytes.clone();
        edited[place] ^= 0x10;
        std::fs::write(&path, &edited).unwrap();
        // The hash of the new entry is not read: it is computed from the entry.
        look().code(if place < 96 { 51 } else { 0 });
    }
    std::fs::write(&path, &bytes[..127]).unwrap();
    look().code(51).says("(tile_bytes)");
    std::fs::remove_file(&path).unwrap();
    look().code(51).says("tile/0/000.p/4");
}
