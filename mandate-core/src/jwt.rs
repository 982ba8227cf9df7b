//! JSON Web Tokens in the one form this service writes: compact JWS (RFC 7515, section 7.1) signed with ES256.
//!
//! [`sign`] writes, [`Unverified::parse`] reads. Reading is strict, because JWT libraries disagree outside
//! the plain case, and a token that two readers understand differently is a vulnerability. A token of this
//! service has exactly one header, one spelling, and nothing that a reader would have to follow or guess:
//!
//! - at most [`MAX_TOKEN_BYTES`], three parts, base64url without padding, whitespace or bits after the last
//!   byte;
//! - a header that is strict JSON (no name twice) with `alg`, `kid` and optionally `typ`, and no other name: `crit`,
//!   `b64`, `jku`, `jwk`, `x5u`, `x5c`, `zip` and the like are refused, never followed;
//! - `alg` is `ES256`, `typ` is `JWT` in any case (RFC 7519, section 5.1), `kid` names a key of the given set;
//! - a signature of exactly 64 bytes, `r ‖ s`, that verifies under that key.
//!
//! [`verify`](crate::verify) checks the claims.
//!
//! ```
//! use mandate_core::jwks::{KeySet, Kid, VerificationKey};
//! use mandate_core::{EnvironmentKind, es256, jwt};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let secret = es256::SecretKey::from_bytes([7; 32])?;
//! let signer = es256::signer(&secret, Kid::for_key(secret.public_key(), EnvironmentKind::Sandbox))?;
//! let token = jwt::sign(&*signer, r#"{"hello":"world"}"#)?;
//!
//! let keys = KeySet::new(vec![VerificationKey::new(signer.kid().clone(), *signer.public_key())?])?;
//! let verified = jwt::Unverified::parse(&token)?.verify(&keys)?;
//! assert_eq!(verified.claims(), br#"{"hello":"world"}"#);
//! # Ok(())
//! # }
//! ```

use std::fmt;

use crate::base64url;
use crate::error::{Invalid, echo};
use crate::es256::{SIGNATURE_BYTES, Signer, SigningFailed};
use crate::json::Object;
use crate::jwks::KeySet;
use crate::kid::Kid;

/// The longest token that is read, in bytes.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// The only supported algorithm.
const ALGORITHM: &str = "ES256";

/// The first byte of a DER signature: the tag of a sequence.
const DER_SEQUENCE: u8 = 0x30;

/// A well-formed token. Its signature is not checked yet.
///
/// ```
/// use mandate_core::{es256, jwks::Kid, jwt};
/// # let signer = es256::signer(&es256::SecretKey::from_bytes([7; 32])?, Kid::parse("key-1")?)?;
/// let token = jwt::sign(&*signer, r#"{"hello":"world"}"#)?;
/// let unverified = jwt::Unverified::parse(&token)?;
/// assert_eq!(unverified.kid().as_str(), "key-1");
/// assert_eq!(unverified.unverified_claims(), br#"{"hello":"world"}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Unverified<'a> {
    signing_input: &'a str,
    kid: Kid,
    claims: Vec<u8>,
    signature: [u8; SIGNATURE_BYTES],
}

/// The claims of a token whose signature was verified.
///
/// ```
/// use mandate_core::{es256, jwks::{KeySet, Kid, VerificationKey}, jwt};
/// # let signer = es256::signer(&es256::SecretKey::from_bytes([7; 32])?, Kid::parse("key-1")?)?;
/// # let keys = KeySet::new(vec![VerificationKey::new(signer.kid().clone(), *signer.public_key())?])?;
/// let token = jwt::sign(&*signer, "{}")?;
/// let verified = jwt::Unverified::parse(&token)?.verify(&keys)?;
/// assert_eq!((verified.kid().as_str(), verified.claims()), ("key-1", b"{}".as_slice()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    kid: Kid,
    claims: Vec<u8>,
}

/// One of the three parts of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The first.
    Header,
    /// The second.
    Claims,
    /// The third.
    Signature,
}

