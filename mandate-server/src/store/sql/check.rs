//! What a check of the whole database reads: the log with everything that decisions are computed from, and what is
//! compared with it.

mod closed;
pub mod each;
mod rules;
mod sequences;

use mandate_core::{AgentId, Currency, DecisionId, Mandate, MandateId, Month, Timestamp};

use super::checksums::DECISIONS;
use super::uncounted::{self, UncountedDecision};
use super::{decisions, mandates, openings};
use crate::error::Fault;
use crate::model::records::{AgentKey, DecisionRecord, UsageKey};
use crate::store::tx::{Counting, Row, Tx, Value};

pub use closed::closed_rows;
pub use rules::{Breach, IdKind, Rule, breaches, rules};

const LOG: &str = "/* check.log */
    SELECT d.environment, d.agent, d.decision, e.kind, e.policy_version, i.url, d.environment, d.decision,
        d.sequence, d.decided_at, d.verdict, d.mandate, d.nonce, d.agent, d.amount, d.currency, d.recipient, d.category, d.mode,
        d.reason, d.denials, d.spent, d.recent_requests, d.supersedes, d.review, d.issuer, d.signing_key,
        d.signature, d.checksum, m.mandate, m.agent, m.terms, m.created_at, m.revoked_at, m.replaced_by, m.governs_from,
        m.revoked_after, m.governed_until
    FROM decisions d LEFT JOIN environments e ON e.environment = d.environment
    LEFT JOIN issuers i ON i.issuer = d.issuer
    LEFT JOIN mandates m ON m.environment = d.environment AND m.mandate = d.mandate AND m.agent = d.agent
    WHERE (d.environment, d.agent, d.decision) > ($1, $2, $3)
    ORDER BY d.environment, d.agent, d.decision LIMIT $4";
const COUNTED_LOG: &str = "/* check.counted_log */
    SELECT d.environment, d.agent, d.decision, e.kind, e.policy_version, i.url, d.environment, d.decision,
        d.sequence, d.decided_at, d.verdict, d.mandate, d.nonce, d.agent, d.amount, d.currency, d.recipient, d.category, d.mode,
        d.reason, d.denials, d.spent, d.recent_requests, d.supersedes, d.review, d.issuer, d.signing_key,
        d.signature, d.checksum, m.mandate, m.agent, m.terms, m.created_at, m.revoked_at, m.replaced_by, m.governs_from,
        m.revoked_after, m.governed_until
    FROM agent_decisions o
    CROSS JOIN decisions d ON d.environment = o.environment AND d.decision = o.decision AND d.agent = o.agent
    LEFT JOIN environments e ON e.environment = d.environment
    LEFT JOIN issuers i ON i.issuer = d.issuer
    LEFT JOIN mandates m ON m.environment = d.environment AND m.mandate = d.mandate AND m.agent = d.agent
    WHERE (o.environment, o.agent, o.decision) > ($1, $2, $3)
    ORDER BY o.environment, o.agent, o.decision LIMIT $4";
const UNCOUNTED_LOG: &str = "/* check.uncounted_log */
    SELECT d.environment, d.agent, d.decision, e.kind, e.policy_version, i.url, d.environment, d.decision,
        d.sequence, d.decided_at, d.verdict, d.mandate, d.nonce, d.agent, d.amount, d.currency, d.recipient, d.category, d.mode,
        d.reason, d.denials, d.spent, d.recent_requests, d.supersedes, d.review, d.issuer, d.signing_key,
        d.signature, d.checksum, m.mandate, m.agent, m.terms, m.created_at, m.revoked_at, m.replaced_by, m.governs_from,
        m.revoked_after, m.governed_until
    FROM (VALUES (1), (17), (33), (49), (65), (81), (97), (113), (129), (145), (161), (177), (193), (209),
        (225), (241), (257), (273), (289), (305), (321), (337), (353), (369), (385), (401), (417), (433), (449),
        (465), (481), (497)) id
    CROSS JOIN decisions d
    LEFT JOIN environments e ON e.environment = d.environment
    LEFT JOIN issuers i ON i.issuer = d.issuer
    LEFT JOIN mandates m ON m.environment = d.environment AND m.mandate = d.mandate AND m.agent = d.agent
    WHERE d.environment = $1 AND id.column1 < length($2) AND d.decision = substr($2, id.column1, 16)";
