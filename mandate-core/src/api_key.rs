//! API keys: their text form, and a checksum that reveals a mistyped key without asking a server.
//!
//! A key is a prefix that names its class and its kind of environment, 32 random bytes as 43 characters of
//! base62, and 6 characters of checksum: the first 8 bytes of the SHA-256 of all characters before them,
//! modulo 62⁶, in base62. So secret scanners can recognise a key reliably. A service stores only
//! [`ApiKey::hash`].
//!
//! ```
//! use mandate_core::{EnvironmentKind, api_key::{ApiKey, KeyClass}};
//! // In production: 32 bytes from the operating system's random generator.
//! let key = ApiKey::from_random(KeyClass::Agent, EnvironmentKind::Sandbox, &[7; 32]);
//! assert_eq!(key.expose(), "ak_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye");
//! assert_eq!(format!("{key:?}"), "ApiKey(ak_sandbox_…)");
//! assert_eq!(ApiKey::parse(key.expose())?.hash(), key.hash());
//! # Ok::<(), mandate_core::api_key::ApiKeyRefused>(())
//! ```

mod text;

use std::fmt;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::EnvironmentKind;

pub use text::{holds_key, masked};

/// The digits of base62, in ASCII order.
const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// How many base62 characters 32 bytes take: 62⁴³ > 2²⁵⁶.
const SECRET_CHARS: usize = 43;

/// Characters of the checksum.
const CHECKSUM_CHARS: usize = 6;

/// How many checksums there are: 62⁶.
const CHECKSUMS: u64 = 56_800_235_584;

/// The class of a key's owner, which decides what the key may do.
///
/// ```
/// use mandate_core::{EnvironmentKind, api_key::KeyClass};
/// assert_eq!(KeyClass::Organization.as_str(), "organization");
/// assert_eq!(KeyClass::Organization.prefix(EnvironmentKind::Production), "sk_live_");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyClass {
    /// An organization's: registers agents, writes and revokes mandates, resolves reviews, switches enforcement.
    Organization,
    /// An agent's: requests authorizations and reads its own objects.
    Agent,
}

/// A complete key. It is wiped from memory when dropped, and `Debug` never shows it.
///
/// ```
/// use mandate_core::{EnvironmentKind, api_key::{ApiKey, KeyClass}};
/// let key = ApiKey::parse("ak_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye")?;
/// assert_eq!((key.class(), key.kind()), (KeyClass::Agent, EnvironmentKind::Sandbox));
/// assert_eq!(format!("{key:?}"), "ApiKey(ak_sandbox_…)");
/// # Ok::<(), mandate_core::api_key::ApiKeyRefused>(())
/// ```
#[derive(Clone)]
pub struct ApiKey {
    class: KeyClass,
    kind: EnvironmentKind,
    text: Zeroizing<String>,
}

/// Why a text is not an API key. No message repeats any of the text.
///
/// ```
/// use mandate_core::api_key::{ApiKey, ApiKeyRefused};
/// assert_eq!(ApiKey::parse("ak_sandbox_1fJjkk").unwrap_err(), ApiKeyRefused::Length { found: 6 });
/// assert_eq!(ApiKeyRefused::Checksum.to_string(), "the API key is mistyped: its checksum does not match");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeyRefused {
    /// It begins with none of the four prefixes.
    #[error("an API key begins with sk_sandbox_, sk_live_, ak_sandbox_ or ak_live_")]
    Prefix,
    /// The length after the prefix is wrong, for example because a part was not copied.
    #[error("an API key has 49 characters after its prefix; got {found}")]
    Length {
        /// How many bytes follow the prefix.
        found: usize,
    },
    /// It has a character that is neither a letter nor a digit.
    #[error("an API key has only letters and digits after its prefix")]
    Character,
    /// The checksum does not match, for example because a character was mistyped.
    #[error("the API key is mistyped: its checksum does not match")]
    Checksum,
}

impl KeyClass {
    /// Both classes.
    pub const ALL: [Self; 2] = [Self::Organization, Self::Agent];

    /// `organization` or `agent`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Organization => "organization",
            Self::Agent => "agent",
        }
    }

    /// The prefix of a key of this class in an environment of this kind, for example `sk_live_`.
    ///
    /// ```
    /// use mandate_core::{EnvironmentKind, api_key::KeyClass};
    /// assert_eq!(KeyClass::Agent.prefix(EnvironmentKind::Production), "ak_live_");
    /// ```
    #[must_use]
    pub const fn prefix(self, kind: EnvironmentKind) -> &'static str {
        match (self, kind) {
            (Self::Organization, EnvironmentKind::Sandbox) => "sk_sandbox_",
            (Self::Organization, EnvironmentKind::Production) => "sk_live_",
            (Self::Agent, EnvironmentKind::Sandbox) => "ak_sandbox_",
            (Self::Agent, EnvironmentKind::Production) => "ak_live_",
        }
    }
}

