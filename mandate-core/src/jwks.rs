//! JSON Web Key Sets (RFC 7517): the public keys, by name, with which anyone can verify tokens.
//!
//! ```
//! use mandate_core::jwks::{KeySet, Kid};
//! let document = br#"{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","use":"sig","kid":"sandbox-1",
//!     "x":"l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs","y":"9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA"}]}"#;
//! let keys = KeySet::parse(document)?;
//! let key = keys.find(&Kid::parse("sandbox-1")?).ok_or("no such key")?;
//! assert!(key.kid().is_sandbox());
//! assert!(!key.verify(b"message", &[1; 64]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::EnvironmentKind;
use crate::base64url;
use crate::error::Invalid;
use crate::es256::{self, PublicKey, SIGNATURE_BYTES, Verifier};
use crate::json::{Field, Object};

pub use crate::kid::{Kid, MAX_KID_CHARS};

/// The longest key set that is read, in bytes.
pub const MAX_KEY_SET_BYTES: usize = 64 * 1024;

/// How many keys a set may have, including those that are skipped.
pub const MAX_KEYS: usize = 64;

/// The secret members of JWKs of every key type (RFC 7518, section 6), and `priv` of `AKP` keys.
const SECRET_MEMBERS: [&str; 9] = ["d", "k", "p", "q", "dp", "dq", "qi", "oth", "priv"];

/// A published key, ready to verify.
///
/// ```
/// use mandate_core::{es256, jwks::{Kid, VerificationKey}};
/// # let signer = es256::signer(&es256::SecretKey::from_bytes([7; 32])?, Kid::parse("key-1")?)?;
/// let key = VerificationKey::new(signer.kid().clone(), *signer.public_key())?;
/// assert!(key.verify(b"message", &signer.sign(b"message")?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct VerificationKey {
    kid: Kid,
    public: PublicKey,
    verifier: Arc<dyn Verifier>,
}

/// Keys by name, in the order of publication.
///
/// ```
/// use mandate_core::jwks::KeySet;
/// let keys = KeySet::parse(br#"{"keys": [{"kty": "RSA", "kid": "for something else"}]}"#)?;
/// assert!(keys.is_empty());
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct KeySet {
    keys: Vec<VerificationKey>,
}

impl Kid {
    /// The name under which this service publishes `key`: its RFC 7638 thumbprint (SHA-256), with `sandbox-` before
    /// it in the sandbox.
    ///
    /// ```
    /// use mandate_core::{EnvironmentKind, es256::SecretKey, jwks::Kid};
    /// let key = SecretKey::from_bytes([7; 32])?;
    /// let kid = Kid::for_key(key.public_key(), EnvironmentKind::Sandbox);
    /// assert_eq!(kid.as_str(), "sandbox-gWjt7nmB1udyFpLYVp0SxJnI8lJEvl7q8AFYZRqnGV8");
    /// # Ok::<(), mandate_core::es256::InvalidKey>(())
    /// ```
    #[must_use]
    pub fn for_key(key: &PublicKey, environment: EnvironmentKind) -> Self {
        Self::of_thumbprint(&thumbprint(key), environment)
    }
}

impl VerificationKey {
    /// Prepares `public` for verifying under the name `kid`.
    ///
    /// ```
    /// use mandate_core::{es256::SecretKey, jwks::{Kid, VerificationKey}};
    /// let public = *SecretKey::from_bytes([7; 32])?.public_key();
    /// let key = VerificationKey::new(Kid::parse("key-1")?, public)?;
    /// assert_eq!(key.public_key(), &public);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The backend is out of memory.
    pub fn new(kid: Kid, public: PublicKey) -> Result<Self, es256::InvalidKey> {
        Ok(Self { kid, public, verifier: es256::verifier(&public)? })
    }

    /// A key whose signatures `verifier` checks: where another library or a platform does the arithmetic.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use mandate_core::{es256::{SecretKey, Verifier}, jwks::{Kid, VerificationKey}};
    /// #[derive(Debug)]
    /// struct Platform;
    /// impl Verifier for Platform {
    ///     fn verify(&self, _: &[u8], _: &[u8; 64]) -> bool { false }
    /// }
    /// let public = *SecretKey::from_bytes([7; 32])?.public_key();
    /// let key = VerificationKey::with_verifier(Kid::parse("key-1")?, public, Arc::new(Platform));
    /// assert!(!key.verify(b"message", &[1; 64]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_verifier(kid: Kid, public: PublicKey, verifier: Arc<dyn Verifier>) -> Self {
        Self { kid, public, verifier }
    }

    /// The name.
    #[must_use]
    pub fn kid(&self) -> &Kid {
        &self.kid
    }

    /// The public key.
    #[must_use]
    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// Whether `signature`, `r ‖ s`, is one of `message` under this key.
    ///
    /// ```
    /// use mandate_core::{es256::SecretKey, jwks::{Kid, VerificationKey}};
    /// let key = VerificationKey::new(Kid::parse("key-1")?, *SecretKey::from_bytes([7; 32])?.public_key())?;
    /// assert!(!key.verify(b"message", &[1; 64]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        self.verifier.verify(message, signature)
    }
}

