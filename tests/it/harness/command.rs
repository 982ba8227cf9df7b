//! The binaries under test.

use std::path::PathBuf;
use std::process::Command;

pub(crate) use mandate_tests::Ran;
use mandate_tests::command::command;

/// The path of a binary of this workspace: in the folder of this one.
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
    command(&binary("mandate"), args)
}
