//! The names of signing keys: `kid` in a token's header (RFC 7515, section 4.1.4) and in a key set (RFC 7517, section 4.5).

use std::fmt;

use crate::environment::EnvironmentKind;
use crate::error::Invalid;

/// The longest key id, in characters.
pub const MAX_KID_CHARS: usize = 128;

/// The prefix of the names of sandbox keys.
const SANDBOX: &str = "sandbox-";

/// The name of a signing key: 1 to 128 printable ASCII characters except the space, `"` and `\`.
///
/// The names of this service's own keys are RFC 7638 thumbprints, see [`Kid::for_key`].
///
/// ```
/// use mandate_core::jwks::Kid;
/// assert!(Kid::parse("sandbox-1")?.is_sandbox());
/// assert!(!Kid::parse("key-1")?.is_sandbox());
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kid(String);

impl Kid {
    /// Reads a key id.
    ///
    /// ```
    /// use mandate_core::jwks::Kid;
    /// assert_eq!(Kid::parse("key-1")?.as_str(), "key-1");
    /// assert!(Kid::parse("key 1").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// It is empty, too long, or has a character that is not accepted.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let fits = (1..=MAX_KID_CHARS).contains(&text.len());
        if fits && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\') {
            return Ok(Self(text.to_owned()));
        }
        let accepted = "must be 1 to 128 printable ASCII characters without space, quote or backslash";
        Err(Invalid::value("kid", accepted, text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A thumbprint, with `sandbox-` before it in the sandbox.
    pub(crate) fn of_thumbprint(print: &str, environment: EnvironmentKind) -> Self {
        Self(if environment.is_sandbox() { format!("{SANDBOX}{print}") } else { print.to_owned() })
    }

    /// Whether the name says that the key signs for the sandbox, where no money is real.
    #[must_use]
    pub fn is_sandbox(&self) -> bool {
        self.0.starts_with(SANDBOX)
    }
}

impl fmt::Display for Kid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_ids() {
        for text in ["a", "sandbox-1", "!#[]~", &"k".repeat(128)] {
            assert_eq!(Kid::parse(text).unwrap().as_str(), text);
        }
        for text in ["", " ", "a b", "a\"", "a\\", "a\n", "\u{e9}", "\u{7f}", &"k".repeat(129)] {
            assert!(Kid::parse(text).is_err(), "{text:?}");
        }
    }
}
