//! Base64 as the log's formats write it (RFC 4648, section 4): with padding, and with exactly one spelling for each
//! sequence of bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of `text`. `None`: it is not base64 in its one spelling.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_only() {
        assert_eq!(decode("AQ/+"), Some(vec![1, 15, 254]));
        assert_eq!(decode("AQ=="), Some(vec![1]));
        for text in ["AQ", "AQ=", "AR==", "AQF=", "AQ==\n", " AQ==", "A", "AQ_-", "AQ==AQ==", "\u{feff}AQ=="]
        {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
