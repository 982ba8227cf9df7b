//! What results look like: tables that fit, colours where they are wanted, expressions.

use insta::assert_snapshot;

use super::{Shell, shown};
use crate::harness::{Ran, TestServer};

#[test]
fn tables_keep_who_pays_whom_how_much_what_and_when() {
    let server = TestServer::start();
    let organization = server.demo();
    organization.buyer("a-buyer-with-a-name-that-is-long").ask(40);
    organization.buyer("buyer").ask(900);
    let shell = Shell::new(&server, &organization);
    let ids = shell.get(&["decision", "list", "--jq", ".[].jti"]);
    let list = |width: Option<usize>, more: &[&str]| {
        let mut command = shell.command(&[&["decision", "list"], more].concat());
        command.envs(width.map(|width| ("COLUMNS", width.to_string())));
        Ran::from(command.output().unwrap()).code(0)
    };
    let short: Vec<&str> = ids.lines().map(|id| &id[..14]).collect();
    let table = |width| {
        let ran = list(Some(width), &[]);
        assert!(ran.out.lines().all(|line| line.chars().count() <= width), "{}", ran.out);
        for (part, label) in
            [("buyer ", "AGENT"), ("acme ", "RECIPIENT"), ("900 USD", "AMOUNT"), ("deny_l", "VERDICT")]
        {
            assert!(ran.out.contains(part) && ran.out.contains(label), "{part} at {width}:\n{}", ran.out);
        }
        // No name is cut while a column is shown that is less needed.
        assert!(!ran.out.contains('…') || ran.err.contains("DECISION, CATEGORY;"), "at {width}:\n{ran:?}");
        assert_eq!(ran.out.matches(" s ago").count(), 2, "when, at {width}:\n{}", ran.out);
        let seconds = regex::Regex::new(r"\d+ s ago").unwrap();
        let shown = seconds.replace_all(&ran.out, "* s ago").replace(short[0], "dec_000000000a");
        shown.replace(short[1], "dec_000000000b") + &ran.err
    };
    for width in [60, 80, 120] {
        assert_snapshot!(format!("{width}-columns"), table(width));
    }
    assert_snapshot!("a-pipe", shown(&list(None, &[]).out));
    assert!(list(Some(120), &["--time", "full"]).out.contains(".000Z"));
    assert!(list(None, &["--time", "relative"]).out.contains(" s ago"));
    let json = list(Some(60), &["--json=jti,decided_at"]);
    assert!(
        json.out.contains(ids.lines().next().unwrap()) && json.out.contains('Z') && json.err.is_empty(),
        "{json:?}"
    );
}

#[test]
fn no_table_is_wider_than_its_terminal() {
    let server = TestServer::start();
    let organization = server.demo();
    let buyer = organization.buyer("a-buyer-with-a-name-that-is-rather-long");
    let decision = buyer.ask(40).text("/decision");
    buyer.ask(210);
    let shell = Shell::new(&server, &organization);
    let when = "2999-01-01T00:00:00Z";
    shell.get(&["escrow", "create", &decision, "--condition", "goods received", "--refund-after", when]);
    shell.get(&[
        "webhook",
        "create",
        "http://127.0.0.1:9/hooks/with/a/path/that/is/rather/long",
        "--all-events",
    ]);
    for list in ["agent", "mandate", "decision", "review", "event", "escrow", "webhook"]
        .map(|noun| vec![noun, "list"])
        .into_iter()
        .chain([vec!["usage"]])
    {
        for width in [40_usize, 60, 80] {
            let ran =
                Ran::from(shell.command(&list).env("COLUMNS", width.to_string()).output().unwrap()).code(0);
            assert!(ran.out.lines().all(|line| line.chars().count() <= width), "{list:?}:\n{}", ran.out);
            // Nothing is cut or hidden without a sign.
            let columns = shell
                .run(&list)
                .code(0)
                .out
                .lines()
                .next()
                .unwrap()
                .split("  ")
                .filter(|label| !label.is_empty())
                .count();
            let shown = ran.out.lines().next().unwrap().split("  ").filter(|label| !label.is_empty()).count();
            assert_eq!(shown < columns, ran.err.contains("note: hidden at "), "{list:?} at {width}: {ran:?}");
        }
    }
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
