//! A sound database is found sound.

use mandate_server::model::master_key::MasterKey;
use mandate_server::service::check::{self, Finding, Listener};
use mandate_tests::Kind;

use crate::apart;
use crate::escrows::escrow;
use crate::oracle::MASTER_KEY;
use crate::world::{World, claim};

/// What a check has found, and its notes.
#[derive(Default)]
pub(crate) struct Found(pub(crate) Vec<Finding>, pub(crate) Vec<String>);

impl Listener for Found {
    fn finding(&mut self, finding: Finding) {
        self.0.push(finding);
    }

    fn looked_at(&mut self, decisions: i64, of: i64) {
        assert!(decisions <= of);
    }

    fn note(&mut self, note: &str) {
        self.1.push(note.to_owned());
    }
}

/// What a whole check of a database finds.
pub(crate) fn findings(database: &str) -> Vec<Finding> {
    findings_with(database, true)
}

/// The same, with the master key or without.
pub(crate) fn findings_with(database: &str, has_key: bool) -> Vec<Finding> {
    let master = MasterKey::from_bytes(MASTER_KEY);
    looked_at(database, Some(&master).filter(|_| has_key)).0
}

/// What a whole check of a database finds and notes under a master key.
pub(crate) fn looked_at(database: &str, master: Option<&MasterKey>) -> Found {
    let mut found = Found::default();
    apart::snapshot(database, |tx| check::full(tx, master, &mut found)).unwrap();
    found
}

/// The same, each as `table: found`, in the order of the alphabet.
pub(crate) fn found(database: &str) -> Vec<String> {
    let mut findings: Vec<_> =
        findings(database).into_iter().map(|f| format!("{}: {}", f.table, f.found)).collect();
    findings.sort();
    findings
}

/// A database with one of everything that a check looks at.
pub(crate) async fn lived_in() -> World {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, r#","review_above":200"#).await;
    world.clock.advance(300);
    world.ask(&agent, "10").await;
    world.clock.advance(300);
    world.mandate(&agent, 1_000, r#","review_above":200"#).await;
    world.clock.advance(300);
    let mut once = world.call(&agent);
    once.idempotency = Some(claim("order-1", "{}", &world.organization_key));
    world.decide(once, "20").await;
    assert_eq!(world.ask(&agent, "501").await["verdict"], "deny_limit");
    let approved = world.ask(&agent, "210").await["review"]["id"].clone();
    let denied = world.ask(&agent, "220").await["review"]["id"].clone();
    world.ask(&agent, "230").await;
    world.clock.advance(60);
    assert_eq!(world.approve(&approved).await.status, 201);
    assert_eq!(world.deny(&denied, Some("no")).await.status, 200);
    let other = world.agent("b").await;
    assert_eq!(world.ask(&other, "1").await["verdict"], "deny_no_mandate");
    let mandate = world.mandate(&other, 100, "").await;
    world.ask(&other, "2").await;
    world.clock.advance(300);
    world.revoke(&mandate).await;
    world.clock.advance(300);
    assert_eq!(world.ask(&other, "3").await["verdict"], "deny_revoked");
    world.mandate(&other, 100, "").await;
    let silent = world.agent("c").await;
    world.mandate(&silent, 100, "").await;
    world.store.close();
    world
}

#[tokio::test]
async fn an_undamaged_database_is_sound() {
    let world = lived_in().await;
    assert_eq!(found(&world.database), Vec::<String>::new());
    assert_eq!(world.change("UPDATE decisions SET amount = '11' WHERE amount = '10'"), 1);
    assert_ne!(found(&world.database), Vec::<String>::new());
}

/// On either database: what no signature covers has a checksum.
#[tokio::test]
async fn a_changed_value_that_no_signature_covers_is_found() {
    let world = lived_in().await;
    let mut changed: Vec<&str> = Vec::new();
    for (table, sql) in [
        ("decisions", "UPDATE decisions SET reason = 'another' WHERE amount = '10'"),
        ("decisions", "UPDATE decisions SET decided_at = decided_at + 1 WHERE amount = '20'"),
        (
            "decisions",
            "UPDATE decisions SET mode = CASE mode WHEN 'observe' THEN 'enforce' ELSE 'observe' END WHERE amount = '501'",
        ),
        ("reviews", "UPDATE reviews SET reason = 'yes' WHERE status = 'denied'"),
        ("reviews", "UPDATE reviews SET resolved_at = resolved_at + 1 WHERE status = 'approved'"),
        (
            "events",
            "UPDATE events SET created_at = created_at + 1 WHERE event IN (SELECT event FROM events ORDER BY event LIMIT 1)",
        ),
        (
            "events",
            "UPDATE events SET data = '{}' WHERE event IN (SELECT event FROM events ORDER BY event DESC LIMIT 1)",
        ),
        ("idempotency", "UPDATE idempotency SET created_at = created_at + 1 WHERE name = 'order-1'"),
    ] {
        assert_eq!(world.change(sql), 1, "{sql}");
        changed.push(table);
        for table in ["decisions", "reviews", "events", "idempotency"] {
            let what = format!("{table}: a checksum of other values");
            let count = found(&world.database).iter().filter(|found| **found == what).count();
            assert_eq!(count, changed.iter().filter(|changed| **changed == table).count(), "{sql}: {table}");
        }
    }
}

/// The tests' cluster has no checksums of its pages. A file has those of its rows.
#[tokio::test]
async fn a_cluster_without_checksums_is_noted_and_is_no_finding() {
    let database = apart::migrated(crate::KIND);
    let mut found = Found::default();
    apart::snapshot(database.url(), |tx| check::quick(tx, &mut found)).unwrap();
    assert_eq!(found.0, Vec::new());
    let is_noted = found.1.iter().any(|note| note.starts_with("data_checksums is off"));
    assert_eq!(is_noted, crate::KIND == Kind::Postgres, "{:?}", found.1);
}

/// On either database: an agent that has never asked has no last decision.
#[tokio::test]
async fn an_agent_without_decisions_is_sound() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 100, "").await;
    let revoked = world.mandate(&agent, 100, "").await;
    world.revoke(&revoked).await;
    world.store.close();
    assert_eq!(found(&world.database), Vec::<String>::new());
    let finds = |wanted: &str| found(&world.database).iter().any(|found| found == wanted);
    assert_eq!(world.change("UPDATE agents SET sequence = 9"), 1);
    assert!(finds("agents: sequence 9 without a last decision"));
    let ahead = "mandates: governs from sequence 1 on or ends behind 0, and its agent has no decision";
    assert!(!finds(ahead));
    assert_eq!(world.change("UPDATE mandates SET revoked_after = 7 WHERE revoked_after = 0"), 1);
    assert!(finds(ahead));
}

