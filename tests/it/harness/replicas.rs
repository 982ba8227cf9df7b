//! Several servers on one PostgreSQL, as an operator runs them: `serve`, each in a process of its own.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;

use mandate_tests::{Database, Kind};
use serde_json::Value;
use tempfile::TempDir;

use super::client::Client;
use super::clock::ShiftedClock;
use super::command::{Ran, binary};
use super::oracle;
use super::server::TestServer;
use super::world::Organization;

const MASTER_KEY: &str = "4242424242424242424242424242424242424242424242424242424242424242";
/// Who signs, whichever server it is.
const ISSUER: &str = "http://127.0.0.1:9";

/// The servers, killed when dropped.
pub(crate) struct Replicas {
    database: String,
    running: Vec<Mutex<Replica>>,
    /// The clocks that they are started with; the machine's, where there are none.
    clocks: Vec<ShiftedClock>,
    /// What they are started with besides.
    variables: Vec<(&'static str, PathBuf)>,
    folder: TempDir,
    /// Deleted when the servers are gone.
    held: Option<Database>,
}

struct Replica {
    child: Child,
    base_url: String,
    ops_url: String,
    public_url: String,
    /// Where its console listens, if it has one.
    console: Option<String>,
}

impl Replicas {
    /// So many servers on the database of this URL.
    pub(crate) fn start(database: &str, count: usize) -> Self {
        let mut replicas = Self::none(database);
        replicas.running = (0..count).map(|number| Mutex::new(replicas.serve(number))).collect();
        replicas
    }

