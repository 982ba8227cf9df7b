//! What was written by an earlier version is carried over.

use rusqlite::Connection;

const MIGRATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/migrations/sqlite");

/// The texts of the migrations, in their order, each with its number.
fn migrations() -> Vec<(u32, String)> {
    let mut found: Vec<_> = std::fs::read_dir(MIGRATIONS)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let number = name.strip_prefix('V').unwrap().split_once("__").unwrap().0.parse().unwrap();
            (number, std::fs::read_to_string(&path).unwrap())
        })
        .collect();
    found.sort();
    found
}

#[test]
fn mandates_and_kept_answers_of_a_database_without_a_scheduler() {
    let database = Connection::open_in_memory().unwrap();
    let run = |of: fn(u32) -> bool| {
        for (_, sql) in migrations().into_iter().filter(|(number, _)| of(*number)) {
            database.execute_batch(&sql).unwrap();
        }
    };
    run(|number| number < 6);
    database
        .execute_batch(
            "INSERT INTO organizations VALUES (1, 'acme', 0);
            INSERT INTO environments VALUES (1, 1, 'sandbox', 'pol_2026-01-01.1', 'enforce', 0);
            INSERT INTO agents VALUES (1, 'agt_a', zeroblob(16), 0, NULL, x'');
            INSERT INTO mandates (environment, mandate, agent, terms, created_at, revoked_at, replaced_by)
            SELECT 1, CAST('000000000000000' || n AS BLOB), 'agt_a', json_object('expires', day), 0, revoked, by
            FROM (SELECT '1' n, '2199-12-31' day, NULL revoked, NULL by UNION ALL
                SELECT '2', '2199-12-31', 5, NULL UNION ALL SELECT '3', '2199-12-31', NULL, zeroblob(16) UNION ALL
                SELECT '4', '2020-12-31', NULL, NULL);
            INSERT INTO idempotency VALUES (1, 1, 'newer', x'', 201, x'', 0, 20), (1, 1, 'older', x'', 201, x'', 0, 10);",
        )
        .unwrap();
    run(|number| number >= 6);
    let told = "SELECT group_concat(CAST(substr(mandate, -1) AS TEXT) || '@' || expiring_at) FROM mandates WHERE expiring_at IS NOT NULL";
    let told: String = database.query_row(told, (), |row| row.get(0)).unwrap();
    // 24 December 2199, 00:00 UTC.
    assert_eq!(told, "1@7257427200000");
    let kept = "SELECT group_concat(name) FROM (SELECT name FROM idempotency ORDER BY kept)";
    let kept: String = database.query_row(kept, (), |row| row.get(0)).unwrap();
    assert_eq!(kept, "older,newer");
}
