//! The tests' own tools: a cluster comes and goes, and the proxy drops what a test wants dropped.

use mandate_tests::cluster::{query, run};
use mandate_tests::{Cluster, Kind};

#[test]
fn a_cluster_crashes_is_followed_and_leaves_nothing_behind() {
    let cluster = Cluster::start();
    let admin = cluster.admin_url("postgres");
    run(&admin, "CREATE TABLE kept (n int)");
    cluster.crash_and_start();
    run(&admin, "INSERT INTO kept VALUES (1)");
    let standby = cluster.standby();
    run(&admin, "INSERT INTO kept VALUES (2)");
    cluster.crash();
    standby.promote();
    assert_eq!(query(&standby.admin_url("postgres"), "SELECT sum(n) FROM kept"), "3");
}

#[test]
fn databases_are_new() {
    let one = Kind::Postgres.fresh();
    let two = Kind::Postgres.fresh();
    run(one.url(), "CREATE TABLE t (n int)");
    drop(one);
    run(two.url(), "CREATE TABLE t (n int)");
}
