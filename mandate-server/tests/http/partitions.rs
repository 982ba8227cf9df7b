//! The log's partitions: they are made while decisions are written.

use std::sync::Arc;

use mandate_server::clock::{Clock, Sleep, SystemEntropy, TestClock};
use mandate_tests::cluster::{OpenTransaction, query};
use mandate_tests::wait::{DEADLINE, until_async};

use crate::world::{World, noon, spend};

/// A month that is far away when the server starts, between the ids of its ends; and who waits for a lock.
const MONTH: &str = r"CREATE TABLE decisions_2027_06 (LIKE decisions INCLUDING ALL);
    ALTER TABLE decisions ATTACH PARTITION decisions_2027_06 FOR VALUES FROM ('\x01a5d82c180000000000000000000000') TO ('\x01a672aae00000000000000000000000')";
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
const PLACES: &str = "SELECT string_agg(DISTINCT tableoid::regclass::text, ',' ORDER BY tableoid::regclass::text) FROM decisions";

/// Shows the time, and wakes no task: no partition is made but by the test.
struct Still(Arc<TestClock>);

impl Clock for Still {
    fn now(&self) -> mandate_core::Timestamp {
        self.0.now()
    }

    fn database(&self, shown: mandate_core::Timestamp) -> mandate_core::Timestamp {
        self.0.database(shown)
    }

    fn uptime_millis(&self) -> i64 {
        self.0.uptime_millis()
    }

    fn sleep_until(&self, _: mandate_core::Timestamp) -> Sleep<'_> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_meets_a_new_partition_is_written_into_it() {
    let clock = noon();
    let still = Arc::new(Still(Arc::clone(&clock)));
    let world = World::made_of(Arc::clone(&clock), still, Arc::new(SystemEntropy), |_| {}).await;
    let agent = world.agent("a").await;
    clock.advance(365 * 24 * 60 * 60);
    let url = world.settings.database.as_str();
    let partition = OpenTransaction::begin(url, MONTH);
    let meanwhile = async {
        // The decision has found its place, and waits for the lock on it.
        let waits = async || (query(url, WAITING) != "0").then_some(());
        until_async(DEADLINE, "the decision waits", waits).await;
        partition.commit();
    };
    let body = spend(1);
    let (asked, ()) = tokio::join!(world.post(&agent, "/v1/authorizations", &body), meanwhile);
    assert_eq!(asked.status, 201, "{}", asked.body);
    assert_eq!(query(url, PLACES), "decisions_2027_06");
    assert_eq!(world.holds(), 1);
}
