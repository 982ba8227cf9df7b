//! A commit that waits for a standby is acknowledged only when a standby has it, however the wait ends.

use std::thread::{self, ScopedJoinHandle};

use mandate_tests::Cluster;
use mandate_tests::cluster::query;

use super::{BUMP, REVISIONS, number, worker};
use crate::store::postgres::upkeep;
use crate::store::tx::Tx;

/// What ends a wait early: a function of the database that takes the connection's process id, or a crash of
/// the cluster.
const CUTS: [Option<&str>; 3] = [Some("pg_cancel_backend"), Some("pg_terminate_backend"), None];

/// The connection that waits for the standby, other than `before`.
fn waiter(cluster: &Cluster, before: &str, works: &ScopedJoinHandle<'_, usize>) -> String {
    loop {
        let waits = cluster.waiting_for_standby().into_iter().find(|waits| waits != before);
        assert!(!works.is_finished(), "it was acknowledged, and no standby has it");
        if let Some(waits) = waits {
            return waits;
        }
    }
}

#[test]
fn a_commit_that_was_not_waited_for_is_confirmed_by_one_that_is() {
    let cluster = Cluster::start();
    cluster.create("mandate");
    let (url, admin) = (cluster.url("mandate"), cluster.admin_url("postgres"));
    upkeep::migrate(&url, &|shown| shown).unwrap();
    let cut = |waits: &str, how: Option<&str>| match how {
        Some(how) => assert_eq!(query(&admin, &format!("SELECT {how}({waits})")), "t"),
        None => cluster.crash_and_start(),
    };
    for (done, how) in (1..).zip(CUTS) {
        cluster.miss_standby();
        thread::scope(|scope| {
            let bump = |tx: &mut Tx<'_>| Ok(tx.execute(BUMP[0], &[])?);
            let works = scope.spawn({
                let url = &url;
                move || worker(url).write(&bump).unwrap().0.unwrap()
            });
            let first = waiter(&cluster, "", &works);
            cut(&first, how);
            // The commit is visible, but not acknowledged: another commit is waited for, however often that
            // one is cut short.
            let second = waiter(&cluster, &first, &works);
            assert_eq!(number(&mut worker(&url), REVISIONS), done);
            cut(&second, how);
            waiter(&cluster, &second, &works);
            cluster.find_standby();
            assert_eq!(works.join().unwrap(), 1);
        });
        assert_eq!(number(&mut worker(&url), REVISIONS), done, "{how:?}: once");
    }
}
