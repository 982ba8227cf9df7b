//! The checks of one token: the core's verification, with a line for each step.

use mandate_core::jwks::{KeySet, Kid};
use mandate_core::jwt::{TokenRefused, Unverified};
use mandate_core::replay::NonceStore;
use mandate_core::verify::{
    Expected, NotClaimed, TokenKind, VerifiedEvent, VerifiedVerdict, VerifyError, verify_event,
    verify_verdict,
};
use mandate_core::{EnvironmentKind, EventClaims, Timestamp, VerdictClaims};
use serde_json::value::RawValue;

use super::Verify;
use super::order::Wanted;
use super::report::{Line, Report, SANDBOX, Status};
use crate::exit::{Exit, Failure};
use crate::nonce_store::NonceFileError;

/// The name of what `replay` compares, among what was not compared.
pub(super) const NONCE: &str = "nonce";

/// A token that passed every check except that of its nonce.
pub(super) enum Verified {
    Verdict(VerifiedVerdict),
    Event(VerifiedEvent),
}

/// What is the same for every token of a run.
#[derive(Clone, Copy)]
pub(super) struct Verifier<'a> {
    pub(super) args: &'a Verify,
    pub(super) issuer: &'a str,
}

/// The claims of a verified token, by its kind.
enum TokenClaims<'a> {
    Verdict(&'a VerdictClaims),
    Event(&'a EventClaims<String>),
    Nothing,
}

impl Verifier<'_> {
    /// Makes every check of `token` except the last.
    pub(super) fn check(
        &self,
        token: &str,
        keys: &KeySet,
        wanted: &Wanted,
        now: Timestamp,
    ) -> (Report, Option<Verified>) {
        let expected = self.expected(wanted, now);
        let verified = if self.args.event {
            verify_event(token, keys, &expected).map(Verified::Event)
        } else {
            verify_verdict(token, keys, &expected).map(Verified::Verdict)
        };
        match verified {
            Ok(verified) => {
                let report = match &verified {
                    Verified::Verdict(v) => Report::passed(
                        self.lines(v.kid(), &TokenClaims::Verdict(v.claims()), &expected),
                        raw(token),
                    ),
                    Verified::Event(e) => Report::passed(
                        self.lines(e.kid(), &TokenClaims::Event(e.claims()), &expected),
                        raw(token),
                    ),
                };
                (report, Some(verified))
            }
            Err(error) => (self.refused(token, &expected, &error), None),
        }
    }

    fn expected(&self, wanted: &Wanted, now: Timestamp) -> Expected<'_> {
        let Wanted { amount, currency, recipient, mandate } = wanted.clone();
        Expected {
            leeway: self.args.leeway,
            environment: (!self.args.allow_sandbox).then_some(EnvironmentKind::Production),
            // What is not compared is said at the end, beside all that was.
            signature_only: true,
            amount,
            currency,
            recipient,
            mandate,
            ..Expected::new(self.issuer, now)
        }
    }

    /// The report of a token that failed with `error`: the checks before it, and the failed one.
    fn refused(&self, token: &str, expected: &Expected<'_>, error: &VerifyError) -> Report {
        let mut lines = Vec::new();
        if let Ok(unverified) = Unverified::parse(token) {
            // The claims are shown for checks after the signature's, so they were signed.
            let claims = unverified.unverified_claims();
            lines = if self.args.event {
                let claims = EventClaims::read(claims).ok();
                self.lines(
                    unverified.kid(),
                    &claims.as_ref().map_or(TokenClaims::Nothing, TokenClaims::Event),
                    expected,
                )
            } else {
                let claims = VerdictClaims::read(claims).ok();
                self.lines(
                    unverified.kid(),
                    &claims.as_ref().map_or(TokenClaims::Nothing, TokenClaims::Verdict),
                    expected,
                )
            };
            let stop = match error {
                VerifyError::Token(_) => "signature",
                VerifyError::Claims(_) => "kind",
                other => other.name(),
            };
            let passed = lines.iter().position(|line| line.check == stop);
            lines.truncate(passed.unwrap_or(lines.len()));
        }
        let mut report = Report::passed(lines, None);
        report.refuse(error.name(), error.to_string(), exit_of(error));
        report
    }

    /// All checks with a value to show, in order, as if they had passed.
    fn lines(&self, kid: &Kid, said: &TokenClaims<'_>, expected: &Expected<'_>) -> Vec<Line> {
        let line = Line::new;
        let compared = |is_expected| if is_expected { Status::Passed } else { Status::NotCompared };
        let asked = if self.args.event { TokenKind::Event } else { TokenKind::Verdict };
        let mut lines = vec![
            line("algorithm", Status::Passed, "ES256".to_owned()),
            line("signature", Status::Passed, kid.to_string()),
            line("kind", Status::Passed, asked.to_string()),
        ];
        let (iss, iat) = match said {
            TokenClaims::Verdict(claims) => (&claims.iss, claims.iat),
            TokenClaims::Event(claims) => (&claims.iss, claims.iat),
            TokenClaims::Nothing => return lines,
        };
        let instant = |seconds| Timestamp::from_seconds(seconds).to_string();
        let (status, environment) =
            if kid.is_sandbox() { (Status::Noted, SANDBOX) } else { (Status::Passed, "production") };
        lines.extend([
            line("issuer", Status::Passed, iss.clone()),
            line("environment", status, environment.to_owned()),
            line("issued_at", Status::Passed, instant(iat)),
        ]);
        match said {
            TokenClaims::Verdict(claims) => {
                let request = &claims.request;
                let mandate = claims.mandate.map_or_else(|| "none".to_owned(), |id| id.to_string());
                lines.extend([
                    line("expiry", Status::Passed, instant(claims.exp)),
                    line("verdict", Status::Passed, claims.verdict.to_string()),
                    line("amount", compared(expected.amount.is_some()), request.amount.to_string()),
                    line("currency", compared(expected.currency.is_some()), request.currency.to_string()),
                    line("recipient", compared(expected.recipient.is_some()), request.recipient.to_string()),
                    line("mandate", compared(expected.mandate.is_some()), mandate),
                ]);
            }
            TokenClaims::Event(claims) => lines.extend([
                line("type", Status::Noted, claims.kind.clone()),
                line("data", Status::Noted, claims.data.clone()),
            ]),
            TokenClaims::Nothing => {}
        }
        lines
    }
}

