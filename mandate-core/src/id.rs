//! Object ids: a prefix that names the kind, and 26 characters that sort by creation.
//!
//! The characters are lower-case Crockford base32 of 48 bits of milliseconds and 80 random bits. The caller
//! passes both in, so this library needs neither clock nor randomness.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::error::Invalid;
use crate::time::Timestamp;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// The number of characters after the prefix.
const TEXT_LEN: usize = 26;
/// Random bits below the milliseconds.
const RANDOM_BITS: u32 = 80;

fn write_base32(value: u128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [b'0'; TEXT_LEN];
    let mut rest = value;
    for place in text.iter_mut().rev() {
        let index = usize::try_from(rest & 31).unwrap_or(0);
        *place = ALPHABET.get(index).copied().unwrap_or(b'0');
        rest >>= 5;
    }
    f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
}

fn read_base32(text: &str) -> Option<u128> {
    // 26 characters hold 130 bits, so the first is at most 7.
    if text.len() != TEXT_LEN || !matches!(text.as_bytes().first(), Some(b'0'..=b'7')) {
        return None;
    }
    text.bytes().try_fold(0_u128, |value, byte| {
        let digit = ALPHABET.iter().position(|a| *a == byte)?;
        Some((value << 5) | u128::try_from(digit).ok()?)
    })
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $prefix:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use mandate_core::{", stringify!($name), ", Timestamp};")]
        #[doc = concat!("let id = ", stringify!($name), "::new(Timestamp::from_millis(1_700_000_000_000), 7);")]
        #[doc = concat!("assert_eq!(id.to_string(), \"", $prefix, "01hf7yat000000000000000007\");")]
        #[doc = concat!("assert_eq!(", stringify!($name), "::parse(&id.to_string())?, id);")]
        /// assert_eq!(id.created_at().millis(), 1_700_000_000_000);
        /// # Ok::<(), mandate_core::Invalid>(())
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u128);

        impl $name {
            /// The prefix of such an id.
            pub const PREFIX: &'static str = $prefix;

            /// The id of something created at `at`. The upper 48 bits of `random` are not used.
            ///
            /// ```
            #[doc = concat!("use mandate_core::{", stringify!($name), " as Id, Timestamp};")]
            /// let at = Timestamp::from_seconds(1_700_000_000);
            /// assert!(Id::new(at, u128::MAX) < Id::new(at.plus_seconds(1), 0), "ids sort by creation");
            /// ```
            #[must_use]
            pub fn new(at: Timestamp, random: u128) -> Self {
                let millis = u128::try_from(at.millis()).unwrap_or(0);
                Self((millis << RANDOM_BITS) | (random & ((1 << RANDOM_BITS) - 1)))
            }

            /// Reads the text of an id, in its one spelling.
            ///
            /// ```
            #[doc = concat!("use mandate_core::", stringify!($name), " as Id;")]
            #[doc = concat!("assert!(Id::parse(\"", $prefix, "01hf7yat000000000000000007\").is_ok());")]
            #[doc = concat!("assert!(Id::parse(\"", $prefix, "01HF7YAT000000000000000007\").is_err());")]
            /// ```
            ///
            /// # Errors
            /// The prefix, the length or a character is wrong.
            pub fn parse(text: &str) -> Result<Self, Invalid> {
                text.strip_prefix(Self::PREFIX).and_then(read_base32).map(Self).ok_or_else(|| {
                    let wanted = concat!("must be `", $prefix, "` and 26 characters of lower-case Crockford base32");
                    Invalid::value("id", wanted, text)
                })
            }

            /// The id from its 128 bits, most significant byte first.
            ///
            /// ```
            #[doc = concat!("use mandate_core::", stringify!($name), " as Id;")]
            /// assert_eq!(Id::from_bytes([7; 16]).to_bytes(), [7; 16]);
            /// ```
            #[must_use]
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(u128::from_be_bytes(bytes))
            }

            /// The 128 bits, most significant byte first. They sort like the text.
            #[must_use]
            pub fn to_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }

            /// When the object was created, to the millisecond.
            #[must_use]
            pub fn created_at(self) -> Timestamp {
                Timestamp::from_millis(i64::try_from(self.0 >> RANDOM_BITS).unwrap_or(i64::MAX))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(Self::PREFIX)?;
                write_base32(self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

ids! {
    /// The id of a mandate, `mnd_…`.
    MandateId = "mnd_";
    /// The id of a decision, `dec_…`; the `jti` of its token.
    DecisionId = "dec_";
    /// The id of a review, `rev_…`.
    ReviewId = "rev_";
    /// The single-use value of a verdict, `n_…`. A counterparty refuses a token whose nonce it has seen
    /// before.
    Nonce = "n_";
    /// The id of an event, `evt_…`; the `jti` of its token.
    EventId = "evt_";
    /// The id of a webhook, `whk_…`.
    WebhookId = "whk_";
    /// The id of an escrow, `esc_…`.
    EscrowId = "esc_";
    /// The id of an export, `exp_…`.
    ExportId = "exp_";
    /// The id of a request to the API, `req_…`, as `X-Request-Id` carries it.
    RequestId = "req_";
    /// The id of a person, `per_…`.
    PersonId = "per_";
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_spelling_only() {
        let id = DecisionId::from_bytes([0xff; 16]);
        assert_eq!(id.to_string(), "dec_7zzzzzzzzzzzzzzzzzzzzzzzzz");
        for text in [
            "dec_8zzzzzzzzzzzzzzzzzzzzzzzzz",
            "dec_7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "dec_0000000000000000000000000i",
            "dec_000000000000000000000000",
            "dec_000000000000000000000000000",
            "mnd_00000000000000000000000000",
            "dec_",
            "",
        ] {
            assert!(DecisionId::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_and_bytes_come_back_and_sort_alike(a in any::<[u8; 16]>(), b in any::<[u8; 16]>()) {
            let (a, b) = (MandateId::from_bytes(a), MandateId::from_bytes(b));
            prop_assert_eq!(MandateId::parse(&a.to_string()).unwrap(), a);
            prop_assert_eq!(MandateId::from_bytes(a.to_bytes()), a);
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }
    }
}
