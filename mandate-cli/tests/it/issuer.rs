//! An issuer with a sandbox key and a production key, and the tokens that it signs.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use mandate_core::EnvironmentKind;
use mandate_core::es256::{SecretKey, Signer, signer};
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::jwt;
use serde_json::{Value, json};

use crate::harness::mandate;

pub(crate) const ISSUER: &str = "https://verdicts.example";
/// 2026-03-01T12:00:00Z, when all tokens are issued.
pub(crate) const IAT: i64 = 1_772_366_400;
pub(crate) const MANDATE: &str = "mnd_00000000000000000000000002";
pub(crate) const NONCE: &str = "n_00000000000000000000000003";

/// The signer of an environment.
pub(crate) fn key(environment: EnvironmentKind) -> Arc<dyn Signer> {
    let secret = SecretKey::from_bytes([environment as u8 + 1; 32]).unwrap();
    signer(&secret, Kid::for_key(secret.public_key(), environment)).unwrap()
}

/// Both public keys, as published.
pub(crate) fn jwks() -> String {
    let keys = EnvironmentKind::ALL
        .map(key)
        .map(|k| VerificationKey::new(k.kid().clone(), *k.public_key()).unwrap());
    KeySet::new(keys.to_vec()).unwrap().to_json()
}

/// The claims of an `allow`, with `changes` over them; `null` removes one.
pub(crate) fn claims(changes: Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "jti": "dec_00000000000000000000000001", "iat": IAT, "exp": IAT + 300, "verdict": "allow",
        "mandate": MANDATE, "policy_version": "pol_2026-01-01.1", "nonce": NONCE,
        "request": {
            "agent": "agt_buyer", "amount": 40, "currency": "USD", "recipient": "vendor:acme", "category": "software",
        },
    });
    let Value::Object(changes) = changes else { panic!("changes are members") };
    for (name, value) in changes {
        claims[name] = value;
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

/// The same, of production.
pub(crate) fn live_token(changes: Value) -> String {
    jwt::sign(&*key(EnvironmentKind::Production), &claims(changes).to_string()).unwrap()
}

/// A token of the sandbox with `changes` over its claims.
pub(crate) fn token(changes: Value) -> String {
    jwt::sign(&*key(EnvironmentKind::Sandbox), &claims(changes).to_string()).unwrap()
}

/// Writes the key set into `folder`. Returns the file's path.
pub(crate) fn jwks_file(folder: &Path) -> String {
    let path = folder.join("jwks.json");
    std::fs::write(&path, jwks()).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The options for the payment of every token.
pub(crate) const PAYMENT: [&str; 6] = ["--amount", "40", "--currency", "USD", "--recipient", "vendor:acme"];

/// `mandate verify` of `token` a second after it was issued, with the key set in `jwks`.
pub(crate) fn verify(token: &str, jwks: &str) -> Command {
    verify_at(token, jwks, IAT + 1)
}

/// `mandate verify` of `token` at a time.
pub(crate) fn verify_at(token: &str, jwks: &str, at: i64) -> Command {
    mandate(&[
        "verify",
        token,
        "--issuer",
        ISSUER,
        "--jwks",
        jwks,
        "--allow-sandbox",
        "--at",
        &at.to_string(),
    ])
}
