//! Writes an export, from one snapshot, a page of the log at a time.
//!
//! NDJSON has one JSON object on each line, whose first member names its kind: first `export`, the
//! request; then each `mandate` that governed one of the decisions; then each `governing` record with its `number`, `random` bytes
//! and `blind` (of an export of an agent or a verdict only those of people's passkeys), and the `answer` of a person who revoked a
//! mandate; then each `decision`, oldest first, as the API shows it, with its `blind`, and in its `review` the `answer` of a person; last `trailer`, an ES256 JWT of `iss`, `iat`, `export`, `rows` and `sha256`, the hash of
//! all bytes before its line. CSV is a table with one row for each decision.
//!
//! Decisions of closed months are in none: `since` is then no earlier than the end of the newest one.
//!
//! Memory does not grow with the log: only one page and the ids of the mandates are held.

use std::collections::BTreeSet;
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mandate_core::export::Trailer;
use mandate_core::json::one_line;
use mandate_core::log::Hash;
use mandate_core::{AgentId, DecisionId, ExportId, MandateId, PolicyVersion, Timestamp, Verdict, jwt};
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::{Sha256Hex, answers, requested_at};
use crate::error::Fault;
use crate::service::decisions;
use crate::service::signing::Keyring;
use crate::store::sql;
use crate::store::sql::decisions::{Filter, Whole};
use crate::store::sql::exports::{Export, Format};
use crate::store::sql::log_records::LogRecord;
use crate::store::tx::Tx;

/// How many decisions are read at a time.
const PAGE: i64 = 500;
/// The columns of the CSV, in order.
const COLUMNS: [&str; 22] = [
    "decision",
    "iat",
    "sequence",
    "decided_at",
    "verdict",
    "mode",
    "agent",
    "amount",
    "currency",
    "recipient",
    "category",
    "mandate",
    "policy_version",
    "reason",
    "denials",
    "spent",
    "recent_requests",
    "supersedes",
    "review",
    "review_status",
    "nonce",
    "verdict_token",
];

/// What is needed to write an export.
#[derive(Debug)]
pub struct Build<'a> {
    /// The request.
    pub export: &'a Export,
    /// Signs the trailer.
    pub keyring: &'a Keyring,
    /// The time at which the state of mandates and reviews is shown.
    pub now: Timestamp,
}

/// The result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The number of decisions.
    pub rows: i64,
    /// The SHA-256 of all bytes.
    pub sha256: [u8; 32],
}

#[derive(Serialize)]
struct Header<'a> {
    id: ExportId,
    environment: &'a str,
    policy_version: &'a PolicyVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<Verdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    created_at: Timestamp,
    /// The newest decision, where no `until` bounds the export.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<DecisionId>,
}

/// One line.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Line<'a, T> {
    Export(Header<'a>),
    Mandate(T),
    Trailer(T),
}

/// The line of a decision. `blind` hides its record in the public log.
#[derive(Serialize)]
struct Decided {
    decision: Box<RawValue>,
    blind: String,
}

/// The line of a governing record.
#[derive(Serialize)]
struct Governed {
    governing: Box<RawValue>,
    number: u64,
    random: String,
    blind: String,
    /// What a person signed, where no decision's line has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Box<RawValue>>,
}

/// Writes the export to `out`. After each page `go_on` is called; if it returns false, the export is
/// abandoned.
///
/// # Errors
/// The database fails, `out` cannot be written, or the export was abandoned.
pub fn write(
    tx: &mut Tx<'_>,
    build: &Build<'_>,
    out: impl Write,
    go_on: &dyn Fn() -> bool,
) -> Result<Written, Fault> {
    let export = after_closed_months(tx, build.export)?;
    let build = &Build { export: &export, ..*build };
    let mut out = Hashed { out, hash: Sha256::new() };
    let rows = match build.export.format {
        Format::Ndjson => ndjson(tx, build, &mut out, go_on)?,
        Format::Csv => csv(tx, build, &mut out, go_on)?,
    };
    out.flush().map_err(|e| unwritable(&e))?;
    Ok(Written { rows, sha256: out.hash.finalize().into() })
}

/// The export from the end of the newest closed month on. What is left of closed months is in their files.
fn after_closed_months(tx: &mut Tx<'_>, export: &Export) -> Result<Export, Fault> {
    let closed = sql::retention::behind(tx)?.map(DecisionId::created_at);
    let filter = Filter { since: export.filter.since.max(closed), ..export.filter.clone() };
    Ok(Export { filter, ..export.clone() })
}

