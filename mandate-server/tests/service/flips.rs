//! A flipped bit never becomes a verdict that a sound server would not give: at worst a fault.
//!
//! A small database has each thing that denies. Of each copy one bit is flipped, then a server starts on it, and is asked
//! what one on an undamaged copy was asked.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::join_all;
use mandate_core::Request;
use mandate_core::json::Object;
use mandate_server::clock::Clock as _;
use mandate_server::model::call::Caller;
use mandate_server::service::{self, check, idempotency, reviews};
use mandate_server::store::sql::keys;
use mandate_server::store::tx::Tx;
use mandate_server::store::{Authorization, Store};
use mandate_tests::campaign::{Numbers, scale, seed};
use serde_json::Value;
use tempfile::TempDir;

use crate::apart;
use crate::check::Found;
use crate::world::{World, json};

/// Databases with a flipped bit each, in a campaign of scale 1.
const DATABASES: u32 = 240;
/// What decides, and what it is found by: seven of eight bits are flipped in pages of these.
const TREES: [&str; 10] = [
    "usage",
    "agents",
    "mandates",
    "environments",
    "api_keys",
    "sqlite_autoindex_api_keys_1",
    "clock",
    "uncounted",
    "decisions",
    "decisions_by_verdict",
];
/// What is said of a key that is not in force.
const NOT_IN_FORCE: &str = "not in force";
/// Bytes of the header of a page, or more.
const HEADER: usize = 12;

/// What is asked, and which verdict a sound server gives.
struct Question {
    caller: Arc<Caller>,
    /// The hash of the caller's key, by which it is looked up.
    hash: [u8; 32],
    what: What,
    verdict: &'static str,
}

impl Question {
    fn new(world: &World, caller: &Arc<Caller>, what: What, verdict: &'static str) -> Self {
        Self { caller: Arc::clone(caller), hash: hash(world, caller), what, verdict }
    }

    fn usd(world: &World, caller: &Arc<Caller>, amount: &'static str, verdict: &'static str) -> Self {
        Self::new(world, caller, What::Request(amount, "USD", "c"), verdict)
    }
}

/// The hash of a caller's key.
fn hash(world: &World, caller: &Caller) -> [u8; 32] {
    let key = caller.key;
    let read = move |tx: &mut Tx<'_>| {
        tx.row("SELECT hash FROM api_keys WHERE api_key = $1", &[key.into()])?.unwrap().bytes()
    };
    apart::snapshot(&world.database, read).unwrap()
}

