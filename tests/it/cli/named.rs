//! How objects are named: by the beginning of an id, by a choice at a terminal; and what a pager shows.

use std::process::Command;

use super::Shell;
use super::queue::{DOWN, Terminal};
use crate::harness::{Organization, Ran, TestServer, mandate};

/// At a terminal, with a pager.
fn paged(server: &TestServer, organization: &Organization, pager: &str, args: &[&str]) -> Terminal {
    let variables = [
        ("MANDATE_BASE_URL", server.ready("base_url")),
        ("MANDATE_ORGANIZATION_KEY", organization.client.key()),
        ("PAGER", pager),
    ];
    Terminal::with(args, &variables)
}

#[test]
fn the_beginning_of_an_id_names_what_is_the_only_one_of_all() {
    let server = TestServer::start();
    let organization = server.demo();
    let buyer = organization.buyer("buyer");
    let decisions: Vec<String> = (1..=3).map(|n| buyer.ask(n).text("/decision")).collect();
    let shell = Shell::new(&server, &organization);
    for id in &decisions {
        let alike = decisions.iter().filter(|other| other[..14] == id[..14]).count();
        let ran = shell.run(&["decision", "show", &id[..14], "--jq", ".jti"]);
        if alike == 1 {
            assert_eq!(ran.code(0).out.trim(), id);
        } else {
            assert!(ran.code(2).err.contains("several ids begin"), "{alike}");
        }
        assert_eq!(shell.get(&["decision", "show", &id[..29], "--jq", ".jti"]), *id);
    }
    let other = if &decisions[0][4..14] == "01hf7yat00" { "dec_01hf7yat01" } else { "dec_01hf7yat00" };
    assert!(shell.run(&["decision", "show", other]).code(33).err.contains("no decision whose id begins"));
    assert!(
        shell.run(&["decision", "show", &decisions[0][..13]]).code(2).err.contains("first 14 characters")
    );
    // Two that begin alike, whatever page they are on: refused, and named.
    let [first, .., last] = &decisions[..] else { panic!() };
    let common = first.chars().zip(last.chars()).take_while(|(a, b)| a == b).count();
    if common >= 14 {
        let refused = shell.run(&["decision", "show", &first[..common]]).code(2);
        assert!(refused.err.contains(last.as_str()), "{refused:?}");
    }
    let mandate = organization.client.get("/mandates").text("/data/0/id");
    assert_eq!(shell.get(&["mandate", "show", &mandate[..20], "--jq", ".id"]), mandate);
    let event = shell.get(&["event", "list", "--jq", ".[0].event // empty"]);
    assert!(event.is_empty() || shell.get(&["event", "show", &event[..20], "--jq", ".event"]) == event);
}

#[test]
fn a_change_wants_the_whole_id_unless_a_person_is_there() {
    let server = TestServer::start();
    let organization = server.demo();
    let buyer = organization.buyer("buyer");
    let (first, second) = (buyer.ask(300).text("/review/id"), buyer.ask(301).text("/review/id"));
    let mandate = organization.client.get("/mandates").text("/data/0/id");
    let shell = Shell::new(&server, &organization);
    for args in [
        ["review", "approve", &first[..20]],
        ["review", "deny", &first[..20]],
        ["mandate", "revoke", &mandate[..20]],
    ] {
        let refused = shell.run(&args).code(2);
        assert!(refused.err.contains("is not a whole id") && refused.err.contains("nothing"), "{refused:?}");
    }
    assert_eq!(organization.client.get("/mandates").text("/data/0/status"), "active");
    let mut terminal =
        Terminal::start(&server, organization.client.key(), &["review", "approve", &first[..20]]);
    let screen = terminal.shows(|screen| screen.contains("verdict      allow"));
    assert!(screen.replace('\n', "").contains(&format!("is {first}")), "{screen}");
    assert_eq!(terminal.end(), 0);
    // A review that was resolved is one of all, too: it is found, and refused as such.
    let mut terminal = Terminal::start(&server, organization.client.key(), &["review", "deny", &first[..20]]);
    assert_eq!(terminal.end(), 30);
    let pending = shell.get(&["review", "list", "--jq", ".[].review.id"]);
    assert_eq!(pending, second);
}

