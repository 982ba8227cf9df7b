//! `mandate listen` and `mandate replay`: events of a real server, received on this machine.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use mandate_core::EventKind;
use serde_json::{Value, json};

use super::Shell;
use crate::harness::{Client, DEADLINE, Organization, Ran, TestServer, mandate, terms};

/// `mandate listen`, and what it prints: a line of JSON for each event, unless a format is asked for.
struct Listening {
    child: Child,
    url: String,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl Listening {
    fn start(server: &TestServer, organization: &Organization, args: &[&str]) -> Self {
        let shell = Shell::new(server, organization);
        Self::of(shell.command(&[&["listen", "--issuer", server.ready("verdicts_url")], args].concat()))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, mut err) =
            (BufReader::new(child.stdout.take().unwrap()), BufReader::new(child.stderr.take().unwrap()));
        let said = line(&mut err);
        let url = said.strip_prefix("listening on ").and_then(|rest| rest.split_once(';')).unwrap().0;
        Self { url: url.to_owned(), child, out, err }
    }

    /// The next event.
    fn event(&mut self) -> Value {
        serde_json::from_str(&line(&mut self.out)).unwrap()
    }

    /// Posts a body. Returns the status.
    fn post(&self, body: &str) -> u16 {
        Client::new(self.url.trim_end_matches('/'), None).send("POST", "/", &[], body).unwrap().status
    }

    /// Presses Ctrl-C. Returns what was still said.
    fn interrupt(self) -> String {
        self.ended().0
    }

