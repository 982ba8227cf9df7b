//! A private cluster of PostgreSQL, from Debian's binaries: a directory, a port on loopback, and a guard that outlives
//! the test and ends the cluster with it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use crate::wait::{DEADLINE, until_async};

/// How PostgreSQL is installed where it is missing.
const INSTALL: &str = "PostgreSQL is not installed: run tests/run, or `apt-get install postgresql`";
/// Who owns a cluster where the tests run as root, whom PostgreSQL refuses: the first of these that is there.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];
/// The role that servers connect as: it owns its databases, and is nothing else. Its password wants escaping.
pub(crate) const ROLE: &str = "mandate";
pub(crate) const PASSWORD: &str = "p@ss w/rd";
/// The same, as a URL spells it.
pub const PASSWORD_ESCAPED: &str = "p%40ss%20w%2Frd";
/// The role of the tests themselves.
const SUPERUSER: &str = "postgres";
/// A file system in memory, and what must be free there.
const MEMORY: &str = "/dev/shm";
const ROOM_KIB: u64 = 3 * 1024 * 1024;
/// Attempts to find a port that no other process takes meanwhile.
const ATTEMPTS: usize = 5;

/// Nothing that makes it faster at the cost of what is committed. The order of texts and the time zone are not ours, so
/// that a test that relies on the cluster's own fails.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 400
shared_buffers = 96MB
fsync = on
synchronous_commit = on
full_page_writes = on
wal_level = replica
max_wal_senders = 5
hot_standby = on
max_wal_size = 512MB
timezone = 'Asia/Kathmandu'
password_encryption = 'scram-sha-256'
log_min_messages = warning
log_lock_waits = on
";

/// A cluster, for as long as this value lives: when it is dropped, or its process dies, nothing of it is left.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    port: u16,
    /// Variables that its processes are started with.
    pub(crate) environment: Vec<(&'static str, PathBuf)>,
    guard: Option<Guard>,
}

/// A process of its own session that waits for its standard input to end.
#[derive(Debug)]
struct Guard {
    child: Child,
    input: Option<ChildStdin>,
}

impl Cluster {
    /// Makes a cluster and starts it.
    #[must_use]
    pub fn start() -> Self {
        Self::start_in(&[])
    }

