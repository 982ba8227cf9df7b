//! The log's partitions: they are made while decisions are written.

use mandate_tests::cluster::{OpenTransaction, query, run};

use crate::world::{World, spend};

/// A month that is far away, between the ids of its ends.
const MONTH: &str = r"CREATE TABLE decisions_2029_06 (LIKE decisions INCLUDING ALL);
    ALTER TABLE decisions ATTACH PARTITION decisions_2029_06 FOR VALUES FROM ('\x01b48cb4cc0000000000000000000000') TO ('\x01b52733940000000000000000000000')";
const PLACES: &str = "SELECT string_agg(DISTINCT tableoid::regclass::text, ',') FROM decisions";

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_made_while_a_partition_is_made() {
    let world = World::start().await;
    let url = world.settings.database.as_str();
    run(url, "DROP TABLE decisions_earlier, decisions_later");
    let agent = world.agent("a").await;
    let partition = OpenTransaction::begin(url, MONTH);
    for _ in 0..2 {
        let asked = world.post(&agent, "/v1/authorizations", &spend(1)).await;
        assert_eq!(asked.status, 201, "{}", asked.body);
    }
    partition.commit();
    let asked = world.post(&agent, "/v1/authorizations", &spend(1)).await;
    assert_eq!(asked.status, 201, "{}", asked.body);
    assert_eq!(query(url, PLACES), "decisions_2026_06");
    assert_eq!(world.holds(), 3);
}
