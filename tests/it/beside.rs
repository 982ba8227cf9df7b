//! What else writes to a SQLite database while a server owns it: operators' commands, and programs that should not.

use mandate_core::log::{KeyKind, SigningKey};
use std::fs;
use std::process::Command;

use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{Agent, Ran, ShiftedClock, TestServer, binary};

/// The tables that decide, or that decisions are in.
const DECIDING: [&str; 8] = [
    "agents",
    "mandates",
    "usage",
    "decisions",
    "agent_decisions",
    "reviews",
    "uncounted",
    "(SELECT environment, kind, policy_version, mode, since FROM environments)",
];

fn open(server: &TestServer) -> Connection {
    Connection::open(server.ready("database").strip_prefix("sqlite://").unwrap()).unwrap()
}

/// All rows of these tables that belong to the environments that are there.
fn deciding(server: &TestServer, environments: i64) -> Vec<Vec<Value>> {
    let connection = open(server);
    let mut rows = Vec::new();
    for table in DECIDING {
        let all = if table == "uncounted" { "1" } else { "environment <= ?1" };
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} WHERE {all}")).unwrap();
        let columns = statement.column_count();
        let parameters = (table != "uncounted").then_some(environments);
        let found = statement
            .query_map(rusqlite::params_from_iter(parameters), |row| {
                (0..columns).map(|n| row.get(n)).collect()
            })
            .unwrap();
        rows.extend(found.map(Result::unwrap));
    }
    rows
}

/// The commands that serve: `serving.rs` has their tests.
const SERVING: [&str; 2] = ["serve", "dev"];
/// The file of a new master key.
const MASTER_KEY: &str = "master.key";
/// An environment.
const SANDBOX: [&str; 4] = ["--organization", "demo", "--environment", "sandbox"];
/// A person, and where the console is.
const PERSON: [&str; 8] =
    ["--name", "Ada", "--role", "role:cfo", "--may", "review", "--console-url", "https://console.example"];
/// The command for an escrow whose provider does not answer; what makes one of it, and undoes that.
const RETRY: &str = "settlement retry";
const UNSETTLED: [&str; 2] = [
    "UPDATE escrow_history SET state = 'opening'",
    "UPDATE instructions SET status = 'pending', next_at = at + 1800000",
];
const SETTLED: [&str; 2] = [
    "UPDATE escrow_history SET state = 'funded'",
    "UPDATE instructions SET status = 'settled', next_at = NULL",
];
/// What the log says once another program has written.
const WRITTEN: &str = "has written to the database";

/// All commands below one, as its help lists them; itself if there is none.
fn commands(above: &[String]) -> Vec<Vec<String>> {
    let mut command = Command::new(binary("mandate-server"));
    let help = Ran::from(command.env_clear().args(above).arg("--help").output().unwrap()).code(0).out;
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names =
        listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|n| !n.is_empty()));
    let below = names.filter(|name| *name != "help" && !(above.is_empty() && SERVING.contains(name)));
    let below: Vec<_> = below.flat_map(|name| commands(&[above, &[name.to_owned()]].concat())).collect();
    if below.is_empty() { vec![above.to_vec()] } else { below }
}

/// What commands can be about, made before they are run.
struct Scene {
    kid: String,
    event: String,
    webhook: String,
    export: String,
    escrow: String,
    person: String,
    folder: TempDir,
}

