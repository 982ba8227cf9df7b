//! `verdicts.json` and `events.json`: all checks of a counterparty.

use super::*;
use crate::verify::{Expected, Leeway, VerifyError, verify_event, verify_verdict};
use crate::{Amount, Currency, MandateId, Recipient, Timestamp};

const VERDICTS: &str = include_str!("../../vectors/verdicts.json");
const EVENTS: &str = include_str!("../../vectors/events.json");
const ISSUER: &str = "https://verdicts.example";

/// Issued at 2026-03-01T12:00:00Z.
const VERDICT: &str = concat!(
    r#"{"iss":"https://verdicts.example","jti":"dec_01kjmr9s000000000000000001","iat":1772366400,"exp":1772366700,"#,
    r#""verdict":"allow","mandate":"mnd_01kjmr9s000000000000000002","policy_version":"pol_2026-01-01.1","#,
    r#""nonce":"n_01kjmr9s000000000000000003","request":{"agent":"agt_buyer","amount":40.5,"currency":"USD","#,
    r#""recipient":"vendor:acme","category":"software"}}"#
);
const EVENT: &str = concat!(
    r#"{"iss":"https://verdicts.example","jti":"evt_01kjmr9s000000000000000004","iat":1772366400,"#,
    r#""type":"mandate.revoked","data":{"id":"mnd_01kjmr9s000000000000000002","status":"revoked"}}"#
);

/// The type and data of [`EVENT`].
const REVOKED: &str =
    r#""type":"mandate.revoked","data":{"id":"mnd_01kjmr9s000000000000000002","status":"revoked"}"#;
/// A decision: its number among the agent's, and its instant, are no claims of its token.
const DECIDED: &str = concat!(
    r#""type":"decision.resolved","data":{"iss":"https://verdicts.example","jti":"dec_01kjmr9s000000000000000001","#,
    r#""iat":1772366400,"exp":1772366700,"verdict":"deny_limit","mandate":"mnd_01kjmr9s000000000000000002","#,
    r#""policy_version":"pol_2026-01-01.1","nonce":"n_01kjmr9s000000000000000003","request":{"agent":"agt_buyer","#,
    r#""amount":900,"currency":"USD","recipient":"vendor:acme","category":"software"},"mode":"enforce","#,
    r#""sequence":7,"decided_at":"2026-03-01T12:00:00.125Z","denials":["deny_limit"],"#,
    r#""reason":"amount 900 exceeds per_transaction limit 500","basis":{"spent":980,"recent_requests":2}}"#
);
/// A mandate that was revoked: which of the agent's decisions it governed.
const GOVERNED: &str = concat!(
    r#""type":"mandate.revoked","data":{"id":"mnd_01kjmr9s000000000000000002","status":"revoked","#,
    r#""governs_from":3,"revoked_after":7}"#
);

/// One vector: a token, the circumstances, and the check that refuses it. A circumstance that is null is left out.
fn vector(name: &str, token: &str, circumstances: &Value, check: Option<&str>) -> Value {
    let mut vector = json!({"name": name, "token": token, "now": "2026-03-01T12:00:10Z", "leeway_seconds": 0,
        "environment": "sandbox"});
    let members = vector.as_object_mut().unwrap();
    members.extend(circumstances.as_object().unwrap().clone());
    members.retain(|_, value| !value.is_null());
    vector["check"] = json!(check);
    vector
}

/// The same for a verdict: all that a settlement needs is expected, unless the circumstances say otherwise.
fn settled(name: &str, token: &str, circumstances: &Value, check: Option<&str>) -> Value {
    let mut all = json!({"amount": "40.5", "currency": "USD", "recipient": "vendor:acme"});
    all.as_object_mut().unwrap().extend(circumstances.as_object().unwrap().clone());
    vector(name, token, &all, check)
}

fn token(claims: &str) -> String {
    jwt::sign(&sandbox(), claims).unwrap()
}

/// The claims with `from` replaced by `to`.
fn changed(claims: &str, from: &str, to: &str) -> String {
    assert_eq!(claims.matches(from).count(), 1, "{from}");
    token(&claims.replacen(from, to, 1))
}

