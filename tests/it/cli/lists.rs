//! Lists: limits, whole walks, and streams that miss nothing.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::slice;

use super::Shell;
use crate::harness::{DEADLINE, TestServer, terms};

#[test]
fn limits_and_whole_walks_give_each_object_once() {
    let server = TestServer::start();
    let organization = server.demo();
    for n in 0..103 {
        organization.agent(&format!("a{n:03}"));
    }
    let shell = Shell::new(&server, &organization);
    let ids = |more: &[&str]| -> Vec<String> {
        let args = [&["agent", "list", "--format", "ndjson", "--jq", ".id"], more].concat();
        shell.get(&args).lines().map(str::to_owned).collect()
    };
    let newest: Vec<String> = (0..103).rev().map(|n| format!("agt_a{n:03}")).collect();
    assert_eq!(ids(&["--all"]), newest);
    assert_eq!(ids(&["--limit", "101"]), newest[..101]);
    assert_eq!(ids(&[]), newest[..20]);
    let array: Vec<serde_json::Value> =
        serde_json::from_str(&shell.get(&["agent", "list", "--all", "--json"])).unwrap();
    assert_eq!(array.len(), 103);
    let table = shell.run(&["agent", "list", "--all"]).code(0);
    assert_eq!((table.out.lines().count(), table.err.as_str()), (104, ""), "one head above all pages");
    assert!(shell.run(&["agent", "list"]).code(0).err.contains("--all"));
    assert_eq!(shell.get(&["mandate", "list", "--json"]), "[]");
}

