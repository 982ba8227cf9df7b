//! The log of decisions.

use mandate_core::{
    AgentId, Amount, Basis, Category, Currency, DecisionId, Denials, MandateId, Nonce, Recipient, Request,
    ReviewId, ReviewStatus, Timestamp, Total, Verdict,
};

use super::checksums::DECISIONS;
use super::of_agent::OfAgent;
use super::{clock, reviews, uncounted};
use crate::error::Fault;
use crate::model::records::{AgentKey, DecisionRecord, Direction, Mode, ReviewRecord, Slice};
use crate::store::DecisionAndReview;
use crate::store::tx::{Row, Tx, Value};

const INSERT: &str = "/* decisions.insert */
    INSERT INTO decisions (environment, decision, sequence, decided_at, verdict, mandate, nonce, agent, amount,
        currency, recipient, category, mode, reason, denials, spent, recent_requests, supersedes, review, issuer,
        signing_key, signature, checksum)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23)";

const NEWEST: &str = "/* decisions.newest */
    SELECT MAX(n.decision) FROM (
        SELECT (SELECT MAX(d.decision) FROM decisions d WHERE d.environment = e.environment) AS decision FROM environments e
        UNION ALL SELECT c.behind FROM closings c WHERE c.step <> 'writing') n";
const FIND: &str = "/* decisions.find */
    SELECT d.environment, d.decision, d.sequence, d.decided_at, d.verdict, d.mandate, d.nonce, d.agent, d.amount, d.currency,
        d.recipient, d.category, d.mode, d.reason, d.denials, d.spent, d.recent_requests, d.supersedes, d.review,
        d.issuer, d.signing_key, d.signature, d.checksum, i.url, k.kid, r.review, r.decision, r.status, r.waits_for,
        r.expires_at, r.resolved_at, r.resolved_after, r.fresh, r.reason, r.resolved_by
    FROM decisions d LEFT JOIN issuers i ON i.issuer = d.issuer
    LEFT JOIN signing_keys k ON k.signing_key = d.signing_key
    LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
    WHERE d.environment = $1 AND d.decision = $2";
pub(super) const ONWARD: &str = "/* decisions.onward */
    SELECT d.environment, d.decision, d.sequence, d.decided_at, d.verdict, d.mandate, d.nonce, d.agent, d.amount, d.currency,
        d.recipient, d.category, d.mode, d.reason, d.denials, d.spent, d.recent_requests, d.supersedes, d.review,
        d.issuer, d.signing_key, d.signature, d.checksum, i.url, k.kid, r.review, r.decision, r.status, r.waits_for,
        r.expires_at, r.resolved_at, r.resolved_after, r.fresh, r.reason, r.resolved_by
    FROM decisions d JOIN issuers i ON i.issuer = d.issuer
    JOIN signing_keys k ON k.signing_key = d.signing_key
    LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
    WHERE d.environment = $1 AND d.decision > $2 AND d.decision < $3
    ORDER BY d.decision ASC LIMIT $4";
