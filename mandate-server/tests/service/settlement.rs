//! Instructions to move funds: recorded with the state that moves the funds, then sent in order until they end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use mandate_core::{EnvironmentKind, EscrowState};
use mandate_server::clock::Clock as _;
use mandate_server::error::Fault;
use mandate_server::metrics::Metrics;
use mandate_server::service::audit::{self, Operator};
use mandate_server::service::escrows::{self, Create, Transition};
use mandate_server::service::settlements;
use mandate_server::settlement::{Adapter, Instruction, Local, Outcome, Settlement};
use mandate_server::store::sql::escrows::SettlementStatus::{self, Pending, Refused, Settled};
use mandate_server::worker::settle::carry_out_due;
use serde_json::{Value, json};

use crate::apart;
use crate::escrows::{create, get, open};
use crate::world::{self, World};

/// A provider that answers as the test decides, and remembers what it was sent.
#[derive(Debug, Default, Clone)]
struct Provider {
    answers: Arc<Mutex<VecDeque<Result<SettlementStatus, &'static str>>>>,
    sent: Arc<Mutex<Vec<Instruction>>>,
}

impl Provider {
    fn answers(&self, answers: impl IntoIterator<Item = Result<SettlementStatus, &'static str>>) {
        self.answers.lock().unwrap().extend(answers);
    }

    /// What was sent since this was last asked.
    fn sent(&self) -> Vec<Instruction> {
        std::mem::take(&mut self.sent.lock().unwrap())
    }
}

impl Adapter for Provider {
    fn recorded(&self) -> SettlementStatus {
        Pending
    }

    fn carry_out<'a>(&'a self, instruction: &'a Instruction) -> Outcome<'a> {
        self.sent.lock().unwrap().push(instruction.clone());
        let answer = self.answers.lock().unwrap().pop_front().unwrap();
        Box::pin(async move { answer.map_err(Fault::new) })
    }
}

/// A world whose production environment settles with `provider`, and an escrow in it.
async fn begin(provider: &Provider) -> (World, Settlement, Value) {
    let world = World::of(EnvironmentKind::Production).await;
    let settlement = Settlement::with(Box::new(provider.clone()));
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let decision = world.ask(&agent, "40.5").await["decision"].clone();
    let kind = world.organization.environment.kind;
    let create = Create { settlement: settlement.recorded(kind), ..create(&world, &decision) };
    let escrow = world::json(&open(&world, create).await);
    (world, settlement, escrow)
}

async fn go(world: &World, escrow: &Value, to: EscrowState) {
    let id = escrow["escrow"].as_str().unwrap().to_owned();
    let command = Transition {
        id,
        to,
        note: None,
        settlement: Pending,
        ids: Arc::clone(&world.ids),
        at: world.clock.now(),
    };
    let call = world.call(&world.organization);
    let moved = world.write(call, move |tx, call| escrows::transition(tx, call, &command)).await;
    assert_eq!(moved.status, 200);
}

/// What became of each state's instruction.
async fn settled(world: &World, escrow: &Value) -> Vec<Value> {
    let escrow = get(world, &world.organization, escrow).await.unwrap();
    escrow["history"].as_array().unwrap().iter().map(|entry| entry["settlement"].clone()).collect()
}

#[tokio::test]
async fn an_instruction_is_sent_again_until_it_ends_and_is_always_the_same() {
    let provider = Provider::default();
    let (world, settlement, escrow) = begin(&provider).await;
    let run =
        async || carry_out_due(&world.store, &settlement, &Metrics::new(), world.clock.now()).await.unwrap();
    assert_eq!(settled(&world, &escrow).await, ["pending"]);
    provider.answers([Err("no route"), Ok(Pending), Ok(Settled)]);
    assert_eq!((run().await, run().await), (1, 0), "not before its time");
    assert_eq!(settled(&world, &escrow).await, ["pending"]);
    world.clock.advance(4);
    assert_eq!(run().await, 0);
    world.clock.advance(1);
    assert_eq!(run().await, 1);
    world.clock.advance(9);
    assert_eq!(run().await, 0, "twice as long after the second attempt");
    world.clock.advance(1);
    assert_eq!(run().await, 1);
    assert_eq!(settled(&world, &escrow).await, ["settled"]);
    world.clock.advance(1_000_000);
    assert_eq!(run().await, 0);

    let sent = provider.sent();
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|instruction| *instruction == sent[0]));
    assert_eq!(sent[0].id, format!("{}.funded", escrow["escrow"].as_str().unwrap()));
    let wanted = json!({"action": "lock", "escrow": escrow["escrow"], "contract": escrow["contract"],
        "amount": 40.5, "currency": "USD", "buyer": "agt_a", "seller": "vendor:v"});
    assert_eq!(serde_json::to_value(&sent[0]).unwrap(), wanted);
}

