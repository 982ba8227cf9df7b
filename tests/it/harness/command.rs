//! The binaries under test.

use std::process::Command;

pub(crate) use mandate_tests::Ran;
pub(crate) use mandate_tests::command::binary;
use mandate_tests::command::command;

/// The `mandate` command, with an empty environment.
pub(crate) fn mandate(args: &[&str]) -> Command {
    command(&binary("mandate"), args)
}
