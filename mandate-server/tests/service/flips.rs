//! A flipped bit never becomes a verdict that a sound server would not give: at worst a fault.
//!
//! A small database has each thing that denies. Of each copy one bit is flipped, then a server starts on it, and is asked
//! what one on an undamaged copy was asked.

mod escrows;
mod hidden;
mod questions;
mod wal;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::join_all;
use mandate_server::service::check;
use mandate_tests::campaign::{Numbers, scale, seed};
use tempfile::TempDir;

use crate::apart;
use crate::check::{Found, found};
use crate::world::World;
use questions::{Question, answer, live, of_another};

/// Databases with a flipped bit each, in a campaign of scale 1.
const DATABASES: u32 = 240;
/// What decides, and what it is found by: seven of eight bits are flipped in pages of these.
const TREES: [&str; 16] = [
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
    "idempotency",
    "escrows",
    "sqlite_autoindex_escrows_3",
    "escrows_by_agent",
    "escrow_history",
    "instructions",
];
/// What finds a kept answer: no bit is flipped here. One that is not found is decided on again, as a new request. A second
/// index would show it, at a price that each answer pays; `check` compares all kept answers with this.
const NOT_COVERED: &str = "sqlite_autoindex_idempotency_1";
/// Bytes of the header of a page, or more.
const HEADER: usize = 12;

/// A copy of a database as it lies on the disk, with its log.
fn copied_with_log(from: &str, to: &Path) {
    let from = from.strip_prefix("sqlite://").unwrap();
    for suffix in ["", "-wal"] {
        if Path::new(&format!("{from}{suffix}")).exists() {
            std::fs::copy(format!("{from}{suffix}"), format!("{}{suffix}", to.display())).unwrap();
        }
    }
}

/// The same, in one file.
fn copied(from: &str, to: &Path) {
    copied_with_log(from, to);
    let connection = rusqlite::Connection::open(to).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

/// The pages of a tree, numbered from 0.
fn pages(path: &Path, bytes: &[u8], tree: &str) -> Vec<usize> {
    let connection = rusqlite::Connection::open(path).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = $1";
    let root = connection.query_row(sql, [tree], |row| row.get::<_, u32>(0)).unwrap();
    let (mut pages, mut waiting) = (Vec::new(), vec![root]);
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
}

/// A database, and where what decides lies in it.
struct Base {
    bytes: Vec<u8>,
    /// The pages of each tree.
    trees: [Vec<usize>; TREES.len()],
    not_covered: Vec<usize>,
}

impl Base {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let trees = TREES.map(|tree| pages(path, &bytes, tree));
        let not_covered = pages(path, &bytes, NOT_COVERED);
        Self { bytes, trees, not_covered }
    }

    /// A place in the file: mostly where the trees of what decides have something.
    fn place(&self, numbers: &mut Numbers) -> usize {
        let bytes = &self.bytes;
        if numbers.below(8) == 0 {
            let anywhere = numbers.below(bytes.len());
            return if self.not_covered.contains(&(anywhere / 4096)) {
                self.place(numbers)
            } else {
                anywhere
            };
        }
        let tree = numbers.of(&self.trees);
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
}

/// A database that was left in order, and one whose server was killed.
async fn bases(folder: &TempDir) -> (World, Vec<Question>, [PathBuf; 2]) {
    let mut world = World::new().await;
    let mut questions = live(&world).await;
    // Of one organization, an environment that is read twice or not at all has nothing to show it.
    let another = world.stranger().await;
    let own = std::mem::replace(&mut world.organization, another);
    questions.extend(of_another(&world).await);
    world.organization = own;
    let [orderly, killed] = ["orderly.db", "killed.db"].map(|name| folder.path().join(name));
    copied(&world.database, &killed);
    world.store.close();
    copied(&world.database, &orderly);
    (world, questions, [orderly, killed])
}

/// A copy of a database, after a statement, as the name of a database.
fn changed(from: &Path, to: &Path, statement: &str) -> String {
    std::fs::copy(from, to).unwrap();
    let connection = rusqlite::Connection::open(to).unwrap();
    connection.pragma_update(None, "foreign_keys", "OFF").unwrap();
    assert!(connection.execute(statement, []).unwrap() > 0, "{statement}");
    format!("sqlite://{}", to.display())
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

/// But for a bit in [`NOT_COVERED`], and one in the last transaction of the write-ahead log ([`wal`]).
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
    let bases = bases.map(|base| Base::read(&base));
    let (mut faults, mut asked, mut wrong) = (0, 0, Vec::new());
    for number in 0..DATABASES * scale() {
        let base = &bases[usize::try_from(number % 2).unwrap()];
        let (mut bytes, place, bit) = (base.bytes.clone(), base.place(&mut numbers), numbers.below(8));
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
    ("UPDATE environments SET policy_version = 'pol_2' WHERE environment = 1", "environments"),
    ("UPDATE environments SET organization = 9 WHERE environment = 2", "environments"),
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
        let database = changed(&orderly, &folder.path().join(format!("{number}.db")), statement);
        let fault = match apart::open(&database, Arc::clone(&world.engine) as _) {
            Ok(store) => {
                let answered = answer(&world, &store, &questions[0]).await;
                store.close();
                answered.unwrap_err()
            }
            Err(fault) => fault.to_string(),
        };
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
        let database = changed(&killed, &folder.path().join(format!("{number}.db")), change);
        let opened = apart::open(&database, Arc::clone(&world.engine) as _);
        let fault = opened.map(|store| store.close()).unwrap_err();
        assert_eq!(fault.kind(), "corrupt", "{change}: {fault}");
    }
}

#[tokio::test]
async fn a_kept_answer_that_its_index_hides_is_a_finding_and_its_retry_is_decided_again() {
    let folder = tempfile::tempdir().unwrap();
    let (world, questions, [orderly, _]) = bases(&folder).await;
    let Base { mut bytes, not_covered, .. } = Base::read(&orderly);
    let page = not_covered[0] * 4096;
    let name = bytes[page..page + 4096].windows(7).position(|bytes| bytes == b"order-1").unwrap();
    bytes[page + name] ^= 1;
    std::fs::write(&orderly, bytes).unwrap();
    let found = found(&format!("sqlite://{}", orderly.display()));
    assert!(
        found.iter().any(|found| found.contains("missing from index sqlite_autoindex_idempotency_1")),
        "{found:?}"
    );
    let (_, others) = trial(&world, &orderly, &questions).await;
    assert_eq!(others, ["Some(agt_kept): deny_limit, not allow"]);
}
