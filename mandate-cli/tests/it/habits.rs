//! What every command does alike: help, version, colour, pipes that close.

use std::fs::File;
use std::process::Stdio;

use crate::harness::{Ran, mandate, run};

const TOKEN: &str = "e30.e30.AA";

#[test]
fn help_has_examples_and_version_a_number() {
    for command in [
        vec![],
        vec!["verify"],
        vec!["inspect"],
        vec!["agent", "create"],
        vec!["mandate", "create"],
        vec!["mandate", "revoke"],
        vec!["authorize"],
    ] {
        let args: Vec<&str> = command.into_iter().chain(["--help"]).collect();
        run(&args).code(0).shows("Examples:\n  mandate ");
    }
    assert_eq!(run(&["--version"]).code(0).out, format!("mandate {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn usage_errors_are_2_and_on_standard_error() {
    for args in
        [vec![], vec!["nonsense"], vec!["inspect"], vec!["authorize", "40"], vec!["mandate", "create"]]
    {
        assert_eq!(run(&args).code(2).out, "", "{args:?}");
    }
}

#[test]
fn a_pipe_has_no_colour_unless_it_is_asked_for() {
    assert!(!run(&["inspect", TOKEN]).code(0).out.contains('\u{1b}'));
    let coloured = |more: &[(&str, &str)]| {
        let mut command = mandate(&["inspect", TOKEN]);
        command.envs([("CLICOLOR_FORCE", "1"), ("TERM", "xterm")]).envs(more.iter().copied());
        Ran::from(command.output().unwrap()).code(0).out.contains('\u{1b}')
    };
    assert!(coloured(&[]));
    assert!(!coloured(&[("NO_COLOR", "1")]));
    assert!(!run(&["inspect", "a"]).code(10).err.contains('\u{1b}'));
}

#[test]
fn a_pipe_that_closes_early_ends_the_command_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = mandate(&["inspect", TOKEN]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn output_that_is_lost_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ran: Ran = mandate(&["inspect", TOKEN]).stdout(full).stderr(Stdio::piped()).output().unwrap().into();
    ran.code(3).says("standard output cannot be written");
}
