//! Each kind of damage to a file is found, and nothing else.

use std::path::Path;

use mandate_server::clock::Clock as _;
use mandate_server::service::check;
use mandate_server::store::upkeep;

use crate::check::{Found, findings, found, lived_in};

const SIGNATURE: &str = "decisions: a signature that KEY has not made";
const DECISION: &str = "decisions: a checksum of other values";
const AGENT: &str = "agents: a checksum of other values";
const MANDATE: &str = "mandates: a checksum of other values";
const USAGE: &str = "usage: a checksum of other values";
const REVIEW: &str = "reviews: a checksum of other values";
const EVENT: &str = "events: a checksum of other values";
const KEPT: &str = "idempotency: a checksum of other values";

/// A statement, and all that is found after it. `KEY` replaces the sandbox's signing key, `ID` any id.
const DAMAGE: &[(&str, &[&str])] = &[
    ("UPDATE decisions SET signature = zeroblob(64) WHERE amount = '10'", &[DECISION, SIGNATURE]),
    ("UPDATE decisions SET recipient = 'vendor:w' WHERE amount = '501'", &[DECISION, SIGNATURE]),
    (
        "UPDATE decisions SET amount = '11' WHERE amount = '10'",
        &[DECISION, SIGNATURE, "decisions: spent 10", "usage: spent 240, requests 6, allow 3, review 3, deny_limit 1"],
    ),
    (
        "UPDATE decisions SET amount = 'ten' WHERE amount = '10'",
        &[DECISION, "decisions: a stored value is not valid: amount must be a number; got `ten`"],
    ),
    (
        "UPDATE decisions SET denials = 'deny_category' WHERE amount = '10'",
        &[DECISION, "decisions: verdict allow (deny_category); computed again: allow"],
    ),
    (
        "UPDATE decisions SET spent = '995' WHERE amount = '10'",
        &[
            DECISION,
            "decisions: spent 10",
            "decisions: spent 995",
            "decisions: verdict allow (); computed again: deny_limit",
        ],
    ),
    (
        "UPDATE decisions SET recent_requests = 10 WHERE amount = '230'",
        &[DECISION, "decisions: recent_requests 10", "decisions: verdict review (); computed again: deny_velocity"],
    ),
    (
        "UPDATE mandates SET revoked_at = created_at, revoked_after = 0 WHERE replaced_by IS NOT NULL",
        &["decisions: verdict allow (); computed again: deny_revoked", MANDATE, "mandates: not governing, and neither revoked nor replaced, or both; ID governs"],
    ),
    (
        "UPDATE mandates SET revoked_after = revoked_after + 1 WHERE revoked_at IS NOT NULL",
        &["decisions: verdict deny_revoked (deny_revoked); computed again: allow", MANDATE],
    ),
    ("UPDATE decisions SET signing_key = 99 WHERE amount = '10'", &[DECISION, "decisions: signing key 99"]),
    (
        "UPDATE decisions SET signing_key = (SELECT signing_key FROM signing_keys WHERE kind = 'production')
            WHERE amount = '10'",
        &[DECISION, "decisions: signed by OTHER"],
    ),
    (
        "UPDATE signing_keys SET public_key = (SELECT public_key FROM signing_keys WHERE kind = 'production')
            WHERE kind = 'sandbox'",
        &["signing_keys: a public key that is not this one's"],
    ),
    (
        "UPDATE decisions SET mandate = zeroblob(16) WHERE amount = '501'",
        &[DECISION, SIGNATURE, "decisions: mandate ID"],
    ),
    (
        "DELETE FROM decisions WHERE amount = '10'",
        &[
            "agent_decisions: a decision of the agent agt_a",
            "decisions: sequence 2",
            "decisions: spent 10",
            "usage: spent 240, requests 6, allow 3, review 3, deny_limit 1",
        ],
    ),
    (
        "DELETE FROM agent_decisions WHERE decision = (SELECT decision FROM decisions WHERE amount = '10')",
        &[
            "decisions: not among the decisions of the agent agt_a",
            "decisions: sequence 2",
            "decisions: spent 10",
            "usage: spent 240, requests 6, allow 3, review 3, deny_limit 1",
        ],
    ),
    (
        "UPDATE agents SET last_decision = (SELECT decision FROM decisions WHERE amount = '10') WHERE agent = 'agt_a'",
        &[
            "agent_decisions: a decision of the agent agt_a that is not counted",
            "agent_decisions: a decision of the agent agt_a that is not counted",
            "agent_decisions: a decision of the agent agt_a that is not counted",
            "agent_decisions: a decision of the agent agt_a that is not counted",
            "agent_decisions: a decision of the agent agt_a that is not counted",
            "agent_decisions: a decision of the agent agt_a that is not counted",
            "agents: 7 decisions, the last ID",
            AGENT,
        ],
    ),
    ("UPDATE agents SET sequence = sequence + 1 WHERE agent = 'agt_a'", &["agents: 8 decisions, the last ID", AGENT]),
    (
        "UPDATE decisions SET sequence = sequence + 1 WHERE amount = '10'",
        &[DECISION, "decisions: sequence 2", "decisions: sequence 2", "decisions: sequence 2 under ID that governs 1 to 1"],
    ),
    (
        "UPDATE mandates SET governed_until = governed_until + 1 WHERE replaced_by IS NOT NULL",
        &[
            MANDATE,
            "mandates: governs from sequence 1 on, and its ends do not fit",
            "mandates: governs until another that governs from sequence 2 on",
        ],
    ),
    // Agent b's first mandate governs 2 and 3, and was revoked behind 2. Nothing has replaced it.
    (
        "UPDATE mandates SET governed_until = 2 WHERE revoked_at IS NOT NULL",
        &[
            "decisions: sequence 3 under ID that governs 2 to 2",
            MANDATE,
            "mandates: governs until another that governs from sequence 4 on",
        ],
    ),
    (
        "UPDATE mandates SET governs_from = 3 WHERE governs_from = 4",
        &[MANDATE, "mandates: governs until another that governs from sequence 3 on"],
    ),
    (
        "UPDATE mandates SET governs_from = 5 WHERE governs_from = 4",
        &[
            MANDATE,
            "mandates: governs until another that governs from sequence 5 on",
            "mandates: governs_from 5",
        ],
    ),
    (
        "UPDATE mandates SET revoked_after = 0 WHERE revoked_at IS NOT NULL",
        &[
            "decisions: verdict allow (); computed again: deny_revoked",
            MANDATE,
            "mandates: governs from sequence 2 on, and ended or was revoked outside what it governs",
        ],
    ),
    (
        "UPDATE mandates SET revoked_after = 9 WHERE revoked_at IS NOT NULL",
        &[
            "decisions: verdict deny_revoked (deny_revoked); computed again: allow",
            MANDATE,
            "mandates: governs from sequence 2 on, and ended or was revoked outside what it governs",
            "mandates: governs_from 2, revoked_after 9, governed_until 3",
        ],
    ),
    // Agent c has never asked.
    ("UPDATE agents SET sequence = 9 WHERE agent = 'agt_c'", &[AGENT, "agents: sequence 9 without a last decision"]),
    ("UPDATE mandates SET governs_from = 7 WHERE agent = 'agt_c'", &[MANDATE, "mandates: governs from sequence 7 on or ends behind 0, and its agent has no decision"]),
    ("UPDATE mandates SET governed_until = 7 WHERE agent = 'agt_c'", &[MANDATE, "mandates: governs from sequence 1 on or ends behind 0, and its agent has no decision", "mandates: governs from sequence 1 on, and its ends do not fit"]),
    (
        "UPDATE usage SET spent = '241' WHERE agent = 'agt_a'",
        &[USAGE, "usage: spent 241, requests 6, allow 3, review 3, deny_limit 1"],
    ),
    (
        "UPDATE usage SET requests = requests + 1, deny_velocity = 1 WHERE agent = 'agt_a'",
        &[USAGE, "usage: spent 240, requests 7, allow 3, review 3, deny_limit 1, deny_velocity 1"],
    ),
    (
        "DELETE FROM usage WHERE agent = 'agt_a'",
        &["agents: 1 rows of metering in its newest month", "usage: spent 0, requests 0, none"],
    ),
    (
        "UPDATE agents SET newest_rows = 2 WHERE agent = 'agt_a'",
        &["agents: 2 rows of metering in its newest month", AGENT],
    ),
    ("UPDATE environments SET since = since + 1 WHERE environment = 1", &["environments: a checksum of other values"]),
    ("UPDATE api_keys SET rate = rate + 1 WHERE agent = 'agt_a'", &["api_keys: a checksum of other values"]),
    ("UPDATE clock SET mark = mark - 1", &["clock: a checksum of other values"]),
    ("UPDATE uncounted SET since = x''", &["uncounted: a checksum of other values"]),
    ("UPDATE events SET data = data || ' ' WHERE event = (SELECT MIN(event) FROM events)", &[EVENT]),
    ("UPDATE decisions SET reason = 'other' WHERE amount = '501'", &[DECISION]),
    (
        "UPDATE decisions SET mode = CASE mode WHEN 'enforce' THEN 'observe' ELSE 'enforce' END WHERE amount = '501'",
        &[DECISION],
    ),
    ("UPDATE decisions SET decided_at = decided_at + 1 WHERE amount = '10'", &[DECISION]),
    ("UPDATE reviews SET reason = 'other' WHERE status = 'denied'", &[REVIEW]),
    ("UPDATE idempotency SET created_at = created_at + 1", &[KEPT]),
    (
        "INSERT INTO usage SELECT environment, '2026-05', agent, currency, spent, requests, allow, review,
            deny_no_mandate, deny_revoked, deny_expired, deny_limit, deny_category, deny_velocity, checksum FROM usage
            WHERE agent = 'agt_a'",
        &[USAGE, "usage: a row of metering"],
    ),
    ("UPDATE agents SET governing = NULL WHERE agent = 'agt_b'", &[AGENT, "agents: governing mandate none"]),
    (
        "UPDATE agents SET governing =
            (SELECT mandate FROM mandates WHERE replaced_by IS NOT NULL) WHERE agent = 'agt_a'",
        &[
            AGENT,
            "agents: governing mandate ID",
            "mandates: governs from sequence 1 on, and its ends do not fit",
            "mandates: governs from sequence 2 on, and its ends do not fit",
            "mandates: not governing, and neither revoked nor replaced, or both; ID governs",
        ],
    ),
    (
        "UPDATE mandates SET replaced_by = NULL",
        &[MANDATE, "mandates: not governing, and neither revoked nor replaced, or both; ID governs"],
    ),
    (
        "UPDATE mandates SET replaced_by = mandate WHERE replaced_by IS NOT NULL",
        &[MANDATE, "mandates: governs from sequence 1 on, and its ends do not fit", "mandates: replaced by ID"],
    ),
    (
        "DELETE FROM agents WHERE agent = 'agt_b'",
        &[
            "api_keys: agent agt_b",
            "decisions: agent agt_b",
            "decisions: agent agt_b",
            "decisions: agent agt_b",
            "mandates: a row refers to agents",
            "mandates: a row refers to agents",
            "usage: month 2026-06",
        ],
    ),
    (
        "UPDATE decisions SET supersedes = (SELECT decision FROM decisions WHERE amount = '220')
            WHERE supersedes IS NOT NULL",
        &[DECISION, "decisions: supersedes ID", "reviews: status approved"],
    ),
    (
        "UPDATE decisions SET supersedes = (SELECT decision FROM decisions WHERE amount = '210' AND review IS NOT NULL)
            WHERE amount = '501'",
        &[
            DECISION,
            "decisions: recent_requests 2",
            "decisions: recent_requests 3",
            "decisions: recent_requests 4",
            "decisions: superseded by 2 decisions",
            "decisions: supersedes ID",
            "usage: spent 240, requests 6, allow 3, review 3, deny_limit 1",
        ],
    ),
    (
        "UPDATE decisions SET supersedes = NULL",
        &[
            DECISION,
            "decisions: verdict allow (); computed again: review",
            "reviews: status approved",
            "usage: spent 240, requests 6, allow 3, review 3, deny_limit 1",
        ],
    ),
    ("DELETE FROM reviews WHERE status = 'pending'", &["decisions: review ID"]),
    ("UPDATE reviews SET status = 'approved' WHERE status = 'pending'", &[REVIEW, "reviews: resolved by none", "reviews: status approved"]),
    ("UPDATE reviews SET resolved_at = NULL WHERE status = 'denied'", &[REVIEW, "reviews: status denied"]),
    ("UPDATE reviews SET resolved_after = NULL WHERE status = 'denied'", &[REVIEW, "reviews: resolved after sequence none"]),
    ("UPDATE reviews SET resolved_after = 1 WHERE status = 'denied'", &[REVIEW, "reviews: resolved after sequence 1"]),
    ("UPDATE reviews SET resolved_after = 99 WHERE status = 'denied'", &[REVIEW, "reviews: resolved after sequence 99"]),
    (
        "UPDATE reviews SET decision = (SELECT decision FROM decisions WHERE amount = '10')
            WHERE status = 'pending'",
        &["decisions: review ID", REVIEW, "reviews: waits for decision ID"],
    ),
    (
        "UPDATE decisions SET review = NULL WHERE amount = '230'",
        &[DECISION, "decisions: review none", "reviews: waits for decision ID"],
    ),
    (
        "UPDATE idempotency SET status = 429",
        &[KEPT, "idempotency: status 429"],
    ),
    (
        "UPDATE idempotency SET fingerprint = x'00'",
        &[KEPT, "idempotency: a fingerprint of 1 bytes"],
    ),
    ("UPDATE idempotency SET body = x'7b'", &["idempotency: a body that cannot be answered", KEPT]),
    ("UPDATE idempotency SET api_key = 99", &["idempotency: API key 99", KEPT]),
    (
        "INSERT INTO escrows SELECT environment, zeroblob(16), zeroblob(32), decision, agent, NULL, 'c', 0, 0
            FROM decisions WHERE amount = '501'",
        &["escrows: a checksum of other values", "escrows: made from decision ID"],
    ),
    (
        "INSERT INTO exports SELECT environment, zeroblob(16), 'csv', NULL, NULL, NULL, NULL, 'ready', 1, NULL, 0, NULL
            FROM decisions WHERE amount = '501'",
        &["exports: status ready"],
    ),
    (
        "INSERT INTO subscriptions SELECT environment, 'ping', zeroblob(16) FROM decisions WHERE amount = '501'",
        &["subscriptions: a row refers to webhooks"],
    ),
    (
        "INSERT INTO refinery_schema_history VALUES (99, 'of tomorrow', '', '')",
        &["refinery_schema_history: version 99 (of tomorrow)"],
    ),
];