    /// Presses Ctrl-C. Returns what was still said, and shown.
    fn ended(mut self) -> (String, String) {
        Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(130));
        let (mut said, mut shown) = (String::new(), String::new());
        self.err.read_to_string(&mut said).unwrap();
        self.out.read_to_string(&mut shown).unwrap();
        (said, shown)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(reader: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line
}

/// Takes one request, and answers it with a status. Returns its body.
fn take(listener: &TcpListener, status: u16) -> String {
    let (reader, body) = receive(listener);
    reply(reader, status);
    body
}

/// Takes one request. Returns its connection and its body.
fn receive(listener: &TcpListener) -> (BufReader<TcpStream>, String) {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let head = line(&mut reader).trim_end().to_lowercase();
        match head.split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap(),
            _ if head.is_empty() => break,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (reader, String::from_utf8(body).unwrap())
}

fn reply(mut reader: BufReader<TcpStream>, status: u16) {
    let answer = format!("HTTP/1.1 {status} \r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    reader.get_mut().write_all(answer.as_bytes()).unwrap();
}

/// The tokens of so many events, taken from the server by hand.
fn tokens(organization: &Organization, count: usize) -> Vec<String> {
    let direct = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", direct.local_addr().unwrap());
    organization.client.post("/webhooks", &json!({"url": url, "events": ["mandate.revoked"]}));
    let agent = organization.agent("buyer").id;
    let revoke = |_| {
        let mandate = organization.mandate(&crate::harness::terms(&agent));
        organization.client.act(&format!("/mandates/{mandate}/revoke"));
        take(&direct, 204)
    };
    (0..count).map(revoke).collect()
}

fn webhooks(organization: &Organization) -> Vec<Value> {
    organization.client.get("/webhooks").json()["data"].as_array().unwrap().clone()
}

#[test]
fn what_verifies_is_shown_once_and_recorded_and_the_registration_ends_with_the_command() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let file = folder.path().join("events.ndjson");
    let mut listening = Listening::start(
        &server,
        &organization,
        &["--register", "--events", "mandate.revoked", "--record", file.to_str().unwrap()],
    );
    let registered = webhooks(&organization);
    assert_eq!(
        (&registered[0]["url"], &registered[0]["events"][0]),
        (&json!(listening.url), &json!("mandate.revoked"))
    );

    let agent = organization.buyer("buyer");
    let id = organization.client.get("/mandates").text("/data/0/id");
    organization.client.act(&format!("/mandates/{id}/revoke"));
    let event = listening.event();
    assert_eq!((&event["type"], &event["data"]["id"]), (&json!("mandate.revoked"), &json!(id)), "{event}");
    assert_eq!(event["environment"], "sandbox");
    let token = event["token"].as_str().unwrap();

    // The same again, and what is none.
    assert_eq!(listening.post(token), 200);
    let (head, signature) = token.rsplit_once('.').unwrap();
    let forged = format!("{head}.{}{}", if signature.starts_with('A') { 'B' } else { 'A' }, &signature[1..]);
    let verdict = agent.ask(1).json();
    for bad in [forged.as_str(), "x", verdict["verdict_token"].as_str().unwrap_or("y")] {
        assert_eq!(listening.post(bad), 400, "{bad}");
    }
    assert_eq!(listening.post(&"x".repeat(64 * 1024 + 1)), 413);
    // A silent connection delays no other.
    let _silent =
        TcpStream::connect(listening.url.trim_start_matches("http://").trim_end_matches('/')).unwrap();
    let other = organization.mandate(&crate::harness::terms(&agent.id));
    organization.client.act(&format!("/mandates/{other}/revoke"));
    assert_eq!(listening.event()["data"]["id"], json!(other));

    let said = listening.interrupt();
    assert!(said.contains("came again") && said.matches("refused ").count() == 3, "{said}");
    assert!(webhooks(&organization).is_empty());
    let recorded = std::fs::read_to_string(&file).unwrap();
    let recorded: Vec<Value> = recorded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((recorded.len(), &recorded[0]), (2, &event));
}

#[test]
fn what_is_forwarded_keeps_its_bytes_and_the_receivers_status_counts() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let file = folder.path().join("events.ndjson");
    let file = file.to_str().unwrap();
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}/hooks", receiver.local_addr().unwrap());
    let mut listening = Listening::start(&server, &organization, &["--forward-to", &to, "--record", file]);

    let token = tokens(&organization, 1).remove(0);

    std::thread::scope(|scope| {
        // Refused, it comes again; taken, it does not.
        let bodies = scope.spawn(|| [take(&receiver, 503), take(&receiver, 204)]);
        assert_eq!([listening.post(&token), listening.post(&token), listening.post(&token)], [503, 204, 200]);
        assert_eq!(bodies.join().unwrap(), [token.as_str(), token.as_str()]);
    });
    // It is shown once.
    assert_eq!(listening.event()["forwarded"], 503);
    let (said, shown) = listening.ended();
    assert!(said.contains("was delivered again: 204") && said.contains("came again"), "{said}");
    assert_eq!(shown, "");
    assert_eq!(std::fs::read_to_string(file).unwrap().lines().count(), 1);

    let shell = Shell::new(&server, &organization);
    let replay = ["replay", file, "--forward-to", &to, "--json"];
    for (status, code) in [(200, 0), (500, 23)] {
        std::thread::scope(|scope| {
            let bodies = scope.spawn(|| take(&receiver, status));
            let replayed = shell.run(&replay).code(code).json();
            assert_eq!((&replayed["type"], &replayed["status"]), (&json!("mandate.revoked"), &json!(status)));
            assert_eq!(bodies.join().unwrap(), token);
        });
    }
    drop(receiver);
    shell.run(&replay).code(37);

    // Half a line was never acknowledged; nothing is appended to it.
    std::fs::write(file, "{\"event\"").unwrap();
    shell.run(&["listen", "--issuer", server.ready("verdicts_url"), "--record", file]).code(3);
    shell.run(&replay).code(30);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "{\"event\"");
}

#[test]
fn an_event_that_cannot_be_forwarded_says_why() {
    let server = TestServer::start();
    let organization = server.demo();
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}/hooks", receiver.local_addr().unwrap());
    let mut listening = Listening::start(&server, &organization, &["--forward-to", &to]);
    let token = tokens(&organization, 1).remove(0);
    drop(receiver);
    assert_eq!(listening.post(&token), 502);
    let event = listening.event();
    assert!(event["error"].as_str().unwrap().contains(&format!("{to} cannot be reached")), "{event}");
    assert_eq!((&event["forwarded"], &event["token"]), (&Value::Null, &json!(token)));
    // It comes again, and is taken.
    let receiver = TcpListener::bind(to.trim_start_matches("http://").trim_end_matches("/hooks")).unwrap();
    std::thread::scope(|scope| {
        let body = scope.spawn(|| take(&receiver, 204));
        assert_eq!(listening.post(&token), 204);
        assert_eq!(body.join().unwrap(), token);
    });
    assert!(listening.interrupt().contains("was delivered again: 204"));
}

