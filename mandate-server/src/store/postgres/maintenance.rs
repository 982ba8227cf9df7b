//! Regular maintenance of a PostgreSQL database: partitions are made a year ahead, and rows that are needed for a short
//! time only are deleted.

use std::collections::BTreeSet;

use mandate_core::{DecisionId, Timestamp};

use super::super::tx::Tx;
use crate::error::Fault;

/// How often maintenance runs, in seconds.
pub(super) const EVERY_SECONDS: i64 = 60;
/// For how many months there are partitions: the one before, the current one, and a year. A clock that is set back by a
/// little may show the one before.
const MONTHS: usize = 14;
/// Partitions that end sooner than this are short, in days.
const SHORT_DAYS: i64 = 90;
const DAY_SECONDS: i64 = 24 * 60 * 60;
/// Longer than every month, and shorter than two, in days.
const OVER_A_MONTH_DAYS: i64 = 32;
/// How many rows one transaction deletes.
const ROWS: i64 = 1_000;

/// The tables that are partitioned by month, by the time in their ids.
pub(super) const PARTITIONED: [&str; 2] = ["decisions", "events"];
const MAKE: &str = "/* maintenance.make */ SELECT make_partition($1, $2, $3, $4)";
const THERE: &str =
    "/* maintenance.there */ SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent IN (to_regclass('decisions'), to_regclass('events'))";
/// Only the owner of a table can give it a partition.
const OWNED: &str =
    "/* maintenance.owned */ SELECT count(*) FROM pg_class WHERE oid = to_regclass('decisions')
    AND pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE')";
/// The outcome of a lost commit is looked up at once, and a transaction without a connection lives for
/// seconds. Ten minutes are more than enough.
const FORGET: &str = "/* maintenance.forget */ DELETE FROM commits WHERE commit IN
    (SELECT commit FROM commits WHERE at < (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 600000
    ORDER BY at LIMIT $1 FOR UPDATE SKIP LOCKED)";

/// Makes a table's partition for one month, unless there is one.
pub(super) fn make_partition(tx: &mut Tx<'_>, table: &'static str, month: &Month) -> Result<(), Fault> {
    let [first, behind] = [month.begin, month.end].map(|at| DecisionId::new(at, 0).to_bytes());
    tx.query(MAKE, &[table.into(), month.name.as_str().into(), first.into(), behind.into()]).map(|_| ())
}

/// The partitions that must exist at `now`, and do not. None if this role may not make them.
pub(super) fn missing(tx: &mut Tx<'_>, now: Timestamp) -> Result<Option<Vec<(&'static str, Month)>>, Fault> {
    let owned =
        tx.row(OWNED, &[])?.ok_or_else(|| Fault::new("database: a count without a row"))?.integer()?;
    if owned == 0 {
        return Ok(None);
    }
    let there = there(tx)?;
    let wanted = partitions(now)?.into_iter();
    Ok(Some(wanted.filter(|(table, month)| !there.contains(&month.partition(table))).collect()))
}

/// Until when there are partitions, without a gap. It is not after `now` if there is none for the current month.
pub(super) fn end(tx: &mut Tx<'_>, now: Timestamp) -> Result<Timestamp, Fault> {
    let (there, mut month) = (there(tx)?, Month::of(now)?);
    for _ in 0..there.len() {
        if !PARTITIONED.iter().all(|table| there.contains(&month.partition(table))) {
            break;
        }
        month = Month::of(month.end)?;
    }
    Ok(month.begin)
}

/// Whether partitions that end at `end` are short at `now`.
pub(super) fn is_short(end: Timestamp, now: Timestamp) -> bool {
    end < now.plus_seconds(SHORT_DAYS * DAY_SECONDS)
}

/// The names of all partitions.
fn there(tx: &mut Tx<'_>) -> Result<BTreeSet<String>, Fault> {
    tx.query(THERE, &[])?.into_iter().map(|mut row| row.text()).collect()
}

/// Deletes commit records that no server looks up any more. Returns whether there may be more.
pub(super) fn forget(tx: &mut Tx<'_>) -> Result<bool, Fault> {
    Ok(i64::try_from(tx.execute(FORGET, &[ROWS.into()])?).unwrap_or(ROWS) >= ROWS)
}

/// A month.
#[derive(Debug, Clone)]
pub(super) struct Month {
    /// As partitions are named.
    name: String,
    begin: Timestamp,
    /// The beginning of the next month.
    end: Timestamp,
}

impl Month {
    /// The month of an instant.
    pub(super) fn of(at: Timestamp) -> Result<Self, Fault> {
        let start =
            |at: Timestamp| Timestamp::parse(&format!("{}-01T00:00:00Z", at.month())).map_err(Fault::from);
        let begin = start(at)?;
        let end = start(begin.plus_seconds(OVER_A_MONTH_DAYS * DAY_SECONDS))?;
        Ok(Self { name: begin.month().to_string().replace('-', "_"), begin, end })
    }

    /// The name of a table's partition for it.
    pub(super) fn partition(&self, table: &str) -> String {
        format!("{table}_{}", self.name)
    }
}

/// The partitions that must exist at `now`.
pub(super) fn partitions(now: Timestamp) -> Result<Vec<(&'static str, Month)>, Fault> {
    let mut wanted = Vec::with_capacity(MONTHS * PARTITIONED.len());
    let mut month = Month::of(Month::of(now)?.begin.plus_seconds(-1))?;
    for _ in 0..MONTHS {
        wanted.extend(PARTITIONED.map(|table| (table, month.clone())));
        month = Month::of(month.end)?;
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_follow_each_other_without_a_gap() {
        let now = Timestamp::parse("2026-11-30T23:59:59.999Z").unwrap();
        let months = partitions(now).unwrap();
        let of = |table| months.iter().filter(move |(of, _)| *of == table).map(|(_, month)| month);
        for table in PARTITIONED {
            let names: Vec<_> = of(table).map(|month| month.name.as_str()).collect();
            assert_eq!((names.len(), names[0], names[1]), (MONTHS, "2026_10", "2026_11"));
            assert_eq!((names[2], names[3], names[13]), ("2026_12", "2027_01", "2027_11"));
            for (month, next) in of(table).zip(of(table).skip(1)) {
                assert_eq!(month.end, next.begin);
            }
        }
        let (_, month) = &months[2];
        assert!(month.begin <= now && now < month.end, "the last instant of a month is in it");
    }

    #[test]
    fn partitions_are_short_for_three_months() {
        let end = Timestamp::parse("2027-12-01T00:00:00Z").unwrap();
        let before = |days: i64| end.plus_seconds(-days * DAY_SECONDS);
        assert!(!is_short(end, before(365)) && !is_short(end, before(90)));
        assert!(is_short(end, before(89)) && is_short(end, before(-1)));
    }
}
