//! What results look like: tables that fit, colours where they are wanted, expressions.

use insta::assert_snapshot;

use super::{Shell, shown};
use crate::harness::{Ran, TestServer};

#[test]
fn tables_fit_the_width_and_lose_nothing_in_a_pipe() {
    let server = TestServer::start();
    let organization = server.demo();
    organization.buyer("a-buyer-with-a-name-that-is-rather-long").ask(40);
    let shell = Shell::new(&server, &organization);
    let list = |width: Option<&str>| {
        let mut command = shell.command(&["decision", "list"]);
        shown(&Ran::from(command.envs(width.map(|width| ("COLUMNS", width))).output().unwrap()).code(0).out)
    };
    for width in [60_usize, 80, 100] {
        let table = list(Some(&width.to_string()));
        assert!(table.lines().all(|line| line.chars().count() <= width), "{table}");
        assert!(table.lines().count() == 2 && table.contains("dec_*"), "{table}");
    }
    assert_snapshot!("80-columns", list(Some("80")));
    assert_snapshot!("a-pipe", list(None));
}

#[test]
fn colour_is_used_only_where_it_is_wanted() {
    let server = TestServer::start();
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    let coloured = |more: &[&str], variables: &[(&str, &str)]| {
        let mut command = shell.command(&[&["enforcement", "get"], more].concat());
        command.env("TERM", "xterm").envs(variables.iter().copied());
        Ran::from(command.output().unwrap()).code(0).out.contains('\u{1b}')
    };
    assert!(!coloured(&[], &[]));
    assert!(coloured(&[], &[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[], &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]));
    assert!(coloured(&["--color", "always"], &[("NO_COLOR", "1")]));
    assert!(!coloured(&["--color", "never"], &[("CLICOLOR_FORCE", "1")]));
}

#[test]
fn what_cannot_be_printed_is_refused_before_anything_is_sent() {
    let server = TestServer::start();
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    for args in [["--jq", ".["], ["--jq", "nonsense"], ["--json", "--format=table"]] {
        shell.run(&[&["agent", "create", "buyer"], &args[..]].concat()).code(2);
    }
    assert_eq!(shell.get(&["agent", "list", "--json"]), "[]");
}
