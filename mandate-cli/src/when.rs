//! Times for people: how long ago, or in how long.

use mandate_core::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// From so many seconds on, the day is shown instead.
const FAR: i64 = 30 * DAY;

/// The distance of `at` from `now`: "2 min ago", "in 23 h", or the day if that is a month away.
pub(crate) fn relative(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.millis_since(at) / 1_000;
    if seconds.abs() >= FAR {
        return at.to_string().split('T').next().unwrap_or_default().to_owned();
    }
    let span = span(seconds.abs());
    if seconds >= 0 { format!("{span} ago") } else { format!("in {span}") }
}

/// So many seconds in their largest unit, rounded down.
pub(crate) fn span(seconds: i64) -> String {
    match seconds {
        DAY.. => format!("{} d", seconds / DAY),
        HOUR.. => format!("{} h", seconds / HOUR),
        MINUTE.. => format!("{} min", seconds / MINUTE),
        _ => format!("{} s", seconds.max(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_its_largest_unit() {
        let now = Timestamp::parse("2026-11-25T10:30:00Z").unwrap();
        for (text, told) in [
            ("2026-11-25T10:30:00Z", "0 s ago"),
            ("2026-11-25T10:29:01Z", "59 s ago"),
            ("2026-11-25T10:27:01Z", "2 min ago"),
            ("2026-11-25T08:30:00Z", "2 h ago"),
            ("2026-11-22T10:30:00Z", "3 d ago"),
            ("2026-10-26T10:30:00Z", "2026-10-26"),
            ("2026-11-25T10:30:30Z", "in 30 s"),
            ("2026-11-26T10:29:00Z", "in 23 h"),
            ("2999-01-01T00:00:00Z", "2999-01-01"),
        ] {
            assert_eq!(relative(Timestamp::parse(text).unwrap(), now), told, "{text}");
        }
    }
}
