//! The trailer of an export, which the issuer signs, and the comparison of a file with its trailer.
//!
//! An NDJSON export ends with a line that holds its trailer, an ES256 JWT. A reader who trusts the issuer's
//! keys learns from it that the lines before are complete and unchanged.

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::environment::EnvironmentKind;
use crate::error::Invalid;
use crate::id::ExportId;
use crate::json::Object;
use crate::jwks::KeySet;
use crate::jwt::{TokenRefused, Unverified};

/// The first bytes of a trailer's line.
pub const TRAILER_PREFIX: &[u8] = br#"{"trailer":"#;
/// The longest line that is read as a trailer, in bytes, without its line break.
pub const MAX_TRAILER_BYTES: usize = 16 * 1024;
/// The first bytes of a decision's line.
const DECISION_PREFIX: &[u8] = br#"{"decision":"#;

/// The claims of a trailer, in the order in which they are written. They have neither `verdict` nor `type`, so that a
/// trailer passes for neither verdict nor event.
///
/// ```
/// use mandate_core::export::Trailer;
/// # use mandate_core::{ExportId, Timestamp};
/// let trailer = Trailer {
///     iss: "https://verdicts.example".to_owned(),
///     iat: 1_772_366_400,
///     export: ExportId::new(Timestamp::from_seconds(1_772_366_400), 1),
///     rows: 3,
///     sha256: "00".repeat(32),
/// };
/// assert_eq!(Trailer::read(trailer.to_json().as_bytes())?, trailer);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trailer {
    /// The issuer.
    pub iss: String,
    /// When it was signed, in seconds since the Unix epoch.
    pub iat: i64,
    /// The id of the export.
    pub export: ExportId,
    /// How many decisions the export holds.
    pub rows: u64,
    /// The SHA-256 of all bytes before the trailer's line, in lower-case hexadecimal digits.
    pub sha256: String,
}

/// Why a trailer is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TrailerRefused {
    /// It is not a token, or none of the keys has signed it.
    #[error(transparent)]
    Token(#[from] TokenRefused),
    /// The signed claims are not those of a trailer.
    #[error(transparent)]
    Claims(#[from] Invalid),
    /// The issuer is not one of those accepted.
    #[error("the trailer is that of the issuer `{found}`")]
    Issuer {
        /// The claim `iss`.
        found: String,
    },
}

/// A difference between a file and its trailer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Difference {
    /// The trailer belongs to another export.
    #[error("its trailer is that of the export {said}, and this is {found}")]
    Export {
        /// The trailer's export id.
        said: ExportId,
        /// The file's export id.
        found: ExportId,
    },
    /// The number of decisions differs.
    #[error("it has {found} decisions, and its trailer says {said}")]
    Rows {
        /// The trailer's number of decisions.
        said: u64,
        /// The file's number of decisions.
        found: u64,
    },
    /// The hashes differ: the file was changed.
    #[error("its SHA-256 is {found}, and its trailer says {said}")]
    Sha256 {
        /// The trailer's hash, in lower-case hexadecimal digits.
        said: String,
        /// The file's hash, in lower-case hexadecimal digits.
        found: String,
    },
}

impl Trailer {
    /// The claims as JSON, to be signed.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads claims from JSON. Unknown names are ignored, since fields may be added.
    ///
    /// # Errors
    /// The bytes are not strict JSON, a claim is missing or malformed, or the claims are those of another
    /// kind of token.
    pub fn read(bytes: &[u8]) -> Result<Self, Invalid> {
        let mut claims = Object::parse_as("trailer", bytes)?;
        claims.strict()?;
        for other in ["verdict", "type"] {
            if claims.take(other).is_some() {
                return Err(Invalid::new(other, "must not be there: these are not the claims of a trailer"));
            }
        }
        let rows = claims.require("rows")?.integer()?;
        Ok(Self {
            iss: claims.require("iss")?.string()?.into_owned(),
            iat: claims.require("iat")?.integer()?,
            export: ExportId::parse(&claims.require("export")?.string()?).map_err(|e| e.at("export"))?,
            rows: u64::try_from(rows).map_err(|_| Invalid::new("rows", "must not be negative"))?,
            sha256: claims.require("sha256")?.string()?.into_owned(),
        })
    }

    /// The trailer in `token`, if its signature verifies and its issuer is one of `issuers`; and the kind of
    /// environment of the key that signed.
    ///
    /// # Errors
    /// The token is refused, its claims are not those of a trailer, or the issuer is another.
    pub fn verify(
        token: &str,
        keys: &KeySet,
        issuers: &[impl AsRef<str>],
    ) -> Result<(Self, EnvironmentKind), TrailerRefused> {
        let verified = Unverified::parse(token)?.verify(keys)?;
        let kind =
            if verified.kid().is_sandbox() { EnvironmentKind::Sandbox } else { EnvironmentKind::Production };
        let trailer = Self::read(verified.claims())?;
        if issuers.iter().any(|issuer| issuer.as_ref() == trailer.iss) {
            Ok((trailer, kind))
        } else {
            Err(TrailerRefused::Issuer { found: trailer.iss })
        }
    }

