//! Instants, calendar days and months, all in UTC. Nothing here reads a clock: the caller passes the time in.

use std::fmt;

use serde::{Serialize, Serializer};
use time::format_description::StaticFormatDescription;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime, UtcDateTime};

use crate::error::Invalid;

/// Milliseconds in a second.
const SECOND: i64 = 1_000;
/// 9999-12-31T23:59:59.999Z, the last instant that RFC 3339 can write.
const LAST_MILLIS: i64 = 253_402_300_799_999;
const DAY_FORMAT: StaticFormatDescription = format_description!("[year]-[month]-[day]");
const INSTANT_FORMAT: StaticFormatDescription =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

/// An instant: milliseconds since the Unix epoch, from 1970 to the end of 9999. Written as RFC 3339 UTC with `Z`.
///
/// ```
/// use mandate_core::Timestamp;
/// let at = Timestamp::parse("2026-03-01T12:00:00+01:00")?;
/// assert_eq!(at.to_string(), "2026-03-01T11:00:00.000Z");
/// assert_eq!(at.seconds(), 1_772_362_800);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// A calendar day, UTC. Written `YYYY-MM-DD`.
///
/// ```
/// use mandate_core::{Day, Timestamp};
/// let expires = Day::parse("2026-02-28")?;
/// assert!(expires.contains_or_follows(Timestamp::parse("2026-02-28T23:59:59.999Z")?));
/// assert!(!expires.contains_or_follows(Timestamp::parse("2026-03-01T00:00:00Z")?));
/// assert!(Day::parse("2026-02-29").is_err());
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(Date);

/// A calendar month, UTC. Written `YYYY-MM`.
///
/// ```
/// use mandate_core::{Month, Timestamp};
/// let month = Timestamp::parse("2026-02-28T23:59:59.999Z")?.month();
/// assert_eq!(month.to_string(), "2026-02");
/// assert!(month < Month::parse("2026-03")?);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month {
    year: u16,
    month: u8,
}

impl Timestamp {
    /// The instant `millis` milliseconds after the Unix epoch. A value outside 1970 to 9999 becomes the
    /// nearer bound.
    ///
    /// ```
    /// use mandate_core::Timestamp;
    /// assert_eq!(Timestamp::from_millis(1_500).to_string(), "1970-01-01T00:00:01.500Z");
    /// assert_eq!(Timestamp::from_millis(-1), Timestamp::from_millis(0));
    /// ```
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.clamp(0, LAST_MILLIS))
    }

    /// The instant `seconds` seconds after the Unix epoch, bounded as in [`Timestamp::from_millis`].
    ///
    /// ```
    /// use mandate_core::Timestamp;
    /// assert_eq!(Timestamp::from_seconds(1_772_362_800).to_string(), "2026-03-01T11:00:00.000Z");
    /// ```
    #[must_use]
    pub fn from_seconds(seconds: i64) -> Self {
        Self::from_millis(seconds.saturating_mul(SECOND))
    }

    /// Reads RFC 3339 text with any offset. Digits below a millisecond are cut off.
    ///
    /// ```
    /// use mandate_core::Timestamp;
    /// assert_eq!(Timestamp::parse("1970-01-01T00:00:01.2345Z")?.millis(), 1_234);
    /// assert!(Timestamp::parse("2026-03-01").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The text is not an RFC 3339 instant between 1970 and 9999.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let wanted = "must be an RFC 3339 instant such as 2026-03-01T12:00:00Z";
        let parsed =
            OffsetDateTime::parse(text, &Rfc3339).map_err(|_| Invalid::value("time", wanted, text))?;
        let millis = i64::try_from(parsed.unix_timestamp_nanos().div_euclid(1_000_000)).unwrap_or(-1);
        if (0..=LAST_MILLIS).contains(&millis) {
            Ok(Self(millis))
        } else {
            Err(Invalid::value("time", wanted, text))
        }
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, as claims carry them (RFC 7519, `NumericDate`).
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(SECOND)
    }

    /// The instant `seconds` later, or earlier if negative; bounded as in [`Timestamp::from_millis`].
    ///
    /// ```
    /// use mandate_core::Timestamp;
    /// let at = Timestamp::parse("2026-12-31T23:59:30Z")?;
    /// assert_eq!(at.plus_seconds(60).to_string(), "2027-01-01T00:00:30.000Z");
    /// assert_eq!(at.plus_seconds(-30).to_string(), "2026-12-31T23:59:00.000Z");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self::from_millis(self.0.saturating_add(seconds.saturating_mul(SECOND)))
    }

    /// How many milliseconds after `earlier` this is. Negative if it is before.
    ///
    /// ```
    /// use mandate_core::Timestamp;
    /// let (earlier, later) = (Timestamp::from_seconds(10), Timestamp::from_millis(12_500));
    /// assert_eq!(later.millis_since(earlier), 2_500);
    /// assert_eq!(earlier.millis_since(later), -2_500);
    /// ```
    #[must_use]
    pub fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The calendar day of the instant.
    ///
    /// ```
    /// use mandate_core::{Day, Timestamp};
    /// assert_eq!(Timestamp::parse("2026-03-01T00:30:00+01:00")?.day(), Day::parse("2026-02-28")?);
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn day(self) -> Day {
        Day(self.utc().date())
    }

    /// The calendar month of the instant.
    ///
    /// ```
    /// use mandate_core::{Month, Timestamp};
    /// assert_eq!(Timestamp::parse("2026-03-01T00:30:00+01:00")?.month(), Month::parse("2026-02")?);
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn month(self) -> Month {
        let date = self.utc().date();
        Month { year: u16::try_from(date.year()).unwrap_or(u16::MAX), month: u8::from(date.month()) }
    }

    fn utc(self) -> UtcDateTime {
        UtcDateTime::from_unix_timestamp_nanos(i128::from(self.0).saturating_mul(1_000_000))
            .unwrap_or(UtcDateTime::UNIX_EPOCH)
    }
}

