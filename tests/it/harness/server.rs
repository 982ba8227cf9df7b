//! A real server: a child process with a directory and ports of its own.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::client::Client;
use super::clock::ShiftedClock;
use super::command::{Ran, binary};
use super::oracle;
use super::world::Organization;

pub(crate) use mandate_tests::wait::DEADLINE;

/// `mandate-server dev --json`, killed when dropped.
pub(crate) struct TestServer {
    child: Child,
    ready: Value,
    log: std::path::PathBuf,
    /// Dropped last, and removed with it.
    _own: Option<TempDir>,
}

impl TestServer {
    /// On a directory of its own.
    pub(crate) fn start() -> Self {
        let own = tempfile::tempdir().unwrap();
        let data = own.path().to_owned();
        Self::spawn(Command::new(binary("mandate-server")), &data, Some(own))
    }

    /// On a directory that outlives it, where no file can be written beyond so many blocks: that fails as a disk does.
    pub(crate) fn start_with_small_files(data: &Path, blocks: u32) -> Self {
        Self::start_behind(data, &format!("trap '' XFSZ; ulimit -S -f {blocks}"))
    }

    /// On a directory that outlives it, with so many open files at most: as a soft limit, or for good.
    pub(crate) fn start_with_open_files(data: &Path, files: usize, is_soft: bool) -> Self {
        Self::start_behind(data, &format!("ulimit {} -n {files}", if is_soft { "-S" } else { "" }))
    }

    /// Behind what a shell does to itself.
    fn start_behind(data: &Path, script: &str) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!(r#"{script}; exec "$@""#), "sh"]).arg(binary("mandate-server"));
        Self::spawn(command, data, None)
    }

    /// On a directory that outlives it, with a library that is loaded before all others, and variables for that.
    pub(crate) fn start_with_library(data: &Path, library: &Path, variables: &[(&str, &Path)]) -> Self {
        let mut command = Command::new("/usr/bin/env");
        command.arg(format!("LD_PRELOAD={}", library.display()));
        command.args(variables.iter().map(|(name, value)| format!("{name}={}", value.display())));
        command.arg(binary("mandate-server"));
        Self::spawn(command, data, None)
    }

    /// On a directory that outlives it, by a clock of its own.
    pub(crate) fn start_by(data: &Path, clock: &ShiftedClock) -> Self {
        let mut command = Command::new("/usr/bin/env");
        command.args(clock.environment().map(|(name, value)| format!("{name}={}", value.display())));
        command.arg(binary("mandate-server"));
        Self::spawn(command, data, None)
    }

    /// Holds the database, and the log of an environment, against all that can be computed again. The issuers are those of all
    /// servers that there were on it.
    pub(crate) fn hold(&self, organization: &Client, issuers: &[String]) -> usize {
        let keys = format!("{}/.well-known/jwks.json", self.ready("verdicts_url"));
        oracle::holds(|args| self.operate(args), organization, (issuers, &keys))
    }

    /// On a directory that outlives it.
    pub(crate) fn start_in(data: &Path) -> Self {
        Self::spawn(Command::new(binary("mandate-server")), data, None)
    }

    fn spawn(mut command: Command, data: &Path, own: Option<TempDir>) -> Self {
        let log = data.join("stderr.log");
        command.env_clear().args(["dev", "--json", "--port", "0", "--data"]).arg(data);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|e| {
            panic!("{e}: {line:?}; {}", std::fs::read_to_string(&log).unwrap_or_default())
        });
        Self { child, ready, log, _own: own }
    }

    /// What the one line of `--json` says.
    pub(crate) fn ready(&self, name: &str) -> &str {
        self.ready[name].as_str().unwrap_or_else(|| panic!("{name} is not in {}", self.ready))
    }

    /// How much of its memory is resident, in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The issuer of its tokens.
    pub(crate) fn issuer(&self) -> String {
        self.ready("verdicts_url").to_owned()
    }

    /// A client of the API with this key.
    pub(crate) fn client(&self, key: &str) -> Client {
        Client::new(self.ready("base_url"), Some(key))
    }

    /// A client without a key, of any of the listeners.
    pub(crate) fn stranger(&self, listener: &str) -> Client {
        Client::new(self.ready(listener), None)
    }

    /// The organization that is there from the start.
    pub(crate) fn demo(&self) -> Organization {
        let (key, live) = (self.ready("organization_key"), self.ready("live_organization_key"));
        Organization { client: self.client(key), live: self.client(live) }
    }

    /// Onboards another organization with the operator's command, beside the running server.
    pub(crate) fn organization(&self, name: &str) -> Organization {
        let created = self.operate(&["organization", "create", name, "--json"]).code(0);
        let keys: Value = serde_json::from_str(&created.out).unwrap();
        let client = |name: &str| self.client(keys[name].as_str().unwrap());
        Organization { client: client("organization_key"), live: client("live_organization_key") }
    }

    /// Runs an operator's command on its database, beside it.
    pub(crate) fn operate(&self, args: &[&str]) -> Ran {
        Ran::from(self.operator(args).output().unwrap())
    }

    /// An operator's command on its database, with nothing else in the environment, and no terminal.
    pub(crate) fn operator(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary("mandate-server"));
        command.env_clear().env("MANDATE_DATABASE", self.ready("database"));
        command.env("MANDATE_MASTER_KEY", self.master_key()).args(args).stdin(Stdio::null());
        command
    }

    /// The key that its signing keys are encrypted under.
    fn master_key(&self) -> String {
        let keys = std::fs::read_to_string(self.log.with_file_name("mandate-dev.json")).unwrap();
        let keys: Value = serde_json::from_str(&keys).unwrap();
        keys["master_key"].as_str().unwrap().to_owned()
    }

    /// What it has logged.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Kills the server at once (SIGKILL), as a power cut would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}
