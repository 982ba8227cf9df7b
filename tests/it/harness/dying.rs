//! Processes that kill themselves behind one of their system calls that change a file or send to a socket.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use mandate_tests::campaign::{Numbers, scale};
use tempfile::TempDir;

use super::command::{binary, library};

const DYING: &str = include_str!("../disk/dying.c");
/// From this scale on, processes are killed behind each of these calls; below it, behind some.
const EACH: u32 = 10;
/// How many are tried at a time.
const AT_A_TIME: usize = 4;

/// Starts processes that die.
pub(crate) struct Dying {
    folder: TempDir,
    library: PathBuf,
}

impl Dying {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = library(folder.path(), DYING);
        Self { folder, library }
    }

    /// An operator's command that dies behind this call, from 1; behind none for 0, and its calls are kept then.
    pub(crate) fn command(&self, args: &[&str], after: usize) -> Command {
        let mut command = Command::new("/usr/bin/env");
        let variables = self.environment(after, None);
        command.env_clear().args(variables.map(|(name, value)| format!("{name}={}", value.display())));
        command.arg(binary("mandate-server")).args(args);
        command
    }

    /// What such a process is started with. Calls count from when this file is there.
    pub(crate) fn environment(&self, after: usize, from: Option<&Path>) -> [(&'static str, PathBuf); 4] {
        let _ = (after == 0).then(|| fs::remove_file(self.log()));
        let log = if after == 0 { self.log() } else { PathBuf::from("/dev/null") };
        [
            ("LD_PRELOAD", self.library.clone()),
            ("DYING_AFTER", after.to_string().into()),
            ("DYING_FROM", from.unwrap_or(Path::new("/")).to_owned()),
            ("DYING_LOG", log),
        ]
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("calls")
    }

    /// The calls of the process that was to die behind none: a letter for each.
    pub(crate) fn calls(&self) -> Vec<u8> {
        fs::read(self.log()).unwrap()
    }
}

/// The places to kill a process at that makes these calls. Below the scale for each call, at most so many: where the calls
/// differ, and some within long runs of writes. In the order of the calls.
pub(crate) fn places(calls: &[u8], most: usize, numbers: &mut Numbers) -> Vec<usize> {
    assert!(calls.len() > 10, "only {} calls change anything", calls.len());
    let within = |at: usize| {
        let around = at.checked_sub(1).and_then(|before| calls.get(before..at + 2));
        around.is_some_and(|around| around == b"www" || around == b"nnn")
    };
    let all = 0..calls.len();
    let chosen = all.filter(|&at| scale() >= EACH || !within(at) || numbers.below(8) == 0);
    let mut places: Vec<_> = chosen.map(|at| at + 1).collect();
    while scale() < EACH && places.len() > most {
        // The last one stays: what is killed there had ended.
        places.remove(numbers.below(places.len() - 1));
    }
    println!("{} calls, killed behind {}", calls.len(), places.len());
    places
}

/// Tries each place, some at a time.
pub(crate) fn try_each(places: Vec<usize>, one: impl Fn(usize) + Sync) {
    let left = Mutex::new(places.into_iter());
    let next = || left.lock().unwrap().next();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(place) = next() {
                    one(place);
                }
            });
        }
    });
}