#[test]
fn what_is_not_named_is_chosen_at_a_terminal() {
    let server = TestServer::start();
    let organization = server.demo();
    let buyer = organization.buyer("buyer");
    let (first, second) = (buyer.ask(300).text("/review/id"), buyer.ask(301).text("/review/id"));
    let shell = Shell::new(&server, &organization);
    for noun in ["decision", "mandate", "agent"] {
        let refused = shell.run(&[noun, "show"]).code(2);
        assert!(refused.err.contains(&format!("the {noun} is not named")), "{refused:?}");
        assert!(refused.err.contains(&format!("mandate {noun} list")), "{refused:?}");
    }
    shell.run(&["review", "approve"]).code(2);
    let mut terminal = Terminal::start(&server, organization.client.key(), &["review", "deny"]);
    terminal.shows(|screen| {
        screen.contains("Which review?") && screen.contains("300 USD") && screen.contains("301 USD")
    });
    // The newest comes first.
    terminal.press(DOWN);
    terminal.press("\r");
    assert_eq!(terminal.end(), 0);
    assert_eq!(shell.get(&["review", "list", "--jq", ".[].review.id"]), second);
    let mut terminal = Terminal::start(&server, organization.client.key(), &["review", "approve"]);
    terminal.shows(|screen| screen.contains("Which review?") && !screen.contains("300 USD"));
    terminal.press("\u{1b}");
    assert_eq!(terminal.end(), 4, "cancelled");
    assert_ne!(first, second);

    organization.agent("idle");
    let mut terminal = Terminal::start(&server, organization.client.key(), &["stop"]);
    terminal.shows(|screen| screen.contains("Which agent?") && screen.contains("idle"));
    terminal.press("buyer\r");
    assert_eq!(terminal.end(), 0);
    assert_eq!(buyer.ask(40).text("/verdict"), "deny_revoked");
}

#[test]
fn a_profile_is_chosen_at_a_terminal() {
    let (server, home) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let login = |name: &str, key: &str| {
        let file = home.path().join("key");
        std::fs::write(&file, key).unwrap();
        let mut command = mandate(&["login", name, "--base-url", server.ready("base_url"), "--key-file"]);
        Ran::from(command.arg(&file).env("MANDATE_CONFIG_DIR", home.path()).output().unwrap()).code(0);
    };
    login("one", organization.client.key());
    login("two", organization.live.key());
    let current = || {
        let mut command = mandate(&["profile", "list", "--jq", ".[] | select(.current).name"]);
        Ran::from(command.env("MANDATE_CONFIG_DIR", home.path()).output().unwrap()).code(0).out
    };
    assert_eq!(current(), "two\n");
    let folder = [("MANDATE_CONFIG_DIR", home.path().to_str().unwrap())];
    let mut terminal = Terminal::with(&["switch"], &folder);
    terminal.shows(|screen| screen.contains("Which profile?") && screen.contains("LIVE"));
    terminal.press("one\r");
    assert_eq!(terminal.end(), 0);
    assert_eq!(current(), "one\n");
    let mut alone = mandate(&["switch"]);
    let refused = Ran::from(alone.env("MANDATE_CONFIG_DIR", home.path()).output().unwrap()).code(2);
    assert!(refused.err.contains("the profile is not named"), "{refused:?}");
}

#[test]
fn an_escrow_is_chosen_at_a_terminal_and_its_state_is_not_taken_for_it() {
    let server = TestServer::start();
    let organization = server.demo();
    let buyer = organization.buyer("buyer");
    let shell = Shell::new(&server, &organization);
    let escrow = |amount: u32| {
        let decision = buyer.ask(amount).text("/decision");
        let open = ["escrow", "create", &decision, "--condition", "goods"];
        shell.get(&[&open[..], &["--refund-after", "2999-01-01T00:00:00Z", "--jq", ".escrow"]].concat())
    };
    let (first, second) = (escrow(40), escrow(41));
    let refused = shell.run(&["escrow", "transition", "delivered"]).code(2);
    assert!(refused.err.contains("the escrow is not named"), "{refused:?}");
    let args = ["escrow", "transition", "delivered"];
    let mut terminal = Terminal::start(&server, organization.client.key(), &args);
    terminal.shows(|screen| {
        screen.contains("Which escrow?") && screen.contains("40 USD") && screen.contains("41 USD")
    });
    terminal.press(DOWN);
    terminal.press("\r");
    assert_eq!(terminal.end(), 0);
    let state = |id: &str| shell.get(&["escrow", "show", id, "--jq", ".state"]);
    assert_eq!((state(&first), state(&second)), ("delivered".to_owned(), "funded".to_owned()));
}