    /// The differences between trailer and file: the export's id, if that is known, the number of decisions,
    /// and the hash.
    #[must_use]
    pub fn differences(&self, export: Option<ExportId>, rows: u64, sha256: &str) -> Vec<Difference> {
        let export = export.filter(|export| *export != self.export);
        let rows = (rows != self.rows).then_some(rows);
        let sha256 = (sha256 != self.sha256).then_some(sha256);
        [
            export.map(|found| Difference::Export { said: self.export, found }),
            rows.map(|found| Difference::Rows { said: self.rows, found }),
            sha256.map(|found| Difference::Sha256 { said: self.sha256.clone(), found: found.to_owned() }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Reads an export in pieces of any length: computes its hash, counts its decisions, and keeps its trailer.
/// The memory used does not grow with the file.
///
/// ```
/// use mandate_core::export::Content;
/// let mut content = Content::default();
/// content.take(b"{\"decision\":{}}\n{\"trai");
/// content.take(b"ler\":\"a.b.c\"}\n");
/// assert_eq!((content.rows(), content.trailer()?.as_str()), (1, "a.b.c"));
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Content {
    /// The hash of everything except `head`.
    hash: Sha256,
    rows: u64,
    /// The start of a line whose kind is not known yet.
    head: Vec<u8>,
    kind: Kind,
    /// If the last line is a trailer: the hash of everything before it, and the line.
    trailer: Option<([u8; 32], Vec<u8>)>,
}

/// The kind of line that is being read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Unknown,
    Trailer,
    Other,
}

impl Content {
    /// Reads the next bytes.
    pub fn take(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let rest = if self.kind == Kind::Unknown { self.begin(part) } else { part };
            self.hash.update(rest);
            if let Some((_, line)) = self.trailer.as_mut().filter(|_| self.kind == Kind::Trailer) {
                let room = MAX_TRAILER_BYTES.saturating_sub(line.len()).min(rest.len());
                line.extend_from_slice(rest.get(..room).unwrap_or_default());
            }
            if part.ends_with(b"\n") {
                self.kind = Kind::Unknown;
            }
        }
    }

    /// Collects the start of a line until its kind is known. Returns the rest of the part.
    fn begin<'a>(&mut self, part: &'a [u8]) -> &'a [u8] {
        self.trailer = None;
        let wanted = DECISION_PREFIX.len().saturating_sub(self.head.len()).min(part.len());
        let (more, rest) = part.split_at_checked(wanted).unwrap_or((part, b""));
        self.head.extend_from_slice(more);
        if self.head.len() < DECISION_PREFIX.len() && !self.head.ends_with(b"\n") {
            return rest;
        }
        self.kind = Kind::Other;
        if self.head.starts_with(TRAILER_PREFIX) {
            self.kind = Kind::Trailer;
            self.trailer = Some((self.hash.clone().finalize().into(), self.head.clone()));
        } else if self.head.starts_with(DECISION_PREFIX) {
            self.rows = self.rows.saturating_add(1);
        }
        self.hash.update(&self.head);
        self.head.clear();
        rest
    }

