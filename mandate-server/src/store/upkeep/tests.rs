//! The two schemas are alike: the same tables, columns, keys and indexes, but for those listed here with a reason.

use std::collections::BTreeSet;

use mandate_tests::Kind;

use super::*;

/// What one database alone has, and why.
const ALONE: &[(&str, &[&str])] = &[
    (
        "SQLite writes which decisions are an agent's now and then; PostgreSQL has an index",
        &[
            "column agent_decisions.agent text",
            "column agent_decisions.decision bytes",
            "column agent_decisions.environment number",
            "column uncounted.one number",
            "column uncounted.since bytes",
            "index decisions (environment, agent, decision)",
            "key agent_decisions (environment, agent, decision)",
            "key uncounted (one)",
        ],
    ),
    (
        "SQLite's pages have no checksums: the rows that decide have one each",
        &[
            "column agents.checksum number",
            "column agents.newest_month text",
            "column agents.newest_rows number",
            "column api_keys.checksum number",
            "column clock.checksum number",
            "column environments.checksum number",
            "column escrows.checksum number",
            "column mandates.checksum number",
            "column uncounted.checksum number",
            "column usage.checksum number",
        ],
    ),
    (
        "PostgreSQL refers to no table with partitions, so that old months can be detached; `check` looks instead",
        &[
            "reference deliveries (environment, event) to events",
            "reference escrows (environment, decision) to decisions",
            "reference events (environment) to environments",
        ],
    ),
    (
        "SQLite deletes kept answers in the order of its row ids",
        &[
            "key idempotency (environment, api_key, name)",
            "key idempotency (kept)",
            "unique idempotency (environment, api_key, name)",
            "unique idempotency (kept)",
        ],
    ),
    (
        "PostgreSQL has all that a decision reads of its agent in one row",
        &["column agents.metered text", "column agents.revoked_at number, null"],
    ),
    (
        "PostgreSQL has several servers: exports and jobs are leased, exports kept in pieces, rates and commits shared",
        &[
            "column commits.asked number",
            "column commits.commit bytes",
            "column export_pieces.content bytes",
            "column export_pieces.environment number",
            "column export_pieces.export bytes",
            "column export_pieces.number number",
            "column exports.leased_until number, null",
            "column leases.name text",
            "column leases.until number",
            "column servers.at number",
            "column servers.ended number",
            "column servers.rates bytes",
            "column servers.server bytes",
            "key commits (commit)",
            "key export_pieces (environment, export, number)",
            "key leases (name)",
            "key servers (server)",
            "reference export_pieces (environment, export) to exports",
        ],
    ),
];

/// A line each: columns, primary keys, other indexes, foreign keys.
const SQLITE: [&str; 4] = [
    "SELECT 'column ' || m.name || '.' || c.name
        || CASE c.type WHEN 'INTEGER' THEN ' number' WHEN 'TEXT' THEN ' text' WHEN 'BLOB' THEN ' bytes' ELSE c.type END
        || CASE WHEN c.\"notnull\" OR c.pk THEN '' ELSE ', null' END
    FROM sqlite_schema m JOIN pragma_table_info(m.name) c
    WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' AND m.name <> 'refinery_schema_history'",
    "SELECT 'key ' || m.name || ' (' || group_concat(c.name, ', ' ORDER BY c.pk) || ')'
    FROM sqlite_schema m JOIN pragma_table_info(m.name) c
    WHERE m.type = 'table' AND m.name <> 'refinery_schema_history' AND c.pk > 0 GROUP BY m.name",
    "SELECT CASE i.\"unique\" WHEN 1 THEN 'unique ' ELSE 'index ' END || m.name
        || ' (' || group_concat(k.name, ', ' ORDER BY k.seqno) || ')' || CASE i.partial WHEN 1 THEN ' of some' ELSE '' END
    FROM sqlite_schema m JOIN pragma_index_list(m.name) i JOIN pragma_index_info(i.name) k
    WHERE m.type = 'table' AND i.origin <> 'pk' GROUP BY m.name, i.name",
    "SELECT 'reference ' || m.name || ' (' || group_concat(f.\"from\", ', ' ORDER BY f.seq) || ') to ' || f.\"table\"
    FROM sqlite_schema m JOIN pragma_foreign_key_list(m.name) f WHERE m.type = 'table' GROUP BY m.name, f.id",
];
const POSTGRES: [&str; 3] = [
    "SELECT 'column ' || c.relname || '.' || a.attname
        || CASE format_type(a.atttypid, NULL)
            WHEN 'bigint' THEN ' number' WHEN 'text' THEN ' text' WHEN 'bytea' THEN ' bytes'
            ELSE format_type(a.atttypid, NULL) END
        || CASE WHEN a.attnotnull THEN '' ELSE ', null' END
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND c.relname <> 'refinery_schema_history'",
    "SELECT CASE WHEN i.indisprimary THEN 'key ' WHEN i.indisunique THEN 'unique ' ELSE 'index ' END || c.relname || ' ('
        || (SELECT string_agg(a.attname, ', ' ORDER BY k.place) FROM unnest(i.indkey::int2[]) WITH ORDINALITY k (number, place)
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number)
        || ')' || CASE WHEN i.indpred IS NULL THEN '' ELSE ' of some' END
    FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
        AND c.relname <> 'refinery_schema_history'",
    "SELECT 'reference ' || c.relname || ' ('
        || (SELECT string_agg(a.attname, ', ' ORDER BY k.place) FROM unnest(f.conkey) WITH ORDINALITY k (number, place)
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number)
        || ') to ' || t.relname
    FROM pg_class c JOIN pg_constraint f ON f.conrelid = c.oid AND f.contype = 'f' JOIN pg_class t ON t.oid = f.confrelid
    WHERE c.relnamespace = current_schema()::regnamespace",
];

fn described(kind: Kind, queries: &'static [&'static str]) -> BTreeSet<String> {
    let database = kind.fresh();
    migrate(database.url()).unwrap();
    let lines = snapshot(database.url(), |tx| {
        let mut lines = BTreeSet::new();
        for query in queries {
            for mut row in tx.query(query, &[])? {
                assert!(lines.insert(row.text()?), "{query}");
            }
        }
        Ok(lines)
    });
    lines.unwrap()
}

#[test]
fn both_databases_have_the_same_schema_but_for_what_is_listed() {
    let (sqlite, postgres) = (described(Kind::Sqlite, &SQLITE), described(Kind::Postgres, &POSTGRES));
    let listed: BTreeSet<_> =
        ALONE.iter().flat_map(|(_, lines)| lines.iter().map(ToString::to_string)).collect();
    let differing: BTreeSet<_> = sqlite.symmetric_difference(&postgres).cloned().collect();
    assert_eq!(differing, listed);
    assert!(sqlite.len() > 200, "{sqlite:#?}");
}