    /// One server, with these variables in its environment.
    pub(crate) fn with_environment(database: &str, variables: &[(&'static str, PathBuf)]) -> Self {
        let mut replicas = Self::none(database);
        replicas.variables = variables.to_vec();
        replicas.running = vec![Mutex::new(replicas.serve(0))];
        replicas
    }

    /// So many servers, each with a console on a port of its own. People see all of them at this origin.
    pub(crate) fn with_consoles(database: &str, count: usize, origin: &str) -> Self {
        let mut replicas = Self::none(database);
        let variables = [("MANDATE_CONSOLE_ADDRESS", "127.0.0.1:0"), ("MANDATE_CONSOLE_URL", origin)];
        replicas.variables = variables.map(|(name, value)| (name, PathBuf::from(value))).to_vec();
        replicas.running = (0..count).map(|number| Mutex::new(replicas.serve(number))).collect();
        replicas
    }

    fn none(database: &str) -> Self {
        Self {
            database: database.to_owned(),
            running: Vec::new(),
            clocks: Vec::new(),
            variables: Vec::new(),
            folder: tempfile::tempdir().unwrap(),
            held: None,
        }
    }

    /// A server for each of these clocks, which are so many milliseconds ahead.
    pub(crate) fn with_clocks(database: &str, ahead: &[i64]) -> Self {
        let mut replicas = Self::none(database);
        replicas.clocks = ahead.iter().map(|millis| ShiftedClock::ahead(*millis)).collect();
        replicas.running = (0..ahead.len()).map(|number| Mutex::new(replicas.serve(number))).collect();
        replicas
    }

    /// Holds the database, and the log of an environment, against all that can be computed again.
    pub(crate) fn hold(&self, organization: &Client) -> usize {
        let public = self.running[0].lock().unwrap().public_url.clone();
        let keys = format!("{public}/.well-known/jwks.json");
        oracle::holds(|args| self.operate(args), organization, (&[ISSUER.to_owned()], &keys))
    }

    pub(crate) fn count(&self) -> usize {
        self.running.len()
    }

    /// A client of one of them, with a key.
    pub(crate) fn client(&self, number: usize, key: &str) -> Client {
        let replica = self.running[number % self.running.len()].lock().unwrap();
        Client::new(&replica.base_url, Some(key))
    }

    /// A stranger at the ops listener of one of them.
    pub(crate) fn ops(&self, number: usize) -> Client {
        Client::new(&self.running[number].lock().unwrap().ops_url, None)
    }

    /// A stranger at the public listener of one of them.
    pub(crate) fn public(&self, number: usize) -> Client {
        Client::new(&self.running[number].lock().unwrap().public_url, None)
    }

    /// The address of the API of one of them.
    pub(crate) fn api(&self, number: usize) -> String {
        self.running[number].lock().unwrap().base_url.clone()
    }

    /// Where the console of one of them listens.
    pub(crate) fn console(&self, number: usize) -> String {
        self.running[number].lock().unwrap().console.clone().unwrap()
    }

    /// Kills one at once (SIGKILL).
    pub(crate) fn kill(&self, number: usize) {
        self.running[number].lock().unwrap().end();
    }

    /// Kills one at once (SIGKILL), and starts another in its place.
    pub(crate) fn replace(&self, number: usize) {
        let mut replica = self.running[number].lock().unwrap();
        replica.end();
        *replica = self.serve(number);
    }

    /// Stops one (SIGSTOP) while `meanwhile` goes on, and go on after it as if no time had passed.
    pub(crate) fn suspend(&self, number: usize, meanwhile: impl FnOnce()) {
        let process = self.running[number].lock().unwrap().child.id();
        signal("STOP", process);
        meanwhile();
        signal("CONT", process);
    }

    /// Onboards an organization with the operator's command, beside the running servers.
    pub(crate) fn organization(&self, name: &str) -> Organization {
        let created = self.operate(&["organization", "create", name, "--json"]).code(0).json();
        let urls: Vec<_> =
            self.running.iter().map(|replica| replica.lock().unwrap().base_url.clone()).collect();
        let client = |name: &str| Client::of_all(&urls, created[name].as_str().unwrap());
        Organization { client: client("organization_key"), live: client("live_organization_key") }
    }

    /// Runs an operator's command on the database.
    pub(crate) fn operate(&self, args: &[&str]) -> Ran {
        Ran::from(self.command().args(args).output().unwrap())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(binary("mandate-server"));
        command.env_clear().env("MANDATE_DATABASE", &self.database).env("MANDATE_MASTER_KEY", MASTER_KEY);
        command.env("MANDATE_EXPORTS_DIRECTORY", self.folder.path().join("exports"));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn serve(&self, number: usize) -> Replica {
        let mut command = self.command();
        command.envs(self.clocks.get(number).map(ShiftedClock::environment).into_iter().flatten());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.args(["serve", "--log-format", "json", "--verdicts-url", ISSUER]);
        for listener in ["api", "public", "ops"] {
            command.args([&format!("--{listener}-address"), "127.0.0.1:0"]);
        }
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut read, mut ops_url, mut public_url) = (Vec::new(), String::new(), String::new());
        let mut console = None;
        let base_url = loop {
            let mut line = String::new();
            let length = log.read_line(&mut line).unwrap();
            assert!(length > 0, "the server has ended: {:?}, {read:#?}", child.wait());
            let entry: Value = serde_json::from_str(&line).unwrap_or_default();
            match entry["message"].as_str() {
                Some("listening") => {
                    ops_url = format!("http://{}", entry["ops"].as_str().unwrap());
                    public_url = format!("http://{}", entry["public"].as_str().unwrap());
                }
                Some("the console is open") => console = entry["console"].as_str().map(str::to_owned),
                Some("serving") => break entry["base_url"].as_str().unwrap().to_owned(),
                _ => read.push(line),
            }
        };
        // The log is read on, so that the server never waits to write it.
        let path = self.folder.path().join(format!("{number}.log"));
        let mut kept = File::options().create(true).append(true).open(path).unwrap();
        thread::spawn(move || std::io::copy(&mut log, &mut kept));
        Replica { child, base_url, ops_url, public_url, console }
    }

    /// What all of them have logged since they served.
    pub(crate) fn logged(&self) -> String {
        let logs = (0..self.count()).map(|number| {
            let log = std::fs::read_to_string(self.folder.path().join(format!("{number}.log")));
            format!("server {number}:\n{}\n", log.unwrap_or_default())
        });
        logs.collect()
    }
}

/// A service on a database of a kind: on SQLite one server, on PostgreSQL three.
pub(crate) enum Service {
    One(TestServer),
    Several(Replicas),
}

impl Service {
    pub(crate) fn start(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => Self::One(TestServer::start()),
            Kind::Postgres => {
                let database = kind.fresh();
                let mut replicas = Replicas::start(database.url(), 3);
                replicas.held = Some(database);
                Self::Several(replicas)
            }
        }
    }

    /// An organization. Its clients, and those of its agents, use one server after another.
    pub(crate) fn demo(&self) -> Organization {
        match self {
            Self::One(server) => server.demo(),
            Self::Several(replicas) => replicas.organization("demo"),
        }
    }

    /// Holds the database, and the log of an environment, against all that can be computed again.
    pub(crate) fn hold(&self, organization: &Client) -> usize {
        match self {
            Self::One(server) => server.hold(organization, &[server.issuer()]),
            Self::Several(replicas) => replicas.hold(organization),
        }
    }
}

fn signal(name: &str, process: u32) {
    // Every shell has it built in.
    let sent = Command::new("/bin/sh").args(["-c", &format!("kill -{name} {process}")]).status();
    assert!(sent.unwrap().success());
}

impl Replica {
    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Replicas {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.logged());
        }
        for replica in &self.running {
            replica.lock().unwrap_or_else(std::sync::PoisonError::into_inner).end();
        }
    }
}
