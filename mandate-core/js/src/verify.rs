//! The verification of tokens, with a line for each check: those of the core, and what was only noted or not compared.

use mandate_core::jwt::Unverified;
use mandate_core::verify::{Check, EVENT_ARRIVAL_SECONDS, MAX_LEEWAY_SECONDS, check_event, check_verdict};
use mandate_core::{EventClaims, Timestamp, VerdictClaims};
use serde_json::value::RawValue;

use crate::expected;
use crate::keys::Keys;
use crate::report::{Line, Nonce, Refusal, Report, Status};

/// The note on every token of a sandbox.
const SANDBOX: &str = "sandbox - not real money";

/// The checks that have a value to show, in order.
const ORDER: [&str; 12] = [
    "algorithm",
    "signature",
    "kind",
    "issuer",
    "environment",
    "issued_at",
    "expiry",
    "verdict",
    "amount",
    "currency",
    "recipient",
    "mandate",
];

pub(crate) fn verdict(token: &str, keys: &Keys, expected: &str, signed: Option<bool>) -> Report {
    let keys = keys.with(signed);
    let checked = expected::with(expected, |expected| check_verdict(token, &keys, expected));
    let (passed, verified) = match checked {
        Ok(checked) => checked,
        Err(refused) => return Report::refused(Refusal::usage(&refused)),
    };
    match verified {
        Ok(verdict) => {
            let claims = verdict.claims();
            let mut report = lines(token, &ORDER, &passed, Some(claims), None);
            report.nonce = Some(nonce(&claims.nonce, claims.exp, MAX_LEEWAY_SECONDS));
            report
        }
        Err(error) => lines(token, &ORDER, &passed, None, Some(Refusal::of(&error))),
    }
}

pub(crate) fn event(token: &str, keys: &Keys, expected: &str, signed: Option<bool>) -> Report {
    let keys = keys.with(signed);
    let checked = expected::with(expected, |expected| check_event(token, &keys, expected));
    let (passed, verified) = match checked {
        Ok(checked) => checked,
        Err(refused) => return Report::refused(Refusal::usage(&refused)),
    };
    let refusal = verified.as_ref().err().map(Refusal::of);
    let mut report = lines(token, ORDER.get(..6).unwrap_or_default(), &passed, None, refusal);
    if let Ok(event) = verified {
        let claims: &EventClaims<String> = event.claims();
        report.checks.push(Line::new("type", Status::Noted, &claims.kind));
        report.checks.push(Line::new("data", Status::Noted, &claims.data));
        report.nonce = Some(nonce(&claims.jti, claims.iat, EVENT_ARRIVAL_SECONDS));
    }
    report
}

/// What a store must keep, for as long as any verifier may accept the token.
fn nonce(id: &impl ToString, from: i64, seconds: i64) -> Nonce {
    Nonce { id: id.to_string(), until: Timestamp::from_seconds(from).plus_seconds(seconds).millis() }
}

/// The report: a line for each check up to the one that failed. `verified` are the claims of a verdict that passed.
fn lines(
    token: &str,
    order: &[&'static str],
    passed: &[Check],
    verified: Option<&VerdictClaims>,
    refusal: Option<Refusal>,
) -> Report {
    let mut report = Report::default();
    let has_passed = |name: &str| passed.iter().find(|check| check.name == name);
    // Claims are shown once their signature has passed.
    let unverified = Unverified::parse(token).ok().filter(|_| has_passed("signature").is_some());
    report.is_sandbox = unverified.as_ref().is_some_and(|token| token.kid().is_sandbox());
    let read = || VerdictClaims::read(unverified.as_ref()?.unverified_claims()).ok();
    let refused = refusal.as_ref().and_then(|_| read());
    let claims = verified.or(refused.as_ref());
    for name in order.iter().take(shown(order, passed, refusal.as_ref())) {
        let line = match has_passed(name) {
            _ if *name == "environment" => environment(report.is_sandbox),
            Some(check) => Line::new(name, Status::Passed, &check.value),
            None => {
                report.not_compared.push(name);
                let signed = claims.and_then(|claims| signed(claims, name)).unwrap_or_default();
                Line::new(name, Status::NotCompared, &signed)
            }
        };
        report.checks.push(line);
    }
    match refusal {
        Some(refusal) => {
            let check = refusal.check.unwrap_or_default();
            report.checks.push(Line::new(check, Status::Failed, &refusal.message));
            report.error = Some(refusal);
        }
        None => report.claims = unverified.as_ref().and_then(|token| raw(token.unverified_claims())),
    }
    report
}

/// How many of the checks come before the one that failed.
fn shown(order: &[&str], passed: &[Check], refusal: Option<&Refusal>) -> usize {
    let place = |wanted: &str| order.iter().position(|name| *name == wanted);
    match refusal.and_then(|refusal| refusal.check) {
        None => order.len(),
        // A check without a place of its own, such as `claims`, comes behind those that passed.
        Some(failed) => place(failed).unwrap_or_else(|| {
            passed.last().and_then(|last| place(last.name)).map_or(0, |last| last.saturating_add(1))
        }),
    }
}

fn environment(is_sandbox: bool) -> Line {
    if is_sandbox {
        Line::new("environment", Status::Noted, &SANDBOX)
    } else {
        Line::new("environment", Status::Passed, &"production")
    }
}

/// The signed value of a field that can be compared.
fn signed(claims: &VerdictClaims, name: &str) -> Option<String> {
    let request = &claims.request;
    match name {
        "amount" => Some(request.amount.to_string()),
        "currency" => Some(request.currency.to_string()),
        "recipient" => Some(request.recipient.to_string()),
        "mandate" => Some(claims.mandate.map_or_else(|| "none".to_owned(), |id| id.to_string())),
        _ => None,
    }
}

fn raw(claims: &[u8]) -> Option<Box<RawValue>> {
    RawValue::from_string(std::str::from_utf8(claims).ok()?.to_owned()).ok()
}
