//! `mandate-server dev`, the first command that a newcomer runs.

use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::harness::{Ran, TestServer, binary, masked};

const LAST_LINE: &str =
    "Ctrl-C stops the service. The next start finds everything as it is; --fresh starts over.";

/// A server that shows itself. Killed when dropped.
struct Dev {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Dev {
    fn start(data: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(binary("mandate-server"));
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(data);
        command.args(["dev", "--port", "0", "--data"]).arg(data).args(args);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// All lines up to the last of the greeting.
    fn greeting(&mut self) -> Vec<String> {
        let mut shown = Vec::new();
        while shown.last().is_none_or(|line| line != LAST_LINE) {
            shown.push(self.lines.next().unwrap_or_else(|| panic!("it ended after {shown:#?}")).unwrap());
        }
        shown
    }

    /// Ends it as an operator does. Returns what it said after that.
    fn stop(mut self) -> Ran {
        paste(&format!("kill -TERM {}", self.child.id()), Path::new("/")).code(0);
        let out = self.lines.by_ref().map(Result::unwrap).collect::<Vec<_>>().join("\n");
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Ran { code: self.child.wait().unwrap().code(), out, err }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line<'a>(shown: &'a [String], containing: &str) -> &'a str {
    shown
        .iter()
        .find(|line| line.contains(containing))
        .unwrap_or_else(|| panic!("{containing} is not in {shown:#?}"))
}

/// Pastes a line into a shell.
fn paste(line: &str, directory: &Path) -> Ran {
    let mut command = Command::new("sh");
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(directory).args(["-c", line]);
    command.stdin(Stdio::null()).output().unwrap().into()
}

#[test]
fn the_job_is_played_once_and_can_be_gone_on_with() {
    let data = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(data.path(), &[]);
    let shown = dev.greeting();
    let verdicts: Vec<_> = shown
        .iter()
        .filter_map(|line| {
            line.split_whitespace()
                .find(|word| word.starts_with("deny_") || ["allow", "review"].contains(word))
        })
        .collect();
    assert_eq!(verdicts, ["allow", "deny_limit", "review", "allow", "deny_revoked"], "{shown:#?}");
    assert!(line(&shown, "900").contains("amount 900 exceeds per_transaction limit 500"));
    line(&shown, " valid ");
    line(&shown, "signed by sandbox-");
    for label in ["API", "public keys", "console", "ops", "database", "organization key", "agent key"] {
        line(&shown, &format!("  {label} "));
    }
    assert!(shown.iter().all(|line| !line.contains('\u{1b}')), "no colours where no terminal shows them");

    let asked: Value = serde_json::from_str(&paste(line(&shown, "curl"), data.path()).code(0).out).unwrap();
    assert_eq!(asked["verdict"], "allow");
    let authorized = paste(line(&shown, " authorize "), data.path()).code(0);
    assert!(authorized.out.starts_with("verdict      allow\n"), "{authorized:?}");
    let verify = line(&shown, " verify eyJ").to_owned();
    assert!(paste(&verify, data.path()).code(0).out.contains("VALID"));

    let stopped = dev.stop().code(0);
    assert_eq!((stopped.out.as_str(), stopped.err.as_str()), ("", ""));

    // A second start plays nothing, keeps all, and its lines can be pasted again.
    let mut again = Dev::start(data.path(), &[]);
    let greeting = again.greeting();
    assert!(line(&greeting, "Everything is here").contains("as the last start left it"));
    assert!(!greeting.iter().any(|line| line.contains("deny_")), "{greeting:#?}");
    for label in ["organization key", "agent key", "database"] {
        assert_eq!(line(&greeting, &format!("  {label} ")), line(&shown, &format!("  {label} ")));
    }
    assert!(paste(line(&greeting, " verify eyJ"), data.path()).code(0).out.contains("VALID"));
    assert!(paste(line(&greeting, "curl"), data.path()).code(0).out.contains(r#""verdict":"allow""#));
    again.stop().code(0);

    let mut fresh = Dev::start(data.path(), &["--fresh"]);
    let greeting = fresh.greeting();
    assert!(line(&greeting, "900").contains("deny_limit"));
    assert_ne!(line(&greeting, "  organization key "), line(&shown, "  organization key "));
}

#[test]
fn json_is_one_line_and_nothing_else() {
    let data = tempfile::tempdir().unwrap();
    let mut dev = Dev::start(data.path(), &["--json"]);
    let ready = dev.lines.next().unwrap().unwrap();
    let database =
        format!("sqlite://{}", data.path().canonicalize().unwrap().join("mandate-dev.db").display());
    assert_eq!(
        masked(&ready),
        format!(
            concat!(
                r#"{{"base_url":"http://127.0.0.1:*/v1","verdicts_url":"http://127.0.0.1:*","docs_url":"http://127.0.0.1:*","#,
                r#""ops_url":"http://127.0.0.1:*","console_url":"http://localhost:*","console_link":"http://localhost:*/sandbox/demo/enrol#*","organization_key":"sk_sandbox_*","live_organization_key":"sk_live_*","#,
                r#""database":"{}"}}"#
            ),
            database
        )
    );
    assert_eq!(dev.stop().code(0).out, "");
}

#[test]
fn with_json_nothing_is_played_and_a_restart_keeps_the_record() {
    let data = tempfile::tempdir().unwrap();
    let first = TestServer::start_in(data.path());
    let organization = first.demo();
    organization.client.get("/agents").is(200, r#"{"data":[],"has_more":false}"#);
    let agent = organization.buyer("buyer");
    let decision = agent.ask(40).text("/decision");
    let before = agent.client.get(&format!("/decisions/{decision}")).body;
    let (key, agent_key) = (organization.client.key().to_owned(), agent.client.key().to_owned());
    drop(first);

    let second = TestServer::start_in(data.path());
    assert_eq!(second.ready("organization_key"), key);
    let after = second.client(&agent_key).get(&format!("/decisions/{decision}")).body;
    assert_eq!(after, before, "an old decision keeps its issuer and its token");
}

#[test]
fn the_ops_listener_reports_the_state_of_the_server() {
    let server = TestServer::start();
    let ops = server.stranger("ops_url");
    for (path, body) in [("/livez", "live\n"), ("/readyz", "ready\n")] {
        let answer = ops.get(path);
        assert_eq!((answer.status, answer.body.as_str()), (200, body));
    }
}
