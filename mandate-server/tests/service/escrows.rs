//! Escrows: one for each allow, moved on by their state machine, and read by whom they concern.

use std::sync::Arc;

use mandate_core::cursor::CursorKey;
use mandate_core::{DecisionId, EscrowId, EscrowState, Timestamp};
use mandate_server::clock::{Clock as _, Entropy as _, SystemEntropy};
use mandate_server::model::call::{Answer, Caller};
use mandate_server::service::escrows::{self, Address, Create, Reply, Transition};
use mandate_server::service::listing::{Cursors, From, Query};
use serde_json::{Value, json};

use crate::events::log;
use crate::world::{self, World};

pub(crate) fn create(world: &World, decision: &Value) -> Create {
    let mut contract = [0; 32];
    SystemEntropy.fill(&mut contract);
    Create {
        decision: DecisionId::parse(decision.as_str().unwrap()).unwrap(),
        arbiter: None,
        condition: "delivered in one piece".to_owned(),
        refund_after: Timestamp::parse("2026-07-01T00:00:00Z").unwrap(),
        id: EscrowId::from_bytes(world.new_id()),
        contract: Address(contract),
        moments: Arc::clone(&world.moments),
        settlement: Reply::Settled,
    }
}

pub(crate) async fn open(world: &World, create: Create) -> Answer {
    let call = world.call(&world.organization);
    world.write(call, move |tx, call| escrows::create(tx, call, &create)).await
}

pub(crate) async fn escrow(world: &World, agent: &Arc<Caller>, amount: &str) -> Value {
    let decision = world.ask(agent, amount).await["decision"].clone();
    let answer = open(world, create(world, &decision)).await;
    assert_eq!(answer.status, 201);
    world::json(&answer)
}

pub(crate) async fn go(world: &World, escrow: &Value, to: EscrowState, note: Option<&str>) -> Answer {
    go_by(world, escrow, to, note, Reply::Settled).await
}

/// The same, where the adapter says `settlement` of an instruction at once.
pub(crate) async fn go_by(
    world: &World,
    escrow: &Value,
    to: EscrowState,
    note: Option<&str>,
    settlement: Reply,
) -> Answer {
    let id = escrow["escrow"].as_str().unwrap().to_owned();
    let (note, moments) = (note.map(ToOwned::to_owned), Arc::clone(&world.moments));
    let command = Transition { id, to, note, settlement, moments };
    let call = world.call(&world.organization);
    world.write(call, move |tx, call| escrows::transition(tx, call, &command)).await
}

pub(crate) async fn get(world: &World, caller: &Arc<Caller>, escrow: &Value) -> Option<Value> {
    let (call, id) = (world.call(caller), escrow["escrow"].as_str().unwrap().to_owned());
    let found = world.store.read(move |tx| escrows::get(tx, &call, &id)).await.unwrap();
    found.ok().map(|answer| world::json(&answer))
}

