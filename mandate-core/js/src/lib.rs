//! `mandate-core` for JavaScript: a few functions that take and give text, compiled to WebAssembly.
//!
//! Texts cross the border, most of them JSON; the package's own modules give them types. The only object is a key set, so that
//! it is read once. No function has I/O or a clock: fetching, time, nonces and the platform's arithmetic are JavaScript's.

mod contract;
mod evaluate;
mod expected;
mod keys;
mod proof;
mod report;
mod verify;

use wasm_bindgen::prelude::wasm_bindgen;

pub use keys::Keys;

/// Verifies the token of a verdict. `expected` is JSON: see `expected`. `signed` says whether the platform found the signature
/// to be valid; without it the core does the arithmetic.
///
/// Gives the JSON of `report::Report`.
#[must_use]
#[wasm_bindgen(js_name = verifyVerdict)]
pub fn verify_verdict(token: &str, keys: &Keys, expected: &str, signed: Option<bool>) -> String {
    verify::verdict(token, keys, expected, signed).to_json()
}

/// Verifies the body of a webhook's request, as `verify_verdict` does a verdict.
#[must_use]
#[wasm_bindgen(js_name = verifyEvent)]
pub fn verify_event(token: &str, keys: &Keys, expected: &str, signed: Option<bool>) -> String {
    verify::event(token, keys, expected, signed).to_json()
}

/// Verifies the signed contract of an escrow. `environment` is as in `expected`, `signed` as in [`verify_verdict`].
///
/// Gives the JSON of `contract::Signed` or of a refusal.
#[must_use]
#[wasm_bindgen(js_name = verifyContract)]
pub fn verify_contract(
    token: &str,
    keys: &Keys,
    issuer: &str,
    environment: &str,
    signed: Option<bool>,
) -> String {
    report::json(&contract::verify(token, keys, (issuer, environment), signed))
}

/// Verifies that the log has a token's decision, by the text of its proof. `log` is the log's pinned key, `policy` the text of
/// the verifier's policy; one of them must be there.
///
/// Gives the JSON of `proof::Proved` or of a refusal.
#[must_use]
#[wasm_bindgen(js_name = verifyProof)]
pub fn verify_proof(token: &str, proof: &[u8], log: Option<String>, policy: Option<String>) -> String {
    report::json(&proof::verify(token, proof, &proof::Trusted { log, policy }))
}

/// Decides on a request. `question` is JSON: see `evaluate`.
///
/// Gives the JSON of `evaluate::Decided` or of a refusal.
#[must_use]
#[wasm_bindgen]
pub fn evaluate(question: &str) -> String {
    report::json(&evaluate::evaluate(question))
}

/// The name of the key that a token is signed with. None: it is not a token, as verifying it will say.
#[must_use]
#[wasm_bindgen(js_name = namedKey)]
pub fn named_key(token: &str) -> Option<String> {
    mandate_core::jwt::Unverified::parse(token).ok().map(|token| token.kid().to_string())
}
