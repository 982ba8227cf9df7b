//! The way from SQLite to PostgreSQL, by the commands as the documentation has them.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use mandate_tests::Kind;
use mandate_tests::cluster::{OpenTransaction, query};
use serde_json::{Value, json};

use crate::harness::{Ran, Replicas, binary};

/// Runs `mandate-server` with nothing in its environment but what is named.
fn operate(environment: &[(&str, &str)], args: &[&str]) -> Ran {
    let mut command = Command::new(binary("mandate-server"));
    command.env_clear().envs(environment.iter().copied()).args(args);
    Ran::from(command.output().unwrap())
}

/// Has decisions of some verdicts made for a new organization, by a server that is gone afterwards. Returns its key.
pub(crate) fn decided(database: &str, organization: &str) -> String {
    let replicas = Replicas::start(database, 1);
    let organization = replicas.organization(organization);
    let agent = organization.buyer("a");
    let review = agent.ask(300).text("/review/id");
    assert_eq!(organization.client.act(&format!("/reviews/{review}/approve")).text("/verdict"), "allow");
    assert_eq!([1, 600].map(|amount| agent.ask(amount).text("/verdict")), ["allow", "deny_limit"]);
    organization.client.key().to_owned()
}

/// Holds what was decided against all that can be computed again, by another server.
pub(crate) fn holds(database: &str, key: &str) -> usize {
    let replicas = Replicas::start(database, 1);
    replicas.hold(&replicas.client(0, key))
}

#[test]
fn an_installation_is_moved_by_one_command() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mandate.db");
    let (from, target) = (format!("sqlite://{}", file.display()), Kind::Postgres.fresh());
    let to = target.url();
    let here = |args: &[&str]| operate(&[("MANDATE_DATABASE", &from)], args);
    let there = |args: &[&str]| operate(&[("MANDATE_DATABASE", to)], args);
    here(&["migrate"]).code(0);
    let key = decided(&from, "acme");
    here(&["organization", "create", "zenith"]).code(0);

    let dry = there(&["transfer", "--from", &from, "--dry-run", "--json"]).code(0).json();
    assert_eq!((&dry["complete"], &dry["rows"]["organizations"]), (&json!(false), &json!(2)));
    assert!(there(&["organization", "list"]).code(1).err.contains("has schema 0"), "nothing was made");

    let moved = there(&["transfer", "--from", &from]).code(0);
    assert!(moved.out.contains("\nrows      api_keys: 5\n"), "{moved:?}");
    assert!(moved.out.ends_with("verified  every row compared, every signature verified\n"), "{moved:?}");
    assert!(
        moved.err.contains("moving organizations: 2 rows") && moved.err.contains("Put it away"),
        "{moved:?}"
    );

    let [old, new] = [here(&["organization", "list", "--json"]), there(&["organization", "list", "--json"])];
    assert_eq!(old.code(0).json(), new.code(0).json());
    there(&["organization", "create", "third"]).code(0);
    let records: Value = there(&["audit", "list", "--json"]).code(0).json();
    let actions: Vec<_> =
        records.as_array().unwrap().iter().map(|record| record["action"].as_str().unwrap()).collect();
    let wanted = ["organization.create", "transfer", "organization.create", "organization.create", "migrate"];
    assert_eq!(actions, wanted, "{records}");
    assert_eq!(there(&["check"]).code(0).out, "sound\n");

    let again = operate(&[], &["transfer", "--from", &from, "--to", to]).code(1);
    assert!(again.err.contains("the target is not empty, it has organizations"), "{again:?}");
    let backwards = operate(&[], &["transfer", "--from", to, "--to", &from]).code(1);
    assert!(backwards.err.contains("and no other way"), "{backwards:?}");
    assert_eq!(holds(to, &key), 4);
}

