//! Rules for the places among an agent's decisions: the sequence in its row, and those that its mandates name.

use super::rules::{IdKind, Rule};

/// The rules. Where an agent has decisions, the log is compared with them too.
pub(super) const SEQUENCES: &[Rule] = &[
    Rule {
        table: "agents",
        of: IdKind::Itself,
        other: IdKind::Itself,
        found: "sequence {} without a last decision",
        expected: "sequence 0 where there is no last decision",
        sql: "/* rules.sequence_without_decision */ SELECT a.environment, a.agent, a.sequence, a.agent, a.sequence FROM agents a
            WHERE length(a.last_decision) = 0 AND a.sequence <> 0 LIMIT $1",
    },
    Rule {
        table: "mandates",
        of: IdKind::Mandate,
        other: IdKind::Itself,
        found: "governs from sequence {} on or ends behind 0, and its agent has no decision",
        expected: "governs_from 1, and revoked_after and governed_until of 0 or none, where its agent has no decision",
        sql: "/* rules.mandate_ahead_of_no_decision */ SELECT m.environment, m.mandate, m.governs_from, m.agent, m.governs_from FROM mandates m
            JOIN agents a ON a.environment = m.environment AND a.agent = m.agent AND length(a.last_decision) = 0
            LEFT JOIN (SELECT DISTINCT environment, agent FROM decisions) d
                ON d.environment = m.environment AND d.agent = m.agent
            WHERE d.agent IS NULL AND (m.governs_from <> 1 OR m.revoked_after > 0 OR m.governed_until > 0) LIMIT $1",
    },
    Rule {
        table: "mandates",
        of: IdKind::Mandate,
        other: IdKind::Itself,
        found: "governs from sequence {} on, and its ends do not fit",
        expected: "revoked_after where it is revoked, and only there; governed_until where another mandate governs, and only \
                   there; the mandate that replaced it governs from the next sequence on",
        sql: "/* rules.mandate_ends_do_not_fit */ SELECT m.environment, m.mandate, m.governs_from, m.agent, m.governs_from FROM mandates m
            JOIN agents a ON a.environment = m.environment AND a.agent = m.agent
            LEFT JOIN mandates n ON n.environment = m.environment AND n.mandate = m.replaced_by
            WHERE (m.revoked_at IS NULL) <> (m.revoked_after IS NULL)
               OR (a.governing = m.mandate) <> (m.governed_until IS NULL)
               OR n.governs_from <> m.governed_until + 1 LIMIT $1",
    },
    Rule {
        table: "mandates",
        of: IdKind::Mandate,
        other: IdKind::Itself,
        found: "governs until another that governs from sequence {} on",
        expected: "each sequence of an agent governed by one mandate: the next governs from governed_until + 1 on",
        sql: "/* rules.mandates_overlap_or_leave_a_gap */ SELECT w.environment, w.mandate, w.next, w.agent, w.governs_from
            FROM (SELECT environment, mandate, agent, governs_from, governed_until,
                    LEAD(governs_from) OVER (PARTITION BY environment, agent
                        ORDER BY governs_from, COALESCE(governed_until, 9223372036854775807), mandate) AS next
                FROM mandates) w
            WHERE w.next IS NOT NULL AND (w.governed_until IS NULL OR w.next <> w.governed_until + 1) LIMIT $1",
    },
    Rule {
        table: "mandates",
        of: IdKind::Mandate,
        other: IdKind::Itself,
        found: "governs from sequence {} on, and ended or was revoked outside what it governs",
        expected: "governed_until and revoked_after of governs_from - 1 or greater, and revoked_after no greater than \
                   governed_until",
        sql: "/* rules.mandate_ended_outside */ SELECT m.environment, m.mandate, m.governs_from, m.agent, m.governs_from FROM mandates m
            WHERE m.governed_until < m.governs_from - 1 OR m.revoked_after < m.governs_from - 1
               OR m.revoked_after > m.governed_until LIMIT $1",
    },
];
