//! The high-water mark of the instants by which decisions were made.
//!
//! No decision is later than the mark: one that would be raises it in its own transaction, to [`AHEAD_MILLIS`]
//! beyond itself. So the mark is written about once a second. A clock that is behind the mark was set back.

use mandate_core::Timestamp;

use crate::error::Fault;
use crate::store::tx::Tx;

/// How far beyond the decision that raises it the mark is set, in milliseconds.
pub const AHEAD_MILLIS: i64 = 1_000;

const MARK: &str = "/* clock.mark */ SELECT mark FROM clock";
/// Raises the mark to `$1`, unless it is as high already.
pub(in crate::store) const RAISE: &str = "/* clock.raise */ UPDATE clock SET mark = $1 WHERE mark < $1";
const HELD: &str = "/* clock.held */ SELECT held FROM clock";
const HOLD: &str = "/* clock.hold */ UPDATE clock SET held = $1";
const ACCEPT: &str = "/* clock.accept */ UPDATE clock SET mark = $1";

/// The mark.
pub fn mark(tx: &mut Tx<'_>) -> Result<Timestamp, Fault> {
    let row = tx.row(MARK, &[])?;
    let mut row = row.ok_or_else(|| Fault::corrupt("database: the table clock has no row"))?;
    row.integer().map(Timestamp::from_millis)
}

/// The mark that decisions up to `newest` need. None if `mark` is high enough.
#[must_use]
pub fn raised(mark: Timestamp, newest: Timestamp) -> Option<Timestamp> {
    (newest > mark).then(|| Timestamp::from_millis(newest.millis().saturating_add(AHEAD_MILLIS)))
}

/// Raises the mark to `to`, unless it is as high already.
pub fn raise(tx: &mut Tx<'_>, to: Timestamp) -> Result<(), Fault> {
    tx.execute(RAISE, &[to.millis().into()]).map(drop)
}

/// For how many more milliseconds of running no kept answer is forgotten.
pub fn held(tx: &mut Tx<'_>) -> Result<i64, Fault> {
    let row = tx.row(HELD, &[])?;
    row.ok_or_else(|| Fault::corrupt("database: the table clock has no row"))?.integer()
}

/// Keeps for how many more milliseconds that is so.
pub fn hold(tx: &mut Tx<'_>, millis: i64) -> Result<(), Fault> {
    tx.execute_one(HOLD, &[millis.into()])
}

/// Sets the mark to `to`, which may be lower.
pub fn accept(tx: &mut Tx<'_>, to: Timestamp) -> Result<(), Fault> {
    tx.execute_one(ACCEPT, &[to.millis().into()])
}
