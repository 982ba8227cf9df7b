//! The worked examples of `docs/cli.md`, run as written, against a real server.

use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::page::{Example, begins, examples, text};
use crate::harness::{Agent, Organization, Ran, TestServer, binary, terms};

/// What asks a person; `profiles` runs it.
const ASKS: &str = "mandate login";
/// What does not end by itself. A reader ends it with Ctrl-C.
const ENDLESS: [&str; 2] = ["mandate decision tail --follow", "mandate listen "];
/// Where the page's receiver of webhooks is.
const HOOKS: &str = "http://127.0.0.1:3000/hooks";

/// A user who types the page's commands.
struct Reader<'a> {
    server: &'a TestServer,
    organization: &'a Organization,
    folder: &'a Path,
    agent: Option<Agent>,
    last: i32,
    payers: Cell<u32>,
    /// The address of a receiver that accepts all.
    hooks: String,
}

impl Reader<'_> {
    /// The values of the page's names in this run.
    fn meant(&self, command: &str) -> String {
        let live = &self.organization.live;
        let newest = |path: &str, at: &str| live.get(path).json().pointer(at).cloned().unwrap_or_default();
        let word = |value: Value| value.as_str().unwrap_or("none").to_owned();
        let token = self.folder.join("token.txt");
        // In a pipe these two print lines of JSON.
        let as_seen = ["mandate listen ", "mandate replay "].iter().any(|start| command.starts_with(start));
        let command = format!("{command}{}", if as_seen { " --format table" } else { "" });
        // A reader at a terminal confirms each change in production.
        let confirmed = match command.strip_prefix("mandate ") {
            Some(rest) => format!("mandate --yes {rest}"),
            None => command,
        };
        confirmed
            .replace(HOOKS, &self.hooks)
            .replace("https://verdicts.example.com", self.server.ready("verdicts_url"))
            .replace("\"$TOKEN\"", &format!("\"$(cat {})\"", token.display()))
            .replace("mnd_01kjmr9s000000000000000002", &word(newest("/mandates", "/data/0/id")))
            .replace(
                "rev_01kjmr9s000000000000000005",
                &word(newest("/decisions?review=pending", "/data/0/review/id")),
            )
    }

    /// What a command needs, as a reader has prepared it by then.
    fn prepare(&self, example: &Example) {
        let Some(agent) = &self.agent else { return };
        let live = &self.organization.live;
        if live.get("/mandates").json().pointer("/data/0/status") != Some(&json!("active")) {
            live.post("/mandates", &terms(&agent.id));
        }
        if example.command.starts_with("mandate review list") {
            agent.ask(400);
        }
        if example.section == "For counterparties" {
            // An agent of its own for each: one agent may ask ten times a minute.
            let payer =
                Agent::register(live, &format!("payer{}", self.payers.replace(self.payers.get() + 1)));
            live.post("/mandates", &terms(&payer.id));
            let token = payer.ask(40).text("/verdict_token");
            std::fs::write(self.folder.join("token.txt"), &token).unwrap();
            let order = json!({"token": token, "amount": 40, "currency": "USD", "recipient": "vendor:acme"});
            std::fs::write(self.folder.join("orders.ndjson"), order.to_string()).unwrap();
            let keys = self.server.stranger("verdicts_url").get("/.well-known/jwks.json").body;
            std::fs::write(self.folder.join("jwks.json"), keys).unwrap();
        }
    }

    fn run(&self, example: &Example) -> Ran {
        if ENDLESS.iter().any(|start| example.command.starts_with(start)) {
            return self.run_until_ended(example);
        }
        self.shell(example, &self.meant(&example.command)).output().unwrap().into()
    }

    /// Runs what does not end, has something happen, and ends it as Ctrl-C does.
    fn run_until_ended(&self, example: &Example) -> Ran {
        let mut command = self.shell(example, &format!("exec {}", self.meant(&example.command)));
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        let sandbox = &self.organization.client;
        let agent = self.organization.agent(&format!("seen{}", running.id()));
        let mandate = sandbox.post("/mandates", &terms(&agent.id)).text("/id");
        sandbox.act(&format!("/mandates/{mandate}/revoke"));
        std::thread::sleep(Duration::from_secs(3));
        let interrupt = Command::new("kill").args(["-INT", &running.id().to_string()]).status();
        assert!(interrupt.unwrap().success());
        let ran: Ran = running.wait_with_output().unwrap().into();
        assert!([Some(0), Some(130), None].contains(&ran.code), "{ran:?}");
        Ran { code: Some(0), ..ran }
    }

    /// The shell that a user of the example's section types into.
    fn shell(&self, example: &Example, script: &str) -> Command {
        let path = binary("mandate").parent().unwrap().to_owned();
        let mut command = Command::new("bash");
        command.args(["-c", script]).current_dir(self.folder).env_clear();
        command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
        command.env("MANDATE_CONFIG_DIR", self.folder.join("config")).stdin(Stdio::null());
        match (example.section.as_str(), &self.agent) {
            ("For counterparties", _) => {}
            ("For agents", Some(agent)) => {
                command.env("MANDATE_BASE_URL", self.server.ready("base_url"));
                command.env("MANDATE_AGENT_KEY", agent.client.key());
            }
            (section, _) => {
                let of = self.organization;
                let client = if section == "For developers" { &of.client } else { &of.live };
                command.env("MANDATE_BASE_URL", self.server.ready("base_url"));
                command.env("MANDATE_ORGANIZATION_KEY", client.key());
                // The page's user has logged in: the profile knows the issuer.
                command.env("MANDATE_ISSUER", self.server.ready("verdicts_url"));
            }
        }
        command
    }

    /// Types the command, and compares what it prints with the page: the first word of each line.
    fn follow(&mut self, example: &Example) {
        if let Some(code) = example.command.strip_prefix("echo $?").map(|_| &example.printed[0]) {
            assert_eq!(code.parse(), Ok(self.last), "{example:?}");
            return;
        }
        self.prepare(example);
        let ran = self.run(example);
        self.last = ran.code.unwrap();
        let both = format!("{}{}", ran.out, ran.err);
        for line in example.printed.iter().filter(|line| !line.starts_with(' ') && !line.is_empty()) {
            let begins = begins(line);
            assert!(
                both.lines().any(|shown| shown.starts_with(&begins)),
                "{begins} is not in {both}\n{example:?}"
            );
        }
        if example.command.starts_with("mandate agent create") {
            let key = ran.out.lines().find_map(|line| line.strip_prefix("agent_key")).unwrap().trim();
            let client = self.organization.live.with_key(key);
            self.agent = Some(Agent { id: "agt_buyer".to_owned(), client });
        }
    }
}