/// The check that a token failed. No message repeats the token; at most a short part of the header is named.
///
/// The variants are in the order of the checks.
///
/// ```
/// use mandate_core::jwt::{TokenRefused, Unverified};
/// let refused = Unverified::parse("a.b").unwrap_err();
/// assert_eq!(refused, TokenRefused::Parts { found: 2 });
/// assert_eq!(refused.to_string(), "the token must have 3 parts with a full stop between them; got 2");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// It is longer than [`MAX_TOKEN_BYTES`].
    #[error("the token must be at most {MAX_TOKEN_BYTES} bytes; got {bytes}")]
    Size {
        /// Its length.
        bytes: usize,
    },
    /// It does not have three parts.
    #[error("the token must have 3 parts with a full stop between them; got {found}")]
    Parts {
        /// How many it has.
        found: usize,
    },
    /// A part is not base64url in its one spelling.
    #[error("the {part} of the token must be base64url without padding; it {problem}")]
    Encoding {
        /// Which part.
        part: Part,
        /// What is wrong, as the end of a sentence.
        problem: &'static str,
    },
    /// The header is not a strict JSON object.
    #[error("the header is refused: {0}")]
    Header(Invalid),
    /// `alg` is not ES256.
    #[error("the header is refused: {0}")]
    Algorithm(Invalid),
    /// `kid` is absent or not the name of a key.
    #[error("the header is refused: {0}")]
    KeyId(Invalid),
    /// `typ` is present but not `JWT`.
    #[error("the header is refused: {0}")]
    Type(Invalid),
    /// The header has a name that would change the meaning of the token.
    #[error("the header is refused: {0}")]
    HeaderName(Invalid),
    /// The signature is not 64 bytes.
    #[error(
        "the signature must be 64 bytes, r and s; got {bytes}{}",
        if *der { ", which look like the DER form" } else { "" }
    )]
    SignatureForm {
        /// How many bytes it has.
        bytes: usize,
        /// Whether they look like ASN.1 DER, the default of many libraries.
        der: bool,
    },
    /// The key set has no key with that name.
    #[error("the key set has no key for ES256 named `{kid}`")]
    UnknownKey {
        /// The name that the header gives.
        kid: Kid,
    },
    /// The signature does not match header and claims under the key.
    #[error("the signature does not verify under the key `{kid}`")]
    Signature {
        /// The name of the key.
        kid: Kid,
    },
}

/// The signed token of `claims`, which must be a JSON object.
///
/// ```
/// use mandate_core::{es256, jwks::Kid, jwt};
/// let signer = es256::signer(&es256::SecretKey::from_bytes([7; 32])?, Kid::parse("key-1")?)?;
/// let token = jwt::sign(&*signer, r#"{"hello":"world"}"#)?;
/// assert_eq!(token.split('.').count(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The signer could not sign.
pub fn sign(signer: &dyn Signer, claims: &str) -> Result<String, SigningFailed> {
    sign_kept(signer, claims).map(|(token, _)| token)
}

/// The signed token of `claims`, which must be a JSON object; and the signature alone. To rebuild the token
/// with [`assemble`], only the signature must be kept.
///
/// ```
/// use mandate_core::{es256, jwks::Kid, jwt};
/// let signer = es256::signer(&es256::SecretKey::from_bytes([7; 32])?, Kid::parse("key-1")?)?;
/// let (token, signature) = jwt::sign_kept(&*signer, r#"{"hello":"world"}"#)?;
/// assert_eq!(jwt::assemble(signer.kid(), r#"{"hello":"world"}"#, &signature), token);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The signer could not sign.
pub fn sign_kept(
    signer: &dyn Signer,
    claims: &str,
) -> Result<(String, [u8; SIGNATURE_BYTES]), SigningFailed> {
    let input = signing_input(signer.kid(), claims);
    let signature = signer.sign(input.as_bytes())?;
    Ok((append(input, &signature), signature))
}

