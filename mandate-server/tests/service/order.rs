//! Everything that takes locks, at once and in every order that callers can cause: no transaction waits for one that waits
//! for it. The database counts the deadlocks that it had to end.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use mandate_core::{EventKind, ExportId, WebhookId};
use mandate_server::clock::{Clock as _, TestClock};
use mandate_server::error::Fault;
use mandate_server::model::call::Caller;
use mandate_server::model::records::Mode;
use mandate_server::service::deliveries::{self, Round};
use mandate_server::service::enforcement;
use mandate_server::service::exports;
use mandate_server::service::webhooks::{self, Subscription};
use mandate_server::store::Authorization;
use mandate_server::store::sql::decisions::Filter;
use mandate_server::store::sql::exports::Format;
use mandate_server::worker::export::Exports;
use mandate_server::worker::sweep::Sweep;
use mandate_tests::campaign::scale;
use mandate_tests::cluster::OpenTransaction;
use tokio::sync::mpsc;

use crate::apart;
use crate::events::{delete, ping};
use crate::oracle;
use crate::world::World;

/// How often each does its work.
const ROUNDS: usize = 8;
const AGENTS: usize = 6;
const DEADLOCKS: &str = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";

/// Registers a webhook for all events. Returns its id.
pub(crate) async fn webhook(world: &World) -> String {
    let events: BTreeSet<EventKind> =
        [EventKind::DecisionReviewPending, EventKind::DecisionResolved, EventKind::MandateRevoked].into();
    let subscription = Subscription { url: "https://hooks.example/".to_owned(), events };
    let id = WebhookId::from_bytes(world.new_id());
    let create = webhooks::Create { subscription, id, at: world.clock.now() };
    let call = world.call(&world.organization);
    assert_eq!(world.write(call, move |tx, call| webhooks::create(tx, call, &create)).await.status, 201);
    id.to_string()
}

/// Makes requests that need a review, for one agent after another from `first` on, and resolves the reviews.
async fn asks_and_resolves(world: &World, agents: &[Arc<Caller>], first: usize, rounds: usize) {
    for round in 0..rounds {
        let agent = &agents[(first + round * (first + 1)) % AGENTS];
        let asked = world.ask(agent, "20").await;
        let Some(review) = asked.get("review").map(|review| review["id"].clone()) else { continue };
        let resolved = match round % 2 {
            0 => world.approve(&review).await,
            _ => world.deny(&review, None).await,
        };
        // Its time may be over: the sweeper moves the clock.
        assert!(matches!(resolved.status, 200 | 201 | 400));
    }
}

async fn replaces_and_revokes(world: &World, agents: &[Arc<Caller>], rounds: usize) {
    for round in 0..rounds {
        let agent = &agents[round % AGENTS];
        let id = world.mandate(agent, 100_000, r#","review_above":10"#).await;
        if round % 2 == 0 {
            world.revoke(&id).await;
            world.mandate(agent, 100_000, r#","review_above":10"#).await;
        }
    }
}

async fn comes_and_goes(world: &World, rounds: usize) {
    for _ in 0..rounds {
        let id = webhook(world).await;
        assert_eq!(ping(world, world.call(&world.organization), &id).await.status, 202);
        assert_eq!(delete(world, &id).await.status, 204);
    }
}

/// Leases webhooks and gives them back, as the delivery worker does.
async fn run_rounds(world: &World, rounds: usize) {
    let mut round = Round { room: 3, ..Round::default() };
    for _ in 0..=rounds {
        let (now, taking) = (world.clock.now(), round.clone());
        let taken = world.store.write(move |tx| Ok(deliveries::run_round(tx, &taking, now)?)).await;
        round = Round { released: taken.unwrap().unwrap(), room: 3, ..Round::default() };
    }
}

async fn switches_and_exports(world: &World, rounds: usize) {
    for round in 0..rounds {
        let (mode, at) = (if round % 2 == 0 { Mode::Observe } else { Mode::Enforce }, world.clock.now());
        let call = world.call(&world.organization);
        let switched = world.write(call, move |tx, call| enforcement::set(tx, call, mode, at)).await;
        assert_eq!(switched.status, 200);
        let (id, filter) = (ExportId::from_bytes(world.new_id()), Filter::default());
        let create = exports::Create { format: Format::Csv, filter, id, at };
        let call = world.call(&world.organization);
        let asked = world.write(call, move |tx, call| exports::create(tx, call, &create)).await;
        assert!(matches!(asked.status, 202 | 400));
    }
}

async fn sweeps(world: &World, rounds: usize) {
    let clock: Arc<TestClock> = Arc::clone(&world.clock);
    let exports = Arc::new(Exports::new("/nowhere/exports".into()));
    let sweep = Sweep::new(world.store.clone(), exports, Arc::clone(&world.moments), clock);
    for _ in 0..rounds {
        sweep.sweep().await;
        // Reviews come to their end while others resolve them.
        world.clock.advance(6 * 60 * 60);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_transactions_wait_for_each_other() {
    let world = World::new().await;
    let rounds = ROUNDS * scale() as usize;
    let mut agents = Vec::new();
    for number in 0..AGENTS {
        let agent = world.agent(&format!("a{number}")).await;
        world.mandate(&agent, 100_000, r#","review_above":10"#).await;
        agents.push(agent);
    }
    webhook(&world).await;
    webhook(&world).await;
    tokio::join!(
        join_all((0..6).map(|first| asks_and_resolves(&world, &agents, first, rounds))),
        replaces_and_revokes(&world, &agents, rounds),
        comes_and_goes(&world, rounds),
        run_rounds(&world, rounds),
        run_rounds(&world, rounds),
        switches_and_exports(&world, rounds),
        sweeps(&world, rounds),
    );
    // A connection reports its counts when it ends.
    let store = world.store.clone();
    tokio::task::spawn_blocking(move || store.close()).await.unwrap();
    let deadlocks = apart::run_once(&world.database, |tx| Ok(tx.row(DEADLOCKS, &[])?.unwrap().integer()?));
    assert_eq!(deadlocks.unwrap().unwrap(), 0);
    assert!(oracle::holds(&world.database) > AGENTS);
}

/// Others have room, also in the same environment.
#[tokio::test]
async fn of_one_environment_so_many_requests_wait_for_held_rows_and_no_more() {
    const ASKED: usize = 1_400;
    const AT_LEAST: i64 = 1_024;
    let world = World::new().await;
    let (held, other) = (world.agent("held").await, world.agent("other").await);
    let lock = "SELECT 1 FROM agents WHERE agent = 'agt_held' FOR UPDATE";
    let holder = OpenTransaction::begin(&world.database, lock);
    let (done, mut ended) = mpsc::channel(ASKED);
    for _ in 0..ASKED {
        let asked = Authorization::new(world.call(&held), Ok(World::request(&held, "1")));
        let (store, done) = (world.store.clone(), done.clone());
        tokio::spawn(async move { done.send(store.decide(asked).await).await.unwrap() });
    }
    let refused = ended.recv().await.unwrap().unwrap_err();
    assert!(matches!(refused, Fault::Full(_)), "{refused}");
    assert_eq!(world.ask(&other, "1").await["verdict"], "deny_no_mandate");
    holder.commit();
    let mut decided = 0;
    for _ in 1..ASKED {
        match ended.recv().await.unwrap() {
            Ok(_) => decided += 1,
            Err(fault) => assert!(matches!(fault, Fault::Full(_)), "{fault}"),
        }
    }
    assert!(decided >= AT_LEAST, "{decided}");
    assert_eq!(world.number("SELECT count(*) FROM decisions"), decided + 1);
}