/// On either database: nothing says that decisions before number 1 are elsewhere.
#[tokio::test]
async fn an_agents_first_decision_is_missed() {
    let world = lived_in().await;
    let finds = |wanted: &str| found(&world.database).iter().any(|found| found.starts_with(wanted));
    let altered = "UPDATE decisions SET sequence = 5 WHERE agent = 'agt_b' AND sequence = 1";
    assert_eq!(world.change(altered), 1);
    assert!(finds("decisions: sequence 5"));
    assert_eq!(world.change("DELETE FROM decisions WHERE agent = 'agt_b' AND sequence = 5"), 1);
    assert!(finds("decisions: sequence 2"));
    assert_eq!(world.change("DELETE FROM decisions WHERE agent = 'agt_b'"), 2);
    assert!(finds("agents: last decision dec_"));
}

/// On either database: an escrow is in the state that its settled instructions led to.
#[tokio::test]
async fn an_escrow_that_its_instructions_contradict_is_found() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    escrow(&world, &agent, "1").await;
    world.store.close();
    // On SQLite its checksum shows each change too.
    let found = || -> Vec<_> {
        let all = found(&world.database).into_iter();
        all.filter(|found| found != "escrows: a checksum of other values").collect()
    };
    assert_eq!(found(), Vec::<String>::new());
    assert_eq!(world.change("UPDATE instructions SET status = 'refused'"), 1);
    assert_eq!(found(), ["escrow_history: state funded"]);
    assert_eq!(world.change("UPDATE instructions SET status = 'settled'"), 1);
    assert_eq!(world.change("UPDATE escrow_history SET state = 'opening'"), 1);
    assert_eq!(found(), ["instructions: a settled lock"]);
    assert_eq!(world.change("UPDATE instructions SET action = 'refund'"), 1);
    let found = found();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("escrows: made from decision dec_"), "{found:?}");
    assert_eq!(found[1], "instructions: a settled refund");
}
