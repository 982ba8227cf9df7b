//! The check that the verdict's decision is in the public log, by a proof that the agent or `mandate log proof` has brought.

use super::Verify;
use super::report::{Report, Status};
use crate::exit::{Exit, Failure};
use crate::public_log::place::Place;
use crate::public_log::proof::{self, Proved};
use crate::public_log::trust::TrustArgs;

/// Checks the proof of a token that passed all other checks, if one was given. A log's key without a proof is refused: the
/// caller would believe that the log was asked.
pub(super) fn check(report: &mut Report, args: &Verify, token: &str, issuer: &str) -> Result<(), Failure> {
    let Some(source) = &args.proof else { return without(&args.trust) };
    let place = Place::read(&format!("{}/log/{}", issuer.trim_end_matches('/'), proof::kind(token)?))?;
    let trust = args.trust.trust(&place)?;
    match proof::check(token, &proof::read(source)?, &trust) {
        // A policy may accept logs of several services.
        Ok(Proved { accepted, .. })
            if trust.key.is_none() && !place.may_have(accepted.checkpoint.origin()) =>
        {
            let origin = accepted.checkpoint.origin();
            report.refuse("origin", format!("the log {origin} is not that of the issuer"), Exit::NotProved);
        }
        Ok(Proved { index, accepted }) => {
            let checkpoint = &accepted.checkpoint;
            let entry = format!("{}, entry {index} of {}", checkpoint.origin(), checkpoint.size());
            report.line("log", Status::Passed, entry);
            let is_asked = !trust.policy.asks_for_no_witness();
            let status = if is_asked { Status::Passed } else { Status::NotCompared };
            report.line("witnesses", status, proof::witnesses(&accepted));
        }
        Err(unproved) => {
            let refused = unproved.refused();
            report.refuse(refused.check, refused.to_string(), unproved.exit());
        }
    }
    Ok(())
}

/// Refuses the options of a proof where there is none.
pub(super) fn without(trust: &TrustArgs) -> Result<(), Failure> {
    if trust.log_key.is_none() && trust.policy.is_none() {
        return Ok(());
    }
    Err(Failure::new(Exit::Usage, "--log-key and --policy are for a proof, and there is none")
        .next("pass --proof FILE; `mandate log proof` fetches it"))
}
