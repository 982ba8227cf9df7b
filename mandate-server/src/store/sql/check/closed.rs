//! Rules for what closed months have left. While files are being written, openings count what no file has yet.

use mandate_core::EnvironmentKind;

use super::rules::{IdKind, Rule};
use crate::error::Fault;
use crate::store::tx::Tx;

const ROWS: &str = "/* closed.rows */
    SELECT CAST(COALESCE(SUM(m.rows), 0) AS bigint) FROM closed_months m JOIN environments e ON e.environment = m.environment
    WHERE e.kind = $1";

/// The rules.
pub(super) const CLOSED: &[Rule] = &[
    Rule {
        table: "closed_months",
        of: IdKind::Itself,
        other: IdKind::Itself,
        found: "the file {}",
        expected: "a first and a last decision of a month that an operator closes, in their order",
        sql: "/* rules.file_without_closing */ SELECT m.environment, m.month, m.file FROM closed_months m
            LEFT JOIN closings c ON c.month = m.month
            WHERE c.month IS NULL OR m.last_decision >= c.behind OR m.first_decision > m.last_decision OR m.rows < 1 LIMIT $1",
    },
    Rule {
        table: "openings",
        of: IdKind::Itself,
        other: IdKind::Decision,
        found: "up to decision {}",
        expected: "up to a decision that is in a file of a closed month",
        sql: "/* rules.opening_without_file */ SELECT p.environment, p.agent, p.decision FROM openings p
            WHERE NOT EXISTS (SELECT 1 FROM closings c WHERE c.step = 'writing')
                AND NOT EXISTS (SELECT 1 FROM closed_months m WHERE m.environment = p.environment
                    AND m.first_decision <= p.decision AND m.last_decision >= p.decision) LIMIT $1",
    },
    Rule {
        table: "closed_months",
        of: IdKind::Itself,
        other: IdKind::Itself,
        found: "{} decisions in all files",
        expected: "as many as openings count",
        sql: "/* rules.files_and_openings */ SELECT n.environment, 'all months', n.written FROM (
                SELECT e.environment,
                    (SELECT CAST(COALESCE(SUM(m.rows), 0) AS bigint) FROM closed_months m
                        WHERE m.environment = e.environment) AS written,
                    (SELECT CAST(COALESCE(SUM(p.sequence), 0) AS bigint) FROM openings p
                        WHERE p.environment = e.environment) AS counted
                FROM environments e) n
            WHERE n.written <> n.counted AND NOT EXISTS (SELECT 1 FROM closings c WHERE c.step = 'writing') LIMIT $1",
    },
];

/// How many decisions the files of closed months have, of environments of a kind.
pub fn closed_rows(tx: &mut Tx<'_>, kind: EnvironmentKind) -> Result<i64, Fault> {
    tx.one_row(ROWS, &[kind.as_str().into()])?.integer()
}
