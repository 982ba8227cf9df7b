//! The proof that the log has a token's decision.

use mandate_core::log::{LogProof, Policy, VerifierKey};
use serde::Serialize;

use crate::report::Refusal;

/// A checkpoint that has the decision.
#[derive(Debug, Serialize)]
pub(crate) struct Proved {
    origin: String,
    /// How many entries the log had.
    size: u64,
    /// Which of them, from 0, is the decision's.
    index: u64,
    root: String,
    /// The witnesses of the policy that have cosigned the checkpoint.
    witnesses: Vec<Witness>,
}

/// A witness, and when it has cosigned, in seconds.
#[derive(Debug, Serialize)]
struct Witness {
    name: String,
    at: i64,
}

/// What the verifier relies on, never taken from the proof.
#[derive(Debug)]
pub(crate) struct Trusted {
    /// The log's pinned key.
    pub(crate) log: Option<String>,
    /// The text of a policy.
    pub(crate) policy: Option<String>,
}

pub(crate) fn verify(token: &str, proof: &[u8], trusted: &Trusted) -> Result<Proved, Refusal> {
    if trusted.log.is_none() && trusted.policy.is_none() {
        return Err(usage(
            "logKey or policy must be given: whom to trust is never taken from a proof".to_owned(),
        ));
    }
    let log = trusted.log.as_deref().map(VerifierKey::parse).transpose();
    let log = log.map_err(|refused| usage(format!("logKey is refused: {refused}")))?;
    let policy =
        trusted.policy.as_ref().map_or_else(|| Ok(Policy::none()), |text| Policy::parse(text.as_bytes()));
    let policy = policy.map_err(|refused| usage(format!("policy is refused: {refused}")))?;
    let proof = LogProof::parse(proof).map_err(|refused| failed(refused.name(), &refused))?;
    let accepted = proof.verify_decision(token, log.as_ref(), &policy);
    let accepted = accepted.map_err(|refused| failed(refused.name(), &refused))?;
    let witnesses =
        accepted.cosigned.into_iter().map(|(name, cosigned)| Witness { name, at: cosigned.seconds });
    Ok(Proved {
        origin: accepted.checkpoint.origin().to_owned(),
        size: accepted.checkpoint.size(),
        index: proof.index,
        root: accepted.checkpoint.root().to_string(),
        witnesses: witnesses.collect(),
    })
}

fn usage(message: String) -> Refusal {
    Refusal { check: None, message, exit: "Usage" }
}

fn failed(check: &'static str, refused: &impl ToString) -> Refusal {
    Refusal { check: Some(check), message: refused.to_string(), exit: "NotProved" }
}
