//! Exports: their filters and their states. The content is in files.

use mandate_core::{AgentId, EnvironmentKind, ExportId, Invalid, PolicyVersion, Timestamp, Verdict};
use serde::{Serialize, Serializer};

use super::decisions::Filter;
use super::keys::kind;
use crate::error::Fault;
use crate::store::tx::{Row, Tx, Value};

const INSERT: &str = "/* exports.insert */
    INSERT INTO exports (environment, export, format, verdict, agent, since, until, status, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, 'pending', $8)";
const COUNT: &str = "/* exports.count */
    SELECT count(*) FROM exports WHERE environment = $1 AND expires_at > $2";
const END: &str = "/* exports.end */ UPDATE exports SET status = $1, rows = $2, sha256 = $3,
        incomplete_since = (SELECT CASE WHEN c.mark < exports.until THEN c.mark END FROM clock c)
    WHERE environment = $4 AND export = $5 AND status = 'pending'";
const STATUS: &str = "/* exports.status */ SELECT status FROM exports WHERE export = $1";
const NEXT_END: &str = "/* exports.next_end */ SELECT expires_at FROM exports ORDER BY expires_at LIMIT 1";
const DELETE: &str = "/* exports.delete */ DELETE FROM exports WHERE environment = $1 AND export = $2";

const FIND: &str = "/* exports.find */
    SELECT e.environment, n.kind, n.policy_version, e.export, e.format, e.verdict, e.agent, e.since, e.until,
        e.status, e.rows, e.sha256, e.expires_at, e.incomplete_since
    FROM exports e JOIN environments n ON n.environment = e.environment
    WHERE e.environment = $1 AND e.export = $2";
const OF_ENVIRONMENT: &str = "/* exports.of_environment */
    SELECT e.environment, n.kind, n.policy_version, e.export, e.format, e.verdict, e.agent, e.since, e.until,
        e.status, e.rows, e.sha256, e.expires_at, e.incomplete_since
    FROM exports e JOIN environments n ON n.environment = e.environment
    WHERE e.environment = $1 AND e.expires_at > $2 ORDER BY e.expires_at DESC, e.export DESC";
const PENDING: &str = "/* exports.pending */
    SELECT e.environment, n.kind, n.policy_version, e.export, e.format, e.verdict, e.agent, e.since, e.until,
        e.status, e.rows, e.sha256, e.expires_at, e.incomplete_since
    FROM exports e JOIN environments n ON n.environment = e.environment
    WHERE e.status = 'pending' AND e.expires_at > $1 AND (e.until IS NULL OR e.until <= $2)
    ORDER BY e.export LIMIT $3";
/// A lease that ends more than two minutes from now counts as over: it lasts one, and the servers' clocks are within 60
/// seconds of each other, so that only a clock which was set back since can have given it. `export_pieces.lease` says the same.
const UNLEASED: &str = "/* exports.unleased */
    SELECT e.environment, n.kind, n.policy_version, e.export, e.format, e.verdict, e.agent, e.since, e.until,
        e.status, e.rows, e.sha256, e.expires_at, e.incomplete_since
    FROM exports e JOIN environments n ON n.environment = e.environment
    WHERE e.status = 'pending' AND e.expires_at > $1 AND (e.until IS NULL OR e.until <= $2)
        AND (e.leased_until IS NULL OR e.leased_until <= $1 OR e.leased_until > $1 + 120000)
    ORDER BY e.export LIMIT $3";
const NEXT_UNTIL: &str = "/* exports.next_until */
    SELECT MIN(until) FROM exports WHERE status = 'pending' AND until > $1";
const REOPEN: &str = "/* exports.reopen */ UPDATE exports SET incomplete_since = $1
    WHERE status = 'ready' AND until > $1 AND (incomplete_since IS NULL OR incomplete_since > $1)";
const EXPIRED: &str = "/* exports.expired */
    SELECT e.environment, n.kind, n.policy_version, e.export, e.format, e.verdict, e.agent, e.since, e.until,
        e.status, e.rows, e.sha256, e.expires_at, e.incomplete_since
    FROM exports e JOIN environments n ON n.environment = e.environment
    WHERE e.expires_at <= $1 ORDER BY e.expires_at LIMIT $2";

/// An export.
#[derive(Debug, Clone)]
pub struct Export {
    /// The tenant.
    pub environment: i64,
    /// The kind of its environment.
    pub kind: EnvironmentKind,
    /// The policy version of its environment.
    pub policy_version: PolicyVersion,
    /// Its id.
    pub id: ExportId,
    /// Its format.
    pub format: Format,
    /// The filter of its decisions.
    pub filter: Filter,
    /// Its state.
    pub status: ExportStatus,
    /// The number of its decisions and the SHA-256 of its bytes, once it is ready.
    pub content: Option<(i64, [u8; 32])>,
    /// When it is deleted.
    pub expires_at: Timestamp,
    /// The instant before `until` to which the clock was set back after the export was built.
    pub incomplete_since: Option<Timestamp>,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $field:literal, $wanted:literal, $($(#[$of:meta])* $value:ident = $word:literal),+) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$of])* $value),+
        }

        impl $name {
            /// The word, as bodies carry it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word),+
                }
            }