impl fmt::Display for KeyClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ApiKey {
    /// The key made from these 32 bytes. They must come from a cryptographic random generator.
    ///
    /// ```
    /// use mandate_core::{EnvironmentKind, api_key::{ApiKey, KeyClass}};
    /// // In production: 32 bytes from the operating system's random generator.
    /// let key = ApiKey::from_random(KeyClass::Organization, EnvironmentKind::Production, &[7; 32]);
    /// assert!(key.expose().starts_with("sk_live_"));
    /// assert_eq!(key.expose().len(), "sk_live_".len() + 49);
    /// ```
    #[must_use]
    pub fn from_random(class: KeyClass, kind: EnvironmentKind, random: &[u8; 32]) -> Self {
        let mut text = Zeroizing::new(String::with_capacity(64));
        text.push_str(class.prefix(kind));
        let mut number = Zeroizing::new(*random);
        let mut digits = Zeroizing::new([b'0'; SECRET_CHARS]);
        for digit in digits.iter_mut().rev() {
            *digit = base62(divide(&mut number));
        }
        text.extend(digits.iter().copied().map(char::from));
        let sum = checksum(text.as_bytes());
        text.extend(sum.map(char::from));
        Self { class, kind, text }
    }

    /// Reads a key.
    ///
    /// ```
    /// use mandate_core::api_key::{ApiKey, ApiKeyRefused};
    /// assert!(ApiKey::parse("ak_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye").is_ok());
    /// let mistyped = ApiKey::parse("ak_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pyf");
    /// assert_eq!(mistyped.unwrap_err(), ApiKeyRefused::Checksum);
    /// ```
    ///
    /// # Errors
    /// The text does not have the form of a key, or its checksum is wrong. Only the service knows whether the
    /// key was ever issued.
    pub fn parse(text: &str) -> Result<Self, ApiKeyRefused> {
        let (class, kind, rest) = split_prefix(text).ok_or(ApiKeyRefused::Prefix)?;
        if !rest.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(ApiKeyRefused::Character);
        }
        if rest.len() != SECRET_CHARS.saturating_add(CHECKSUM_CHARS) {
            return Err(ApiKeyRefused::Length { found: rest.len() });
        }
        let (before, sum) = text.as_bytes().split_last_chunk().ok_or(ApiKeyRefused::Checksum)?;
        if checksum(before) != *sum {
            return Err(ApiKeyRefused::Checksum);
        }
        Ok(Self { class, kind, text: Zeroizing::new(text.to_owned()) })
    }

    /// The class of the key's owner.
    #[must_use]
    pub fn class(&self) -> KeyClass {
        self.class
    }

    /// The kind of environment that it acts on.
    #[must_use]
    pub fn kind(&self) -> EnvironmentKind {
        self.kind
    }

    /// The SHA-256 of the whole text, which a service stores instead of the key. The key has 256 random bits,
    /// so a plain hash is as safe as a slow one.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use mandate_core::api_key::ApiKey;
    /// let key = ApiKey::parse("ak_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye")?;
    /// let callers = HashMap::from([(key.hash(), "agt_buyer")]);
    /// assert_eq!(callers.get(&key.hash()), Some(&"agt_buyer"));
    /// # Ok::<(), mandate_core::api_key::ApiKeyRefused>(())
    /// ```
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.text.as_bytes()).into()
    }

    /// The text of the key. Show it once to its owner, or send it as a bearer token (RFC 6750).
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({}…)", self.class.prefix(self.kind))
    }
}

fn split_prefix(text: &str) -> Option<(KeyClass, EnvironmentKind, &str)> {
    KeyClass::ALL.into_iter().find_map(|class| {
        EnvironmentKind::ALL
            .into_iter()
            .find_map(|kind| Some((class, kind, text.strip_prefix(class.prefix(kind))?)))
    })
}

