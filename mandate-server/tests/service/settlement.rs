//! Instructions to move funds: recorded when they are asked for, and sent until the provider ends them. Only then has an
//! escrow another state, history, event and contract.

use std::sync::Arc;

use mandate_core::cursor::CursorKey;
use mandate_core::{EnvironmentKind, EscrowId, EscrowState};
use mandate_server::clock::Clock as _;
use mandate_server::service::audit::{self, Operator};
use mandate_server::service::escrows::Reply::{self, Pending, Settled};
use mandate_server::service::escrows::{self, Create};
use mandate_server::service::listing::{Cursors, From, Query};
use mandate_server::service::settlements;
use mandate_server::settlement::{Local, Settlement};
use mandate_server::store::sql::instructions::SettlementStatus;
use serde_json::json;

use crate::apart;
use crate::deal::{Deal, Provider, refused};
use crate::escrows::{create, message, open};
use crate::events::{deliveries, log, webhook};
use crate::world;

#[tokio::test]
async fn an_instruction_is_sent_again_until_it_ends_and_is_always_the_same() {
    let deal = Deal::begin().await;
    let clock = &deal.world.clock;
    deal.provider.answers([Err("no route"), Ok(Pending), Ok(Settled)]);
    assert_eq!((deal.run().await, deal.run().await), (1, 0), "not before its time");
    deal.must_be("opening", false, "lock.1 pending").await;
    clock.advance(4);
    assert_eq!(deal.run().await, 0);
    clock.advance(1);
    assert_eq!(deal.run().await, 1);
    clock.advance(9);
    assert_eq!(deal.run().await, 0, "twice as long after the second attempt");
    clock.advance(1);
    assert_eq!(deal.run().await, 1);
    deal.must_be("funded", false, "lock.1 settled").await;
    clock.advance(1_000_000);
    assert_eq!(deal.run().await, 0);

    let sent = deal.provider.sent();
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|instruction| *instruction == sent[0]));
    assert_eq!(sent[0].id, deal.id("lock.1"));
    let escrow = &deal.escrow;
    let wanted = json!({"action": "lock", "escrow": escrow["escrow"], "contract": escrow["contract"],
        "amount": 40.5, "currency": "USD", "buyer": "agt_a", "seller": "vendor:v"});
    assert_eq!(serde_json::to_value(&sent[0]).unwrap(), wanted);
}

#[tokio::test]
async fn an_instruction_whose_decision_is_damaged_is_not_sent_and_keeps_no_other_from_being_sent() {
    let deal = Deal::begin().await;
    let agent = deal.world.agent("b").await;
    deal.world.mandate(&agent, 1_000, "").await;
    let decision = deal.world.ask(&agent, "7").await["decision"].clone();
    let create = Create { settlement: Pending, ..create(&deal.world, &decision) };
    assert_eq!(open(&deal.world, create).await.status, 201);
    // By the server itself: after another program's write it reads the end of the log again, and begins no transaction.
    let change = async |sql: &'static str| {
        let changed = deal.world.store.write(move |tx| Ok(tx.execute(sql, &[])?)).await;
        assert_eq!(changed.unwrap().unwrap(), 1, "{sql}");
    };
    change("UPDATE decisions SET amount = '9000' WHERE amount = '7'").await;
    deal.provider.answers([Ok(Settled)]);
    assert_eq!(deal.run().await, 2);
    let amount = |sent| serde_json::to_value(sent).unwrap()["amount"].to_string();
    let amounts = || deal.provider.sent().into_iter().map(amount).collect::<Vec<_>>();
    assert_eq!(amounts(), ["40.5"]);
    deal.must_be("funded", false, "lock.1 settled").await;
    change("UPDATE decisions SET amount = '7' WHERE amount = '9000'").await;
    deal.provider.answers([Ok(Settled)]);
    assert_eq!(deal.run().await, 1);
    assert_eq!(amounts(), ["7"]);
}

#[tokio::test]
async fn an_instruction_that_was_put_off_by_a_clock_that_was_ahead_is_sent_when_it_is_set_back() {
    let deal = Deal::begin().await;
    let clock = &deal.world.clock;
    deal.provider.answers([Err("no route"), Err("no route"), Ok(Settled)]);
    clock.advance(86_400);
    assert_eq!(deal.run().await, 1);
    clock.advance(-86_400);
    assert_eq!(
        (deal.run().await, deal.run().await),
        (1, 0),
        "in a day by the record, and then as the schedule says"
    );
    clock.advance(10);
    assert_eq!(deal.run().await, 1);
    deal.must_be("funded", false, "lock.1 settled").await;
}