const LOG_BEFORE: &str = "/* check.log_before */
    SELECT d.environment, d.agent, d.decision, e.kind, e.policy_version, i.url, d.environment, d.decision,
        d.sequence, d.decided_at, d.verdict, d.mandate, d.nonce, d.agent, d.amount, d.currency, d.recipient, d.category, d.mode,
        d.reason, d.denials, d.spent, d.recent_requests, d.supersedes, d.review, d.issuer, d.signing_key,
        d.signature, d.checksum, m.mandate, m.agent, m.terms, m.created_at, m.revoked_at, m.replaced_by, m.governs_from,
        m.revoked_after, m.governed_until
    FROM decisions d LEFT JOIN environments e ON e.environment = d.environment
    LEFT JOIN issuers i ON i.issuer = d.issuer
    LEFT JOIN mandates m ON m.environment = d.environment AND m.mandate = d.mandate AND m.agent = d.agent
    WHERE (d.environment, d.agent, d.decision) > ($1, $2, $3) AND d.decision < $4
    ORDER BY d.environment, d.agent, d.decision LIMIT $5";
const COUNTED_LOG_BEFORE: &str = "/* check.counted_log_before */
    SELECT d.environment, d.agent, d.decision, e.kind, e.policy_version, i.url, d.environment, d.decision,
        d.sequence, d.decided_at, d.verdict, d.mandate, d.nonce, d.agent, d.amount, d.currency, d.recipient, d.category, d.mode,
        d.reason, d.denials, d.spent, d.recent_requests, d.supersedes, d.review, d.issuer, d.signing_key,
        d.signature, d.checksum, m.mandate, m.agent, m.terms, m.created_at, m.revoked_at, m.replaced_by, m.governs_from,
        m.revoked_after, m.governed_until
    FROM agent_decisions o
    CROSS JOIN decisions d ON d.environment = o.environment AND d.decision = o.decision AND d.agent = o.agent
    LEFT JOIN environments e ON e.environment = d.environment
    LEFT JOIN issuers i ON i.issuer = d.issuer
    LEFT JOIN mandates m ON m.environment = d.environment AND m.mandate = d.mandate AND m.agent = d.agent
    WHERE (o.environment, o.agent, o.decision) > ($1, $2, $3) AND o.decision < $4
    ORDER BY o.environment, o.agent, o.decision LIMIT $5";
const KEYS: &str = "/* check.keys */
    SELECT signing_key, kind, kid, public_key, sealed, created_at, sign_until, publish_until, revoked_at
    FROM signing_keys ORDER BY signing_key";
const GOVERNED_FROM: &str = "/* check.governed_from */
    SELECT MIN(governs_from) FROM mandates WHERE environment = $1 AND agent = $2";
const BEYOND: &str = "/* check.beyond */
    SELECT mandate, governs_from, revoked_after, governed_until FROM mandates
    WHERE environment = $1 AND agent = $2
        AND (governs_from - 1 > $3 OR revoked_after > $3 OR governed_until > $3)";
const USAGE: &str = "/* check.usage */ SELECT environment, month, agent, currency FROM usage
    WHERE (environment, month, agent, currency) > ($1, $2, $3, $4)
    ORDER BY environment, month, agent, currency LIMIT $5";
const USAGE_ROWS: &str = "/* check.usage_rows */ SELECT COUNT(*) FROM usage";
const COUNTED: &str = "/* check.counted */ SELECT decision FROM decisions
    WHERE environment = $1 AND agent = $2 AND currency = $3 AND decided_at >= $4
        AND decided_at < $5 LIMIT 1";
