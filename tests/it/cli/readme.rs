//! The worked examples of README.md, run as written, against a real server.

use std::path::Path;
use std::process::{Command, Stdio};

use super::page::{begins, examples, text};
use crate::harness::{Organization, Ran, TestServer, binary};

/// The blocks of commands below a heading of README.md.
fn blocks(heading: &str) -> Vec<String> {
    let page = text("README.md");
    let (_, section) = page.split_once(&format!("\n### {heading}\n")).unwrap();
    let section = section.split("\n##").next().unwrap();
    let blocks = section.split("\n```\n").skip(1).step_by(2);
    blocks
        .map(|block| block.trim_matches('\n').to_owned())
        .filter(|block| block.contains("mandate "))
        .collect()
}

/// Waits until a text is in a file, for a minute at most.
fn seen(text: &str, file: &str) -> String {
    format!("for _ in $(seq 600); do if grep -q '{text}' {file}; then break; fi; sleep .1; done")
}

/// A user who pastes README's commands, with the addresses of this test's server.
struct Reader<'a> {
    server: &'a TestServer,
    organization: &'a Organization,
    folder: &'a Path,
}

impl Reader<'_> {
    /// Pastes a block. Standard input is what the user types: the organization's key.
    fn paste(&self, block: &str) -> Ran {
        let lines = block.lines().map(|line| {
            let ends = ["mandate review watch", "mandate decision tail --follow"];
            match line.split('#').next().unwrap().trim() {
                // What asks a person, and what does not end by itself: Ctrl-C ends it.
                "mandate review watch" => ":".to_owned(),
                command if ends.contains(&command) => {
                    format!("timeout -s INT 2 {command} || case $? in 124 | 130) ;; *) exit 1 ;; esac")
                }
                command if command.starts_with("mandate listen ") => {
                    let begin = format!("{command} > listened.txt 2> listening.txt & listening=$!");
                    format!(
                        "{begin}; trap 'kill -INT $listening' EXIT; {}",
                        seen("listening on", "listening.txt")
                    )
                }
                command if command.starts_with("mandate trigger ") => {
                    format!("{command}; {}", seen("escrow.released", "listened.txt"))
                }
                _ => line.to_owned(),
            }
        });
        let script = lines.collect::<Vec<_>>().join("\n");
        let script = script
            .replace("http://127.0.0.1:8080/v1", self.server.ready("base_url"))
            .replace("http://127.0.0.1:8081", self.server.ready("verdicts_url"));
        let path = format!("{}:/usr/bin:/bin", binary("mandate").parent().unwrap().display());
        let mut command = Command::new("bash");
        command.args(["-e", "-o", "pipefail", "-c", &script]).current_dir(self.folder).env_clear();
        command
            .env("PATH", path)
            .env("MANDATE_CONFIG_DIR", self.folder.join("config"))
            .env("HOME", self.folder);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ran::with_stdin(&mut command, self.organization.client.key().as_bytes())
    }
}

#[test]
fn every_command_of_the_readme_runs_as_it_is_written() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let reader = Reader { server: &server, organization: &organization, folder: folder.path() };

    let [agents] = &blocks("You run agents")[..] else { panic!() };
    let ran = reader.paste(agents).code(0);
    for printed in ["verdict      allow", "status       ready", "NO VERDICT CHANGES"] {
        assert!(ran.out.contains(printed), "{printed}: {ran:?}");
    }
    assert!(folder.path().join("purchaser.key").exists());

    let [payments] = &blocks("You receive payments")[..] else { panic!() };
    let ran = reader.paste(payments).code(0);
    assert!(ran.out.contains("\nVALID, sandbox - not real money\n"), "{ran:?}");
    let answers = std::fs::read_to_string(folder.path().join("answers.ndjson")).unwrap();
    assert!(answers.contains("\"valid\":true"), "{answers}");

    let build = blocks("You build on it");
    let ran = reader.paste(&build[0]);
    // `doctor` says what is not as it should be on this machine.
    assert!([Some(0), Some(25)].contains(&ran.code), "{ran:?}");
    assert!(ran.out.contains("type         escrow.released"), "{ran:?}");
    let listened = std::fs::read_to_string(folder.path().join("listened.txt")).unwrap();
    assert!(listened.contains("escrow.released"), "{listened}");
}

/// The requests of examples/README.md: the webhook that the first one creates is the one of the second.
#[test]
fn the_requests_of_the_examples_are_answered() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let reader = Reader { server: &server, organization: &organization, folder: folder.path() };
    let page = text("examples/README.md");
    let requests = page.split("\n```\n").find(|block| block.starts_with("curl ")).unwrap();
    let (create, ping) = requests.split_at(requests.find("\ncurl -X POST").unwrap());
    let paste = |requests: &str| {
        let key = organization.client.key();
        reader.paste(&format!("KEY={key}\n{requests}")).code(0).json()
    };
    let created = paste(create);
    assert_eq!(created["events"], serde_json::json!(["decision.review_pending", "mandate.revoked"]));
    let id = created["webhook"].as_str().unwrap();
    assert_eq!(paste(&ping.replace("whk_…", id))["type"], "ping");
}

/// The first blocks, of an agent that pays and of the receiver of the payment.
#[test]
fn what_the_readme_shows_first_is_what_is_printed() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let buyer = organization.buyer("buyer");
    let page = text("README.md").replace("\n```\n$ ", "\n```console\n$ ");
    let shown = examples(page.split("\n## ").next().unwrap());
    assert_eq!(shown.len(), 4);
    let mut token = String::new();
    for example in &shown {
        let script = example.command.replace("http://127.0.0.1:8081", server.ready("verdicts_url"));
        let path = format!("{}:/usr/bin:/bin", binary("mandate").parent().unwrap().display());
        let mut command = Command::new("bash");
        command
            .args(["-c", &format!("{script}\necho \"$TOKEN\" > token")])
            .current_dir(folder.path())
            .env_clear();
        command.env("PATH", path).env("TOKEN", &token).env("MANDATE_BASE_URL", server.ready("base_url"));
        command.env("MANDATE_AGENT_KEY", buyer.client.key()).env("HOME", folder.path());
        let ran = Ran::with_stdin(&mut command, b"");
        token = std::fs::read_to_string(folder.path().join("token")).unwrap().trim().to_owned();
        let words = |lines: &mut dyn Iterator<Item = &str>| -> Vec<String> {
            lines.filter(|line| !line.is_empty()).map(begins).collect()
        };
        assert_eq!(
            words(&mut ran.out.lines()),
            words(&mut example.printed.iter().map(String::as_str)),
            "{example:?}: {ran:?}"
        );
    }
}