#[test]
fn filters_take_the_beginning_of_an_id_and_refuse_what_is_not_there() {
    let server = TestServer::start();
    let organization = server.demo();
    organization.buyer("other").ask(1);
    let decision = organization.buyer("buyer").ask(40).text("/decision");
    let mandate_id = organization.client.get("/mandates").text("/data/0/id");
    let shell = Shell::new(&server, &organization);
    for id in [&mandate_id[..20], &mandate_id] {
        assert_eq!(shell.get(&["decision", "list", "--mandate", id, "--jq", ".[].jti"]), decision, "{id}");
    }
    assert_eq!(shell.get(&["decision", "tail", "--mandate", &mandate_id[..20], "--jq", ".jti"]), decision);
    let absent = "mnd_01hf7yat000000000000000007";
    for (args, said) in [
        (&["decision", "list", "--mandate", absent][..], "there is no mandate mnd_01hf7yat"),
        (&["decision", "list", "--mandate", &absent[..16]], "no mandate whose id begins"),
        (&["export", "create", "--agent", "nosuch"], "there is no agent agt_nosuch"),
        (&["stop", "--agent", "nosuch"], "there is no agent agt_nosuch"),
    ] {
        let refused = shell.run(args).code(33);
        assert!(refused.err.contains(said), "{args:?}: {refused:?}");
    }
}

#[test]
fn a_list_that_is_longer_than_the_screen_goes_to_a_pager() {
    let server = TestServer::start();
    let organization = server.demo();
    for n in 0..30 {
        organization.agent(&format!("a{n:02}"));
    }
    let list = ["agent", "list", "--all"];
    let mut terminal = paged(&server, &organization, "sed s/^/PAGED:/", &list);
    assert_eq!(terminal.end(), 0);
    assert_eq!(terminal.written().matches("PAGED:").count(), 31, "{}", terminal.written());
    // A short list, JSON, and where no pager is wanted or can be started.
    for (pager, args) in [
        ("sed s/^/PAGED:/", &["agent", "list", "--limit", "5"][..]),
        ("sed s/^/PAGED:/", &["agent", "list", "--all", "--format", "ndjson"]),
        ("cat", &list),
        ("", &list),
        ("/nonexistent/pager", &list),
    ] {
        let mut terminal = paged(&server, &organization, pager, args);
        assert_eq!(terminal.end(), 0);
        let written = terminal.written();
        assert!(!written.contains("PAGED:") && written.contains("a29"), "{pager} {args:?}: {written}");
        assert_eq!(written.contains("a00"), args.contains(&"--all"), "{written}");
    }
    // A person who leaves the pager early has read enough.
    let mut terminal = paged(&server, &organization, "head -n 2", &list);
    assert_eq!(terminal.end(), 0);
    assert!(terminal.written().contains("a29") && !terminal.written().contains("a00"));
}

/// What a shell offers for the last word of a line.
fn completed(shell: &Shell<'_>, words: &[&str]) -> String {
    let mut command = shell.command(&[]);
    command.env("MANDATE_COMPLETE", "fish").args(["--", "mandate"]).args(words);
    Ran::from(command.output().unwrap()).code(0).out
}

