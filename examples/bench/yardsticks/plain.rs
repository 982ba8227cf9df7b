//! The plain design, which most people would write: axum, a pool of SQLite connections, and one transaction a request.
//!
//! It does the work that ours does, and as durably: it finds the agent by the hash of its key, reads its mandate, its month and
//! its last minute, decides with the same engine, signs, writes the decision, its review and the month, and answers after the
//! commit. Statements are prepared once a connection, and every lookup uses an index.
//!
//! `plain DATABASE KEYS`: the file that is made, and the file of the agents' keys, one a line.

mod common;

use std::fs::read_to_string;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use axum::routing::post;
use mandate_core::api_key::ApiKey;
use mandate_core::json::Object;
use mandate_core::{
    Basis, Evaluation, Mandate, MandateId, Request, Terms, Timestamp, Total, VELOCITY_REQUESTS,
    VELOCITY_WINDOW_SECONDS, Verdict, evaluate,
};
use r2d2::{ManageConnection, Pool};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use self::common::{DecisionSigner, Failure, now, respond, serve};

const CONNECTIONS: u32 = 8;
/// How long a transaction waits for the one before it.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

const SCHEMA: &str = "
CREATE TABLE agents (
    agent    TEXT PRIMARY KEY,
    key_hash BLOB NOT NULL UNIQUE,
    mandate  TEXT NOT NULL,
    terms    TEXT NOT NULL,
    since    INTEGER NOT NULL
);
CREATE TABLE decisions (
    decision   TEXT PRIMARY KEY,
    agent      TEXT NOT NULL,
    verdict    TEXT NOT NULL,
    amount     TEXT NOT NULL,
    currency   TEXT NOT NULL,
    recipient  TEXT NOT NULL,
    category   TEXT NOT NULL,
    reason     TEXT,
    token      TEXT NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX decisions_by_agent ON decisions (agent, created_at);
CREATE TABLE reviews (
    decision TEXT PRIMARY KEY,
    status   TEXT NOT NULL
);
CREATE TABLE usage (
    agent    TEXT NOT NULL,
    month    TEXT NOT NULL,
    currency TEXT NOT NULL,
    spent    TEXT NOT NULL,
    requests INTEGER NOT NULL,
    PRIMARY KEY (agent, month, currency)
);";

/// Opens the pool's connections.
#[derive(Debug)]
struct Database(String);

impl ManageConnection for Database {
    type Connection = Connection;
    type Error = rusqlite::Error;

    fn connect(&self) -> Result<Connection, rusqlite::Error> {
        let connection = Connection::open(&self.0)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(connection)
    }

    fn is_valid(&self, _: &mut Connection) -> Result<(), rusqlite::Error> {
        Ok(())
    }

    fn has_broken(&self, _: &mut Connection) -> bool {
        false
    }
}

struct Service {
    signer: Arc<DecisionSigner>,
    pool: Pool<Database>,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(database), Some(keys)) = (arguments.next(), arguments.next()) else {
        return Err("usage: plain DATABASE KEYS".into());
    };
    let pool = Pool::builder().max_size(CONNECTIONS).test_on_check_out(false).build(Database(database))?;
    set_up(&mut *pool.get()?, &read_to_string(keys)?)?;
    let routes = |signer| {
        let service = Arc::new(Service { signer, pool });
        Ok(Router::new().route("/v1/authorizations", post(authorize)).with_state(service))
    };
    serve(routes).await
}

fn set_up(connection: &mut Connection, keys: &str) -> Result<(), Failure> {
    connection.execute_batch(SCHEMA)?;
    let (now, transaction) = (now(), connection.transaction()?);
    for (number, line) in keys.lines().enumerate() {
        let agent = format!("agt_bench-{number}");
        let terms = include_str!("../../mandate.json").replace("AGENT", &agent);
        let mandate = MandateId::new(now, number as u128).to_string();
        let hash = ApiKey::parse(line)?.hash();
        let mut insert = transaction.prepare_cached("INSERT INTO agents VALUES (?, ?, ?, ?, ?)")?;
        insert.execute(params![agent, hash, mandate, terms, now.millis()])?;
    }
    Ok(transaction.commit()?)
}

