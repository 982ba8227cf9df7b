//! A server that is measured: started on a directory of its own, killed when dropped.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::Failure;
use crate::figures::Report;
use crate::template::{MASTER_KEY, Template, database};

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contender {
    Ceiling,
    Mandate,
    Plain,
}

/// One that runs.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pub(crate) base_url: String,
    /// Who signs; known of a server for developers alone.
    pub(crate) verdicts_url: String,
    pub(crate) started: Instant,
}

/// How the load is put.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load<'a> {
    pub(crate) keys: &'a Path,
    pub(crate) seconds: u64,
    pub(crate) warm_up: u64,
    pub(crate) args: &'a [&'a str],
}

#[derive(Deserialize)]
struct LogLine {
    base_url: Option<String>,
}

/// What a server for developers says when it is ready.
#[derive(Deserialize)]
struct Ready {
    base_url: String,
    verdicts_url: String,
}

/// The binary of that name, built beside this one.
pub(crate) fn binary(name: &str) -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?.with_file_name(name);
    if path.exists() {
        Ok(path)
    } else {
        Err(format!("{} is not there: run tests/bench", path.display()).into())
    }
}

impl Contender {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ceiling => "ceiling",
            Self::Mandate => "mandate",
            Self::Plain => "plain",
        }
    }

    /// Starts it on a new directory.
    pub(crate) fn start(self, template: &Template, directory: &Path) -> Result<Running, Failure> {
        match self {
            Self::Ceiling => Running::yardstick(&mut Command::new(binary("ceiling")?)),
            Self::Plain => {
                std::fs::create_dir(directory)?;
                let mut command = Command::new(binary("plain")?);
                command.arg(directory.join("plain.db")).arg(template.keys(0));
                Running::yardstick(&mut command)
            }
            Self::Mandate => {
                template.copy_to(directory)?;
                Running::mandate(directory, &[])
            }
        }
    }
}

impl Running {
    /// Starts a yardstick, which prints its base URL on its first line.
    fn yardstick(command: &mut Command) -> Result<Self, Failure> {
        let started = Instant::now();
        let mut child = command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let output = child.stdout.take();
        let mut running = Self::begun(child, started);
        BufReader::new(output.ok_or("there is no output")?).read_line(&mut line)?;
        line.trim_end().clone_into(&mut running.base_url);
        if running.base_url.is_empty() { Err("a yardstick did not start".into()) } else { Ok(running) }
    }

    /// Starts the server on the database in a directory, as it is operated; `before` is what runs it, if anything.
    pub(crate) fn mandate(directory: &Path, before: &[&str]) -> Result<Self, Failure> {
        Self::serve(&format!("sqlite://{}", database(directory).display()), before)
    }

    /// The same on the database of this URL.
    pub(crate) fn serve(url: &str, before: &[&str]) -> Result<Self, Failure> {
        let server = binary("mandate-server")?;
        let mut command = match before.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(server);
                command
            }
            None => Command::new(server),
        };
        command.env_clear().env("MANDATE_MASTER_KEY", MASTER_KEY).args(["serve", "--log-format", "json"]);
        for listener in ["--api-address", "--public-address", "--ops-address"] {
            command.args([listener, "127.0.0.1:0"]);
        }
        command.args(["--database", url]);
        let started = Instant::now();
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let log = child.stderr.take();
        let mut running = Self::begun(child, started);
        let mut log = BufReader::new(log.ok_or("there is no log")?);
        running.base_url = serving(&mut log)?;
        std::thread::spawn(move || show(log));
        Ok(running)
    }

    /// Starts the server for developers, which alone posts to this machine, on a copy of the template in a new directory.
    pub(crate) fn developer(template: &Template, directory: &Path) -> Result<Self, Failure> {
        template.copy_for_developer(directory)?;
        let mut command = Command::new(binary("mandate-server")?);
        command.env_clear().args(["dev", "--json", "--port", "0", "--data"]).arg(directory);
        let started = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take();
        let mut running = Self::begun(child, started);
        let mut line = String::new();
        BufReader::new(output.ok_or("there is no output")?).read_line(&mut line)?;
        let ready: Ready = serde_json::from_str(&line)?;
        (running.base_url, running.verdicts_url) = (ready.base_url, ready.verdicts_url);
        Ok(running)
    }

    fn begun(child: Child, started: Instant) -> Self {
        Self { child, base_url: String::new(), verdicts_url: String::new(), started }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it holds in memory now, in bytes.
    #[expect(clippy::cast_precision_loss, reason = "a size, to be rounded")]
    pub(crate) fn resident_bytes(&self) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kibibytes.ok_or("/proc has no VmRSS")? as f64 * 1024.0)
    }

    /// Puts a load on it, and reports. Wrong answers are counted and reported: see [`Report::errors`].
    pub(crate) fn load(&self, load: &Load<'_>) -> Result<Report, Failure> {
        let mut command = Command::new(binary("load")?);
        command.env_clear().args(["--json", "--base-url", &self.base_url, "--pid", &self.pid().to_string()]);
        command.args(["--seconds", &load.seconds.to_string(), "--warm-up", &load.warm_up.to_string()]);
        let output =
            command.arg("--keys").arg(load.keys).args(load.args).stderr(Stdio::inherit()).output()?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The time from the start of the process to its first decision, as that agent.
    pub(crate) fn first_decision(&self, key: &str) -> Result<Duration, Failure> {
        let body = r#"{"amount":40,"currency":"USD","recipient":"vendor:acme","category":"software"}"#;
        let request = ureq::post(format!("{}/authorizations", self.base_url));
        let mut answer = request
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .send(body)?;
        let text = answer.body_mut().read_to_string()?;
        let took = self.started.elapsed();
        if text.contains(r#""verdict":"allow""#) { Ok(took) } else { Err(text.into()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the log up to the line with the base URL.
fn serving(log: &mut impl std::io::BufRead) -> Result<String, Failure> {
    let mut read = String::new();
    for line in log.lines() {
        let line = line?;
        if let Ok(LogLine { base_url: Some(url) }) = serde_json::from_str(&line) {
            return Ok(url);
        }
        read.push_str(&line);
        read.push('\n');
    }
    Err(format!("mandate-server did not start: {read}").into())
}

/// Prints the rest of the server's log.
fn show(log: BufReader<impl Read>) {
    for line in log.lines().map_while(Result::ok) {
        eprintln!("mandate-server: {line}");
    }
}