/// The signed bytes: header and claims in base64url, with a full stop between them (RFC 7515, section 5.1).
///
/// ```
/// use mandate_core::{jwks::Kid, jwt};
/// let input = jwt::signing_input(&Kid::parse("key-1")?, "{}");
/// assert_eq!(input, "eyJhbGciOiJFUzI1NiIsImtpZCI6ImtleS0xIiwidHlwIjoiSldUIn0.e30");
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[must_use]
pub fn signing_input(kid: &Kid, claims: &str) -> String {
    let header = format!(r#"{{"alg":"{ALGORITHM}","kid":"{kid}","typ":"JWT"}}"#);
    // Leaves room for the signature.
    let bytes = header.len().saturating_add(claims.len());
    let room = bytes.saturating_add(bytes.div_ceil(3)).saturating_add(SIGNATURE_CHARS).saturating_add(4);
    let mut input = String::with_capacity(room);
    base64url::encode_onto(&mut input, header.as_bytes());
    input.push('.');
    base64url::encode_onto(&mut input, claims.as_bytes());
    input
}

/// Rebuilds a token byte for byte from the arguments of [`sign`] and the signature.
///
/// ```
/// use mandate_core::{es256::{self, Signer}, jwks::Kid, jwt};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let secret = es256::SecretKey::from_bytes([7; 32])?;
/// let signer = es256::signer(&secret, Kid::parse("key-1")?)?;
/// let signature = signer.sign(jwt::signing_input(signer.kid(), "{}").as_bytes())?;
/// let token = jwt::assemble(signer.kid(), "{}", &signature);
/// assert_eq!(jwt::Unverified::parse(&token)?.signature(), &signature);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn assemble(kid: &Kid, claims: &str, signature: &[u8; SIGNATURE_BYTES]) -> String {
    append(signing_input(kid, claims), signature)
}

/// The length of a signature in base64url, in characters.
const SIGNATURE_CHARS: usize = 86;

fn append(mut input: String, signature: &[u8; SIGNATURE_BYTES]) -> String {
    input.push('.');
    base64url::encode_onto(&mut input, signature);
    input
}

impl<'a> Unverified<'a> {
    /// Reads a token, up to the point where a key is needed.
    ///
    /// ```
    /// use mandate_core::jwt::Unverified;
    /// let unsigned = "eyJhbGciOiJub25lIn0.e30."; // {"alg":"none"}
    /// assert_eq!(Unverified::parse(unsigned).unwrap_err().name(), "algorithm");
    /// ```
    ///
    /// # Errors
    /// The first check that fails, among those of [`TokenRefused`] up to `SignatureForm`.
    pub fn parse(token: &'a str) -> Result<Self, TokenRefused> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenRefused::Size { bytes: token.len() });
        }
        let parts = || token.split('.');
        let wrong_number = || TokenRefused::Parts { found: parts().count() };
        let (signing_input, signature) = token.rsplit_once('.').ok_or_else(wrong_number)?;
        let (header, claims) = signing_input.split_once('.').ok_or_else(wrong_number)?;
        if claims.contains('.') {
            return Err(wrong_number());
        }
        let kid = read_header(&decode(Part::Header, header)?)?;
        let claims = decode(Part::Claims, claims)?;
        let signature = read_signature(&decode(Part::Signature, signature)?)?;
        Ok(Self { signing_input, kid, claims, signature })
    }

    /// The name of the key that the token claims to be signed with.
    #[must_use]
    pub fn kid(&self) -> &Kid {
        &self.kid
    }

    /// The claims, before the signature is checked: they may say anything. Show them, but do not act on them.
    #[must_use]
    pub fn unverified_claims(&self) -> &[u8] {
        &self.claims
    }

    /// The signature, `r ‖ s`.
    #[must_use]
    pub fn signature(&self) -> &[u8; SIGNATURE_BYTES] {
        &self.signature
    }

    /// Checks the signature under the key of the token's `kid`.
    ///
    /// ```
    /// use mandate_core::{es256, jwks::{KeySet, Kid}, jwt};
    /// # let signer = es256::signer(&es256::SecretKey::from_bytes([7; 32])?, Kid::parse("key-1")?)?;
    /// let token = jwt::sign(&*signer, "{}")?;
    /// let refused = jwt::Unverified::parse(&token)?.verify(&KeySet::default()).unwrap_err();
    /// assert_eq!(refused.to_string(), "the key set has no key for ES256 named `key-1`");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TokenRefused::UnknownKey`] or [`TokenRefused::Signature`].
    pub fn verify(self, keys: &KeySet) -> Result<Verified, TokenRefused> {
        let Some(key) = keys.find(&self.kid) else {
            return Err(TokenRefused::UnknownKey { kid: self.kid });
        };
        if key.verify(self.signing_input.as_bytes(), &self.signature) {
            Ok(Verified { kid: self.kid, claims: self.claims })
        } else {
            Err(TokenRefused::Signature { kid: self.kid })
        }
    }
}