/// Makes the last check: that the nonce, or the event, is new. The nonce of a verdict is claimed only if amount, currency
/// and recipient were compared.
pub(super) fn claim<S: NonceStore<Error = NonceFileError>>(
    report: &mut Report,
    verified: &Verified,
    args: &Verify,
    nonces: Option<&S>,
    now: Timestamp,
) -> Result<(), Failure> {
    let (id, missing) = match verified {
        Verified::Verdict(verdict) => (verdict.claims().nonce.to_string(), verdict.not_compared()),
        Verified::Event(event) => (event.claims().jti.to_string(), &[][..]),
    };
    let Some(nonces) = nonces.filter(|_| missing.is_empty()) else {
        let status = if args.nonce_elsewhere { Status::Elsewhere } else { Status::NotCompared };
        report.line("replay", status, id);
        if matches!(verified, Verified::Verdict(_)) {
            let nonce = (!args.nonce_elsewhere).then_some(NONCE);
            report.not_compared([missing, nonce.as_slice()].concat(), args.signature_only);
        }
        return Ok(());
    };
    let claimed = match verified {
        Verified::Verdict(verdict) => verdict.claim_nonce(nonces, now),
        Verified::Event(event) => event.claim_id(nonces, now),
    };
    match claimed {
        Ok(()) => {
            report.line("replay", Status::Passed, format!("{id}, seen for the first time"));
            if matches!(verified, Verified::Verdict(_)) {
                report.not_compared(Vec::new(), false);
            }
            report.note_claim(id);
        }
        Err(NotClaimed::Store(e)) => return Err(e.into()),
        Err(e @ NotClaimed::Expired) => report.refuse(e.name(), e.to_string(), Exit::Expired),
        Err(e @ NotClaimed::Replayed { .. }) => report.refuse(e.name(), e.to_string(), Exit::Replayed),
    }
    Ok(())
}

/// The claims of a verified token, as they were signed.
fn raw(token: &str) -> Option<Box<RawValue>> {
    let unverified = Unverified::parse(token).ok()?;
    let text = std::str::from_utf8(unverified.unverified_claims()).ok()?;
    RawValue::from_string(text.to_owned()).ok()
}

fn exit_of(error: &VerifyError) -> Exit {
    match error {
        VerifyError::Token(TokenRefused::UnknownKey { .. } | TokenRefused::Signature { .. }) => {
            Exit::Signature
        }
        VerifyError::Token(_) | VerifyError::Claims(_) => Exit::MalformedToken,
        VerifyError::Kind { .. } => Exit::WrongKind,
        VerifyError::Issuer { .. } => Exit::Issuer,
        VerifyError::Environment { .. } => Exit::Sandbox,
        VerifyError::IssuedAt { .. } => Exit::NotYetValid,
        VerifyError::Expiry { .. } => Exit::Expired,
        VerifyError::Verdict { .. } => Exit::NotAllowed,
        VerifyError::Amount { .. }
        | VerifyError::Currency { .. }
        | VerifyError::Recipient { .. }
        | VerifyError::Mandate { .. } => Exit::Mismatch,
        VerifyError::NotCompared { .. } => Exit::NotCompared,
    }
}
