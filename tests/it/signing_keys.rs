//! The operator's commands on signing keys and the master key, beside a running server.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use mandate_core::Timestamp;
use mandate_core::jwks::KeySet;
use serde_json::{Value, json};

use crate::harness::{Agent, Ran, TestServer, binary};

const PATH: &str = "/.well-known/jwks.json";

fn kids(server: &TestServer) -> Vec<String> {
    let set = server.stranger("verdicts_url").get(PATH).body;
    KeySet::parse(set.as_bytes()).unwrap().iter().map(|key| key.kid().to_string()).collect()
}

/// Fetches the key set until it is as wanted.
#[track_caller]
fn becomes(server: &TestServer, wanted: impl Fn(&[String]) -> bool) {
    let since = Instant::now();
    loop {
        let found = kids(server);
        if wanted(&found) {
            return;
        }
        assert!(since.elapsed() < Duration::from_secs(30), "{found:?}");
    }
}

fn kid(key: &Value) -> String {
    key["kid"].as_str().unwrap().to_owned()
}

fn signed_by(agent: &Agent) -> String {
    let token = agent.ask(1).text("/verdict_token");
    mandate_core::jwt::Unverified::parse(&token).unwrap().kid().to_string()
}

#[test]
fn a_key_is_rotated_beside_the_server() {
    let server = TestServer::start();
    let agent = server.demo().buyer("buyer");
    let old = signed_by(&agent);
    let rotated =
        server.operate(&["signing-key", "rotate", "--environment", "sandbox", "--json"]).code(0).json();
    let new = kid(&rotated[0]);
    assert_eq!((&rotated[0]["state"], &rotated[0]["environment"]), (&json!("incoming"), &json!("sandbox")));
    becomes(&server, |kids| kids.contains(&new) && kids.contains(&old));
    assert_eq!(signed_by(&agent), old, "it is too new for who has kept the key set");

    let again = server.operate(&["signing-key", "rotate"]).code(1);
    assert!(again.err.contains("is incoming"), "{}", again.err);
    let listed = server.operate(&["signing-key", "list", "--json"]).code(0).json();
    let states: Vec<_> =
        listed.as_array().unwrap().iter().map(|key| key["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["signing", "signing", "incoming"]);
    let archive = server.operate(&["signing-key", "archive"]).code(0).out;
    assert_eq!(KeySet::parse(archive.as_bytes()).unwrap().len(), 3);
    let records = server.operate(&["audit", "list", "--json"]).code(0).json();
    assert_eq!((&records[0]["action"], &records[0]["subject"]), (&json!("signing-key.rotate"), &json!(new)));
    assert_eq!(server.hold(&server.demo().client, &[server.issuer()]), 2);
}

#[test]
fn a_leaked_key_is_revoked_at_once() {
    let server = TestServer::start();
    let agent = server.demo().buyer("buyer");
    let old = signed_by(&agent);
    let unasked = server.operate(&["signing-key", "revoke", &old]).code(1);
    assert!(unasked.err.contains("up to 5 minutes") && unasked.err.contains("--yes"), "{}", unasked.err);
    assert_eq!(kids(&server).len(), 2);
    let revoked = server.operate(&["signing-key", "revoke", &old, "--yes", "--json"]).code(0);
    let new = kid(&revoked.json()[1]);
    assert!(revoked.err.contains("up to 5 minutes"), "{}", revoked.err);
    assert!(revoked.err.contains(&format!("{new} signs in its place")), "{}", revoked.err);
    assert_eq!(revoked.json()[0]["sign_until"], revoked.json()[0]["revoked_at"]);
    becomes(&server, |kids| !kids.contains(&old));
    assert!(kids(&server).contains(&new));
    assert_eq!(signed_by(&agent), new);

    let next =
        kid(&server.operate(&["signing-key", "rotate", "--environment", "sandbox", "--json"]).code(0).json()
            [0]);
    let revoked = server.operate(&["signing-key", "revoke", &next, "--yes"]).code(0);
    assert!(revoked.err.contains("It was incoming: no new token"), "{}", revoked.err);
    let listed = server.operate(&["signing-key", "list", "--all", "--json"]).code(0).json();
    let last = listed.as_array().unwrap().iter().find(|key| key["kid"] == next.as_str()).unwrap();
    assert_eq!(
        (&last["state"], last.get("sign_from"), last.get("sign_until")),
        (&json!("revoked"), None, None)
    );
    let rotated = server.operate(&["signing-key", "rotate", "--environment", "sandbox"]).code(0);
    let next = rotated.out.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    server.operate(&["signing-key", "revoke", &new, "--yes"]).code(0);
    let listed = server.operate(&["signing-key", "list", "--all", "--json"]).code(0).json();
    for key in listed.as_array().unwrap().iter().filter(|key| key["state"] == "revoked") {
        let instant = |name: &str| key[name].as_str().map(|at| Timestamp::parse(at).unwrap());
        assert!(instant("sign_until") <= instant("revoked_at"), "{key}");
    }
    becomes(&server, |kids| !kids.contains(&new));
    assert_eq!(signed_by(&agent), next, "the incoming one takes its place");
    // Nothing published verifies the tokens of the keys that were revoked.
    assert_eq!(server.operate(&["check"]).code(0).out, "sound\n");
}

#[test]
fn without_the_right_master_key_nothing_is_rotated() {
    let server = TestServer::start();
    let with = |name: &str, value: &str| {
        let mut command = server.operator(&["signing-key", "rotate"]);
        command.env_remove("MANDATE_MASTER_KEY").env(name, value);
        Ran::from(command.output().unwrap())
    };
    let missing = with("MANDATE_MASTER_KEY", "").code(2);
    assert!(missing.err.contains("MANDATE_MASTER_KEY"), "{}", missing.err);
    let wrong = with("MANDATE_MASTER_KEY", &"0f".repeat(32)).code(1);
    assert!(wrong.err.contains("does not open") && !wrong.err.contains("0f0f"), "{}", wrong.err);
    assert_eq!(kids(&server).len(), 2);
}

#[test]
fn the_master_key_is_rotated() {
    let server = TestServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("new.key");
    std::fs::write(&file, format!("{}\n", "0f".repeat(32))).unwrap();
    let rotate = |args: &[&str]| {
        let mut command = server.operator(&[&["master-key", "rotate"], args].concat());
        Ran::from(command.env("MANDATE_NEW_MASTER_KEY_FILE", &file).output().unwrap())
    };
    rotate(&[]).code(1);
    let mut same = server.operator(&["master-key", "rotate", "--yes"]);
    same.env("MANDATE_NEW_MASTER_KEY_FILE", &file).env("MANDATE_MASTER_KEY", "0F".repeat(32));
    let same = Ran::from(same.output().unwrap()).code(2);
    assert!(same.err.contains("MANDATE_NEW_MASTER_KEY_FILE") && same.err.contains("MANDATE_MASTER_KEY or"));
    assert!(!same.err.to_lowercase().contains("0f0f"), "{}", same.err);
    assert_eq!(rotate(&["--yes", "--json"]).code(0).json(), json!({ "signing_keys": 2 }));
    rotate(&["--yes"]).code(1);
    let agent = server.demo().buyer("buyer");
    assert!(kids(&server).contains(&signed_by(&agent)), "the running server goes on");
    let mut command = server.operator(&["signing-key", "rotate"]);
    command.env_remove("MANDATE_MASTER_KEY").env("MANDATE_MASTER_KEY_FILE", &file);
    Ran::from(command.output().unwrap()).code(0);
    assert_eq!(server.hold(&server.demo().client, &[server.issuer()]), 1);
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_are_readable_by_their_owner_alone_and_an_exposed_master_key_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let (key, log) = (folder.path().join("master.key"), folder.path().join("stderr.log"));
    std::fs::write(&key, "0f".repeat(32)).unwrap();
    for (permissions, warned) in [(0o640, true), (0o600, false)] {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(permissions)).unwrap();
        let any = "127.0.0.1:0";
        let mut command = std::process::Command::new(binary("mandate-server"));
        command
            .env_clear()
            .env("MANDATE_MASTER_KEY_FILE", &key)
            .current_dir(folder.path())
            .stdin(Stdio::null());
        command.args(["serve", "--api-address", any, "--public-address", any, "--ops-address", any]);
        let mut server = command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
        let since = Instant::now();
        let logged = loop {
            let logged = std::fs::read_to_string(&log).unwrap();
            if logged.contains("serving") || since.elapsed() > Duration::from_secs(30) {
                break logged;
            }
            std::thread::yield_now();
        };
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(logged.contains("serving"), "{logged}");
        assert_eq!(logged.contains("can be read by others"), warned, "{logged}");
        assert!(!logged.contains("0f0f"), "{logged}");
        for file in ["mandate.db", "mandate.db-wal", "mandate.db-shm"] {
            assert_eq!(mode(&folder.path().join(file)), 0o600, "{file}");
        }
    }
}
