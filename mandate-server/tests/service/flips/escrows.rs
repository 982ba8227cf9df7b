//! What a flipped bit does to escrows: none is opened or moved on that a sound server would refuse.

use std::sync::Arc;

use mandate_core::{DecisionId, EscrowState};
use mandate_server::model::call::{Call, Scripted};
use mandate_server::service::escrows::{self, Reply, Transition};
use mandate_server::store::Store;
use mandate_server::store::tx::Tx;
use serde_json::Value;

use super::pages;
use super::questions::{Question, What, answer};
use super::{bases, changed};
use crate::apart;
use crate::check::found;
use crate::escrows::{create, escrow, go};
use crate::world::{World, json};

/// What is said of an escrow that is refused.
const REFUSED: &str = "refused";

/// An allow, one whose mandate was revoked before another one came, a denial, and escrows: one whose funds are to be released,
/// one whose funds were, and an allow that has one.
pub(super) async fn escrowed(world: &World, asked: &mut Vec<Question>) {
    let ask = async |name: &str, amount: &str| {
        let agent = world.agent(name).await;
        let mandate = world.mandate(&agent, 1_000, "").await;
        (world.ask(&agent, amount).await["decision"].clone(), agent, mandate)
    };
    let (allowed, agent, _) = ask("allowed", "40").await;
    asked.push(Question::new(world, &agent, What::Escrow(allowed), "funded 40 USD vendor:v"));
    let (withdrawn, agent, mandate) = ask("withdrawn", "40").await;
    world.revoke(&mandate).await;
    world.mandate(&agent, 1_000, "").await;
    asked.push(Question::new(world, &agent, What::Escrow(withdrawn), REFUSED));
    let (denied, agent, _) = ask("denied", "501").await;
    asked.push(Question::new(world, &agent, What::Escrow(denied), REFUSED));
    let agent = world.agent("delivered").await;
    world.mandate(&agent, 1_000, "").await;
    let delivered = escrow(world, &agent, "40").await;
    assert_eq!(go(world, &delivered, EscrowState::Delivered, None).await.status, 200);
    asked.push(Question::new(world, &agent, What::Release(delivered), "released 40 USD vendor:v"));
    let agent = world.agent("released").await;
    world.mandate(&agent, 1_000, "").await;
    let released = escrow(world, &agent, "40").await;
    for state in [EscrowState::Delivered, EscrowState::Released] {
        assert_eq!(go(world, &released, state, None).await.status, 200);
    }
    asked.push(Question::new(world, &agent, What::Release(released), REFUSED));
    let agent = world.agent("escrowed").await;
    world.mandate(&agent, 1_000, "").await;
    let there = escrow(world, &agent, "40").await;
    asked.push(Question::new(world, &agent, What::Escrow(there["decision"].clone()), REFUSED));
}

/// Opens an escrow. Gives the state that it is in and what it moves, or why there is no answer.
pub(super) async fn opened(
    world: &World,
    store: &Store,
    decision: &Value,
    wanted: &str,
) -> Result<String, String> {
    let command = create(world, decision);
    run(world, store, wanted, move |tx, call| escrows::create(tx, call, &command)).await
}

/// Releases the funds of an escrow.
pub(super) async fn released(
    world: &World,
    store: &Store,
    escrow: &Value,
    wanted: &str,
) -> Result<String, String> {
    let command = Transition {
        id: escrow["escrow"].as_str().unwrap().to_owned(),
        to: EscrowState::Released,
        note: None,
        settlement: Reply::Settled,
        moments: Arc::clone(&world.moments),
    };
    run(world, store, wanted, move |tx, call| escrows::transition(tx, call, &command)).await
}