/// Circumstances under which no part of the payment is expected.
fn nothing(more: &Value) -> Value {
    let mut nothing = json!({"amount": null, "currency": null, "recipient": null});
    nothing.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    nothing
}

fn circumstances() -> Vec<(&'static str, Value, Option<&'static str>)> {
    let at = |now: &str, leeway: i64| json!({"now": now, "leeway_seconds": leeway});
    vec![
        ("nothing expected but the issuer", nothing(&json!({})), Some("not_compared")),
        ("nothing expected but the signature", nothing(&json!({"signature_only": true})), None),
        ("no amount expected", json!({"amount": null}), Some("not_compared")),
        ("no currency expected", json!({"currency": null}), Some("not_compared")),
        ("no recipient expected", json!({"recipient": null}), Some("not_compared")),
        (
            "no recipient expected, and another amount",
            json!({"recipient": null, "amount": "41"}),
            Some("amount"),
        ),
        ("the mandate is equal too", json!({"mandate": "mnd_01kjmr9s000000000000000002"}), None),
        ("the amount with a zero at its end", json!({"amount": "40.50"}), None),
        ("no environment named", json!({"environment": null}), Some("environment")),
        ("any environment", json!({"environment": "any"}), None),
        ("the amount in exponent form", json!({"amount": "405e-1"}), None),
        ("at the instant of issue", at("2026-03-01T12:00:00Z", 0), None),
        ("in the last millisecond", at("2026-03-01T12:04:59.999Z", 0), None),
        ("at the instant of expiry", at("2026-03-01T12:05:00Z", 0), Some("expiry")),
        ("at the instant of expiry, with leeway", at("2026-03-01T12:05:00Z", 1), None),
        ("in the last millisecond of the leeway", at("2026-03-01T12:05:29.999Z", 30), None),
        ("past the leeway", at("2026-03-01T12:05:30Z", 30), Some("expiry")),
        ("a day later", at("2026-03-02T12:00:00Z", 30), Some("expiry")),
        ("a millisecond before issue", at("2026-03-01T11:59:59.999Z", 0), Some("issued_at")),
        ("before issue, within the leeway", at("2026-03-01T11:59:30Z", 30), None),
        ("before issue, past the leeway", at("2026-03-01T11:59:29.999Z", 30), Some("issued_at")),
        ("another issuer", json!({"issuer": "https://verdicts.example.com"}), Some("issuer")),
        ("an issuer with a slash at its end", json!({"issuer": "https://verdicts.example/"}), Some("issuer")),
        ("the production environment", json!({"environment": "production"}), Some("environment")),
        ("a greater amount", json!({"amount": "40.51"}), Some("amount")),
        ("a smaller amount", json!({"amount": "40.49999999"}), Some("amount")),
        ("another currency", json!({"amount": "40.5", "currency": "JPY"}), Some("currency")),
        ("another recipient", json!({"recipient": "vendor:acme2"}), Some("recipient")),
        ("a recipient in another case", json!({"recipient": "vendor:ACME"}), Some("recipient")),
        ("another mandate", json!({"mandate": "mnd_01kjmr9s000000000000000009"}), Some("mandate")),
    ]
}

/// A name, a token, and the check that refuses it, if one does.
type Case = (&'static str, String, Option<&'static str>);

const MANDATE: &str = r#""mandate":"mnd_01kjmr9s000000000000000002","#;

fn verdict_claims() -> Vec<Case> {
    [verdict_kinds(), verdict_texts(), verdict_values()].concat()
}

