//! A `PgBouncer` of one's own in front of a cluster, in transaction mode: each transaction may have another connection.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::cluster::{
    Cluster, PASSWORD, PASSWORD_ESCAPED, ROLE, binary_at, hand_over, new_directory, try_query,
};

/// Where Debian puts it.
const BINARY: &str = "/usr/sbin/pgbouncer";
const INSTALL: &str = "PgBouncer is not installed: run tests/run, or `apt-get install pgbouncer`";
/// Fewer connections than one server makes.
const POOL: usize = 4;

/// It ends, and leaves nothing behind, when this is dropped, or the process that holds it dies.
#[derive(Debug)]
pub struct Pooler {
    port: u16,
    guard: Child,
    input: Option<ChildStdin>,
}

impl Pooler {
    /// Starts one in front of a cluster.
    #[must_use]
    pub fn before(cluster: &Cluster) -> Self {
        const GUARD: &str = r#""$@" >"$0/log" 2>&1 & pid=$!
echo ready; cat >/dev/null
kill -KILL "$pid"; wait "$pid"; rm -rf "$0""#;
        assert!(fs::exists(BINARY).unwrap(), "{INSTALL}");
        let directory = new_directory();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (users, settings) = (directory.join("users"), directory.join("pgbouncer.ini"));
        fs::write(&users, format!("\"{ROLE}\" \"{PASSWORD}\"\n")).unwrap();
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {POOL}\nmax_client_conn = 1000\n",
            cluster.address().port(),
            users.display()
        );
        fs::write(&settings, text).unwrap();
        hand_over(&directory);
        let runs = binary_at(BINARY.as_ref());
        let mut guard = Command::new("setsid");
        guard.args(["sh", "-c", GUARD]).arg(&directory).arg(runs.get_program()).args(runs.get_args());
        guard.arg(&settings).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = guard.stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(guard.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let input = guard.stdin.take();
        let pooler = Self { port, guard, input };
        for _ in 0..100 {
            if try_query(&pooler.url("postgres"), "SELECT 1").status.success() {
                return pooler;
            }
        }
        panic!("{}", fs::read_to_string(directory.join("log")).unwrap_or_default());
    }

    /// The URL of one of the cluster's databases through it, for a server.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{ROLE}:{PASSWORD_ESCAPED}@127.0.0.1:{}/{database}?statement_cache=off", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.guard.wait();
    }
}
