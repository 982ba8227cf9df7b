//! A streaming standby: a second cluster that holds all that the first has acknowledged, and takes its place.

use std::fs;
use std::path::PathBuf;
use std::thread;

use crate::cluster::{Cluster, PASSWORD_ESCAPED, binary, new_directory, query, run, succeed};

impl Cluster {
    /// Makes a standby of this cluster, without which no commit here is acknowledged from then on.
    #[must_use]
    pub fn standby(&self) -> Self {
        self.standby_in(&[])
    }

    /// Makes such a standby, whose processes run in an environment with these variables.
    #[must_use]
    pub fn standby_in(&self, environment: &[(&'static str, PathBuf)]) -> Self {
        let directory = new_directory();
        let mut standby = Self::known(directory.clone(), 0);
        standby.environment = environment.to_vec();
        crate::cluster::hand_over(&directory);
        let from = format!("{} application_name=standby", self.conninfo());
        let mut copy = binary("pg_basebackup");
        copy.args(["--write-recovery-conf", "--wal-method", "stream", "--checkpoint", "fast", "--no-sync"]);
        copy.args(["--dbname", &from, "--pgdata"]).arg(standby.data());
        succeed(&mut copy);
        let _ = fs::remove_file(standby.data().join("log"));
        standby.start_anywhere();
        standby.watch();
        let admin = self.admin_url("postgres");
        run(&admin, "ALTER SYSTEM SET synchronous_standby_names = 'standby'");
        run(&admin, "SELECT pg_reload_conf()");
        // A commit that waits for the standby shows that it follows.
        run(&admin, "CREATE TABLE followed (at bigint)");
        standby
    }

    /// Has every commit wait for a standby that is not there. It is so when this returns.
    pub fn miss_standby(&self) {
        let admin = self.admin_url("postgres");
        run(&admin, "ALTER SYSTEM SET synchronous_standby_names = 'ghost'");
        run(&admin, "SELECT pg_reload_conf()");
        // One process of the cluster makes it known to the others: until then no session waits.
        let mut known = false;
        while !known {
            thread::scope(|scope| {
                let commits =
                    scope.spawn(|| run(&admin, "DROP TABLE IF EXISTS missed; CREATE TABLE missed ()"));
                while !commits.is_finished() {
                    let waiting = self.waiting_for_standby();
                    known |= !waiting.is_empty();
                    // It need not wait any longer.
                    for pid in waiting {
                        run(&admin, &format!("SELECT pg_cancel_backend({pid})"));
                    }
                }
                commits.join().unwrap();
            });
        }
    }

    /// Has no commit wait for a standby any more.
    pub fn find_standby(&self) {
        let admin = self.admin_url("postgres");
        run(&admin, "ALTER SYSTEM RESET synchronous_standby_names");
        run(&admin, "SELECT pg_reload_conf()");
    }

    /// The connections whose commit waits for a standby.
    #[must_use]
    pub fn waiting_for_standby(&self) -> Vec<String> {
        let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        query(&self.admin_url("postgres"), waiting).lines().map(str::to_owned).collect()
    }

    /// Makes a standby the primary; it takes writes when this returns.
    pub fn promote(&self) {
        succeed(&mut self.pg_ctl("promote"));
    }

    fn conninfo(&self) -> String {
        let password = PASSWORD_ESCAPED.replace("%40", "@").replace("%20", " ").replace("%2F", "/");
        format!("host=127.0.0.1 port={} user=postgres password='{password}'", self.address().port())
    }
}

/// The URL of a database that is on whichever of two clusters takes writes.
#[must_use]
pub fn either(one: &Cluster, other: &Cluster, database: &str) -> String {
    let url = one.url(database);
    let (head, _) = url.split_once("@127").unwrap();
    format!("{head}@{},{}/{database}?target_session_attrs=read-write", one.address(), other.address())
}
