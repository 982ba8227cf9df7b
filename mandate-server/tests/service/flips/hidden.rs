//! What a damaged tree hides is not taken for something that never was.

use std::sync::Arc;

use mandate_core::{AgentName, EnvironmentKind};
use mandate_server::clock::Clock as _;
use mandate_server::service::audit::Operator;
use mandate_server::service::issuance::{self, Owner, Selection};

use super::questions::{Question, What, answer};
use super::{bases, changed, pages, trial};
use crate::apart;

/// Which question is asked.
type Wanted = fn(&Question) -> bool;

#[tokio::test]
async fn what_a_row_that_is_lost_would_hide_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let (world, questions, [orderly, _]) = bases(&folder).await;
    let is_approval: Wanted = |question| matches!(question.what, What::Approval(_));
    let is_release: Wanted = |question| matches!(question.what, What::Release(_));
    let cases: [(&str, Wanted); 5] = [
        ("DELETE FROM reviews WHERE status = 'pending'", is_approval),
        ("DELETE FROM environments WHERE environment = 1", |_| true),
        ("DELETE FROM decisions WHERE agent = 'agt_delivered'", is_release),
        ("DELETE FROM escrow_history", is_release),
        ("DELETE FROM instructions", is_release),
    ];
    for (number, (statement, wanted)) in cases.into_iter().enumerate() {
        let database = changed(&orderly, &folder.path().join(format!("{number}.db")), statement);
        let question = questions.iter().find(|question| wanted(question)).unwrap();
        let fault = match apart::open(&database, Arc::clone(&world.engine) as _) {
            Ok(store) => {
                let answered = answer(&world, &store, question).await;
                store.close();
                answered.unwrap_err()
            }
            Err(fault) => fault.to_string(),
        };
        assert!(fault.starts_with("database: "), "{statement}: {fault}");
    }
}

#[tokio::test]
async fn a_key_that_its_index_hides_is_revoked_with_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let (world, questions, [orderly, _]) = bases(&folder).await;
    let mut bytes = std::fs::read(&orderly).unwrap();
    let owner = b"agt_few";
    for page in pages(&orderly, &bytes, "api_keys_by_owner") {
        let page = &mut bytes[page * 4096..(page + 1) * 4096];
        if let Some(at) = page.windows(owner.len()).position(|found| found == owner) {
            page[at + owner.len() - 1] ^= 1;
        }
    }
    std::fs::write(&orderly, bytes).unwrap();
    let database = format!("sqlite://{}", orderly.display());
    let name = apart::snapshot(&database, |tx| {
        tx.one_row("SELECT name FROM organizations WHERE organization = 1", &[])?.text()
    });
    let selection = Selection::Owner(Owner {
        organization: AgentName::parse(&name.unwrap()).unwrap(),
        kind: EnvironmentKind::Sandbox,
        agent: Some(AgentName::parse("few").unwrap()),
    });
    let by = Operator { name: "root".to_owned(), at: world.clock.now() };
    let revoked = apart::run_once(&database, |tx| issuance::revoke(tx, &selection, &by)).unwrap().unwrap();
    assert_eq!(revoked.len(), 1);
    let few = questions.iter().find(|question| question.caller.agent == revoked[0].agent).unwrap();
    let store = apart::open(&database, Arc::clone(&world.engine) as _).unwrap();
    assert_eq!(answer(&world, &store, few).await, Err("not in force".to_owned()));
    store.close();
    // Another owner's key that is damaged might be this one's.
    let damaged = folder.path().join("damaged.db");
    let statement = "UPDATE api_keys SET agent = 'agt_two' WHERE agent = 'agt_spent'";
    let database = changed(&orderly, &damaged, statement);
    let fault = apart::run_once(&database, |tx| issuance::revoke(tx, &selection, &by)).map(|_| ());
    assert_eq!(fault.unwrap_err().kind(), "corrupt");
}

