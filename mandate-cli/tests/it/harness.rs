//! What the tests share: a run of the binary, API keys, and a listener that plays the service.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;

use mandate_core::EnvironmentKind;
use mandate_core::api_key::{ApiKey, KeyClass};
pub(crate) use mandate_tests::Ran;
use mandate_tests::command::command;

/// The binary with an empty environment.
pub(crate) fn mandate(args: &[&str]) -> Command {
    command(Path::new(env!("CARGO_BIN_EXE_mandate")), args)
}

pub(crate) fn run(args: &[&str]) -> Ran {
    mandate(args).output().unwrap().into()
}

/// Runs with `text` on standard input.
pub(crate) fn run_with_stdin(command: &mut Command, text: &[u8]) -> Ran {
    Ran::with_stdin(command, text)
}

pub(crate) fn key(class: KeyClass) -> String {
    ApiKey::from_random(class, EnvironmentKind::Sandbox, &[7; 32]).expose().to_owned()
}

pub(crate) fn organization_key() -> String {
    key(KeyClass::Organization)
}

pub(crate) fn agent_key() -> String {
    key(KeyClass::Agent)
}

/// Writes a file that only its owner can read.
pub(crate) fn private_file(path: &Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// A request as it arrived.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// A listener on loopback that gives fixed answers, one a connection, and keeps what it was asked.
pub(crate) struct Service {
    address: String,
    thread: JoinHandle<Vec<Request>>,
}

impl Service {
    /// Gives these answers, each a status line's end with further headers (`201 Created\r\nretry-after: 1`) and a body.
    pub(crate) fn new(answers: &[(&str, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let answers: Vec<_> = answers.iter().map(|(h, b)| ((*h).to_owned(), (*b).to_owned())).collect();
        let thread = std::thread::spawn(move || {
            answers
                .iter()
                .map(|(head, body)| {
                    let (stream, _) = listener.accept().unwrap();
                    answer(stream, head, body)
                })
                .collect()
        });
        Self { address, thread }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn base_url(&self) -> String {
        format!("{}/v1", self.address)
    }

    /// What was asked. Waits until every answer was given.
    pub(crate) fn requests(self) -> Vec<Request> {
        self.thread.join().unwrap()
    }

    /// What was asked, when it was one request.
    pub(crate) fn request(self) -> Request {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1);
        requests.remove(0)
    }

    /// Runs an organization's command against this service.
    pub(crate) fn organization(&self, args: &[&str]) -> Command {
        let mut command = mandate(args);
        command.env("MANDATE_BASE_URL", self.base_url()).env("MANDATE_ORGANIZATION_KEY", organization_key());
        command
    }

    /// Runs an agent's command against this service.
    pub(crate) fn agent(&self, args: &[&str]) -> Command {
        let mut command = mandate(args);
        command.env("MANDATE_BASE_URL", self.base_url()).env("MANDATE_AGENT_KEY", agent_key());
        command
    }
}

fn answer(stream: TcpStream, head: &str, body: &str) -> Request {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            text => lines.push(text.to_owned()),
        }
    }
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .filter_map(|l| l.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let mut request = Request { line: lines[0].clone(), headers, body: String::new() };
    let length = request.header("content-length").map_or(0, |l| l.parse().unwrap());
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).unwrap();
    request.body = String::from_utf8(bytes).unwrap();
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {head}\r\ncontent-type: application/json\r\nx-request-id: req_1\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    // The client may have closed the connection already.
    let _ = reader.get_mut().write_all(text.as_bytes());
    request
}
