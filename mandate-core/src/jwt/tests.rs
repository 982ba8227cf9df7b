//! What the vectors do not cover: the exact form of what is written, rebuilding, messages, and every flipped
//! bit.

use super::*;
use crate::es256::{self, SecretKey};
use crate::jwks::VerificationKey;
use proptest::prelude::*;
use std::sync::Arc;

const CLAIMS: &str = r#"{"iss":"https://verdicts.example","n":1}"#;

fn signer() -> Arc<dyn Signer> {
    es256::signer(&SecretKey::from_bytes([7; 32]).unwrap(), Kid::parse("sandbox-1").unwrap()).unwrap()
}

fn keys() -> KeySet {
    KeySet::new(vec![VerificationKey::new(signer().kid().clone(), *signer().public_key()).unwrap()]).unwrap()
}

fn verify(token: &str) -> Result<Verified, TokenRefused> {
    Unverified::parse(token)?.verify(&keys())
}

#[test]
fn the_header_is_written_in_one_way() {
    let token = sign(&*signer(), CLAIMS).unwrap();
    let header = base64url::decode(token.split_once('.').unwrap().0).unwrap();
    assert_eq!(header, br#"{"alg":"ES256","kid":"sandbox-1","typ":"JWT"}"#);
}

#[test]
fn a_token_is_rebuilt_from_its_signature() {
    let token = sign(&*signer(), CLAIMS).unwrap();
    let read = Unverified::parse(&token).unwrap();
    assert_eq!(read.unverified_claims(), CLAIMS.as_bytes());
    assert_eq!(assemble(read.kid(), CLAIMS, read.signature()), token);
    let verified = verify(&token).unwrap();
    assert_eq!((verified.kid().as_str(), verified.claims()), ("sandbox-1", CLAIMS.as_bytes()));
}

#[test]
fn a_token_may_fill_16_kib_and_no_more() {
    let filled = |claims: usize| sign(&*signer(), &"x".repeat(claims)).unwrap();
    let fits = (MAX_TOKEN_BYTES - filled(0).len()) / 4 * 3;
    assert!(verify(&filled(fits)).is_ok());
    assert_eq!(verify(&filled(fits + 4)).unwrap_err().name(), "size");
}

#[test]
fn messages_say_what_would_be_accepted() {
    let good = sign(&*signer(), CLAIMS).unwrap();
    let with_header = |header: &str| {
        good.replacen(good.split_once('.').unwrap().0, &base64url::encode(header.as_bytes()), 1)
    };
    let with_signature =
        |bytes: &[u8]| format!("{}.{}", good.rsplit_once('.').unwrap().0, base64url::encode(bytes));
    let der = [&[0x30, 68, 2, 32], [1; 32].as_slice(), &[2, 32], &[1; 32]].concat();
    for (token, message) in [
        ("a.b".to_owned(), "the token must have 3 parts with a full stop between them; got 2"),
        (format!("{good}="), "the signature of the token must be base64url without padding; it has padding"),
        (with_header("{}"), "the header is refused: alg is required"),
        (with_header(r#"{"alg":"none"}"#), "the header is refused: alg must be `ES256`; got `none`"),
        (
            with_header(r#"{"alg":"ES256","kid":"k","jku":"https://a.example"}"#),
            "the header is refused: jku must not be there: only alg, kid and typ are accepted, and nothing is followed",
        ),
        (with_header(r#"{"alg":"ES256","kid":"k"}"#), "the key set has no key for ES256 named `k`"),
        (with_signature(&[1; 10]), "the signature must be 64 bytes, r and s; got 10"),
        (
            with_signature(&der),
            "the signature must be 64 bytes, r and s; got 70, which look like the DER form",
        ),
        (with_signature(&[1; 64]), "the signature does not verify under the key `sandbox-1`"),
    ] {
        assert_eq!(verify(&token).unwrap_err().to_string(), message);
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let token = sign(&*signer(), CLAIMS).unwrap();
    let keys = keys();
    for place in 0..token.len() {
        for bit in 0..7 {
            let mut changed = token.clone().into_bytes();
            changed[place] ^= 1 << bit;
            let changed = String::from_utf8(changed).unwrap();
            let read = Unverified::parse(&changed).and_then(|t| t.verify(&keys));
            assert!(read.is_err(), "bit {bit} of byte {place}");
        }
    }
}

proptest! {
    #[test]
    fn what_is_signed_verifies(claims in "\\PC{0,200}") {
        let token = sign(&*signer(), &claims).unwrap();
        let verified = verify(&token).unwrap();
        prop_assert_eq!(verified.claims(), claims.as_bytes());
    }

    #[test]
    fn anything_else_is_refused(text in "[A-Za-z0-9_-]{0,60}\\.[A-Za-z0-9_-]{0,60}\\.[A-Za-z0-9_-]{86}|\\PC{0,100}") {
        prop_assert!(verify(&text).is_err());
    }

    #[test]
    fn any_header_is_refused_or_read(header: Vec<u8>) {
        let token = format!("{}.e30.{}", base64url::encode(&header), "A".repeat(86));
        prop_assert!(verify(&token).is_err());
    }
}
