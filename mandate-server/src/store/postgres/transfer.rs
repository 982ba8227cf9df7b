//! A database that a transfer fills. The table `transfer` exists until the transfer is complete, and names
//! its source. Every process that uses the database checks for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use mandate_core::{DecisionId, Timestamp};
use tracing::warn;

use super::super::transfer::{Table, tables};
use super::super::tx::{Tx, Value};
use super::address::Address;
use super::columns::columns;
use super::connection::Step;
use super::connection_worker::ConnectionWorker;
use super::maintenance::{self, Month, PARTITIONED};
use super::session::PostgresSession;
use super::upkeep;
use crate::error::Fault;

/// Taken exclusively to change what the database is, and shared to rely on it.
const ALONE: &str = "/* postgres_transfer.alone */ SELECT pg_advisory_xact_lock(7239165340126157902)";
const TOGETHER: &str = "/* postgres_transfer.together */
    SELECT pg_advisory_xact_lock_shared(7239165340126157902)";
const MARKED: &str = "/* postgres_transfer.marked */
    SELECT count(*) FROM pg_class WHERE oid = to_regclass('transfer')";
const MARK: &str = "/* postgres_transfer.mark */
        CREATE TABLE transfer (source TEXT NOT NULL, stamp TEXT NOT NULL, began_at BIGINT NOT NULL)";
const WRITE: &str = "/* postgres_transfer.write */
    INSERT INTO transfer (source, stamp, began_at) VALUES ($1, $2, $3)";
/// A role that owns no tables may be no reader of this one.
const READABLE: &str = "/* postgres_transfer.readable */ SELECT count(*) FROM pg_class
    WHERE oid = to_regclass('transfer') AND has_table_privilege(oid, 'SELECT')";
const READ: &str = "/* postgres_transfer.read */ SELECT source, stamp FROM transfer";
const FORGET: &str = "/* postgres_transfer.forget */ DELETE FROM transfer";
const UNMARK: &str = "/* postgres_transfer.unmark */ DROP TABLE transfer";
/// Tables in a database without our schema. The table of schema versions is made before the first of ours.
const STRANGE: &str = "/* postgres_transfer.strange */ SELECT relname FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f')
    AND relname <> 'refinery_schema_history' LIMIT 1";
/// The stamp while there are no tables: that of no source.
const UNSTAMPED: &str = "";
/// The schema begins with these counters. The source brings them too.
const BEGINNING: &str = "revisions";
const EMPTY: &str = "/* postgres_transfer.empty */
    TRUNCATE organizations, environments, revisions, clock, issuers, signing_keys, api_keys, agents, mandates,
    decisions, reviews, usage, idempotency, webhooks, subscriptions, notices, events, deliveries, attempts, escrows, escrow_history,
    instructions, exports, export_pieces, openings, balances, closings, closed_months, logs, log_secret, log_pending, log_tiles, log_index, log_records, log_witnesses, people, person_keys, \
    enrolments, sessions, challenges, statements, answers, audit, analysis.readers";

/// The state of a target when a transfer into it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetState {
    /// Empty.
    Fresh,
    /// Filled in part from this source, which has not changed since.
    GoesOn,
    /// Filled in part from another source, or from this one before it changed. It was emptied.
    Anew,
}

/// Refuses a database that a transfer is filling, and keeps a transfer from beginning until this transaction
/// ends.
pub(super) fn must_be_whole(tx: &mut Tx<'_>) -> Result<(), Fault> {
    tx.hold(TOGETHER, &[])?;
    if !is_there(tx, MARKED)? {
        return Ok(());
    }
    let row = if is_there(tx, READABLE)? { tx.row(READ, &[])? } else { None };
    let source = row.map_or(Ok("another database".to_owned()), |mut row| row.text())?;
    Err(Fault::new(format!(
        "database: a transfer from {source} has not ended: run `mandate-server transfer` again, which goes on with it"
    )))
}

fn is_marked(tx: &mut Tx<'_>) -> Result<bool, Fault> {
    is_there(tx, MARKED)
}

/// Whether `counted` counts anything.
fn is_there(tx: &mut Tx<'_>, counted: &'static str) -> Result<bool, Fault> {
    Ok(tx.one_row(counted, &[])?.integer()? > 0)
}