/// Starts a receiver that answers each event with 204. Returns its address.
fn receiver() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 16 * 1024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
        }
    });
    format!("http://{address}/hooks")
}

#[test]
fn every_worked_example_runs_as_it_is_written() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    assert_eq!(organization.live.post("/enforcement", &json!({"mode": "enforce"})).status, 200);
    let mut written = terms("agt_buyer");
    for (name, limit, review) in [("mandate.json", 800, 0), ("candidate.json", 800, 300)] {
        written["limits"]["per_transaction"] = json!(limit);
        written["review_above"] = json!(review);
        std::fs::write(folder.path().join(name), written.to_string()).unwrap();
    }
    let page = text("docs/cli.md");
    let examples = examples(page.split("\n## Profiles\n").next().unwrap());
    let mut reader = Reader {
        server: &server,
        organization: &organization,
        folder: folder.path(),
        agent: None,
        last: 0,
        payers: Cell::new(0),
        hooks: receiver(),
    };
    // A counterparty is shown a token once there are organizations and agents.
    let sections = ["For organizations", "For agents", "For counterparties", "For developers"];
    let mut count = 0;
    for section in sections {
        let mut of_section = examples.iter().filter(|example| example.section == section).peekable();
        while let Some(example) = of_section.next() {
            if example.command.starts_with(ASKS) || example.command.starts_with("export ") {
                continue;
            }
            reader.follow(example);
            count += 1;
            // Without a code on the page, the command must succeed.
            let says_code = of_section.peek().is_some_and(|next| next.command == "echo $?");
            let is_doctor = example.command.starts_with("mandate doctor");
            assert!(
                says_code || is_doctor || reader.last == 0 || example.command == "echo $?",
                "{example:?}: {}",
                reader.last
            );
        }
    }
    assert!(count > 20 && examples.iter().all(|example| sections.contains(&example.section.as_str())));
}