const ONWARD_OF_AGENT: OfAgent = OfAgent {
    indexed: "/* decisions.onward_of_agent_indexed */
        SELECT d.environment, d.decision, d.sequence, d.decided_at, d.verdict, d.mandate, d.nonce, d.agent, d.amount, d.currency,
            d.recipient, d.category, d.mode, d.reason, d.denials, d.spent, d.recent_requests, d.supersedes,
            d.review, d.issuer, d.signing_key, d.signature, d.checksum, i.url, k.kid, r.review, r.decision, r.status,
            r.waits_for, r.expires_at, r.resolved_at, r.resolved_after, r.fresh, r.reason, r.resolved_by
        FROM decisions d JOIN issuers i ON i.issuer = d.issuer
        JOIN signing_keys k ON k.signing_key = d.signing_key
        LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
        WHERE d.environment = $1 AND d.agent = $2 AND d.decision > $3 AND d.decision < $4
        ORDER BY d.decision ASC LIMIT $5",
    counted: "/* decisions.onward_of_agent_counted */
        SELECT d.environment, d.decision, d.sequence, d.decided_at, d.verdict, d.mandate, d.nonce, d.agent, d.amount, d.currency,
            d.recipient, d.category, d.mode, d.reason, d.denials, d.spent, d.recent_requests, d.supersedes,
            d.review, d.issuer, d.signing_key, d.signature, d.checksum, i.url, k.kid, r.review, r.decision, r.status,
            r.waits_for, r.expires_at, r.resolved_at, r.resolved_after, r.fresh, r.reason, r.resolved_by
        FROM agent_decisions o
        CROSS JOIN decisions d ON d.environment = o.environment AND d.decision = o.decision
        JOIN issuers i ON i.issuer = d.issuer
        JOIN signing_keys k ON k.signing_key = d.signing_key
        LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
        WHERE o.environment = $1 AND o.agent = $2 AND o.decision > $3 AND o.decision < $4
        ORDER BY o.decision ASC LIMIT $5",
    uncounted: "/* decisions.onward_of_agent_uncounted */
        SELECT d.environment, d.decision, d.sequence, d.decided_at, d.verdict, d.mandate, d.nonce, d.agent, d.amount, d.currency,
            d.recipient, d.category, d.mode, d.reason, d.denials, d.spent, d.recent_requests, d.supersedes,
            d.review, d.issuer, d.signing_key, d.signature, d.checksum, i.url, k.kid, r.review, r.decision, r.status,
            r.waits_for, r.expires_at, r.resolved_at, r.resolved_after, r.fresh, r.reason, r.resolved_by
        FROM (VALUES (1), (17), (33), (49), (65), (81), (97), (113), (129), (145), (161), (177), (193), (209),
            (225), (241), (257), (273), (289), (305), (321), (337), (353), (369), (385), (401), (417), (433), (449),
            (465), (481), (497)) id
        CROSS JOIN decisions d JOIN issuers i ON i.issuer = d.issuer
        JOIN signing_keys k ON k.signing_key = d.signing_key
        LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
        WHERE d.environment = $1 AND id.column1 < length($2) AND d.decision = substr($2, id.column1, 16)
        ORDER BY d.decision ASC",
};
const ONWARD_OF_VERDICT: &str =
    "/* decisions.onward_of_verdict */
    SELECT d.environment, d.decision, d.sequence, d.decided_at, d.verdict, d.mandate, d.nonce, d.agent, d.amount, d.currency,
        d.recipient, d.category, d.mode, d.reason, d.denials, d.spent, d.recent_requests, d.supersedes, d.review,
        d.issuer, d.signing_key, d.signature, d.checksum, i.url, k.kid, r.review, r.decision, r.status, r.waits_for,
        r.expires_at, r.resolved_at, r.resolved_after, r.fresh, r.reason, r.resolved_by
    FROM decisions d JOIN issuers i ON i.issuer = d.issuer
    JOIN signing_keys k ON k.signing_key = d.signing_key
    LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
    WHERE d.environment = $1 AND d.verdict = $2 AND d.decision > $3 AND d.decision < $4
    ORDER BY d.decision ASC LIMIT $5";

/// A search reads only ids and the columns of its filters.
const OLDER: &str = "/* decisions.older */
    SELECT d.decision, d.verdict, d.mandate, d.mode, r.status, r.expires_at
    FROM decisions d
    LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
    WHERE d.environment = $1 AND d.decision < $2 AND d.decision >= $3
    ORDER BY d.decision DESC LIMIT $4";
const NEWER: &str = "/* decisions.newer */
    SELECT d.decision, d.verdict, d.mandate, d.mode, r.status, r.expires_at
    FROM decisions d
    LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
    WHERE d.environment = $1 AND d.decision > $2 AND d.decision < $3
    ORDER BY d.decision ASC LIMIT $4";