pub(crate) fn message(answer: &Answer) -> String {
    assert_eq!(answer.status, 400);
    world::json(answer)["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_escrow_is_what_its_decision_allowed() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let decision = world.ask(&agent, "40.5").await["decision"].clone();
    let command = Create { arbiter: Some("Hague".to_owned()), ..create(&world, &decision) };
    let (id, contract) = (command.id.to_string(), command.contract.to_string());
    let answer = open(&world, command).await;
    let opened = world::json(&answer);
    let whole = json!({"escrow": id, "contract": contract, "state": "funded", "disputed": false,
        "decision": decision, "amount": 40.5, "currency": "USD", "buyer": "agt_a", "seller": "vendor:v",
        "arbiter": "Hague", "condition": "delivered in one piece", "refund_after": "2026-07-01T00:00:00.000Z",
        "settlement": {"instruction": format!("{id}.lock.1"), "action": "lock", "status": "settled"},
        "history": [{"state": "funded", "disputed": false, "at": "2026-06-15T12:00:00.000Z"}],
        "created_at": "2026-06-15T12:00:00.000Z"});
    assert_eq!((answer.status, &opened), (201, &whole));
    assert_eq!(get(&world, &world.organization, &opened).await.as_ref(), Some(&whole));

    let again = open(&world, create(&world, &decision)).await;
    let d = decision.as_str().unwrap();
    assert_eq!(message(&again), format!("decision {d} has an escrow: {id}; there is one for each decision"));
}

#[tokio::test]
async fn only_an_allow_of_this_environment_is_put_in_escrow_and_for_some_time() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let denied = world.ask(&agent, "501").await["decision"].clone();
    let refused = open(&world, create(&world, &denied)).await;
    let denied = denied.as_str().unwrap();
    assert_eq!(message(&refused), format!("decision must be an allow; {denied} is deny_limit"));

    let unknown = json!("dec_00000000000000000000000001");
    let refused = open(&world, create(&world, &unknown)).await;
    let unknown = "decision must be one of this environment; got `dec_00000000000000000000000001`";
    assert_eq!(message(&refused), unknown);

    let allowed = world.ask(&agent, "1").await["decision"].clone();
    let at_once = Create { refund_after: world.clock.now(), ..create(&world, &allowed) };
    let wanted =
        "refund_after must be in the future; got `2026-06-15T12:00:00.000Z`, now is 2026-06-15T12:00:00.000Z";
    assert_eq!(message(&open(&world, at_once).await), wanted);
}

/// An allow that no counterparty would take any more locks no funds.
#[tokio::test]
async fn an_escrow_is_opened_only_from_an_allow_that_still_counts() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let mandate = world.mandate(&agent, 1_000, "").await;
    let ask = async || world.ask(&agent, "1").await["decision"].clone();
    let (old, last) = (ask().await, ask().await);
    world.clock.advance(299);
    assert_eq!(open(&world, create(&world, &last)).await.status, 201);
    world.clock.advance(1);
    let wanted = format!(
        "decision must be one whose token has not expired; that of {} expired at 2026-06-15T12:05:00.000Z",
        old.as_str().unwrap()
    );
    assert_eq!(message(&open(&world, create(&world, &old)).await), wanted);
    let again = message(&open(&world, create(&world, &last)).await);
    assert!(again.contains("has an escrow: "), "a retry learns what is there: {again}");

    let (replaced, revoked) = (ask().await, ask().await);
    let next = world.mandate(&agent, 1_000, "").await;
    assert_eq!(open(&world, create(&world, &replaced)).await.status, 201, "replaced does not matter");
    let of_next = ask().await;
    assert_eq!(world.revoke(&next).await.status, 200);
    let wanted = format!(
        "decision must be one whose mandate is not revoked; {next}, of {}, is",
        of_next.as_str().unwrap()
    );
    assert_eq!(message(&open(&world, create(&world, &of_next)).await), wanted);
    assert_eq!(
        open(&world, create(&world, &revoked)).await.status,
        201,
        "{mandate} was replaced, not revoked"
    );
}

