//! base64url as JOSE writes it (RFC 7515, section 2): without padding, and with exactly one spelling for each
//! sequence of bytes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::{DecodeError, DecodeSliceError};

pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn encode_onto(text: &mut String, bytes: &[u8]) {
    URL_SAFE_NO_PAD.encode_string(bytes, text);
}

/// The bytes of `text`; or what is wrong with it, as the end of a sentence.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, &'static str> {
    URL_SAFE_NO_PAD.decode(text).map_err(|error| problem(&error))
}

/// The bytes of `text`, if there are exactly as many as the array holds.
pub(crate) fn decode_array<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
        Ok(length) if length == N => Some(bytes),
        Ok(_) | Err(DecodeSliceError::DecodeError(_) | DecodeSliceError::OutputSliceTooSmall) => None,
    }
}

fn problem(error: &DecodeError) -> &'static str {
    match error {
        DecodeError::InvalidByte(_, b'=') | DecodeError::InvalidPadding => "has padding",
        DecodeError::InvalidByte(_, b' ' | b'\t' | b'\r' | b'\n') => "has whitespace or a line break in it",
        DecodeError::InvalidByte(..) => "has a character that base64url does not",
        DecodeError::InvalidLength(_) => "has a length that base64url cannot have",
        DecodeError::InvalidLastSymbol { .. } => "has bits set behind its last byte",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_only() {
        for (text, said) in [
            ("AA==", "has padding"),
            ("AA=A", "has padding"),
            ("A A", "has whitespace or a line break in it"),
            ("AAAA\n", "has whitespace or a line break in it"),
            ("\u{feff}AAAA", "has a character that base64url does not"),
            ("+AAA", "has a character that base64url does not"),
            ("A", "has a length that base64url cannot have"),
            ("AB", "has bits set behind its last byte"),
            ("AAB", "has bits set behind its last byte"),
        ] {
            assert_eq!(decode(text), Err(said), "{text:?}");
        }
        assert_eq!(decode("AQ_-"), Ok(vec![1, 15, 254]));
        assert_eq!(decode_array("AQ"), Some([1]));
        for text in ["", "AQE", "AQ==", "AR", "AQEB"] {
            assert_eq!(decode_array::<1>(text), None, "{text}");
        }
    }
}