#[tokio::test]
async fn each_kind_of_damage_is_found_and_nothing_else() {
    let world = lived_in().await;
    let path = Path::new(world.database.strip_prefix("sqlite://").unwrap());
    assert_eq!(found(&world.database), Vec::<String>::new(), "an undamaged database is sound");
    let keys: Vec<String> =
        serde_json::from_str::<serde_json::Value>(&world.keyring.public_key_set(world.clock.now()).unwrap())
            .unwrap()["keys"]
            .as_array()
            .unwrap()
            .iter()
            .map(|key| key["kid"].as_str().unwrap().to_owned())
            .collect();
    let folder = tempfile::tempdir().unwrap();
    let mut otherwise = Vec::new();
    for (number, (statement, expected)) in DAMAGE.iter().enumerate() {
        let damaged = folder.path().join(format!("{number}.db"));
        std::fs::copy(path, &damaged).unwrap();
        let connection = rusqlite::Connection::open(&damaged).unwrap();
        connection.pragma_update(None, "foreign_keys", "OFF").unwrap();
        assert!(connection.execute(statement, []).unwrap() > 0, "{statement}");
        drop(connection);
        let shown: Vec<_> = found(&format!("sqlite://{}", damaged.display()))
            .into_iter()
            // What the public log finds besides is tried with it.
            .filter(|text| !text.contains("public log") && !text.starts_with("logs: "))
            .map(|text| masked(&text, &keys))
            .collect();
        if shown != *expected {
            otherwise.push(format!("{statement}\n  found {shown:#?}"));
        }
    }
    assert!(otherwise.is_empty(), "{}", otherwise.join("\n"));
}