enum What {
    /// An amount, in a currency, of a category.
    Request(&'static str, &'static str, &'static str),
    /// The approval of this review.
    Approval(Value),
}

fn request(caller: &Caller, amount: &str, currency: &str, category: &str) -> Request {
    let body = format!(
        r#"{{"amount":{amount},"currency":"{currency}","recipient":"vendor:v","category":"{category}"}}"#
    );
    Request::read(caller.agent.clone().unwrap(), Object::parse(body.as_bytes()).unwrap()).unwrap()
}

async fn ask(world: &World, caller: &Arc<Caller>, amount: &str) -> Value {
    world.clock.advance(7);
    world.ask(caller, amount).await
}

/// What agents have spent, and what they may not: the questions that show it.
async fn live(world: &World) -> Vec<Question> {
    let mut asked = Vec::new();
    beyond_the_month(world, &mut asked).await;
    not_mandated(world, &mut asked).await;
    reviewed(world, &mut asked).await;
    not_in_force(world, &mut asked).await;
    // In one minute, right before what is asked.
    for (name, requests, verdict) in [("fast", 10, "deny_velocity"), ("slow", 9, "allow")] {
        let agent = world.agent(name).await;
        world.mandate(&agent, 1_000, "").await;
        for _ in 0..requests {
            world.ask(&agent, "1").await;
        }
        asked.push(Question::usd(world, &agent, "1", verdict));
    }
    asked
}

/// Of decisions that are all counted, of some that are not, of few, and of two currencies.
async fn beyond_the_month(world: &World, asked: &mut Vec<Question>) {
    for (name, decisions) in [("spent", 16), ("uncounted", 21), ("few", 3)] {
        let agent = world.agent(name).await;
        world.mandate(&agent, 1_000, "").await;
        ask(world, &agent, "490").await;
        ask(world, &agent, "490").await;
        for _ in 2..decisions {
            assert_eq!(ask(world, &agent, "1").await["verdict"], "allow");
        }
        asked.push(Question::usd(world, &agent, "30", "deny_limit"));
        asked.push(Question::usd(world, &agent, "0.5", "allow"));
    }
    let two = world.agent("two").await;
    world.mandate(&two, 900, "").await;
    ask(world, &two, "450").await;
    ask(world, &two, "449").await;
    let euros = request(&two, "1", "EUR", "c");
    world.store.decide(Authorization::new(world.call(&two), Ok(euros))).await.unwrap();
    asked.push(Question::usd(world, &two, "2", "deny_limit"));
    asked.push(Question::new(world, &two, What::Request("1", "EUR", "c"), "deny_limit"));
}

/// Under a mandate that is revoked, under one that has expired, for another category, and under none.
async fn not_mandated(world: &World, asked: &mut Vec<Question>) {
    let revoked = world.agent("revoked").await;
    let mandate = world.mandate(&revoked, 1_000, "").await;
    ask(world, &revoked, "1").await;
    world.revoke(&mandate).await;
    asked.push(Question::usd(world, &revoked, "1", "deny_revoked"));

    let expired = world.agent("expired").await;
    let today = r#"{"principal":"role:cfo","agent":"agt_expired","categories":["c"],"expires":"2026-06-15",
        "limits":{"per_transaction":500,"per_month":1000,"currency":"USD"}}"#;
    world.write_mandate(today).await;
    assert_eq!(ask(world, &expired, "1").await["verdict"], "allow");
    asked.push(Question::usd(world, &expired, "1", "deny_expired"));

    let other = world.agent("other").await;
    world.mandate(&other, 1_000, "").await;
    ask(world, &other, "1").await;
    asked.push(Question::new(world, &other, What::Request("1", "USD", "d"), "deny_category"));
    asked.push(Question::usd(world, &other, "1", "allow"));
    let unmandated = world.agent("unmandated").await;
    asked.push(Question::usd(world, &unmandated, "1", "deny_no_mandate"));
}

/// With a key that was revoked, and with one that has expired.
async fn not_in_force(world: &World, asked: &mut Vec<Question>) {
    let past = Some(world.clock.now());
    for (name, is_revoked) in [("gone", true), ("late", false)] {
        let agent = world.agent(name).await;
        world.mandate(&agent, 1_000, "").await;
        let hash = hash(world, &agent);
        let ended = apart::run_once(&world.database, |tx| {
            let mut key = keys::with_hash(tx, hash, hash)?.pop().unwrap();
            if is_revoked {
                key.revoked_at = past;
            } else {
                key.expires_at = past;
            }
            Ok(keys::update(tx, &key)?)
        });
        ended.unwrap().unwrap();
        asked.push(Question::usd(world, &agent, "1", NOT_IN_FORCE));
    }
}