#[tokio::test]
async fn the_history_is_kept_and_a_dispute_is_never_forgotten() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let escrow = escrow(&world, &agent, "1").await;
    for (to, note) in [
        (EscrowState::Delivered, Some("left with the porter")),
        (EscrowState::Disputed, None),
        (EscrowState::Released, Some("the porter had it")),
    ] {
        world.clock.advance(60);
        assert_eq!(go(&world, &escrow, to, note).await.status, 200);
    }
    let ended = get(&world, &agent, &escrow).await.unwrap();
    assert_eq!((&ended["state"], &ended["disputed"]), (&json!("released"), &json!(true)));
    assert_eq!(
        ended["history"],
        json!([
            {"state": "funded", "disputed": false, "at": "2026-06-15T12:00:00.000Z"},
            {"state": "delivered", "disputed": false, "at": "2026-06-15T12:01:00.000Z", "note": "left with the porter"},
            {"state": "disputed", "disputed": true, "at": "2026-06-15T12:02:00.000Z"},
            {"state": "released", "disputed": true, "at": "2026-06-15T12:03:00.000Z", "note": "the porter had it"},
        ])
    );
    let release = format!("{}.release.1", escrow["escrow"].as_str().unwrap());
    assert_eq!(
        ended["settlement"],
        json!({"instruction": release, "action": "release", "status": "settled"}),
        "in the same transaction"
    );
    let refused = go(&world, &escrow, EscrowState::Refunded, None).await;
    assert_eq!(message(&refused), "an escrow that is released cannot become refunded; that state is final");
    assert_eq!(get(&world, &agent, &escrow).await.unwrap(), ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_ends_at_once_one_wins() {
    let world = Arc::new(World::new().await);
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let escrow = escrow(&world, &agent, "1").await;
    go(&world, &escrow, EscrowState::Disputed, None).await;
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let (world, escrow) = (Arc::clone(&world), escrow.clone());
            let to = if n % 2 == 0 { EscrowState::Released } else { EscrowState::Refunded };
            tokio::spawn(async move { go(&world, &escrow, to, None).await.status })
        })
        .collect();
    let mut won = 0;
    for task in tasks {
        won += usize::from(task.await.unwrap() == 200);
    }
    assert_eq!(won, 1);
}

#[tokio::test]
async fn an_agent_sees_the_escrows_it_pays_into() {
    let world = World::new().await;
    let (a, b) = (world.agent("a").await, world.agent("b").await);
    for agent in [&a, &b] {
        world.mandate(agent, 1_000, "").await;
    }
    let (first, second) = (escrow(&world, &a, "1").await, escrow(&world, &b, "2").await);
    go(&world, &first, EscrowState::Delivered, None).await;
    assert!(get(&world, &a, &first).await.is_some() && get(&world, &a, &second).await.is_none());
    let page = async |caller: &Arc<Caller>, limit, from| {
        let (call, query) = (world.call(caller), Query { limit, from });
        let cursors = Cursors { key: Arc::new(CursorKey::new([1; 32])), now: world.clock.now() };
        let listed = world.store.read(move |tx| escrows::list(tx, &call, None, &query, &cursors)).await;
        let listed = world::json(&listed.unwrap().unwrap());
        let rows = listed["data"].as_array().unwrap().iter();
        (
            rows.map(|row| row["escrow"].as_str().unwrap().to_owned()).collect::<Vec<_>>(),
            listed["next_cursor"].clone(),
        )
    };
    let (first, second) = (first["escrow"].as_str().unwrap(), second["escrow"].as_str().unwrap());
    let (newest, next) = page(&world.organization, 1, From::Newest).await;
    assert_eq!(newest, [second]);
    let next = From::Cursor(next.as_str().unwrap().to_owned());
    assert_eq!(page(&world.organization, 1, next).await.0, [first], "a history counts as one row");
    assert_eq!(page(&a, 100, From::Newest).await.0, [first]);
    let before = From::Before(first.to_owned());
    assert_eq!(page(&world.organization, 100, before).await.0, [second]);
}

#[tokio::test]
async fn every_state_that_an_escrow_enters_has_an_event() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let opened = escrow(&world, &agent, "40").await;
    for to in [EscrowState::Disputed, EscrowState::Refunded] {
        assert_eq!(go(&world, &opened, to, None).await.status, 200);
    }
    assert_eq!(go(&world, &opened, EscrowState::Released, None).await.status, 400, "refused: no event");
    let logged: Vec<_> = log(&world).await.iter().map(|e| json!([e["type"], e["data"]])).collect();
    let data = |state, disputed| json!({"escrow": opened["escrow"], "state": state, "disputed": disputed});
    assert_eq!(
        logged,
        [
            json!(["escrow.refunded", data("refunded", true)]),
            json!(["escrow.disputed", data("disputed", true)]),
            json!(["escrow.funded", data("funded", false)]),
        ]
    );
}