#[test]
fn a_slow_receiver_holds_up_no_other_event() {
    let server = TestServer::start();
    let organization = server.demo();
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}/hooks", receiver.local_addr().unwrap());
    let mut listening = Listening::start(&server, &organization, &["--forward-to", &to]);
    let tokens = tokens(&organization, 2);
    let (slow, quick) = (&tokens[0], &tokens[1]);
    std::thread::scope(|scope| {
        let listening = &listening;
        let first = scope.spawn(move || listening.post(slow));
        let (waiting, body) = receive(&receiver);
        assert_eq!(&body, slow);
        // The same event is not forwarded twice at a time; another one goes through meanwhile.
        assert_eq!(listening.post(slow), 503);
        let second = scope.spawn(move || listening.post(quick));
        assert_eq!(&take(&receiver, 204), quick);
        assert_eq!(second.join().unwrap(), 204);
        reply(waiting, 202);
        assert_eq!(first.join().unwrap(), 202);
    });
    assert_eq!([&listening.event()["forwarded"], &listening.event()["forwarded"]], [204, 202]);
    listening.interrupt();
}

#[test]
fn what_was_recorded_before_is_not_recorded_again() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let file = folder.path().join("events.ndjson");
    let file = file.to_str().unwrap();
    let token = tokens(&organization, 1).remove(0);
    let record = ["--record", file];
    let recorded = || std::fs::read_to_string(file).unwrap().lines().count();
    let mut listening = Listening::start(&server, &organization, &record);
    assert_eq!(listening.post(&token), 200);
    listening.event();
    listening.interrupt();

    let listening = Listening::start(&server, &organization, &record);
    assert_eq!(listening.post(&token), 200);
    assert!(listening.interrupt().contains("came again"));
    assert_eq!(recorded(), 1);

    // A file is one listener's.
    let listening = Listening::start(&server, &organization, &record);
    let other = Shell::new(&server, &organization)
        .run(&["listen", "--issuer", server.ready("verdicts_url"), "--record", file])
        .code(3);
    assert!(other.err.contains("another listener is recording"), "{}", other.err);
    listening.interrupt();

    // It is unknown whether the receiver has taken it: it is sent, perhaps again.
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}/hooks", receiver.local_addr().unwrap());
    let listening = Listening::start(&server, &organization, &[&record[..], &["--forward-to", &to]].concat());
    std::thread::scope(|scope| {
        let body = scope.spawn(|| take(&receiver, 204));
        assert_eq!([listening.post(&token), listening.post(&token)], [204, 200]);
        assert_eq!(body.join().unwrap(), token);
    });
    listening.interrupt();
    assert_eq!(recorded(), 1);

    // A file that is none of ours is left alone.
    let other = folder.path().join("other.ndjson");
    std::fs::write(&other, "{}\n").unwrap();
    let shell = Shell::new(&server, &organization);
    let issuer = server.ready("verdicts_url");
    shell.run(&["listen", "--issuer", issuer, "--record", other.to_str().unwrap()]).code(3);
    let device = shell.run(&["listen", "--issuer", issuer, "--record", "/dev/full"]).code(3);
    assert!(device.err.contains("is not a regular file"), "{}", device.err);
    assert_eq!(std::fs::read_to_string(other).unwrap(), "{}\n");
}

