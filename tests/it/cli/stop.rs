//! The emergency stop against a real server.

use serde_json::json;

use super::Shell;
use crate::harness::{Ran, TestServer, terms};

#[test]
fn an_emergency_stop_revokes_all_says_what_remained_and_can_be_repeated() {
    let server = TestServer::start();
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    let agents: Vec<_> = ["a", "b", "c"].map(|name| organization.buyer(name)).into();
    organization.agent("idle");
    let verdict = |agent: usize| agents[agent].ask(40).text("/verdict");

    shell.run(&["stop"]).code(2).says("--agent");
    shell.run(&["stop", "--agent", "nosuch"]).code(33).says("there is no agent agt_nosuch");
    let one = shell.run(&["stop", "--agent", "a"]).code(0);
    assert!(
        one.out.starts_with("stopped      agt_a  mnd_")
            && one.out.ends_with("STOPPED: 1 revoked, none remain\n"),
        "{one:?}"
    );
    assert_eq!([0, 1, 2].map(verdict), ["deny_revoked", "allow", "allow"]);

    let all = shell.run(&["stop", "--all", "--json"]).code(0).json();
    let stopped: Vec<_> = all["stopped"].as_array().unwrap().iter().map(|named| &named["agent"]).collect();
    assert_eq!(stopped, ["agt_b", "agt_c"]);
    assert_eq!((&all["already"], &all["remaining"]), (&json!(["agt_a", "agt_idle"]), &json!([])));
    assert_eq!([0, 1, 2].map(verdict), ["deny_revoked"; 3]);
    let again = shell.run(&["stop", "--all"]).code(0);
    assert_eq!(again.out, "already      4 could not spend before\nSTOPPED: 0 revoked, none remain\n");

    // In observe mode a denial blocks nothing.
    assert_eq!(organization.client.post("/enforcement", &json!({"mode": "observe"})).status, 200);
    organization.mandate(&terms("agt_b"));
    shell.run(&["stop", "--agent", "b"]).code(0).says("observe mode");
}

#[test]
fn a_live_stop_wants_one_confirmation() {
    let server = TestServer::start();
    let organization = server.demo();
    let shell = Shell::new(&server, &organization).with_key(organization.live.key());
    for name in ["a", "b"] {
        let agent = crate::harness::Agent::register(&organization.live, name);
        assert_eq!(organization.live.post("/mandates", &terms(&agent.id)).status, 201);
    }
    let refused = shell.run(&["stop", "--all"]).code(4).says("revoke 2 mandates of agt_a, agt_b");
    assert_eq!(refused.out, "");
    shell.run(&["stop", "--all", "--yes"]).code(0).shows("STOPPED: 2 revoked, none remain");
}

/// A service that does not revoke the mandate of one of two agents.
#[test]
fn what_cannot_be_revoked_is_named_and_keeps_no_other_from_it() {
    use std::io::{Read as _, Write as _};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (first, second) = ("mnd_01hf7yat000000000000000001", "mnd_01hf7yat000000000000000002");
    let revoked = Arc::new(AtomicBool::new(false));
    let is_revoked = Arc::clone(&revoked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let length = stream.read(&mut head).unwrap();
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let mandate = |agent: &str, id: &str| {
                let mut mandate = terms(agent);
                let status =
                    if id == second && is_revoked.load(Ordering::SeqCst) { "revoked" } else { "active" };
                mandate["id"] = json!(id);
                mandate["status"] = json!(status);
                mandate
            };
            let (status, body) = if path.ends_with("/revoke") && path.contains(first) {
                (
                    "500 Internal Server Error",
                    json!({"error": {"code": "server_error", "message": "no", "request_id": "r"}}),
                )
            } else if path.ends_with("/revoke") {
                is_revoked.store(true, Ordering::SeqCst);
                ("200 OK", mandate("agt_b", second))
            } else if path == "/v1/agents/agt_b" {
                ("200 OK", json!({"id": "agt_b", "mandate": second}))
            } else if path.starts_with("/v1/agents") {
                let agents = json!([{"id": "agt_a", "mandate": first}, {"id": "agt_b", "mandate": second}]);
                ("200 OK", json!({"data": agents, "has_more": false}))
            } else if path.starts_with("/v1/mandates?") {
                ("200 OK", json!({"data": [mandate("agt_a", first)], "has_more": false}))
            } else if path.starts_with("/v1/mandates/") {
                ("200 OK", mandate("agt_b", second))
            } else {
                ("200 OK", json!({"mode": "enforce"}))
            };
            let body = body.to_string();
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nretry-after: 0\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    let server = TestServer::start();
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    let mut command = shell.command(&["stop", "--all"]);
    let ran: Ran = command.env("MANDATE_BASE_URL", format!("http://{address}/v1")).output().unwrap().into();
    let ran = ran.code(36).says("repeat the command");
    assert!(ran.out.contains(&format!("stopped      agt_b  {second}")), "{ran:?}");
    assert!(ran.out.contains(&format!("remaining    agt_a  {first}")), "{ran:?}");
    assert!(ran.out.ends_with("NOT STOPPED: 1 revoked, 1 remain\n"), "{ran:?}");
}
