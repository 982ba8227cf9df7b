//! The tests' own tools: a cluster comes and goes, and the proxy loses what it is told to.

use std::time::Instant;

use mandate_tests::cluster::{query, run};
use mandate_tests::{Cluster, Kind};

#[test]
fn a_cluster_crashes_is_followed_and_leaves_nothing_behind() {
    let cluster = Cluster::start();
    let admin = cluster.admin_url("postgres");
    run(&admin, "CREATE TABLE kept (n int)");
    let t = Instant::now();
    cluster.crash_and_start();
    println!("crash {:?}", t.elapsed());
    run(&admin, "INSERT INTO kept VALUES (1)");
    let t = Instant::now();
    let standby = cluster.standby();
    println!("standby {:?}", t.elapsed());
    run(&admin, "INSERT INTO kept VALUES (2)");
    cluster.crash();
    standby.promote();
    println!("promoted {:?}", t.elapsed());
    assert_eq!(query(&standby.admin_url("postgres"), "SELECT sum(n) FROM kept"), "3");
}

#[test]
fn databases_are_new() {
    let t = Instant::now();
    let one = Kind::Postgres.fresh();
    println!("first {:?}", t.elapsed());
    let t = Instant::now();
    let two = Kind::Postgres.fresh();
    println!("second {:?}", t.elapsed());
    run(one.url(), "CREATE TABLE t (n int)");
    let t = Instant::now();
    drop(one);
    println!("drop {:?}", t.elapsed());
    run(two.url(), "CREATE TABLE t (n int)");
}