fn ndjson(
    tx: &mut Tx<'_>,
    build: &Build<'_>,
    out: &mut Hashed<impl Write>,
    go_on: &dyn Fn() -> bool,
) -> Result<i64, Fault> {
    let Build { export, keyring, now } = build;
    let (mut concerned, mut last) = (BTreeSet::<MandateId>::new(), None);
    walk(tx, export, go_on, |_, whole| {
        concerned.extend(whole.decision.mandate);
        last = Some(whole.decision.id);
        Ok(())
    })?;
    let header = Header {
        id: export.id,
        environment: export.kind.as_str(),
        policy_version: &export.policy_version,
        verdict: export.filter.verdict,
        agent: export.filter.agent.as_ref(),
        since: export.filter.since,
        until: export.filter.until,
        created_at: requested_at(export.expires_at),
        last: last.filter(|_| export.filter.until.is_none()),
    };
    line(out, &Line::<()>::Export(header))?;
    for id in concerned {
        let mandate = sql::mandates::find(tx, export.environment, id)?;
        let mandate = mandate.ok_or_else(|| Fault::corrupt("database: a decision's mandate is not there"))?;
        line(out, &Line::Mandate(mandate.view(*now)))?;
    }
    governing(tx, build, out, go_on)?;
    let secrets = keyring.log_secrets().environment(export.environment);
    let rows = walk(tx, export, go_on, |tx, whole| {
        let answer = answers::to_review(tx, whole)?;
        let decision = decisions::show_answered(whole, &export.policy_version, *now, answer.as_deref())?;
        line(out, &Decided { decision, blind: base64url(&secrets.blind.decision(whole.decision.id)) })
    })?;
    let sha256 = Sha256Hex(out.hash.clone().finalize().into());
    let trailer = Trailer {
        iss: keyring.issuer().to_owned(),
        iat: now.seconds(),
        export: export.id,
        rows: u64::try_from(rows).unwrap_or_default(),
        sha256: sha256.to_string(),
    };
    let token = jwt::sign(&*keyring.signing(export.kind, *now)?.signer, &trailer.to_json());
    line(out, &Line::Trailer(token.map_err(|e| Fault::new(e.to_string()))?))?;
    Ok(rows)
}

