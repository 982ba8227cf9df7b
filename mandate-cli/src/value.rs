//! What arguments are read with: times, amounts, sources, keys of idempotency.

use mandate_core::verify::Leeway;
use mandate_core::{Amount, Invalid, Timestamp};

use crate::input::Source;

/// The longest idempotency key.
const MAX_IDEMPOTENCY_KEY: usize = 255;

#[expect(clippy::unnecessary_wraps, reason = "the shape of a value parser")]
pub(crate) fn source(text: &str) -> Result<Source, std::convert::Infallible> {
    Ok(Source::from(text))
}

/// The text as it stands, once it is known to be an amount.
pub(crate) fn amount_text(text: &str) -> Result<String, Invalid> {
    Amount::parse(text).map(|_| text.to_owned())
}

pub(crate) fn instant(text: &str) -> Result<Timestamp, Invalid> {
    match text.parse::<i64>() {
        Ok(seconds) if seconds >= 0 => Ok(Timestamp::from_seconds(seconds)),
        _ => Timestamp::parse(text),
    }
}

pub(crate) fn leeway(text: &str) -> Result<Leeway, String> {
    let seconds = text.parse().map_err(|_| "must be whole seconds".to_owned())?;
    Leeway::from_seconds(seconds).map_err(|e| e.to_string())
}

pub(crate) fn idempotency_key(text: &str) -> Result<String, &'static str> {
    let fits = (1..=MAX_IDEMPOTENCY_KEY).contains(&text.len());
    if fits && text.bytes().all(|b| matches!(b, b' '..=b'~')) && text.trim() == text {
        Ok(text.to_owned())
    } else {
        Err("must be 1 to 255 printable ASCII characters, the first and last no space")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_both_forms() {
        assert_eq!(instant("1772362800").unwrap(), instant("2026-03-01T12:00:00+01:00").unwrap());
        assert!(instant("-1").is_err() && instant("tomorrow").is_err() && instant("1.5").is_err());
    }

    #[test]
    fn idempotency_keys_fit_a_header() {
        for text in ["", " a", "a ", "a\n", "ä", &"a".repeat(256)] {
            assert!(idempotency_key(text).is_err(), "{text:?}");
        }
        assert!(idempotency_key("order 7/a").is_ok());
    }
}
