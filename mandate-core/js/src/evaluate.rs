//! The policy engine: `{"mandate"?, "basis", "request", "now", "approval"?}` in, verdict, denials and reason out.
//!
//! `mandate` is the body of POST /v1/mandates or a mandate as the API shows it; without it the agent has none. `basis` is that of a
//! decision; `request` the body of POST /v1/authorizations with `agent`. `now` is in milliseconds.

use mandate_core::json::{Field, Object};
use mandate_core::{
    AgentId, Basis, Denials, Evaluation, Invalid, Mandate, MandateId, Request, Terms, Timestamp, Verdict,
};
use serde::Serialize;

use crate::report::Refusal;

/// The engine's answer.
#[derive(Debug, Serialize)]
pub(crate) struct Decided {
    verdict: Verdict,
    denials: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// What the API adds to a mandate's terms, and the engine does not read.
const ADDED: [&str; 6] =
    ["status", "created_at", "replaced_by", "governs_from", "revoked_after", "governed_until"];

pub(crate) fn evaluate(question: &str) -> Result<Decided, Refusal> {
    decide(question).map_err(|refused| Refusal { exit: "InvalidRequest", ..Refusal::usage(&refused) })
}

fn decide(question: &str) -> Result<Decided, Invalid> {
    let mut question = Object::parse_as("question", question.as_bytes())?;
    let now = Timestamp::from_millis(question.require("now")?.integer()?);
    let mandate = question.take("mandate").filter(|field| !field.is_null());
    let mandate = mandate.map(|field| read_mandate(&field)).transpose()?;
    let basis = Basis::read(question.require("basis")?.object()?)?;
    let mut request = question.require("request")?.object()?;
    let agent = AgentId::parse(&request.require("agent")?.string()?)?;
    let request = Request::read(agent, request)?;
    let approval = question.take("approval").map(|field| field.boolean()).transpose()?;
    question.finish()?;
    let evaluation = if approval == Some(true) { Evaluation::Approval } else { Evaluation::Request };
    let outcome = mandate_core::evaluate(mandate.as_ref(), &basis, &request, now, evaluation);
    let denials: Denials = outcome.denials;
    Ok(Decided {
        verdict: outcome.verdict,
        denials: denials.iter().map(Verdict::as_str).collect(),
        reason: outcome.reason.map(|reason| reason.to_string()),
    })
}

fn read_mandate(field: &Field<'_>) -> Result<Mandate, Invalid> {
    let mut body = field.object()?;
    let id = body.take("id").map(|id| MandateId::parse(&id.string()?)).transpose()?;
    let revoked_at = body.take("revoked_at").map(|at| Timestamp::parse(&at.string()?)).transpose()?;
    for name in ADDED {
        body.take(name);
    }
    let epoch = Timestamp::from_seconds(0);
    let mandate = Mandate::new(id.unwrap_or_else(|| MandateId::new(epoch, 0)), Terms::read(body)?, epoch);
    Ok(Mandate { revoked_at, ..mandate })
}
