//! What a damaged tree hides is not taken for something that never was.

use std::sync::Arc;

use mandate_core::{AgentName, EnvironmentKind};
use mandate_server::clock::Clock as _;
use mandate_server::service::audit::Operator;
use mandate_server::service::issuance::{self, Owner, Selection};

use super::questions::{Question, What, answer};
use super::{bases, changed, pages};
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
    let name = apart::snapshot(&database, |tx| tx.one_row("SELECT name FROM organizations", &[])?.text());
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
