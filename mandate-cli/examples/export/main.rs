//! Writes an export as the service does, of any length, with an issuer of its own: for tests, and to measure.
//!
//! `cargo run --release -p mandate-cli --example export -- 1000000 export.ndjson jwks.json`, and for tokens alone
//! `cargo run --release -p mandate-cli --example export -- tokens 100000 tokens.txt jwks.json`
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    dead_code,
    reason = "this is for tests and measurements"
)]

mod decider;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

use mandate_core::es256::{SecretKey, Signer, signer};
use mandate_core::json::Object;
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::{
    AgentId, DecisionId, EnvironmentKind, ExportId, Mandate, MandateId, Nonce, PolicyVersion, Request,
    Timestamp, VERDICT_LIFETIME_SECONDS, Verdict, VerdictClaims, jwt,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use self::decider::decided;

pub(crate) const ISSUER: &str = "https://verdicts.example";
/// 2026-01-20T00:00:00Z.
const START_MILLIS: i64 = 1_768_867_200_000;
const STEP_MILLIS: i64 = 4_100;
pub(crate) const AGENTS: usize = 5;

/// What is exported.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) rows: usize,
    pub(crate) seed: u64,
    pub(crate) mode: &'static str,
    /// Of how many reviews one is approved; none when 0.
    pub(crate) approve_every: u64,
    /// Terms for each agent, in place of its usual ones.
    pub(crate) terms: HashMap<usize, String>,
    /// Whether mandates are replaced and revoked on the way.
    pub(crate) changes: bool,
    /// Whether two servers decide, whose clocks are apart and step.
    pub(crate) steps: bool,
}

impl Plan {
    pub(crate) fn new(rows: usize, seed: u64) -> Self {
        Self {
            rows,
            seed,
            mode: "enforce",
            approve_every: 2,
            terms: HashMap::new(),
            changes: true,
            steps: false,
        }
    }

    /// The same with clocks that step.
    pub(crate) fn stepping(rows: usize, seed: u64) -> Self {
        Self { steps: true, ..Self::new(rows, seed) }
    }
}

/// The signer of the export.
pub(crate) fn key() -> Arc<dyn Signer> {
    let secret = SecretKey::from_bytes([9; 32]).unwrap();
    signer(&secret, Kid::for_key(secret.public_key(), EnvironmentKind::Sandbox)).unwrap()
}

pub(crate) fn jwks() -> String {
    let key = key();
    KeySet::new(vec![VerificationKey::new(key.kid().clone(), *key.public_key()).unwrap()]).unwrap().to_json()
}

