//! Whole exports, and what an auditor finds in each, by an agent's sequence.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{check_file, jwks, sandbox};
use crate::base64url;
use crate::export::Trailer;
use crate::json::Object;
use crate::{
    AgentId, Basis, DecisionId, Evaluation, ExportId, Mandate, MandateId, Nonce, PolicyVersion, Request,
    ReviewId, Terms, Timestamp, Total, VERDICT_LIFETIME_SECONDS, Verdict, VerdictClaims, evaluate, jwt,
};

const FILE: &str = include_str!("../../vectors/exports.json");
const ISSUER: &str = "https://verdicts.example";
const POLICY_VERSION: &str = "pol_2026-01-01.1";
/// 2026-01-09T12:00:00Z: the exports begin then.
const NOON: i64 = 1_767_960_000;

/// A decision before it is made.
#[derive(Debug, Clone)]
struct Row {
    agent: &'static str,
    sequence: u64,
    /// When it is decided, and what the time in its id is, in seconds from noon.
    seconds: (i64, i64),
    amount: u32,
    spent: u32,
    /// Which mandate governs.
    mandate: usize,
}

/// An export before it is written.
#[derive(Debug, Clone)]
struct Plan {
    mandates: Vec<Mandate>,
    rows: Vec<Row>,
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(NOON).plus_seconds(seconds)
}

fn mandate(number: u128, agent: &str, seconds: i64, governs_from: u64) -> Mandate {
    let terms = format!(
        r#"{{"principal":"role:cfo","agent":"{agent}","limits":{{"per_transaction":500,"per_month":1000,"currency":"USD"}},
        "categories":["software"],"review_above":200,"expires":"2026-12-31"}}"#
    );
    let terms = Terms::read(Object::parse(terms.as_bytes()).unwrap()).unwrap();
    Mandate { governs_from, ..Mandate::new(MandateId::new(at(seconds), number), terms, at(seconds)) }
}

fn by_key() -> Value {
    json!({"kind": "key", "id": "key_abababababab"})
}

/// Two agents. The mandate of one is replaced behind its second decision, and the next revoked behind its fourth; when the
/// third was made, the clock had been set back by an hour. Of the other agent the first two decisions are before noon.
fn good() -> Plan {
    let (first, next) = (mandate(1, "agt_a", -60, 1), mandate(2, "agt_a", 110, 3));
    let first = Mandate { governed_until: Some(2), replaced_by: Some(next.id), ..first };
    let next = Mandate { revoked_at: Some(at(350)), revoked_after: Some(4), ..next };
    let row = |agent, sequence, seconds, amount, spent, mandate| Row {
        agent,
        sequence,
        seconds: (seconds, seconds),
        amount,
        spent,
        mandate,
    };
    let rows = vec![
        row("agt_a", 1, 0, 40, 0, 0),
        row("agt_b", 3, 50, 30, 120, 2),
        row("agt_a", 2, 100, 600, 40, 0),
        Row { seconds: (-3_500, 100), ..row("agt_a", 3, 0, 25, 40, 1) },
        row("agt_b", 4, 200, 20, 150, 2),
        row("agt_a", 4, 300, 300, 65, 1),
        row("agt_a", 5, 400, 10, 65, 1),
    ];
    Plan { mandates: vec![first, next, mandate(3, "agt_b", -60, 1)], rows }
}

impl Plan {
    /// The lines: the header, the mandates, the governing records, the decisions, and the trailer.
    fn lines(&self) -> Vec<String> {
        let id = ExportId::new(at(1_000), 1);
        let header = json!({"export": {"id": id.to_string(), "environment": "sandbox",
            "policy_version": POLICY_VERSION, "since": at(0).to_string(), "created_at": at(1_000).to_string()}});
        let mandates =
            self.mandates.iter().map(|mandate| json!({ "mandate": mandate.view(at(1_000)) }).to_string());
        let decisions = self.rows.iter().zip(1..).map(|(row, number)| self.decision(row, number));
        let mut lines: Vec<_> = std::iter::once(header.to_string())
            .chain(mandates)
            .chain(self.records())
            .chain(decisions)
            .collect();
        let hash = Sha256::digest(lines.join("\n") + "\n");
        let sha256 = hash.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let rows = u64::try_from(self.rows.len()).unwrap();
        let trailer = Trailer { iss: ISSUER.to_owned(), iat: at(1_000).seconds(), export: id, rows, sha256 };
        lines.push(json!({ "trailer": jwt::sign(&sandbox(), &trailer.to_json()).unwrap() }).to_string());
        lines
    }

    /// The lines of the governing records: of the mandates, and of the one review, which a key has denied.
    fn records(&self) -> Vec<String> {
        let mut records = Vec::new();
        for (at, mandate) in self.mandates.iter().enumerate() {
            let mut created = json!({"type": "mandate.created", "at": mandate.created_at.to_string(),
                "agent": mandate.terms.agent, "mandate": mandate.id.to_string(), "terms": mandate.terms});
            let is_before = |before: &&Mandate| before.replaced_by == Some(mandate.id);
            if let Some(before) = self.mandates[..at].iter().find(is_before) {
                created["replaces"] = json!(before.id.to_string());
            }
            created["governs_from"] = json!(mandate.governs_from);
            records.push(created);
        }
        records.push(self.denial());
        for mandate in &self.mandates {
            if let Some(at) = mandate.revoked_at {
                records.push(json!({"type": "mandate.revoked", "at": at.to_string(), "agent": mandate.terms.agent,
                    "mandate": mandate.id.to_string(), "revoked_after": mandate.revoked_after, "by": by_key()}));
            }
        }
        let hidden = base64url::encode(&[7; 32]);
        let line = |(record, number): (Value, u64)| {
            json!({"governing": record, "number": number, "random": hidden, "blind": hidden}).to_string()
        };
        records.into_iter().zip(1..).map(line).collect()
    }

