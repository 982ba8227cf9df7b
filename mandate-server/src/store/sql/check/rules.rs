//! Rules that rows must keep, table by table. Each is a query for the rows that break it.

use super::closed::CLOSED;
use super::sequences::SEQUENCES;
use crate::error::Fault;
use crate::store::tx::{Backend, Tx, Value};

/// The kind of the ids in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// No ids: words or numbers, shown as they are.
    Itself,
    /// Decisions.
    Decision,
    /// Mandates.
    Mandate,
    /// Reviews.
    Review,
    /// Escrows.
    Escrow,
    /// Exports.
    Export,
}

/// A rule. Its query returns the rows that break it: an environment, an id, and another value for the finding; where the
/// row is about a place among an agent's decisions, also the agent and the sequence.
#[derive(Debug)]
pub struct Rule {
    /// The table of the row.
    pub table: &'static str,
    /// The kind of its id.
    pub of: IdKind,
    /// The kind of the other value.
    pub other: IdKind,
    /// What was found. `{}` is replaced by the other value.
    pub found: &'static str,
    /// What a sound database has instead.
    pub expected: &'static str,
    pub(super) sql: &'static str,
}

/// The rules of this kind of database, table by table.
pub fn rules(tx: &Tx<'_>) -> impl Iterator<Item = &'static Rule> + use<> {
    let more = match tx.backend() {
        Backend::Sqlite => INDEXED,
        Backend::Postgres => REVOKED,
    };
    RULES.iter().chain(SEQUENCES).chain(CLOSED).chain(more)
}

/// What is written down of an agent's decisions, and what of the log is not written down yet.
const INDEXED: &[Rule] = &[
    Rule {
        table: "agent_decisions",
        of: IdKind::Decision,
        other: IdKind::Itself,
        found: "a decision of the agent {}",
        expected: "a row of the log, of this agent",
        sql: "/* rules.index_without_decision */ SELECT o.environment, o.decision, o.agent FROM agent_decisions o
            LEFT JOIN decisions d ON d.environment = o.environment AND d.decision = o.decision AND d.agent = o.agent
            WHERE d.decision IS NULL LIMIT $1",
    },
    Rule {
        table: "decisions",
        of: IdKind::Decision,
        other: IdKind::Itself,
        found: "not among the decisions of the agent {}",
        expected: "a row in agent_decisions, or to be newer than agents.last_decision and uncounted.since",
        sql: "/* rules.decision_without_index */ SELECT d.environment, d.decision, d.agent, d.agent, d.sequence FROM decisions d CROSS JOIN uncounted u
            JOIN agents a ON a.environment = d.environment AND a.agent = d.agent
            LEFT JOIN agent_decisions o
                ON o.environment = d.environment AND o.agent = d.agent AND o.decision = d.decision
            WHERE o.decision IS NULL AND (d.decision <= a.last_decision OR d.decision < u.since) LIMIT $1",
    },
    Rule {
        table: "agent_decisions",
        of: IdKind::Decision,
        other: IdKind::Itself,
        found: "a decision of the agent {} that is not counted",
        expected: "to be no newer than agents.last_decision",
        sql: "/* rules.index_not_counted */ SELECT o.environment, o.decision, o.agent FROM agents a
            CROSS JOIN agent_decisions o ON o.environment = a.environment AND o.agent = a.agent
            WHERE o.decision > a.last_decision LIMIT $1",
    },
    Rule {
        table: "agents",
        of: IdKind::Itself,
        other: IdKind::Itself,
        found: "{} rows of metering in its newest month",
        expected: "as many rows of usage in agents.newest_month",
        sql: "/* rules.metering_of_newest_month */ SELECT a.environment, a.agent, a.newest_rows FROM agents a
            WHERE a.newest_rows <> (SELECT COUNT(*) FROM usage u
                WHERE u.environment = a.environment AND u.month = a.newest_month AND u.agent = a.agent) LIMIT $1",
    },
];

/// What an agent's row says of its mandate, where that is what decides.
const REVOKED: &[Rule] = &[Rule {
    table: "agents",
    of: IdKind::Itself,
    other: IdKind::Mandate,
    found: "not revoked when mandate {} is",
    expected: "revoked when the mandate that governs is, and not otherwise",
    sql: "/* rules.agent_revoked_otherwise */ SELECT a.environment, a.agent, a.governing FROM agents a
        LEFT JOIN mandates m ON m.environment = a.environment AND m.mandate = a.governing
        WHERE a.revoked_at IS DISTINCT FROM m.revoked_at LIMIT $1",
}];

const RULES: &[Rule] = &[
    Rule {
        table: "api_keys",
        of: IdKind::Itself,
        other: IdKind::Itself,
        found: "agent {}",
        expected: "an agent that is registered in its environment",
        sql: "/* rules.key_without_agent */ SELECT k.environment, k.api_key, k.agent FROM api_keys k
            LEFT JOIN agents a ON a.environment = k.environment AND a.agent = k.agent
            WHERE k.agent IS NOT NULL AND a.agent IS NULL LIMIT $1",
    },
    Rule {
        table: "agents",
        of: IdKind::Itself,
        other: IdKind::Mandate,
        found: "governing mandate {}",
        expected: "a mandate of the agent that is not replaced; none where there are none",
        sql: "/* rules.governing_mandate */ SELECT a.environment, a.agent, a.governing FROM agents a
            LEFT JOIN mandates m
                ON m.environment = a.environment AND m.mandate = a.governing AND m.agent = a.agent
            WHERE (a.governing IS NOT NULL AND (m.mandate IS NULL OR m.replaced_by IS NOT NULL))
               OR (a.governing IS NULL AND EXISTS
                    (SELECT 1 FROM mandates n WHERE n.environment = a.environment AND n.agent = a.agent))
            LIMIT $1",
    },
    Rule {
        table: "agents",
        of: IdKind::Itself,
        other: IdKind::Decision,
        found: "last decision {}",
        expected: "a row of the log, of this agent, or one that a closed month had",
        sql: "/* rules.last_decision_not_there */ SELECT a.environment, a.agent, a.last_decision FROM agents a
            LEFT JOIN decisions d
                ON d.environment = a.environment AND d.decision = a.last_decision AND d.agent = a.agent
            WHERE length(a.last_decision) > 0 AND d.decision IS NULL
                AND NOT EXISTS (SELECT 1 FROM openings p
                    WHERE p.environment = a.environment AND p.agent = a.agent AND p.decision >= a.last_decision) LIMIT $1",
    },
    Rule {
        table: "mandates",
        of: IdKind::Mandate,
        other: IdKind::Mandate,
        found: "replaced by {}",
        expected: "replaced by another mandate of the same agent",
        sql: "/* rules.replaced_by_no_mandate */ SELECT m.environment, m.mandate, m.replaced_by, m.agent, m.governs_from FROM mandates m
            LEFT JOIN mandates n ON n.environment = m.environment AND n.mandate = m.replaced_by
                AND n.agent = m.agent AND n.mandate <> m.mandate
            WHERE m.replaced_by IS NOT NULL AND n.mandate IS NULL LIMIT $1",
    },
    Rule {
        table: "mandates",
        of: IdKind::Mandate,
        other: IdKind::Mandate,
        found: "not governing, and neither revoked nor replaced, or both; {} governs",
        expected: "a mandate that does not govern was either revoked or replaced",
        sql: "/* rules.neither_revoked_nor_replaced */ SELECT m.environment, m.mandate, a.governing, m.agent, m.governs_from FROM mandates m
            JOIN agents a ON a.environment = m.environment AND a.agent = m.agent
            WHERE a.governing <> m.mandate AND (m.replaced_by IS NULL) = (m.revoked_at IS NULL) LIMIT $1",
    },
    Rule {
        table: "decisions",
        of: IdKind::Decision,
        other: IdKind::Itself,
        found: "agent {}",
        expected: "an agent that is registered in its environment",
        sql: "/* rules.decision_without_agent */ SELECT d.environment, d.decision, d.agent, d.agent, d.sequence FROM decisions d
            LEFT JOIN agents a ON a.environment = d.environment AND a.agent = d.agent
            WHERE a.agent IS NULL LIMIT $1",
    },
    Rule {
        table: "decisions",
        of: IdKind::Decision,
        other: IdKind::Mandate,
        found: "mandate {}",
        expected: "a mandate of its agent",
        sql: "/* rules.decision_without_mandate */ SELECT d.environment, d.decision, d.mandate, d.agent, d.sequence FROM decisions d
            LEFT JOIN mandates m ON m.environment = d.environment AND m.mandate = d.mandate AND m.agent = d.agent
            WHERE d.mandate IS NOT NULL AND m.mandate IS NULL LIMIT $1",
    },
    Rule {
        table: "decisions",
        of: IdKind::Decision,
        other: IdKind::Itself,
        found: "signing key {}",
        expected: "an environment, an issuer and a signing key that are there",
        sql: "/* rules.decision_without_signing_key */ SELECT d.environment, d.decision, d.signing_key, d.agent, d.sequence FROM decisions d
            LEFT JOIN environments e ON e.environment = d.environment
            LEFT JOIN issuers i ON i.issuer = d.issuer
            LEFT JOIN signing_keys k ON k.signing_key = d.signing_key
            WHERE e.environment IS NULL OR i.issuer IS NULL OR k.signing_key IS NULL LIMIT $1",
    },
    Rule {
        table: "decisions",
        of: IdKind::Decision,
        other: IdKind::Review,
        found: "review {}",
        expected: "a review where the verdict is review, and only there, that waits for this decision",
        sql: "/* rules.decision_without_review */ SELECT d.environment, d.decision, d.review, d.agent, d.sequence FROM decisions d
            LEFT JOIN reviews r
                ON r.environment = d.environment AND r.review = d.review AND r.decision = d.decision
            WHERE (d.verdict = 'review' AND r.review IS NULL) OR (d.verdict <> 'review' AND d.review IS NOT NULL)
            LIMIT $1",
    },
    Rule {
        table: "decisions",
        of: IdKind::Decision,
        other: IdKind::Decision,
        found: "supersedes {}",
        expected: "supersedes a decision of its agent whose approved review names this one",
        sql: "/* rules.supersedes_no_review */ SELECT d.environment, d.decision, d.supersedes, d.agent, d.sequence FROM decisions d
            LEFT JOIN decisions o ON o.environment = d.environment AND o.decision = d.supersedes
                AND o.agent = d.agent AND o.verdict = 'review' AND o.decision <> d.decision
            LEFT JOIN reviews r ON r.environment = o.environment AND r.review = o.review
                AND r.status = 'approved' AND r.fresh = d.decision
            WHERE d.supersedes IS NOT NULL AND r.review IS NULL
                AND NOT EXISTS (SELECT 1 FROM openings p
                    WHERE p.environment = d.environment AND p.agent = d.agent AND p.sequence >= d.sequence) LIMIT $1",
    },
    Rule {
        table: "decisions",
        of: IdKind::Decision,
        other: IdKind::Itself,
        found: "superseded by {} decisions",
        expected: "superseded by one",
        sql: "/* rules.superseded_twice */ SELECT environment, supersedes, COUNT(*) FROM decisions WHERE supersedes IS NOT NULL
            GROUP BY environment, supersedes HAVING COUNT(*) > 1 LIMIT $1",
    },
    Rule {
        table: "reviews",
        of: IdKind::Review,
        other: IdKind::Decision,
        found: "waits for decision {}",
        expected: "a decision that names this review",
        sql: "/* rules.review_without_decision */ SELECT r.environment, r.review, r.decision FROM reviews r
            LEFT JOIN decisions d
                ON d.environment = r.environment AND d.decision = r.decision AND d.review = r.review
            WHERE d.decision IS NULL LIMIT $1",
    },
    Rule {
        table: "reviews",
        of: IdKind::Review,
        other: IdKind::Itself,
        found: "status {}",
        expected: "a fresh decision that supersedes its own where it is approved, and only there; an instant where it was \
                   approved or denied, and none while it is pending",
        sql: "/* rules.review_status */ SELECT r.environment, r.review, r.status FROM reviews r
            LEFT JOIN decisions f
                ON f.environment = r.environment AND f.decision = r.fresh AND f.supersedes = r.decision
            WHERE (r.status = 'approved' AND f.decision IS NULL)
               OR (r.status <> 'approved' AND r.fresh IS NOT NULL)
               OR (r.status IN ('approved', 'denied') AND r.resolved_at IS NULL)
               OR (r.status = 'pending' AND r.resolved_at IS NOT NULL) LIMIT $1",
    },
    Rule {
        table: "reviews",
        of: IdKind::Review,
        other: IdKind::Itself,
        found: "resolved after sequence {}",
        expected: "where it was denied, the sequence of its decision or a later one of its agent; elsewhere none",
        sql: "/* rules.review_resolved_after */ SELECT r.environment, r.review, r.resolved_after, d.agent, d.sequence FROM reviews r
            JOIN decisions d ON d.environment = r.environment AND d.decision = r.decision
            JOIN agents a ON a.environment = d.environment AND a.agent = d.agent
            WHERE (r.status = 'denied' AND (r.resolved_after IS NULL OR r.resolved_after < d.sequence))
               OR (r.status <> 'denied' AND r.resolved_after IS NOT NULL)
               OR (r.resolved_after > a.sequence AND r.resolved_after > (SELECT MAX(x.sequence) FROM decisions x
                    WHERE x.environment = d.environment AND x.agent = d.agent)) LIMIT $1",
    },
    Rule {
        table: "reviews",
        of: IdKind::Review,
        other: IdKind::Itself,
        found: "resolved by {}",
        expected: "who resolved it where it was approved or denied, and only there; with a signed answer where that is a person, \
                   and only there",
        sql: "/* rules.review_resolved_by */ SELECT r.environment, r.review, r.resolved_by FROM reviews r
            LEFT JOIN answers a ON a.environment = r.environment AND a.review = r.review
            WHERE (r.status IN ('approved', 'denied')) = (r.resolved_by IS NULL)
               OR (COALESCE(r.resolved_by, '') LIKE '{\"kind\":\"person\",%') = (a.answer IS NULL) LIMIT $1",
    },
    Rule {
        table: "answers",
        of: IdKind::Itself,
        other: IdKind::Review,
        found: "to review {}, by a person that it does not name",
        expected: "an answer to a review, by the person who resolved it",
        sql: "/* rules.answer_without_review */ SELECT a.environment, p.name, a.review FROM answers a
            JOIN people p ON p.environment = a.environment AND p.person = a.person
            LEFT JOIN reviews r ON r.environment = a.environment AND r.review = a.review
            WHERE a.review IS NOT NULL AND r.resolved_by IS NULL LIMIT $1",
    },
    Rule {
        table: "usage",
        of: IdKind::Itself,
        other: IdKind::Itself,
        found: "month {}",
        expected: "an agent that is registered in its environment",
        sql: "/* rules.metering_without_agent */ SELECT u.environment, u.agent, u.month FROM usage u
            LEFT JOIN agents a ON a.environment = u.environment AND a.agent = u.agent
            WHERE a.agent IS NULL LIMIT $1",
    },
    Rule {
        table: "idempotency",
        of: IdKind::Itself,
        other: IdKind::Itself,
        found: "API key {}",
        expected: "an API key of its environment",
        sql: "/* rules.answer_without_key */ SELECT i.environment, i.name, i.api_key FROM idempotency i
            LEFT JOIN api_keys k ON k.api_key = i.api_key AND k.environment = i.environment
            WHERE k.api_key IS NULL LIMIT $1",
    },
    Rule {
        table: "escrows",
        of: IdKind::Escrow,
        other: IdKind::Decision,
        found: "made from decision {}",
        expected: "made from an allow decision of its agent, with a history that begins at 0, and first an instruction to lock",
        sql: "/* rules.escrow_without_beginning */ SELECT x.environment, x.escrow, x.decision FROM escrows x
            LEFT JOIN decisions d ON d.environment = x.environment AND d.decision = x.decision
                AND d.verdict = 'allow' AND d.agent = x.agent
            LEFT JOIN escrow_history h ON h.environment = x.environment AND h.escrow = x.escrow AND h.number = 0
            LEFT JOIN instructions i ON i.environment = x.environment AND i.escrow = x.escrow AND i.number = 0
                AND i.action = 'lock'
            WHERE d.decision IS NULL OR h.escrow IS NULL OR i.escrow IS NULL LIMIT $1",
    },
    Rule {
        table: "escrow_history",
        of: IdKind::Escrow,
        other: IdKind::Itself,
        found: "state {}",
        expected: "a settled instruction that leads to it",
        sql: "/* rules.state_without_instruction */ SELECT x.environment, x.escrow, x.state FROM escrow_history x
            LEFT JOIN instructions i ON i.environment = x.environment AND i.escrow = x.escrow AND i.status = 'settled'
                AND i.action = CASE x.state WHEN 'funded' THEN 'lock' WHEN 'released' THEN 'release' ELSE 'refund' END
            WHERE x.state IN ('funded', 'released', 'refunded') AND i.escrow IS NULL LIMIT $1",
    },
    Rule {
        table: "instructions",
        of: IdKind::Escrow,
        other: IdKind::Itself,
        found: "a settled {}",
        expected: "the state that it leads to",
        sql: "/* rules.instruction_without_state */ SELECT x.environment, x.escrow, x.action FROM instructions x
            LEFT JOIN escrow_history h ON h.environment = x.environment AND h.escrow = x.escrow
                AND h.state = CASE x.action WHEN 'lock' THEN 'funded' WHEN 'release' THEN 'released' ELSE 'refunded' END
            WHERE x.status = 'settled' AND h.escrow IS NULL LIMIT $1",
    },
    Rule {
        table: "exports",
        of: IdKind::Export,
        other: IdKind::Itself,
        found: "status {}",
        expected: "rows and sha256 where it is ready, and only there",
        sql: "/* rules.export_status */ SELECT x.environment, x.export, x.status FROM exports x
            WHERE (x.status = 'ready') = (x.rows IS NULL OR x.sha256 IS NULL) LIMIT $1",
    },
];

/// A row that breaks a rule.
#[derive(Debug)]
pub struct Breach {
    /// The tenant.
    pub environment: i64,
    /// The row's id.
    pub id: Value,
    /// The other value.
    pub other: Value,
    /// The agent, where the rule names it.
    pub agent: Option<String>,
    /// The place among the agent's decisions.
    pub sequence: Option<i64>,
}

/// At most `limit` rows that break a rule.
pub fn breaches(tx: &mut Tx<'_>, rule: &Rule, limit: i64) -> Result<Vec<Breach>, Fault> {
    let rows = tx.query(rule.sql, &[limit.into()])?.into_iter();
    rows.map(|mut row| {
        let (environment, id, other) = (row.integer()?, row.value()?, row.value()?);
        let is_placed = !row.rest().is_empty();
        let (agent, sequence) =
            if is_placed { (row.maybe_text()?, row.maybe_integer()?) } else { (None, None) };
        Ok(Breach { environment, id, other, agent, sequence })
    })
    .collect()
}
