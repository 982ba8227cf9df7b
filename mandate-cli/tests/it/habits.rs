//! What every command does alike: help, version, colour, pipes that close.

use std::fs::File;
use std::process::Stdio;

use crate::harness::{Ran, Service, agent_key, mandate, run};

const TOKEN: &str = "e30.e30.AA";

#[test]
fn help_has_examples_and_version_a_number() {
    for command in [
        vec![],
        vec!["verify"],
        vec!["inspect"],
        vec!["audit"],
        vec!["simulate"],
        vec!["report"],
        vec!["jwks", "show"],
        vec!["jwks", "pin"],
        vec!["jwks", "unpin"],
        vec!["jwks", "list"],
        vec!["agent", "create"],
        vec!["mandate", "create"],
        vec!["mandate", "revoke"],
        vec!["authorize"],
    ] {
        let args: Vec<&str> = command.into_iter().chain(["--help"]).collect();
        run(&args).code(0).shows("Examples:\n  mandate ");
    }
    let version = format!("mandate {} (commit ", env!("CARGO_PKG_VERSION"));
    let told = run(&["--version"]).code(0).out;
    assert!(told.starts_with(&version) && told.ends_with(")\n"), "{told}");
    assert_eq!(run(&["version"]).code(0).out, told);
    let json = run(&["version", "--json"]).code(0).json();
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    if let (Some(commit), Some(date)) = (json["commit"].as_str(), json["date"].as_str()) {
        assert!(told.contains(&format!("(commit {commit} of {date})")), "{told}");
        assert!(commit.len() >= 12 && date.len() == 10, "{told}");
    }
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
fn a_key_in_the_wrong_place_is_not_repeated() {
    let key = agent_key();
    let (secret, colour) = (&key[key.len() - 40..], [("CLICOLOR_FORCE", "1"), ("TERM", "xterm")]);
    let flag = format!("--{key}");
    for args in [vec![&*key], vec!["agent", "show", &key], vec!["inspect", &flag]] {
        for envs in [&[][..], &colour] {
            let ran = Ran::from(mandate(&args).envs(envs.iter().copied()).output().unwrap()).code(2);
            assert!(!ran.err.contains(secret) && !ran.out.contains(secret), "{ran:?}");
        }
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
    for shell in ["bash", "zsh", "fish"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = mandate(&["completions", shell]);
        let ran = Ran::from(command.stdout(writer).stderr(Stdio::piped()).output().unwrap()).code(0);
        assert_eq!(ran.err, "");
        run(&["completions", shell]).code(0).shows("mandate");
    }
}

#[test]
fn output_that_is_lost_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ran: Ran = mandate(&["inspect", TOKEN]).stdout(full).stderr(Stdio::piped()).output().unwrap().into();
    ran.code(3).says("standard output cannot be written");
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = mandate(&["completions", "bash"]);
    Ran::from(command.stdout(full).stderr(Stdio::piped()).output().unwrap()).code(3);
    for args in [&["--help"][..], &["--version"], &["decision", "list", "--help"], &["help", "verify"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ran = mandate(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        Ran::from(ran).code(3).says("standard output cannot be written");
    }
}

#[test]
fn a_misspelt_field_is_refused_before_anything_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = crate::issuer::jwks_file(folder.path());
    let (mandate_id, review) = ("mnd_00000000000000000000000001", "rev_00000000000000000000000001");
    let nowhere = "http://127.0.0.1:9";
    let witness_key = folder.path().join("witness.key").display().to_string();
    for (args, field) in [
        (&["apply", "plan.json"][..], "nosuch"),
        (&["plan", ".", "--out", "plan.json"], "nosuch"),
        (&["trigger", "ping"], "nosuch"),
        (&["login", "--base-url", "http://127.0.0.1:9/v1"], "nosuch"),
        (&["switch", "live"], "nosuch"),
        (&["logout"], "nosuch"),
        (&["jwks", "pin", crate::issuer::ISSUER, "--jwks", &jwks, "--trust-on-first-use"], "nosuch"),
        (&["export", "download", "exp_00000000000000000000000001"], "nosuch"),
        (&["webhook", "delete", "whk_00000000000000000000000001"], "url"),
        (&["replay", "-", "--forward-to", nowhere], "nosuch"),
        (&["listen", "--register", "--issuer", nowhere], "nosuch"),
        (&["agent", "create", "buyer"], "verdict"),
        (&["mandate", "revoke", mandate_id], "limits.nosuch"),
        (&["mandate", "revoke", mandate_id], "id.nosuch"),
        (&["review", "deny", review], "review.nosuch"),
        (&["api", "post", "/agents", "-f", "name=a"], "request.nosuch"),
        // Below a list or a text there is no field.
        (&["stop", "--agent", "buyer"], "stopped.agent"),
        (&["apply", "plan.json"], "done.agent"),
        (&["plan", ".", "--out", "plan.json"], "steps.agent"),
        (&["log", "key", "create", "w.example/w1", "-o", &witness_key], "key.x"),
        (&["log", "key", "pin", "--issuer", nowhere, "--trust-on-first-use"], "key.x"),
        (&["log", "checkpoint", "--issuer", nowhere], "log.x"),
        (&["log", "monitor", "--issuer", nowhere, "--state", "state"], "governing.x"),
        // Reading commands, too: a member of another kind of object would be shown as null.
        (&["decision", "list"], "nosuch"),
        (&["decision", "list"], "webhook"),
        (&["decision", "tail"], "deliveries"),
        (&["review", "list"], "terms"),
        (&["agent", "list"], "agent_key"),
        (&["mandate", "show", mandate_id], "verdict_token"),
        (&["escrow", "list"], "revoked_at"),
        (&["event", "show", "evt_00000000000000000000000001"], "sha256"),
        (&["webhook", "list"], "type"),
        // Nor what only another form of the command has.
        (&["event", "list"], "deliveries"),
        (&["event", "tail"], "data.per_month"),
        (&["verify", "e30.e30.AA", "--signature-only"], "claims.webhook"),
        (&["trigger", "ping"], "review.id"),
        (&["jwks", "show", crate::issuer::ISSUER], "pinned_at"),
        (&["profile", "list"], "mode"),
        (&["usage"], "settlement"),
        (&["enforcement", "get"], "month"),
        (&["whoami"], "id"),
        (&["doctor"], "summary"),
        (&["version"], "name"),
        (&["open", "log", "--issuer", nowhere], "id"),
        (&["drift", "."], "hash"),
        (&["inspect", TOKEN], "verdict"),
        (&["audit", "export.ndjson", "--issuer", nowhere], "totals"),
        (&["simulate", "--mandate", "mandate.json", "--decisions", "export.ndjson"], "finding"),
        (&["report", "export.ndjson", "--by", "person"], "totals"),
        (&["log", "checkpoint", "--issuer", nowhere], "evidence"),
    ] {
        let mut command = mandate(args);
        command.env("MANDATE_BASE_URL", "http://127.0.0.1:9/v1");
        command.env("MANDATE_ORGANIZATION_KEY", crate::harness::organization_key());
        command.env("MANDATE_CONFIG_DIR", folder.path().join("config"));
        let ran = Ran::from(command.arg(format!("--json={field}")).output().unwrap()).code(2);
        let ran = ran.says(&format!("there is no field `{field}`")).says("  fields ");
        assert_eq!(ran.out, "", "{args:?}");
    }
    assert!(!folder.path().join("config").exists(), "no key was pinned, and no profile kept");
    assert!(!folder.path().join("witness.key").exists(), "no key was made");
}

#[test]
fn the_fields_of_a_list_are_known_when_it_is_empty_too() {
    let folder = tempfile::tempdir().unwrap();
    let said = |args: &[&str]| {
        let mut command = mandate(args);
        Ran::from(command.env("MANDATE_CONFIG_DIR", folder.path()).output().unwrap())
    };
    for (list, field) in [
        (&["profile", "list"][..], "base_url"),
        (&["jwks", "list"], "keys"),
        (&["mandate", "template", "--explain"], "meaning"),
    ] {
        let option = format!("--json={field}");
        let chosen = said(&[list, &[option.as_str()]].concat()).code(0).json();
        let entries = chosen.as_array().unwrap();
        assert!(entries.iter().all(|entry| entry[field].is_string()), "{list:?}: {chosen}");
        assert_eq!(entries.is_empty(), list.len() == 2, "{list:?}: {chosen}");
        said(&[list, &["--json=nosuch"]].concat()).code(2).says("there is no field `nosuch`");
    }
}

#[test]
fn a_field_without_its_equals_sign_gets_a_tip() {
    for args in [
        &["decision", "list", "--json", "id"][..],
        &["whoami", "--json", "id"],
        &["agent", "create", "a", "--json", "id"],
        &["mandate", "show", "--json", "id"],
    ] {
        let ran = run(args).code(2).says("join them with an equals sign: '--json=id'");
        assert_eq!(ran.err.matches("tip").count(), 1, "{}", ran.err);
    }
    assert!(!run(&["decision", "list", "id"]).code(2).err.contains("--json=id"));
    // Where it would be taken for an argument: the name of an agent that is created, a file, a token.
    for args in [
        &["agent", "create", "--json", "id"][..],
        &["agent", "show", "--json", "id,created_at"],
        &["audit", "export.ndjson", "--json", "summary"],
        &["verify", "--json", "claims,error.check", "--issuer", "https://verdicts.example.com"],
        &["api", "get", "--json", "data"],
    ] {
        let at = args.iter().position(|word| *word == "--json").unwrap();
        run(args).code(2).says(&format!("with an equals sign: '--json={}'", args[at + 1]));
    }
    // What is no field is an argument, and the words of the command come first.
    for args in [
        &["inspect", "--json", TOKEN][..],
        &["--json", "mandate", "lint", "nosuch.json"],
        &["mandate", "lint", "--json", "mandate.json"],
        &["report", "--json", "export.ndjson"],
    ] {
        assert!(!run(args).err.contains("equals sign"), "{args:?}");
    }
}

#[test]
fn what_people_type_first_gets_the_way_to_it() {
    let said = |args: &[&str]| {
        let mut command = mandate(args);
        command.env("MANDATE_BASE_URL", "http://127.0.0.1:9/v1");
        Ran::from(
            command.env("MANDATE_ORGANIZATION_KEY", crate::harness::organization_key()).output().unwrap(),
        )
    };
    for (args, tip) in [
        (&["export", "list"][..], "tip: exports are not listed; mandate export create"),
        (&["webhooks", "update", "whk"], "tip: a webhook is not changed"),
        (&["review", "show", "rev"], "mandate decision show has the review"),
        (&["escrow", "release", "esc"], "mandate escrow transition ID delivered, released"),
        (&["agent", "delete", "buyer"], "mandate stop --agent NAME"),
        (&["agent", "create", "agt_buyer"], "its id would be agt_agt_buyer; the name alone is `buyer`"),
        (&["enforcement", "enforce"], "mandate enforcement set enforce, or observe"),
        (&["escrow", "transition", "release"], "must be one of delivered, released, refunded, disputed"),
        (&["escrow", "contract", "esc_01hf7yat000000000000000007"], "mandate escrow show ID --jq .contract"),
        (&["escrow", "contract", "https://a.example/contracts/0"], "the last part of its page's address"),
        (&["review", "approve", "rev_01hf7yat0000"], "mandate review list shows whole ids in a pipe"),
    ] {
        said(args).code(2).says(tip);
    }
    said(&["plan", "nosuch"]).code(3).says("name the folder that holds the mandates");
    // What is no option is not advised to be an argument.
    for args in [&["review", "deny", "-r", "no"][..], &["plan", ".", "--apply"]] {
        let ran = said(args).code(2).says("unexpected argument");
        assert!(!ran.err.contains("as a value"), "{}", ran.err);
    }
    said(&["escrow", "list", "--status", "funded"]).code(2).says("similar argument exists: '--state'");
}

#[test]
fn an_answer_that_is_lost_can_be_had_again() {
    let agent = r#"{"id":"agt_buyer","agent_key":"ak_sandbox_given"}"#;
    let mandate = r#"{"id":"mnd_1","agent":"agt_buyer","status":"revoked","expires":"2999-12-31"}"#;
    let allow = r#"{"decision":"dec_1","verdict":"allow","mode":"enforce"}"#;
    let deny = r#"{"decision":"dec_1","verdict":"deny_limit","mode":"enforce"}"#;
    let authorize = ["authorize", "4", "USD", "--to", "vendor:acme", "--category", "software"];
    for (args, body, exit, decision) in [
        (&["agent", "create", "buyer"][..], agent, 3, ""),
        (&["mandate", "revoke", "mnd_00000000000000000000000001"], mandate, 3, ""),
        (&authorize, allow, 3, "  decision        dec_1\n"),
        (&authorize, deny, 20, "  decision        dec_1\n"),
    ] {
        for json in [false, true] {
            let service = Service::new(&[("200 OK", body)]);
            let mut command =
                if args == authorize { service.agent(args) } else { service.organization(args) };
            command.args(json.then_some("--json")).args(["--idempotency-key", "k 1"]);
            let full = File::options().write(true).open("/dev/full").unwrap();
            let ran = Ran::from(command.stdout(full).stderr(Stdio::piped()).output().unwrap()).code(exit);
            let (error, notes) = ran.err.split_once('\n').unwrap();
            assert!(error.starts_with("error: standard output cannot be written: "), "{error}");
            assert_eq!(
                notes,
                format!(
                    "{decision}  idempotency key k 1\n  next            repeat the command with --idempotency-key \"k 1\": it gives the same answer again\n"
                )
            );
            service.request();
        }
    }
}

#[test]
fn the_doctor_compares_clocks() {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    for (date, code, found) in [
        (now, 0, "the same as the service's"),
        (now + 12, 0, "behind the service's"),
        (now - 3600, 25, "ahead of the service's"),
        (now + 3600, 25, "behind the service's"),
    ] {
        let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(date));
        let head = format!("200 OK\r\ndate: {date}");
        let issuer = Service::new(&[(&head, &crate::issuer::jwks())]);
        run(&["doctor", "--issuer", issuer.address()]).code(code).shows(found);
        issuer.request();
    }
}

#[test]
fn what_cannot_be_repeated_alone_gives_no_idempotency_key() {
    let refusal =
        r#"{"error": {"code": "invalid_request", "message": "url must be public", "request_id": "req_1"}}"#;
    for args in [
        &["listen", "--register", "--issuer", "https://verdicts.example"][..],
        &["trigger", "ping", "--webhook", "whk_00000000000000000000000002"],
    ] {
        let service = Service::new(&[("400 Bad Request", refusal)]);
        let ran = Ran::from(service.organization(args).output().unwrap()).code(30).says("url must be public");
        assert!(!ran.err.contains("idempotency") && ran.err.matches("  next ").count() == 1, "{ran:?}");
        service.request();
    }
}

#[test]
fn trigger_prints_what_it_has_made_when_it_fails() {
    let agent = format!(r#"{{"id":"agt_trigger-1","agent_key":"{}"}}"#, agent_key());
    let service = Service::new(&[
        ("201 Created", &agent),
        ("201 Created", r#"{"id":"mnd_00000000000000000000000003"}"#),
        ("201 Created", r#"{"decision":"dec_00000000000000000000000004"}"#),
        (
            "400 Bad Request",
            r#"{"error": {"code": "invalid_request", "message": "condition is empty", "request_id": "req_1"}}"#,
        ),
    ]);
    let ran = Ran::from(service.organization(&["trigger", "escrow.funded"]).output().unwrap()).code(30);
    let (_, notes) = ran.err.split_once("condition is empty").unwrap();
    let lines: Vec<_> = notes.lines().skip(1).map(str::trim).collect();
    let labelled = |label: &str, value: &str| format!("{label:<16}{value}");
    assert_eq!(
        lines[lines.len() - 4..],
        [
            labelled("agent", "agt_trigger-1"),
            labelled("mandate", "mnd_00000000000000000000000003"),
            labelled("decision", "dec_00000000000000000000000004"),
            labelled("next", "run the command again; what it has made so far may stay"),
        ],
        "{ran:?}"
    );
    assert_eq!(service.requests().len(), 4);
}

#[test]
fn examples_are_broken_by_their_writer_alone() {
    for (args, columns) in [(&["verify", "-h"][..], "60"), (&["verify", "--help"], "60"), (&["--help"], "40")]
    {
        let shown = |columns: &str| {
            let ran = Ran::from(mandate(args).env("COLUMNS", columns).output().unwrap()).code(0).out;
            assert!(!ran.contains('\u{a0}'), "{ran}");
            let (_, behind) = ran.split_once("\nExamples:\n").unwrap();
            behind.split("\n\n").next().unwrap().trim_end().to_owned()
        };
        let narrow = shown(columns);
        assert!(narrow.lines().any(|line| line.chars().count() > 60), "{narrow}");
        assert_eq!(narrow, shown("200"));
    }
}

#[test]
fn words_of_other_command_lines_are_understood() {
    let help = |args: &[&str]| Ran::from(mandate(args).arg("--help").output().unwrap()).code(0).out;
    for noun in ["agent", "mandate", "decision", "review", "webhook", "event", "escrow", "profile"] {
        let list = help(&[noun, "list"]);
        assert_eq!(help(&[&format!("{noun}s"), "ls"]), list, "{noun}");
        assert!(list.contains("Examples:"), "{noun}");
    }
    assert!(help(&["exports", "create"]).contains("export create"));
    for (word, command) in
        [("status", "whoami"), ("login", "login"), ("switch", "switch"), ("logout", "logout")]
    {
        let about = |help: &str| help.lines().next().unwrap().to_owned();
        assert_eq!(about(&help(&["auth", word])), about(&help(&[command])), "{word}");
    }
    assert!(!help(&[]).contains("auth "), "they are understood, and not shown");
}

#[test]
fn help_has_groups_and_topics_and_folds_what_every_command_has() {
    let said = |args: &[&str]| Ran::from(mandate(args).output().unwrap());
    let root = said(&["--help"]).code(0).out;
    for group in [
        "Verify and audit\n  verify ",
        "Agents and mandates\n  agent ",
        "Account\n  login ",
        "Topics, as mandate help",
    ] {
        assert!(root.contains(group), "{group} is not in {root}");
    }
    assert!(
        root.contains("Every command has --json, --jq, --format") && root.contains("Examples:"),
        "{root}"
    );
    assert!(root.lines().all(|line| line.chars().count() <= 130), "{root}");
    for (topic, text) in [("exit-codes", "27"), ("environment", "MANDATE_ISSUER"), ("formatting", "--json")] {
        let help = said(&["help", topic]).code(0).out;
        assert!(help.contains(text) && !help.contains("Usage:"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
    // In a pipe, too, a row's further lines begin below its text.
    let codes = said(&["help", "exit-codes"]).code(0).out;
    let row = codes.split("\n  23    ").nth(1).unwrap().split("\n  24    ").next().unwrap();
    assert!(row.lines().count() > 2 && row.lines().skip(1).all(|line| line.starts_with("        ")), "{row}");
    let short = said(&["whoami", "-h"]).code(0).out;
    assert!(!short.contains("--jq") && short.contains("--base-url"), "{short}");
    // What every command has is one sentence, and explained in one place.
    for args in [&["whoami", "--help"][..], &["decision", "list", "--help"], &["help", "agent"]] {
        let help = said(args).code(0).out;
        assert!(
            help.contains("Every command has --json, --jq,") && !help.contains("Global options"),
            "{help}"
        );
        assert!(!help.contains("relative on a terminal"), "{help}");
    }
    let options = said(&["help", "options"]).code(0).out;
    for part in ["  --json[=FIELDS]\n", "relative on a terminal", "  --yes\n"] {
        assert!(options.contains(part), "{part} is not in {options}");
    }
    said(&["nosuch"]).code(2).says("unrecognized subcommand 'nosuch'");
    said(&["help", "formating"]).code(2).says("tip: did you mean mandate help formatting?");
    said(&["help", "verfy"]).code(2).says("tip: did you mean mandate help verify?");
    assert!(!said(&["help", "nosuch"]).code(2).err.contains("did you mean"));
}