/// A copy of a database, after a statement.
fn damaged(path: &Path, folder: &Path, statement: &str) -> String {
    let damaged = folder.join("damaged.db");
    std::fs::copy(path, &damaged).unwrap();
    let connection = rusqlite::Connection::open(&damaged).unwrap();
    assert!(connection.execute(statement, []).unwrap() > 0, "{statement}");
    format!("sqlite://{}", damaged.display())
}

#[tokio::test]
async fn what_is_found_of_decisions_and_mandates_names_the_agent_and_the_sequence() {
    let world = lived_in().await;
    let path = Path::new(world.database.strip_prefix("sqlite://").unwrap());
    let folder = tempfile::tempdir().unwrap();
    for (statement, table, agent, sequence) in [
        ("UPDATE decisions SET signature = zeroblob(64) WHERE amount = '501'", "decisions", "agt_a", 3),
        ("UPDATE decisions SET spent = '11' WHERE amount = '230'", "decisions", "agt_a", 6),
        ("UPDATE decisions SET mandate = NULL WHERE amount = '2'", "decisions", "agt_b", 2),
        ("UPDATE mandates SET revoked_after = 1 WHERE revoked_at IS NOT NULL", "decisions", "agt_b", 2),
        ("UPDATE mandates SET revoked_after = NULL WHERE revoked_at IS NOT NULL", "mandates", "agt_b", 2),
        ("UPDATE mandates SET replaced_by = NULL WHERE replaced_by IS NOT NULL", "mandates", "agt_a", 1),
        ("UPDATE agents SET sequence = 9 WHERE agent = 'agt_b'", "agents", "agt_b", 9),
    ] {
        let found = findings(&damaged(path, folder.path(), statement));
        let named = found.iter().any(|finding| {
            finding.table == table
                && finding.agent.as_deref() == Some(agent)
                && finding.sequence == Some(sequence)
        });
        assert!(named, "{statement}: {found:#?}");
        let unnamed = |finding: &&check::Finding| finding.table == "decisions" && finding.sequence.is_none();
        assert_eq!(found.iter().find(unnamed), None, "{statement}");
    }
}