#[test]
fn filters_choose_mandates_and_escrows() {
    let server = TestServer::start();
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    let [one, two] = &["one", "two"].map(|name| organization.mandate(&terms(&organization.agent(name).id)));
    let lines = |args: &[&str]| shell.get(args).lines().map(str::to_owned).collect::<Vec<_>>();

    let mandates =
        |more: &[&str]| lines(&[&["mandate", "list", "--format", "ndjson", "--jq", ".id"], more].concat());
    assert_eq!(mandates(&[]), [two.clone(), one.clone()]);
    assert_eq!(mandates(&["--agent", "one"]), slice::from_ref(one));
    shell.get(&["mandate", "revoke", one, "--jq", ".id"]);
    assert_eq!(mandates(&["--status", "active"]), slice::from_ref(two));
    assert_eq!(mandates(&["--status", "revoked", "--agent", "agt_one"]), slice::from_ref(one));
    assert!(mandates(&["--status", "revoked", "--agent", "two"]).is_empty());
    shell.run(&["mandate", "list", "--status", "gone"]).code(2);
    for args in
        [&["agent", "list"][..], &["agent", "show", "two"], &["whoami"], &["api", "get", "/enforcement"]]
    {
        for more in [&["--json=nosuch"][..], &["--json=nosuch", "--jq", "."]] {
            let ran = shell.run(&[args, more].concat()).code(2);
            assert_eq!(ran.out, "", "{args:?}");
            assert!(
                ran.err.contains("there is no field `nosuch`") && ran.err.contains("  fields "),
                "{ran:?}"
            );
        }
    }
    // What is made here, what is empty, and what would be created.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mandate.json");
    std::fs::write(&file, terms("agt_one").to_string()).unwrap();
    let file = file.to_str().unwrap();
    for args in [
        &["doctor"][..],
        &["version"],
        &["mandate", "lint", file],
        &["webhook", "list"],
        &["agent", "create", "never"],
        &["stop", "--agent", "one"],
        &["verify", "a.b.c", "--issuer", "http://127.0.0.1:9"],
    ] {
        let ran = shell.run(&[args, &["--json=nosuch"]].concat()).code(2);
        assert!(ran.out.is_empty() && ran.err.contains("there is no field `nosuch`"), "{args:?}: {ran:?}");
    }
    assert!(!shell.get(&["agent", "list", "--jq", ".[].id"]).contains("never"), "nothing was created");
    let absent = shell.get(&["mandate", "show", two, "--json=revoked_at,limits.currency"]);
    assert_eq!(absent, r#"{"revoked_at":null,"limits.currency":"USD"}"#);
    for noun in [&["decision", "list"][..], &["decision", "tail"], &["mandate", "list"]] {
        let ran = shell.run(&[noun, &["--agent", "nosuch"]].concat()).code(33);
        assert!(ran.err.contains("there is no agent agt_nosuch"), "{ran:?}");
        shell.get(&[noun, &["--agent", "two", "--json"]].concat());
    }
    assert_eq!(&shell.get(&["agent", "show", "one", "--jq", ".mandate"]), one, "revoked or not, it governs");
    assert!(shell.get(&["agent", "show", "one"]).contains(one.as_str()));

    let decision = organization.buyer("three").ask(40).text("/decision");
    let open =
        ["escrow", "create", &decision, "--condition", "goods", "--refund-after", "2999-01-01T00:00:00Z"];
    let escrow = shell.get(&[&open[..], &["--jq", ".escrow"]].concat());
    let escrows =
        |state: &str| lines(&["escrow", "list", "--state", state, "--format", "ndjson", "--jq", ".escrow"]);
    assert_eq!((escrows("funded"), escrows("delivered")), (vec![escrow], vec![]));
}

#[test]
fn a_line_ends_for_every_reader_where_its_object_does() {
    const TEXT: &str = "one\u{2028}two\u{2029}three";
    let server = TestServer::start();
    let organization = server.demo();
    let buyer = organization.buyer("buyer");
    let review = buyer.ask(210).text("/review/id");
    let body = serde_json::json!({ "reason": TEXT });
    assert_eq!(organization.client.post(&format!("/reviews/{review}/deny"), &body).status, 200);
    let shell = Shell::new(&server, &organization);
    let decision = buyer.ask(40).text("/decision");
    let open = ["escrow", "create", &decision, "--condition", TEXT, "--refund-after", "2999-01-01T00:00:00Z"];
    shell.get(&open);
    for (noun, place) in
        [("decision", "/review/reason"), ("escrow", "/condition"), ("event", "/data/review/reason")]
    {
        for more in [&[][..], &["--jq", "."]] {
            let args = [&[noun, "list", "--format", "ndjson"], more].concat();
            let printed = shell.run(&args).code(0).out;
            assert!(!printed.contains(['\u{2028}', '\u{2029}']), "{printed}");
            let mut objects =
                printed.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
            assert!(
                objects.any(|object| object.pointer(place).is_some_and(|text| text == TEXT)),
                "{printed}"
            );
        }
    }
}

#[test]
fn following_shows_what_comes_in_order_and_once() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    let before = agent.ask(1).text("/decision");
    let shell = Shell::new(&server, &organization);
    let args = ["decision", "tail", "--follow", "--interval", "0.05", "--jq", ".jti"];
    let mut child = shell.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_ref(), Some(&before));
    let made: Vec<String> = (0..7).map(|_| agent.ask(2).text("/decision")).collect();
    let shown: Vec<String> = lines.by_ref().take(7).collect();
    assert_eq!(shown, made);
    // A reader that stops ends it quietly, although there is more output.
    drop(lines);
    agent.ask(3);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn following_ends_with_its_reader_though_nothing_comes() {
    let server = TestServer::start();
    let organization = server.demo();
    organization.buyer("buyer").ask(1);
    let shell = Shell::new(&server, &organization);
    let args = ["decision", "tail", "--follow", "--interval", "0.05"];
    let mut child = shell.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("dec_"), "{first}");
    let deadline = std::time::Instant::now() + DEADLINE;
    let code = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code();
        }
        if std::time::Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it goes on");
        }
        std::thread::yield_now();
    };
    assert_eq!(code, Some(0));
}
