//! Regular maintenance of a PostgreSQL database: partitions are made a year ahead, and those of records that are needed for
//! a short time only are emptied.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mandate_core::{DecisionId, Timestamp};

use super::super::sql::servers;
use super::super::tx::Tx;
use super::connection::{RING, place};
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
/// For how long the database's clock must have shown a day before the place in the ring is emptied that the day does not use.
/// Until then each connection has read the clock again, and what was written by it before is looked up no more.
const RESTED: Duration = Duration::from_hours(1);

/// The tables that are partitioned by month, by the time in their ids.
pub(super) const PARTITIONED: [&str; 2] = ["decisions", "events"];
const MAKE: &str = "/* maintenance.make */ SELECT make_partition($1, $2, $3, $4)";
/// One whose DETACH CONCURRENTLY was cut off takes no rows. PostgreSQL 13 has no such column.
const THERE: &str =
    "/* maintenance.there */ SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent IN (to_regclass('decisions'), to_regclass('events'))
    AND to_jsonb(i) ->> 'inhdetachpending' IS DISTINCT FROM 'true'";
/// Only the owner of a table can give it a partition.
const OWNED: &str =
    "/* maintenance.owned */ SELECT count(*) FROM pg_class WHERE oid = to_regclass('decisions')
    AND pg_has_role(relowner, 'USAGE') AND has_schema_privilege(relnamespace, 'CREATE')";
/// What has the name of a partition, and is none, or is half detached (1).
const DETACHED: &str = "/* maintenance.detached */ SELECT c.relname, c.relispartition::int::bigint FROM pg_class c
    WHERE c.relnamespace = current_schema()::regnamespace AND (NOT c.relispartition OR EXISTS
        (SELECT 1 FROM pg_inherits i WHERE i.inhrelid = c.oid AND to_jsonb(i) ->> 'inhdetachpending' = 'true'))
    AND (starts_with(c.relname::text, 'decisions_') OR starts_with(c.relname::text, 'events_'))";
/// For each place in the ring of `commits`: whether there is anything, and how it is emptied.
static COMMITS: [(&str, &str); 4] = [
    (
        "/* maintenance.commits_0 */ SELECT 1 FROM commits_0 LIMIT 1",
        "/* maintenance.empty_0 */ TRUNCATE commits_0",
    ),
    (
        "/* maintenance.commits_1 */ SELECT 1 FROM commits_1 LIMIT 1",
        "/* maintenance.empty_1 */ TRUNCATE commits_1",
    ),
    (
        "/* maintenance.commits_2 */ SELECT 1 FROM commits_2 LIMIT 1",
        "/* maintenance.empty_2 */ TRUNCATE commits_2",
    ),
    (
        "/* maintenance.commits_3 */ SELECT 1 FROM commits_3 LIMIT 1",
        "/* maintenance.empty_3 */ TRUNCATE commits_3",
    ),
];
/// Half of the ring: the place of two days ago, and of the second day to come.
const OPPOSITE: u64 = RING / 2;

/// Makes a table's partition for one month, unless there is one.
pub(super) fn make_partition(tx: &mut Tx<'_>, table: &'static str, month: &Month) -> Result<(), Fault> {
    let [first, behind] = [month.begin, month.end].map(|at| DecisionId::new(at, 0).to_bytes());
    tx.query(MAKE, &[table.into(), month.name.as_str().into(), first.into(), behind.into()]).map(|_| ())
}

/// The partitions that must exist at `now`, and do not. None if this role may not make them.
pub(super) fn missing(tx: &mut Tx<'_>, now: Timestamp) -> Result<Option<Vec<(&'static str, Month)>>, Fault> {
    if tx.one_row(OWNED, &[])?.integer()? == 0 {
        return Ok(None);
    }
    let there = there(tx)?;
    let wanted = partitions(now)?.into_iter();
    Ok(Some(wanted.filter(|(table, month)| !there.contains(&month.partition(table))).collect()))
}

