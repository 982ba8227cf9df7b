//! The addresses of contracts.

use std::fmt;

use serde::{Serialize, Serializer};

/// The address of a contract: 32 random bytes, written as 64 lower-case hexadecimal digits. Anyone who has it
/// may read the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address(pub [u8; 32]);

impl Address {
    /// Reads the 64 digits. Only this spelling is accepted.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut address = [0; 32];
        if pairs.len() != address.len() || !rest.is_empty() {
            return None;
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        for (byte, [high, low]) in address.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(address))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_spelling() {
        let address = Address([0xa9; 32]);
        assert_eq!(Address::parse(&address.to_string()), Some(address));
        for text in ["", "a9", &"A9".repeat(32), &"g9".repeat(32), &"a9".repeat(33), &"é".repeat(32)] {
            assert_eq!(Address::parse(text), None, "{text}");
        }
    }
}
