//! Profiles: who acts, where the key is kept, and to whom it is sent.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use insta::assert_snapshot;

use super::shown;
use crate::harness::{Ran, TestServer, mandate};

/// Runs with profiles in `home`, and `stdin` to read.
fn run(home: &Path, args: &[&str], stdin: &str) -> Ran {
    let mut command = mandate(args);
    command.env("MANDATE_CONFIG_DIR", home.join("mandate"));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap().into()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_profile_is_kept_for_its_owner_alone_and_used_from_then_on() {
    let (server, home) = (TestServer::start(), tempfile::tempdir().unwrap());
    let (base, organization) = (server.ready("base_url"), server.demo());
    let agent = organization.buyer("buyer");
    let home = home.path();
    for (name, key) in [
        (None, organization.client.key()),
        (None, organization.live.key()),
        (Some("buyer"), agent.client.key()),
    ] {
        let args: Vec<&str> = ["login", "--base-url", base].into_iter().chain(name).collect();
        let ran = run(home, &args, &format!("{key}\n")).code(0);
        assert!(!ran.out.contains(key) && !ran.err.contains(key));
    }
    let file = home.join("mandate/profiles.json");
    assert_eq!((mode(&file), mode(&home.join("mandate"))), (0o600, 0o700));
    assert_snapshot!("profile-list", shown(&run(home, &["profile", "list"], "").code(0).out));
    assert_snapshot!("whoami", shown(&run(home, &["whoami"], "").code(0).out));
    assert_snapshot!("switch", shown(&run(home, &["switch", "live"], "").code(0).out));
    assert_snapshot!("whoami-live", shown(&run(home, &["whoami", "--json"], "").code(0).out));
    for words in [&["switch", ""][..], &["logout", "l"], &["whoami", "--profile", ""]] {
        let mut command = mandate(&[&["--", "mandate"], words].concat());
        command.env("MANDATE_COMPLETE", "fish").env("MANDATE_CONFIG_DIR", home.join("mandate"));
        let offered = Ran::from(command.output().unwrap()).code(0).out;
        assert!(offered.lines().any(|line| line.starts_with("live\t")), "{words:?}: {offered}");
    }
    let mode = run(home, &["--profile", "sandbox", "enforcement", "get", "--jq", ".mode"], "").code(0);
    assert_eq!(mode.out, "enforce\n");
    let authorize =
        ["authorize", "4", "USD", "--to", "vendor:acme", "--category", "software", "--jq", ".verdict"];
    let refused = run(home, &authorize, "").code(32);
    assert_eq!(refused.out, "", "a live organization's key asks for no authorization");
    assert!(refused.err.contains("set MANDATE_AGENT_KEY to such a key"), "{}", refused.err);
    let as_buyer: Vec<&str> = authorize.into_iter().chain(["--profile", "buyer"]).collect();
    assert_eq!(run(home, &as_buyer, "").code(0).out, "allow\n");
    run(home, &["logout"], "").code(0);
    assert!(run(home, &["whoami"], "").code(2).err.contains("mandate login"));
    assert!(!std::fs::read_to_string(&file).unwrap().contains(organization.live.key()));
}

#[test]
fn a_key_in_the_environment_that_hides_a_profile_is_named() {
    let (server, home) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let agent = organization.agent("purchaser");
    organization.agent("another");
    run(home.path(), &["login", "--base-url", server.ready("base_url")], organization.client.key()).code(0);
    let shell = |args: &[&str]| {
        let mut command = mandate(args);
        command.env("MANDATE_CONFIG_DIR", home.path().join("mandate"));
        command.env("MANDATE_AGENT_KEY", agent.client.key()).stdin(Stdio::null());
        Ran::from(command.output().unwrap())
    };
    let note = "note: as agt_purchaser, from MANDATE_AGENT_KEY; --profile sandbox for all\n";
    for args in [&["agent", "list", "--json"][..], &["whoami"], &["api", "get", "/agents"], &["doctor"]] {
        assert_eq!(shell(args).code(0).err.matches(note).count(), 1, "{args:?}");
    }
    let listed = |args: &[&str]| shell(args).code(0);
    assert_eq!(listed(&["agent", "list", "--jq", "length"]).out, "1\n");
    let all = listed(&["agent", "list", "--jq", "length", "--profile", "sandbox"]);
    assert_eq!((all.out.as_str(), all.err.as_str()), ("2\n", ""));
    // What only one of the two can do needs no note.
    assert_eq!(listed(&["enforcement", "get", "--jq", ".mode"]).err, "");
}

#[test]
fn a_file_and_a_named_profile_that_hide_the_current_one_are_named() {
    let (server, home) = (TestServer::start(), tempfile::tempdir().unwrap());
    let (base, organization) = (server.ready("base_url"), server.demo());
    let agent = organization.agent("purchaser");
    run(home.path(), &["login", "buyer", "--base-url", base], agent.client.key()).code(0);
    run(home.path(), &["login", "all", "--base-url", base], organization.client.key()).code(0);
    let file = home.path().join("agent.key");
    std::fs::write(&file, agent.client.key()).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = file.to_str().unwrap();
    let said = |args: &[&str], profile: &str| {
        let mut command = mandate(args);
        command.env("MANDATE_CONFIG_DIR", home.path().join("mandate"));
        command.env("MANDATE_PROFILE", profile).stdin(Stdio::null());
        Ran::from(command.output().unwrap()).code(0).err
    };
    for args in [&["agent", "list"][..], &["whoami"], &["doctor"]] {
        let by_name = "note: as agt_purchaser, from MANDATE_PROFILE=buyer; --profile all for all\n";
        assert_eq!(said(args, "buyer").matches(by_name).count(), 1, "{args:?}");
        let by_file = "note: as agt_purchaser, from --key-file; --profile all for all\n";
        assert_eq!(said(&[args, &["--key-file", file]].concat(), "").matches(by_file).count(), 1, "{args:?}");
        // The profile that is named, or the current one: nothing is hidden.
        for (more, named) in [(&["--profile", "buyer"][..], "buyer"), (&[], "all"), (&[], "")] {
            assert!(!said(&[args, more].concat(), named).contains("note: as "), "{args:?}");
        }
    }
}

#[test]
fn a_key_that_the_service_does_not_take_is_not_kept() {
    let (server, home) = (TestServer::start(), tempfile::tempdir().unwrap());
    let unknown = "sk_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye";
    let ran = run(home.path(), &["login", "--base-url", server.ready("base_url")], unknown).code(31);
    assert_eq!(ran.out, "");
    assert!(!home.path().join("mandate").exists());
}

#[test]
fn another_key_is_not_written_over() {
    let (server, home) = (TestServer::start(), tempfile::tempdir().unwrap());
    let (base, organization) = (server.ready("base_url"), server.demo());
    let agent = organization.agent("buyer");
    let args = ["login", "mine", "--base-url", base];
    run(home.path(), &args, organization.client.key()).code(0);
    run(home.path(), &args, organization.client.key()).code(0);
    let refused = run(home.path(), &args, agent.client.key()).code(2);
    assert!(refused.err.contains("the profile `mine` is there already"), "{refused:?}");
}

#[test]
fn what_others_can_read_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mandate/profiles.json");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "{}").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let ran = run(home.path(), &["profile", "list"], "").code(31);
    assert!(ran.err.contains("mode 640") && ran.err.contains("chmod 600"), "{ran:?}");
}

#[test]
fn a_kept_key_goes_to_no_other_address() {
    let (server, home) = (TestServer::start(), tempfile::tempdir().unwrap());
    let key = server.ready("organization_key");
    run(home.path(), &["login", "--base-url", server.ready("base_url")], key).code(0);
    let ran = run(home.path(), &["agent", "list", "--base-url", "http://127.0.0.1:9/v1"], "").code(31);
    assert!(ran.err.contains("is not sent to any other address"), "{ran:?}");
}
