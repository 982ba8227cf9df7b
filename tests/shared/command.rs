//! A run of a binary: the command in an empty environment, and its exit code and output.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The path of a binary of this workspace: in the folder of this one.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let path = here.parent().and_then(|deps| deps.parent()).unwrap().join(name);
    assert!(
        path.exists(),
        "{} is not there: run tests/run, or first `cargo build --workspace --bins`",
        path.display()
    );
    path
}

/// The folder of the programs of the log's foreign clients, Python among them, that `tests/run` has installed. None, which is said,
/// where no Python is new enough for them.
#[must_use]
pub fn log_strangers() -> Option<PathBuf> {
    let here = std::env::current_exe().unwrap();
    let place = here.ancestors().nth(3).unwrap().join("strangers/tlog");
    if place.join("none").exists() {
        println!("There is no Python from 3.12 on: aics-tlog and aics-witness are not tried");
        return None;
    }
    let programs = place.join("bin");
    assert!(
        programs.join("aics-witness").exists(),
        "{} is missing: tests/run installs it",
        programs.display()
    );
    Some(programs)
}

/// A command in an empty environment, without standard input.
#[must_use]
pub fn command(program: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.env_clear().args(args).stdin(Stdio::null());
    command
}

/// The result of a run.
#[derive(Debug)]
pub struct Ran {
    /// The exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

#[expect(clippy::return_self_not_must_use, reason = "an assertion may end its chain")]
impl Ran {
    /// Runs the command with `text` on standard input.
    pub fn with_stdin(command: &mut Command, text: &[u8]) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // Its output is read meanwhile: otherwise both could wait for each other.
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A command that refuses its arguments reads nothing; its exit code shows that.
                let _ = stdin.write_all(text);
            });
            child.wait_with_output().unwrap().into()
        })
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Asserts that standard error contains `text`.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.err.contains(text), "{text:?} is not in {self:#?}");
        self
    }

    /// Asserts that standard output contains `text`.
    #[track_caller]
    pub fn shows(self, text: &str) -> Self {
        assert!(self.out.contains(text), "{text:?} is not in {self:#?}");
        self
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
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
