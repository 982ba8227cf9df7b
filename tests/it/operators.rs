//! The operator's commands on keys, rates and the audit record, beside a running server.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use mandate_tests::wait::until;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::harness::{Agent, Client, DEADLINE, Ran, TestServer};

/// Within this time a change of a key holds on a running server.
const APPLIED: Duration = Duration::from_secs(1);
const SANDBOX: [&str; 4] = ["--organization", "demo", "--environment", "sandbox"];

/// A command about keys of the demonstration's sandbox.
fn of_sandbox(server: &TestServer, command: &[&str], rest: &[&str]) -> Ran {
    server.operate(&[command, &SANDBOX, rest].concat())
}

/// The status that the server answers to a key.
fn status(client: &Client) -> u16 {
    client.get("/agents").status
}

/// Asks until the answer is `status`, which must be within a second of `since`.
#[track_caller]
fn becomes(client: &Client, status: u16, since: Instant) {
    loop {
        let sent = since.elapsed();
        let found = client.get("/agents").status;
        if found == status {
            return;
        }
        assert!(sent <= APPLIED, "{found} after {sent:?}");
    }
}

fn id(key: &str) -> String {
    let hash = Sha256::digest(key.as_bytes());
    hash[..6].iter().fold("key_".to_owned(), |id, byte| format!("{id}{byte:02x}"))
}

