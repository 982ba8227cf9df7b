//! Exact decimal money. No value ever passes through a float.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::Invalid;

/// Units of the last decimal place in one whole.
const SCALE: i128 = 100_000_000;
/// Digits behind the point.
const FRACTION_DIGITS: u32 = 8;
/// Digits of an amount's plain rendering, leading zeros aside: what an IEEE 754 double still tells apart.
const MAX_DIGITS: u32 = 15;
/// The longest number text that is looked at.
const MAX_TEXT: usize = 64;
/// One more than the largest whole part of an amount.
const WHOLE_LIMIT: i128 = 1_000_000_000_000_000;

/// An amount of money: greater than 0, exact, with at most 8 fractional digits and at most 15 digits in all.
///
/// The bound of 15 keeps any two amounts apart for a counterparty who reads JSON numbers as IEEE 754 doubles. Amounts
/// compare by value and are written without trailing zeros or exponent. An amount has no currency of its own.
///
/// ```
/// use mandate_core::Amount;
/// let amount = Amount::parse("40.50")?;
/// assert_eq!(amount.to_string(), "40.5");
/// assert_eq!(Amount::parse("1e2")?, Amount::parse("100")?);
/// assert!(Amount::parse("100.00000000000000000000000000000001").is_err());
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i128);

/// A sum of amounts: 0 or more.
///
/// ```
/// use mandate_core::{Amount, Total};
/// let spent = Total::ZERO.plus(Amount::parse("980")?).plus(Amount::parse("0.25")?);
/// assert_eq!(spent.to_string(), "980.25");
/// assert!(spent.plus(Amount::parse("40")?).exceeds(Amount::parse("1000")?));
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Total(i128);

impl Amount {
    /// Reads the text of a JSON number, exactly. An exponent is honoured: `1e2` is 100.
    ///
    /// ```
    /// use mandate_core::Amount;
    /// assert_eq!(Amount::parse("1e2")?.to_string(), "100");
    /// let refused = Amount::parse("0.00").unwrap_err();
    /// assert_eq!(refused.to_string(), "amount must be greater than 0; got `0.00`");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The text is not a JSON number, is 0 or less, or has more digits than an amount holds; nothing is rounded.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let field = "amount";
        if text.starts_with('-') && number(text).is_some() {
            return Err(Invalid::value(field, "must be greater than 0", text));
        }
        match units(text) {
            Ok(0) => Err(Invalid::value(field, "must be greater than 0", text)),
            Ok(units) if digits(units) > MAX_DIGITS => Err(too_long(field, text)),
            Ok(units) => Ok(Self(units)),
            Err(Unreadable::NotANumber) => Err(Invalid::value(field, "must be a number", text)),
            Err(Unreadable::TooLong) => Err(too_long(field, text)),
        }
    }

    /// The difference `self - other`, if it is greater than 0.
    ///
    /// ```
    /// use mandate_core::Amount;
    /// let (paid, fee) = (Amount::parse("40.50")?, Amount::parse("0.50")?);
    /// assert_eq!(paid.minus(fee), Some(Amount::parse("40")?));
    /// assert_eq!(fee.minus(fee), None);
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn minus(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).filter(|units| *units > 0).map(Self)
    }
}

impl Total {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// Reads the text of a JSON number that is 0 or more.
    ///
    /// ```
    /// use mandate_core::Total;
    /// assert_eq!(Total::parse("0")?, Total::ZERO);
    /// assert_eq!(Total::parse("980.250")?.to_string(), "980.25");
    /// assert!(Total::parse("-1").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The text is not a JSON number, is negative, has more than 8 fractional digits, or is out of range.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text == "0" {
            return Ok(Self::ZERO);
        }
        match total_units(text) {
            Some(units) => Ok(Self(units)),
            None => Err(Invalid::value(
                "total",
                "must be a number of at least 0 with at most 8 fractional digits",
                text,
            )),
        }
    }

    /// The total with `amount` added. Stops at the largest total there is, about 1.7 × 10³⁰, rather than wrap.
    ///
    /// ```
    /// use mandate_core::{Amount, Total};
    /// let tenth = Amount::parse("0.1")?;
    /// assert_eq!(Total::ZERO.plus(tenth).plus(tenth).plus(tenth).to_string(), "0.3");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn plus(self, amount: Amount) -> Self {
        Self(self.0.saturating_add(amount.0))
    }

    /// Whether the total is greater than `limit`.
    ///
    /// ```
    /// use mandate_core::{Amount, Total};
    /// let limit = Amount::parse("1000")?;
    /// assert!(!Total::parse("1000")?.exceeds(limit));
    /// assert!(Total::parse("1000.00000001")?.exceeds(limit));
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn exceeds(self, limit: Amount) -> bool {
        self.0 > limit.0
    }

    /// What is left up to `limit`: 0 when the total has reached it.
    ///
    /// ```
    /// use mandate_core::{Amount, Total};
    /// let limit = Amount::parse("1000")?;
    /// assert_eq!(Total::parse("980.25")?.remaining(limit).to_string(), "19.75");
    /// assert_eq!(Total::parse("1200")?.remaining(limit), Total::ZERO);
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn remaining(self, limit: Amount) -> Self {
        Self(limit.0.saturating_sub(self.0).max(0))
    }
}

