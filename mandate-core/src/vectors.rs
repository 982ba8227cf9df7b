//! The test vectors for other languages, `vectors/*.json`: made from the tables here, and read back.
//!
//! After a change of a table, write the files again:
//! `MANDATE_WRITE_VECTORS=1 cargo test -p mandate-core --features log,people vectors`.

mod claims;
mod exports;
#[cfg(feature = "log")]
mod log;
#[cfg(feature = "people")]
mod people;
mod tokens;

use serde_json::{Value, json};

use crate::EnvironmentKind;
use crate::base64url;
use crate::es256::{PublicKey, SecretKey, Signer, p256};
use crate::jwks::{KeySet, Kid, VerificationKey};
use crate::jwt;

/// A key that signs vectors. It is deterministic, and its secret is public.
fn signer(byte: u8, environment: EnvironmentKind) -> p256::Signer {
    let secret = SecretKey::from_bytes([byte; 32]).unwrap();
    let kid = Kid::for_key(secret.public_key(), environment);
    p256::Signer::new(&secret, kid).unwrap()
}

fn sandbox() -> p256::Signer {
    signer(7, EnvironmentKind::Sandbox)
}

fn production() -> p256::Signer {
    signer(8, EnvironmentKind::Production)
}

/// The keys of both environments, and one for another algorithm (RFC 8037, appendix A.2), which readers skip.
fn jwks() -> Value {
    let keys = [sandbox(), production()]
        .map(|s| VerificationKey::new(s.kid().clone(), PublicKey::clone(s.public_key())).unwrap());
    let mut set: Value = serde_json::from_str(&KeySet::new(keys.to_vec()).unwrap().to_json()).unwrap();
    let foreign = json!({"kty": "OKP", "crv": "Ed25519", "kid": "foreign",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
    set["keys"].as_array_mut().unwrap().push(foreign);
    set
}

/// A token with this header and these claims, signed with the sandbox's key, whatever they say.
fn signed(header: impl AsRef<[u8]>, claims: impl AsRef<[u8]>) -> String {
    let input = format!("{}.{}", base64url::encode(header.as_ref()), base64url::encode(claims.as_ref()));
    let signature = sandbox().sign(input.as_bytes()).unwrap();
    format!("{input}.{}", base64url::encode(&signature))
}

/// Compares the committed file with the tables.
fn check_file(name: &str, committed: &str, wanted: &Value) {
    let text = serde_json::to_string_pretty(wanted).unwrap() + "\n";
    if option_env!("MANDATE_WRITE_VECTORS").is_some() {
        let path = format!("{}/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, text).unwrap();
        return;
    }
    assert!(
        text == committed,
        "mandate-core/vectors/{name} is not what the tables say; the module says how to write it"
    );
}