/// A database that is being filled.
pub(in crate::store) struct Filling {
    address: Arc<Address>,
    worker: ConnectionWorker,
    source: String,
    stamp: String,
    /// The partitions that were made for rows.
    months: BTreeSet<String>,
}

impl Filling {
    /// Reports what a transfer would find. Changes nothing.
    pub(in crate::store) fn look(url: &str) -> Result<TargetState, Fault> {
        upkeep::snapshot(url, found)
    }

    /// Marks the database, so that no process uses it from then on, and migrates it to the newest schema. If
    /// it is marked already, continues.
    pub(in crate::store) fn begin(
        url: &str,
        source: &str,
        stamp: &str,
        at: Timestamp,
    ) -> Result<(Self, TargetState), Fault> {
        let address = Address::parse(url)?;
        let mut worker = ConnectionWorker::new(Arc::clone(&address))?;
        claimed(&mut worker, source, at)?;
        upkeep::bring_up(url, &|shown| shown, |_| Ok(()))?;
        let begun = worker.transact(&mut |session| mark(&mut Tx::new(session), source, stamp, at))?;
        let (source, stamp) = (source.to_owned(), stamp.to_owned());
        Ok((Self { address, worker, source, stamp, months: BTreeSet::new() }, begun))
    }

    /// The key of the last row that was written, and how many were.
    pub(in crate::store) fn arrived(
        &mut self,
        table: &'static Table,
    ) -> Result<(Option<Vec<Value>>, i64), Fault> {
        self.worker.look(|tx| {
            let last = tx.row(table.last, &[])?.map(super::super::tx::Row::into_values);
            let count = if last.is_some() { table.count(tx)? } else { 0 };
            Ok((last, count))
        })?
    }

    /// Writes rows, all of them or none.
    pub(in crate::store) fn put(&mut self, table: &'static Table, rows: &[Vec<Value>]) -> Result<(), Fault> {
        self.make_partitions(table, rows)?;
        let Self { worker, source, stamp, .. } = self;
        worker.transact(&mut |session| {
            must_be_ours(&mut Tx::new(session), source, stamp)?;
            let values = columns(&table.kinds, rows.iter().map(|row| row.iter().cloned()))?;
            session.wrote = true;
            let ran = session.send(vec![Step::Run(table.insert, values)])?.pop().unwrap_or_default();
            if ran.count == rows.len() {
                return Ok(());
            }
            Err(Fault::new(format!(
                "database: {} rows of {} arrived in {}",
                ran.count,
                rows.len(),
                table.name
            )))
        })
    }

