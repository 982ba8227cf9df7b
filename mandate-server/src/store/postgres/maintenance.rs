//! Regular maintenance of a PostgreSQL database: it makes partitions before their month begins, and deletes
//! rows that are needed for a short time only.

use mandate_core::{DecisionId, Timestamp};

use super::super::tx::Tx;
use crate::error::Fault;

/// How often maintenance runs, in seconds.
pub(super) const EVERY_SECONDS: i64 = 60;
/// For how many months there are partitions, the current month included.
const MONTHS: usize = 3;
/// Longer than every month, and shorter than two, in days.
const OVER_A_MONTH_DAYS: i64 = 32;
/// How many rows one transaction deletes.
const ROWS: i64 = 1_000;

/// The tables that are partitioned by month, by the time in their ids.
const PARTITIONED: [&str; 2] = ["decisions", "events"];
const MAKE: &str = "/* maintenance.make */ SELECT make_partition($1, $2, $3, $4)";
/// The outcome of a lost commit is looked up at once, and a transaction without a connection lives for
/// seconds. Ten minutes are more than enough.
const FORGET: &str = "/* maintenance.forget */ DELETE FROM commits WHERE commit IN
    (SELECT commit FROM commits WHERE at < (extract(epoch FROM statement_timestamp()) * 1000)::bigint - 600000
    ORDER BY at LIMIT $1 FOR UPDATE SKIP LOCKED)";

/// Makes a table's partition for one month, unless it exists or the month's rows are in the default
/// partition.
pub(super) fn make_partition(tx: &mut Tx<'_>, table: &'static str, month: &Month) -> Result<(), Fault> {
    let Month { name, first, behind } = month;
    tx.query(MAKE, &[table.into(), name.as_str().into(), (*first).into(), (*behind).into()]).map(|_| ())
}

/// Deletes commit records that no server looks up any more. Returns whether there may be more.
pub(super) fn forget(tx: &mut Tx<'_>) -> Result<bool, Fault> {
    Ok(i64::try_from(tx.execute(FORGET, &[ROWS.into()])?).unwrap_or(ROWS) >= ROWS)
}

/// A month, as a range of ids.
#[derive(Debug, Clone)]
pub(super) struct Month {
    name: String,
    /// The smallest id of the month.
    first: [u8; 16],
    /// The smallest id of the next month.
    behind: [u8; 16],
}

/// The partitions that must exist at `now`.
pub(super) fn partitions(now: Timestamp) -> Result<Vec<(&'static str, Month)>, Fault> {
    let start =
        |at: Timestamp| Timestamp::parse(&format!("{}-01T00:00:00Z", at.month())).map_err(Fault::from);
    let first_id = |at: Timestamp| DecisionId::new(at, 0).to_bytes();
    let mut wanted = Vec::with_capacity(MONTHS * PARTITIONED.len());
    let mut first = start(now)?;
    for _ in 0..MONTHS {
        let next = start(first.plus_seconds(OVER_A_MONTH_DAYS * 24 * 60 * 60))?;
        let name = first.month().to_string().replace('-', "_");
        let month = Month { name, first: first_id(first), behind: first_id(next) };
        wanted.extend(PARTITIONED.map(|table| (table, month.clone())));
        first = next;
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
            assert_eq!(names, ["2026_11", "2026_12", "2027_01"]);
            for (month, next) in of(table).zip(of(table).skip(1)) {
                assert_eq!(month.behind, next.first);
            }
        }
        let within = DecisionId::new(now, u128::MAX).to_bytes();
        let (_, month) = &months[0];
        assert!(month.first <= within && within < month.behind, "the last id of a month is in it");
    }
}