/// Claims of another kind, and those that a verdict may have too.
fn verdict_kinds() -> Vec<Case> {
    let verdict = |from: &str, to: &str| changed(VERDICT, from, to);
    let no_mandate = VERDICT.replace(MANDATE, "");
    vec![
        ("a claim that is not known", verdict("{\"iss\"", "{\"later\":{\"a\":[1]},\"iss\""), None),
        ("a name that is not known in request", verdict("\"agent\"", "\"later\":1,\"agent\""), None),
        (
            "spaces and another order",
            verdict(
                "{\"iss\":\"https://verdicts.example\",\"jti\"",
                "{ \"iss\" : \"https:\\/\\/verdicts.example\" , \"jti\"",
            ),
            None,
        ),
        ("review", verdict("\"allow\"", "\"review\""), Some("verdict")),
        ("deny_limit", verdict("\"allow\"", "\"deny_limit\""), Some("verdict")),
        ("deny_no_mandate", token(&no_mandate.replace("allow", "deny_no_mandate")), Some("verdict")),
        ("an event", token(EVENT), Some("kind")),
        (
            "an event with a verdict's claims",
            verdict("{\"iss\"", "{\"type\":\"ping\",\"data\":{},\"iss\""),
            Some("kind"),
        ),
        ("neither a verdict nor an event", verdict("\"verdict\":\"allow\",", ""), Some("kind")),
        ("empty claims", token("{}"), Some("kind")),
    ]
}

/// Claims that are not strict JSON.
fn verdict_texts() -> Vec<Case> {
    let verdict = |from: &str, to: &str| changed(VERDICT, from, to);
    vec![
        ("claims that are an array", token("[]"), Some("claims")),
        ("claims that are not JSON", token("allow"), Some("claims")),
        ("bytes behind the claims", token(&format!("{VERDICT}\n0")), Some("claims")),
        ("a byte order mark before the claims", token(&format!("\u{feff}{VERDICT}")), Some("claims")),
        ("verdict twice", verdict("\"allow\"", "\"deny_limit\",\"verdict\":\"allow\""), Some("claims")),
        ("exp twice", verdict("1772366700", "1772366700,\"exp\":1772366700"), Some("claims")),
        ("amount twice", verdict("40.5", "40.5,\"amount\":9000"), Some("claims")),
        (
            "exp twice, once with an escape",
            verdict("1772366700", "1772366700,\"\\u0065xp\":9"),
            Some("claims"),
        ),
        (
            "a name twice within a claim that is not known",
            verdict("{\"iss\"", "{\"later\":{\"a\":[{\"b\":1,\"b\":2}]},\"iss\""),
            Some("claims"),
        ),
        (
            "a name twice within request, and not known",
            verdict("\"agent\"", "\"later\":{\"a\":1,\"\\u0061\":1},\"agent\""),
            Some("claims"),
        ),
        (
            "an unpaired surrogate in a claim that is not known",
            verdict("{\"iss\"", "{\"later\":[\"\\ud800\"],\"iss\""),
            Some("claims"),
        ),
        (
            "an unpaired surrogate in a name that is not known",
            verdict("{\"iss\"", "{\"later\":{\"\\udc00\":1},\"iss\""),
            Some("claims"),
        ),
    ]
}

/// Claims with a value that a verdict cannot have.
fn verdict_values() -> Vec<Case> {
    let verdict = |from: &str, to: &str| changed(VERDICT, from, to);
    let no_mandate = VERDICT.replace(MANDATE, "");
    vec![
        ("exp that is a string", verdict("1772366700", "\"1772366700\""), Some("claims")),
        ("exp with a fraction", verdict("1772366700", "1772366700.0"), Some("claims")),
        ("exp with an exponent", verdict("1772366700", "17723667e2"), Some("claims")),
        ("exp beyond all numbers", verdict("1772366700", "1e400"), Some("claims")),
        ("exp that is negative", verdict("1772366700", "-1"), Some("claims")),
        ("exp that is null", verdict("1772366700", "null"), Some("claims")),
        ("no exp", verdict("\"exp\":1772366700,", ""), Some("claims")),
        ("exp a second late", verdict("1772366700", "1772366701"), Some("claims")),
        ("iat that is a string", verdict("1772366400", "\"1772366400\""), Some("claims")),
        ("iat with a fraction", verdict("1772366400", "1772366400.5"), Some("claims")),
        ("no iat", verdict("\"iat\":1772366400,", ""), Some("claims")),
        ("no issuer", verdict("\"iss\":\"https://verdicts.example\",", ""), Some("claims")),
        (
            "an issuer that is an array",
            verdict("\"https://verdicts.example\"", "[\"https://verdicts.example\"]"),
            Some("claims"),
        ),
        ("an audience", verdict("{\"iss\"", "{\"aud\":\"someone\",\"iss\""), Some("claims")),
        (
            "a time before which it is not valid",
            verdict("{\"iss\"", "{\"nbf\":1772366400,\"iss\""),
            Some("claims"),
        ),
        ("no nonce", verdict("\"nonce\":\"n_01kjmr9s000000000000000003\",", ""), Some("claims")),
        ("no mandate", token(&no_mandate), Some("claims")),
        ("a verdict that is not known", verdict("\"allow\"", "\"Allow\""), Some("claims")),
        ("an amount that is a string", verdict("40.5", "\"40.5\""), Some("claims")),
        ("an amount of 16 digits", verdict("40.5", "40.50000000000001"), Some("claims")),
        ("an amount of 0", verdict("40.5", "0"), Some("claims")),
        ("no currency", verdict("\"currency\":\"USD\",", ""), Some("claims")),
        ("a recipient of another form", verdict("vendor:acme", "acme"), Some("claims")),
        ("an id of another kind", verdict("dec_", "evt_"), Some("claims")),
    ]
}