    /// How many decisions were read.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The SHA-256 of everything so far, in lower-case hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> String {
        hex(&self.hash.clone().chain_update(&self.head).finalize())
    }

    /// The SHA-256 of all bytes before the trailer's line, in lower-case hexadecimal digits. `None` if the
    /// last line is not a trailer.
    #[must_use]
    pub fn sha256_before(&self) -> Option<String> {
        self.trailer.as_ref().map(|(before, _)| hex(before))
    }

    /// The token of the trailer.
    ///
    /// # Errors
    /// The last line is not a trailer, or holds more than a trailer.
    pub fn trailer(&self) -> Result<String, Invalid> {
        let (_, line) =
            self.trailer.as_ref().ok_or_else(|| Invalid::new("trailer", "must be the last line"))?;
        let mut whole = Object::parse_as("trailer", line)?;
        let token = whole.require("trailer")?.string()?.into_owned();
        whole.finish()?;
        Ok(token)
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |nibble: u8| DIGITS.get(usize::from(nibble)).copied().unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::es256::{self, SecretKey};
    use crate::jwks::{Kid, VerificationKey};
    use crate::jwt;
    use crate::time::Timestamp;

    const ISSUER: &str = "https://verdicts.example";
    const LINES: &str = "{\"export\":{}}\n{\"mandate\":{}}\n{\"decision\":{\"a\":1}}\n{\"decision\":{}}\n";

    fn taken(pieces: &[&[u8]]) -> Content {
        let mut content = Content::default();
        for piece in pieces {
            content.take(piece);
        }
        content
    }

    fn trailer() -> Trailer {
        let export = ExportId::new(Timestamp::from_seconds(1), 2);
        let sha256 = taken(&[LINES.as_bytes()]).sha256();
        Trailer { iss: ISSUER.to_owned(), iat: 1, export, rows: 2, sha256 }
    }

    fn signed(claims: &str) -> (String, KeySet) {
        let kid = Kid::parse("sandbox-1").unwrap();
        let signer = es256::signer(&SecretKey::from_bytes([7; 32]).unwrap(), kid.clone()).unwrap();
        let keys = KeySet::new(vec![VerificationKey::new(kid, *signer.public_key()).unwrap()]).unwrap();
        (jwt::sign(&*signer, claims).unwrap(), keys)
    }

    #[test]
    fn a_file_in_any_pieces_is_the_same_file() {
        let (token, keys) = signed(&trailer().to_json());
        let file = format!("{LINES}{{\"trailer\":\"{token}\"}}\n");
        let whole = taken(&[file.as_bytes()]);
        let (said, kind) = Trailer::verify(&whole.trailer().unwrap(), &keys, &[ISSUER]).unwrap();
        assert_eq!((&said, kind), (&trailer(), EnvironmentKind::Sandbox));
        assert_eq!(said.differences(None, whole.rows(), &whole.sha256_before().unwrap()), []);
        for cut in 0..file.len() {
            let (a, b) = file.as_bytes().split_at(cut);
            let pieces = taken(&[a, b]);
            let found = |content: &Content| {
                (content.sha256(), content.sha256_before(), content.rows(), content.trailer())
            };
            assert_eq!(found(&pieces), found(&whole), "{cut}");
            // A truncated file has no trailer, or only a part of one.
            let early = taken(&[a]).trailer();
            assert_eq!(early.is_ok(), cut >= file.len() - 1, "{cut}");
        }
        let ones: Vec<&[u8]> = file.as_bytes().chunks(1).collect();
        assert_eq!(taken(&ones).sha256(), whole.sha256());
    }

    #[test]
    fn text_behind_the_trailer_makes_it_none() {
        let (token, _) = signed(&trailer().to_json());
        let line = format!("{{\"trailer\":\"{token}\"}}\n");
        for behind in ["\n", "x", "{\"decision\":{}}\n"] {
            let content = taken(&[LINES.as_bytes(), line.as_bytes(), behind.as_bytes()]);
            assert!(content.trailer().is_err() && content.sha256_before().is_none(), "{behind:?}");
        }
        // The second of two trailers is the last line, and its hash covers the first.
        let twice = taken(&[LINES.as_bytes(), line.as_bytes(), line.as_bytes()]);
        assert_eq!(twice.sha256_before(), Some(taken(&[LINES.as_bytes(), line.as_bytes()]).sha256()));
        let long = format!("{{\"trailer\":\"{}\"}}\n", "a".repeat(MAX_TRAILER_BYTES));
        assert!(taken(&[long.as_bytes()]).trailer().is_err());
        assert!(taken(&[b"{\"trailer\":\"a\",\"more\":1}\n"]).trailer().is_err());
    }

    #[test]
    fn differences_are_reported() {
        let said = trailer();
        let other = ExportId::new(Timestamp::from_seconds(1), 3);
        let messages: Vec<String> =
            said.differences(Some(other), 3, "00").iter().map(ToString::to_string).collect();
        assert_eq!(messages.len(), 3);
        for (text, part) in messages.iter().zip(["export", "3 decisions", "SHA-256 is 00"]) {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(said.differences(Some(said.export), 2, &said.sha256), []);
    }

    #[test]
    fn another_issuers_trailer_and_other_claims_are_refused() {
        let (token, keys) = signed(&trailer().to_json());
        let refused = Trailer::verify(&token, &keys, &["https://other.example"]).unwrap_err();
        assert_eq!(refused, TrailerRefused::Issuer { found: ISSUER.to_owned() });
        let (_, tail) = token.rsplit_once('.').unwrap();
        let forged = token.replace(tail, &tail.chars().rev().collect::<String>());
        assert!(matches!(Trailer::verify(&forged, &keys, &[ISSUER]), Err(TrailerRefused::Token(_))));
        let sound = trailer().to_json();
        for claims in [
            sound.replacen('{', "{\"verdict\":\"allow\",", 1),
            sound.replacen('{', "{\"type\":\"ping\",", 1),
            sound.replace("\"rows\":2", "\"rows\":-2"),
            sound.replace("exp_", "dec_"),
            sound.replace("\"sha256\"", "\"sha\""),
        ] {
            let (token, keys) = signed(&claims);
            let refused = Trailer::verify(&token, &keys, &[ISSUER]);
            assert!(matches!(refused, Err(TrailerRefused::Claims(_))), "{claims}: {refused:?}");
        }
    }
}
