//! The commands of `docs/proof.md`, run as written, against a real server.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::page::{Example, examples, text};
use crate::harness::{Agent, Ran, TestServer, binary, terms};

/// How long an entry may take until a proof of it is there.
const PATIENCE: Duration = Duration::from_secs(30);

/// A reader of the page, with the organization's key of production.
struct Reader<'a> {
    server: &'a TestServer,
    key: &'a str,
    folder: &'a Path,
    token: String,
}

impl Reader<'_> {
    /// Types a command of the page. What does not end is ended by Ctrl-C.
    fn types(&self, command: &str) -> Ran {
        let script = command.replace("https://verdicts.example.com", self.server.ready("verdicts_url"));
        // A reader at a terminal confirms the key that is shown, and ends what does not end by itself.
        let script = script
            .replace("mandate log key pin", "mandate log key pin --trust-on-first-use")
            .replace("mandate log witness ", "timeout -s INT 2 mandate log witness --listen 127.0.0.1:0 ");
        let path = binary("mandate").parent().unwrap().to_owned();
        let mut command = Command::new("bash");
        command.args(["-e", "-o", "pipefail", "-c", &script]).current_dir(self.folder).env_clear();
        command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
        command.env("MANDATE_CONFIG_DIR", self.folder.join("config")).env("TOKEN", &self.token);
        command
            .env("MANDATE_BASE_URL", self.server.ready("base_url"))
            .env("MANDATE_ORGANIZATION_KEY", self.key);
        command.stdin(Stdio::null()).output().unwrap().into()
    }

    /// Waits until the token's entry is in the log.
    fn waits(&self) {
        let begun = Instant::now();
        while self.types("mandate log proof \"$TOKEN\" --issuer https://verdicts.example.com -o waited").code
            != Some(0)
        {
            assert!(begun.elapsed() < PATIENCE, "the token is not in the log");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

#[test]
fn every_command_about_proofs_runs_as_it_is_written() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let live = &organization.live;
    assert_eq!(live.post("/enforcement", &json!({"mode": "enforce"})).status, 200);
    let agent = Agent::register(live, "buyer");
    live.post("/mandates", &terms(&agent.id));
    let token = agent.ask(40).text("/verdict_token");
    let reader = Reader { server: &server, key: live.key(), folder: folder.path(), token };
    // What the page says that its reader has: a policy of one's own, the watch key, and the day's entries.
    std::fs::write(folder.path().join("witnesses.policy"), "quorum none\n").unwrap();
    let watched = server.operate(&["log", "watch-key", "demo", "--environment", "production"]).code(0);
    std::fs::write(folder.path().join("watch.key"), watched.out).unwrap();
    reader.waits();

    // What each prints, so that a command that does nothing is seen.
    let said = [
        ("mandate log key pin", "fingerprint"),
        ("mandate log proof", ""),
        ("mandate verify", "VALID"),
        ("mandate log evidence", ""),
        ("mandate log key show", ""),
        ("mandate log verify", "PROVED"),
        ("mandate log monitor", "entries"),
        ("mandate log checkpoint", ""),
        ("mandate export download", ""),
        ("mandate log audit", "NOTHING FOUND"),
        ("mandate audit", "NOTHING FOUND"),
        ("mandate log key create", "witness.example.org/w1"),
        ("mandate log witness", "Ctrl-C ends"),
    ];
    let examples = examples(&text("docs/proof.md"));
    let begin = |example: &Example, start| example.command.starts_with(start);
    assert!(
        examples.len() == said.len() && examples.iter().zip(said).all(|(one, (start, _))| begin(one, start))
    );
    for (example, (start, says)) in examples.iter().zip(said) {
        let ran = reader.types(&example.command);
        // Ctrl-C has ended it.
        let ended = start == "mandate log witness" && ran.code == Some(124);
        assert!(ran.code == Some(0) || ended, "{example:?}: {ran:?}");
        assert!(format!("{}{}", ran.out, ran.err).contains(says), "{says}: {example:?}: {ran:?}");
    }
}
