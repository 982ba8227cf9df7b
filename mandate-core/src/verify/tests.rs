//! What the vectors do not cover: the list of checks, messages, replay, audits, every flipped bit.

use super::*;
use crate::amount::Amount;
use crate::es256::{self, SecretKey, Signer};
use crate::jwks::VerificationKey;
use crate::jwt;
use crate::name::{Currency, Recipient};
use crate::replay::{MemoryNonces, NoncesFull};
use std::sync::Arc;

const ISSUER: &str = "https://verdicts.example";
const VERDICT: &str = concat!(
    r#"{"iss":"https://verdicts.example","jti":"dec_00000000000000000000000001","iat":1000,"exp":1300,"#,
    r#""verdict":"allow","mandate":"mnd_00000000000000000000000002","policy_version":"pol_2026-01-01.1","#,
    r#""nonce":"n_00000000000000000000000003","request":{"agent":"agt_a","amount":40.5,"currency":"USD","#,
    r#""recipient":"vendor:v","category":"c"}}"#
);
const EVENT: &str = concat!(
    r#"{"iss":"https://verdicts.example","jti":"evt_00000000000000000000000004","iat":1000,"#,
    r#""type":"ping","data":{"webhook":"w"}}"#
);

fn signer(kid: &str) -> Arc<dyn Signer> {
    es256::signer(&SecretKey::from_bytes([7; 32]).unwrap(), Kid::parse(kid).unwrap()).unwrap()
}

fn keys() -> KeySet {
    let key = |kid| VerificationKey::new(Kid::parse(kid).unwrap(), *signer(kid).public_key()).unwrap();
    KeySet::new(vec![key("sandbox-1"), key("live-1")]).unwrap()
}

fn token(claims: &str) -> String {
    jwt::sign(&*signer("sandbox-1"), claims).unwrap()
}

fn live() -> String {
    jwt::sign(&*signer("live-1"), VERDICT).unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

fn everything() -> Expected<'static> {
    Expected {
        environment: Some(EnvironmentKind::Sandbox),
        amount: Some(Amount::parse("40.5").unwrap()),
        currency: Some(Currency::parse("USD").unwrap()),
        recipient: Some(Recipient::parse("vendor:v").unwrap()),
        mandate: Some(crate::MandateId::parse("mnd_00000000000000000000000002").unwrap()),
        ..Expected::new(ISSUER, at(1010))
    }
}

fn listed(checks: &[Check]) -> Vec<(&str, &str)> {
    checks.iter().map(|check| (check.name, check.value.as_str())).collect()
}

#[test]
fn the_checks_are_listed_in_their_order() {
    let verdict = verify_verdict(&token(VERDICT), &keys(), &everything()).unwrap();
    assert!(verdict.kid_is_sandbox());
    assert_eq!(verdict.claims().to_json(), VERDICT);
    let all = [
        ("algorithm", "ES256"),
        ("signature", "sandbox-1"),
        ("kind", "a verdict"),
        ("issuer", ISSUER),
        ("environment", "sandbox"),
        ("issued_at", "1970-01-01T00:16:40.000Z"),
        ("expiry", "1970-01-01T00:21:40.000Z"),
        ("verdict", "allow"),
        ("amount", "40.5"),
        ("currency", "USD"),
        ("recipient", "vendor:v"),
        ("mandate", "mnd_00000000000000000000000002"),
    ];
    assert_eq!(listed(verdict.checks()), all);

    // A check without an expectation is not listed as passed.
    let reading = Expected { environment: None, signature_only: true, ..Expected::new(ISSUER, at(1010)) };
    let verdict = verify_verdict(&live(), &keys(), &reading).unwrap();
    assert!(!verdict.kid_is_sandbox());
    let names: Vec<_> = verdict.checks().iter().map(|check| check.name).collect();
    assert_eq!(names, ["algorithm", "signature", "kind", "issuer", "issued_at", "expiry", "verdict"]);

    let event = verify_event(&token(EVENT), &keys(), &everything()).unwrap();
    let names: Vec<_> = event.checks().iter().map(|check| check.name).collect();
    assert_eq!(names, ["algorithm", "signature", "kind", "issuer", "environment", "issued_at"]);
}

