//! Events of the real server, received on this machine: verified by clients that others wrote, and by the example.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mandate_tests::wait::until;
use serde_json::{Value, json};

use crate::harness::{Agent, Client, DEADLINE, Organization, TestServer, binary, terms};
use crate::strangers::{installed, run_with};

const PYJWT: &str = include_str!("../strangers/verify_event.py");
const NPM_JOSE: &str = include_str!("../strangers/verify_event.mjs");

/// Registers a webhook. Returns its path.
fn webhook(organization: &Organization, url: &str) -> String {
    let created = organization.client.post("/webhooks", &json!({"url": url, "events": ["mandate.revoked"]}));
    assert_eq!(created.status, 201, "{created:?}");
    format!("/webhooks/{}", created.text("/webhook"))
}

/// Reads an event until its one delivery has this status.
fn delivered(client: &Client, event: &str, status: &str) -> Value {
    until(DEADLINE, "the delivery has the status", || {
        let delivery = client.get(&format!("/events/{event}")).json()["deliveries"][0].clone();
        (delivery["status"] == status).then_some(delivery)
    })
}

/// Takes one request on a connection of its own, and acknowledges it. Returns its body.
fn take(listener: &TcpListener) -> String {
    take_with(listener, "204 No Content")
}

/// Takes one request, and answers with a status. Returns its body.
fn take_with(listener: &TcpListener, status: &str) -> String {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut reader = BufReader::new(stream);
    let (mut length, mut form) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_lowercase();
        match line.split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(("content-type", value)) => value.clone_into(&mut form),
            _ if line.is_empty() => break,
            _ => {}
        }
    }
    assert_eq!(form, "application/jwt");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    reader.get_mut().write_all(answer.as_bytes()).unwrap();
    String::from_utf8(body).unwrap()
}

#[test]
fn the_operator_has_a_failed_delivery_made_again() {
    let server = TestServer::start();
    let organization = server.demo();
    assert_eq!(organization.buyer("buyer").ask(1).status, 201);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let path = webhook(&organization, &format!("http://{}/in", listener.local_addr().unwrap()));
    let hook = path.strip_prefix("/webhooks/").unwrap();
    let event = organization.client.act(&format!("{path}/ping")).text("/event");
    let first = take_with(&listener, "500 Internal Server Error");
    until(DEADLINE, "the attempt is written down", || {
        let read = organization.client.get(&format!("/events/{event}")).json();
        (!read["deliveries"][0]["attempts"][0].is_null()).then_some(())
    });
    // As after 24 hours.
    let database =
        rusqlite::Connection::open(server.ready("database").strip_prefix("sqlite://").unwrap()).unwrap();
    database.busy_timeout(DEADLINE).unwrap();
    let failed = database.execute("UPDATE deliveries SET state = 'failed' WHERE state = 'pending'", ());
    assert_eq!(failed, Ok(1));
    delivered(&organization.client, &event, "failed");
    let retried = server.operate(&["webhook", "retry", &event, hook, "--json"]).code(0).json();
    assert_eq!((&retried["event"], &retried["webhook"]), (&json!(event), &json!(hook)), "{retried}");
    let second = take(&listener);
    let claims = |token: &str| token.split('.').nth(1).unwrap().to_owned();
    assert_eq!(claims(&second), claims(&first), "the same event");
    let delivery = delivered(&organization.client, &event, "delivered");
    assert_eq!(delivery["attempts"].as_array().unwrap().len(), 2, "{delivery}");
    let records = server.operate(&["audit", "list", "--json"]).code(0).json();
    assert_eq!(records[0]["action"], "webhook.retry", "{records}");
    server.operate(&["webhook", "retry", &event, hook]).code(1);
    assert_eq!(server.hold(&organization.client, &[server.issuer()]), 1);
}

#[test]
fn strangers_verify_what_is_delivered() {
    let server = TestServer::start();
    let organization = server.demo();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    webhook(&organization, &format!("http://{}/in", listener.local_addr().unwrap()));
    let mandate = organization.mandate(&terms(&organization.agent("buyer").id));
    let revoked = organization.client.act(&format!("/mandates/{mandate}/revoke"));
    let token = take(&listener);

    let event = organization.client.get("/events?type=mandate.revoked").text("/data/0/event");
    let issuer = server.ready("verdicts_url").to_owned();
    let key_set = format!("{issuer}/.well-known/jwks.json");
    let python = installed("venv/bin/python");
    let pyjwt = |token: &str| run_with(Command::new(&python).args(["-", &key_set, &issuer, token]), PYJWT);
    let modules = installed("node_modules/jose");
    let jose = |token: &str| {
        let mut command = Command::new("node");
        command.current_dir(modules.parent().and_then(Path::parent).unwrap());
        run_with(command.args(["--input-type=module", "-", &key_set, &issuer, token]), NPM_JOSE)
    };
    let (head, signature) = token.rsplit_once('.').unwrap();
    let tampered =
        format!("{head}.{}{}", if signature.starts_with('A') { 'B' } else { 'A' }, &signature[1..]);
    for claims in [pyjwt(&token), jose(&token)] {
        let claims: Value = serde_json::from_str(&claims.code(0).out).unwrap();
        assert_eq!(claims["jti"], event);
        assert_eq!(
            claims,
            json!({"iss": issuer, "jti": event, "iat": claims["iat"], "type": "mandate.revoked", "data": revoked.json()})
        );
    }
    assert_eq!(pyjwt(&tampered).code(1).out.trim(), "InvalidSignatureError");
    assert_eq!(jose(&tampered).code(1).out.trim(), "ERR_JWS_SIGNATURE_VERIFICATION_FAILED");
    let delivery = delivered(&organization.client, &event, "delivered");
    assert_eq!(delivery["attempts"][0]["status"], 204);
}

