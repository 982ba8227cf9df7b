//! Analysts: a role of the database that sees one environment through views, set up by what docs/analysis.md says, word for
//! word.

use std::collections::BTreeSet;

use mandate_tests::Cluster;
use mandate_tests::cluster::{query, run, try_query};
use serde_json::{Value, json};

use crate::world::{World, spend};

const PAGE: &str = include_str!("../../../docs/analysis.md");
/// The views' columns with their types, as the page lists them.
const COLUMNS: &str = "SELECT c.relname || '.' || a.attname || ' '
        || replace(format_type(a.atttypid, a.atttypmod), 'timestamp with time zone', 'timestamptz')
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    WHERE c.relnamespace = 'analysis'::regnamespace AND c.relkind = 'v'";
/// What the analyst of `acme` sees.
const SEEN: [(&str, &str); 10] = [
    (
        "SELECT agent, sequence, verdict, amount, currency, recipient, (decided_at AT TIME ZONE 'UTC')::date
        FROM analysis.decisions ORDER BY sequence",
        "agt_a|1|allow|40.5|USD|vendor:acme|2026-06-15
agt_a|2|review|300|USD|vendor:acme|2026-06-15
agt_a|3|allow|300|USD|vendor:acme|2026-06-15
agt_a|4|allow|9|USD|vendor:acme|2026-06-15
agt_a|5|review|301|USD|vendor:acme|2026-06-15",
    ),
    (
        "SELECT verdict FROM analysis.decisions WHERE amount = 9 AND key >= analysis.first_key('2026-06-15Z')
            AND key < analysis.first_key('2026-06-16Z')",
        "allow",
    ),
    (
        "SELECT d.amount, v.status, v.waits_for, f.amount, v.resolved_at >= v.expires_at
        FROM analysis.reviews v JOIN analysis.decisions d USING (decision)
        LEFT JOIN analysis.decisions f ON f.decision = v.approved_as ORDER BY d.amount",
        "300|approved|role:finance|300|f\n301|expired|role:finance||t",
    ),
    (
        "SELECT status, resolved_by_kind, resolved_by_id ~ '^key_[0-9a-f]+$' FROM analysis.reviews ORDER BY status",
        "approved|key|t\nexpired||",
    ),
    (
        "SELECT agent, per_transaction, per_month, review_above, escrow_above, currency, categories, expires, revoked_at
        FROM analysis.mandates",
        "agt_a|500||200||USD|{software}|2026-12-31|",
    ),
    (
        "SELECT a.agent, a.decisions, m.per_transaction, d.sequence FROM analysis.agents a
        JOIN analysis.mandates m USING (mandate) JOIN analysis.decisions d ON d.decision = a.last_decision",
        "agt_a|5|500|5",
    ),
    ("SELECT month, agent, currency, spent, allow FROM analysis.usage", "2026-06-01|agt_a|USD|349.5|3"),
    (
        "SELECT count(*) >= 3, bool_or(data::text ~ 'token|nonce') FROM analysis.events WHERE type LIKE 'decision.%'",
        "t|f",
    ),
    (
        "SELECT agent, amount, currency, recipient, disputed, refund_after AT TIME ZONE 'UTC' FROM analysis.escrows",
        "agt_a|40.5|USD|vendor:acme|f|2026-07-01 00:00:00",
    ),
    // A condition that would fail on another environment's row does not see it.
    ("SELECT count(*) FROM analysis.decisions WHERE 1 / (amount - 7) IS NOT NULL", "5"),
];
/// What no analyst may.
const REFUSED: [&str; 19] = [
    "SELECT * FROM analysis.readers",
    "INSERT INTO analysis.readers (reader, environment) VALUES ('analyst_acme', 2)",
    "UPDATE analysis.readers SET environment = 2",
    "SELECT * FROM decisions",
    "SELECT * FROM decisions_2026_06",
    "SELECT * FROM api_keys",
    "SELECT * FROM signing_keys",
    "SELECT * FROM idempotency",
    "SELECT * FROM webhooks",
    "INSERT INTO analysis.agents (agent) VALUES ('agt_b')",
    "UPDATE analysis.usage SET spent = 0",
    "DELETE FROM analysis.decisions",
    "SELECT * FROM analysis.decisions FOR UPDATE",
    "SET ROLE mandate",
    "SET SESSION AUTHORIZATION mandate",
    "CREATE TABLE public.mine (a INT)",
    "CREATE TABLE analysis.mine (a INT)",
    "CREATE TEMPORARY TABLE mine (a INT)",
    "TRUNCATE decisions",
];

/// What a role may not that was given nothing.
const REFUSED_TO_A_STRANGER: [&str; 2] =
    ["SELECT * FROM analysis.decisions", "SELECT analysis.first_key('2026-11-01Z')"];

