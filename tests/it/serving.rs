//! `serve`, as an operator runs it: what it logs, and how it ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Agent, Client, Organization, Ran, authorization, binary, terms};

const MASTER_KEY: &str = "4242424242424242424242424242424242424242424242424242424242424242";

/// `mandate-server serve` with a log in JSON, killed when dropped.
struct Serving {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    /// The lines of the log that were read.
    lines: Vec<Value>,
    folder: TempDir,
}

const LISTENERS: [&str; 3] = ["api", "public", "ops"];

/// The variable that sets the address of a listener.
fn address_of(listener: &str) -> String {
    format!("MANDATE_{}_ADDRESS", listener.to_uppercase())
}

impl Serving {
    fn start(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut serving = Self::spawn(flags, variables);
        serving.await_line("serving");
        serving
    }

    /// One that may not serve yet.
    fn spawn(flags: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(binary("mandate-server"));
        command.env_clear().env("MANDATE_MASTER_KEY", MASTER_KEY);
        for listener in LISTENERS {
            command.env(address_of(listener), "127.0.0.1:0");
        }
        command.envs(variables.iter().copied()).current_dir(folder.path());
        command.args(["serve", "--log-format", "json", "--log-level", "trace"]).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, log, lines: Vec::new(), folder }
    }

    /// Reads the log up to the line with this message.
    fn await_line(&mut self, message: &str) {
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "no `{message}` in {:#?}", self.lines);
            self.lines.push(serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}")));
            if self.line(message).is_some() {
                return;
            }
        }
    }

    /// The first line with this message, of those that were read.
    fn line(&self, message: &str) -> Option<&Value> {
        self.lines.iter().find(|line| line["message"] == message)
    }

    fn base_url(&self) -> &str {
        self.line("serving").unwrap()["base_url"].as_str().unwrap()
    }

    fn organization(&self, name: &str) -> Organization {
        let mut command = Command::new(binary("mandate-server"));
        command.env_clear().current_dir(self.folder.path()).args(["organization", "create", name, "--json"]);
        let created = Ran::from(command.output().unwrap()).code(0);
        let keys: Value = serde_json::from_str(&created.out).unwrap();
        let client = |name: &str| Client::new(self.base_url(), Some(keys[name].as_str().unwrap()));
        Organization { client: client("organization_key"), live: client("live_organization_key") }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end. Returns the exit code, and what was read of the log and what was not.
    fn ended(&mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        let read: Vec<_> = self.lines.iter().map(Value::to_string).collect();
        (self.child.wait().unwrap().code(), format!("{}\n{rest}", read.join("\n")))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_log_says_what_runs_and_what_was_asked_and_no_secret() {
    let mut server =
        Serving::start(&[], &[("MANDATE_DATABSE", "mistyped"), ("MANDATE_AGENT_KEY", "not its own")]);
    let starting = server.line("starting").unwrap();
    assert_eq!(starting["version"], env!("CARGO_PKG_VERSION"));
    assert!(starting["settings"].as_str().unwrap().contains("sqlite://mandate.db"), "{starting}");
    let unread: Vec<_> = server.lines.iter().filter(|line| line["nearest"].is_string()).collect();
    assert_eq!(unread.len(), 1, "{unread:?}");
    assert_eq!(
        (&unread[0]["name"], &unread[0]["nearest"]),
        (&"MANDATE_DATABSE".into(), &"MANDATE_DATABASE".into())
    );

    let organization = server.organization("acme");
    let client = &organization.client;
    let agent = Agent::register(client, "buyer");
    assert_eq!(client.post("/mandates", &terms(&agent.id)).status, 201);
    let token = agent.ask(40).text("/verdict_token");
    let (key, agent_key) = (client.key().to_owned(), agent.client.key().to_owned());
    let secrets =
        [&key, &agent_key, organization.live.key(), &token, MASTER_KEY, "opensesame"].map(str::to_owned);
    for secret in secrets.iter().filter(|secret| *secret != MASTER_KEY) {
        let stranger = Client::new(server.base_url(), Some(secret));
        stranger.get("/agents");
        let refused = client.get(&format!("/{secret}"));
        assert_eq!(refused.status, 404);
        for path in [
            format!("/agents/{secret}"),
            format!("/agents?{secret}={secret}"),
            format!("/agents?cursor={secret}"),
        ] {
            assert!(client.get(&path).status >= 400, "{path}");
        }
        let mut request = authorization(40);
        request["recipient"] = json!(secret);
        assert_eq!(agent.client.post("/authorizations", &request).status, 400);
        assert_eq!(client.post("/agents", &json!({ "name": secret, secret.as_str(): secret })).status, 400);
        assert_eq!(client.post_text("/agents", secret).status, 400);
        for header in ["idempotency-key", "x-request-id", "cookie", "x-api-key"] {
            client.send("GET", "/agents", &[(header, secret)], "").unwrap();
        }
        assert_eq!(client.send(secret, "/agents", &[], "").unwrap().status, 400);
        let odd = Client::new(server.base_url(), None);
        assert_eq!(
            odd.send("GET", "/agents", &[("authorization", &format!("Basic {secret}"))], "").unwrap().status,
            401
        );
    }
    server.signal("TERM");
    let (code, log) = server.ended();
    assert_eq!(code, Some(0), "{log}");
    for secret in &secrets {
        assert!(!log.contains(secret.as_str()), "{secret} is in the log:\n{log}");
    }
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["level"].is_string()), "{log}");
    let requests: Vec<_> = lines.iter().filter(|line| line["message"] == "request").collect();
    assert!(
        requests.len() > 50
            && requests.iter().all(|line| line["request_id"].as_str().unwrap().starts_with("req_"))
    );
    assert!(
        log.contains("\"path\":\"/v1/authorizations\"") && log.contains("\"message\":\"stopping\""),
        "{log}"
    );
}