#[test]
fn what_is_not_asked_for_is_refused() {
    // Without a word, a key of the sandbox is.
    let unsaid = Expected { environment: Expected::new(ISSUER, at(1010)).environment, ..everything() };
    assert_eq!(verify_verdict(&token(VERDICT), &keys(), &unsaid).unwrap_err().name(), "environment");
    assert_eq!(verify_event(&token(EVENT), &keys(), &unsaid).unwrap_err().name(), "environment");
    assert!(verify_verdict(&live(), &keys(), &unsaid).is_ok());

    let without = |drop: fn(&mut Expected<'_>)| {
        let mut expected = everything();
        drop(&mut expected);
        let refused = verify_verdict(&token(VERDICT), &keys(), &expected).unwrap_err();
        expected.signature_only = true;
        let read = verify_verdict(&token(VERDICT), &keys(), &expected).unwrap();
        assert_eq!(refused, VerifyError::NotCompared { fields: read.not_compared().to_vec() });
        refused.to_string()
    };
    assert_eq!(without(|e| e.currency = None), "not compared with anything: currency");
    assert_eq!(
        without(|e| (e.amount, e.recipient) = (None, None)),
        "not compared with anything: amount, recipient"
    );
    // The mandate is for the caller to know, and an event settles nothing.
    assert!(verify_verdict(&token(VERDICT), &keys(), &Expected { mandate: None, ..everything() }).is_ok());
    assert!(verify_event(&token(EVENT), &keys(), &Expected { amount: None, ..everything() }).is_ok());
}

/// A token that fails every check from one check on fails the first of them.
#[test]
fn the_first_check_that_fails_is_reported() {
    let mut expected = everything();
    expected.mandate = Some(crate::MandateId::parse("mnd_00000000000000000000000009").unwrap());
    let fails = |expected: &Expected<'_>| verify_verdict(&token(VERDICT), &keys(), expected).unwrap_err();
    let mut messages = vec![fails(&expected).to_string()];
    expected.recipient = Some(Recipient::parse("vendor:w").unwrap());
    messages.push(fails(&expected).to_string());
    expected.currency = Some(Currency::parse("JPY").unwrap());
    messages.push(fails(&expected).to_string());
    expected.amount = Some(Amount::parse("41").unwrap());
    messages.push(fails(&expected).to_string());
    let denied = VERDICT.replace("allow", "deny_limit");
    messages.push(verify_verdict(&token(&denied), &keys(), &expected).unwrap_err().to_string());
    expected.now = at(1300);
    messages.push(fails(&expected).to_string());
    expected.now = at(999);
    messages.push(fails(&expected).to_string());
    expected.environment = Some(EnvironmentKind::Production);
    messages.push(fails(&expected).to_string());
    expected.issuer = "https://other.example";
    messages.push(fails(&expected).to_string());
    let without = VERDICT.replace("\"iat\":1000,", "");
    messages.push(verify_verdict(&token(&without), &keys(), &expected).unwrap_err().to_string());
    messages.push(verify_verdict(&token(EVENT), &keys(), &expected).unwrap_err().to_string());
    messages.push(verify_verdict(&token(EVENT), &KeySet::default(), &expected).unwrap_err().to_string());
    assert_eq!(
        messages,
        [
            "the mandate must be mnd_00000000000000000000000009; the signed one is mnd_00000000000000000000000002",
            "the recipient must be `vendor:w`; the signed one is `vendor:v`",
            "the currency must be JPY; the signed one is USD",
            "the amount must be 41; the signed one is 40.5",
            "the verdict must be `allow`; it is `deny_limit`",
            "the token has expired, at 1970-01-01T00:21:40.000Z; now is 1970-01-01T00:21:40.000Z",
            "the token is issued in the future, at 1970-01-01T00:16:40.000Z; now is 1970-01-01T00:16:39.000Z",
            "the token must be of the production environment; its key is `sandbox-1`",
            "the issuer must be `https://other.example`; the token has `https://verdicts.example`",
            "the claims are refused: iat is required",
            "the token must be a verdict; it is an event",
            "the key set has no key for ES256 named `sandbox-1`",
        ]
    );
}

