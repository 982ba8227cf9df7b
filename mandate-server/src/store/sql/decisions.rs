//! The log of decisions.

use mandate_core::{
    AgentId, Amount, Basis, Category, Currency, DecisionId, Denials, MandateId, Nonce, Recipient, Request,
    ReviewId, Total, Verdict,
};

use super::reviews;
use crate::error::Fault;
use crate::store::records::{DecisionRecord, Mode, ReviewRecord};
use crate::store::tx::{Row, Tx, Value};

const INSERT: &str = "INSERT INTO decisions (environment, decision, iat, verdict, mandate, nonce, agent, amount,
        currency, recipient, category, mode, reason, denials, spent, recent_requests, supersedes, review, issuer,
        signing_key, signature)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)";

macro_rules! select {
    ($condition:literal) => {
        concat!(
            "SELECT d.environment, d.decision, d.iat, d.verdict, d.mandate, d.nonce, d.agent, d.amount, d.currency,
                d.recipient, d.category, d.mode, d.reason, d.denials, d.spent, d.recent_requests, d.supersedes,
                d.review, d.issuer, d.signing_key, d.signature, i.url, k.kid,
                r.review, r.decision, r.status, r.waits_for, r.expires_at, r.resolved_at, r.fresh, r.reason
            FROM decisions d
            JOIN issuers i ON i.issuer = d.issuer
            JOIN signing_keys k ON k.signing_key = d.signing_key
            LEFT JOIN reviews r ON r.environment = d.environment AND r.review = d.review
            WHERE d.environment = $1 ",
            $condition
        )
    };
}
const FIND: &str = select!("AND d.decision = $2");
const PAGE: &str = select!("AND d.decision < $2 ORDER BY d.decision DESC LIMIT $3");
const PAGE_OF_AGENT: &str = select!("AND d.agent = $2 AND d.decision < $3 ORDER BY d.decision DESC LIMIT $4");

/// A decision with all that its token and its JSON need.
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

/// Writes a decision.
pub fn insert(tx: &mut Tx<'_>, d: &DecisionRecord) -> Result<(), Fault> {
    let row: [Value; 21] = [
        d.environment.into(),
        d.id.to_bytes().into(),
        d.iat.into(),
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
    tx.execute_one(INSERT, &row)
}

/// One decision.
pub fn find(tx: &mut Tx<'_>, environment: i64, id: DecisionId) -> Result<Option<Whole>, Fault> {
    tx.row(FIND, &[environment.into(), id.to_bytes().into()])?.map(read).transpose()
}

/// At most `limit` decisions made before `before`, newest first; of one agent, or of all.
pub fn page(
    tx: &mut Tx<'_>,
    environment: i64,
    agent: Option<&AgentId>,
    before: [u8; 16],
    limit: i64,
) -> Result<Vec<Whole>, Fault> {
    let rows = match agent {
        None => tx.query(PAGE, &[environment.into(), before.into(), limit.into()])?,
        Some(agent) => tx.query(
            PAGE_OF_AGENT,
            &[environment.into(), agent.as_str().into(), before.into(), limit.into()],
        )?,
    };
    rows.into_iter().map(read).collect()
}

fn read(mut row: Row) -> Result<Whole, Fault> {
    let decision = DecisionRecord {
        environment: row.integer()?,
        id: DecisionId::from_bytes(row.bytes()?),
        iat: row.integer()?,
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
                .map_err(|_| Fault::new("database: recent_requests"))?,
        },
        supersedes: row.maybe_bytes()?.map(DecisionId::from_bytes),
        review: row.maybe_bytes()?.map(ReviewId::from_bytes),
        issuer: row.integer()?,
        signing_key: row.integer()?,
        signature: row.bytes()?,
    };
    let issuer = row.text()?;
    let kid = row.text()?;
    let review = reviews::read_joined(&mut row)?;
    Ok(Whole { decision, issuer, kid, review })
}