/// The trailer's line for the lines before it.
pub(crate) fn trailer(export: ExportId, rows: usize, sha256: &[u8]) -> String {
    let hash = sha256.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    let claims =
        format!(r#"{{"iss":"{ISSUER}","iat":1,"export":"{export}","rows":{rows},"sha256":"{hash}"}}"#);
    format!(r#"{{"trailer":"{}"}}"#, jwt::sign(&*key(), &claims).unwrap())
}

pub(crate) fn export_id() -> ExportId {
    ExportId::new(Timestamp::from_millis(START_MILLIS), 1)
}

/// The usual terms of an agent.
pub(crate) fn terms(agent: usize) -> String {
    let month = if agent == 4 { "" } else { r#""per_month":3000,"# };
    let review = if agent == 0 { "" } else { r#""review_above":200,"# };
    format!(
        r#"{{"principal":"role:cfo","agent":"agt_{agent}","limits":{{"per_transaction":400,{month}"currency":"USD"}},"categories":["software","cloud"],{review}"expires":"2027-12-31"}}"#
    )
}

/// Writes the export, a line at a time.
pub(crate) fn write(plan: &Plan, emit: &mut dyn FnMut(&str)) {
    let mut hash = Sha256::new();
    let mut rows = 0;
    let mut line = |text: &str| {
        hash.update(text);
        hash.update("\n");
        emit(text);
        hash.clone()
    };
    let header = format!(
        r#"{{"export":{{"id":"{}","environment":"sandbox","policy_version":"pol_2026-01-01.1","created_at":"2026-06-01T00:00:00.000Z"}}}}"#,
        export_id()
    );
    line(&header);
    // Mandates come first, with what is known of them at the end; then the governing records: those of answers to reviews, of
    // each agent's first mandate, and of what became of mandates.
    let mut records = Vec::new();
    let agents = decided(plan, None, &mut |text| records.extend(answer(text)));
    for agent in &agents {
        for mandate in agent.mandates.iter().filter(|mandate| agent.named.contains(&mandate.id)) {
            line(&format!(r#"{{"mandate":{}}}"#, serde_json::to_string(&mandate.view(at(0))).unwrap()));
        }
    }
    records
        .extend(agents.iter().filter_map(|agent| agent.mandates.first()).map(|first| granted(first, None)));
    records.extend(agents.iter().flat_map(|agent| changes(&agent.mandates)));
    for (record, number) in records.iter().zip(1..) {
        line(&governing(record, number));
    }
    let mut before = None;
    decided(plan, Some(key()), &mut |text| {
        rows += 1;
        before = Some(line(text));
    });
    let sha256 = before.unwrap_or_else(|| line("")).finalize();
    line(&trailer(export_id(), rows, &sha256));
}

/// The governing record of the answer to a decision's review, if it was answered.
pub(crate) fn answer(line: &str) -> Option<Value> {
    if !line.contains(r#""resolved_at""#) {
        return None;
    }
    let line: Value = serde_json::from_str(line).unwrap();
    let decision = &line["decision"];
    let review = &decision["review"];
    let mut record = json!({
        "type": format!("review.{}", review["status"].as_str().unwrap()), "at": review["resolved_at"],
        "agent": decision["request"]["agent"], "review": review["id"], "decision": decision["jti"],
        "resolved_after": review.get("resolved_after").unwrap_or(&decision["sequence"]), "by": review["resolved_by"],
    });
    for (name, value) in [("fresh", &review["decision"]), ("reason", &review["reason"])] {
        if !value.is_null() {
            record[name] = value.clone();
        }
    }
    Some(record)
}

/// The governing record of a mandate, and of the one before it.
pub(crate) fn granted(mandate: &Mandate, before: Option<&Mandate>) -> Value {
    let mut record = json!({"type": "mandate.created", "at": mandate.created_at, "agent": mandate.terms.agent,
        "mandate": mandate.id, "terms": mandate.terms});
    if let Some(before) = before.filter(|before| before.replaced_by.is_some()) {
        record["replaces"] = json!(before.id);
    }
    record["governs_from"] = json!(mandate.governs_from);
    record
}

/// The governing record of a mandate that a key has revoked.
pub(crate) fn revoked(mandate: &Mandate) -> Option<Value> {
    let at = mandate.revoked_at?;
    Some(json!({"type": "mandate.revoked", "at": at, "agent": mandate.terms.agent, "mandate": mandate.id,
        "revoked_after": mandate.revoked_after, "by": {"kind": "key", "id": "key_abababababab"}}))
}

/// The governing records of what became of an agent's mandates.
fn changes(mandates: &[Mandate]) -> Vec<Value> {
    let next = mandates.iter().skip(1).map(Some).chain([None]);
    let of_one = |(mandate, next): (&Mandate, Option<&Mandate>)| {
        revoked(mandate).into_iter().chain(next.map(|next| granted(next, Some(mandate)))).collect::<Vec<_>>()
    };
    mandates.iter().zip(next).flat_map(of_one).collect()
}

/// The line of a governing record.
pub(crate) fn governing(record: &Value, number: u64) -> String {
    let hidden = "A".repeat(43);
    format!(r#"{{"governing":{record},"number":{number},"random":"{hidden}","blind":"{hidden}"}}"#)
}

fn at(row: usize) -> Timestamp {
    Timestamp::from_millis(START_MILLIS + STEP_MILLIS * i64::try_from(row).unwrap())
}

/// The export as lines.
pub(crate) fn lines(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    write(plan, &mut |line| lines.push(line.to_owned()));
    lines
}

/// The lines as a file, under a new trailer for what comes before the last line.
pub(crate) fn sealed(lines: &[String]) -> String {
    let (_, before) = lines.split_last().unwrap();
    let rows = before.iter().filter(|line| line.starts_with(r#"{"decision""#)).count();
    let text = before.join("\n") + "\n";
    let seal = trailer(export_id(), rows, &Sha256::digest(&text));
    format!("{text}{seal}\n")
}

/// A token that allows, each of its own nonce, all of one moment: the first of an export.
fn token(signer: &dyn Signer, number: u64) -> String {
    let body = r#"{"amount":40,"currency":"USD","recipient":"vendor:acme","category":"software"}"#;
    let agent = AgentId::parse("agt_0").unwrap();
    let claims = VerdictClaims {
        iss: ISSUER.to_owned(),
        jti: DecisionId::new(at(0), u128::from(number)),
        iat: at(0).seconds(),
        exp: at(0).seconds() + VERDICT_LIFETIME_SECONDS,
        verdict: Verdict::Allow,
        mandate: Some(MandateId::new(at(0), 1)),
        policy_version: PolicyVersion::parse("pol_2026-01-01.1").unwrap(),
        nonce: Nonce::new(at(0), u128::from(number)),
        request: Request::read(agent, Object::parse(body.as_bytes()).unwrap()).unwrap(),
    };
    jwt::sign(signer, &claims.to_json()).unwrap()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let ([_, rows, path, jwks_path] | [_, "tokens", rows, path, jwks_path]) = args.as_slice() else {
        eprintln!("export ROWS EXPORT JWKS\nexport tokens COUNT TOKENS JWKS");
        std::process::exit(2);
    };
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    if args.len() == 4 {
        write(&Plan::new(rows.parse().unwrap(), 7), &mut |line| writeln!(file, "{line}").unwrap());
    } else {
        let signer = key();
        (0..rows.parse().unwrap()).for_each(|n| writeln!(file, "{}", token(&*signer, n)).unwrap());
    }
    file.flush().unwrap();
    std::fs::write(jwks_path, jwks()).unwrap();
}
