//! Exact decimal money, held by `rust_decimal`. No value ever passes through a float.
//!
//! Reading is our own code: `rust_decimal` rounds text of more than 28 digits, and its serde reads strings as
//! numbers. The upper bound of a [`Total`] is ours too: beyond 96 bits, `rust_decimal`'s addition drops
//! digits, and 10²⁰ with 8 fractional digits needs 94 bits.

use std::fmt;

use rust_decimal::Decimal;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::Invalid;

/// The most digits after the decimal point.
const FRACTION_DIGITS: u32 = 8;
/// The largest number of 15 digits: IEEE 754 doubles distinguish all numbers of that length.
const MAX_MANTISSA: i128 = 999_999_999_999_999;
/// The longest number text that is read, in bytes.
const MAX_TEXT: usize = 64;

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
pub struct Amount(Decimal);

/// A sum of amounts: from 0 to 10²⁰, exact, with at most 8 fractional digits.
///
/// A larger sum stays at 10²⁰. Every limit is far below that.
///
/// ```
/// use mandate_core::{Amount, Total};
/// let spent = Total::ZERO.plus(Amount::parse("980")?).plus(Amount::parse("0.25")?);
/// assert_eq!(spent.to_string(), "980.25");
/// assert!(spent.plus(Amount::parse("40")?).exceeds(Amount::parse("1000")?));
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Total(Decimal);

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
        match read(text) {
            Ok(value) if value.is_zero() => Err(Invalid::value(field, "must be greater than 0", text)),
            Ok(value) if !fits(&value) => Err(too_long(field, text)),
            Ok(value) => Ok(Self(value)),
            Err(Unreadable::NotANumber) => Err(Invalid::value(field, "must be a number", text)),
            Err(Unreadable::TooLong) => Err(too_long(field, text)),
        }
    }

    /// The difference `self - other`, if it is an amount: greater than 0, with at most 15 digits. Otherwise
    /// `None`.
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
        Self::try_from(self.0.checked_sub(other.0)?).ok()
    }
}

impl Total {
    /// Zero.
    pub const ZERO: Self = Self(Decimal::ZERO);

    /// 10²⁰, at which additions stop.
    pub const MAX: Self = Self(Decimal::from_parts(0x6310_0000, 0x6bc7_5e2d, 5, false, 0));

    /// Reads the text of a JSON number from 0 to 10²⁰, without exponent.
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
    /// The text is not a JSON number, has an exponent or more than 8 fractional digits, or is out of range.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text == "0" {
            return Ok(Self::ZERO);
        }
        let plain = number(text).is_some_and(|(_, fraction, _)| {
            fraction.len() <= FRACTION_DIGITS as usize && !text.contains(['-', 'e', 'E'])
        });
        let value = Decimal::from_str_exact(text).ok().map(Self);
        value.filter(|value| plain && *value <= Self::MAX).ok_or_else(|| {
            let accepted = "must be a number from 0 to 100000000000000000000, without exponent, with at most 8 fractional digits";
            Invalid::value("total", accepted, text)
        })
    }

    /// The total plus `amount`, exactly. Stops at [`Total::MAX`].
    ///
    /// ```
    /// use mandate_core::{Amount, Total};
    /// let tenth = Amount::parse("0.1")?;
    /// assert_eq!(Total::ZERO.plus(tenth).plus(tenth).plus(tenth).to_string(), "0.3");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn plus(self, amount: Amount) -> Self {
        self.added(amount.0)
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

    /// What is left up to `limit`: 0 if the total has reached it.
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
        // Exact: neither side needs more than 96 bits.
        Self(limit.0.checked_sub(self.0).unwrap_or_default().max(Decimal::ZERO))
    }

    /// Two numbers of at most 10²⁰ with 8 fractional digits have a sum that fits 96 bits: no digit is lost.
    fn added(self, other: Decimal) -> Self {
        self.0.checked_add(other).map_or(Self::MAX, Self).min(Self::MAX)
    }
}