const COUNTED_OF_AGENT: &str = "/* check.counted_of_agent */ SELECT d.decision FROM agent_decisions o
    CROSS JOIN decisions d ON d.environment = o.environment AND d.decision = o.decision
    WHERE o.environment = $1 AND o.agent = $2 AND d.currency = $3 AND d.decided_at >= $4
        AND d.decided_at < $5 LIMIT 1";
const KEPT: &str = "/* check.kept */
    SELECT environment, api_key, name, fingerprint, status, body, sealed FROM idempotency
    WHERE (environment, api_key, name) > ($1, $2, $3) ORDER BY environment, api_key, name LIMIT $4";
const COUNTS: &[(&str, &str)] = &[
    ("organizations", "/* check.organizations */ SELECT COUNT(*) FROM organizations"),
    ("api_keys", "/* check.api_keys */ SELECT COUNT(*) FROM api_keys"),
    ("agents", "/* check.agents */ SELECT COUNT(*) FROM agents"),
    ("mandates", "/* check.mandates */ SELECT COUNT(*) FROM mandates"),
    ("decisions", "/* check.decisions */ SELECT COUNT(*) FROM decisions"),
    ("reviews", "/* check.reviews */ SELECT COUNT(*) FROM reviews"),
    ("events", "/* check.events */ SELECT COUNT(*) FROM events"),
    ("escrows", "/* check.escrows */ SELECT COUNT(*) FROM escrows"),
];

/// The place of an entry: its environment, agent, and decision.
pub type Place<'a> = (i64, &'a str, &'a [u8]);

/// How many columns come before those of the decision: the kind and the policy version of its environment, and the issuer.
const NAMED: usize = 3;

/// A row of the log before it is read, and its place.
#[derive(Debug)]
pub struct Entry {
    /// The tenant.
    pub environment: i64,
    /// The agent.
    pub agent: String,
    /// The decision.
    pub decision: Vec<u8>,
    row: Row,
}

/// A decision with everything that it is computed from. What the database lacks is absent.
#[derive(Debug)]
pub struct ParsedEntry {
    /// The kind of its environment, the environment's policy version, and the issuer.
    pub named: Option<(String, String, String)>,
    /// The decision.
    pub decision: DecisionRecord,
    /// Its mandate, as it is now.
    pub mandate: Option<Mandate>,
}

/// At most `limit` entries of the log after a place, agent by agent, oldest first.
pub fn log(tx: &mut Tx<'_>, after: Place<'_>, limit: i64) -> Result<Vec<Entry>, Fault> {
    let parameters = [after.0.into(), after.1.into(), after.2.to_vec().into(), limit.into()];
    let rows = tx.query(tx.either(COUNTED_LOG, LOG), &parameters)?;
    let mut entries = rows.into_iter().map(Entry::of).collect::<Result<Vec<_>, _>>()?;
    if tx.counting() != Counting::AtOnce {
        with_uncounted(tx, after, limit, &mut entries)?;
    }
    Ok(entries)
}

/// As [`log`], only entries before `behind`. All of them are counted.
pub fn log_before(
    tx: &mut Tx<'_>,
    after: Place<'_>,
    behind: DecisionId,
    limit: i64,
) -> Result<Vec<Entry>, Fault> {
    let parameters =
        [after.0.into(), after.1.into(), after.2.to_vec().into(), behind.to_bytes().into(), limit.into()];
    let rows = tx.query(tx.either(COUNTED_LOG_BEFORE, LOG_BEFORE), &parameters)?;
    rows.into_iter().map(Entry::of).collect()
}

/// Adds the uncounted entries in its range to a page of counted ones.
fn with_uncounted(
    tx: &mut Tx<'_>,
    after: Place<'_>,
    limit: i64,
    entries: &mut Vec<Entry>,
) -> Result<(), Fault> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let last = entries.get(limit.saturating_sub(1)).map(Entry::place);
    for (agent, ids) in tx.uncounted()?.between(after, last, limit) {
        for row in uncounted::named(tx, UNCOUNTED_LOG, agent.environment, &ids)? {
            entries.push(Entry::of(row)?);
        }
    }
    entries.sort_by(|a, b| a.place().cmp(&b.place()));
    entries.dedup_by(|a, b| a.place() == b.place());
    entries.truncate(limit);
    Ok(())
}