#[tokio::test]
async fn an_escrow_is_opening_until_its_funds_are_locked() {
    let deal = Deal::begin().await;
    assert_eq!(deal.escrow, deal.shown().await, "as it was answered");
    deal.answered([Ok(Pending), Err("no answer")]).await;
    deal.must_be("opening", false, "lock.1 pending").await;
    for to in EscrowState::ALL {
        let wanted = format!(
            "an escrow that is opening cannot become {to} while its instruction {} is pending; it cannot change meanwhile",
            deal.id("lock.1")
        );
        assert_eq!(message(&deal.go(to).await), wanted);
    }
    assert_eq!(deal.history().await, [("opening".to_owned(), false)]);
    assert_eq!(deal.events().await, Vec::<String>::new());

    deal.answered([Ok(Settled)]).await;
    deal.must_be("funded", false, "lock.1 settled").await;
    let shown = deal.shown().await;
    let entry = |state, at| json!({"state": state, "disputed": false, "at": at});
    let history = [entry("opening", "2026-06-15T12:00:00.000Z"), entry("funded", "2026-06-15T14:00:00.000Z")];
    assert_eq!(shown["history"], json!(history), "from when the provider settled");
    assert_eq!(shown["created_at"], "2026-06-15T12:00:00.000Z");
    assert_eq!(deal.events().await, ["escrow.funded funded false"]);
    assert_eq!(log(&deal.world).await[0]["created_at"], "2026-06-15T14:00:00.000Z");
}

#[tokio::test]
async fn an_escrow_whose_lock_was_refused_has_failed_for_good() {
    let deal = Deal::begin().await;
    let subscribed = webhook(&deal.world, &["escrow.settlement_refused"]).await;
    deal.answered([Ok(Pending), Ok(refused("no funds"))]).await;
    deal.must_be("failed", false, "lock.1 refused").await;
    assert_eq!(deal.shown().await["settlement"]["reason"], "no funds");
    assert_eq!(deal.history().await, [("opening".to_owned(), false), ("failed".to_owned(), false)]);
    let events = log(&deal.world).await;
    assert_eq!(events.len(), 1);
    let wanted = json!({"escrow": deal.escrow["escrow"], "state": "failed", "disputed": false,
        "instruction": deal.id("lock.1"), "reason": "no funds"});
    assert_eq!((&events[0]["type"], &events[0]["data"]), (&json!("escrow.settlement_refused"), &wanted));
    assert_eq!(deliveries(&deal.world, &events[0]["event"]).await, [(subscribed, "pending".to_owned())]);

    for to in EscrowState::ALL {
        let refused = message(&deal.go(to).await);
        assert_eq!(refused, format!("an escrow that is failed cannot become {to}; that state is final"));
    }
    deal.provider.sent();
    deal.world.clock.advance(30 * 86_400);
    assert_eq!(deal.run().await, 0);
    assert!(deal.provider.sent().is_empty());
}

#[tokio::test]
async fn a_state_that_moves_funds_is_entered_when_the_provider_has_settled() {
    for (before, to, action) in [
        (&[EscrowState::Delivered][..], EscrowState::Released, "release.1"),
        (&[], EscrowState::Refunded, "refund.1"),
        (&[EscrowState::Disputed], EscrowState::Refunded, "refund.1"),
    ] {
        let deal = Deal::funded(before).await;
        let (events, history) = (deal.events().await, deal.history().await);
        let (state, disputed, _) = deal.summary().await;
        let answer = deal.go(to).await;
        assert_eq!((answer.status, world::json(&answer)), (200, deal.shown().await));
        deal.must_be(&state, disputed, &format!("{action} pending")).await;
        deal.answered([Ok(Pending)]).await;
        deal.must_be(&state, disputed, &format!("{action} pending")).await;
        for other in EscrowState::ALL.into_iter().filter(|other| *other != EscrowState::Disputed) {
            let refused = message(&deal.go(other).await);
            assert!(
                refused.contains(&format!("its instruction {} is pending", deal.id(action))),
                "{refused}"
            );
        }
        assert_eq!((deal.events().await, deal.history().await), (events.clone(), history.clone()));

        deal.answered([Ok(Settled)]).await;
        deal.must_be(to.as_str(), disputed, &format!("{action} settled")).await;
        assert_eq!(deal.history().await, [history, vec![(to.to_string(), disputed)]].concat());
        assert_eq!(deal.events().await, [events, vec![format!("escrow.{to} {to} {disputed}")]].concat());
        let last = deal.shown().await["history"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["note"], to.as_str(), "the note of who asked");
        let ids: Vec<_> = deal.provider.sent().into_iter().map(|sent| sent.id).collect();
        assert_eq!(ids, [deal.id(action), deal.id(action)]);
        deal.must_be_sound();
    }
}

