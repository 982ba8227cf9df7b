//! ES256: ECDSA on P-256 with SHA-256 (RFC 7518, section 3.4), behind one trait to sign and one to verify.
//!
//! Two backends do the arithmetic. Each is a module with a `Signer` and a `Verifier`, and is compiled in by
//! the cargo feature of its name: `p256`, pure Rust, the default; and `aws-lc-rs`, several times faster,
//! which needs a C compiler. [`signer`] and [`verifier`] use the fastest one compiled in. For a key that is
//! kept elsewhere, such as in an HSM, implement [`Signer`].
//!
//! A signature is the 64 bytes `r ‖ s`; the DER form is refused. `r` and `s` must be from 1 to n − 1. Within
//! these bounds ECDSA is still malleable: if `(r, s)` verifies, so does `(r, n − s)`, so the holder of one
//! token can write a second with the same claims. A replay is therefore recognised by the nonce in the
//! claims, never by the bytes of a token.
//!
//! ```
//! use mandate_core::es256::{self, SecretKey};
//! use mandate_core::{EnvironmentKind, jwks::Kid};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In production: 32 bytes from the operating system's random generator.
//! let secret = SecretKey::from_bytes([7; 32])?;
//! let signer = es256::signer(&secret, Kid::for_key(secret.public_key(), EnvironmentKind::Sandbox))?;
//! let signature = signer.sign(b"message")?;
//!
//! let verifier = es256::verifier(signer.public_key())?;
//! assert!(verifier.verify(b"message", &signature));
//! assert!(!verifier.verify(b"another message", &signature));
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "aws-lc-rs")]
pub mod aws_lc_rs;
#[cfg(feature = "p256")]
pub mod p256;

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

#[cfg(feature = "aws-lc-rs")]
use self::aws_lc_rs as fastest;
#[cfg(all(feature = "p256", not(feature = "aws-lc-rs")))]
use self::p256 as fastest;
use crate::kid::Kid;

#[cfg(not(any(feature = "p256", feature = "aws-lc-rs")))]
compile_error!("mandate-core needs a backend for ES256: turn on the feature `p256` or `aws-lc-rs`");

/// The size of a coordinate, of a secret key, and of each half of a signature, in bytes.
const FIELD_BYTES: usize = 32;

/// The size of a signature in bytes: `r` and `s`, each a big-endian number of 32 bytes.
pub const SIGNATURE_BYTES: usize = 64;

/// The order n of the base point of P-256 (NIST SP 800-186, section 3.2.1.3).
const ORDER: [u8; FIELD_BYTES] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc,
    0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

/// The first byte of a point that is written with both coordinates (SEC 1, section 2.3.3).
const UNCOMPRESSED: u8 = 4;

/// Signs messages with a named key.
///
/// A key that is kept elsewhere and may be unreachable:
///
/// ```
/// use mandate_core::es256::{self, PublicKey, SIGNATURE_BYTES, Signer, SigningFailed};
/// use mandate_core::{jwks::Kid, jwt};
/// #[derive(Debug)]
/// struct Remote(Kid, PublicKey);
/// impl Signer for Remote {
///     fn kid(&self) -> &Kid { &self.0 }
///     fn public_key(&self) -> &PublicKey { &self.1 }
///     fn sign(&self, _: &[u8]) -> Result<[u8; SIGNATURE_BYTES], SigningFailed> { Err(SigningFailed) }
/// }
/// # let public = *es256::SecretKey::from_bytes([7; 32])?.public_key();
/// assert_eq!(jwt::sign(&Remote(Kid::parse("hsm-1")?, public), "{}"), Err(SigningFailed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Signer: fmt::Debug + Send + Sync {
    /// The name under which the public key is published.
    fn kid(&self) -> &Kid;

    /// The key that verifies what this signs.
    fn public_key(&self) -> &PublicKey;

    /// The signature of `message`, `r ‖ s`.
    ///
    /// # Errors
    /// The backend could not sign. The software backends do so only when the machine is out of memory or randomness.
    fn sign(&self, message: &[u8]) -> Result<[u8; SIGNATURE_BYTES], SigningFailed>;
}

/// Checks signatures under one public key.
///
/// ```
/// use mandate_core::es256::{self, SecretKey, Verifier};
/// let secret = SecretKey::from_bytes([7; 32])?;
/// let verifier: std::sync::Arc<dyn Verifier> = es256::verifier(secret.public_key())?;
/// assert!(!verifier.verify(b"message", &[0; 64]));
/// # Ok::<(), es256::InvalidKey>(())
/// ```
pub trait Verifier: fmt::Debug + Send + Sync {
    /// Whether `signature`, `r ‖ s`, is one of `message`.
    fn verify(&self, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool;
}

/// A signature could not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signing backend could not sign")]
pub struct SigningFailed;

/// Why bytes are not a key.
///
/// ```
/// use mandate_core::es256::{InvalidKey, PublicKey};
/// assert_eq!(PublicKey::from_coordinates([1; 32], [2; 32]), Err(InvalidKey::NotOnCurve));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// The secret is 0, or not below the order of the curve. Draw 32 new random bytes.
    #[error("the secret key must lie between 1 and n - 1, n being the order of P-256")]
    SecretOutOfRange,
    /// The coordinates are not those of a point on P-256.
    #[error("the public key must be a point on P-256")]
    NotOnCurve,
    /// The backend refused a valid key.
    #[error("the signing backend could not take the key")]
    Backend,
}

/// A public key: a point on P-256. Every value of this type is known to be on the curve.
///
/// ```
/// use mandate_core::es256::{PublicKey, SecretKey};
/// let key = *SecretKey::from_bytes([7; 32])?.public_key();
/// assert_eq!(PublicKey::from_coordinates(*key.x(), *key.y())?, key);
/// # Ok::<(), mandate_core::es256::InvalidKey>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey {
    x: [u8; FIELD_BYTES],
    y: [u8; FIELD_BYTES],
}