#[test]
fn shells_complete_ids_from_the_newest() {
    let server = TestServer::start();
    let organization = server.demo();
    let buyer = organization.buyer("buyer");
    let (decision, review) = (buyer.ask(40).text("/decision"), buyer.ask(300).text("/review/id"));
    let shell = Shell::new(&server, &organization);
    for (words, id, about) in [
        (["decision", "show", ""], &decision, "40 USD"),
        (["decision", "show", &decision[..10]], &decision, "vendor:acme"),
        (["review", "approve", ""], &review, "300 USD"),
        (["agent", "show", "agt_"], &buyer.id, ""),
    ] {
        let offered = completed(&shell, &words);
        assert!(
            offered.lines().any(|line| line.starts_with(id.as_str()) && line.contains(about)),
            "{words:?}: {offered}"
        );
    }
    let mandate_id = organization.client.get("/mandates").text("/data/0/id");
    let hook = serde_json::json!({"url": "http://127.0.0.1:9/", "events": ["ping"]});
    let webhook = organization.client.post("/webhooks", &hook).text("/webhook");
    let terms = ["--condition", "goods", "--refund-after", "2999-01-01T00:00:00Z", "--jq", ".escrow"];
    let escrow = shell.get(&[&["escrow", "create", &decision][..], &terms].concat());
    for (words, offered) in [
        (&["stop", "--agent", "agt_"][..], buyer.id.as_str()),
        (&["stop", "--agent", "buy"], "buyer"),
        (&["decision", "list", "--mandate", "mnd_"], &mandate_id),
        (&["decision", "list", "--verdict", "deny_l"], "deny_limit"),
        (&["decision", "list", "--verdict", "den"], "deny\t"),
        (&["export", "create", "--verdict", "deny_l"], "deny_limit"),
        (&["mandate", "template", "--agent", "agt_"], buyer.id.as_str()),
        (&["trigger", "ping", "--webhook", "whk_"], &webhook),
        (&["escrow", "transition", &mandate_id, "del"], "delivered"),
        (&["mandate", "diff", "mnd_"], &mandate_id),
        (&["mandate", "diff", "old.json", "mnd_"], &mandate_id),
        (&["open", "esc_"], &escrow),
        (&["open", "ref"], "reference"),
    ] {
        let found = completed(&shell, words);
        assert!(found.lines().any(|line| line.starts_with(offered)), "{words:?}: {found}");
    }
    assert!(!completed(&shell, &["decision", "show", "dec_7"]).contains("dec_"));
    assert!(completed(&shell, &["event", "list", "--type", "decision."]).contains("decision.review_pending"));
    assert!(completed(&shell, &["dec"]).contains("decision"));
    // Without a service nothing is offered, and nothing is said.
    let mut alone = mandate(&["--", "mandate", "decision", "show", ""]);
    let ran = Ran::from(alone.env("MANDATE_COMPLETE", "fish").output().unwrap()).code(0);
    assert!(!ran.out.contains("dec_") && ran.err.is_empty(), "{ran:?}");
}

#[test]
fn pages_are_opened_in_the_browser_and_named_in_a_pipe() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    let issuer = server.ready("verdicts_url");
    let open = |page: &str| shell.get(&["open", page, "--issuer", issuer]);
    let decision = organization.buyer("buyer").ask(40).text("/decision");
    let args =
        ["escrow", "create", &decision, "--condition", "goods", "--refund-after", "2999-01-01T00:00:00Z"];
    let escrow = shell.get(&[&args[..], &["--jq", ".escrow"]].concat());
    for page in ["home", "reference", "contract", "verify", escrow.as_str()] {
        let url = open(page);
        assert!(url.starts_with(issuer), "{url}");
        let fetched = Command::new("curl")
            .args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", &url])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&fetched.stdout), "200", "{url}");
    }
    assert!(open("log").ends_with("/log"));
    let led = Command::new("curl")
        .args(["-sS", "-w", "%{http_code} %{redirect_url}", &open("console")])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&led.stdout), format!("307 {}/", server.ready("console_url")));
    assert_eq!(
        shell.get(&["open", "verify", "--issuer", issuer, "--jq", ".url"]),
        format!("{issuer}/verify")
    );
    assert!(
        shell
            .run(&["open", "nosuch", "--issuer", issuer])
            .code(2)
            .err
            .contains("home, reference, contract, verify, console, log")
    );
    assert!(shell.run(&["open"]).code(2).err.contains("the issuer"));

    let (browser, opened) = (folder.path().join("browser"), folder.path().join("opened"));
    std::fs::write(
        &browser,
        format!("#!/bin/sh\necho \"$@\" > {}.part && mv {0}.part {0}\n", opened.display()),
    )
    .unwrap();
    std::fs::set_permissions(&browser, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    for (more, starts) in [(&["--print"][..], false), (&[], true)] {
        let args = [&["open", "verify", "--issuer", issuer], more].concat();
        let mut terminal =
            Terminal::with(&args, &[("BROWSER", browser.to_str().unwrap()), ("PATH", "/usr/bin:/bin")]);
        assert_eq!(terminal.end(), 0);
        assert!(terminal.written().contains("/verify"));
        let deadline = std::time::Instant::now() + crate::harness::DEADLINE;
        while starts && !opened.exists() {
            assert!(std::time::Instant::now() < deadline, "no browser was started");
            std::thread::yield_now();
        }
        assert_eq!(opened.exists(), starts);
    }
    assert_eq!(std::fs::read_to_string(&opened).unwrap().trim(), format!("{issuer}/verify"));
    let mut terminal =
        Terminal::with(&["open", "verify", "--issuer", issuer], &[("BROWSER", "/nonexistent")]);
    assert_eq!(terminal.end(), 0);
    assert!(terminal.written().contains("no browser could be started"));
}