impl Verified {
    /// The name of the key that signed.
    #[must_use]
    pub fn kid(&self) -> &Kid {
        &self.kid
    }

    /// The name of the key, by value.
    #[must_use]
    pub fn into_kid(self) -> Kid {
        self.kid
    }

    /// The claims, as they were signed.
    #[must_use]
    pub fn claims(&self) -> &[u8] {
        &self.claims
    }
}

impl TokenRefused {
    /// The name of the check, which stays the same from version to version.
    ///
    /// ```
    /// use mandate_core::jwt::Unverified;
    /// assert_eq!(Unverified::parse("a.b").unwrap_err().name(), "parts");
    /// assert_eq!(Unverified::parse("e30=.e30.").unwrap_err().name(), "encoding");
    /// ```
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Size { .. } => "size",
            Self::Parts { .. } => "parts",
            Self::Encoding { .. } => "encoding",
            Self::Header(_) => "header",
            Self::Algorithm(_) => "algorithm",
            Self::KeyId(_) => "key_id",
            Self::Type(_) => "type",
            Self::HeaderName(_) => "header_name",
            Self::SignatureForm { .. } => "signature_form",
            Self::UnknownKey { .. } => "unknown_key",
            Self::Signature { .. } => "signature",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "header",
            Self::Claims => "claims",
            Self::Signature => "signature",
        })
    }
}

fn decode(part: Part, text: &str) -> Result<Vec<u8>, TokenRefused> {
    base64url::decode(text).map_err(|problem| TokenRefused::Encoding { part, problem })
}

fn read_header(bytes: &[u8]) -> Result<Kid, TokenRefused> {
    let mut header = Object::parse_as("header", bytes).map_err(TokenRefused::Header)?;
    let algorithm = header.require("alg").and_then(|f| f.string()).map_err(TokenRefused::Algorithm)?;
    if algorithm != ALGORITHM {
        let refused = Invalid::value("alg", "must be `ES256`", &algorithm);
        return Err(TokenRefused::Algorithm(refused));
    }
    let kid = header.require("kid").and_then(|f| Kid::parse(&f.string()?)).map_err(TokenRefused::KeyId)?;
    if let Some(field) = header.take("typ") {
        let typ = field.string().map_err(TokenRefused::Type)?;
        if !typ.eq_ignore_ascii_case("JWT") {
            return Err(TokenRefused::Type(Invalid::value("typ", "must be `JWT`, or absent", &typ)));
        }
    }
    match header.remaining().next() {
        None => Ok(kid),
        Some(name) => {
            let problem = "must not be there: only alg, kid and typ are accepted, and nothing is followed";
            Err(TokenRefused::HeaderName(Invalid::new(echo(name), problem)))
        }
    }
}

fn read_signature(bytes: &[u8]) -> Result<[u8; SIGNATURE_BYTES], TokenRefused> {
    bytes.try_into().map_err(|_| {
        let rest = bytes
            .split_first()
            .filter(|(tag, _)| **tag == DER_SEQUENCE)
            .and_then(|(_, rest)| rest.split_first());
        let der = rest.is_some_and(|(length, content)| usize::from(*length) == content.len());
        TokenRefused::SignatureForm { bytes: bytes.len(), der }
    })
}

#[cfg(test)]
mod tests;
