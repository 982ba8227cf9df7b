//! The pure-Rust backend of ES256. Its signatures are deterministic (RFC 6979): the same message gives the
//! same signature.

use std::fmt;

use p256::ecdsa::signature::{Signer as _, Verifier as _};
use p256::ecdsa::{Signature, SigningKey, VerifyingKey};

use super::{InvalidKey, PublicKey, SIGNATURE_BYTES, SecretKey, SigningFailed};
use crate::kid::Kid;

/// Signs with the `p256` crate.
pub struct Signer {
    kid: Kid,
    public: PublicKey,
    key: SigningKey,
}

/// Verifies with the `p256` crate.
#[derive(Debug)]
pub struct Verifier(VerifyingKey);

impl Signer {
    /// A signer under `secret`, published as `kid`.
    ///
    /// # Errors
    /// None for a [`SecretKey`]. All backends have the same signature.
    pub fn new(secret: &SecretKey, kid: Kid) -> Result<Self, InvalidKey> {
        Ok(Self { kid, public: secret.public, key: signing_key(secret.expose())? })
    }
}

impl super::Signer for Signer {
    fn kid(&self) -> &Kid {
        &self.kid
    }

    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, message: &[u8]) -> Result<[u8; SIGNATURE_BYTES], SigningFailed> {
        let signature: Signature = self.key.try_sign(message).map_err(|_| SigningFailed)?;
        Ok(signature.to_bytes().into())
    }
}

impl Verifier {
    /// A verifier under `key`.
    ///
    /// # Errors
    /// None for a [`PublicKey`]. All backends have the same signature.
    pub fn new(key: &PublicKey) -> Result<Self, InvalidKey> {
        VerifyingKey::from_sec1_bytes(&key.sec1()).map(Self).map_err(|_| InvalidKey::Backend)
    }
}

impl super::Verifier for Verifier {
    fn verify(&self, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        Signature::from_slice(signature).is_ok_and(|signature| self.0.verify(message, &signature).is_ok())
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("p256::Signer").field("kid", &self.kid).finish_non_exhaustive()
    }
}

fn signing_key(secret: &[u8; 32]) -> Result<SigningKey, InvalidKey> {
    SigningKey::from_slice(secret).map_err(|_| InvalidKey::Backend)
}

/// The public key of a secret in range. Not used if the faster backend is compiled in.
#[cfg_attr(feature = "aws-lc-rs", allow(dead_code))]
pub(super) fn public_key(secret: &[u8; 32]) -> Result<PublicKey, InvalidKey> {
    PublicKey::from_sec1(signing_key(secret)?.verifying_key().to_sec1_point(false).as_bytes())
}

/// Whether `signature`, in DER, is one of `message`. Only the tests use it if the faster backend is compiled in.
#[cfg(feature = "people")]
#[cfg_attr(feature = "aws-lc-rs", allow(dead_code))]
pub(super) fn verify_der(key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
    let Ok(Verifier(key)) = Verifier::new(key) else { return false };
    Signature::from_der(signature).is_ok_and(|signature| key.verify(message, &signature).is_ok())
}