    /// The governing record of the one review.
    fn denial(&self) -> Value {
        let (row, number) =
            self.rows.iter().zip(1..).find(|(row, _)| (row.agent, row.sequence) == ("agt_a", 4)).unwrap();
        let placed_at = at(row.seconds.1);
        json!({"type": "review.denied", "at": at(310).to_string(), "agent": row.agent,
            "review": ReviewId::new(placed_at, number).to_string(), "decision": DecisionId::new(placed_at, number).to_string(),
            "resolved_after": 4, "by": by_key()})
    }

    /// The line of a decision, by the mandate that it names, revoked if that is revoked for its number in the good export.
    fn decision(&self, row: &Row, number: u128) -> String {
        let (decided_at, placed_at) = (at(row.seconds.0), at(row.seconds.1));
        let mandate = &self.mandates[row.mandate];
        let is_revoked = row.agent == "agt_a" && row.sequence == 5;
        let governs = Mandate { revoked_at: mandate.revoked_at.filter(|_| is_revoked), ..mandate.clone() };
        let body = format!(
            r#"{{"amount":{},"currency":"USD","recipient":"vendor:acme","category":"software"}}"#,
            row.amount
        );
        let agent = AgentId::parse(row.agent).unwrap();
        let request = Request::read(agent, Object::parse(body.as_bytes()).unwrap()).unwrap();
        let basis = Basis { spent: Total::parse(&row.spent.to_string()).unwrap(), recent_requests: 0 };
        let outcome = evaluate(Some(&governs), &basis, &request, decided_at, Evaluation::Request);
        let claims = VerdictClaims {
            iss: ISSUER.to_owned(),
            jti: DecisionId::new(placed_at, number),
            iat: decided_at.seconds(),
            exp: decided_at.seconds() + VERDICT_LIFETIME_SECONDS,
            verdict: outcome.verdict,
            mandate: Some(mandate.id),
            policy_version: PolicyVersion::parse(POLICY_VERSION).unwrap(),
            nonce: Nonce::new(decided_at, number),
            request: request.clone(),
        };
        let claims = claims.to_json();
        let mut shown: Value = serde_json::from_str(&claims).unwrap();
        shown["sequence"] = json!(row.sequence);
        shown["decided_at"] = json!(decided_at.to_string());
        shown["mode"] = json!("enforce");
        if let Some(reason) = outcome.reason {
            shown["reason"] = json!(reason.to_string());
        }
        if !outcome.denials.is_empty() {
            shown["denials"] = json!(outcome.denials);
        }
        shown["basis"] = json!({"spent": row.spent, "recent_requests": 0});
        if outcome.verdict == Verdict::Review {
            shown["review"] = json!({"id": ReviewId::new(placed_at, number).to_string(), "status": "denied",
                "waits_for": "role:cfo", "expires_at": at(86_700).to_string(),
                "resolved_at": at(310).to_string(), "resolved_after": 4, "resolved_by": by_key()});
        }
        shown["verdict_token"] = json!(jwt::sign(&sandbox(), &claims).unwrap());
        json!({ "decision": shown }).to_string()
    }
}

/// An export, and what is found in it: the check, the agent and the sequence.
type Vector = (&'static str, Plan, Option<(&'static str, &'static str, u64)>);

fn vectors() -> Vec<Vector> {
    let changed = |change: fn(&mut Plan)| {
        let mut plan = good();
        change(&mut plan);
        plan
    };
    vec![
        ("two agents, an opening, a replacement, a revocation and a clock that was set back", good(), None),
        ("a decision is missing", changed(|plan| _ = plan.rows.remove(2)), Some(("sequence", "agt_a", 3))),
        (
            "a number is there twice",
            changed(|plan| plan.rows[4].sequence = 3),
            Some(("sequence", "agt_b", 3)),
        ),
        (
            "a decision under a mandate that was replaced before",
            changed(|plan| plan.rows[3].mandate = 0),
            Some(("mandate", "agt_a", 3)),
        ),
        (
            "a revocation before a decision that is not denied for it",
            changed(|plan| plan.mandates[1].revoked_after = Some(3)),
            Some(("revocation", "agt_a", 4)),
        ),
    ]
}

#[test]
fn the_file_is_what_the_plans_say() {
    let vectors: Vec<_> = vectors()
        .into_iter()
        .map(|(name, plan, found)| {
            let found = found.map(
                |(check, agent, sequence)| json!({"check": check, "agent": agent, "sequence": sequence}),
            );
            json!({"name": name, "lines": plan.lines(), "findings": found.into_iter().collect::<Vec<_>>()})
        })
        .collect();
    let description = "Exports as NDJSON, without the line breaks. `findings` is all that an audit finds: the \
        check, the agent, and which of its decisions.";
    let file = json!({"description": description, "issuer": ISSUER, "jwks": jwks(), "vectors": vectors});
    check_file("exports.json", FILE, &file);
}
