//! What reading costs, counted in steps of the database's machine: the same however deep a page lies and however
//! long the list is.

use std::sync::Arc;

use mandate_core::cursor::CursorKey;
use mandate_core::{AgentId, AgentName, EventKind, Timestamp, Verdict};
use mandate_server::admin::organization;
use mandate_server::clock::{Clock as _, SystemEntropy};
use mandate_server::error::Fault;
use mandate_server::model::call::{Call, Caller, Scripted};
use mandate_server::model::master_key::MasterKey;
use mandate_server::model::records::AgentKey;
use mandate_server::service::listing::{Cursors, From, Query};
use mandate_server::service::{
    agents, check, decisions, escrows, events, exports, idempotency, mandates, organizations, reviews,
};
use mandate_server::store::sql::decisions::Filter;
use mandate_server::store::sql::{log_end, uncounted};
use mandate_server::store::tx::{Backend, Counting, Row, Session, Tally, Tx, Value};
use mandate_server::store::uncounted::{MAX_UNCOUNTED, Uncounted};
use mandate_server::store::{AgentContext, DecisionAndReview};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, StatementStatus, params_from_iter};

use crate::apart::{run_once, snapshot};
use crate::check::Found;
use crate::escrows::escrow;
use crate::oracle::MASTER_KEY;
use crate::world::{World, json};

/// Rows on a page.
const LIMIT: u32 = 5;

/// A connection that counts the steps of what runs on it.
struct StepCounter {
    connection: Connection,
    /// It is in memory where a server is at work.
    uncounted: Arc<Uncounted>,
    steps: i32,
}

impl Session for StepCounter {
    fn backend(&self) -> Backend {
        Backend::Sqlite
    }

    fn hold(&mut self, sql: &'static str, _: &[Value]) -> Result<(), Fault> {
        panic!("a list holds: {sql}")
    }

    fn query(&mut self, sql: &'static str, parameters: &[Value]) -> Result<Vec<Row>, Fault> {
        let mut statement = self.connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut found = statement.query(params_from_iter(parameters))?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            let value = |column| match row.get_ref(column).unwrap() {
                ValueRef::Integer(value) => Value::Integer(value),
                ValueRef::Text(text) => Value::Text(String::from_utf8(text.to_vec()).unwrap()),
                ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
                _ => Value::Null,
            };
            rows.push(Row::new((0..columns).map(value).collect()));
        }
        drop(found);
        self.steps += statement.get_status(StatementStatus::VmStep);
        Ok(rows)
    }

    fn counting(&self) -> Counting {
        Counting::Reading
    }

    fn uncounted(&mut self) -> Result<Arc<Uncounted>, Fault> {
        Ok(Arc::clone(&self.uncounted))
    }

    fn execute(&mut self, sql: &'static str, _: &[Value]) -> Result<usize, Fault> {
        panic!("a list writes: {sql}")
    }

    fn keep(&mut self, decided: DecisionAndReview, _: AgentContext<'_>) -> Result<Tally, Fault> {
        panic!("a list decides: {}", decided.decision.id)
    }
}

fn counter(world: &World) -> StepCounter {
    let path = world.database.strip_prefix("sqlite://").unwrap();
    let uncounted = snapshot(&world.database, log_end::all).unwrap();
    StepCounter {
        connection: Connection::open(path).unwrap(),
        uncounted: Arc::new(Uncounted::of(uncounted)),
        steps: 0,
    }
}