/// Of two reviews one is approved, on the next day, and nothing is left for the other.
async fn reviewed(world: &World, asked: &mut Vec<Question>) {
    let agent = world.agent("reviewed").await;
    world.mandate(&agent, 600, r#","review_above":200"#).await;
    let first = ask(world, &agent, "450").await["review"]["id"].clone();
    let second = ask(world, &agent, "400").await["review"]["id"].clone();
    world.clock.advance(86_400 - 3_600);
    assert_eq!(json(&world.approve(&first).await)["verdict"], "allow");
    asked.push(Question::new(world, &agent, What::Approval(second), "deny_limit"));
    asked.push(Question::usd(world, &agent, "250", "deny_limit"));
}

/// The verdict on a question, or why there is none.
async fn answer(world: &World, store: &Store, question: &Question) -> Result<String, String> {
    let (hash, now) = (question.hash, world.clock.now());
    let found = store.read(move |tx| service::keys::find(tx, &hash, now)).await.and_then(|found| found);
    let caller = match found.map_err(|fault| fault.to_string())? {
        Some(caller) => Arc::new(caller),
        None if question.verdict == NOT_IN_FORCE => return Ok(NOT_IN_FORCE.to_owned()),
        None => return Err(NOT_IN_FORCE.to_owned()),
    };
    // Who asks by this key is known by it alone.
    assert_eq!(
        (&caller.agent, caller.environment.id),
        (&question.caller.agent, question.caller.environment.id)
    );
    let call = world.call(&caller);
    let answer = match &question.what {
        What::Request(amount, currency, category) => {
            let request = request(&caller, amount, currency, category);
            store.decide(Authorization::new(call, Ok(request))).await
        }
        What::Approval(review) => {
            let id = review.as_str().unwrap().to_owned();
            let approve = reviews::Approve { id, engine: Arc::clone(&world.engine) };
            let call = world.call(&world.organization);
            let run = move |tx: &mut Tx<'_>| {
                Ok(idempotency::once(tx, &call, |tx| reviews::approve(tx, &call, &approve))?)
            };
            match store.write(run).await {
                // What is not found, as if it were not there.
                Ok(Err(refusal)) => return Err(refusal.message),
                Ok(Ok(answer)) => Ok(answer),
                Err(fault) => Err(fault),
            }
        }
    };
    let answer = answer.map_err(|fault| fault.to_string())?;
    if answer.status >= 400 {
        return Err(String::from_utf8_lossy(&answer.body).into_owned());
    }
    let body = json(&answer);
    let verdict = body["verdict"].as_str().or_else(|| body["decision"]["verdict"].as_str());
    Ok(verdict.unwrap_or_else(|| panic!("no verdict: {body}")).to_owned())
}