/// The checksum of a key's other characters.
fn checksum(before: &[u8]) -> [u8; CHECKSUM_CHARS] {
    let hash = Sha256::digest(before);
    let first = hash.first_chunk().copied().map_or(0, u64::from_be_bytes);
    let mut rest = first % CHECKSUMS;
    let mut digits = [b'0'; CHECKSUM_CHARS];
    for digit in digits.iter_mut().rev() {
        *digit = base62(rest % 62);
        rest /= 62;
    }
    digits
}

/// Divides the big-endian number by 62 in place. Returns the remainder.
fn divide(number: &mut [u8; 32]) -> u64 {
    number.iter_mut().fold(0, |remainder, byte| {
        let value = (remainder << 8) | u64::from(*byte);
        // The remainder is below 62, so the quotient is below 256.
        *byte = u8::try_from(value / 62).unwrap_or(u8::MAX);
        value % 62
    })
}

fn base62(digit: u64) -> u8 {
    usize::try_from(digit).ok().and_then(|index| ALPHABET.get(index)).copied().unwrap_or(b'0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_text_is_what_the_format_says() {
        for (class, kind, prefix) in [
            (KeyClass::Organization, EnvironmentKind::Sandbox, "sk_sandbox_"),
            (KeyClass::Organization, EnvironmentKind::Production, "sk_live_"),
            (KeyClass::Agent, EnvironmentKind::Sandbox, "ak_sandbox_"),
            (KeyClass::Agent, EnvironmentKind::Production, "ak_live_"),
        ] {
            for (random, secret) in [
                // Computed separately, with Python's integers.
                ([0; 32], "0000000000000000000000000000000000000000000"),
                ([255; 32], "yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp1"),
            ] {
                let key = ApiKey::from_random(class, kind, &random);
                let text = key.expose();
                assert!(text.starts_with(&format!("{prefix}{secret}")), "{text}");
                assert_eq!(text.len(), prefix.len() + 49);
                let read = ApiKey::parse(text).unwrap();
                assert_eq!((read.class(), read.kind(), read.expose()), (class, kind, text));
            }
        }
    }

    #[test]
    fn refusals_say_what_is_wrong_and_repeat_nothing() {
        let key = ApiKey::from_random(KeyClass::Agent, EnvironmentKind::Production, &[9; 32]);
        let text = key.expose();
        for (bad, refused) in [
            (String::new(), ApiKeyRefused::Prefix),
            (text.replacen("ak_", "pk_", 1), ApiKeyRefused::Prefix),
            (text.replacen("live", "LIVE", 1), ApiKeyRefused::Prefix),
            (format!(" {text}"), ApiKeyRefused::Prefix),
            (format!("{text}\n"), ApiKeyRefused::Character),
            (text.replacen("live_", "live_\u{e9}", 1), ApiKeyRefused::Character),
            (text[..text.len() - 1].to_owned(), ApiKeyRefused::Length { found: 48 }),
            (format!("{text}0"), ApiKeyRefused::Length { found: 50 }),
            (text.replacen("ak_", "sk_", 1), ApiKeyRefused::Checksum),
            (text.replacen("live", "sandbox", 1), ApiKeyRefused::Checksum),
        ] {
            let error = ApiKey::parse(&bad).unwrap_err();
            assert_eq!(error, refused);
            assert!(!error.to_string().contains(&text[8..14]), "{error}");
        }
        assert_eq!(format!("{key:?}"), "ApiKey(ak_live_…)");
    }

    proptest! {
        #[test]
        fn every_single_mistake_is_noticed(random: [u8; 32], place in 0_usize..49, digit in 0_usize..62) {
            let key = ApiKey::from_random(KeyClass::Organization, EnvironmentKind::Production, &random);
            prop_assert_eq!(ApiKey::parse(key.expose()).unwrap().hash(), key.hash());
            let mut bytes = key.expose().as_bytes().to_vec();
            let place = place + "sk_live_".len();
            if bytes[place] != ALPHABET[digit] {
                bytes[place] = ALPHABET[digit];
                let mistyped = String::from_utf8(bytes).unwrap();
                prop_assert_eq!(ApiKey::parse(&mistyped).unwrap_err(), ApiKeyRefused::Checksum);
            }
        }

        #[test]
        fn different_bytes_make_different_keys(a: [u8; 32], b: [u8; 32]) {
            let key = |random| ApiKey::from_random(KeyClass::Agent, EnvironmentKind::Sandbox, random);
            prop_assert_eq!(a == b, key(&a).expose() == key(&b).expose());
        }

        #[test]
        fn never_panics(text in "([sa]k_(live|sandbox)_)?\\PC{0,60}") {
            let _ = ApiKey::parse(&text);
        }
    }
}