#[test]
fn a_verdict_is_settled_once() {
    let nonces = MemoryNonces::new();
    let verify = |claims: &str| verify_verdict(&token(claims), &keys(), &everything()).unwrap();
    let verdict = verify(VERDICT);
    assert_eq!(verdict.claim_nonce(&nonces, at(1010)), Ok(()));
    let replayed = verdict.claim_nonce(&nonces, at(1010)).unwrap_err();
    assert_eq!(replayed.to_string(), "this is a replay: `n_00000000000000000000000003` was seen before");
    // Another token with the same nonce is the same verdict.
    let again = verify(&VERDICT.replace("dec_00000000000000000000000001", "dec_00000000000000000000000008"));
    assert_eq!(again.claim_nonce(&nonces, at(1010)).unwrap_err().name(), "replay");
    // It is kept as long as any verifier accepts it, and refused once it may be deleted.
    assert_eq!(verdict.claim_nonce(&nonces, at(1330)).unwrap_err().name(), "replay");
    let later = Timestamp::from_millis(1_330_001);
    assert_eq!(verdict.claim_nonce(&nonces, later), Err(NotClaimed::Expired));
    assert_eq!(verdict.claim_nonce(&MemoryNonces::new(), later), Err(NotClaimed::Expired));
    // If the store fails, the settlement must stop.
    let full = verdict.claim_nonce(&MemoryNonces::with_limit(0), at(1010)).unwrap_err();
    assert_eq!((full.name(), full), ("nonce_store", NotClaimed::Store(NoncesFull { most: 0 })));
}

#[test]
fn an_event_is_taken_once() {
    let nonces = MemoryNonces::new();
    let event = verify_event(&token(EVENT), &keys(), &everything()).unwrap();
    assert_eq!((event.kid().as_str(), event.claims().data.as_str()), ("sandbox-1", r#"{"webhook":"w"}"#));
    assert_eq!(event.claim_id(&nonces, at(1010)), Ok(()));
    assert_eq!(event.claim_id(&nonces, at(1000 + 86_400)).unwrap_err().name(), "replay");
    assert_eq!(event.claim_id(&nonces, at(1000 + 90_001)), Err(NotClaimed::Expired));
}

#[test]
fn an_audit_takes_what_expired_and_what_was_denied_and_nothing_else() {
    let denied = VERDICT.replace("allow", "deny_limit");
    for claims in [VERDICT, &denied] {
        let audited = audit_verdict_ignoring_expiry(&token(claims), &keys(), ISSUER).unwrap();
        assert_eq!((audited.kid().as_str(), audited.claims().to_json().as_str()), ("sandbox-1", claims));
    }
    let audit =
        |token: &str, issuer| audit_verdict_ignoring_expiry(token, &keys(), issuer).unwrap_err().name();
    assert_eq!(audit(&token(EVENT), ISSUER), "kind");
    assert_eq!(audit(&token(VERDICT), "https://other.example"), "issuer");
    assert_eq!(audit(&token(&VERDICT.replace("1300", "1301")), ISSUER), "claims");
    assert_eq!(audit(&format!("{}x", token(VERDICT)), ISSUER), "encoding");
}

#[test]
fn leeway_is_bounded() {
    for (seconds, fits) in [(0, true), (30, true), (31, false), (-1, false), (i64::MAX, false)] {
        assert_eq!(Leeway::from_seconds(seconds).map(Leeway::seconds).ok(), fits.then_some(seconds));
    }
    assert_eq!(
        Leeway::from_seconds(31).unwrap_err().to_string(),
        "leeway must be from 0 to 30 seconds; got `31`"
    );
}

#[test]
fn every_flipped_bit_is_refused() {
    let (keys, expected) = (keys(), everything());
    for claims in [VERDICT, EVENT] {
        let token = token(claims);
        for place in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[place] ^= 1 << (place % 7);
            let changed = String::from_utf8(changed).unwrap();
            assert!(verify_verdict(&changed, &keys, &expected).is_err(), "byte {place}");
            assert!(verify_event(&changed, &keys, &expected).is_err(), "byte {place}");
        }
    }
}