#[test]
fn each_type_of_event_really_happens() {
    let server = TestServer::start();
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    shell.run(&["trigger", "ping"]).code(33);
    shell.with_key(organization.live.key()).run(&["trigger", "mandate.revoked"]).code(32);
    let mut listening = Listening::start(&server, &organization, &["--register"]);
    // In a sandbox escrows settle without a provider that could refuse.
    let kinds = EventKind::ALL.into_iter().filter(|kind| *kind != EventKind::EscrowSettlementRefused);
    shell.run(&["trigger", EventKind::EscrowSettlementRefused.as_str()]).code(2);
    for kind in kinds {
        let made = shell.run(&["trigger", kind.as_str(), "--json"]).code(0).json();
        // Before it, others of the same story may come: funded before delivered.
        let event = loop {
            let event = listening.event();
            if event["event"] == made["event"] {
                break event;
            }
        };
        assert_eq!((&event["type"], &made["type"]), (&json!(kind.as_str()), &json!(kind.as_str())));
        if let Some(agent) = made["agent"].as_str() {
            assert!(agent.starts_with("agt_trigger-"), "{made}");
        }
    }
    assert_eq!(organization.live.get("/agents").json()["data"], json!([]));
    listening.interrupt();
}

#[test]
fn people_read_a_line_for_each_event() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    let file = folder.path().join("events.ndjson");
    let file = file.to_str().unwrap();
    let mut listening =
        Listening::start(&server, &organization, &["--register", "--format", "table", "--record", file]);
    let event = shell.get(&["trigger", "ping", "--jq", ".event"]);
    let printed = line(&mut listening.out);
    let (_, rest) = printed.split_once("  ").unwrap();
    assert_eq!(rest, format!("ping                       {event}  sandbox  200\n"));
    // What it has taken once is taken again, and not shown.
    let replayed = shell.get(&["replay", file, "--forward-to", &listening.url, "--format", "table"]);
    assert_eq!(replayed, format!("ping                       {event}  200"));
    assert!(listening.interrupt().contains("came again"));
}

#[test]
fn a_profile_knows_its_issuer() {
    let (server, home) = (TestServer::start(), tempfile::tempdir().unwrap());
    let (organization, issuer) = (server.demo(), server.ready("verdicts_url"));
    let typed = |args: &[&str]| {
        let mut command = mandate(args);
        command.env("MANDATE_CONFIG_DIR", home.path().join("mandate")).current_dir(home.path());
        command
    };
    let ran = |command: &mut Command| Ran::with_stdin(command, organization.client.key().as_bytes());
    let get = |args: &[&str]| ran(&mut typed(args)).code(0).out.trim_end().to_owned();
    get(&["login", "--base-url", server.ready("base_url")]);
    assert_eq!(get(&["whoami", "--jq", ".issuer"]), issuer);
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let hooks = format!("http://{}/hooks", receiver.local_addr().unwrap());
    let mut command = typed(&["listen", "--register", "--forward-to", &hooks]);
    command.stdin(Stdio::null());
    let mut listening = Listening::of(command);
    let agent = organization.buyer("buyer");
    let token = agent.ask(40).text("/verdict_token");
    let verify = ["verify", &token, "--signature-only", "--allow-sandbox", "--json=valid"];
    assert_eq!(get(&verify), r#"{"valid":true}"#);
    organization.client.act(&format!("/mandates/{}/revoke", organization.mandate(&terms(&agent.id))));
    take(&receiver, 204);
    assert!(listening.event()["event"].is_string());
    assert!(get(&["doctor"]).contains(&format!("{issuer}/.well-known/jwks.json answers")));
    let export = get(&["export", "create", "--jq", ".export"]);
    assert!(get(&["export", "download", &export, "-o", "all.ndjson"]).contains(issuer));
    get(&["audit", "all.ndjson"]);

    // What is named nearer wins, and an address of another service makes the profile's issuer another's.
    let elsewhere = [("MANDATE_ISSUER", "http://127.0.0.1:9")];
    assert_eq!(ran(typed(&verify).envs(elsewhere)).code, Some(19));
    ran(typed(&[&verify[..], &["--profile", "sandbox"]].concat()).envs(elsewhere)).code(0);
    ran(typed(&[&verify[..], &["--issuer", issuer]].concat()).envs(elsewhere)).code(0);
    let another = [("MANDATE_BASE_URL", "http://127.0.0.1:9/v1")];
    assert!(ran(typed(&verify).envs(another)).code(2).err.contains("the issuer nor its key set is known"));
}
