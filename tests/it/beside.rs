//! What else writes to a SQLite database while a server owns it: operators' commands, and programs that should not.

use rusqlite::Connection;
use rusqlite::types::Value;

use crate::harness::{Ran, TestServer};

/// The tables that decide, or that decisions are in.
const DECIDING: [&str; 8] = [
    "agents",
    "mandates",
    "usage",
    "decisions",
    "agent_decisions",
    "reviews",
    "unsettled",
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
        let all = if table == "unsettled" { "1" } else { "environment <= ?1" };
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} WHERE {all}")).unwrap();
        let columns = statement.column_count();
        let parameters = (table != "unsettled").then_some(environments);
        let found = statement
            .query_map(rusqlite::params_from_iter(parameters), |row| {
                (0..columns).map(|n| row.get(n)).collect()
            })
            .unwrap();
        rows.extend(found.map(Result::unwrap));
    }
    rows
}

#[test]
fn no_command_beside_a_server_writes_a_row_that_decides() {
    let server = TestServer::start();
    let buyer = server.demo().buyer("buyer");
    for _ in 0..3 {
        assert_eq!(buyer.ask(1).status, 201);
    }
    let environments =
        open(&server).query_row("SELECT max(environment) FROM environments", [], |row| row.get(0));
    let environments: i64 = environments.unwrap();
    let before = deciding(&server, environments);
    assert!(before.len() > 8, "{before:?}");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db").display().to_string();
    let sandbox = ["--organization", "demo", "--environment", "sandbox"];
    let commands: Vec<Vec<&str>> = vec![
        vec!["organization", "create", "acme"],
        vec!["organization", "list"],
        [&["key", "issue"][..], &sandbox, &["--name", "ci"]].concat(),
        [&["key", "list"][..], &sandbox].concat(),
        [&["rate", "set"][..], &sandbox, &["--agent", "buyer", "600"]].concat(),
        [&["rate", "show"][..], &sandbox].concat(),
        vec!["signing-key", "rotate", "--environment", "sandbox"],
        vec!["signing-key", "list"],
        vec!["clock", "show"],
        vec!["clock", "accept", "--yes"],
        vec!["webhook", "list", "--organization", "demo"],
        vec!["export", "list"],
        vec!["settlement", "list"],
        vec!["audit", "list"],
        vec!["check"],
        vec!["backup", "create", &copy],
        [&["key", "revoke"][..], &sandbox, &["--agent", "buyer", "--yes"]].concat(),
    ];
    for command in commands {
        let Ran { code, err, .. } = server.operate(&command);
        assert_eq!(code, Some(0), "{command:?}: {err}");
        assert_eq!(deciding(&server, environments), before, "{command:?}");
    }
    // What needs the file for itself is refused, and names the server.
    for command in [&["migrate"][..], &["backup", "restore", &copy, "--force"]] {
        let Ran { code, err, .. } = server.operate(command);
        assert_eq!(code, Some(1), "{command:?}: {err}");
        assert!(err.contains(" belongs to process ") && err.contains(" on host "), "{command:?}: {err}");
        assert_eq!(deciding(&server, environments), before, "{command:?}");
    }
    assert_eq!(server.demo().client.get("/agents").status, 200);
    assert!(!server.logged().contains("has written to the database"), "{}", server.logged());
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
}

#[test]
fn an_operators_command_hides_no_write_of_another_program() {
    let server = TestServer::start();
    let buyer = server.demo().buyer("buyer");
    for _ in 0..3 {
        assert_eq!(buyer.ask(1).status, 201);
    }
    // What is not in the agent's rows yet, and is in the server's memory.
    let newest = "DELETE FROM decisions WHERE decision = (SELECT max(decision) FROM decisions)";
    assert_eq!(open(&server).execute(newest, []).unwrap(), 1);
    let issued = ["key", "issue", "--organization", "demo", "--environment", "sandbox", "--name", "ci"];
    assert_eq!(server.operate(&issued).code, Some(0));
    assert_eq!(buyer.ask(1).status, 500);
    assert!(server.logged().contains("has written to the database"), "{}", server.logged());
    // From then on the state is what the file says.
    let answer = buyer.ask(1);
    assert_eq!((answer.status, answer.text("/verdict")), (201, "allow".to_owned()));
}
