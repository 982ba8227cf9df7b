//! The binaries under test.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use mandate_tests::Ran;
pub(crate) use mandate_tests::command::binary;
use mandate_tests::command::command;

/// The `mandate` command, with an empty environment.
pub(crate) fn mandate(args: &[&str]) -> Command {
    command(&binary("mandate"), args)
}

/// Compiles a library that is loaded before the C library.
pub(crate) fn library(folder: &Path, source: &str) -> PathBuf {
    let (text, library) = (folder.join("library.c"), folder.join("library.so"));
    std::fs::write(&text, source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(&text).arg("-ldl");
    assert!(cc.status().expect("a C compiler is there: apt-get install gcc libc6-dev").success());
    library
}