const OLDER_OF_AGENT: OfAgent = OfAgent {
    indexed: "/* decisions.older_of_agent_indexed */
        SELECT d.decision, d.verdict, d.mandate, d.mode, r.status, r.expires_at
        FROM decisions d
        LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
        WHERE d.environment = $1 AND d.agent = $2 AND d.decision < $3 AND d.decision >= $4
        ORDER BY d.decision DESC LIMIT $5",
    counted: "/* decisions.older_of_agent_counted */
        SELECT d.decision, d.verdict, d.mandate, d.mode, r.status, r.expires_at
        FROM agent_decisions o
        CROSS JOIN decisions d ON d.environment = o.environment AND d.decision = o.decision
        LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
        WHERE o.environment = $1 AND o.agent = $2 AND o.decision < $3 AND o.decision >= $4
        ORDER BY o.decision DESC LIMIT $5",
    uncounted: "/* decisions.older_of_agent_uncounted */
        SELECT d.decision, d.verdict, d.mandate, d.mode, r.status, r.expires_at
        FROM (VALUES (1), (17), (33), (49), (65), (81), (97), (113), (129), (145), (161), (177), (193), (209),
            (225), (241), (257), (273), (289), (305), (321), (337), (353), (369), (385), (401), (417), (433), (449),
            (465), (481), (497)) id
        CROSS JOIN decisions d
        LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
        WHERE d.environment = $1 AND id.column1 < length($2) AND d.decision = substr($2, id.column1, 16)
        ORDER BY d.decision DESC",
};
const NEWER_OF_AGENT: OfAgent = OfAgent {
    indexed: "/* decisions.newer_of_agent_indexed */
        SELECT d.decision, d.verdict, d.mandate, d.mode, r.status, r.expires_at
        FROM decisions d
        LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
        WHERE d.environment = $1 AND d.agent = $2 AND d.decision > $3 AND d.decision < $4
        ORDER BY d.decision ASC LIMIT $5",
    counted: "/* decisions.newer_of_agent_counted */
        SELECT d.decision, d.verdict, d.mandate, d.mode, r.status, r.expires_at
        FROM agent_decisions o
        CROSS JOIN decisions d ON d.environment = o.environment AND d.decision = o.decision
        LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
        WHERE o.environment = $1 AND o.agent = $2 AND o.decision > $3 AND o.decision < $4
        ORDER BY o.decision ASC LIMIT $5",
    uncounted: "/* decisions.newer_of_agent_uncounted */
        SELECT d.decision, d.verdict, d.mandate, d.mode, r.status, r.expires_at
        FROM (VALUES (1), (17), (33), (49), (65), (81), (97), (113), (129), (145), (161), (177), (193), (209),
            (225), (241), (257), (273), (289), (305), (321), (337), (353), (369), (385), (401), (417), (433), (449),
            (465), (481), (497)) id
        CROSS JOIN decisions d
        LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
        WHERE d.environment = $1 AND id.column1 < length($2) AND d.decision = substr($2, id.column1, 16)
        ORDER BY d.decision ASC",
};
const OLDER_OF_VERDICT: &str = "/* decisions.older_of_verdict */
    SELECT d.decision, d.verdict, d.mandate, d.mode, r.status, r.expires_at
    FROM decisions d
    LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
    WHERE d.environment = $1 AND d.verdict = $2 AND d.decision < $3 AND d.decision >= $4
    ORDER BY d.decision DESC LIMIT $5";
const NEWER_OF_VERDICT: &str = "/* decisions.newer_of_verdict */
    SELECT d.decision, d.verdict, d.mandate, d.mode, r.status, r.expires_at
    FROM decisions d
    LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
    WHERE d.environment = $1 AND d.verdict = $2 AND d.decision > $3 AND d.decision < $4
    ORDER BY d.decision ASC LIMIT $5";

/// A filter of decisions. An absent field matches every decision.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this agent.
    pub agent: Option<AgentId>,
    /// With this verdict.
    pub verdict: Option<Verdict>,
    /// Under this mandate.
    pub mandate: Option<MandateId>,
    /// Made in this mode.
    pub mode: Option<Mode>,
    /// With a review of this status.
    pub review: Option<ReviewStatus>,
    /// Made at this instant or later.
    pub since: Option<Timestamp>,
    /// Made before this instant.
    pub until: Option<Timestamp>,
}

/// A decision with everything that its token and its JSON need.
#[derive(Debug, Clone)]
pub struct Whole {
    /// The decision.
    pub decision: DecisionRecord,
    /// `iss`.
    pub issuer: String,
    /// The name of the key that signed.
    pub kid: String,
    /// Its review.
    pub review: Option<ReviewRecord>,
}

/// Writes a decision into the log, and the review that it waits for. The agent's rows lack it from now on. Returns the clock's
/// mark: `mark`, or what it was raised to for this decision.
///
/// This is how every decision is written on SQLite. PostgreSQL has `postgres::keep`.
pub(in crate::store) fn keep(
    tx: &mut Tx<'_>,
    decided: &DecisionAndReview,
    mark: Timestamp,
) -> Result<Timestamp, Fault> {
    let DecisionAndReview { decision, review, .. } = decided;
    tx.execute_one(INSERT, &values(decision))?;
    tx.note(decision);
    let agent = AgentKey { environment: decision.environment, agent: decision.request.agent.clone() };
    uncounted::add(tx, &agent, decision.id)?;
    if let Some(review) = review {
        reviews::insert(tx, decision.environment, review)?;
    }
    let Some(to) = clock::raised(mark, decision.decided_at) else { return Ok(mark) };
    clock::raise(tx, to)?;
    Ok(to)
}