    /// Makes a cluster, and starts it in an environment with these variables.
    #[must_use]
    pub fn start_in(environment: &[(&'static str, PathBuf)]) -> Self {
        let mut cluster = Self::make(&new_directory(), environment);
        cluster.watch();
        cluster
    }

    /// Makes a cluster in a new directory and starts it. No guard watches it yet.
    pub(crate) fn make(directory: &Path, environment: &[(&'static str, PathBuf)]) -> Self {
        let data = directory.join("data");
        let password = directory.join("password");
        fs::write(&password, PASSWORD).unwrap();
        hand_over(directory);
        let mut initdb = binary("initdb");
        initdb.args(["--username", SUPERUSER, "--auth", "scram-sha-256", "--no-sync", "--no-instructions"]);
        // An order of texts that is no order of bytes.
        initdb.args(["--encoding", "UTF8", "--locale", "C.UTF-8", "--locale-provider", "icu"]);
        initdb.args(["--icu-locale", "en-US"]).arg("--pwfile").arg(&password).arg("--pgdata").arg(&data);
        succeed(&mut initdb);
        let settings = data.join("postgresql.conf");
        fs::OpenOptions::new()
            .append(true)
            .open(settings)
            .and_then(|mut file| file.write_all(SETTINGS.as_bytes()))
            .unwrap();
        let mut cluster = Self::known(directory.to_owned(), 0);
        cluster.environment = environment.to_vec();
        cluster.start_anywhere();
        let create = format!("CREATE ROLE {ROLE} LOGIN CREATEDB PASSWORD '{PASSWORD}'");
        run(&cluster.admin_url("postgres"), &create);
        cluster
    }

    /// The cluster in `directory` that listens at `port`, without a guard of its own.
    pub(crate) fn known(directory: PathBuf, port: u16) -> Self {
        Self { directory, port, environment: Vec::new(), guard: None }
    }

    /// Has a guard end the cluster and delete it when this process ends, however that comes.
    pub(crate) fn watch(&mut self) {
        const GUARD: &str = r#"echo ready; cat >/dev/null
pid=$(head -n 1 "$0/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" && while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
rm -rf "$0""#;
        let mut guard = Command::new("setsid");
        guard.args(["sh", "-c", GUARD]).arg(&self.directory);
        let mut child = guard
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let input = child.stdin.take();
        self.guard = Some(Guard { child, input });
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// Its directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The URL of one of its databases, for a server.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{ROLE}:{PASSWORD_ESCAPED}@{}/{database}", self.address())
    }

    /// The URL of one of its databases, for the superuser.
    #[must_use]
    pub fn admin_url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}:{PASSWORD_ESCAPED}@{}/{database}", self.address())
    }

    /// Creates an empty database for servers.
    pub fn create(&self, database: &str) {
        run(&self.url("postgres"), &format!("CREATE DATABASE {database} TEMPLATE template0"));
    }

    /// Stops it at once, as a crash does, and starts it again at the same port.
    pub fn crash_and_start(&self) {
        self.crash();
        self.start_again();
    }

    /// Stops it at once: nothing is written any more, and all connections are lost.
    pub fn crash(&self) {
        succeed(self.pg_ctl("stop").args(["--mode", "immediate"]));
    }

    /// Gives it a certificate and its key, PEM, and starts it anew: connections without TLS are refused from then on.
    pub fn secure(&mut self, certificate: &str, key: &str) {
        self.secure_with(certificate, key, None);
    }

    /// The same. If `authority` is given, PEM, a client needs a certificate that it has signed for the role.
    pub fn secure_with(&mut self, certificate: &str, key: &str, authority: Option<&str>) {
        succeed(self.pg_ctl("stop").args(["--mode", "fast"]));
        let write = |name: &str, text: &str, mode| {
            let path = self.data().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        write("server.crt", certificate, 0o644);
        write("server.key", key, 0o600);
        let (demanded, setting) = match authority {
            Some(_) => (" clientcert=verify-full", "ssl_ca_file = 'clients.crt'\n"),
            None => ("", ""),
        };
        write("clients.crt", authority.unwrap_or_default(), 0o644);
        write("pg_hba.conf", &format!("hostssl all all 127.0.0.1/32 scram-sha-256{demanded}\n"), 0o600);
        hand_over(&self.data());
        let settings = fs::OpenOptions::new().append(true).open(self.data().join("postgresql.conf"));
        settings.and_then(|mut file| write!(file, "ssl = on\n{setting}")).unwrap();
        self.start_again();
    }

    /// Starts it again at the same port; it answers when this returns.
    pub fn start_again(&self) {
        succeed(&mut self.starting());
    }

    /// What it has logged.
    #[must_use]
    pub fn logged(&self) -> String {
        fs::read_to_string(self.data().join("log")).unwrap_or_default()
    }

    /// Starts it at a free port.
    pub(crate) fn start_anywhere(&mut self) {
        for _ in 0..ATTEMPTS {
            self.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if self.starting().output().unwrap().status.success() {
                return;
            }
        }
        panic!("PostgreSQL does not start: {}", self.logged());
    }

    fn starting(&self) -> Command {
        let mut command = self.pg_ctl("start");
        command.envs(self.environment.iter().cloned());
        command.arg("--log").arg(self.data().join("log")).args(["--options", &format!("-p {}", self.port)]);
        // It inherits no pipe of ours, which would never end then.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// `pg_ctl`, which waits until its command is done.
    pub(crate) fn pg_ctl(&self, action: &str) -> Command {
        let mut command = binary("pg_ctl");
        command.args([action, "--wait", "--silent", "--timeout", "60", "--pgdata"]).arg(self.data());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            if std::thread::panicking() {
                eprintln!("the cluster's log:\n{}", self.logged());
            }
            drop(guard.input.take());
            let _ = guard.child.wait();
        }
    }
}

/// Runs SQL.
pub fn run(url: &str, sql: &str) {
    let _ = query(url, sql);
}

/// Runs SQL. Returns what it answers: a line a row, columns apart by `|`.
#[must_use]
pub fn query(url: &str, sql: &str) -> String {
    let output = try_query(url, sql);
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Waits until each of so many sessions of a database has begun to wait for a lock so many times.
pub async fn until_waited(url: &str, times: usize, sessions: usize) {
    const WAITING: &str = "SELECT l.pid, l.waitstart FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE a.datname = current_database() AND l.waitstart IS NOT NULL";
    let mut seen: HashMap<String, HashSet<String>> = HashMap::new();
    let what = format!("{sessions} sessions have waited for a lock {times} times");
    let waited = async || {
        let waiting = query(url, WAITING);
        for (session, since) in waiting.lines().filter_map(|line| line.split_once('|')) {
            seen.entry(session.to_owned()).or_default().insert(since.to_owned());
        }
        let enough = seen.values().filter(|begun| begun.len() >= times).count();
        (enough >= sessions).then_some(())
    };
    until_async(DEADLINE, &what, waited).await;
}

/// A transaction of its own, which stays open until it is committed.
#[derive(Debug)]
pub struct OpenTransaction {
    psql: Child,
    input: ChildStdin,
}

impl OpenTransaction {
    /// Runs SQL in a new transaction, and has it done when this returns.
    #[must_use]
    pub fn begin(url: &str, sql: &str) -> Self {
        let mut psql = Command::new(directory_of_binaries().join("psql"));
        psql.env_clear().args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &libpq(url)]);
        let mut psql = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = psql.stdin.take().unwrap();
        writeln!(input, "BEGIN; {sql}; SELECT 'done';").unwrap();
        let lines = BufReader::new(psql.stdout.take().unwrap()).lines();
        assert!(lines.map(Result::unwrap).any(|line| line == "done"), "{sql}");
        Self { psql, input }
    }

    /// Commits.
    pub fn commit(self) {
        self.end("COMMIT;");
    }

    /// Takes back all that it did.
    pub fn roll_back(self) {
        self.end("ROLLBACK;");
    }

    fn end(mut self, sql: &str) {
        writeln!(self.input, "{sql}").unwrap();
        drop(self.input);
        assert!(self.psql.wait().unwrap().success());
    }
}

/// A URL without what is for the server alone.
fn libpq(url: &str) -> String {
    url.replace("statement_cache=off", "application_name=tests")
}

/// All rows of a database, as text; bytes are in hexadecimal.
pub(crate) fn dump(url: &str) -> Vec<u8> {
    let mut pg_dump = Command::new(directory_of_binaries().join("pg_dump"));
    let output =
        pg_dump.env_clear().args(["--data-only", "-d", &libpq(url)]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Runs SQL that may fail. Returns how `psql` ended, and what it answered.
#[must_use]
pub fn try_query(url: &str, sql: &str) -> Output {
    psql(url, sql).output().unwrap_or_else(|e| panic!("{INSTALL} ({e})"))
}

/// Has SQL run, and does not wait until it has been: it may outlive this process.
pub(crate) fn begin_query(url: &str, sql: &str) {
    let _ = psql(url, sql).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}

fn psql(url: &str, sql: &str) -> Command {
    let mut psql = Command::new(directory_of_binaries().join("psql"));
    psql.env_clear().args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d"]);
    psql.arg(libpq(url)).args(["-c", sql]).stdin(Stdio::null());
    psql
}

/// A new directory that the cluster's user can open, outside the workspace. It is in memory if there is room. No
/// test cuts the power, so this is as safe as a disk, and ten times as fast.
pub(crate) fn new_directory() -> PathBuf {
    let within =
        if room(Path::new(MEMORY)) >= ROOM_KIB { PathBuf::from(MEMORY) } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("mandate-postgres-").tempdir_in(within).unwrap().keep()
}

/// What is free in a file system, in KiB.
fn room(path: &Path) -> u64 {
    let output = Command::new("df").args(["-k", "--output=avail"]).arg(path).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().last().and_then(|line| line.trim().parse().ok()).unwrap_or(0)
}

/// One of PostgreSQL's binaries, run as a user that it does not refuse.
pub(crate) fn binary(name: &str) -> Command {
    binary_at(&directory_of_binaries().join(name))
}

/// A binary, run as a user that it does not refuse.
pub(crate) fn binary_at(path: &Path) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        let [user, group] = unprivileged();
        command.args(["--reuid", &user, "--regid", &group, "--clear-groups", "--"]).arg(path);
        command
    } else {
        Command::new(path)
    };
    command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/bin:/bin").current_dir("/");
    command.stdin(Stdio::null());
    command
}

/// Gives a directory and what is in it to the cluster's user.
pub(crate) fn hand_over(directory: &Path) {
    if is_root() {
        let owner = unprivileged().join(":");
        succeed(Command::new("chown").args(["-R", &owner]).arg(directory));
    }
}

#[track_caller]
pub(crate) fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Where Debian puts the binaries of its newest version.
fn directory_of_binaries() -> PathBuf {
    let version =
        |path: &Path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()).unwrap_or(0);
    let versions = fs::read_dir("/usr/lib/postgresql").ok().into_iter().flatten();
    let versions = versions.map(|entry| entry.unwrap().path());
    let whole = versions.filter(|path| path.join("bin/postgres").exists());
    whole.max_by_key(|path| version(path)).unwrap_or_else(|| panic!("{INSTALL}")).join("bin")
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// The numbers of a user and its group.
fn unprivileged() -> [String; 2] {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let entry = |name| {
        let mut entries = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        entries.find(|entry| entry[0] == name).map(|entry| [entry[2], entry[3]].map(str::to_owned))
    };
    UNPRIVILEGED.into_iter().find_map(entry).unwrap_or_else(|| panic!("no user of {UNPRIVILEGED:?}"))
}
