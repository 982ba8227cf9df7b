//! The binaries, and what a run of one left behind.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Asserts that the run ended with `code`.
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// What was written to standard output, which is JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The path of a binary of this workspace: it stands where cargo has put this one.
pub(crate) fn binary(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let path = here.parent().and_then(|deps| deps.parent()).unwrap().join(name);
    assert!(
        path.exists(),
        "{} is not there: run tests/run, or first `cargo build --workspace --bins`",
        path.display()
    );
    path
}

/// The `mandate` command, with an empty environment.
pub(crate) fn mandate(args: &[&str]) -> Command {
    let mut command = Command::new(binary("mandate"));
    command.env_clear().args(args).stdin(Stdio::null());
    command
}