async fn authorize(State(service): State<Arc<Service>>, headers: HeaderMap, body: Bytes) -> Response {
    let key = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = key.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default().to_owned();
    let work = tokio::task::spawn_blocking(move || {
        let hash = ApiKey::parse(&key)?.hash();
        let mut connection = service.pool.get()?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let answer = decide(&service.signer, &transaction, &hash, &body)?;
        transaction.commit()?;
        Ok(answer)
    });
    respond(work.await.unwrap_or_else(|e| Err(e.into())))
}

fn decide(
    signer: &DecisionSigner,
    tx: &Transaction<'_>,
    hash: &[u8; 32],
    body: &[u8],
) -> Result<Vec<u8>, Failure> {
    let now = now();
    let mandate = mandate_of(tx, hash)?;
    let request = Request::read(mandate.terms.agent.clone(), Object::parse(body)?)?;
    let (agent, currency) = (request.agent.as_str().to_owned(), request.currency.as_str().to_owned());
    let month = now.month().to_string();
    let basis =
        Basis { spent: spent(tx, &agent, &month, &currency)?, recent_requests: recent(tx, &agent, now)? };
    let outcome = evaluate(Some(&mandate), &basis, &request, now, Evaluation::Request);
    let reason = outcome.reason.as_ref().map(ToString::to_string);

    let decision = signer.sign(request.clone(), outcome.verdict, Some(mandate.id), now)?;
    let id = decision.id.to_string();
    let mut insert = tx.prepare_cached("INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    insert.execute(params![
        id,
        agent,
        outcome.verdict.as_str(),
        request.amount.to_string(),
        currency,
        request.recipient.as_str(),
        request.category.as_str(),
        reason,
        decision.token,
        now.millis(),
    ])?;
    if outcome.verdict == Verdict::Review {
        tx.prepare_cached("INSERT INTO reviews VALUES (?, 'pending')")?.execute([&id])?;
    }
    let spent =
        if outcome.verdict == Verdict::Allow { basis.spent.plus(request.amount) } else { basis.spent };
    let mut count = tx.prepare_cached(
        "INSERT INTO usage VALUES (?, ?, ?, ?, 1)
         ON CONFLICT DO UPDATE SET spent = excluded.spent, requests = requests + 1",
    )?;
    count.execute(params![agent, month, currency, spent.to_string()])?;
    signer.answer(&decision, outcome.verdict, reason.as_deref(), now)
}

fn mandate_of(tx: &Transaction<'_>, hash: &[u8; 32]) -> Result<Mandate, Failure> {
    let mut find = tx.prepare_cached("SELECT mandate, terms, since FROM agents WHERE key_hash = ?")?;
    let (mandate, terms, since): (String, String, i64) =
        find.query_one([hash], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let terms = Terms::read(Object::parse(terms.as_bytes())?)?;
    Ok(Mandate::new(MandateId::parse(&mandate)?, terms, Timestamp::from_millis(since)))
}

fn spent(tx: &Transaction<'_>, agent: &str, month: &str, currency: &str) -> Result<Total, Failure> {
    let mut find =
        tx.prepare_cached("SELECT spent FROM usage WHERE agent = ? AND month = ? AND currency = ?")?;
    let spent: Option<String> = find.query_one([agent, month, currency], |row| row.get(0)).optional()?;
    Ok(spent.map_or(Ok(Total::ZERO), |spent| Total::parse(&spent))?)
}

fn recent(tx: &Transaction<'_>, agent: &str, now: Timestamp) -> Result<u32, Failure> {
    let since = now.plus_seconds(-VELOCITY_WINDOW_SECONDS).millis();
    let mut count = tx.prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM decisions WHERE agent = ? AND created_at > ? LIMIT ?)",
    )?;
    Ok(count.query_one(params![agent, since, VELOCITY_REQUESTS], |row| row.get(0))?)
}
