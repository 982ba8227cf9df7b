//! The public log of a real server, cosigned by a witness that others wrote, and read by a verifier that others wrote.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use mandate_core::log::{Hash, LogProof, token_hash};
use mandate_tests::command::log_strangers;
use mandate_tests::wait::until;
use serde_json::json;

use crate::harness::{DEADLINE, Ran, TestServer};

const READ_LOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/strangers/read_log.py");
const NAME: &str = "witness.example/w1";

/// `aics-witness`, which runs until it is dropped.
struct Witness {
    child: Child,
    key: String,
    url: String,
}

impl Witness {
    /// One that knows this log.
    fn start(program: &Path, folder: &Path, log_key: &str) -> Self {
        let configuration = folder.join("witness.json");
        let command = |args: &[&str]| {
            let mut command = Command::new(program);
            command.env_clear().env("AICS_WITNESS_CONFIG", &configuration).args(args).stdin(Stdio::null());
            command
        };
        let ran = |args: &[&str]| Ran::from(command(args).output().unwrap()).code(0);
        let key = ran(&["init", "--name", NAME]).out.trim().to_owned();
        let origin = log_key.split('+').next().unwrap();
        ran(&["add-log", "--origin", origin, "--vkey", log_key]);
        let mut serve = command(&["serve", "--listen", "127.0.0.1:0"]);
        let mut child = serve.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let listens = |line: String| Some(line.split_once("listening on ")?.1.split(' ').next()?.to_owned());
        let url = lines.find_map(listens).unwrap();
        // Its other lines are read, so that it never waits.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, key, url }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn aics_witness_cosigns_what_aics_tlog_verifies() {
    let Some(programs) = log_strangers() else { return };
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let (agent, public) = (server.demo().buyer("buyer"), server.stranger("verdicts_url"));
    let key = public.get("/log/sandbox/key").body.trim().to_owned();
    let witness = Witness::start(&programs.join("aics-witness"), folder.path(), &key);
    server.operate(&["log", "witness", "add", &witness.key, &witness.url]).code(0);

    let tokens: Vec<_> = (0..3).map(|_| agent.ask(1).text("/verdict_token")).collect();
    let hexadecimal =
        |hash: &Hash| hash.as_bytes().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let hash = hexadecimal(&token_hash(tokens.last().unwrap()).unwrap());
    let proof = until(DEADLINE, "the witness has cosigned the decisions", || {
        let proof = public.get(&format!("/log/sandbox/proof/{hash}"));
        (proof.status == 200 && proof.body.contains(&format!("\u{2014} {NAME} "))).then_some(proof.body)
    });
    let proof = LogProof::parse(proof.as_bytes()).unwrap();
    // Nothing else is decided: its checkpoint stays the newest.
    let hashes: Vec<_> = proof.hashes.iter().map(hexadecimal).collect();
    let proofs = json!([[proof.index, hashes]]).to_string();
    let read = |key: &str, witness: &str| {
        let mut command = Command::new(programs.join("python"));
        let url = format!("{}/log/sandbox", server.issuer());
        Ran::with_stdin(command.args([READ_LOG, &url, key, witness]), proofs.as_bytes())
    };
    let checkpoint = proof.checkpoint.checkpoint();
    let root = hexadecimal(checkpoint.root());
    assert_eq!(read(&key, &witness.key).code(0).out.trim(), format!("{} {root} 1", checkpoint.size()));
    let production = public.get("/log/production/key").body;
    read(production.trim(), &witness.key).code(1).says("refused: checkpoint");
}