#[tokio::test]
async fn what_was_refused_is_asked_for_again_with_an_instruction_of_its_own() {
    let deal = Deal::funded(&[EscrowState::Delivered, EscrowState::Disputed]).await;
    let history = deal.history().await;
    for (to, action) in [
        (EscrowState::Released, "release.1"),
        (EscrowState::Released, "release.2"),
        (EscrowState::Refunded, "refund.1"),
    ] {
        assert_eq!(deal.go(to).await.status, 200);
        deal.answered([Err("no route"), Ok(refused("closed"))]).await;
        deal.must_be("disputed", true, &format!("{action} refused")).await;
        assert_eq!(deal.history().await, history, "the state is left as it was");
        let newest = log(&deal.world).await[0].clone();
        let wanted = json!({"escrow": deal.escrow["escrow"], "state": "disputed", "disputed": true,
            "instruction": deal.id(action), "reason": "closed"});
        assert_eq!((&newest["type"], &newest["data"]), (&json!("escrow.settlement_refused"), &wanted));
        let ids: Vec<_> = deal.provider.sent().into_iter().map(|sent| sent.id).collect();
        assert_eq!(ids, [deal.id(action), deal.id(action)], "a retry of one attempt keeps its id");
    }
    assert_eq!(deal.go(EscrowState::Released).await.status, 200);
    deal.answered([Ok(Settled)]).await;
    deal.must_be("released", true, "release.3 settled").await;
    assert_eq!(deal.provider.sent()[0].id, deal.id("release.3"));
    assert_eq!(
        message(&deal.go(EscrowState::Refunded).await),
        "an escrow that is released cannot become refunded; that state is final"
    );
    deal.must_be_sound();
}

/// The provider may have moved the funds already: the flag is raised at once, and the state follows its answer.
#[tokio::test]
async fn a_dispute_is_taken_while_an_instruction_is_pending() {
    for (before, to, action) in [
        (&[EscrowState::Delivered][..], EscrowState::Released, "release.1"),
        (&[], EscrowState::Refunded, "refund.1"),
    ] {
        for settles in [true, false] {
            let deal = Deal::funded(before).await;
            assert_eq!(deal.go(to).await.status, 200);
            let (state, ..) = deal.summary().await;
            let (events, history) = (deal.events().await, deal.history().await);
            let answer = deal.go(EscrowState::Disputed).await;
            assert_eq!((answer.status, world::json(&answer)), (200, deal.shown().await));
            deal.must_be(&state, true, &format!("{action} pending")).await;
            let events = [events, vec![format!("escrow.disputed {state} true")]].concat();
            let history = [history, vec![(state.clone(), true)]].concat();
            assert_eq!((deal.events().await, deal.history().await), (events.clone(), history.clone()));
            let again = message(&deal.go(EscrowState::Disputed).await);
            let pending =
                format!("its instruction {} is pending; it cannot change meanwhile", deal.id(action));
            assert!(again.ends_with(&pending), "{again}");

            let (answer, now, word, event) = if settles {
                (Ok(Settled), to.as_str(), "settled", format!("escrow.{to} {to} true"))
            } else {
                let event = "escrow.settlement_refused disputed true".to_owned();
                (Ok(refused("too late")), "disputed", "refused", event)
            };
            deal.answered([answer]).await;
            deal.must_be(now, true, &format!("{action} {word}")).await;
            assert_eq!(deal.events().await, [events, vec![event]].concat());
            assert_eq!(deal.history().await, [history, vec![(now.to_owned(), true)]].concat());
            assert_eq!(deal.provider.sent().len(), 1, "a dispute moves no funds");
            let refund = deal.go(EscrowState::Refunded).await.status;
            assert_eq!(refund, if settles { 400 } else { 200 }, "where the funds are still locked");
            deal.must_be_sound();
        }
    }
}