impl KeySet {
    /// A set of these keys, to be published in this order.
    ///
    /// ```
    /// use mandate_core::{es256::SecretKey, jwks::{KeySet, Kid, VerificationKey}};
    /// let key = VerificationKey::new(Kid::parse("key-1")?, *SecretKey::from_bytes([7; 32])?.public_key())?;
    /// assert_eq!(KeySet::new(vec![key.clone()])?.len(), 1);
    /// let refused = KeySet::new(vec![key.clone(), key]).unwrap_err();
    /// assert_eq!(refused.to_string(), "keys must not have two keys named `key-1`");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Two keys have the same name, or there are more than [`MAX_KEYS`].
    pub fn new(keys: Vec<VerificationKey>) -> Result<Self, Invalid> {
        if keys.len() > MAX_KEYS {
            return Err(Invalid::new(
                "keys",
                format!("must have at most {MAX_KEYS} elements; got {}", keys.len()),
            ));
        }
        Self::archive(keys)
    }

    /// An archive: all keys that ever signed, as many as there are. A published set has at most [`MAX_KEYS`].
    ///
    /// ```
    /// use mandate_core::{es256::SecretKey, jwks::{KeySet, Kid, MAX_KEYS, VerificationKey}};
    /// let public = *SecretKey::from_bytes([7; 32])?.public_key();
    /// let keys = (0..=MAX_KEYS).map(|n| VerificationKey::new(Kid::parse(&format!("key-{n}"))?, public).map_err(Into::into));
    /// let keys = keys.collect::<Result<Vec<_>, Box<dyn std::error::Error>>>()?;
    /// assert!(KeySet::new(keys.clone()).is_err());
    /// assert_eq!(KeySet::archive(keys)?.len(), MAX_KEYS + 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Two keys have the same name.
    pub fn archive(keys: Vec<VerificationKey>) -> Result<Self, Invalid> {
        let mut names = BTreeSet::new();
        if let Some(key) = keys.iter().find(|key| !names.insert(key.kid.as_str())) {
            return Err(Invalid::new("keys", format!("must not have two keys named `{}`", key.kid)));
        }
        Ok(Self { keys })
    }

    /// Reads a JWK Set.
    ///
    /// Keys for other purposes are skipped, as RFC 7517, section 5 demands: those whose `kty`, `crv`, `alg`,
    /// `use` or `key_ops` exclude verifying ES256. So are ES256 keys without a valid [`Kid`]: no token can
    /// name them. Unknown members, of the set or of a key, are ignored; `x5u` and the like are never
    /// followed.
    ///
    /// ```
    /// use mandate_core::jwks::KeySet;
    /// let refused = KeySet::parse(br#"{"keys": [{"kty": "EC", "crv": "P-256", "d": "AQ"}]}"#);
    /// assert!(refused.is_err(), "a secret key does not belong in a published set");
    /// ```
    ///
    /// # Errors
    /// The document exceeds [`MAX_KEY_SET_BYTES`] or [`MAX_KEYS`]; it is not strict JSON or has no array
    /// `keys`; a member has the wrong type; any key has a secret member (`d`, `k`, `p` and so on);
    /// coordinates are not 32 bytes in base64url or not on the curve; or two ES256 keys have the same name.
    pub fn parse(document: &[u8]) -> Result<Self, Invalid> {
        if document.len() > MAX_KEY_SET_BYTES {
            let length = document.len();
            return Err(Invalid::new(
                "key set",
                format!("must be at most {MAX_KEY_SET_BYTES} bytes; got {length}"),
            ));
        }
        let elements = Object::parse_as("key set", document)?.require("keys")?.elements(usize::MAX)?;
        if elements.len() > MAX_KEYS {
            let length = elements.len();
            return Err(Invalid::new("keys", format!("must have at most {MAX_KEYS} elements; got {length}")));
        }
        Self::archive(read_jwks(&elements)?)
    }

    /// Reads an archive: a JWK Set of any size, read as by [`KeySet::parse`]. It is meant for a document from a source that
    /// the reader trusts, such as a file that the issuer has given; the reader bounds its length.
    ///
    /// ```
    /// use mandate_core::jwks::KeySet;
    /// let rsa = r#"{"kty": "RSA", "kid": "for something else"}"#;
    /// let document = format!(r#"{{"keys": [{}]}}"#, [rsa; 2000].join(","));
    /// assert!(KeySet::parse(document.as_bytes()).is_err());
    /// assert!(KeySet::parse_archive(document.as_bytes())?.is_empty());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// As for [`KeySet::parse`], without the bounds on size and number.
    pub fn parse_archive(document: &[u8]) -> Result<Self, Invalid> {
        let elements = Object::parse_as("key set", document)?.require("keys")?.elements(usize::MAX)?;
        Self::archive(read_jwks(&elements)?)
    }

