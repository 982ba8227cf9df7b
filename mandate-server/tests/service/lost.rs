//! A check whose connection is lost says that, and nothing about the database.

use mandate_server::service::check::{self, Finding, Listener};
use mandate_tests::cluster::query;

use crate::apart;
use crate::check::{Found, lived_in};

/// Ends all connections once the log has been looked at.
const END: &str = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";

/// Receives the findings of a check, and cuts its connection.
struct Cutting<'a> {
    database: &'a str,
    found: Vec<Finding>,
}

impl Listener for Cutting<'_> {
    fn finding(&mut self, finding: Finding) {
        self.found.push(finding);
    }

    fn looked_at(&mut self, _: i64, _: i64) {
        assert!(!query(self.database, END).is_empty());
    }
}

#[tokio::test]
async fn a_check_whose_connection_is_lost_finds_nothing_and_fails() {
    let world = lived_in().await;
    let mut cutting = Cutting { database: &world.database, found: Vec::new() };
    let fault = apart::snapshot(&world.database, |tx| check::full(tx, None, &mut cutting)).unwrap_err();
    assert!(!fault.to_string().contains("met an error before"), "what went wrong first: {fault}");
    assert_eq!((cutting.found, check::is_damage(&fault, true)), (Vec::new(), false));
}

#[tokio::test]
async fn what_the_database_itself_cannot_read_is_not_taken_for_a_lost_connection() {
    let world = lived_in().await;
    assert_eq!(query(&world.database, "ALTER TABLE usage RENAME TO elsewhere"), "");
    let mut found = Found::default();
    let fault = apart::snapshot(&world.database, |tx| check::full(tx, None, &mut found)).unwrap_err();
    assert!(fault.to_string().contains("usage"), "what went wrong first: {fault}");
    assert_eq!((found.0, check::is_damage(&fault, true)), (Vec::new(), true));
}