/// A copy of a database as it lies on the disk, in one file.
fn copied(from: &str, to: &Path) {
    let from = from.strip_prefix("sqlite://").unwrap();
    for suffix in ["", "-wal"] {
        if Path::new(&format!("{from}{suffix}")).exists() {
            std::fs::copy(format!("{from}{suffix}"), format!("{}{suffix}", to.display())).unwrap();
        }
    }
    let connection = rusqlite::Connection::open(to).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

/// The pages of each tree of what decides, numbered from 0.
fn trees(path: &Path, bytes: &[u8]) -> [Vec<usize>; TREES.len()] {
    let connection = rusqlite::Connection::open(path).unwrap();
    let root = |name: &str| {
        let sql = "SELECT rootpage FROM sqlite_schema WHERE name = $1";
        connection.query_row(sql, [name], |row| row.get::<_, u32>(0)).unwrap()
    };
    TREES.map(|tree| {
        let (mut pages, mut waiting) = (Vec::new(), vec![root(tree)]);
        while let Some(number) = waiting.pop() {
            let page = usize::try_from(number).unwrap() - 1;
            pages.push(page);
            let page = &bytes[page * 4096..(page + 1) * 4096];
            // An inner page: its children are in its cells, and the last in its header.
            if [2, 5].contains(&page[0]) {
                let cells = usize::from(u16::from_be_bytes([page[3], page[4]]));
                let at = |place: usize| u32::from_be_bytes(page[place..place + 4].try_into().unwrap());
                waiting.push(at(8));
                waiting.extend((0..cells).map(|cell| {
                    let pointer = HEADER + 2 * cell;
                    at(usize::from(u16::from_be_bytes([page[pointer], page[pointer + 1]])))
                }));
            }
        }
        pages
    })
}

/// A place in the file: mostly where the trees of what decides have something.
fn place(numbers: &mut Numbers, bytes: &[u8], trees: &[Vec<usize>; TREES.len()]) -> usize {
    if numbers.below(8) == 0 {
        return numbers.below(bytes.len());
    }
    let tree = numbers.of(trees);
    let page = *numbers.of(tree) * 4096;
    let cells = usize::from(u16::from_be_bytes([bytes[page + 3], bytes[page + 4]]));
    let content = usize::from(u16::from_be_bytes([bytes[page + 5], bytes[page + 6]]));
    let pointers = HEADER + 2 * cells;
    // One in eight in what leads to the cells.
    if numbers.below(8) == 0 || content >= 4096 {
        return page + numbers.below(pointers);
    }
    page + content + numbers.below(4096 - content)
}

/// A database that was left in order, and one whose server was killed.
async fn bases(folder: &TempDir) -> (World, Vec<Question>, [PathBuf; 2]) {
    let world = World::new().await;
    let questions = live(&world).await;
    let [orderly, killed] = ["orderly.db", "killed.db"].map(|name| folder.path().join(name));
    copied(&world.database, &killed);
    world.store.close();
    copied(&world.database, &orderly);
    (world, questions, [orderly, killed])
}

/// Asks all questions of a server on a database. Gives how many had no verdict, and those that had another one.
async fn trial(world: &World, database: &Path, questions: &[Question]) -> (usize, Vec<String>) {
    let database = format!("sqlite://{}", database.display());
    let Ok(store) = apart::open(&database, Arc::clone(&world.engine) as _) else {
        return (questions.len(), Vec::new());
    };
    let answers = join_all(questions.iter().map(|question| answer(world, &store, question))).await;
    store.close();
    let (mut faults, mut wrong) = (0, Vec::new());
    for (question, answer) in questions.iter().zip(answers) {
        match answer {
            Ok(verdict) if verdict == question.verdict => {}
            Ok(verdict) => {
                wrong.push(format!("{:?}: {verdict}, not {}", question.caller.agent, question.verdict));
            }
            Err(_) => faults += 1,
        }
    }
    (faults, wrong)
}

#[tokio::test]
async fn a_flipped_bit_never_becomes_another_verdict() {
    let mut numbers = Numbers::from_seed(seed("flips"));
    let folder = tempfile::tempdir().unwrap();
    let (world, questions, bases) = bases(&folder).await;
    for base in &bases {
        let sound = folder.path().join("sound.db");
        std::fs::copy(base, &sound).unwrap();
        assert_eq!(trial(&world, &sound, &questions).await, (0, Vec::new()), "an undamaged copy");
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", sound.display()));
        }
    }
    let bases = bases.map(|base| {
        let bytes = std::fs::read(&base).unwrap();
        let trees = trees(&base, &bytes);
        (bytes, trees)
    });
    let (mut faults, mut asked, mut wrong) = (0, 0, Vec::new());
    for number in 0..DATABASES * scale() {
        let (bytes, trees) = &bases[usize::try_from(number % 2).unwrap()];
        let (mut bytes, place, bit) = (bytes.clone(), place(&mut numbers, bytes, trees), numbers.below(8));
        bytes[place] ^= 1 << bit;
        let own = tempfile::tempdir().unwrap();
        let damaged = own.path().join("damaged.db");
        std::fs::write(&damaged, &bytes).unwrap();
        let (without, others) = trial(&world, &damaged, &questions).await;
        (faults, asked) = (faults + without, asked + questions.len());
        let which = if number % 2 == 0 { "orderly" } else { "killed" };
        wrong.extend(others.into_iter().map(|other| format!("{which}, byte {place}, bit {bit}: {other}")));
    }
    println!("flips: {asked} questions, {faults} faults, {} other verdicts", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(faults > 0 && faults < asked / 4 * 3, "{faults} faults of {asked}");
}

/// Statements that each make one change as a flipped bit does, and what `check` finds first of it.
const DECIDES: &[(&str, &str)] = &[
    ("UPDATE usage SET spent = '10' WHERE agent = 'agt_spent'", "usage agt_spent"),
    ("UPDATE usage SET currency = 'USE' WHERE agent = 'agt_spent'", "usage agt_spent"),
    ("UPDATE usage SET month = '2026-02' WHERE agent = 'agt_spent'", "usage agt_spent"),
    ("DELETE FROM usage WHERE agent = 'agt_spent'", "agents agt_spent"),
    ("UPDATE agents SET sequence = sequence + 4 WHERE agent = 'agt_spent'", "agents agt_spent"),
    ("UPDATE agents SET newest_rows = 0 WHERE agent = 'agt_spent'", "agents agt_spent"),
    ("UPDATE agents SET governing = NULL WHERE agent = 'agt_spent'", "agents agt_spent"),
    ("UPDATE mandates SET terms = replace(terms, '1000', '9000') WHERE agent = 'agt_spent'", "mandates mnd_"),
    ("UPDATE mandates SET governs_from = 0 WHERE agent = 'agt_spent'", "mandates mnd_"),
    (
        "UPDATE environments SET mode = CASE mode WHEN 'enforce' THEN 'observe' ELSE 'enforce' END",
        "environments",
    ),
    ("UPDATE api_keys SET agent = 'agt_few' WHERE agent = 'agt_spent'", "api_keys key_"),
    ("UPDATE api_keys SET environment = 2 WHERE agent = 'agt_spent'", "api_keys key_"),
    ("UPDATE api_keys SET expires_at = 4000000000000 WHERE agent = 'agt_spent'", "api_keys key_"),
    ("UPDATE api_keys SET rate = 1000000 WHERE agent = 'agt_spent'", "api_keys key_"),
    ("UPDATE clock SET mark = mark - 1000", "clock"),
];

#[tokio::test]
async fn what_decides_is_a_fault_once_it_is_another_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (world, questions, [orderly, _]) = bases(&folder).await;
    for (number, (statement, named)) in DECIDES.iter().enumerate() {
        let damaged = folder.path().join(format!("{number}.db"));
        std::fs::copy(&orderly, &damaged).unwrap();
        let connection = rusqlite::Connection::open(&damaged).unwrap();
        connection.pragma_update(None, "foreign_keys", "OFF").unwrap();
        assert!(connection.execute(statement, []).unwrap() > 0, "{statement}");
        drop(connection);
        let database = format!("sqlite://{}", damaged.display());
        let store = apart::open(&database, Arc::clone(&world.engine) as _).unwrap();
        let asked = &questions[0];
        let fault = answer(&world, &store, asked).await.unwrap_err();
        store.close();
        assert!(fault.contains("`mandate-server check` finds others"), "{statement}: {fault}");
        let table = named.split(' ').next().unwrap();
        assert!(fault.contains(table) || fault.contains("agt_spent"), "{statement}: {fault}");
        let mut found = Found::default();
        apart::snapshot(&database, |tx| check::quick(tx, &mut found)).unwrap();
        let all: Vec<_> =
            found.0.iter().map(|f| format!("{} {}", f.table, f.id.as_deref().unwrap_or(""))).collect();
        let is_named = |one: &String| {
            one.starts_with(named) || (named.starts_with("usage") && one.starts_with("usage 2026-0"))
        };
        assert!(all.iter().any(is_named), "{statement}: {all:?}");
    }
}

