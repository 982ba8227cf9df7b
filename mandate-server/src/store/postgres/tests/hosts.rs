//! Several hosts in one URL: a dead or silent host does not keep clients from the one that answers.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use mandate_tests::{Kind, black_hole};

use super::{REVISIONS, number, worker};
use crate::store::postgres::upkeep;

/// The URL of a test's database, with another host put first.
fn before(url: &str, port: u16) -> String {
    let (user, place) = url.rsplit_once('@').unwrap();
    format!("{user}@127.0.0.1:{port},{place}")
}

#[test]
fn a_host_that_says_nothing_is_passed_over_and_asked_last_from_then_on() {
    let database = Kind::Postgres.fresh();
    // It accepts connections but never answers: the backlog is never emptied.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = before(database.url(), silent.local_addr().unwrap().port());
    upkeep::migrate(&url, &|shown| shown).unwrap();
    let mut worker = worker(&url);
    assert_eq!(number(&mut worker, REVISIONS), 0);
    let began = Instant::now();
    for _ in 0..3 {
        worker.leave();
        assert_eq!(number(&mut worker, REVISIONS), 0);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "the host that was there last comes first");
    let dead = before(database.url(), silent.local_addr().unwrap().port());
    drop(silent);
    assert_eq!(number(&mut super::worker(&dead), REVISIONS), 0, "no program listens at the first");
}

#[test]
fn a_host_to_which_no_connection_is_made_or_refused_is_passed_over() {
    let database = Kind::Postgres.fresh();
    let nowhere = black_hole::listener();
    let address = nowhere.local_addr().unwrap();
    let _filling = black_hole::fill(address);
    let url = before(database.url(), address.port());
    let began = Instant::now();
    upkeep::migrate(&url, &|shown| shown).unwrap();
    let mut worker = worker(&url);
    assert_eq!(number(&mut worker, REVISIONS), 0);
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}: a second before the next is tried",
        began.elapsed()
    );
    let lost = TcpStream::connect_timeout(&address, Duration::from_millis(100)).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::TimedOut, "it has led nowhere all the time");
}

#[test]
fn if_no_host_answers_the_error_comes_in_time() {
    let silent = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = silent.each_ref().map(|silent| silent.local_addr().unwrap().port());
    let url = format!("postgres://u@127.0.0.1:{},127.0.0.1:{}/d", ports[0], ports[1]);
    let began = Instant::now();
    let error = upkeep::migrate(&url, &|shown| shown).unwrap_err().to_string();
    assert!(error.contains("cannot be connected to in time"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10), "three seconds for each");
}