fn masked(text: &str, keys: &[String]) -> String {
    let word = |word: &str| {
        let bare = word.trim_end_matches(';');
        let id = bare.split_once('_').is_some_and(|(kind, id)| kind.len() == 3 && id.len() == 26);
        match bare {
            _ if id => word.replace(bare, "ID"),
            _ if keys.iter().any(|key| key == bare && key.starts_with("sandbox-")) => "KEY".to_owned(),
            _ if keys.iter().any(|key| key == bare) => "OTHER".to_owned(),
            _ => word.to_owned(),
        }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn damaged_pages_are_found() {
    let world = lived_in().await;
    let path = world.database.strip_prefix("sqlite://").unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    // The tree of the log: its first page is where the schema says.
    let connection = rusqlite::Connection::open(path).unwrap();
    let root: u32 = connection
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'agent_decisions'", [], |row| row.get(0))
        .unwrap();
    drop(connection);
    let root = usize::try_from(root).unwrap();
    bytes[(root - 1) * 4096 + 100..root * 4096].fill(0x55);
    let folder = tempfile::tempdir().unwrap();
    let damaged = folder.path().join("damaged.db");
    std::fs::write(&damaged, bytes).unwrap();
    let mut listener = Found::default();
    let database = format!("sqlite://{}", damaged.display());
    let _ = upkeep::snapshot(&database, |tx| check::quick(tx, &mut listener));
    let tables: Vec<_> = listener.0.iter().map(|finding| finding.table.as_str()).collect();
    assert!(!tables.is_empty() && tables.iter().all(|table| *table == "database"), "{:?}", listener.0);
}