impl Scene {
    /// A delivery that has failed, a ready export, and an escrow.
    fn set(server: &TestServer, buyer: &Agent) -> Self {
        let client = server.demo().client;
        let hook = json!({ "url": "http://127.0.0.1:9/in", "events": ["mandate.revoked"] });
        let webhook = client.post("/webhooks", &hook).text("/webhook");
        let event = client.act(&format!("/webhooks/{webhook}/ping")).text("/event");
        let export = client.post("/exports", &json!({ "format": "csv" })).text("/export");
        while client.get(&format!("/exports/{export}")).text("/status") != "ready" {}
        let decision = buyer.ask(1).text("/decision");
        let deal =
            json!({ "decision": decision, "condition": "delivered", "refund_after": "2099-01-01T00:00:00Z" });
        let escrow = client.post("/escrows", &deal).text("/escrow");
        // As after 24 hours.
        assert_eq!(open(server).execute("UPDATE deliveries SET state = 'failed'", []), Ok(1));
        // The server notices, once.
        while buyer.ask(1).status != 201 {}
        server.operate(&["signing-key", "rotate", "--environment", "sandbox"]).code(0);
        let keys = server.operate(&["signing-key", "list", "--json"]).code(0).json();
        let mut keys = keys.as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap());
        let kid = keys.rfind(|kid| kid.starts_with("sandbox-")).unwrap().to_owned();
        let person = [&["person", "create", "--json"][..], &SANDBOX, &PERSON].concat();
        let person = server.operate(&person).code(0).json()["person"].as_str().unwrap().to_owned();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(MASTER_KEY), "ab".repeat(32)).unwrap();
        Self { kid, event, webhook, export, escrow, person, folder }
    }

    /// How each command is run, in this order: its words, its arguments, and its exit code.
    fn cases(&self, server: &TestServer) -> Vec<Case> {
        let (file, out) = (self.folder.path().join("copy.db"), self.folder.path().join("man"));
        let (file, out) = (file.display().to_string(), out.display().to_string());
        let url = self.folder.path().join("slack.url");
        fs::write(&url, "https://hooks.example.com/services/secret").unwrap();
        let url = url.display();
        let sandbox = SANDBOX.join(" ");
        let nowhere = "--to postgres://absent@127.0.0.1:9/none";
        let witness = SigningKey::new("w.example", KeyKind::Cosignature, &[7; 32]).unwrap();
        let witness = witness.verifier();
        let from = format!("--from {}", server.ready("database"));
        let mut cases = vec![
            case("organization create", "acme", 0),
            case("organization list", "", 0),
            case("organization show", "demo", 0),
            case("key issue", &format!("{sandbox} --name ci"), 0),
            case("key list", &sandbox, 0),
            case("key rotate", &format!("{sandbox} --agent buyer"), 0),
            case("rate set", &format!("{sandbox} --agent buyer 600"), 0),
            case("rate show", &sandbox, 0),
            case("signing-key revoke", &format!("{} --yes", self.kid), 0),
            case("signing-key rotate", "--environment production", 0),
            case("signing-key list", "", 0),
            case("signing-key archive", "", 0),
            case("clock show", "", 0),
            case("clock accept", "--yes", 1),
            case("webhook list", "--organization demo", 0),
            case("webhook retry", &format!("{} {}", self.event, self.webhook), 0),
            case("notice set", &format!("{sandbox} --format slack --url-file {url}"), 0),
            case("notice show", "--organization demo", 0),
            case("notice remove", &sandbox, 0),
            case("export list", "", 0),
            case("export delete", &self.export, 0),
            case("settlement list", "", 0),
            case(RETRY, &self.escrow, 0),
            case("audit list", "", 0),
            // Nothing was decided then.
            case("retention plan", "2020-01", 1),
            case("retention find", "dec_unknown", 2),
            case("check", "", 0),
            case("check", "--quick", 0),
            case("backup create", &file, 0),
            case("backup verify", &file, 0),
            case("config print", "", 0),
            case("config check", "", 0),
            case("healthcheck", &format!("--url {}", server.ready("ops_url")), 0),
            case("migrate", "--dry-run", 0),
            case("completions", "bash", 0),
            case("log show", "", 0),
            case("log watch-key", "demo --environment sandbox", 0),
            case("log witness add", &format!("{witness} http://127.0.0.1:9"), 0),
            case("log witness list", "", 0),
            case("log witness remove", "w.example", 0),
            case("log continue", "sandbox", 1),
            case("log export", &format!("sandbox {out}-log"), 0),
            case("log new-origin", "production --yes", 0),
            case("man", &format!("--out {out}"), 0),
            case("openapi", "", 0),
            case("master-key rotate", "--yes", 0),
            case("key revoke", &format!("{sandbox} --agent buyer --yes"), 0),
            // The target is not there. All of the source has been read by then.
            case("transfer", &format!("{from} {nowhere} --dry-run"), 1),
            // What needs the file for itself is refused.
            case("transfer", &format!("{from} {nowhere}"), 1),
            case("migrate", "", 1),
            case("retention close", &format!("2020-01 --to {out} --yes"), 1),
            case("backup restore", &format!("{file} --force"), 1),
        ];
        cases.extend(self.of_people());
        cases
    }

    /// The same for people.
    fn of_people(&self) -> [Case; 7] {
        let (sandbox, console, person) = (SANDBOX.join(" "), PERSON[6..].join(" "), &self.person);
        [
            case("person create", &format!("{sandbox} {}", PERSON.join(" ")), 0),
            case("person list", &sandbox, 0),
            case("person enrol", &format!("{sandbox} {console} {person}"), 0),
            case("person sessions", &sandbox, 0),
            case("person withdraw", &format!("{sandbox} {person} --credential AQID --yes"), 1),
            case("person end-session", &format!("{sandbox} 999"), 1),
            case("person disable", &format!("{sandbox} {person} --yes"), 0),
        ]
    }
}

