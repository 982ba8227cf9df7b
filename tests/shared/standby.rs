//! A streaming standby: a second cluster that holds all that the first has acknowledged, and takes its place.

use std::fs;

use crate::cluster::{Cluster, PASSWORD_ESCAPED, binary, new_directory, run, succeed};

impl Cluster {
    /// Makes a standby of this cluster, without which no commit here is acknowledged from then on.
    #[must_use]
    pub fn standby(&self) -> Self {
        let directory = new_directory();
        let mut standby = Self::known(directory.clone(), 0);
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