fn event_claims() -> Vec<(&'static str, String, Value, Option<&'static str>)> {
    let event = |from: &str, to: &str| changed(EVENT, from, to);
    let now = |now: &str, leeway: i64| json!({"now": now, "leeway_seconds": leeway});
    vec![
        ("as this service writes it", token(EVENT), json!({}), None),
        ("no environment named", token(EVENT), json!({"environment": null}), Some("environment")),
        ("a day after the event", token(EVENT), now("2026-03-02T12:00:00Z", 0), None),
        ("a decision with its sequence and instant", event(REVOKED, DECIDED), json!({}), None),
        ("a mandate with the decisions that it governed", event(REVOKED, GOVERNED), json!({}), None),
        ("a type that is not known", event("mandate.revoked", "mandate.later"), json!({}), None),
        ("a claim that is not known", event("{\"iss\"", "{\"later\":1,\"iss\""), json!({}), None),
        ("before the event, within the leeway", token(EVENT), now("2026-03-01T11:59:30Z", 30), None),
        ("before the event", token(EVENT), now("2026-03-01T11:59:59Z", 0), Some("issued_at")),
        ("another issuer", token(EVENT), json!({"issuer": "https://other.example"}), Some("issuer")),
        (
            "the production environment",
            token(EVENT),
            json!({"environment": "production"}),
            Some("environment"),
        ),
        ("a verdict", token(VERDICT), json!({}), Some("kind")),
        (
            "an event with a verdict",
            event("{\"iss\"", "{\"verdict\":\"allow\",\"iss\""),
            json!({}),
            Some("kind"),
        ),
        ("no type", event("\"type\":\"mandate.revoked\",", ""), json!({}), Some("kind")),
        (
            "type twice",
            event("\"mandate.revoked\"", "\"ping\",\"type\":\"mandate.revoked\""),
            json!({}),
            Some("claims"),
        ),
        ("a type that is a number", event("\"mandate.revoked\"", "7"), json!({}), Some("claims")),
        (
            "data that is a string",
            event("{\"id\":\"mnd_01kjmr9s000000000000000002\",\"status\":\"revoked\"}", "\"x\""),
            json!({}),
            Some("claims"),
        ),
        ("a name twice in data", event("\"status\"", "\"id\":1,\"status\""), json!({}), Some("claims")),
        (
            "a name twice within a claim that is not known",
            event("{\"iss\"", "{\"later\":{\"a\":1,\"a\":2},\"iss\""),
            json!({}),
            Some("claims"),
        ),
        (
            "an unpaired surrogate in data",
            event("\"status\"", "\"note\":\"\\ud800\",\"status\""),
            json!({}),
            Some("claims"),
        ),
        (
            "no data",
            event(",\"data\":{\"id\":\"mnd_01kjmr9s000000000000000002\",\"status\":\"revoked\"}", ""),
            json!({}),
            Some("claims"),
        ),
        ("iat with a fraction", event("1772366400", "1772366400.0"), json!({}), Some("claims")),
        ("an id of another kind", event("evt_", "dec_"), json!({}), Some("claims")),
        ("an audience", event("{\"iss\"", "{\"aud\":[],\"iss\""), json!({}), Some("claims")),
        ("alg none", signed(r#"{"alg":"none","kid":"sandbox"}"#, EVENT), json!({}), Some("algorithm")),
    ]
}

#[test]
fn the_file_of_verdicts_is_what_the_tables_say() {
    let production = jwt::sign(&production(), VERDICT).unwrap();
    let cut = token(VERDICT).replace('.', "");
    let mut vectors = vec![settled("all that a settlement needs", &token(VERDICT), &json!({}), None)];
    vectors.extend(circumstances().iter().map(|(name, c, check)| settled(name, &token(VERDICT), c, *check)));
    vectors
        .extend(verdict_claims().iter().map(|(name, token, check)| settled(name, token, &json!({}), *check)));
    for (name, environment, check) in [
        ("of production", json!("production"), None),
        ("of production, with no environment named", Value::Null, None),
        ("of production, in any environment", json!("any"), None),
        ("of production, in the sandbox", json!("sandbox"), Some("environment")),
    ] {
        vectors.push(settled(name, &production, &json!({"environment": environment}), check));
    }
    vectors.push(settled("a token in one part", &cut, &json!({}), Some("parts")));
    let description = "Verdict tokens. `check` is the first check that fails under `issuer`, `now`, `leeway_seconds` and \
                       what else is expected; null: all pass. `environment` is `sandbox`, `production` (if it is \
                       absent) or `any`. Unless `signature_only` is true, a verdict is refused (`not_compared`) where \
                       amount, currency or recipient is absent.";
    let file = json!({"description": description, "issuer": ISSUER, "jwks": jwks(), "vectors": vectors});
    check_file("verdicts.json", VERDICTS, &file);
}

#[test]
fn the_file_of_events_is_what_the_tables_say() {
    let vectors: Vec<_> =
        event_claims().iter().map(|(name, t, c, check)| vector(name, t, c, *check)).collect();
    let description = "Event tokens. `check` is the first check that fails under `issuer`, `now`, `leeway_seconds` and \
                       `environment` (`sandbox`, or `production`, also if it is absent); null: all pass.";
    let file = json!({"description": description, "issuer": ISSUER, "jwks": jwks(), "vectors": vectors});
    check_file("events.json", EVENTS, &file);
}

/// Runs `verify` on each vector of the file; it returns the name of the check that failed.
fn run(file: &str, verify: fn(&str, &KeySet, &Expected<'_>) -> Result<(), VerifyError>) -> usize {
    let file: Value = serde_json::from_str(file).unwrap();
    let keys = KeySet::parse(file["jwks"].to_string().as_bytes()).unwrap();
    let vectors = file["vectors"].as_array().unwrap();
    for vector in vectors {
        let text = |name: &str| vector[name].as_str();
        let issuer = text("issuer").or(file["issuer"].as_str()).unwrap();
        let expected = Expected {
            leeway: Leeway::from_seconds(vector["leeway_seconds"].as_i64().unwrap()).unwrap(),
            environment: match text("environment") {
                Some("any") => None,
                named => Some(EnvironmentKind::parse(named.unwrap_or("production")).unwrap()),
            },
            signature_only: vector["signature_only"] == true,
            amount: text("amount").map(|t| Amount::parse(t).unwrap()),
            currency: text("currency").map(|t| Currency::parse(t).unwrap()),
            recipient: text("recipient").map(|t| Recipient::parse(t).unwrap()),
            mandate: text("mandate").map(|t| MandateId::parse(t).unwrap()),
            ..Expected::new(issuer, Timestamp::parse(text("now").unwrap()).unwrap())
        };
        let refused = verify(text("token").unwrap(), &keys, &expected).err();
        assert_eq!(refused.as_ref().map(VerifyError::name), text("check"), "{}: {refused:?}", vector["name"]);
    }
    vectors.len()
}

#[test]
fn every_verdict_passes_or_fails_its_check() {
    assert!(run(VERDICTS, |token, keys, expected| verify_verdict(token, keys, expected).map(drop)) > 60);
}

#[test]
fn every_event_passes_or_fails_its_check() {
    assert!(run(EVENTS, |token, keys, expected| verify_event(token, keys, expected).map(drop)) > 20);
}