/// A command, its arguments, and its exit code.
type Case = (&'static str, Vec<String>, i32);

fn case(words: &'static str, args: &str, code: i32) -> Case {
    (words, args.split_whitespace().map(str::to_owned).collect(), code)
}

#[test]
fn no_command_beside_a_server_writes_a_row_that_decides() {
    let server = TestServer::start();
    let buyer = server.demo().buyer("buyer");
    for _ in 0..3 {
        assert_eq!(buyer.ask(1).status, 201);
    }
    let scene = Scene::set(&server, &buyer);
    let cases = scene.cases(&server);
    for command in commands(&[]) {
        let words = command.join(" ");
        assert!(cases.iter().any(|(case, ..)| *case == words), "`{words}` is not run here");
    }
    let environments =
        open(&server).query_row("SELECT max(environment) FROM environments", [], |row| row.get(0));
    let environments: i64 = environments.unwrap();
    let before = deciding(&server, environments);
    assert!(before.len() > 8, "{before:?}");
    let mut noticed = server.logged().matches(WRITTEN).count();
    let ping = format!("/webhooks/{}/ping", scene.webhook);
    let write = |changes: [&str; 2]| {
        for change in changes {
            assert_eq!(open(&server).execute(change, []), Ok(1), "{change}");
        }
        // The server notices, once.
        while server.demo().client.act(&ping).status != 202 {}
        server.logged().matches(WRITTEN).count()
    };
    for (words, args, wanted) in cases {
        let all: Vec<_> = words.split(' ').chain(args.iter().map(String::as_str)).collect();
        if words == RETRY {
            noticed = write(UNSETTLED);
        }
        let mut command = server.operator(&all);
        command.env("MANDATE_NEW_MASTER_KEY_FILE", scene.folder.path().join(MASTER_KEY));
        let Ran { code, err, .. } = Ran::from(command.output().unwrap());
        assert_eq!(code, Some(wanted), "{all:?}: {err}");
        if words == "clock accept" {
            assert!(err.contains("the clock is not behind"), "{err}");
        } else if words.starts_with("person ") && wanted == 1 {
            assert!(err.contains("shows those there are"), "{err}");
        } else if words == "log continue" {
            assert!(err.contains("is not stopped"), "{err}");
        } else if words == "retention plan" {
            assert!(err.contains("month must be "), "{err}");
        } else if wanted == 1 && !all.contains(&"--dry-run") {
            assert!(err.contains(" belongs to process ") && err.contains(" on host "), "{all:?}: {err}");
        }
        assert_eq!(deciding(&server, environments), before, "{all:?}");
        // Only a write of the server's own looks at what others have written, and the next command's revision would hide it.
        let written = server.demo().client.act(&ping);
        assert_eq!(written.status, 202, "{all:?}: {written:?}");
        assert_eq!(server.logged().matches(WRITTEN).count(), noticed, "{all:?}: {}", server.logged());
        if words == RETRY {
            noticed = write(SETTLED);
        }
    }
    assert!(server.hold(&server.demo().client, &[server.issuer()]) > 4);
}

#[test]
fn a_clock_that_is_behind_is_accepted_beside_a_server_and_no_row_that_decides_is_written() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ShiftedClock::ahead(0));
    let server = TestServer::start_by(folder.path(), &clock);
    let buyer = server.demo().buyer("buyer");
    for _ in 0..3 {
        assert_eq!(buyer.ask(1).status, 201);
    }
    clock.set(-60 * 60 * 1_000);
    assert_eq!(buyer.ask(1).status, 503);
    let before = deciding(&server, i64::MAX);
    let mut accept = server.operator(&["clock", "accept", "--yes"]);
    Ran::from(accept.envs(clock.environment()).output().unwrap()).code(0);
    assert_eq!(deciding(&server, i64::MAX), before);
    assert_eq!(buyer.ask(1).status, 201);
    assert!(!server.logged().contains(WRITTEN), "{}", server.logged());
    assert_eq!(server.hold(&server.demo().client, &[server.issuer()]), 4);
}