#[tokio::test]
async fn an_instruction_that_was_put_off_by_a_clock_that_was_ahead_is_sent_when_it_is_set_back() {
    let provider = Provider::default();
    let (world, settlement, escrow) = begin(&provider).await;
    let run =
        async || carry_out_due(&world.store, &settlement, &Metrics::new(), world.clock.now()).await.unwrap();
    provider.answers([Err("no route"), Err("no route"), Ok(Settled)]);
    world.clock.advance(86_400);
    assert_eq!(run().await, 1);
    world.clock.advance(-86_400);
    assert_eq!((run().await, run().await), (1, 0), "in a day by the record, and then as the schedule says");
    world.clock.advance(10);
    assert_eq!(run().await, 1);
    assert_eq!(settled(&world, &escrow).await, ["settled"]);
}

#[tokio::test]
async fn the_instructions_of_an_escrow_go_out_in_their_order() {
    let provider = Provider::default();
    let (world, settlement, escrow) = begin(&provider).await;
    let run =
        async || carry_out_due(&world.store, &settlement, &Metrics::new(), world.clock.now()).await.unwrap();
    go(&world, &escrow, EscrowState::Disputed).await;
    go(&world, &escrow, EscrowState::Refunded).await;
    provider.answers([Err("no route"), Ok(Settled), Ok(Refused)]);
    assert_eq!((run().await, run().await), (1, 0), "the refund waits for the lock");
    world.clock.advance(5);
    assert_eq!((run().await, run().await, run().await), (1, 1, 0));
    let states: Vec<_> =
        provider.sent().iter().map(|sent| serde_json::to_value(sent).unwrap()["action"].clone()).collect();
    assert_eq!(states, ["lock", "lock", "refund"]);
    assert_eq!(settled(&world, &escrow).await, [json!("settled"), Value::Null, json!("refused")]);
}

#[tokio::test]
async fn what_was_recorded_for_another_adapter_is_carried_out_by_the_one_that_is_live() {
    let (world, _, escrow) = begin(&Provider::default()).await;
    let local = Settlement::with(Box::new(Local));
    assert_eq!(carry_out_due(&world.store, &local, &Metrics::new(), world.clock.now()).await.unwrap(), 1);
    assert_eq!(settled(&world, &escrow).await, ["settled"]);
}

#[tokio::test]
async fn nothing_leaves_a_sandbox() {
    let settlement = Settlement::with(Box::new(Provider::default()));
    assert_eq!(settlement.recorded(EnvironmentKind::Sandbox), Settled);
    assert_eq!(settlement.recorded(EnvironmentKind::Production), Pending);
}

#[tokio::test]
async fn a_refused_instruction_is_sent_again_when_the_operator_says_so() {
    let provider = Provider::default();
    let (world, settlement, escrow) = begin(&provider).await;
    provider.answers([Ok(Refused)]);
    carry_out_due(&world.store, &settlement, &Metrics::new(), world.clock.now()).await.unwrap();
    let first = provider.sent();
    let id = mandate_core::EscrowId::parse(escrow["escrow"].as_str().unwrap()).unwrap();
    let retry = |id| {
        let by = Operator { name: "test".to_owned(), at: world.clock.now() };
        apart::run_once(&world.database, |tx| settlements::retry(tx, id, &by)).unwrap()
    };
    let refused = apart::run_once(&world.database, |tx| Ok(settlements::refused(tx)?)).unwrap().unwrap();
    assert_eq!((refused.len(), refused[0].escrow, refused[0].state), (1, id, EscrowState::Funded));
    let unknown = mandate_core::EscrowId::from_bytes([1; 16]);
    assert!(retry(unknown).unwrap_err().message.contains("no refused instruction"));

    assert_eq!(retry(id).unwrap().len(), 1);
    assert!(retry(id).is_err(), "it is on its way");
    provider.answers([Ok(Settled)]);
    carry_out_due(&world.store, &settlement, &Metrics::new(), world.clock.now()).await.unwrap();
    let sent = provider.sent();
    assert_eq!((sent.len(), &sent[0].id), (1, &first[0].id), "under its old id");
    let records = apart::run_once(&world.database, |tx| Ok(audit::newest(tx, None, world.clock.now(), 9)?));
    assert_eq!(records.unwrap().unwrap()[0].action, "settlement.retry");
}