/// Stops at the largest total there is, rather than wrap.
///
/// ```
/// use mandate_core::Total;
/// let totals = ["0.5", "980.25", "0"].map(|text| Total::parse(text).unwrap());
/// assert_eq!(totals.into_iter().sum::<Total>().to_string(), "980.75");
/// ```
impl std::iter::Sum for Total {
    fn sum<I: Iterator<Item = Self>>(totals: I) -> Self {
        totals.fold(Self::ZERO, |sum, total| Self(sum.0.saturating_add(total.0)))
    }
}

impl From<Amount> for Total {
    fn from(amount: Amount) -> Self {
        Self(amount.0)
    }
}

enum Unreadable {
    NotANumber,
    TooLong,
}

fn too_long(field: &'static str, text: &str) -> Invalid {
    Invalid::value(field, "must have at most 15 digits, of which at most 8 are fractional", text)
}

/// Splits the text of a JSON number (RFC 8259, section 6) into whole part, fraction and exponent.
fn number(text: &str) -> Option<(&str, &str, i32)> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        None => (unsigned, 0),
        Some((mantissa, exponent)) => {
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // An exponent too large to hold is as far out of range as the largest one held.
            let size = digits.parse::<i32>().unwrap_or(i32::MAX);
            (mantissa, if exponent.starts_with('-') { size.saturating_neg() } else { size })
        }
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        None => (mantissa, ""),
        Some((_, "")) => return None,
        Some(parts) => parts,
    };
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    if whole.is_empty() || leading_zero || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit())
    {
        return None;
    }
    Some((whole, fraction, exponent))
}

/// The value in units of the last place, below [`WHOLE_LIMIT`] wholes.
fn units(text: &str) -> Result<i128, Unreadable> {
    let (whole, fraction, exponent) = number(text).ok_or(Unreadable::NotANumber)?;
    if text.len() > MAX_TEXT {
        return Err(Unreadable::TooLong);
    }
    let mut mantissa: i128 = 0;
    // The power of ten that the mantissa's last non-zero digit stands for.
    let mut power = exponent.saturating_add(i32::try_from(whole.len()).unwrap_or(i32::MAX));
    let mut kept = power;
    let mut zeros = 0_u32;
    for digit in whole.bytes().chain(fraction.bytes()).map(|b| i128::from(b.wrapping_sub(b'0'))) {
        power = power.saturating_sub(1);
        zeros = zeros.saturating_add(1);
        if digit != 0 {
            let shifted = 10_i128.checked_pow(zeros).and_then(|p| mantissa.checked_mul(p));
            mantissa = shifted.and_then(|m| m.checked_add(digit)).ok_or(Unreadable::TooLong)?;
            zeros = 0;
            kept = power;
        }
    }
    if mantissa == 0 {
        return Ok(0);
    }
    let shift = kept.saturating_add_unsigned(FRACTION_DIGITS);
    let factor = u32::try_from(shift).ok().and_then(|s| 10_i128.checked_pow(s)).ok_or(Unreadable::TooLong)?;
    let units = mantissa.checked_mul(factor).ok_or(Unreadable::TooLong)?;
    let limit = WHOLE_LIMIT.saturating_mul(SCALE);
    if units < limit { Ok(units) } else { Err(Unreadable::TooLong) }
}

/// A total in plain form (as [`Total`] writes it), which may be larger than any amount.
fn total_units(text: &str) -> Option<i128> {
    let (whole, fraction, exponent) = number(text)?;
    if text.starts_with('-') || exponent != 0 || fraction.len() > 8 {
        return None;
    }
    let padded = format!("{fraction:0<8}");
    whole.parse::<i128>().ok()?.checked_mul(SCALE)?.checked_add(padded.parse().ok()?)
}

/// The digits of the plain rendering from the first that is not 0.
fn digits(units: i128) -> u32 {
    let mut units = units;
    let mut spare = FRACTION_DIGITS;
    while spare > 0 && units.checked_rem(10) == Some(0) {
        units = units.checked_div(10).unwrap_or(0);
        spare = spare.saturating_sub(1);
    }
    units.checked_ilog10().map_or(0, |log| log.saturating_add(1))
}