    /// The set as a JWK Set (RFC 7517, section 5), to be published.
    ///
    /// ```
    /// use mandate_core::{EnvironmentKind, es256::SecretKey, jwks::{KeySet, Kid, VerificationKey}};
    /// let public = *SecretKey::from_bytes([7; 32])?.public_key();
    /// let kid = Kid::for_key(&public, EnvironmentKind::Production);
    /// let keys = KeySet::new(vec![VerificationKey::new(kid.clone(), public)?])?;
    /// let read = KeySet::parse(keys.to_json().as_bytes())?;
    /// assert_eq!(read.find(&kid).map(|key| *key.public_key()), Some(public));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn to_json(&self) -> String {
        let keys: Vec<_> = self.keys.iter().map(write_jwk).collect();
        format!(r#"{{"keys":[{}]}}"#, keys.join(","))
    }

    /// The key with that name.
    ///
    /// ```
    /// use mandate_core::{es256::SecretKey, jwks::{KeySet, Kid, VerificationKey}};
    /// let kid = Kid::parse("key-1")?;
    /// let public = *SecretKey::from_bytes([7; 32])?.public_key();
    /// let keys = KeySet::new(vec![VerificationKey::new(kid.clone(), public)?])?;
    /// assert!(keys.find(&kid).is_some());
    /// assert!(keys.find(&Kid::parse("key-2")?).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn find(&self, kid: &Kid) -> Option<&VerificationKey> {
        self.keys.iter().find(|key| key.kid == *kid)
    }

    /// The keys, in the order of publication.
    ///
    /// ```
    /// use mandate_core::{es256::SecretKey, jwks::{KeySet, Kid, VerificationKey}};
    /// # let public = *SecretKey::from_bytes([7; 32])?.public_key();
    /// let key = |kid| Ok::<_, Box<dyn std::error::Error>>(VerificationKey::new(Kid::parse(kid)?, public)?);
    /// let keys = KeySet::new(vec![key("new")?, key("old")?])?;
    /// assert!(keys.iter().map(|key| key.kid().as_str()).eq(["new", "old"]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = &VerificationKey> {
        self.keys.iter()
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the set has no key, and so verifies nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// The RFC 7638 thumbprint: SHA-256 of the required members in alphabetical order, in base64url.
fn thumbprint(key: &PublicKey) -> String {
    base64url::encode(&thumbprint_bytes(key))
}

/// The bytes of the thumbprint.
pub(crate) fn thumbprint_bytes(key: &PublicKey) -> [u8; 32] {
    let (x, y) = (base64url::encode(key.x()), base64url::encode(key.y()));
    let required = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
    Sha256::digest(required).into()
}

fn write_jwk(key: &VerificationKey) -> String {
    let (x, y) = (base64url::encode(key.public.x()), base64url::encode(key.public.y()));
    let kid = &key.kid;
    format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}","kid":"{kid}","alg":"ES256","use":"sig"}}"#)
}

fn read_jwks(elements: &[Field<'_>]) -> Result<Vec<VerificationKey>, Invalid> {
    elements.iter().filter_map(|jwk| read_jwk(jwk).transpose()).collect()
}

/// One element of `keys`. `None` if the key is for another purpose, or has no name that a token could give.
fn read_jwk(field: &Field<'_>) -> Result<Option<VerificationKey>, Invalid> {
    let mut jwk = field.object()?;
    for name in SECRET_MEMBERS {
        if let Some(secret) = jwk.take(name) {
            return Err(Invalid::new(
                secret.path(),
                "is part of a secret key and must not be in a published set",
            ));
        }
    }
    let mut says = |name, wanted| jwk.take(name).map(|f| f.string().map(|text| text == wanted)).transpose();
    let family = says("kty", "EC")? == Some(true) && says("crv", "P-256")? == Some(true);
    let purpose = says("alg", "ES256")? != Some(false) && says("use", "sig")? != Some(false);
    let operations = jwk.take("key_ops").map(|f| verifies(&f)).transpose()?;
    if !family || !purpose || operations == Some(false) {
        return Ok(None);
    }
    let (x, y) = (coordinate(&mut jwk, "x")?, coordinate(&mut jwk, "y")?);
    let public = PublicKey::from_coordinates(x, y)
        .map_err(|e| Invalid::new(field.path(), format!("is refused: {e}")))?;
    let Some(kid) = jwk.take("kid") else { return Ok(None) };
    let Ok(kid) = Kid::parse(&kid.string()?) else { return Ok(None) };
    VerificationKey::new(kid, public)
        .map(Some)
        .map_err(|e| Invalid::new(field.path(), format!("is refused: {e}")))
}

/// Whether `key_ops` (RFC 7517, section 4.3) allows the key to verify.
fn verifies(key_ops: &Field<'_>) -> Result<bool, Invalid> {
    let mut found = false;
    for operation in key_ops.array()? {
        found |= operation.string()? == "verify";
    }
    Ok(found)
}

fn coordinate(jwk: &mut Object<'_>, name: &'static str) -> Result<[u8; 32], Invalid> {
    let field = jwk.require(name)?;
    base64url::decode_array(&field.string()?)
        .ok_or_else(|| Invalid::new(field.path(), "must be 32 bytes in base64url without padding"))
}

#[cfg(test)]
mod tests;