/// The exact sum. Stops at [`Total::MAX`].
///
/// ```
/// use mandate_core::Total;
/// let totals = ["0.5", "980.25", "0"].map(|text| Total::parse(text).unwrap());
/// assert_eq!(totals.into_iter().sum::<Total>().to_string(), "980.75");
/// ```
impl std::iter::Sum for Total {
    fn sum<I: Iterator<Item = Self>>(totals: I) -> Self {
        totals.fold(Self::ZERO, |sum, total| sum.added(total.0))
    }
}

impl From<Amount> for Total {
    fn from(amount: Amount) -> Self {
        Self(amount.0)
    }
}

/// The amount as a number to calculate with.
///
/// ```
/// use mandate_core::Amount;
/// use rust_decimal::Decimal;
/// assert_eq!(Decimal::from(Amount::parse("40.50")?), Decimal::new(405, 1));
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
impl From<Amount> for Decimal {
    fn from(amount: Amount) -> Self {
        amount.0
    }
}

/// Accepts a number within the bounds of an amount. Trailing zeros do not count, and nothing is rounded.
///
/// ```
/// use mandate_core::Amount;
/// use rust_decimal::Decimal;
/// assert_eq!(Amount::try_from(Decimal::new(4050, 2))?, Amount::parse("40.5")?);
/// let refused = Amount::try_from(Decimal::new(1, 9)).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "amount must have at most 15 digits, of which at most 8 are fractional; got `0.000000001`"
/// );
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
impl TryFrom<Decimal> for Amount {
    type Error = Invalid;

    fn try_from(value: Decimal) -> Result<Self, Invalid> {
        let (field, value) = ("amount", value.normalize());
        if value <= Decimal::ZERO {
            return Err(Invalid::value(field, "must be greater than 0", &value.to_string()));
        }
        if fits(&value) { Ok(Self(value)) } else { Err(too_long(field, &value.to_string())) }
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
            // An exponent too large for `i32` is as far out of range as the largest that fits.
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

/// The value of a JSON number's text, without trailing zeros and without its sign.
fn read(text: &str) -> Result<Decimal, Unreadable> {
    let (whole, fraction, exponent) = number(text).ok_or(Unreadable::NotANumber)?;
    if text.len() > MAX_TEXT {
        return Err(Unreadable::TooLong);
    }
    let mut digits = whole.bytes().chain(fraction.bytes());
    let zeros = digits.clone().rev().take_while(|digit| *digit == b'0').count();
    let significant = whole.len().saturating_add(fraction.len()).saturating_sub(zeros);
    if significant == 0 {
        return Ok(Decimal::ZERO);
    }
    let mantissa = digits.by_ref().take(significant).try_fold(0_i64, |mantissa, digit| {
        mantissa.checked_mul(10)?.checked_add(i64::from(digit.wrapping_sub(b'0')))
    });
    // The power of ten of the last significant digit.
    let power = i64::from(exponent)
        .saturating_add_unsigned(zeros as u64)
        .saturating_sub_unsigned(fraction.len() as u64);
    let (factor, scale) = match u32::try_from(power) {
        Ok(power) => (10_i64.checked_pow(power), 0),
        Err(_) => (Some(1), u32::try_from(power.unsigned_abs()).unwrap_or(u32::MAX)),
    };
    let value = mantissa.zip(factor).and_then(|(mantissa, factor)| mantissa.checked_mul(factor));
    value.and_then(|value| Decimal::try_new(value, scale).ok()).ok_or(Unreadable::TooLong)
}

/// Whether a JSON number's text is 0, in any spelling: `0`, `0.0`, `-0`, `0e5`.
pub(crate) fn is_zero(text: &str) -> bool {
    read(text).is_ok_and(|value| value.is_zero())
}

/// Whether a number without trailing zeros has no more digits than an amount may have.
fn fits(value: &Decimal) -> bool {
    value.scale() <= FRACTION_DIGITS && value.mantissa() <= MAX_MANTISSA
}

macro_rules! money {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0.normalize(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        /// Written as a JSON number. Only `serde_json` does that without loss; other formats get a wrapped
        /// string.
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
mod tests;