#[test]
fn rows_that_cannot_be_moved_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mandate.db");
    let (from, target) = (format!("sqlite://{}", file.display()), Kind::Postgres.fresh());
    operate(&[("MANDATE_DATABASE", &from)], &["migrate"]).code(0);
    let key = decided(&from, "acme");
    let source = rusqlite::Connection::open(&file).unwrap();
    let spoil = "INSERT INTO audit (audit, at, action, subject, operator, details)
            VALUES (71, 1, 'test', 'a' || char(0), 'a test', '{}'), (72, 1, 'test', 'a', 'b', '{}');
        INSERT INTO revisions (name, revision) VALUES (char(0) || 'x', 1)";
    source.execute_batch(spoil).unwrap();
    source.close().unwrap();
    let there = |args: &[&str]| operate(&[("MANDATE_DATABASE", target.url())], args);

    let dry = there(&["transfer", "--from", &from, "--dry-run"]).code(1);
    let wanted = "unmovable audit 71: subject holds U+0000, which PostgreSQL does not store\n";
    assert!(dry.out.contains(wanted) && dry.out.contains("unmovable revisions \\0x: name holds"), "{dry:?}");
    assert!(dry.err.contains("2 rows cannot be moved"), "{dry:?}");
    let dry = there(&["transfer", "--from", &from, "--dry-run", "--json"]).code(1).json();
    assert_eq!(dry["unmovable"][1], json!({"table": "audit", "id": "71", "field": "subject"}));
    let refused = there(&["transfer", "--from", &from]).code(1);
    assert!(refused.err.contains("2 such rows"), "{refused:?}");
    let refused = there(&["transfer", "--from", &from, "--replace-nul"]).code(1);
    assert!(
        refused.err.contains("revisions \\0x: name holds") && refused.err.contains("(1 such rows"),
        "{refused:?}"
    );
    assert!(there(&["organization", "list"]).code(1).err.contains("has schema 0"), "nothing was made");

    let source = rusqlite::Connection::open(&file).unwrap();
    source.execute_batch("DELETE FROM revisions WHERE instr(name, char(0)) > 0").unwrap();
    source.close().unwrap();
    let dry = there(&["transfer", "--from", &from, "--dry-run"]).code(1);
    assert!(dry.err.contains("1 rows cannot be moved: with --replace-nul"), "{dry:?}");
    let dry = there(&["transfer", "--from", &from, "--dry-run", "--replace-nul", "--json"]).code(0).json();
    assert!(dry.get("unmovable").is_none(), "{dry}");
    there(&["transfer", "--from", &from, "--replace-nul"]).code(0);
    assert_eq!(query(target.url(), "SELECT subject FROM audit WHERE audit = 71"), "a\u{fffd}");
    assert_eq!(holds(target.url(), &key), 4);
}

/// Begins a transfer, and kills it (SIGKILL) once it says that it is at work on this table.
fn kill_at(from: &str, to: &str, table: &str) {
    let mut transfer = Command::new(binary("mandate-server"));
    transfer.env_clear().args(["transfer", "--from", from, "--to", to]);
    let mut transfer = transfer.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(transfer.stderr.take().unwrap()).lines().map(Result::unwrap);
    let begun = lines.find(|line| line.contains(&format!("moving {table}: ")));
    transfer.kill().unwrap();
    assert!(begun.is_some() && !transfer.wait().unwrap().success(), "{table}");
}

/// Begins a transfer, and kills it (SIGKILL) while it makes the first table of the schema.
fn kill_while_it_migrates(from: &str, to: &str) {
    const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    const END: &str = "SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity
        WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()";
    // Another session is about to make a table of that name, and never does.
    let _held = OpenTransaction::begin(to, "CREATE TABLE organizations (x INT)");
    let mut transfer = Command::new(binary("mandate-server"));
    transfer.env_clear().args(["transfer", "--from", from, "--to", to]);
    let mut transfer = transfer.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while query(to, WAITING) == "0" {
        assert!(transfer.try_wait().unwrap().is_none(), "it did not wait");
    }
    transfer.kill().unwrap();
    assert!(!transfer.wait().unwrap().success());
    assert_eq!(query(to, END), "t");
    assert_eq!(query(to, "SELECT count(*) FROM refinery_schema_history"), "0");
}

#[test]
fn a_transfer_that_is_killed_goes_on_and_loses_and_doubles_nothing() {
    const RECORDS: usize = 30_000;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mandate.db");
    let (from, target) = (format!("sqlite://{}", file.display()), Kind::Postgres.fresh());
    let to = target.url();
    let here = |args: &[&str]| operate(&[("MANDATE_DATABASE", &from)], args);
    let there = |args: &[&str]| operate(&[("MANDATE_DATABASE", to)], args);
    here(&["migrate"]).code(0);
    let key = decided(&from, "acme");
    let source = rusqlite::Connection::open(&file).unwrap();
    let more = format!(
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {RECORDS})
        INSERT INTO audit (at, action, subject, operator, details) SELECT n, 'test', 'a', 'a test', '{{}}' FROM n"
    );
    source.execute_batch(&more).unwrap();
    source.close().unwrap();
    let dry = there(&["transfer", "--from", &from, "--dry-run", "--json"]).code(0).json();
    let records = usize::try_from(dry["rows"]["audit"].as_u64().unwrap()).unwrap();
    assert!(records > RECORDS);

    let arrived = || query(to, "SELECT count(*) FROM audit").parse::<usize>().unwrap();
    kill_while_it_migrates(&from, to);
    there(&["organization", "list"]).code(1);
    for table in ["organizations", "api_keys", "audit"] {
        kill_at(&from, to, table);
        assert!(there(&["organization", "list"]).code(1).err.contains("has not ended"), "{table}");
    }
    assert!((1..RECORDS).contains(&arrived()), "{} of {RECORDS} records had arrived", arrived());
    let moved = there(&["transfer", "--from", &from, "--json"]).code(0).json();
    assert_eq!((&moved["target"], &moved["rows"]), (&json!("gone on with"), &dry["rows"]));
    assert_eq!(arrived(), records + 1, "and that of the transfer itself");
    let [old, new] = [here(&["organization", "list", "--json"]), there(&["organization", "list", "--json"])];
    assert_eq!(old.code(0).json(), new.code(0).json());
    assert_eq!(holds(to, &key), 4);
}