/// Two servers may send the same instruction, and a provider may not know its own mind.
#[tokio::test]
async fn the_first_word_that_ends_an_instruction_holds() {
    for first in [Settled, refused("no")] {
        let deal = Deal::funded(&[EscrowState::Delivered]).await;
        assert_eq!(deal.go(EscrowState::Released).await.status, 200);
        assert!(deal.said(1, Pending).await && deal.said(1, Pending).await);
        assert!(deal.said(1, first.clone()).await);
        let (shown, events) = (deal.shown().await, deal.events().await);
        assert_eq!(events.len(), 3, "{events:?}");
        for later in [Settled, Pending, refused("no"), first, Settled] {
            deal.world.clock.advance(1);
            assert!(!deal.said(1, later).await);
            assert_eq!((deal.shown().await, deal.events().await), (shown.clone(), events.clone()));
        }
        assert_eq!(deal.run().await, 0, "nothing is sent again");
        assert!(!deal.said(0, Reply::Refused { reason: None }).await, "nor does the lock fail after all");
        assert_eq!(deal.shown().await, shown);
    }
}

#[tokio::test]
async fn escrows_are_listed_by_the_states_before_and_without_funds() {
    let deal = Deal::begin().await;
    let list = async |state: &str| {
        let (call, state) = (deal.world.call(&deal.world.organization), EscrowState::parse(state).unwrap());
        let cursors = Cursors { key: Arc::new(CursorKey::new([1; 32])), now: deal.world.clock.now() };
        let query = Query { limit: 10, from: From::Newest };
        let listed = deal.world.store.read(move |tx| escrows::list(tx, &call, Some(state), &query, &cursors));
        world::json(&listed.await.unwrap().unwrap())["data"].as_array().unwrap().len()
    };
    assert_eq!((list("opening").await, list("funded").await, list("failed").await), (1, 0, 0));
    deal.answered([Ok(refused("no"))]).await;
    assert_eq!((list("opening").await, list("funded").await, list("failed").await), (0, 0, 1));
}

#[tokio::test]
async fn what_was_recorded_for_another_adapter_is_carried_out_by_the_one_that_is_live() {
    let deal = Deal { settlement: Settlement::with(Box::new(Local)), ..Deal::begin().await };
    assert_eq!(deal.run().await, 1);
    deal.must_be("funded", false, "lock.1 settled").await;
}

#[tokio::test]
async fn nothing_leaves_a_sandbox() {
    let settlement = Settlement::with(Box::new(Provider::default()));
    assert_eq!(settlement.recorded(EnvironmentKind::Sandbox), Settled);
    assert_eq!(settlement.recorded(EnvironmentKind::Production), Pending);
}

#[tokio::test]
async fn an_operator_sees_what_has_not_settled_and_has_what_is_pending_sent_at_once() {
    let deal = Deal::funded(&[EscrowState::Delivered]).await;
    let id = EscrowId::parse(deal.escrow["escrow"].as_str().unwrap()).unwrap();
    let unsettled =
        || apart::run_once(&deal.world.database, |tx| Ok(settlements::unsettled(tx)?)).unwrap().unwrap();
    let retry = |id| {
        let by = Operator { name: "test".to_owned(), at: deal.world.clock.now() };
        apart::run_once(&deal.world.database, |tx| settlements::retry(tx, id, &by)).unwrap()
    };
    assert!(unsettled().is_empty());
    assert!(retry(id).unwrap_err().message.contains("no pending instruction"));
    assert_eq!(deal.go(EscrowState::Released).await.status, 200);
    deal.provider.answers([Err("no route")]);
    assert_eq!((deal.run().await, deal.run().await), (1, 0));
    let listed = unsettled();
    assert_eq!((listed.len(), listed[0].escrow, listed[0].sent), (1, id, 1));
    assert_eq!(listed[0].instruction.id(id), deal.id("release.1"));

    assert!(retry(EscrowId::from_bytes([1; 16])).is_err());
    assert_eq!(retry(id).unwrap().instruction.id(id), deal.id("release.1"));
    deal.provider.answers([Ok(refused("closed"))]);
    assert_eq!(deal.run().await, 1, "without waiting");
    let ids: Vec<_> = deal.provider.sent().into_iter().map(|sent| sent.id).collect();
    assert_eq!(ids, [deal.id("release.1"), deal.id("release.1")]);
    let listed = unsettled();
    let refused = &listed[0].instruction;
    assert_eq!((listed.len(), refused.status), (1, SettlementStatus::Refused));
    assert_eq!(refused.reason.as_deref(), Some("closed"));
    assert!(retry(id).is_err(), "it has ended: the organization asks again");
    let records =
        apart::run_once(&deal.world.database, |tx| Ok(audit::newest(tx, None, deal.world.clock.now(), 9)?));
    assert_eq!(records.unwrap().unwrap()[0].action, "settlement.retry");
}