/// Writes the environment's governing records, with what their entries in the public log are made of. An export of one agent
/// or verdict has only those of people's passkeys, by which it can be audited.
fn governing(
    tx: &mut Tx<'_>,
    Build { export, keyring, .. }: &Build<'_>,
    out: &mut impl Write,
    go_on: &dyn Fn() -> bool,
) -> Result<(), Fault> {
    let secrets = keyring.log_secrets().environment(export.environment);
    let is_whole = export.filter.agent.is_none() && export.filter.verdict.is_none();
    let mut after = 0;
    loop {
        must_go_on(go_on)?;
        let page = sql::log_records::onward(tx, export.environment, after, PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.number;
        for LogRecord { number, record, .. } in page {
            if !is_whole && !answers::is_of_passkey(&record) {
                continue;
            }
            let answer = answers::to_revocation(tx, export.environment, &record)?;
            let governing = RawValue::from_string(record)
                .map_err(|e| Fault::corrupt(format!("database: log_records.record: {e}")))?;
            let (random, hidden) = (secrets.random(number), secrets.blind.governing(number));
            let (random, blind) = (base64url(&random), base64url(&hidden));
            line(out, &Governed { governing, number, random, blind, answer })?;
        }
    }
}

fn base64url(hash: &Hash) -> String {
    URL_SAFE_NO_PAD.encode(hash.as_bytes())
}

fn line(out: &mut impl Write, line: &impl Serialize) -> Result<(), Fault> {
    let text = serde_json::to_string(line).map_err(|e| unwritable(&e.into()))?;
    writeln!(out, "{}", one_line(&text)).map_err(|e| unwritable(&e))
}

fn csv(
    tx: &mut Tx<'_>,
    build: &Build<'_>,
    out: &mut Hashed<impl Write>,
    go_on: &dyn Fn() -> bool,
) -> Result<i64, Fault> {
    let unwritable = |e: csv::Error| unwritable(&e.into());
    let mut table = table(out);
    table.write_record(COLUMNS).map_err(unwritable)?;
    let rows = walk(tx, build.export, go_on, |_, whole| {
        let cells = cells(whole, &build.export.policy_version, build.now)?;
        table.write_record(cells.map(harmless)).map_err(unwritable)
    })?;
    table.flush().map_err(|e| self::unwritable(&e))?;
    Ok(rows)
}

fn table<W: Write>(out: W) -> csv::Writer<W> {
    csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(out)
}

/// Decisions as rows of the CSV of an export, and before them the names of the columns.
///
/// # Errors
/// A stored value is not valid.
pub fn csv_rows(
    decisions: &[Whole],
    policy_version: &PolicyVersion,
    (has_header, now): (bool, Timestamp),
) -> Result<Vec<u8>, Fault> {
    let unwritable = |e: csv::Error| unwritable(&e.into());
    let mut table = table(Vec::new());
    if has_header {
        table.write_record(COLUMNS).map_err(unwritable)?;
    }
    for whole in decisions {
        table.write_record(cells(whole, policy_version, now)?.map(harmless)).map_err(unwritable)?;
    }
    table.into_inner().map_err(|e| self::unwritable(e.error()))
}

fn cells(
    whole: &Whole,
    policy_version: &PolicyVersion,
    now: Timestamp,
) -> Result<[String; COLUMNS.len()], Fault> {
    let d = &whole.decision;
    let review = whole.review.as_ref();
    let optional = |value: Option<&dyn ToString>| value.map(ToString::to_string).unwrap_or_default();
    Ok([
        d.id.to_string(),
        Timestamp::from_seconds(d.decided_at.seconds()).to_string(),
        d.sequence.to_string(),
        d.decided_at.to_string(),
        d.verdict.to_string(),
        d.mode.as_str().to_owned(),
        d.request.agent.to_string(),
        decimal(d.request.amount.to_string()),
        d.request.currency.to_string(),
        d.request.recipient.to_string(),
        d.request.category.to_string(),
        optional(d.mandate.as_ref().map(|id| id as _)),
        policy_version.to_string(),
        optional(d.reason.as_ref().map(|reason| reason as _)),
        d.denials.to_string(),
        decimal(d.basis.spent.to_string()),
        d.basis.recent_requests.to_string(),
        optional(d.supersedes.as_ref().map(|id| id as _)),
        optional(d.review.as_ref().map(|id| id as _)),
        optional(review.map(|review| review.status.at(review.expires_at, now)).as_ref().map(|s| s as _)),
        d.nonce.to_string(),
        decisions::token(whole, policy_version)?,
    ])
}

/// An amount that no reader takes for a whole number, a date or a text: `40.0`.
fn decimal(amount: String) -> String {
    if amount.contains('.') { amount } else { format!("{amount}.0") }
}

/// Makes sure that a spreadsheet reads the cell as text, and never as a formula.
fn harmless(cell: String) -> String {
    if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{cell}") } else { cell }
}

/// Passes each of the export's decisions on, oldest first. Returns how many there are.
fn walk(
    tx: &mut Tx<'_>,
    export: &Export,
    go_on: &dyn Fn() -> bool,
    mut take: impl FnMut(&mut Tx<'_>, &Whole) -> Result<(), Fault>,
) -> Result<i64, Fault> {
    let (mut after, mut rows) = ([0; 16], 0);
    loop {
        must_go_on(go_on)?;
        let page = sql::decisions::onward(tx, export.environment, &export.filter, after, PAGE)?;
        let Some(last) = page.last() else { return Ok(rows) };
        after = last.decision.id.to_bytes();
        for whole in &page {
            if export.filter.verdict.is_none_or(|verdict| verdict == whole.decision.verdict) {
                take(tx, whole)?;
                rows += 1;
            }
        }
    }
}

fn must_go_on(go_on: &dyn Fn() -> bool) -> Result<(), Fault> {
    if go_on() { Ok(()) } else { Err(Fault::new("the export was given up, since the server stops")) }
}

/// Hashes what is written through it.
struct Hashed<W> {
    out: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

fn unwritable(error: &std::io::Error) -> Fault {
    Fault::of_file(format!("an export cannot be written: {error}"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_spreadsheet_would_run_is_a_text() {
        for (cell, harmless_cell) in [
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\tx", "'\tx"),
            ("\rx", "'\rx"),
            ("a=1", "a=1"),
            ("40.5", "40.5"),
            ("", ""),
        ] {
            assert_eq!(harmless(cell.to_owned()), harmless_cell, "{cell:?}");
        }
    }
}