    /// Makes the partitions of rows, by the ids in the second column of their key.
    fn make_partitions(&mut self, table: &'static Table, rows: &[Vec<Value>]) -> Result<(), Fault> {
        if !PARTITIONED.contains(&table.name) {
            return Ok(());
        }
        for row in rows {
            let Some(Value::Blob(id)) = row.get(1) else { continue };
            let Ok(id) = <[u8; 16]>::try_from(id.as_slice()) else { continue };
            let month = Month::of(DecisionId::from_bytes(id).created_at())?;
            if !self.months.insert(month.partition(table.name)) {
                continue;
            }
            let Self { worker, source, stamp, .. } = self;
            worker.transact(&mut |session: &mut PostgresSession<'_>| {
                let mut tx = Tx::new(session);
                must_be_ours(&mut tx, source, stamp)?;
                maintenance::make_partition(&mut tx, table.name, &month)?;
                session.wrote = true;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Runs `script` and removes the mark.
    pub(in crate::store) fn complete(
        &mut self,
        script: &impl Fn(&mut Tx<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Self { worker, source, stamp, .. } = self;
        worker.transact(&mut |session| {
            let mut tx = Tx::new(session);
            must_be_ours(&mut tx, source, stamp)?;
            for renumber in tables().iter().filter_map(|table| table.renumber) {
                tx.query(renumber, &[])?;
            }
            script(&mut tx)?;
            tx.execute(UNMARK, &[]).map(|_| ())
        })?;
        if let Err(fault) = upkeep::analyze(&self.address) {
            warn!(kind = fault.kind(), reason = %fault, "the tables are not analyzed: run ANALYZE");
        }
        Ok(())
    }
}

/// What a transfer finds in its target.
fn found(tx: &mut Tx<'_>) -> Result<TargetState, Fault> {
    if is_marked(tx)? {
        return Ok(TargetState::GoesOn);
    }
    if upkeep::schema_in(tx)?.current == 0 {
        return must_be_empty(tx).map(|()| TargetState::Fresh);
    }
    must_hold_nothing(tx).map(|()| TargetState::Fresh)
}

/// Marks the database for certain. There is no `commits` table yet, so when an answer is lost, the mark
/// itself is looked up. That waits for any process that is writing it.
fn claimed(worker: &mut ConnectionWorker, source: &str, at: Timestamp) -> Result<(), Fault> {
    let mut claim = || {
        worker.transact(&mut |session| {
            let found = claim(&mut Tx::new(session), source, at)?;
            session.wrote = false;
            Ok(found)
        })
    };
    if claim()? == TargetState::Fresh && claim()? == TargetState::Fresh {
        return Err(Fault::new("database: the target could not be marked: run the transfer again"));
    }
    Ok(())
}

/// Marks the database before it has tables, unless it is marked. Returns what it was.
fn claim(tx: &mut Tx<'_>, source: &str, at: Timestamp) -> Result<TargetState, Fault> {
    tx.hold(ALONE, &[])?;
    let found = found(tx)?;
    if found == TargetState::Fresh {
        tx.execute(MARK, &[])?;
        tx.execute_one(WRITE, &[source.into(), UNSTAMPED.into(), at.millis().into()])?;
    }
    Ok(found)
}

/// Records what the marked database is filled from. Empties it first if that was another source. The schema
/// brings counters of its own.
fn mark(tx: &mut Tx<'_>, source: &str, stamp: &str, at: Timestamp) -> Result<TargetState, Fault> {
    tx.hold(ALONE, &[])?;
    if !is_marked(tx)? {
        return Err(taken_over());
    }
    let filled_from = read(tx)?;
    if filled_from.as_ref().is_some_and(|(from, of)| (from.as_str(), of.as_str()) == (source, stamp)) {
        return Ok(TargetState::GoesOn);
    }
    tx.execute(EMPTY, &[])?;
    tx.execute(FORGET, &[])?;
    tx.execute_one(WRITE, &[source.into(), stamp.into(), at.millis().into()])?;
    let was_empty = filled_from.is_some_and(|(_, stamp)| stamp == UNSTAMPED);
    Ok(if was_empty { TargetState::Fresh } else { TargetState::Anew })
}

/// The recorded source and its stamp.
fn read(tx: &mut Tx<'_>) -> Result<Option<(String, String)>, Fault> {
    tx.row(READ, &[])?.map(|mut row| Ok((row.text()?, row.text()?))).transpose()
}

/// Refuses to continue if another transfer has begun meanwhile, or has completed this one.
fn must_be_ours(tx: &mut Tx<'_>, source: &str, stamp: &str) -> Result<(), Fault> {
    tx.hold(ALONE, &[])?;
    if is_marked(tx)? && read(tx)?.is_some_and(|(from, of)| (from.as_str(), of.as_str()) == (source, stamp)) {
        return Ok(());
    }
    Err(taken_over())
}

fn taken_over() -> Fault {
    Fault::new("database: another transfer has taken the target over")
}

fn must_be_empty(tx: &mut Tx<'_>) -> Result<(), Fault> {
    match tx.row(STRANGE, &[])? {
        None => Ok(()),
        Some(mut row) => Err(holds(&row.text()?)),
    }
}

fn must_hold_nothing(tx: &mut Tx<'_>) -> Result<(), Fault> {
    for table in tables().iter().filter(|table| table.name != BEGINNING) {
        if tx.row(table.any, &[])?.is_some() {
            return Err(holds(table.name));
        }
    }
    Ok(())
}

fn holds(table: &str) -> Fault {
    Fault::new(format!(
        "database: the target is not empty, it has {table}: create a database for the transfer"
    ))
}
