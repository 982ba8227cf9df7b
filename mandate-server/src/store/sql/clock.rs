//! The clock's mark: the latest instant decided by, at most a second more.
//!
//! No decision is later than the mark: one that would be raises it in its own transaction, to [`AHEAD_MILLIS`]
//! beyond itself. So the mark is written about once a second. A clock that is behind the mark was set back.

use mandate_core::Timestamp;

use super::checksums::CLOCK;
use crate::error::Fault;
use crate::store::tx::{Backend, Row, Tx, Value};

/// How far beyond the decision that raises it the mark is set, in milliseconds.
pub const AHEAD_MILLIS: i64 = 1_000;

const MARK: &str = "/* clock.mark */ SELECT mark FROM clock";
/// Raises the mark to `$1`, unless a decision at `$2` needs no higher one. So of those who find it too low at once, one writes.
pub(in crate::store) const RAISE_PAST: &str =
    "/* clock.raise_past */ UPDATE clock SET mark = $1 WHERE mark < $2";
/// Raises the mark to `$1`, unless it is as high already.
const RAISE: &str = "/* clock.raise */ UPDATE clock SET mark = $1 WHERE mark < $1";
/// Waits for who lowers the mark, and lets no other lower it before this transaction ends.
const SHARE: &str = "/* clock.share */ SELECT mark FROM clock FOR SHARE";
const HELD: &str = "/* clock.held */ SELECT held FROM clock";
/// Several servers write it. One lowers only what it has written itself.
const HOLD: &str = "/* clock.hold */ UPDATE clock SET held = $1 WHERE held < $1 OR held = $2";
const ACCEPT: &str = "/* clock.accept */ UPDATE clock SET mark = $1";
/// On SQLite the row has a checksum, which is verified by every transaction.
const ROW: &str = "/* clock.row */ SELECT one, mark, held, checksum FROM clock";
const WRITE: &str = "/* clock.write */ UPDATE clock SET mark = $1, held = $2, checksum = $3";

/// The row, where it has a checksum: the mark, and for how long no kept answer is forgotten. None where it has none.
fn guarded(tx: &mut Tx<'_>) -> Result<Option<(i64, i64)>, Fault> {
    if tx.backend() != Backend::Sqlite {
        return Ok(None);
    }
    let mut row = tx.row(ROW, &[])?.ok_or_else(lost)?;
    CLOCK.must_hold(&[], &row)?;
    row.skip(1);
    Ok(Some((row.integer()?, row.integer()?)))
}

/// Writes the row with its checksum.
fn write(tx: &mut Tx<'_>, mark: i64, held: i64) -> Result<(), Fault> {
    let row: [Value; 3] = [1.into(), mark.into(), held.into()];
    let checksum = CLOCK.checksum(&row);
    let [_, mark, held] = row;
    tx.execute_one(WRITE, &[mark, held, checksum])
}

fn lost() -> Fault {
    Fault::corrupt("database: the table clock has no row")
}

fn number(row: Option<Row>) -> Result<i64, Fault> {
    row.ok_or_else(lost)?.integer()
}

/// The mark.
pub fn mark(tx: &mut Tx<'_>) -> Result<Timestamp, Fault> {
    let mark = match guarded(tx)? {
        Some((mark, _)) => mark,
        None => number(tx.row(MARK, &[])?)?,
    };
    Ok(Timestamp::from_millis(mark))
}

/// Has the mark lowered before this transaction or behind it, where another can be under way.
pub fn share(tx: &mut Tx<'_>) -> Result<(), Fault> {
    match tx.backend() {
        Backend::Sqlite => Ok(()),
        Backend::Postgres => number(tx.row(SHARE, &[])?).map(drop),
    }
}

/// The mark that decisions up to `newest` need. None if `mark` is high enough.
#[must_use]
pub fn raised(mark: Timestamp, newest: Timestamp) -> Option<Timestamp> {
    (newest > mark).then(|| Timestamp::from_millis(newest.millis().saturating_add(AHEAD_MILLIS)))
}

/// Raises the mark to `to`, unless it is as high already.
pub fn raise(tx: &mut Tx<'_>, to: Timestamp) -> Result<(), Fault> {
    match guarded(tx)? {
        Some((mark, _)) if mark >= to.millis() => Ok(()),
        Some((_, held)) => write(tx, to.millis(), held),
        None => tx.execute(RAISE, &[to.millis().into()]).map(drop),
    }
}

/// For how many more milliseconds of running no kept answer is forgotten.
pub fn held(tx: &mut Tx<'_>) -> Result<i64, Fault> {
    match guarded(tx)? {
        Some((_, held)) => Ok(held),
        None => number(tx.row(HELD, &[])?),
    }
}

/// Keeps for how many more milliseconds that is so, unless another than `before` is kept that is greater.
pub fn hold(tx: &mut Tx<'_>, before: i64, millis: i64) -> Result<(), Fault> {
    match guarded(tx)? {
        Some((mark, held)) if held < millis || held == before => write(tx, mark, millis),
        Some(_) => Ok(()),
        None => tx.execute(HOLD, &[millis.into(), before.into()]).map(drop),
    }
}

/// Sets the mark to `to`, which may be lower.
pub fn accept(tx: &mut Tx<'_>, to: Timestamp) -> Result<(), Fault> {
    match guarded(tx)? {
        Some((_, held)) => write(tx, to.millis(), held),
        None => tx.execute_one(ACCEPT, &[to.millis().into()]),
    }
}
