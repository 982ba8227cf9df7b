//! A key set that was read once, and the keys whose signatures the platform checks.

use std::sync::Arc;

use mandate_core::es256::Verifier;
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

/// The keys of an issuer.
#[derive(Debug)]
#[wasm_bindgen]
pub struct Keys(KeySet);

/// What the platform has found of the one signature of a token.
#[derive(Debug)]
struct Found(bool);

impl Verifier for Found {
    fn verify(&self, _: &[u8], _: &[u8; 64]) -> bool {
        self.0
    }
}

#[wasm_bindgen]
impl Keys {
    /// Reads a key set: as it is published, or a longer archive.
    ///
    /// # Errors
    /// It is not a key set. The message says why.
    pub fn parse(document: &[u8], archive: bool) -> Result<Keys, JsError> {
        let keys = if archive { KeySet::parse_archive(document) } else { KeySet::parse(document) };
        keys.map(Self).map_err(|refused| JsError::new(&refused.to_string()))
    }

    /// The public key of that name as a JWK, for the platform.
    #[must_use]
    pub fn jwk(&self, kid: &str) -> Option<String> {
        let key = self.0.find(&Kid::parse(kid).ok()?)?.clone();
        let set = KeySet::new(vec![key]).ok()?.to_json();
        Some(set.strip_prefix(r#"{"keys":["#)?.strip_suffix("]}")?.to_owned())
    }
}

impl Keys {
    /// The keys for one token, whose signature the platform may have checked.
    pub(crate) fn with(&self, signed: Option<bool>) -> KeySet {
        let Some(signed) = signed else { return self.0.clone() };
        let found = Arc::new(Found(signed));
        let key = |key: &VerificationKey| {
            VerificationKey::with_verifier(key.kid().clone(), *key.public_key(), found.clone())
        };
        // Names that were unique are unique.
        KeySet::archive(self.0.iter().map(key).collect()).unwrap_or_default()
    }
}