/// What no agent's rows count yet: a decision that is another one, or is not there, keeps the server from its start.
#[tokio::test]
async fn the_end_of_the_log_is_whole_or_the_server_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let (world, _, [_, killed]) = bases(&folder).await;
    let newest = "(SELECT MAX(decision) FROM decisions WHERE agent = 'agt_uncounted')";
    for (number, change) in [
        "UPDATE decisions SET amount = '0' WHERE decision = ".to_owned() + newest,
        "UPDATE decisions SET agent = 'agt_spent' WHERE decision = ".to_owned() + newest,
        "UPDATE decisions SET sequence = sequence + 1 WHERE decision = ".to_owned() + newest,
        "UPDATE uncounted SET since = (SELECT MAX(decision) FROM decisions)".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        let damaged = folder.path().join(format!("{number}.db"));
        std::fs::copy(&killed, &damaged).unwrap();
        let connection = rusqlite::Connection::open(&damaged).unwrap();
        connection.pragma_update(None, "foreign_keys", "OFF").unwrap();
        assert_eq!(connection.execute(change, []).unwrap(), 1, "{change}");
        drop(connection);
        let database = format!("sqlite://{}", damaged.display());
        let opened = apart::open(&database, Arc::clone(&world.engine) as _);
        let fault = opened.map(|store| store.close()).unwrap_err();
        assert_eq!(fault.kind(), "corrupt", "{change}: {fault}");
    }
}
