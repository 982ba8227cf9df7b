//! The fast backend of ES256. It draws the random number of each signature itself, from the operating system.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
#[cfg(feature = "people")]
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, ParsedPublicKey,
};
use zeroize::Zeroizing;

use super::{InvalidKey, PublicKey, SIGNATURE_BYTES, SecretKey, SigningFailed};
use crate::kid::Kid;

/// The start of an `ECPrivateKey` (RFC 5915, section 3) in DER, up to the 32 bytes of the secret: a sequence
/// of the version 1 and an octet string. The optional public key is left out, and the library computes it.
const BEFORE_SECRET: [u8; 7] = [0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20];
/// Its end: the parameters, with the object identifier of P-256 (RFC 5480, section 2.1.1.1).
const AFTER_SECRET: [u8; 12] = [0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

/// Signs with AWS-LC.
pub struct Signer {
    kid: Kid,
    public: PublicKey,
    key: EcdsaKeyPair,
}

/// Verifies with AWS-LC.
#[derive(Debug)]
pub struct Verifier(ParsedPublicKey);

impl Signer {
    /// A signer under `secret`, published as `kid`.
    ///
    /// # Errors
    /// [`InvalidKey::Backend`], when memory is exhausted.
    pub fn new(secret: &SecretKey, kid: Kid) -> Result<Self, InvalidKey> {
        Ok(Self { kid, public: secret.public, key: key_pair(secret.expose())? })
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
        let signature = self.key.sign(&SystemRandom::new(), message).map_err(|_| SigningFailed)?;
        signature.as_ref().try_into().map_err(|_| SigningFailed)
    }
}

impl Verifier {
    /// A verifier under `key`.
    ///
    /// # Errors
    /// [`InvalidKey::Backend`], when memory is exhausted.
    pub fn new(key: &PublicKey) -> Result<Self, InvalidKey> {
        ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.sec1()).map(Self).map_err(|_| InvalidKey::Backend)
    }
}

impl super::Verifier for Verifier {
    fn verify(&self, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        self.0.verify_sig(message, signature).is_ok()
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("aws_lc_rs::Signer").field("kid", &self.kid).finish_non_exhaustive()
    }
}

fn key_pair(secret: &[u8; 32]) -> Result<EcdsaKeyPair, InvalidKey> {
    let der = Zeroizing::new([BEFORE_SECRET.as_slice(), secret, &AFTER_SECRET].concat());
    EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, &der)
        .map_err(|_| InvalidKey::Backend)
}

/// The public key of a secret in range.
pub(super) fn public_key(secret: &[u8; 32]) -> Result<PublicKey, InvalidKey> {
    PublicKey::from_sec1(key_pair(secret)?.public_key().as_ref())
}

/// Whether `signature`, in DER, is one of `message`.
#[cfg(feature = "people")]
pub(super) fn verify_der(key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key.sec1()).verify(message, signature).is_ok()
}