type Next = fn(&mut Tx<'_>) -> Result<Option<Timestamp>, Fault>;

/// The queries for when a job is due next.
const DUE: [Next; 4] = [
    mandates::next_expiring,
    reviews::next_end,
    |tx| idempotency::next_end(tx, Timestamp::from_seconds(1_800_000_000)),
    exports::next_end,
];

type List = fn(&mut Tx<'_>, &Call, &Query, &Cursors) -> Scripted;

/// The steps that a page takes, and the ids on it.
fn page(world: &World, caller: &Arc<Caller>, list: List, limit: u32, from: From) -> (i32, Vec<String>) {
    let mut counter = counter(world);
    let cursors = Cursors { key: Arc::new(CursorKey::new([1; 32])), now: world.clock.now() };
    let query = Query { limit, from };
    let answer = list(&mut Tx::new(&mut counter), &world.call(caller), &query, &cursors).unwrap();
    let names = ["id", "jti", "webhook", "event", "escrow"];
    let id = |object: &serde_json::Value| {
        names.iter().find_map(|name| object[*name].as_str()).map(ToOwned::to_owned).unwrap()
    };
    (counter.steps, json(&answer)["data"].as_array().unwrap().iter().map(id).collect())
}

fn of(filter: Filter) -> impl Fn(&mut Tx<'_>, &Call, &Query, &Cursors) -> Scripted {
    move |tx, call, query, cursors| decisions::list(tx, call, &filter, query, cursors)
}

fn mandates_of(agent: Option<&str>) -> impl Fn(&mut Tx<'_>, &Call, &Query, &Cursors) -> Scripted {
    let agent = agent.map(|agent| AgentId::parse(agent).unwrap());
    let filter = mandates::Filter { agent, status: None };
    move |tx, call, query, cursors| mandates::list(tx, call, &filter, query, cursors)
}

const LISTS: [(&str, List, bool); 12] = [
    ("agents", agents::list, false),
    ("mandates", |tx, call, query, cursors| mandates_of(None)(tx, call, query, cursors), false),
    ("mandates of an agent", |tx, call, query, cursors| mandates_of(None)(tx, call, query, cursors), true),
    (
        "mandates by agent",
        |tx, call, query, cursors| mandates_of(Some("agt_a"))(tx, call, query, cursors),
        false,
    ),
    ("decisions", |tx, call, query, cursors| of(Filter::default())(tx, call, query, cursors), false),
    (
        "decisions of an agent",
        |tx, call, query, cursors| of(Filter::default())(tx, call, query, cursors),
        true,
    ),
    (
        "decisions by agent",
        |tx, call, query, cursors| {
            let agent = Some(AgentId::parse("agt_a").unwrap());
            of(Filter { agent, ..Filter::default() })(tx, call, query, cursors)
        },
        false,
    ),
    (
        "decisions by verdict",
        |tx, call, query, cursors| {
            let verdict = Some(Verdict::Allow);
            of(Filter { verdict, ..Filter::default() })(tx, call, query, cursors)
        },
        false,
    ),
    ("events", |tx, call, query, cursors| events::list(tx, call, None, query, cursors), false),
    (
        "events by type",
        |tx, call, query, cursors| events::list(tx, call, Some(EventKind::MandateRevoked), query, cursors),
        false,
    ),
    ("escrows", |tx, call, query, cursors| escrows::list(tx, call, None, query, cursors), false),
    ("escrows of an agent", |tx, call, query, cursors| escrows::list(tx, call, None, query, cursors), true),
];

/// Adds to every list at once: an agent, a mandate that is revoked, a decision, an escrow.
async fn add(world: &World, agent: &Arc<Caller>, number: usize) {
    world.agent(&format!("agent-{number}")).await;
    let escrowed = escrow(world, agent, "1").await;
    assert!(escrowed["escrow"].is_string());
    let mandate = world.mandate(agent, 1_000_000, r#","review_above":200"#).await;
    let review = world.ask(agent, "300").await["review"]["id"].clone();
    assert_eq!(world.deny(&review, None).await.status, 200);
    assert_eq!(world.revoke(&mandate).await.status, 200);
    world.mandate(agent, 1_000_000, "").await;
    world.clock.advance(14);
}

#[tokio::test]
async fn a_page_costs_the_same_however_deep_it_lies_and_however_long_the_list_is() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000_000, "").await;
    for number in 0..40 {
        add(&world, &agent, number).await;
    }
    let caller = |own: bool| if own { &agent } else { &world.organization };
    let costs = |depth: usize| {
        LISTS.map(|(name, list, own)| {
            let (_, all) = page(&world, caller(own), list, 100, From::Newest);
            assert!(all.len() > depth + 5, "{name}: {}", all.len());
            let older = page(&world, caller(own), list, LIMIT, From::After(all[depth].clone()));
            let newer = page(&world, caller(own), list, LIMIT, From::Before(all[depth].clone()));
            assert_eq!(
                (older.1, newer.1.last()),
                (all[depth + 1..=depth + 5].to_vec(), Some(&all[depth - 1]))
            );
            (name, older.0, newer.0)
        })
    };
    let due = || {
        DUE.map(|due| {
            let mut counter = counter(&world);
            due(&mut Tx::new(&mut counter)).unwrap();
            counter.steps
        })
    };
    // Deeper than the newest few, which the agent's rows may lack.
    let (short, early) = (costs(24), due());
    // A multiple of 16 decisions, so that the agent's rows lack as many as before.
    for number in 40..96 {
        add(&world, &agent, number).await;
    }
    assert_eq!(costs(24), short, "the list has grown");
    assert_eq!(costs(80), short, "the page lies deeper");
    assert_eq!(due(), early, "what is due is found whatever has gone by");
    assert!(early.iter().all(|steps| *steps < 100), "{early:?}");
    assert!(short.iter().all(|(_, older, newer)| *older < 2_000 && *newer < 2_000), "{short:?}");
}

#[tokio::test]
async fn what_an_agents_rows_lack_is_found_whatever_the_length_of_the_log() {
    let world = World::new().await;
    let (agent, silent) = (world.agent("a").await, world.agent("b").await);
    let steps = |caller: &Caller| {
        let mut counter = counter(&world);
        let key = AgentKey { environment: caller.environment.id, agent: caller.agent.clone().unwrap() };
        let uncounted = uncounted::find(&mut Tx::new(&mut counter), &key).unwrap();
        assert!(uncounted.len() < MAX_UNCOUNTED);
        counter.steps
    };
    let early = steps(&silent);
    for _ in 0..200 {
        world.ask(&agent, "1").await;
        assert!(steps(&agent) < 700, "{}", steps(&agent));
    }
    assert_eq!(steps(&silent), early, "the log has grown");
}

#[tokio::test]
async fn a_check_costs_as_much_for_each_organization_however_many_there_are() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let mut organizations = 0;
    let mut with_more = || {
        for _ in 0..10 {
            organizations += 1;
            let name = AgentName::parse(&format!("organization-{organizations}")).unwrap();
            let created = organization::draw(name, world.clock.now(), &SystemEntropy);
            run_once(&world.database, |tx| organizations::create(tx, &created)).unwrap().unwrap();
        }
        let (mut counter, mut found) = (counter(&world), Found::default());
        let master = MasterKey::from_bytes(MASTER_KEY);
        check::full(&mut Tx::new(&mut counter), Some(&master), &mut found).unwrap();
        assert_eq!(found.0, []);
        counter.steps
    };
    let [few, more, most] = [with_more(), with_more(), with_more()];
    let (second, third) = (more - few, most - more);
    assert!(third <= second + second / 20, "{second} steps more, then {third}");
}