/// A decision's 22 columns, and their checksum.
pub(in crate::store) fn values(d: &DecisionRecord) -> Vec<Value> {
    let mut values = vec![
        d.environment.into(),
        d.id.to_bytes().into(),
        d.sequence.into(),
        d.decided_at.millis().into(),
        d.verdict.as_str().into(),
        d.mandate.map(MandateId::to_bytes).into(),
        d.nonce.to_bytes().into(),
        d.request.agent.as_str().into(),
        d.request.amount.to_string().into(),
        d.request.currency.as_str().into(),
        d.request.recipient.as_str().into(),
        d.request.category.as_str().into(),
        d.mode.as_str().into(),
        d.reason.clone().into(),
        d.denials.to_string().into(),
        d.basis.spent.to_string().into(),
        i64::from(d.basis.recent_requests).into(),
        d.supersedes.map(DecisionId::to_bytes).into(),
        d.review.map(ReviewId::to_bytes).into(),
        d.issuer.into(),
        d.signing_key.into(),
        d.signature.into(),
    ];
    values.push(DECISIONS.checksum(&values));
    values
}

/// The newest decision of all environments, or the end of the newest closed month: new ids are greater.
pub fn newest(tx: &mut Tx<'_>) -> Result<Option<DecisionId>, Fault> {
    let row = tx.row(NEWEST, &[])?;
    Ok(row.map(|mut row| row.maybe_bytes()).transpose()?.flatten().map(DecisionId::from_bytes))
}

/// One decision.
pub fn find(tx: &mut Tx<'_>, environment: i64, id: DecisionId) -> Result<Option<Whole>, Fault> {
    tx.row(FIND, &[environment.into(), id.to_bytes().into()])?.map(read).transpose()
}

/// One decision, to be decided on.
///
/// # Errors
/// Its checksum does not hold.
pub fn find_sound(tx: &mut Tx<'_>, environment: i64, id: DecisionId) -> Result<Option<Whole>, Fault> {
    let Some(row) = tx.row(FIND, &[environment.into(), id.to_bytes().into()])? else { return Ok(None) };
    DECISIONS.must_hold(&[], &row)?;
    read(row).map(Some)
}

/// At most `limit` decisions that follow `after`, oldest first, of the filter's agent and time; of its verdict where it names
/// no agent.
pub fn onward(
    tx: &mut Tx<'_>,
    environment: i64,
    filter: &Filter,
    after: [u8; 16],
    limit: i64,
) -> Result<Vec<Whole>, Fault> {
    let first = |at: Timestamp| DecisionId::new(at, 0).to_bytes();
    let since = filter.since.map_or([0; 16], first);
    let before_since = u128::from_be_bytes(since).saturating_sub(1).to_be_bytes();
    let from = after.max(before_since);
    let to = filter.until.map_or([0xff; 16], first);
    let rows = match (&filter.agent, filter.verdict) {
        (Some(agent), _) => {
            let agent = AgentKey { environment, agent: agent.clone() };
            let slice = Slice { direction: Direction::Newer, from, limit };
            ONWARD_OF_AGENT.rows(tx, &agent, &slice, to)?
        }
        (None, Some(verdict)) => {
            let parameters =
                [environment.into(), verdict.as_str().into(), from.into(), to.into(), limit.into()];
            tx.query(ONWARD_OF_VERDICT, &parameters)?
        }
        (None, None) => tx.query(ONWARD, &[environment.into(), from.into(), to.into(), limit.into()])?,
    };
    rows.into_iter().map(read).collect()
}

/// The ids of decisions that match a filter.
#[derive(Debug)]
pub struct Found {
    /// At most the slice's limit, in the order of the search.
    pub ids: Vec<DecisionId>,
    /// Where the search stopped. None if it has found enough, or has come to the end.
    pub stopped_at: Option<DecisionId>,
}