#[test]
fn a_hangup_ends_nothing_and_a_second_sign_to_stop_ends_at_once() {
    let mut server = Serving::start(&["--drain-delay-seconds", "600"], &[]);
    let client = Client::new(server.base_url(), None);
    server.signal("HUP");
    assert_eq!(client.get("/agents").status, 401);
    server.signal("TERM");
    server.await_line("stopping");
    assert_eq!(client.get("/agents").status, 401, "requests are accepted while load balancers are notified");
    server.signal("TERM");
    let (code, log) = server.ended();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("error: stopped by a second signal"), "{log}");
}

/// How long a drain may take, without the delay before it.
const DRAIN: Duration = Duration::from_secs(30);
/// What a server logs while another one has its file.
const WAITING: &str = "the database is in use: waiting for its end";

#[test]
fn a_second_server_on_a_file_waits_for_the_end_of_the_first_which_it_names() {
    let mut first = Serving::start(&[], &[]);
    let database = format!("sqlite://{}/mandate.db", first.folder.path().display());
    let mut second = Serving::spawn(&["--database", &database], &[]);
    second.await_line(WAITING);
    let owner = format!("process {} on host ", first.child.id());
    let named = second.line(WAITING).unwrap()["owner"].as_str().unwrap();
    assert!(named.starts_with(&owner) && named.len() > owner.len(), "{named}");
    first.signal("INT");
    assert_eq!(first.ended().0, Some(0));
    second.await_line("serving");

    // A command that needs the file for itself does not wait.
    let mut migrate = Command::new(binary("mandate-server"));
    migrate.env_clear().args(["migrate", "--database", &database]);
    let refused = migrate.output().unwrap();
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{printed}");
    assert!(printed.contains(&format!("belongs to process {} on host ", second.child.id())), "{printed}");

    // A killed process holds nothing.
    second.signal("KILL");
    second.child.wait().unwrap();
    let third = Serving::start(&["--database", &database], &[]);
    assert!(third.line(WAITING).is_none());
}

#[test]
fn a_server_that_waits_for_a_file_binds_no_address_before_it_has_the_file() {
    let mut first = Serving::start(&[], &[]);
    let database = format!("sqlite://{}/mandate.db", first.folder.path().display());
    let listening = |server: &Serving| {
        let line = server.line("listening").unwrap();
        LISTENERS.map(|listener| line[listener].as_str().unwrap().to_owned())
    };
    let addresses = listening(&first);
    let names = LISTENERS.map(address_of);
    let variables: Vec<_> =
        names.iter().map(String::as_str).zip(addresses.iter().map(String::as_str)).collect();
    let mut second = Serving::spawn(&["--database", &database], &variables);
    second.await_line(WAITING);
    assert_eq!(Client::new(first.base_url(), None).get("/agents").status, 401);
    first.signal("INT");
    assert_eq!(first.ended().0, Some(0));
    second.await_line("serving");
    assert_eq!(listening(&second), addresses);
}

#[test]
fn a_server_that_waits_for_a_file_ends_when_it_is_stopped() {
    let first = Serving::start(&[], &[]);
    let database = format!("sqlite://{}/mandate.db", first.folder.path().display());
    // It would wait for a quarter of an hour.
    let mut second = Serving::spawn(&["--database", &database, "--drain-delay-seconds", "600"], &[]);
    second.await_line(WAITING);
    let began = Instant::now();
    second.signal("TERM");
    let (code, log) = second.ended();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("\"message\":\"stopped before it served\""), "{log}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_second_server_on_a_file_gives_up_after_as_long_as_a_drain_may_take() {
    let first = Serving::start(&[], &[]);
    let database = format!("sqlite://{}/mandate.db", first.folder.path().display());
    let began = Instant::now();
    let mut second = Serving::spawn(&["--database", &database], &[]);
    second.await_line(WAITING);
    let waits = Instant::now();
    let (code, log) = second.ended();
    assert_eq!(code, Some(1), "{log}");
    assert!(began.elapsed() >= DRAIN, "{:?}", began.elapsed());
    assert!(waits.elapsed() <= DRAIN + Duration::from_secs(10), "{:?}", waits.elapsed());
    assert!(log.contains(&format!("belongs to process {} on host ", first.child.id())), "{log}");
    assert_eq!(Client::new(first.base_url(), None).get("/agents").status, 401, "the first goes on");
}
