//! Parsers of arguments: times, amounts, sources, idempotency keys.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use mandate_core::verify::Leeway;
use mandate_core::{
    AgentId, AgentName, Amount, Day, EscrowState, EventKind, Invalid, MandateStatus, Timestamp, Verdict,
};

use crate::input::Source;

/// The longest idempotency key.
const MAX_IDEMPOTENCY_KEY: usize = 255;
const DAY_SECONDS: i64 = 24 * 60 * 60;
/// The units of a time before now, in seconds.
const UNITS: [(&str, i64); 5] =
    [("s", 1), ("m", 60), ("h", 60 * 60), ("d", DAY_SECONDS), ("w", 7 * DAY_SECONDS)];
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
pub(crate) fn verdict() -> impl TypedValueParser<Value = Verdict> {
    PossibleValuesParser::new(Verdict::ALL.map(Verdict::as_str)).try_map(|text| Verdict::parse(&text))
}

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

/// An instant, or the start of a day, UTC.
pub(crate) fn day_or_instant(text: &str) -> Result<Timestamp, String> {
    let day = Day::parse(text).map(Day::start);
    day.or_else(|_| instant(text)).map_err(|e| format!("{e}; a day such as 2027-06-30 is accepted, too"))
}

/// Seconds before this one, in the year 2001, are a number without its unit.
const FIRST_SECONDS: i64 = 1_000_000_000;

/// An instant, or one that is told from now: `24h`, `yesterday`, `today`, or the start of a day, UTC.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    moment_at(text, crate::environment::now())
}

fn moment_at(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let ago = |count: &str, seconds: i64| {
        let count = count.parse::<u32>().ok().map(i64::from)?;
        Some(now.plus_seconds(-count.saturating_mul(seconds)))
    };
    let told = match text {
        "now" => Some(now),
        "today" => Some(now.day().start()),
        "yesterday" => Some(now.plus_seconds(-DAY_SECONDS).day().start()),
        _ => UNITS.iter().find_map(|(unit, seconds)| ago(text.strip_suffix(unit)?, *seconds)),
    };
    if text.parse::<i64>().is_ok_and(|seconds| (0..FIRST_SECONDS).contains(&seconds)) {
        return Err(format!(
            "{text} seconds after 1970 is before all that is kept; is it {text}h, {text}d or {text}m?"
        ));
    }
    let day = || Day::parse(text).map(Day::start).ok();
    told.or_else(day).map_or_else(
        || {
            instant(text).map_err(|e| format!("{e}; a time before now such as 24h, 30m or 7d, `yesterday`, and a day such as 2026-11-22 are accepted, too"))
        },
        Ok,
    )
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
        assert_eq!(day_or_instant("2027-06-30"), day_or_instant("2027-06-30T00:00:00Z"));
        assert!(day_or_instant("tomorrow").unwrap_err().contains("2027-06-30"));
    }

    #[test]
    fn a_moment_is_told_from_now_or_by_its_day() {
        let now = Timestamp::parse("2026-11-25T10:30:00Z").unwrap();
        for (text, at) in [
            ("24h", "2026-11-24T10:30:00Z"),
            ("90m", "2026-11-25T09:00:00Z"),
            ("1w", "2026-11-18T10:30:00Z"),
            ("0s", "2026-11-25T10:30:00Z"),
            ("today", "2026-11-25T00:00:00Z"),
            ("yesterday", "2026-11-24T00:00:00Z"),
            ("2026-11-22", "2026-11-22T00:00:00Z"),
            ("2026-11-22T13:00:00+01:00", "2026-11-22T12:00:00Z"),
            ("1772362800", "2026-03-01T11:00:00Z"),
        ] {
            assert_eq!(moment_at(text, now), Ok(Timestamp::parse(at).unwrap()), "{text}");
        }
        assert!(moment_at("24", now).unwrap_err().contains("is it 24h"));
        for text in ["", "h", "-1h", "1.5h", "24 h", "tomorrow", "2026-02-30", "1y"] {
            assert!(moment_at(text, now).unwrap_err().contains("such as 24h"), "{text}");
        }
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