impl Entry {
    fn of(mut row: Row) -> Result<Self, Fault> {
        Ok(Self { environment: row.integer()?, agent: row.text()?, decision: row.blob()?, row })
    }

    fn place(&self) -> Place<'_> {
        (self.environment, &self.agent, &self.decision)
    }

    /// Whether the checksum of the decision holds. Asked before the row is read.
    #[must_use]
    pub fn holds(&self) -> bool {
        // Behind what names its environment.
        let row = Row::new(self.row.rest().iter().skip(NAMED).cloned().collect());
        DECISIONS.holds(&[], &row)
    }

    /// Reads the row.
    ///
    /// # Errors
    /// A value of it is not valid.
    pub fn read(&mut self) -> Result<ParsedEntry, Fault> {
        let row = &mut self.row;
        let named = match (row.maybe_text()?, row.maybe_text()?, row.maybe_text()?) {
            (Some(kind), Some(policy_version), Some(issuer)) => Some((kind, policy_version, issuer)),
            _ => None,
        };
        let decision = decisions::read_joined(row)?;
        row.skip(1);
        let mandate = mandates::read_joined(row)?;
        Ok(ParsedEntry { named, decision, mandate })
    }
}

/// A signing key that is or was in use.
#[derive(Debug)]
pub struct SigningKeyRow {
    /// Its number.
    pub id: i64,
    /// Which environments it signs for.
    pub kind: String,
    /// Its name.
    pub kid: String,
    /// x and y, 32 bytes each.
    pub public_key: Vec<u8>,
    /// The private part, encrypted.
    pub sealed: Vec<u8>,
    /// When it was made, in milliseconds since 1970, as are the next three.
    pub created_at: i64,
    /// Until when it signs.
    pub sign_until: Option<i64>,
    /// Until when it is published.
    pub publish_until: Option<i64>,
    /// When it was revoked.
    pub revoked_at: Option<i64>,
}

/// All signing keys, retired ones too.
pub fn signing_keys(tx: &mut Tx<'_>) -> Result<Vec<SigningKeyRow>, Fault> {
    let rows = tx.query(KEYS, &[])?.into_iter();
    rows.map(|mut row| {
        Ok(SigningKeyRow {
            id: row.integer()?,
            kind: row.text()?,
            kid: row.text()?,
            public_key: row.blob()?,
            sealed: row.blob()?,
            created_at: row.integer()?,
            sign_until: row.maybe_integer()?,
            publish_until: row.maybe_integer()?,
            revoked_at: row.maybe_integer()?,
        })
    })
    .collect()
}

/// The first sequence of an agent that a mandate governs.
pub fn governed_from(tx: &mut Tx<'_>, environment: i64, agent: &str) -> Result<Option<i64>, Fault> {
    let row = tx.row(GOVERNED_FROM, &[environment.into(), agent.into()])?;
    row.map_or(Ok(None), |mut row| row.maybe_integer())
}

/// A mandate that says something about sequences that its agent has not reached.
#[derive(Debug)]
pub struct Beyond {
    /// The mandate.
    pub mandate: MandateId,
    /// The first sequence that it governs.
    pub governs_from: i64,
    /// The last before its revocation.
    pub revoked_after: Option<i64>,
    /// Its last.
    pub governed_until: Option<i64>,
}

/// The mandates of an agent that say something about sequences after `last`, the agent's newest.
pub fn beyond(tx: &mut Tx<'_>, agent: &AgentKey, last: i64) -> Result<Vec<Beyond>, Fault> {
    let place = [agent.environment.into(), agent.agent.as_str().into(), last.into()];
    let rows = tx.query(BEYOND, &place)?.into_iter();
    rows.map(|mut row| {
        Ok(Beyond {
            mandate: MandateId::from_bytes(row.bytes()?),
            governs_from: row.integer()?,
            revoked_after: row.maybe_integer()?,
            governed_until: row.maybe_integer()?,
        })
    })
    .collect()
}