#[test]
fn exports_are_listed_and_deleted() {
    let server = TestServer::start();
    let organization = server.demo().client;
    let export = organization.post("/exports", &json!({"format": "csv"})).text("/export");
    let path = format!("/exports/{export}");
    let is_built = || (organization.get(&path).text("/status") != "pending").then_some(());
    until(DEADLINE, "the export is built", is_built);
    let database = server.ready("database").strip_prefix("sqlite://").unwrap();
    let file = Path::new(&format!("{database}-exports")).join(&export);
    assert!(file.is_file(), "{}", file.display());
    let kept = || server.operate(&["export", "list", "--json"]).code(0).json();
    let [only] = kept().as_array().unwrap().clone().try_into().unwrap();
    assert_eq!(
        (&only["export"], &only["organization"], &only["environment"], &only["format"]),
        (&json!(export), &json!("demo"), &json!("sandbox"), &json!("csv"))
    );
    assert!(server.operate(&["export", "list"]).code(0).out.contains(&export));

    let deleted = server.operate(&["export", "delete", &export]).code(0);
    assert!(deleted.out.starts_with(&format!("{export} is deleted.")), "{deleted:?}");
    assert_eq!(organization.get(&format!("/exports/{export}")).status, 404);
    assert_eq!(kept(), json!([]));
    let printed = server.operate(&["audit", "list", "--json"]).code(0).json();
    assert_eq!((&printed[0]["action"], &printed[0]["subject"]), (&json!("export.delete"), &json!(export)));
    let again = server.operate(&["export", "delete", &export]).code(1);
    assert!(again.err.contains(&format!("there is no export {export}; `export list` shows")), "{again:?}");
    server.operate(&["export", "delete", "x"]).code(2);
    let since = Instant::now();
    while file.exists() {
        assert!(since.elapsed() < DEADLINE, "{} is still there", file.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_rate_holds_within_a_second_for_the_keys_it_was_set_for() {
    let server = TestServer::start();
    let (organization, agent) =
        (server.demo().client, Agent::register(&server.demo().client, "buyer").client);
    (0..3).for_each(|_| assert_eq!((status(&organization), status(&agent)), (200, 200)));

    let set = of_sandbox(&server, &["rate", "set"], &["--agent", "buyer", "--json", "2"]).code(0);
    let since = Instant::now();
    assert_eq!((&set.json()[0]["rate"], set.json().as_array().unwrap().len()), (&json!(2), 1));
    becomes(&agent, 429, since);
    assert_eq!(status(&organization), 200, "another key keeps its rate");
    let refused = agent.get("/agents");
    assert_eq!((refused.status, refused.text("/error/code").as_str()), (429, "rate_limited"));
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=61).contains(&seconds), "{seconds}");

    let key = id(agent.key());
    of_sandbox(&server, &["rate", "set"], &["--agent", "unknown", "9"]).code(1);
    server.operate(&["rate", "set", "--key", &key, "6000"]).code(0);
    becomes(&agent, 200, Instant::now());
    let shown = of_sandbox(&server, &["rate", "show"], &["--agent", "buyer", "--json"]).code(0).json();
    assert_eq!((&shown[0]["key"], &shown[0]["rate"]), (&json!(key), &json!(6000)));
    for wrong in ["0", "-1", "1000001", "many"] {
        server.operate(&["rate", "set", "--key", &key, "--", wrong]).code(2);
    }
    server.operate(&["rate", "set", "6"]).code(2);
}

#[test]
fn a_key_is_issued_rotated_and_revoked_beside_the_server() {
    let server = TestServer::start();
    let issued = of_sandbox(&server, &["key", "issue"], &["--label", "ci", "--expires-in", "90d", "--json"]);
    let issued = issued.code(0).json();
    let first = server.client(issued["api_key"].as_str().unwrap());
    assert_eq!(
        (status(&first), &issued["label"], issued["key"].as_str()),
        (200, &json!("ci"), Some(&*id(first.key())))
    );

    let key = issued["key"].as_str().unwrap();
    let rotated =
        server.operate(&["key", "rotate", "--key", key, "--overlap", "7d", "--json"]).code(0).json();
    let second = server.client(rotated["api_key"].as_str().unwrap());
    assert_eq!((status(&first), status(&second)), (200, 200), "both, while they overlap");
    assert_eq!((&rotated["label"], &rotated["replaces"]["key"]), (&json!("ci"), &json!(key)));

    let ended = rotated["key"].as_str().unwrap();
    let rotated =
        server.operate(&["key", "rotate", "--key", ended, "--overlap", "0s", "--json"]).code(0).json();
    becomes(&second, 401, Instant::now());
    let third = server.client(rotated["api_key"].as_str().unwrap());
    assert_eq!(status(&third), 200);

    let unasked = server.operate(&["key", "revoke", "--key", &id(third.key())]).code(1);
    assert!(unasked.err.contains("--yes") && unasked.err.contains(&id(third.key())), "{}", unasked.err);
    assert_eq!(status(&third), 200);
    server.operate(&["key", "revoke", "--key", &id(third.key()), "--yes"]).code(0);
    becomes(&third, 401, Instant::now());
    let again = server.operate(&["key", "revoke", "--key", &id(third.key()), "--yes"]).code(1);
    assert!(again.err.contains("is revoked"), "{}", again.err);
    let several = of_sandbox(&server, &["key", "rotate"], &[]).code(1);
    assert!(several.err.contains("several keys"), "{}", several.err);
}

#[test]
fn an_agents_keys_are_rotated_and_revoked_alike() {
    let server = TestServer::start();
    let old = Agent::register(&server.demo().client, "buyer").client;
    let rotated = of_sandbox(&server, &["key", "rotate"], &["--agent", "buyer", "--json"]).code(0).json();
    let new = server.client(rotated["api_key"].as_str().unwrap());
    assert_eq!((&rotated["class"], &rotated["agent"]), (&json!("agent"), &json!("buyer")));
    assert_eq!((status(&old), status(&new)), (200, 200));
    let revoked = of_sandbox(&server, &["key", "revoke"], &["--agent", "buyer", "--yes", "--json"]).code(0);
    assert_eq!(revoked.json().as_array().unwrap().len(), 2);
    becomes(&old, 401, Instant::now());
    becomes(&new, 401, Instant::now());
    assert_eq!(status(&server.demo().client), 200, "the organization's own is not the agent's");
    let none = of_sandbox(&server, &["key", "rotate"], &["--agent", "buyer"]).code(1);
    assert!(none.err.contains("key issue"), "{}", none.err);
    let issued = of_sandbox(&server, &["key", "issue"], &["--agent", "buyer", "--json"]).code(0).json();
    assert_eq!(status(&server.client(issued["api_key"].as_str().unwrap())), 200);
}

#[test]
fn what_is_listed_or_recorded_holds_no_secret() {
    let server = TestServer::start();
    let issued = of_sandbox(&server, &["key", "issue"], &["--json"]).code(0).json();
    let secret = issued["api_key"].as_str().unwrap();
    server.operate(&["key", "revoke", "--key", issued["key"].as_str().unwrap(), "--yes"]).code(0);
    for command in [&["key", "list", "--all"][..], &["audit", "list"], &["organization", "list"]] {
        for form in [&[][..], &["--json"]] {
            let listed = server.operate(&[command, form].concat()).code(0);
            for secret in [secret, server.ready("organization_key"), server.ready("live_organization_key")] {
                let (_, random) = secret.rsplit_once('_').unwrap();
                assert!(!listed.out.contains(&random[..8]), "{}", listed.out);
            }
        }
    }
    let mistaken = server.operate(&["key", "revoke", "--key", secret, "--yes"]).code(2);
    assert!(!mistaken.err.contains(secret), "{}", mistaken.err);
}

#[test]
fn the_label_of_a_key_holds_no_key_and_a_refusal_does_not_repeat_it() {
    let server = TestServer::start();
    let key = server.ready("organization_key");
    for name in [key, &key[..key.len() - 1], "a\u{202e}b"] {
        let refused = of_sandbox(&server, &["key", "issue"], &["--label", name]).code(2);
        assert!(refused.err.contains("--label must") && !refused.err.contains(name), "{}", refused.err);
    }
    of_sandbox(&server, &["key", "issue"], &["--label", "ci, since June"]).code(0);
}

#[test]
fn every_command_that_changes_something_leaves_a_record() {
    let server = TestServer::start();
    server.organization("acme");
    let acme = |command: &[&str], rest: &[&str]| {
        let owner = ["--organization", "acme", "--environment", "production", "--json"];
        server.operate(&[command, &owner, rest].concat()).code(0).json()
    };
    let issued = acme(&["key", "issue"], &["--label", "ci"]);
    let key = issued["key"].as_str().unwrap().to_owned();
    acme(&["rate", "set"], &["77"]);
    let rotated = server.operate(&["key", "rotate", "--key", &key, "--json"]).code(0).json();
    acme(&["key", "revoke"], &["--yes"]);
    // What is refused leaves none.
    server.operate(&["key", "revoke", "--key", &key, "--yes"]).code(1);

    let list = |rest: &[&str]| server.operate(&[&["audit", "list", "--json"], rest].concat()).code(0).json();
    let records = list(&["--organization", "acme"]);
    let actions: Vec<_> =
        records.as_array().unwrap().iter().rev().map(|r| r["action"].as_str().unwrap()).collect();
    let twice = ["rate.set", "rate.set"];
    let thrice = ["key.revoke", "key.revoke", "key.revoke"];
    assert_eq!(
        actions,
        [&["organization.create", "key.issue"][..], &twice, &["key.rotate"], &thrice].concat()
    );
    let rotation = &records[3];
    assert_eq!((&rotation["subject"], &rotation["details"]["replaces"]), (&rotated["key"], &json!(key)));
    assert_eq!((&rotation["organization"], &rotation["environment"]), (&json!("acme"), &json!("production")));
    for record in records.as_array().unwrap() {
        assert!(record["operator"].as_str().unwrap().contains("(uid "), "{record}");
    }
    assert_eq!(list(&["--limit", "2"]).as_array().unwrap().len(), 2);
    assert_eq!(list(&["--since", "1h", "--limit", "1000"]), list(&[]));
    assert_eq!(list(&["--since", "2999-01-01"]), json!([]));
    server.operate(&["audit", "list", "--since", "yesterday"]).code(2);
}

#[test]
fn a_backup_a_restore_and_a_migration_leave_a_record() {
    let server = TestServer::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (backup, other) = (path("backup.db"), format!("sqlite://{}", path("other.db")));
    let recorded = |database: &str| -> Vec<(String, String)> {
        let records = server.operate(&["audit", "list", "--json", "--database", database]).code(0).json();
        let text = |record: &Value, name: &str| record[name].as_str().unwrap().to_owned();
        let records = records.as_array().unwrap().iter();
        let records = records.map(|record| (text(record, "action"), text(record, "subject")));
        // The demonstration's person is recorded too.
        records.filter(|(action, _)| !action.starts_with("person.")).collect()
    };
    let record = |action: &str, subject: &str| (action.to_owned(), subject.to_owned());

    server.operate(&["backup", "create", &backup]).code(0);
    server.operate(&["backup", "create", &backup]).code(1);
    server.operate(&["backup", "verify", &backup]).code(0);
    assert_eq!(recorded(server.ready("database")), [record("backup.create", &backup)]);

    server.operate(&["migrate", "--database", &other]).code(0);
    server.operate(&["migrate", "--database", &other]).code(0);
    assert_eq!(recorded(&other), [record("migrate", &path("other.db"))], "what changes nothing leaves none");

    server.operate(&["backup", "restore", &backup, "--database", &other]).code(1);
    server.operate(&["backup", "restore", &backup, "--database", &other, "--force"]).code(0);
    assert_eq!(recorded(&other), [record("backup.restore", &backup)]);
    assert_eq!(server.operate(&["check", "--database", &other]).code(0).out, "sound\n");
    let left = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with('.')).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_key_that_could_not_be_shown_was_not_issued() {
    let server = TestServer::start();
    let keys = || server.operate(&["key", "list", "--all", "--json"]).code(0).json();
    let records = || server.operate(&["audit", "list", "--json"]).code(0).json();
    let before = (keys(), records());
    let key = id(server.ready("organization_key"));
    for command in [
        &["organization", "create", "acme"][..],
        &["key", "issue", "--organization", "demo", "--environment", "sandbox"],
        &["key", "rotate", "--key", &key],
        &["key", "rotate", "--key", &key, "--json"],
    ] {
        let mut command = server.operator(command);
        let ran = Ran::from(command.stdout(File::create("/dev/full").unwrap()).output().unwrap()).code(1);
        assert!(ran.err.contains("nothing was changed"), "{}", ran.err);
    }
    assert_eq!((keys(), records()), before);
    server.operate(&["organization", "show", "acme"]).code(1);
}

#[test]
fn organizations_are_listed_and_shown() {
    let server = TestServer::start();
    server.organization("acme");
    let names = |listed: &Value| -> Vec<String> {
        let organizations = listed.as_array().unwrap().iter();
        organizations.map(|one| one["organization"].as_str().unwrap().to_owned()).collect()
    };
    let listed = server.operate(&["organization", "list", "--json"]).code(0).json();
    assert_eq!(names(&listed), ["demo", "acme"]);
    let shown = server.operate(&["organization", "show", "acme", "--json"]).code(0).json();
    assert_eq!(shown, listed[1]);
    let modes: Vec<_> =
        shown["environments"].as_array().unwrap().iter().map(|e| (&e["environment"], &e["mode"])).collect();
    assert_eq!(modes, [(&json!("sandbox"), &json!("enforce")), (&json!("production"), &json!("observe"))]);
    assert!(server.operate(&["organization", "list"]).code(0).out.starts_with("ORGANIZATION"));
}

#[test]
fn webhooks_are_listed_with_the_state_of_their_deliveries() {
    let server = TestServer::start();
    let hook = json!({ "url": "https://example.com/hook", "events": ["mandate.revoked"] });
    let created = server.demo().client.post("/webhooks", &hook);
    let id = created.text("/webhook");
    assert_eq!(server.demo().client.act(&format!("/webhooks/{id}/ping")).status, 202);
    let listed = server.operate(&["webhook", "list", "--organization", "demo", "--json"]).code(0).json();
    let hook = &listed[0];
    assert_eq!((&hook["webhook"], &hook["environment"]), (&json!(id), &json!("sandbox")));
    assert_eq!((&hook["pending"], &hook["failed"]), (&json!(1), &json!(0)));
    server.operate(&["webhook", "list", "--organization", "unknown"]).code(1);
    let events = server.demo().client.get("/events").json();
    let event = events["data"][0]["event"].as_str().unwrap();
    let refused = server.operate(&["webhook", "retry", event, &id]).code(1);
    assert!(refused.err.contains("only one that has failed"), "{}", refused.err);
    server.operate(&["webhook", "retry", "evt_1", &id]).code(2);
    assert_eq!(server.operate(&["settlement", "list", "--json"]).code(0).json(), json!([]));
}

#[test]
fn a_command_line_that_is_refused_repeats_no_key() {
    let server = TestServer::start();
    let key = "sk_live_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye";
    for args in [
        &["key", "list", "--organization", key][..],
        &["organization", "create", key],
        &["rate", "set", "--organization", key],
        &["webhook", "list", "--organization", key],
        &[key],
    ] {
        let ran = server.operate(args).code(2);
        assert!(!ran.err.contains(&key[8..]) && !ran.out.contains(&key[8..]), "{ran:?}");
    }
}

/// A static host serves a log that has ended, and says which one follows.
#[test]
fn each_log_of_a_kind_can_be_written_as_files() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let is_published = |number: usize| {
        let shown = server.operate(&["log", "show", "--json"]).code(0).json();
        let of = |log: &&Value| log["environment"] == "sandbox";
        let logs: Vec<_> = shown["logs"].as_array().unwrap().iter().filter(of).collect();
        (logs.len() == number && logs[0]["published"].as_u64() > Some(0)).then_some(())
    };
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let export = |name: &str, more: &[&str]| {
        server.operate(&[&["log", "export", "sandbox", &place(name)], more].concat())
    };
    let file = |name: &str| std::fs::read_to_string(place(name)).unwrap();
    until(DEADLINE, "the first log is published", || is_published(1));
    export("log", &[]).code(0);
    let key = file("log/key");
    assert!(!Path::new(&place("log/next")).exists(), "it goes on");
    server.operate(&["log", "new-origin", "sandbox", "--yes"]).code(0);
    until(DEADLINE, "the second log is published", || is_published(2));
    export("log", &[]).code(1).says("--number");
    export("log", &["--number", "1"]).code(0);
    export("log/2", &[]).code(0);
    assert_eq!((file("log/key"), file("log/next")), (key, file("log/2/key")));
    assert!(file("log/keys").contains(" sandbox-"));
    assert!(!Path::new(&place("log/2/next")).exists());
    assert!(file("log/2/checkpoint").contains("/log/sandbox/2\n"));
    export("none", &["--number", "3"]).code(1).says("there is no sandbox log with the number 3");
    export("none", &["--number", "0"]).code(2);
}

/// Each start has other ports, and so another issuer.
#[test]
fn a_start_under_another_issuer_is_warned_of_and_a_log_gets_the_name_that_is_set() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = TestServer::start_in(folder.path());
    let warning = "the public log has the name of another issuer";
    assert!(!first.logged().contains(warning), "{}", first.logged());
    let before = first.issuer();
    first.kill();
    let second = TestServer::start_in(folder.path());
    assert!(second.logged().contains(warning), "{}", second.logged());
    let begin = |issuer: &str| {
        let mut command = second.operator(&["log", "new-origin", "sandbox", "--yes", "--json"]);
        Ran::from(command.env("MANDATE_VERDICTS_URL", issuer).output().unwrap())
    };
    for (number, issuer) in [(2, second.issuer()), (3, before)] {
        let origin = format!("{}/log/sandbox/{number}", issuer.split("://").nth(1).unwrap());
        assert_eq!(begin(&issuer).code(0).json()["log"], origin);
    }
    begin("https://other.example").code(1).says("no server was started with it");
}
