//! The console in a real browser with a virtual authenticator, and what gets through to it without one: nothing.

use std::io::{BufRead as _, BufReader, Read as _, Write as _, copy};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;

use mandate_tests::Kind;
use serde_json::json;

use crate::harness::{Replicas, TestServer, terms};
use crate::pages::{documented, screenshots, script};
use crate::strangers::run_with;

#[test]
fn people_answer_in_the_console_with_their_own_passkeys() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.agent("buyer");
    let terms = json!({
        "principal": "role:head-of-it",
        "agent": agent.id,
        "limits": { "per_transaction": 500, "per_month": 2000, "currency": "USD" },
        "categories": ["software", "cloud"],
        "review_above": 200,
        "expires": "2099-12-31"
    });
    let mandate = organization.mandate(&terms);
    let mut command = script("console.mjs");
    let pictures = screenshots("console");
    command.arg(format!("{}/sandbox/demo", server.ready("console_url"))).arg(&pictures);
    let given = json!({
        "link": server.ready("console_link"),
        "api": server.ready("base_url"),
        "agent": agent.client.key(),
        "organization": server.ready("organization_key"),
        "mandate": mandate,
    });
    let found = run_with(&mut command, &given.to_string()).code(0).json();
    assert_eq!(found["screenshots"], 56);
    documented(&pictures.join("console.png"), "docs/images/console.png");
    documented(&pictures.join("review.png"), "docs/images/review.png");
}

/// More tabs than a browser has connections; a proxy that answers for a server that is away.
#[test]
fn pages_hear_the_news_in_seven_tabs_and_after_a_proxys_error() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.agent("buyer");
    organization.mandate(&terms(&agent.id));
    let mut command = script("news.mjs");
    command.arg(format!("{}/sandbox/demo", server.ready("console_url"))).arg(screenshots("news"));
    let given = json!({
        "link": server.ready("console_link"),
        "api": server.ready("base_url"),
        "agent": agent.client.key(),
        "organization": server.ready("organization_key"),
    });
    run_with(&mut command, &given.to_string()).code(0);
}

/// Passes each connection on to the first server that takes it.
fn balance(listener: TcpListener, servers: Vec<String>) {
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Some(server) = servers.iter().find_map(|at| TcpStream::connect(at).ok()) else { continue };
            let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
            for (mut from, mut to) in [(client, server), back] {
                thread::spawn(move || {
                    let _ = copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
}

/// The queue goes on, a statement that the dead server gave is answered at the other, and the session lasts.
#[test]
fn pages_go_on_when_the_server_behind_them_dies() {
    let database = Kind::Postgres.fresh();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://localhost:{}", listener.local_addr().unwrap().port());
    let replicas = Replicas::with_consoles(database.url(), 2, &origin);
    balance(listener, vec![replicas.console(0), replicas.console(1)]);
    let organization = replicas.organization("demo");
    let agent = organization.agent("buyer");
    organization.mandate(&terms(&agent.id));
    let person = ["person", "create", "--organization", "demo", "--environment", "sandbox", "--name", "Ada"];
    let rights = ["--role", "role:head-of-it", "--may", "review", "--console-url", &origin, "--json"];
    let made = replicas.operate(&[&person[..], &rights].concat()).code(0).json();

    let mut command = script("replicas.mjs");
    command.arg(format!("{origin}/sandbox/demo")).arg(screenshots("replicas"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let scene = json!({ "link": made["link"], "api": replicas.api(1), "agent": agent.client.key() });
    child.stdin.take().unwrap().write_all(scene.to_string().as_bytes()).unwrap();
    let (mut said, mut line) = (BufReader::new(child.stdout.take().unwrap()), String::new());
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    replicas.kill(0);
    said.read_to_string(&mut line).unwrap();
    assert!(child.wait().unwrap().success());
}