fn render(units: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // Nearly all fit 64 bits, which are divided and written in a fraction of the time.
    if let (Ok(units), Ok(scale)) = (u64::try_from(units), u64::try_from(SCALE)) {
        let whole = units.checked_div(scale).unwrap_or(0);
        return render_parts(whole, units.checked_rem(scale).unwrap_or(0), f);
    }
    let fraction = units.checked_rem(SCALE).and_then(|fraction| u64::try_from(fraction).ok());
    render_parts(units.checked_div(SCALE).unwrap_or(0), fraction.unwrap_or(0), f)
}

/// Writes a number without the zeros behind it; `fraction` is in units of the last place.
fn render_parts(whole: impl fmt::Display, mut fraction: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if fraction == 0 {
        return write!(f, "{whole}");
    }
    let mut digits = usize::try_from(FRACTION_DIGITS).unwrap_or(0);
    while fraction.checked_rem(10) == Some(0) {
        fraction = fraction.checked_div(10).unwrap_or(0);
        digits = digits.saturating_sub(1);
    }
    write!(f, "{whole}.{fraction:0digits$}")
}

macro_rules! money {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                render(self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        /// Written as a JSON number. Only `serde_json` can do that without loss; another format sees a wrapped string.
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let text = RawValue::from_string(self.to_string()).map_err(serde::ser::Error::custom)?;
                text.serialize(serializer)
            }
        }
    };
}

money!(Amount);
money!(Total);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_exactly_and_renders_normalised() {
        for (text, rendered) in [
            ("40", "40"),
            ("40.50", "40.5"),
            ("40.00000000000000000000", "40"),
            ("0.00000001", "0.00000001"),
            ("1e2", "100"),
            ("1E+2", "100"),
            ("1.5e1", "15"),
            ("1500e-2", "15"),
            ("0.001e3", "1"),
            ("100e-10", "0.00000001"),
            ("999999999999999", "999999999999999"),
            ("9999999.99999999", "9999999.99999999"),
        ] {
            assert_eq!(Amount::parse(text).unwrap().to_string(), rendered, "{text}");
        }
    }

    #[test]
    fn refuses_what_it_cannot_hold() {
        for (text, message) in [
            ("0", "must be greater than 0"),
            ("0e9", "must be greater than 0"),
            ("-0", "must be greater than 0"),
            ("-5", "must be greater than 0"),
            ("100.00000000000000000000000000000001", "at most 15 digits"),
            ("0.000000001", "at most 15 digits"),
            ("1e-9", "at most 15 digits"),
            ("1e15", "at most 15 digits"),
            ("1e400", "at most 15 digits"),
            ("1e99999999999999999999", "at most 15 digits"),
            ("9999999999999999", "at most 15 digits"),
            ("99999999.99999999", "at most 15 digits"),
            ("", "must be a number"),
            ("1.", "must be a number"),
            (".5", "must be a number"),
            ("+1", "must be a number"),
            ("01", "must be a number"),
            ("1e", "must be a number"),
            ("1_000", "must be a number"),
            ("0x10", "must be a number"),
            ("\u{0661}", "must be a number"),
            ("Infinity", "must be a number"),
        ] {
            let refused = Amount::parse(text).unwrap_err().to_string();
            assert!(refused.contains(message), "{text}: {refused}");
        }
    }

    #[test]
    fn totals_outgrow_amounts() {
        let most = Amount::parse("999999999999999").unwrap();
        let total = (0..2000).fold(Total::ZERO, |t, _| t.plus(most));
        assert_eq!(total.to_string(), "1999999999999998000");
        assert_eq!(Total::parse(&total.to_string()).unwrap(), total);
        assert_eq!(total.plus(Amount::parse("0.05").unwrap()).to_string(), "1999999999999998000.05");
        assert!(Total::parse("-1").is_err() && Total::parse("0.123456789").is_err());
    }

    #[test]
    fn is_written_as_a_number() {
        assert_eq!(serde_json::to_string(&Amount::parse("0.10").unwrap()).unwrap(), "0.1");
        assert_eq!(serde_json::to_string(&Total::ZERO).unwrap(), "0");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(whole in 0_u64..10_000_000, fraction in 1_u32..100_000_000) {
            let text = format!("{whole}.{fraction:08}");
            let amount = Amount::parse(&text).unwrap();
            prop_assert_eq!(Amount::parse(&amount.to_string()).unwrap(), amount);
            prop_assert_eq!(Total::parse(&amount.to_string()).unwrap(), Total::from(amount));
            prop_assert_eq!(Amount::parse(&format!("{whole}{fraction:08}e-8")).unwrap(), amount);
            // Two amounts that differ stay apart in a double.
            let next = Amount(amount.0 + 1);
            if let Ok(next) = Amount::parse(&next.to_string()) {
                let float = |a: Amount| a.to_string().parse::<f64>().unwrap();
                prop_assert_ne!(float(amount).to_bits(), float(next).to_bits());
            }
        }

        #[test]
        fn never_panics(text in "[-+0-9.eE]{0,40}") {
            let _ = Amount::parse(&text);
            let _ = Total::parse(&text);
        }
    }
}
