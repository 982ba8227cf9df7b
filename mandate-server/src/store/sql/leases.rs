//! Leases on work that one of several servers does for all. They end by the database's clock, so that the servers' clocks
//! need not agree.

use crate::error::Fault;
use crate::store::tx::{Row, Tx};

/// By how much the database's clock may be set back, in milliseconds, before the leases that it has given count as over.
const SKEW_MILLIS: i64 = 5_000;

/// Takes a lease, or moves the end `$3` of one that is held. When it ends is its holder's alone: nothing has the same end twice.
/// One that ends later than a lease lasts was given by a clock that was ahead. It is taken, and [`STILL_HELD`] refuses its holder.
const HOLD: &str = "/* leases.hold */ INSERT INTO leases (name, until)
    VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $2)
    ON CONFLICT (name) DO UPDATE SET until = excluded.until
    WHERE leases.until = $3 OR leases.until <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint
        OR leases.until > (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $2 + $4
    RETURNING until";
const STILL_HELD: &str =
    "/* leases.still_held */ SELECT 1 FROM leases WHERE name = $1 AND until = $2 FOR UPDATE";
const GIVE_BACK: &str = "/* leases.give_back */ DELETE FROM leases WHERE name = $1 AND until = $2";

/// Takes the lease on `name` for so many milliseconds, or renews the one that ends at `held`. Says when it ends; none if another
/// server holds it.
pub fn hold(tx: &mut Tx<'_>, name: &str, millis: i64, held: Option<i64>) -> Result<Option<i64>, Fault> {
    // No lease ends at the beginning of time.
    let row = tx.row(HOLD, &[name.into(), millis.into(), held.unwrap_or(0).into(), SKEW_MILLIS.into()])?;
    row.map(|mut row: Row| row.integer()).transpose()
}

/// Whether the lease on `name` is the one that ends at `held`. If so, no other server takes it until the transaction ends.
pub fn still_held(tx: &mut Tx<'_>, name: &str, held: i64) -> Result<bool, Fault> {
    Ok(tx.row(STILL_HELD, &[name.into(), held.into()])?.is_some())
}

/// Ends the lease on `name` that ends at `held`.
pub fn give_back(tx: &mut Tx<'_>, name: &str, held: i64) -> Result<(), Fault> {
    tx.execute(GIVE_BACK, &[name.into(), held.into()]).map(drop)
}