/// Searches a slice for decisions that match `filter`. Reads at most `most` rows, however long the log is.
pub fn search(
    tx: &mut Tx<'_>,
    environment: i64,
    filter: &Filter,
    slice: &Slice,
    now: Timestamp,
    most: i64,
) -> Result<Found, Fault> {
    let first = |at: Timestamp| DecisionId::new(at, 0).to_bytes();
    let since = filter.since.map_or([0; 16], first);
    let until = filter.until.map_or([0xff; 16], first);
    let (all, of_agent, of_verdict, from, to) = match slice.direction {
        Direction::Older => (OLDER, OLDER_OF_AGENT, OLDER_OF_VERDICT, slice.from.min(until), since),
        // The row at `from` is left out, so that a search from `since` on begins just before it.
        Direction::Newer => {
            let before_since = u128::from_be_bytes(since).saturating_sub(1).to_be_bytes();
            (NEWER, NEWER_OF_AGENT, NEWER_OF_VERDICT, slice.from.max(before_since), until)
        }
    };
    let whole = filter.mandate.is_none() && filter.mode.is_none() && filter.review.is_none();
    let driven = whole && (filter.agent.is_none() || filter.verdict.is_none());
    let looked_at = if driven { slice.limit } else { most };
    // Only reviews have a review.
    let verdict = filter.verdict.or(filter.review.map(|_| Verdict::Review));
    let range = [Value::from(from), to.into(), looked_at.into()];
    let rows = match (&filter.agent, verdict, range) {
        (Some(agent), ..) => {
            let agent = AgentKey { environment, agent: agent.clone() };
            of_agent.rows(tx, &agent, &Slice { from, limit: looked_at, ..*slice }, to)?
        }
        (None, Some(verdict), [from, to, limit]) => {
            tx.query(of_verdict, &[environment.into(), verdict.as_str().into(), from, to, limit])?
        }
        (None, None, [from, to, limit]) => tx.query(all, &[environment.into(), from, to, limit])?,
    };
    let wanted = usize::try_from(slice.limit).unwrap_or(usize::MAX);
    let exhausted = i64::try_from(rows.len()).unwrap_or(i64::MAX) < looked_at;
    let (mut ids, mut last) = (Vec::new(), None);
    for mut row in rows {
        let id = DecisionId::from_bytes(row.bytes()?);
        last = Some(id);
        if filter.meets(&mut row, now)? {
            ids.push(id);
            if ids.len() == wanted {
                break;
            }
        }
    }
    let stopped_at = if exhausted || ids.len() == wanted { None } else { last };
    Ok(Found { ids, stopped_at })
}

impl Filter {
    /// Whether a row of a search, after its id, matches the parts of the filter that no index covers.
    fn meets(&self, row: &mut Row, now: Timestamp) -> Result<bool, Fault> {
        let verdict = Verdict::parse(&row.text()?)?;
        let mandate = row.maybe_bytes()?.map(MandateId::from_bytes);
        let mode = Mode::parse(&row.text()?)?;
        let status = row.maybe_text()?.map(|status| ReviewStatus::parse(&status)).transpose()?;
        let expires_at = row.maybe_integer()?.map(Timestamp::from_millis);
        let status = status.zip(expires_at).map(|(status, expires_at)| status.at(expires_at, now));
        Ok(self.verdict.is_none_or(|wanted| wanted == verdict)
            && (self.mandate.is_none() || self.mandate == mandate)
            && self.mode.is_none_or(|wanted| wanted == mode)
            && (self.review.is_none() || self.review == status))
    }
}

pub(super) fn read(mut row: Row) -> Result<Whole, Fault> {
    let decision = read_joined(&mut row)?;
    row.skip(1);
    let issuer = row.text()?;
    let kid = row.text()?;
    let review = reviews::read_joined(&mut row)?;
    Ok(Whole { decision, issuer, kid, review })
}

/// Reads a decision's 22 columns.
pub(super) fn read_joined(row: &mut Row) -> Result<DecisionRecord, Fault> {
    Ok(DecisionRecord {
        environment: row.integer()?,
        id: DecisionId::from_bytes(row.bytes()?),
        sequence: row.integer()?,
        decided_at: Timestamp::from_millis(row.integer()?),
        verdict: Verdict::parse(&row.text()?)?,
        mandate: row.maybe_bytes()?.map(MandateId::from_bytes),
        nonce: Nonce::from_bytes(row.bytes()?),
        request: Request {
            agent: AgentId::parse(&row.text()?)?,
            amount: Amount::parse(&row.text()?)?,
            currency: Currency::parse(&row.text()?)?,
            recipient: Recipient::parse(&row.text()?)?,
            category: Category::parse(&row.text()?)?,
        },
        mode: Mode::parse(&row.text()?)?,
        reason: row.maybe_text()?,
        denials: Denials::parse(&row.text()?)?,
        basis: Basis {
            spent: Total::parse(&row.text()?)?,
            recent_requests: u32::try_from(row.integer()?)
                .map_err(|_| Fault::corrupt("database: recent_requests"))?,
        },
        supersedes: row.maybe_bytes()?.map(DecisionId::from_bytes),
        review: row.maybe_bytes()?.map(ReviewId::from_bytes),
        issuer: row.integer()?,
        signing_key: row.integer()?,
        signature: row.bytes()?,
    })
}
