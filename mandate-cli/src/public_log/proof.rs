//! The proof that a token's decision is in the log.

use mandate_core::jwt::Unverified;
use mandate_core::log::{Accepted, LogProof, MAX_PROOF_BYTES, MerkleRefused, NotProved};
use mandate_core::{EnvironmentKind, Timestamp, VerdictClaims};

use super::Refused;
use super::trust::{Trust, cosigned_at};
use crate::exit::{Exit, Failure};
use crate::input::Source;

/// A proof that was checked.
#[derive(Debug)]
pub(crate) struct Proved {
    /// Which entry of the log it is, from 0.
    pub(crate) index: u64,
    pub(crate) accepted: Accepted,
}

/// Why a token is not proved to be in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unproved {
    /// The checkpoint is of a time before the token's entry.
    NotYet(Refused),
    /// Something is wrong with the proof.
    Refused(Refused),
}

impl Unproved {
    pub(crate) fn refused(&self) -> &Refused {
        match self {
            Self::NotYet(refused) | Self::Refused(refused) => refused,
        }
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::NotYet(_) => Exit::NotLogged,
            Self::Refused(_) => Exit::NotProved,
        }
    }
}

/// Checks the proof of a token's decision. The token's own signature and claims are not checked.
pub(crate) fn check(token: &str, proof: &[u8], trust: &Trust) -> Result<Proved, Unproved> {
    let proof = match LogProof::parse(proof) {
        Ok(proof) => proof,
        Err(e) => return Err(without_proof(proof, trust, Refused::new(e.name(), e))),
    };
    match proof.verify_decision(token, trust.key.as_ref(), &trust.policy) {
        Ok(accepted) => Ok(Proved { index: proof.index, accepted }),
        Err(e) => {
            let refused = Refused::new(e.name(), &e);
            Err(if is_younger(token, &proof, &e, trust) {
                Unproved::NotYet(refused)
            } else {
                Unproved::Refused(refused)
            })
        }
    }
}

/// A checkpoint alone shows what the log had at its time, and no more.
fn without_proof(bytes: &[u8], trust: &Trust, refused: Refused) -> Unproved {
    match trust.read(bytes) {
        Ok((_, accepted)) => {
            let size = accepted.checkpoint.size();
            let why = format!(
                "this is a checkpoint of {size} entries, and no proof that one of them is the token's"
            );
            Unproved::NotYet(Refused::new(refused.check, why))
        }
        Err(_) => Unproved::Refused(refused),
    }
}

/// Whether the checkpoint is older than the token's entry: the log had fewer entries, or its witnesses saw it before the token
/// was issued.
fn is_younger(token: &str, proof: &LogProof, error: &NotProved, trust: &Trust) -> bool {
    match error {
        NotProved::Inclusion(MerkleRefused::Index { .. }) => true,
        NotProved::Inclusion(_) => {
            let cosigned = trust.accept(&proof.checkpoint).ok().and_then(|accepted| cosigned_at(&accepted));
            let issued = issued_at(token);
            cosigned.zip(issued).is_some_and(|(cosigned, issued)| cosigned < issued.seconds())
        }
        _ => false,
    }
}

/// When the token says that it was issued.
pub(crate) fn issued_at(token: &str) -> Option<Timestamp> {
    claims(token).map(|claims| Timestamp::from_seconds(claims.iat))
}

/// By whom the token says that it was issued.
pub(crate) fn issuer(token: &str) -> Option<String> {
    claims(token).map(|claims| claims.iss)
}

fn claims(token: &str) -> Option<VerdictClaims> {
    VerdictClaims::read(Unverified::parse(token).ok()?.unverified_claims()).ok()
}

/// The kind of environment that the token's key says it is of.
pub(crate) fn kind(token: &str) -> Result<EnvironmentKind, Failure> {
    let unverified = Unverified::parse(token)
        .map_err(|e| Failure::new(Exit::MalformedToken, format!("the token is refused: {e}")))?;
    Ok(if unverified.kid().is_sandbox() { EnvironmentKind::Sandbox } else { EnvironmentKind::Production })
}

/// The bytes of a proof in a file or from standard input.
pub(crate) fn read(source: &Source) -> Result<Vec<u8>, Failure> {
    Ok(source.read("the proof", MAX_PROOF_BYTES, Exit::NotProved)?.into_bytes())
}

/// The witnesses that have cosigned, with their times, for people.
pub(crate) fn witnesses(accepted: &Accepted) -> String {
    if accepted.cosigned.is_empty() {
        return "none asked for".to_owned();
    }
    let shown = accepted
        .cosigned
        .iter()
        .map(|(name, cosigned)| format!("{name} at {}", Timestamp::from_seconds(cosigned.seconds)));
    shown.collect::<Vec<_>>().join(", ")
}