/// Takes connections and answers nothing; hands each over.
fn hang() -> (u16, mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, taken) = mpsc::channel();
    std::thread::spawn(move || listener.incoming().flatten().try_for_each(|stream| sender.send(stream)));
    (port, taken)
}

/// Half of the time after which an attempt is given up: what takes as long was held up.
const HELD_UP: Duration = Duration::from_secs(5);

#[test]
fn many_that_hang_at_once_delay_no_other() {
    let server = TestServer::start();
    let healthy = server.demo();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let path = webhook(&healthy, &format!("http://{}/in", listener.local_addr().unwrap()));
    let (port, taken) = hang();
    let others = ["b", "c"].map(|name| server.organization(name));
    let flooded = others.iter().flat_map(|organization| [&organization.client, &organization.live]);
    for (environment, client) in flooded.enumerate() {
        // Each at an address of its own: one host has its bound too.
        for host in 1..=16 {
            let url = format!("http://127.0.{environment}.{}:{port}/in", host + 1);
            let created = client.post("/webhooks", &json!({"url": url, "events": ["mandate.revoked"]}));
            assert_eq!(created.status, 201, "{created:?}");
        }
        let agent = Agent::register(client, "buyer").id;
        for _ in 0..12 {
            let mandate = client.post("/mandates", &terms(&agent)).text("/id");
            assert_eq!(client.act(&format!("/mandates/{mandate}/revoke")).status, 200);
        }
    }
    // All of them hang; by now one that gives a webhook whatever it can take has no place left.
    let hanging: Vec<_> = (0..64).map(|_| taken.recv_timeout(DEADLINE).unwrap()).collect();
    for _ in 0..5 {
        let began = Instant::now();
        let event = healthy.client.act(&format!("{path}/ping")).text("/event");
        assert!(take(&listener).split('.').count() == 3);
        delivered(&healthy.client, &event, "delivered");
        assert!(began.elapsed() < HELD_UP, "{:?}", began.elapsed());
    }
    drop(hanging);
    assert_eq!(healthy.buyer("buyer").ask(1).status, 201);
    assert_eq!(server.hold(&healthy.client, &[server.issuer()]), 1);
}

/// The example, and the URL that it listens on. Killed when dropped.
struct Example {
    child: Child,
    url: String,
}

impl Example {
    fn start(server: &TestServer, keep: &Path) -> Self {
        let mut command = Command::new(binary("receiver"));
        command.env_clear().args([
            "--allow-sandbox",
            "--issuer",
            server.ready("verdicts_url"),
            "--listen",
            "127.0.0.1:0",
            "--keep",
        ]);
        let mut child = command.arg(keep).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim_end().to_owned() }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_example_keeps_each_event_once_and_nothing_else() {
    let server = TestServer::start();
    let organization = server.demo();
    let folder = tempfile::tempdir().unwrap();
    let keep = folder.path().join("events.jsonl");
    let mut example = Example::start(&server, &keep);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = webhook(&organization, &format!("http://{}/in", listener.local_addr().unwrap()));
    organization.client.act(&format!("{here}/ping"));
    let token = take(&listener);

    // Delivered by the server.
    let there = webhook(&organization, &example.url);
    let event = organization.client.act(&format!("{there}/ping")).text("/event");
    delivered(&organization.client, &event, "delivered");
    // Sent by hand: once, again, after a restart, and tampered with.
    let post = |example: &Example, token: &str| Client::new(&example.url, None).post_text("/", token);
    let answer = |answer: crate::harness::Answer| (answer.status, answer.body.trim_end().to_owned());
    assert_eq!(answer(post(&example, &token)), (200, "kept".to_owned()));
    assert_eq!(answer(post(&example, &token)), (200, "known".to_owned()));
    drop(example);
    example = Example::start(&server, &keep);
    assert_eq!(answer(post(&example, &token)), (200, "known".to_owned()));
    assert_eq!(post(&example, &token.replacen("ey", "ez", 1)).status, 400);
    assert_eq!(post(&example, "").status, 400);

    let lines = std::fs::read_to_string(&keep).unwrap();
    let kept: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((kept.len(), &kept[0]["jti"], &kept[0]["type"]), (2, &json!(event), &json!("ping")));
}
