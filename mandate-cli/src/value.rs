//! Parsers of arguments: times, amounts, sources, idempotency keys.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use mandate_core::verify::Leeway;
use mandate_core::{AgentId, AgentName, Amount, EscrowState, EventKind, Invalid, MandateStatus, Timestamp};

use crate::input::Source;

/// The longest idempotency key.
const MAX_IDEMPOTENCY_KEY: usize = 255;
/// The prefixes of the ids of all objects except agents.
const ID_PREFIXES: [&str; 9] = ["mnd_", "dec_", "rev_", "whk_", "evt_", "esc_", "exp_", "req_", "cur_"];

#[expect(clippy::unnecessary_wraps, reason = "the shape of a value parser")]
pub(crate) fn source(text: &str) -> Result<Source, std::convert::Infallible> {
    Ok(Source::from(text))
}

/// The text unchanged, after checking that it is an amount.
pub(crate) fn amount_text(text: &str) -> Result<String, Invalid> {
    Amount::parse(text).map(|_| text.to_owned())
}

/// An agent, by its id or by its name.
pub(crate) fn agent(text: &str) -> Result<AgentId, Invalid> {
    AgentId::parse(text).or_else(|refused| {
        // The id of another object is a mistake, although it could be a name.
        let is_id = ID_PREFIXES.iter().any(|prefix| text.starts_with(prefix));
        match AgentName::parse(text) {
            Ok(name) if !is_id => AgentId::parse(&format!("agt_{name}")),
            _ => Err(refused),
        }
    })
}

/// The type of an event. Shells complete it.
pub(crate) fn event_kind() -> impl TypedValueParser<Value = EventKind> {
    PossibleValuesParser::new(EventKind::ALL.map(EventKind::as_str)).try_map(|text| EventKind::parse(&text))
}

/// The state of an escrow. Shells complete it.
pub(crate) fn escrow_state() -> impl TypedValueParser<Value = EscrowState> {
    PossibleValuesParser::new(EscrowState::ALL.map(EscrowState::as_str))
        .try_map(|text| EscrowState::parse(&text))
}

/// The status of a mandate. Shells complete it.
pub(crate) fn mandate_status() -> impl TypedValueParser<Value = MandateStatus> {
    PossibleValuesParser::new(MandateStatus::ALL.map(MandateStatus::as_str))
        .try_map(|text| MandateStatus::parse(&text))
}

/// At least one.
pub(crate) fn count(text: &str) -> Result<u32, &'static str> {
    text.parse().ok().filter(|count| *count > 0).ok_or("must be a whole number, 1 or more")
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
    fn agents_are_called_by_id_or_by_name() {
        for text in ["agt_buyer", "buyer"] {
            assert_eq!(agent(text).unwrap().to_string(), "agt_buyer");
        }
        for text in ["Buyer", "agt_Buyer", "", "mnd_01hf7yat000000000000000007", "a b"] {
            assert!(agent(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn idempotency_keys_fit_a_header() {
        for text in ["", " a", "a ", "a\n", "ä", &"a".repeat(256)] {
            assert!(idempotency_key(text).is_err(), "{text:?}");
        }
        assert!(idempotency_key("order 7/a").is_ok());
    }
}