/// The tables with the names of partitions that must exist at `now`, and are none or half detached, each with how it becomes one:
/// none is made in its place.
pub(super) fn detached(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<(String, String)>, Fault> {
    let found = tx.query(DETACHED, &[])?.into_iter().map(|mut row| Ok((row.text()?, row.integer()? == 1)));
    let found: BTreeMap<String, bool> = found.collect::<Result<_, Fault>>()?;
    let wanted = partitions(now)?.into_iter().filter_map(|(table, month)| {
        let [first, behind] = [month.begin, month.end].map(first_id);
        let name = month.partition(table);
        let half = *found.get(&name)?;
        let finalize = if half {
            format!("ALTER TABLE {table} DETACH PARTITION {name} FINALIZE; ")
        } else {
            String::new()
        };
        let attach = format!(
            "{finalize}ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{first}') TO ('{behind}')"
        );
        Some((name, attach))
    });
    Ok(wanted.collect())
}

/// The least id of an instant, as SQL writes bytes.
pub(super) fn first_id(at: Timestamp) -> String {
    format!("\\x{:032x}", u128::from_be_bytes(DecisionId::new(at, 0).to_bytes()))
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

/// The present day by the database's clock, counted from 1970.
pub(super) fn day(tx: &mut Tx<'_>) -> Result<u64, Fault> {
    Ok(servers::now(tx)?.seconds().unsigned_abs() / DAY_SECONDS.unsigned_abs())
}

/// Whether the records of commits of two days before `day` are still there.
pub(super) fn has_commits(tx: &mut Tx<'_>, day: u64) -> Result<bool, Fault> {
    let Some((any, _)) = opposite(day) else { return Ok(false) };
    Ok(tx.row(any, &[])?.is_some())
}

/// Empties the partition of these records. A commit is looked up within a minute; neither this day nor those beside it have
/// that place in the ring.
pub(super) fn empty_commits(tx: &mut Tx<'_>, day: u64) -> Result<(), Fault> {
    let Some((_, empty)) = opposite(day) else { return Ok(()) };
    tx.execute(empty, &[]).map(|_| ())
}

fn opposite(day: u64) -> Option<&'static (&'static str, &'static str)> {
    COMMITS.get(usize::from(place(day + OPPOSITE)))
}

/// Notes that the database's clock shows `day`. Whether it has done so for an hour at `now`.
pub(super) fn has_rested(seen: &mut Option<(u64, Instant)>, day: u64, now: Instant) -> bool {
    match seen {
        Some((of, since)) if *of == day => now.saturating_duration_since(*since) >= RESTED,
        _ => {
            *seen = Some((day, now));
            false
        }
    }
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
    fn a_place_in_the_ring_rests_before_it_is_emptied() {
        let (mut seen, began) = (None, Instant::now());
        let after = |seconds| began + Duration::from_secs(seconds);
        assert!(!has_rested(&mut seen, 7, began), "a server that has just started knows nothing");
        assert!(!has_rested(&mut seen, 7, after(3_599)));
        assert!(has_rested(&mut seen, 7, after(3_600)) && has_rested(&mut seen, 7, after(80_000)));
        // However far the clock jumps, and back.
        for (day, seconds) in [(9, 80_001), (7, 80_002)] {
            assert!(!has_rested(&mut seen, day, after(seconds)));
            assert!(!has_rested(&mut seen, day, after(seconds)));
        }
        assert!(RESTED > 2 * crate::store::postgres::connection::CURRENT);
        for day in 20_000..20_008 {
            assert_eq!(place(day + OPPOSITE), place(day - OPPOSITE));
            assert!([day - 1, day, day + 1].iter().all(|used| place(*used) != place(day + OPPOSITE)));
        }
    }

    #[test]
    fn partitions_are_short_for_three_months() {
        let end = Timestamp::parse("2027-12-01T00:00:00Z").unwrap();
        let before = |days: i64| end.plus_seconds(-days * DAY_SECONDS);
        assert!(!is_short(end, before(365)) && !is_short(end, before(90)));
        assert!(is_short(end, before(89)) && is_short(end, before(-1)));
    }
}