/// How many rows of metering there are.
pub fn usage_rows(tx: &mut Tx<'_>) -> Result<i64, Fault> {
    tx.one_row(USAGE_ROWS, &[])?.integer()
}

/// At most `limit` rows of metering after one.
pub fn usage(tx: &mut Tx<'_>, after: Option<&UsageKey>, limit: i64) -> Result<Vec<UsageKey>, Fault> {
    let from: [Value; 4] = match after {
        None => [i64::MIN.into(), "".into(), "".into(), "".into()],
        Some(key) => [
            key.agent.environment.into(),
            key.month.to_string().into(),
            key.agent.agent.as_str().into(),
            key.currency.as_str().into(),
        ],
    };
    let [environment, month, agent, currency] = from;
    let rows = tx.query(USAGE, &[environment, month, agent, currency, limit.into()])?.into_iter();
    rows.map(|mut row| {
        let (environment, month) = (row.integer()?, Month::parse(&row.text()?)?);
        let agent = AgentKey { environment, agent: AgentId::parse(&row.text()?)? };
        Ok(UsageKey { agent, month, currency: Currency::parse(&row.text()?)? })
    })
    .collect()
}

/// Whether the log has, or a closed month had, a decision that a row of metering counts, `instants` being those of its month.
pub fn is_counted(
    tx: &mut Tx<'_>,
    key: &UsageKey,
    instants: std::ops::Range<Timestamp>,
) -> Result<bool, Fault> {
    let parameters = [
        key.agent.environment.into(),
        key.agent.agent.as_str().into(),
        key.currency.as_str().into(),
        instants.start.millis().into(),
        instants.end.millis().into(),
    ];
    if tx.row(tx.either(COUNTED_OF_AGENT, COUNTED), &parameters)?.is_some() || openings::has_balance(tx, key)?
    {
        return Ok(true);
    }
    let is_meant = |uncounted: &UncountedDecision| {
        uncounted.currency == key.currency && instants.contains(&uncounted.at)
    };
    Ok(uncounted::find(tx, &key.agent)?.iter().any(is_meant))
}

/// An answer kept under an idempotency key, as it is stored.
#[derive(Debug)]
pub struct Kept {
    /// The tenant.
    pub environment: i64,
    /// The API key.
    pub api_key: i64,
    /// The idempotency key.
    pub name: String,
    /// A hash.
    pub fingerprint: Vec<u8>,
    /// The HTTP status.
    pub status: i64,
    /// The body.
    pub body: Vec<u8>,
    /// Whether the body is encrypted.
    pub sealed: i64,
}

/// At most `limit` kept answers after a place.
pub fn kept(tx: &mut Tx<'_>, after: (i64, i64, &str), limit: i64) -> Result<Vec<Kept>, Fault> {
    let rows = tx.query(KEPT, &[after.0.into(), after.1.into(), after.2.into(), limit.into()])?.into_iter();
    rows.map(|mut row| {
        Ok(Kept {
            environment: row.integer()?,
            api_key: row.integer()?,
            name: row.text()?,
            fingerprint: row.blob()?,
            status: row.integer()?,
            body: row.blob()?,
            sealed: row.integer()?,
        })
    })
    .collect()
}

/// Runs a query that reads no table.
pub fn answers(tx: &mut Tx<'_>) -> Result<(), Fault> {
    tx.row("/* check.answers */ SELECT 1", &[]).map(|_| ())
}

/// How many rows the main tables have.
pub fn counts(tx: &mut Tx<'_>) -> Result<Vec<(&'static str, i64)>, Fault> {
    COUNTS.iter().map(|(table, sql)| Ok((*table, tx.one_row(sql, &[])?.integer()?))).collect()
}