async fn run<S>(world: &World, store: &Store, wanted: &str, script: S) -> Result<String, String>
where
    S: Fn(&mut Tx<'_>, &Call) -> Scripted + Send + 'static,
{
    let call = world.call(&world.organization);
    match store.write(move |tx| script(tx, &call)).await.map_err(|fault| fault.to_string())? {
        Ok(answer) => {
            let shown = json(&answer);
            let text = |name: &str| shown[name].as_str().unwrap().to_owned();
            let [state, currency, seller] = ["state", "currency", "seller"].map(text);
            Ok(format!("{state} {} {currency} {seller}", shown["amount"]))
        }
        Err(_) if wanted == REFUSED => Ok(REFUSED.to_owned()),
        Err(refusal) => Err(refusal.message),
    }
}

/// Statements that each make one change as a flipped bit does, and the agent whose escrow it must not open or move on.
const MOVES: &[(&str, &str)] = &[
    ("UPDATE decisions SET amount = '9000' WHERE agent = 'agt_allowed'", "agt_allowed"),
    ("UPDATE decisions SET recipient = 'vendor:w' WHERE agent = 'agt_allowed'", "agt_allowed"),
    ("UPDATE decisions SET verdict = 'allow' WHERE agent = 'agt_denied'", "agt_denied"),
    ("UPDATE decisions SET decided_at = decided_at + 60000 WHERE agent = 'agt_allowed'", "agt_allowed"),
    (
        "UPDATE mandates SET revoked_at = NULL WHERE agent = 'agt_withdrawn' AND revoked_at > 0",
        "agt_withdrawn",
    ),
    ("UPDATE decisions SET mandate = NULL WHERE agent = 'agt_withdrawn'", "agt_withdrawn"),
    ("DELETE FROM mandates WHERE agent = 'agt_withdrawn' AND revoked_at > 0", "agt_withdrawn"),
    ("UPDATE decisions SET amount = '9000' WHERE agent = 'agt_delivered'", "agt_delivered"),
    ("UPDATE escrows SET agent = 'agt_allowed' WHERE agent = 'agt_delivered'", "agt_delivered"),
    (
        "UPDATE escrows SET decision = (SELECT MAX(decision) FROM decisions WHERE agent = 'agt_denied')
            WHERE agent = 'agt_delivered'",
        "agt_delivered",
    ),
    ("UPDATE escrows SET decision = zeroblob(16) WHERE agent = 'agt_escrowed'", "agt_escrowed"),
    ("UPDATE escrows SET refund_after = 0 WHERE agent = 'agt_delivered'", "agt_delivered"),
    ("UPDATE escrow_history SET disputed = 1 WHERE state = 'delivered'", "agt_delivered"),
    ("UPDATE escrow_history SET number = 9 WHERE state = 'delivered'", "agt_released"),
    ("DELETE FROM escrow_history WHERE state = 'released'", "agt_released"),
    ("UPDATE instructions SET attempt = 5", "agt_delivered"),
    ("DELETE FROM instructions WHERE action = 'release'", "agt_released"),
];

#[tokio::test]
async fn an_escrow_that_is_damaged_or_whose_decision_or_mandate_is_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let (world, questions, [orderly, _]) = bases(&folder).await;
    let is_of = |question: &&Question, agent: &str| {
        matches!(question.what, What::Escrow(_) | What::Release(_))
            && question.caller.agent.as_ref().is_some_and(|own| own.as_str() == agent)
    };
    for (number, (statement, agent)) in MOVES.iter().enumerate() {
        let damaged = folder.path().join(format!("{number}.db"));
        let database = changed(&orderly, &damaged, statement);
        let store = apart::open(&database, Arc::clone(&world.engine) as _).unwrap();
        let question = questions.iter().find(|question| is_of(question, agent)).unwrap();
        let fault = answer(&world, &store, question).await.unwrap_err();
        store.close();
        assert!(fault.starts_with("database: "), "{statement}: {fault}");
        if ["escrow", "instructions"].iter().any(|table| statement.contains(table)) {
            let finding = "escrows: a checksum of other values".to_owned();
            assert!(found(&database).contains(&finding), "{statement}");
        }
    }
}

/// It would be opened a second time, and its funds moved twice.
#[tokio::test]
async fn an_escrow_that_the_index_by_decision_hides_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let (world, questions, [orderly, _]) = bases(&folder).await;
    let (decision, question) = questions
        .iter()
        .find_map(|question| match &question.what {
            What::Escrow(decision) if question.caller.agent.as_ref()?.as_str() == "agt_escrowed" => {
                Some((DecisionId::parse(decision.as_str()?).unwrap().to_bytes(), question))
            }
            _ => None,
        })
        .unwrap();
    let mut bytes = std::fs::read(&orderly).unwrap();
    let mut hidden = 0;
    for page in pages(&orderly, &bytes, "sqlite_autoindex_escrows_3") {
        let page = &mut bytes[page * 4096..(page + 1) * 4096];
        if let Some(at) = page.windows(decision.len()).position(|found| found == decision) {
            page[at + decision.len() - 1] ^= 1;
            hidden += 1;
        }
    }
    assert_eq!(hidden, 1);
    std::fs::write(&orderly, bytes).unwrap();
    let store =
        apart::open(&format!("sqlite://{}", orderly.display()), Arc::clone(&world.engine) as _).unwrap();
    let fault = answer(&world, &store, question).await.unwrap_err();
    store.close();
    assert!(fault.starts_with("database: escrows esc_") && fault.contains("it is not found"), "{fault}");
}
