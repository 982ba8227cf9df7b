//! Which sets are read, which of their keys are used, and what becomes of the others.

use super::*;
use crate::es256::SecretKey;

const X: &str = "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs";
const Y: &str = "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA";

/// An ES256 JWK with `changes` to its members; `null` removes one.
fn jwk(changes: &serde_json::Value) -> serde_json::Value {
    let mut jwk = serde_json::json!({"kty": "EC", "crv": "P-256", "kid": "a", "x": X, "y": Y});
    for (name, value) in changes.as_object().unwrap() {
        jwk[name] = value.clone();
    }
    jwk.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    jwk
}

fn set(changes: &[serde_json::Value]) -> Result<KeySet, String> {
    let keys: Vec<_> = changes.iter().map(jwk).collect();
    let document = serde_json::json!({"keys": keys, "next": "https://elsewhere.example"}).to_string();
    KeySet::parse(document.as_bytes()).map_err(|e| e.to_string())
}

/// The key and thumbprint of RFC 9449, sections 4.1 and 6.1.
#[test]
fn the_thumbprint_is_that_of_a_published_example() {
    let key = set(&[serde_json::json!({})]).unwrap().keys[0].public;
    let print = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";
    assert_eq!(Kid::for_key(&key, EnvironmentKind::Production).as_str(), print);
    assert_eq!(Kid::for_key(&key, EnvironmentKind::Sandbox).as_str(), format!("sandbox-{print}"));
}

#[test]
fn foreign_keys_are_passed_over() {
    use serde_json::json;
    for foreign in [
        json!({"kty": "RSA", "n": "AQAB", "e": "AQAB"}),
        json!({"kty": "OKP", "crv": "Ed25519"}),
        json!({"kty": null}),
        json!({"crv": "P-384", "x": "AA"}),
        json!({"crv": null}),
        json!({"alg": "ES384"}),
        json!({"alg": "ECDH-ES"}),
        json!({"use": "enc"}),
        json!({"use": "tls"}),
        json!({"key_ops": ["sign"]}),
        json!({"key_ops": ["attest"]}),
        json!({"key_ops": []}),
        json!({"kid": null}),
        json!({"kid": "two words"}),
        json!({"kid": ""}),
    ] {
        let keys = set(&[foreign.clone(), json!({"kid": "b"})]).unwrap();
        assert_eq!(keys.iter().map(|k| k.kid().as_str()).collect::<Vec<_>>(), ["b"], "{foreign}");
    }
    let fit = json!({"alg": "ES256", "use": "sig", "key_ops": ["verify", "attest"], "x5u": "https://a.example", "ext": 1});
    assert_eq!(set(&[fit]).unwrap().len(), 1);
}

#[test]
fn sets_that_are_refused() {
    use serde_json::json;
    let secret = "is part of a secret key and must not be in a published set";
    for (changes, message) in [
        (
            vec![json!({}), json!({"x": Y, "y": X, "kid": "b"})],
            "keys[1] is refused: the public key must be a point on P-256",
        ),
        (vec![json!({}), json!({})], "keys must not have two keys named `a`"),
        (vec![json!({"x": null})], "keys[0].x is required"),
        (vec![json!({"y": null, "kid": null})], "keys[0].y is required"),
        (vec![json!({"x": 7})], "keys[0].x must be a string; got a number"),
        (vec![json!({"x": "AA"})], "keys[0].x must be 32 bytes in base64url without padding"),
        (vec![json!({"x": format!("{X}=")})], "keys[0].x must be 32 bytes in base64url without padding"),
        (vec![json!({"kty": 1})], "keys[0].kty must be a string; got a number"),
        (vec![json!({"kid": 1})], "keys[0].kid must be a string; got a number"),
        (vec![json!({"key_ops": "verify"})], "keys[0].key_ops must be an array; got a string"),
        (vec![json!({}); 65], "keys must have at most 64 elements; got 65"),
        (vec![json!({"d": "AA"})], &format!("keys[0].d {secret}")),
        (vec![json!({"kty": "oct", "k": "AA"})], &format!("keys[0].k {secret}")),
        (vec![json!({"kty": "RSA", "qi": "AA"})], &format!("keys[0].qi {secret}")),
    ] {
        assert_eq!(set(&changes).unwrap_err(), message, "{changes:?}");
    }
    for (document, message) in [
        ("{}", "keys is required"),
        (r#"{"keys":{}}"#, "keys must be an array; got an object"),
        (r#"{"keys":[1]}"#, "keys[0] must be an object; got a number"),
        (r#"{"keys":[],"keys":[]}"#, "keys appears twice in the object"),
        (r#"{"keys":[{"kty":"EC","kty":"oct"}]}"#, "keys[0].kty appears twice in the object"),
        ("[]", "key set must be a JSON object"),
        (&" ".repeat(65_537), "key set must be at most 65536 bytes; got 65537"),
    ] {
        assert_eq!(KeySet::parse(document.as_bytes()).unwrap_err().to_string(), message);
    }
    assert!(KeySet::parse(br#"{"keys":[]}"#).unwrap().is_empty());
}

#[test]
fn what_is_published_is_read_again() {
    let keys: Vec<_> = (1..=3)
        .map(|i| {
            let public = *SecretKey::from_bytes([i; 32]).unwrap().public_key();
            VerificationKey::new(Kid::for_key(&public, EnvironmentKind::Sandbox), public).unwrap()
        })
        .collect();
    let json = KeySet::new(keys.clone()).unwrap().to_json();
    let read = KeySet::parse(json.as_bytes()).unwrap();
    assert_eq!(read.to_json(), json);
    assert_eq!(read.len(), 3);
    assert!(keys.iter().all(|key| read.find(key.kid()).unwrap().public_key() == key.public_key()));
    assert!(read.find(&Kid::parse("sandbox-").unwrap()).is_none());
    assert!(KeySet::new([keys.clone(), keys].concat()).is_err());
}
