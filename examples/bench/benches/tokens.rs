//! Signing and verifying the token of a verdict, beside `jsonwebtoken` with each of its backends.
//!
//! `src/verdicts.rs` shows how both do it. Both backends of `jsonwebtoken` are in one process: its provider, which can be
//! set but once, is one that asks [`RUST_CRYPTO`].
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run should stop")]

mod side_by_side;
#[path = "../src/verdicts.rs"]
mod verdicts;

use std::sync::atomic::{AtomicBool, Ordering};

use criterion::Criterion;
use jsonwebtoken::crypto::{CryptoProvider, KeyUtils, aws_lc, rust_crypto};
use mandate_core::Timestamp;
use mandate_core::es256;

use self::side_by_side::{contender, contest};
use self::verdicts::{Keys, claims, forged, sign};

/// Far enough ahead that `jsonwebtoken`, which asks the clock, does not find the token expired.
const IAT: i64 = 4_000_000_000;

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

/// Has `jsonwebtoken` use that backend.
fn with<T>(rust_crypto: bool, run: impl Fn() -> T) -> impl Fn() -> T {
    move || {
        RUST_CRYPTO.store(rust_crypto, Ordering::Relaxed);
        run()
    }
}

fn main() {
    EITHER.install_default().unwrap();
    let now = Timestamp::from_seconds(IAT);
    let (keys, claims) = (Keys::new().unwrap(), [claims(now, 1).unwrap(), claims(now, 2).unwrap()]);
    let aws_lc_rs = es256::aws_lc_rs::Signer::new(&keys.secret, keys.kid.clone()).unwrap();
    let p256 = es256::p256::Signer::new(&keys.secret, keys.kid.clone()).unwrap();
    let tokens = claims.each_ref().map(|claims| sign(&aws_lc_rs, claims).unwrap());
    let ([claims, _], [token, other]) = (&claims, &tokens);
    let expected = keys.expected(Timestamp::from_seconds(IAT + 1));
    let forged = forged(token, other).unwrap();
    assert!(keys.verify(&forged, &expected).is_err());
    for rust_crypto in [false, true] {
        let verified = with(rust_crypto, || keys.verify_with_jsonwebtoken(&forged));
        assert!(verified().is_err());
        let signed = with(rust_crypto, || keys.sign_with_jsonwebtoken(claims).unwrap());
        keys.verify(&signed(), &expected).unwrap();
    }

    let criterion = &mut Criterion::default().configure_from_args();
    let theirs = || keys.sign_with_jsonwebtoken(claims).unwrap();
    contest(
        criterion,
        "sign",
        &[
            contender("mandate-core, aws-lc-rs", || sign(&aws_lc_rs, claims).unwrap()),
            contender("jsonwebtoken, aws_lc_rs", with(false, theirs)),
            contender("mandate-core, p256", || sign(&p256, claims).unwrap()),
            contender("jsonwebtoken, rust_crypto", with(true, theirs)),
        ],
    );
    let theirs = || keys.verify_with_jsonwebtoken(token).unwrap();
    contest(
        criterion,
        "verify",
        &[
            contender("mandate-core, aws-lc-rs", || keys.verify(token, &expected).unwrap()),
            contender("jsonwebtoken, aws_lc_rs", with(false, theirs)),
            contender("jsonwebtoken, rust_crypto", with(true, theirs)),
        ],
    );
    criterion.final_summary();
}