impl Day {
    /// Reads `YYYY-MM-DD`, a day of the calendar, from 1970 on.
    ///
    /// ```
    /// use mandate_core::Day;
    /// assert_eq!(Day::parse("2028-02-29")?.to_string(), "2028-02-29");
    /// let refused = Day::parse("2026-2-1").unwrap_err();
    /// assert_eq!(refused.to_string(), "date must be a calendar date in the form YYYY-MM-DD; got `2026-2-1`");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The text has another form or is not a day.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let plain = text.len() == 10 && text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        let date = Date::parse(text, DAY_FORMAT).ok().filter(|d| plain && d.year() >= 1970);
        date.map(Self)
            .ok_or_else(|| Invalid::value("date", "must be a calendar date in the form YYYY-MM-DD", text))
    }

    /// Whether `at` is in this day or before it.
    ///
    /// ```
    /// use mandate_core::{Day, Timestamp};
    /// let last = Day::parse("2026-12-31")?;
    /// assert!(last.contains_or_follows(Timestamp::parse("2026-12-31T23:59:59Z")?));
    /// assert!(!last.contains_or_follows(Timestamp::parse("2027-01-01T00:00:00Z")?));
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn contains_or_follows(self, at: Timestamp) -> bool {
        at.day() <= self
    }

    /// 00:00 UTC of the day.
    ///
    /// ```
    /// use mandate_core::Day;
    /// let start = Day::parse("2026-12-31")?.start();
    /// assert_eq!(start.to_string(), "2026-12-31T00:00:00.000Z");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn start(self) -> Timestamp {
        Timestamp::from_seconds(self.0.midnight().as_utc().unix_timestamp())
    }
}

impl Month {
    /// Reads `YYYY-MM`.
    ///
    /// ```
    /// use mandate_core::Month;
    /// assert_eq!(Month::parse("2026-02")?.to_string(), "2026-02");
    /// assert!(Month::parse("2026-13").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The text has another form or is not a month from 1970 on.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let first = Day::parse(&format!("{text}-01"));
        let first =
            first.map_err(|_| Invalid::value("month", "must be a month in the form YYYY-MM", text))?;
        Ok(first.start().month())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.utc().format(INSTANT_FORMAT).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.format(DAY_FORMAT).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Month {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read_and_written() {
        for (text, written) in [
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
            ("2026-12-31T23:59:59.9999Z", "2026-12-31T23:59:59.999Z"),
            ("2026-01-01T00:30:00+01:00", "2025-12-31T23:30:00.000Z"),
        ] {
            assert_eq!(Timestamp::parse(text).unwrap().to_string(), written);
        }
        for text in ["2026-01-01", "2026-01-01T00:00:00", "1969-12-31T23:59:59Z", "2026-13-01T00:00:00Z", ""]
        {
            assert!(Timestamp::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn days_are_real() {
        for text in ["2026-02-29", "2026-2-01", "26-02-01", "2026-02-01T", "+2026-02-01", "1969-12-31", ""] {
            assert!(Day::parse(text).is_err(), "{text}");
        }
        assert_eq!(Day::parse("2028-02-29").unwrap().to_string(), "2028-02-29");
    }

    #[test]
    fn months_are_utc() {
        let last = Timestamp::parse("2026-01-31T23:59:59.999Z").unwrap();
        assert_eq!(last.month().to_string(), "2026-01");
        assert_eq!(Timestamp::from_millis(last.millis() + 1).month(), Month::parse("2026-02").unwrap());
        assert!(Month::parse("2026-13").is_err() && Month::parse("2026-1").is_err());
    }
}