/// A secret key. It is wiped from memory when dropped, and `Debug` never shows it.
///
/// ```
/// use mandate_core::es256::SecretKey;
/// let secret = SecretKey::from_bytes([7; 32])?;
/// assert_eq!(secret.expose(), &[7; 32]);
/// assert!(!format!("{secret:?}").contains("0707"));
/// # Ok::<(), mandate_core::es256::InvalidKey>(())
/// ```
#[derive(Clone)]
pub struct SecretKey {
    secret: Zeroizing<[u8; FIELD_BYTES]>,
    public: PublicKey,
}

/// A signer of the fastest backend that is compiled in. The key set publishes its key as `kid`.
///
/// ```
/// use mandate_core::{es256::{self, SecretKey}, jwks::Kid};
/// let signer = es256::signer(&SecretKey::from_bytes([7; 32])?, Kid::parse("key-1")?)?;
/// assert_eq!(signer.kid().as_str(), "key-1");
/// assert_eq!(signer.sign(b"message")?.len(), es256::SIGNATURE_BYTES);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`InvalidKey::Backend`], when memory is exhausted.
pub fn signer(secret: &SecretKey, kid: Kid) -> Result<Arc<dyn Signer>, InvalidKey> {
    Ok(Arc::new(fastest::Signer::new(secret, kid)?))
}

/// A verifier of the fastest backend that is compiled in.
///
/// ```
/// use mandate_core::{es256::{self, SecretKey}, jwks::Kid};
/// let signer = es256::signer(&SecretKey::from_bytes([7; 32])?, Kid::parse("key-1")?)?;
/// let verifier = es256::verifier(signer.public_key())?;
/// assert!(verifier.verify(b"message", &signer.sign(b"message")?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`InvalidKey::Backend`], when memory is exhausted.
pub fn verifier(key: &PublicKey) -> Result<Arc<dyn Verifier>, InvalidKey> {
    Ok(Arc::new(fastest::Verifier::new(key)?))
}

/// Whether `signature`, in DER, is one of `message` under `key`, by the fastest backend that is compiled in.
#[cfg(feature = "people")]
pub(crate) fn verify_der(key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
    fastest::verify_der(key, message, signature)
}

impl PublicKey {
    /// The point with these coordinates, big-endian.
    ///
    /// ```
    /// use mandate_core::es256::{PublicKey, SecretKey};
    /// let key = *SecretKey::from_bytes([7; 32])?.public_key();
    /// assert_eq!(PublicKey::from_coordinates(*key.x(), *key.y())?, key);
    /// assert!(PublicKey::from_coordinates(*key.y(), *key.x()).is_err());
    /// # Ok::<(), mandate_core::es256::InvalidKey>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidKey::NotOnCurve`], if the coordinates are not those of a point on P-256.
    pub fn from_coordinates(x: [u8; FIELD_BYTES], y: [u8; FIELD_BYTES]) -> Result<Self, InvalidKey> {
        let key = Self { x, y };
        match fastest::Verifier::new(&key) {
            Ok(_) => Ok(key),
            Err(_) => Err(InvalidKey::NotOnCurve),
        }
    }

    /// The coordinate x, big-endian.
    #[must_use]
    pub fn x(&self) -> &[u8; FIELD_BYTES] {
        &self.x
    }

    /// The coordinate y, big-endian.
    #[must_use]
    pub fn y(&self) -> &[u8; FIELD_BYTES] {
        &self.y
    }

    /// The point in the uncompressed form of SEC 1, section 2.3.3: 4, x, y.
    fn sec1(&self) -> Vec<u8> {
        [&[UNCOMPRESSED], self.x.as_slice(), &self.y].concat()
    }

    /// The point in the uncompressed form of SEC 1, as a backend has written it.
    fn from_sec1(point: &[u8]) -> Result<Self, InvalidKey> {
        let coordinates = point.strip_prefix(&[UNCOMPRESSED]).ok_or(InvalidKey::Backend)?;
        let (x, y) = coordinates.split_first_chunk().ok_or(InvalidKey::Backend)?;
        Ok(Self { x: *x, y: y.try_into().map_err(|_| InvalidKey::Backend)? })
    }
}

impl SecretKey {
    /// The secret key with these 32 bytes, which must come from a cryptographic random generator.
    ///
    /// ```
    /// use mandate_core::es256::{InvalidKey, SecretKey};
    /// assert!(SecretKey::from_bytes([7; 32]).is_ok());
    /// assert_eq!(SecretKey::from_bytes([0xff; 32]).unwrap_err(), InvalidKey::SecretOutOfRange);
    /// ```
    ///
    /// # Errors
    /// [`InvalidKey::SecretOutOfRange`]. About one in 2³² random draws is out of range: then draw again.
    pub fn from_bytes(secret: [u8; FIELD_BYTES]) -> Result<Self, InvalidKey> {
        let secret = Zeroizing::new(secret);
        // Big-endian numbers of one length compare like their bytes. The time of the comparison reveals at
        // most that the key's first 32 bits are all set.
        if *secret == [0; FIELD_BYTES] || *secret >= ORDER {
            return Err(InvalidKey::SecretOutOfRange);
        }
        let public = fastest::public_key(&secret)?;
        Ok(Self { secret, public })
    }

    /// The key that verifies what this one signs.
    #[must_use]
    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// The 32 bytes of the secret, to be stored encrypted.
    #[must_use]
    pub fn expose(&self) -> &[u8; FIELD_BYTES] {
        &self.secret
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublicKey(")?;
        self.x.iter().chain(&self.y).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests;
