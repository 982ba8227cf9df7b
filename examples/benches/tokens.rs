//! Signing and verifying the token of a verdict, beside `jsonwebtoken` with each of its backends.
//!
//! Each library is given its key once, as a service or a counterparty would. Verifying is the whole procedure: signature,
//! algorithm, issuer, expiry, and then the verdict, the amount and the recipient. `jsonwebtoken` checks the first four and
//! deserializes the claims, with the amount as a double; the comparisons are made by hand. Both its backends are in one process: its
//! provider, which can be set but once, is one that asks [`RUST_CRYPTO`].
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark that cannot run should stop")]

mod side_by_side;

use std::sync::atomic::{AtomicBool, Ordering};

use criterion::Criterion;
use jsonwebtoken::crypto::{CryptoProvider, KeyUtils, aws_lc, rust_crypto};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use mandate_core::es256::{self, SecretKey, Signer};
use mandate_core::json::Object;
use mandate_core::jwks::{KeySet, Kid, VerificationKey};
use mandate_core::verify::{Expected, VerifiedVerdict, verify_verdict};
use mandate_core::{
    AgentId, Amount, DecisionId, EnvironmentKind, MandateId, Nonce, PolicyVersion, Recipient, Request,
    Timestamp, VERDICT_LIFETIME_SECONDS, Verdict, VerdictClaims, jwt,
};
use p256::pkcs8::EncodePrivateKey as _;
use serde::Deserialize;

use self::side_by_side::{contender, contest};

const ISSUER: &str = "https://verdicts.example";
/// Far enough ahead that `jsonwebtoken`, which asks the clock, does not find the token expired.
const IAT: i64 = 4_000_000_000;
const SECRET: [u8; 32] = [7; 32];

/// Which backend `jsonwebtoken` uses from now on.
static RUST_CRYPTO: AtomicBool = AtomicBool::new(false);

static EITHER: CryptoProvider = CryptoProvider {
    signer_factory: |algorithm, key| (backend().signer_factory)(algorithm, key),
    verifier_factory: |algorithm, key| (backend().verifier_factory)(algorithm, key),
    key_utils: KeyUtils::new_unimplemented(),
};

fn backend() -> &'static CryptoProvider {
    if RUST_CRYPTO.load(Ordering::Relaxed) {
        &rust_crypto::DEFAULT_PROVIDER
    } else {
        &aws_lc::DEFAULT_PROVIDER
    }
}

/// The claims as a user of `jsonwebtoken` would write them down.
#[derive(Deserialize)]
struct Claims {
    verdict: String,
    request: ClaimedRequest,
}

#[derive(Deserialize)]
struct ClaimedRequest {
    amount: f64,
    recipient: String,
}

fn claims() -> VerdictClaims {
    let body = br#"{"amount":40.5,"currency":"USD","recipient":"vendor:acme","category":"software"}"#;
    let now = Timestamp::from_seconds(IAT);
    VerdictClaims {
        iss: ISSUER.to_owned(),
        jti: DecisionId::new(now, 1),
        iat: IAT,
        exp: IAT + VERDICT_LIFETIME_SECONDS,
        verdict: Verdict::Allow,
        mandate: Some(MandateId::new(now, 2)),
        policy_version: PolicyVersion::parse("pol_2026-01-01.1").unwrap(),
        nonce: Nonce::new(now, 3),
        request: Request::read(AgentId::parse("agt_buyer").unwrap(), Object::parse(body).unwrap()).unwrap(),
    }
}

/// One key, in the forms that the libraries take it in.
struct Keys {
    aws_lc_rs: es256::aws_lc_rs::Signer,
    p256: es256::p256::Signer,
    set: KeySet,
    encoding: EncodingKey,
    decoding: DecodingKey,
}

impl Keys {
    fn new() -> Self {
        let secret = SecretKey::from_bytes(SECRET).unwrap();
        let public = *secret.public_key();
        let kid = Kid::for_key(&public, EnvironmentKind::Sandbox);
        let pkcs8 = p256::SecretKey::from_slice(&SECRET).unwrap().to_pkcs8_der().unwrap();
        let point = [&[4], public.x().as_slice(), public.y()].concat();
        Self {
            aws_lc_rs: es256::aws_lc_rs::Signer::new(&secret, kid.clone()).unwrap(),
            p256: es256::p256::Signer::new(&secret, kid.clone()).unwrap(),
            set: KeySet::new(vec![VerificationKey::new(kid, public).unwrap()]).unwrap(),
            encoding: EncodingKey::from_ec_der(pkcs8.as_bytes()),
            decoding: DecodingKey::from_ec_der(&point),
        }
    }

    fn sign(signer: &dyn Signer, claims: &VerdictClaims) -> String {
        jwt::sign(signer, &claims.to_json()).unwrap()
    }

    fn sign_with_jsonwebtoken(&self, header: &Header, claims: &VerdictClaims, rust_crypto: bool) -> String {
        RUST_CRYPTO.store(rust_crypto, Ordering::Relaxed);
        jsonwebtoken::encode(header, claims, &self.encoding).unwrap()
    }

    fn verify(&self, token: &str, expected: &Expected<'_>) -> VerifiedVerdict {
        verify_verdict(token, &self.set, expected).unwrap()
    }

    fn verify_with_jsonwebtoken(&self, token: &str, validation: &Validation, rust_crypto: bool) -> Claims {
        RUST_CRYPTO.store(rust_crypto, Ordering::Relaxed);
        let claims = jsonwebtoken::decode::<Claims>(token, &self.decoding, validation).unwrap().claims;
        assert_eq!(claims.verdict, "allow");
        assert!(claims.request.amount.to_bits() == 40.5_f64.to_bits());
        assert_eq!(claims.request.recipient, "vendor:acme");
        claims
    }
}

fn main() {
    EITHER.install_default().unwrap();
    let (keys, claims) = (Keys::new(), claims());
    let header = Header { kid: Some(keys.aws_lc_rs.kid().to_string()), ..Header::new(Algorithm::ES256) };
    let criterion = &mut Criterion::default().configure_from_args();
    contest(
        criterion,
        "sign",
        &[
            contender("mandate-core, aws-lc-rs", || Keys::sign(&keys.aws_lc_rs, &claims)),
            contender("jsonwebtoken, aws_lc_rs", || keys.sign_with_jsonwebtoken(&header, &claims, false)),
            contender("mandate-core, p256", || Keys::sign(&keys.p256, &claims)),
            contender("jsonwebtoken, rust_crypto", || keys.sign_with_jsonwebtoken(&header, &claims, true)),
        ],
    );

    let token = Keys::sign(&keys.aws_lc_rs, &claims);
    let expected = Expected {
        amount: Some(Amount::parse("40.5").unwrap()),
        recipient: Some(Recipient::parse("vendor:acme").unwrap()),
        ..Expected::new(ISSUER, Timestamp::from_seconds(IAT + 1))
    };
    let mut validation = Validation::new(Algorithm::ES256);
    validation.set_issuer(&[ISSUER]);
    contest(
        criterion,
        "verify",
        &[
            contender("mandate-core, aws-lc-rs", || keys.verify(&token, &expected)),
            contender("jsonwebtoken, aws_lc_rs", || {
                keys.verify_with_jsonwebtoken(&token, &validation, false)
            }),
            contender("jsonwebtoken, rust_crypto", || {
                keys.verify_with_jsonwebtoken(&token, &validation, true)
            }),
        ],
    );
    criterion.final_summary();
}