            /// Reads the word.
            ///
            /// # Errors
            /// The text is none of them.
            pub fn parse(text: &str) -> Result<Self, Invalid> {
                match text {
                    $($word => Ok(Self::$value),)+
                    _ => Err(Invalid::new($field, $wanted)),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

words! {
    /// The format of an export.
    Format, "format", "must be ndjson or csv",
    /// One JSON object in each line.
    Ndjson = "ndjson",
    /// CSV (RFC 4180).
    Csv = "csv"
}
words! {
    /// The state of an export.
    ExportStatus, "status", "must be pending, ready or failed",
    /// It is being built, or will be.
    Pending = "pending",
    /// It can be read.
    Ready = "ready",
    /// It could not be built.
    Failed = "failed"
}

/// Writes a requested export.
pub fn insert(tx: &mut Tx<'_>, export: &Export) -> Result<(), Fault> {
    let filter = &export.filter;
    let row: [Value; 8] = [
        export.environment.into(),
        export.id.to_bytes().into(),
        export.format.as_str().into(),
        filter.verdict.map(Verdict::as_str).into(),
        filter.agent.as_ref().map(AgentId::as_str).into(),
        filter.since.map(Timestamp::millis).into(),
        filter.until.map(Timestamp::millis).into(),
        export.expires_at.millis().into(),
    ];
    tx.execute_one(INSERT, &row)
}

/// How many exports of an environment have not expired.
pub fn count(tx: &mut Tx<'_>, environment: i64, now: Timestamp) -> Result<i64, Fault> {
    let row = tx.row(COUNT, &[environment.into(), now.millis().into()])?;
    row.ok_or_else(|| Fault::new("database: no count"))?.integer()
}

/// One export.
pub fn find(tx: &mut Tx<'_>, environment: i64, id: ExportId) -> Result<Option<Export>, Fault> {
    tx.row(FIND, &[environment.into(), id.to_bytes().into()])?.map(read).transpose()
}

/// The exports of an environment that are kept at `now`, newest first.
pub fn of_environment(tx: &mut Tx<'_>, environment: i64, now: Timestamp) -> Result<Vec<Export>, Fault> {
    tx.query(OF_ENVIRONMENT, &[environment.into(), now.millis().into()])?.into_iter().map(read).collect()
}

/// The oldest exports that are to be built, and that no other server is building. Those of a period end at `latest` or
/// before.
pub fn pending(tx: &mut Tx<'_>, now: Timestamp, latest: Timestamp, limit: i64) -> Result<Vec<Export>, Fault> {
    let sql = tx.either(PENDING, UNLEASED);
    tx.query(sql, &[now.millis().into(), latest.millis().into(), limit.into()])?
        .into_iter()
        .map(read)
        .collect()
}

/// The first end after `latest` of a period whose export is to be built.
pub fn next_until(tx: &mut Tx<'_>, latest: Timestamp) -> Result<Option<Timestamp>, Fault> {
    let row = tx.row(NEXT_UNTIL, &[latest.millis().into()])?;
    Ok(row.map(|mut row| row.maybe_integer()).transpose()?.flatten().map(Timestamp::from_millis))
}

/// Notes in the exports that were built for periods which end after `now` that the clock was set back to it. Gives how many
/// there are.
pub fn reopen(tx: &mut Tx<'_>, now: Timestamp) -> Result<usize, Fault> {
    tx.execute(REOPEN, &[now.millis().into()])
}

/// The state of an export.
pub fn status(tx: &mut Tx<'_>, id: ExportId) -> Result<Option<ExportStatus>, Fault> {
    let row = tx.row(STATUS, &[id.to_bytes().into()])?;
    row.map(|mut row| Ok(ExportStatus::parse(&row.text()?)?)).transpose()
}

/// When the first of the exports expires.
pub fn next_end(tx: &mut Tx<'_>) -> Result<Option<Timestamp>, Fault> {
    tx.row(NEXT_END, &[])?.map(|mut row| row.integer().map(Timestamp::from_millis)).transpose()
}

/// At most `limit` exports that have expired.
pub fn expired(tx: &mut Tx<'_>, now: Timestamp, limit: i64) -> Result<Vec<Export>, Fault> {
    tx.query(EXPIRED, &[now.millis().into(), limit.into()])?.into_iter().map(read).collect()
}

/// Writes how building a pending export has ended. If the clock was set back meanwhile, the mark shows it.
pub fn end(
    tx: &mut Tx<'_>,
    export: &Export,
    status: ExportStatus,
    content: Option<(i64, [u8; 32])>,
) -> Result<(), Fault> {
    let row: [Value; 5] = [
        status.as_str().into(),
        content.map(|(rows, _)| rows).into(),
        content.map(|(_, sha256)| sha256).into(),
        export.environment.into(),
        export.id.to_bytes().into(),
    ];
    tx.execute(END, &row).map(|_| ())
}

/// Deletes an export's row.
pub fn delete(tx: &mut Tx<'_>, export: &Export) -> Result<(), Fault> {
    tx.execute(DELETE, &[export.environment.into(), export.id.to_bytes().into()]).map(|_| ())
}

fn read(mut row: Row) -> Result<Export, Fault> {
    Ok(Export {
        environment: row.integer()?,
        kind: kind(&row.text()?)?,
        policy_version: PolicyVersion::parse(&row.text()?)?,
        id: ExportId::from_bytes(row.bytes()?),
        format: Format::parse(&row.text()?)?,
        filter: Filter {
            verdict: row.maybe_text()?.map(|verdict| Verdict::parse(&verdict)).transpose()?,
            agent: row.maybe_text()?.map(|agent| AgentId::parse(&agent)).transpose()?,
            since: row.maybe_integer()?.map(Timestamp::from_millis),
            until: row.maybe_integer()?.map(Timestamp::from_millis),
            ..Filter::default()
        },
        status: ExportStatus::parse(&row.text()?)?,
        content: row.maybe_integer()?.zip(row.maybe_bytes()?),
        expires_at: Timestamp::from_millis(row.integer()?),
        incomplete_since: row.maybe_integer()?.map(Timestamp::from_millis),
    })
}