/// The page's pieces of SQL: first how a role is made, then examples.
fn pieces() -> Vec<String> {
    let pieces = PAGE.split("```sql\n").skip(1);
    pieces.map(|piece| piece.split("```").next().unwrap().to_owned()).collect()
}

/// How the page makes the role, for the sandbox of this organization.
fn role_of(organization: &str) -> String {
    pieces()[0].replace("acme", organization).replace("production", "sandbox").replace('…', "secret")
}

/// Each view's columns with their types, as the page has them.
fn documented() -> BTreeSet<String> {
    let mut view = "";
    let mut columns = BTreeSet::new();
    for line in PAGE.lines() {
        if let Some(name) = line.strip_prefix("## `analysis.").and_then(|rest| rest.strip_suffix('`')) {
            view = name;
        } else if let Some((column, rest)) = line.strip_prefix("| `").and_then(|row| row.split_once("` | ")) {
            columns.insert(format!("{view}.{column} {}", rest.split(" | ").next().unwrap()));
        }
    }
    columns
}

/// Five decisions of an agent of `acme`, with an escrow and two reviews, and one of another organization. Returns the id of the
/// first.
async fn fill(world: &World) -> String {
    let organization = &world.organization_key;
    let agent = world.agent("a").await;
    world.mandate("agt_a").await;
    let asked = |amount: Value| {
        let body =
            json!({"amount": amount, "currency": "USD", "recipient": "vendor:acme", "category": "software"});
        let agent = &agent;
        async move { world.post(agent, "/v1/authorizations", &body).await.json() }
    };
    let first = asked(json!(40.5)).await["decision"].as_str().unwrap().to_owned();
    let escrow = json!({"decision": first, "condition": "delivered", "refund_after": "2026-07-01T00:00:00Z"});
    assert_eq!(world.post(organization, "/v1/escrows", &escrow).await.status, 201);
    let waits = asked(json!(300)).await;
    let approve = format!("/v1/reviews/{}/approve", waits["review"]["id"].as_str().unwrap());
    assert_eq!(world.post(organization, &approve, &json!({})).await.status, 201);
    asked(json!(9)).await;
    asked(json!(301)).await;

    let other = world.onboard("other");
    let created = world.post(&other, "/v1/agents", &json!({ "name": "a" })).await.json();
    let agent = created["agent_key"].as_str().unwrap();
    assert_eq!(world.post(agent, "/v1/authorizations", &spend(7)).await.status, 201);
    first
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_sees_its_environment_and_nothing_else() {
    let cluster = Cluster::start();
    cluster.create("mandate");
    let (owner, superuser) = (cluster.url("mandate"), cluster.admin_url("mandate"));
    let world = World::start_with(|settings| settings.database.clone_from(&owner)).await;
    let first = fill(&world).await;
    run(&owner, "UPDATE reviews SET expires_at = 0 WHERE status = 'pending'");
    assert_eq!(query(&owner, "SELECT count(*) FROM agents WHERE metered LIKE '% 349.5 %'"), "1");

    for organization in ["acme", "other"] {
        run(&superuser, &role_of(organization));
    }
    run(&superuser, "CREATE ROLE stranger LOGIN PASSWORD 'secret'");
    let [acme, other, stranger] = ["analyst_acme", "analyst_other", "stranger"]
        .map(|role| format!("postgres://{role}:secret@{}/mandate", cluster.address()));

    for (sql, seen) in SEEN {
        assert_eq!(query(&acme, sql), seen, "{sql}");
    }
    let shown = format!(
        "SELECT analysis.id_text('dec', decision) FROM analysis.decisions WHERE decision = analysis.id_uuid('{first}')"
    );
    assert_eq!(query(&acme, &shown), first);
    for sql in pieces().iter().skip(1) {
        run(&acme, sql);
    }
    let columns: BTreeSet<_> = query(&acme, COLUMNS).lines().map(str::to_owned).collect();
    assert_eq!(columns, documented());
    assert_eq!(
        query(&other, "SELECT agent, verdict, amount FROM analysis.decisions"),
        "agt_a|deny_no_mandate|7"
    );
    assert_eq!(query(&other, "SELECT count(*) FROM analysis.escrows"), "0");

    for (role, all) in [(&acme, &REFUSED[..]), (&stranger, &REFUSED_TO_A_STRANGER[..])] {
        for sql in all {
            let answer = try_query(role, sql);
            let why = String::from_utf8_lossy(&answer.stderr);
            assert!(why.contains("permission denied") || why.contains("ERROR:  cannot"), "{sql}: {why}");
        }
    }
    run(&owner, "DELETE FROM analysis.readers WHERE reader = 'analyst_acme'");
    assert_eq!(query(&acme, "SELECT count(*) FROM analysis.decisions"), "0");
}