#[test]
fn what_another_program_writes_is_a_fault_once_and_is_then_read() {
    let server = TestServer::start();
    let buyer = server.demo().buyer("buyer");
    assert_eq!(buyer.ask(1).status, 201);
    let database = open(&server);
    let governing: Vec<u8> = database
        .query_row("SELECT governing FROM agents WHERE agent = 'agt_buyer'", [], |row| row.get(0))
        .unwrap();
    let govern = |mandate: Option<&Vec<u8>>| {
        let changed =
            database.execute("UPDATE agents SET governing = ?1 WHERE agent = 'agt_buyer'", [mandate]);
        assert_eq!(changed.unwrap(), 1);
    };
    // The mandate that the server has in memory governs no more, and the row's checksum says otherwise.
    govern(None);
    for what in ["has written to the database", "its checksum is not that of its values"] {
        let refused = buyer.ask(1);
        assert_eq!(refused.status, 500, "{refused:?}");
        assert!(server.logged().contains(what), "{}", server.logged());
    }
    // As it was: what was written is read.
    govern(Some(&governing));
    assert_eq!(buyer.ask(1).status, 500);
    let answer = buyer.ask(1);
    assert_eq!((answer.status, answer.text("/verdict")), (201, "allow".to_owned()));
    assert_eq!(server.hold(&server.demo().client, &[server.issuer()]), 2);
}

#[test]
fn an_operators_command_hides_no_change_of_decisions_that_are_not_counted_yet() {
    let server = TestServer::start();
    let buyer = server.demo().buyer("buyer");
    for _ in 0..3 {
        assert_eq!(buyer.ask(1).status, 201);
    }
    // What is not in the agent's rows yet, and is in the server's memory.
    let newest = "DELETE FROM decisions WHERE decision = (SELECT max(decision) FROM decisions)";
    assert_eq!(open(&server).execute(newest, []).unwrap(), 1);
    let issued = ["key", "issue", "--organization", "demo", "--environment", "sandbox", "--label", "ci"];
    assert_eq!(server.operate(&issued).code, Some(0));
    assert_eq!(buyer.ask(1).status, 500);
    assert!(server.logged().contains("has written to the database"), "{}", server.logged());
    // From then on the state is what the file says.
    let answer = buyer.ask(1);
    assert_eq!((answer.status, answer.text("/verdict")), (201, "allow".to_owned()));
    let checked = server.operate(&["check"]).code(1);
    assert_eq!(
        checked.out,
        "logs: found 1 entries of decisions that are not there; expected at most 0, of closed months\n"
    );
}

#[test]
fn a_server_whose_lock_or_database_was_deleted_is_not_ready() {
    for suffix in ["-server", ""] {
        let server = TestServer::start();
        let (ops, organization) = (server.stranger("ops_url"), server.demo().client);
        assert_eq!(ops.get("/readyz").status, 200);
        let database = server.ready("database").strip_prefix("sqlite://").unwrap();
        fs::remove_file(format!("{database}{suffix}")).unwrap();
        let reply = ops.get("/readyz");
        assert_eq!(reply.status, 503, "{}", reply.body);
        assert!(reply.body.contains("was deleted or replaced: nothing is written"), "{}", reply.body);
        assert!(ops.get("/metrics").body.contains("\nmandate_ready 0\n"));
        assert_eq!(organization.post("/agents", &json!({"name": "late"})).status, 500);
        let log = server.logged();
        assert_eq!(log.matches("was deleted or replaced while it ran").count(), 1, "{log}");
        assert_eq!(ops.get("/livez").status, 200);
    }
}
