//! The one cluster of a run: started by the first test that wants it, whatever process that is, and ended by a guard
//! once no process has used it for a while.

use std::fs::{self, File, TryLockError};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::cluster::{Cluster, begin_query, new_directory, run, try_query};
use crate::database::new_name;

/// Where else the tests find PostgreSQL: the URL of a role that may create databases.
const VARIABLE: &str = "MANDATE_TEST_POSTGRES";

/// Each process that uses the cluster holds a shared lock on `users` until it ends. The guard ends the cluster under an
/// exclusive one, when it has had it for the asking a number of times, a second apart. `$0` is the folder of this state,
/// `$1` the cluster's.
const GUARD: &str = r#"exec 9>"$0/guard"; flock -n 9 || exit 1
echo ready; exec >/dev/null
quiet=0
while [ "$quiet" -lt 20 ]; do
  sleep 1 9>&-
  if flock -n "$0/users" true; then quiet=$((quiet + 1)); else quiet=0; fi
done
exec 8>"$0/users"; flock 8
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid" && while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
rm -rf "$1" "$0/cluster""#;

/// The PostgreSQL of this run.
#[derive(Debug)]
pub struct Shared {
    server: String,
    using: Option<File>,
}

/// The PostgreSQL of this run, started if need be.
#[must_use]
pub fn shared() -> &'static Shared {
    static SHARED: LazyLock<Shared> = LazyLock::new(Shared::find);
    &SHARED
}

impl Shared {
    /// The URL of one of its databases.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let (head, tail) = split(&self.server);
        format!("{head}/{database}{tail}")
    }

    /// Creates an empty database.
    pub fn create(&self, database: &str) {
        run(&self.server, &format!("CREATE DATABASE {database} TEMPLATE template0"));
    }

    /// Creates a database with the schema that `migrate` makes. In the cluster of the run it is a copy of one that was
    /// migrated once, which takes a third of the time.
    pub fn create_migrated(&self, database: &str, migrate: impl FnOnce(&str)) {
        if self.using.is_none() {
            self.create(database);
            return migrate(&self.url(database));
        }
        let schema = schema();
        let copy = format!("CREATE DATABASE {database} TEMPLATE {schema}");
        if try_query(&self.server, &copy).status.success() {
            return;
        }
        // One process at a time makes it; the others find it then. Half of one has another name.
        let making = lock("schema");
        making.lock().unwrap();
        if !try_query(&self.server, &copy).status.success() {
            let unfinished = new_name();
            self.create(&unfinished);
            migrate(&self.url(&unfinished));
            run(&self.server, &format!("ALTER DATABASE {unfinished} RENAME TO {schema}"));
            run(&self.server, &copy);
        }
    }

    /// Has a database deleted, and all connections to it ended. Does not wait for that.
    pub fn delete(&self, database: &str) {
        begin_query(&self.server, &format!("DROP DATABASE {database} WITH (FORCE)"));
    }

    #[expect(clippy::disallowed_methods, reason = "the environment says where PostgreSQL is")]
    fn find() -> Self {
        if let Ok(server) = std::env::var(VARIABLE) {
            return Self { server, using: None };
        }
        let state = state();
        let using = lock("users");
        using.lock_shared().unwrap();
        // One process at a time looks for the cluster; the others find it then.
        let starting = lock("starting");
        starting.lock().unwrap();
        let guarded = matches!(lock("guard").try_lock(), Err(TryLockError::WouldBlock));
        let known = known(&state);
        let server = match known {
            Some(cluster) if guarded && answers(&cluster) => cluster.url("postgres"),
            known => {
                known.iter().for_each(end);
                start(&state)
            }
        };
        Self { server, using: Some(using) }
    }
}

/// Starts a cluster and its guard, and writes down where it is.
fn start(state: &Path) -> String {
    let cluster = Cluster::make(&new_directory(), &[]);
    fs::write(
        state.join("cluster"),
        format!("{}\n{}", cluster.address().port(), cluster.directory().display()),
    )
    .unwrap();
    let mut guard = Command::new("setsid");
    guard.args(["--fork", "sh", "-c", GUARD]).arg(state).arg(cluster.directory()).current_dir("/");
    guard.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = guard.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.wait().unwrap();
    assert_eq!(line, "ready\n", "the cluster has another guard");
    cluster.url("postgres")
}

/// The cluster that was written down.
fn known(state: &Path) -> Option<Cluster> {
    let text = fs::read_to_string(state.join("cluster")).ok()?;
    let (port, directory) = text.split_once('\n')?;
    Some(Cluster::known(PathBuf::from(directory), port.parse().ok()?))
}

fn answers(cluster: &Cluster) -> bool {
    try_query(&cluster.url("postgres"), "SELECT 1").status.success()
}

/// Ends what a guard that was killed has left.
fn end(cluster: &Cluster) {
    let _ = cluster.pg_ctl("stop").args(["--mode", "immediate"]).output();
    let _ = fs::remove_dir_all(cluster.directory());
}

/// A folder beside the binaries that cargo builds, so that each target directory has a cluster.
fn state() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let state = here.parent().and_then(Path::parent).unwrap().join("postgres");
    fs::create_dir_all(&state).unwrap();
    state
}

/// A file of that folder to be locked.
fn lock(name: &str) -> File {
    File::options().create(true).append(true).open(state().join(name)).unwrap()
}

/// The name of the database that others are copies of: one for each build of each binary of tests.
fn schema() -> String {
    let binary = std::env::current_exe().unwrap();
    let built = fs::metadata(&binary).and_then(|file| file.modified()).unwrap();
    let mut hasher = DefaultHasher::new();
    (binary, built).hash(&mut hasher);
    format!("mandate_schema_{:016x}", hasher.finish())
}

/// A URL before and behind the name of its database.
fn split(url: &str) -> (&str, &str) {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let (head, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    let end = head[authority..].find('/').map_or(head.len(), |at| authority + at);
    (&head[..end], query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_database_of_the_same_server_is_named_by_its_url() {
        for url in ["postgres://u@h:1/a", "postgres://u@h:1", "postgres://u@h:1/"] {
            assert_eq!(split(url), ("postgres://u@h:1", ""), "{url}");
        }
        assert_eq!(split("postgres://u@h/a?sslmode=require"), ("postgres://u@h", "?sslmode=require"));
    }
}