/// The number of a row of this table that is hidden goes to no new row: what belongs to the one would be the other's.
#[tokio::test]
async fn the_number_of_a_row_that_is_hidden_is_not_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let (_, _, [orderly, _]) = bases(&folder).await;
    for (table, number) in [
        ("organizations", "organization"),
        ("environments", "environment"),
        ("api_keys", "api_key"),
        ("issuers", "issuer"),
        ("signing_keys", "signing_key"),
    ] {
        let path = folder.path().join(format!("{table}.db"));
        std::fs::copy(&orderly, &path).unwrap();
        let connection = rusqlite::Connection::open(&path).unwrap();
        let one = |sql: String| connection.query_row(&sql, [], |row| row.get::<_, String>(0)).unwrap();
        let columns = one(format!(
            "SELECT group_concat(name) FROM pragma_table_info('{table}') WHERE name <> '{number}'"
        ));
        let newest =
            || one(format!("SELECT CAST(MAX({number}) AS TEXT) FROM {table}")).parse::<i64>().unwrap();
        let before = newest();
        let hide_and_insert = format!(
            "PRAGMA foreign_keys = OFF;
            CREATE TEMP TABLE hidden AS SELECT * FROM {table} WHERE {number} = {before};
            DELETE FROM {table} WHERE {number} = {before};
            INSERT INTO {table} ({columns}) SELECT {columns} FROM hidden;"
        );
        connection.execute_batch(&hide_and_insert).unwrap();
        assert_eq!(newest(), before + 1, "{table}");
    }
}

/// An environment that is hidden, or has the number of another one, keeps the server from its start.
#[tokio::test]
async fn an_environment_that_is_read_twice_or_not_at_all_is_a_fault_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (world, questions, [_, killed]) = bases(&folder).await;
    let bytes = std::fs::read(&killed).unwrap();
    let [page] = pages(&killed, &bytes, "environments")[..] else { panic!("one page") };
    let page = page * 4096;
    let cells = usize::from(u16::from_be_bytes([bytes[page + 3], bytes[page + 4]]));
    let of = |cell: usize| {
        let pointer = page + 8 + 2 * cell;
        page + usize::from(u16::from_be_bytes([bytes[pointer], bytes[pointer + 1]]))
    };
    // A cell begins with its length, in one byte, and the number.
    let mut changes: Vec<(usize, u8)> =
        (1..cells).map(|cell| (of(cell) + 1, bytes[of(cell - 1) + 1])).collect();
    // The pointer to a cell, of which the higher byte is the same.
    let pointer = |cell: usize| page + 8 + 2 * cell + 1;
    changes.extend((1..cells).map(|cell| (pointer(cell), bytes[pointer(cell - 1)])));
    changes.extend((0..cells).map(|left| (page + 4, u8::try_from(left).unwrap())));
    for (place, byte) in changes {
        let mut damaged = bytes.clone();
        damaged[place] = byte;
        let path = folder.path().join(format!("{place}-{byte}.db"));
        std::fs::write(&path, damaged).unwrap();
        let (_, wrong) = trial(&world, &path, &questions).await;
        assert_eq!(wrong, Vec::<String>::new(), "byte {place}: {byte}");
        let database = format!("sqlite://{}", path.display());
        let opened = apart::open(&database, Arc::clone(&world.engine) as _);
        let is_last = place == page + 4 && usize::from(byte) == cells - 1;
        // The last environment has no agents.
        assert_eq!(opened.map(|store| store.close()).is_ok(), is_last, "byte {place}: {byte}");
    }
}

/// An agent's row is read with a wrong bit once, at a start, and is whole afterwards.
#[tokio::test]
async fn what_follows_an_agents_row_that_was_damaged_for_a_while_is_not_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let (world, questions, [_, killed]) = bases(&folder).await;
    let path = folder.path().join("healed.db");
    let change = |to: &str| {
        let connection = rusqlite::Connection::open(&path).unwrap();
        let changed = format!("UPDATE agents SET sequence = sequence {to} WHERE agent = 'agt_theirs'");
        assert_eq!(connection.execute(&changed, []).unwrap(), 1);
    };
    std::fs::copy(&killed, &path).unwrap();
    change("+ 1");
    let database = format!("sqlite://{}", path.display());
    apart::open(&database, Arc::clone(&world.engine) as _).unwrap().close();
    change("- 1");
    assert_eq!(trial(&world, &path, &questions).await, (0, Vec::new()));
}
