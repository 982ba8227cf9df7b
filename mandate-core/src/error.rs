//! The error for refused input.

use std::borrow::Cow;
use std::fmt;

use crate::api_key::masked;

/// A refused input: its field, and what is wrong with it, in words that say what would be accepted.
///
/// The message is a sentence that begins with the field. It can be shown to a person as it is.
///
/// ```
/// use mandate_core::{Amount, Invalid};
/// let refused: Invalid = Amount::parse("-1").unwrap_err().at("limits.per_month");
/// assert_eq!(refused.field(), "limits.per_month");
/// assert_eq!(refused.to_string(), "limits.per_month must be greater than 0; got `-1`");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    field: Cow<'static, str>,
    problem: String,
}

/// The longest part of the input that a message repeats, in characters.
const ECHO_CHARS: usize = 80;

impl Invalid {
    /// Refuses `field` because of `problem`, which continues the sentence that the field's name begins.
    ///
    /// ```
    /// use mandate_core::Invalid;
    /// let refused = Invalid::new("name", "is taken");
    /// assert_eq!(refused.to_string(), "name is taken");
    /// ```
    pub fn new(field: impl Into<Cow<'static, str>>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// Refuses `value` for `field`: says what is `accepted`, and repeats the value, shortened and escaped.
    ///
    /// ```
    /// use mandate_core::Invalid;
    /// let refused = Invalid::value("limit", "must be a number from 1 to 200", "a\nb");
    /// assert_eq!(refused.to_string(), "limit must be a number from 1 to 200; got `a\\nb`");
    /// ```
    pub fn value(field: impl Into<Cow<'static, str>>, accepted: &str, value: &str) -> Self {
        Self::new(field, format!("{accepted}; got `{}`", echo(value)))
    }

    /// The same refusal for another field.
    ///
    /// ```
    /// use mandate_core::{Day, Invalid};
    /// let refused: Invalid = Day::parse("soon").map_err(|e| e.at("expires")).unwrap_err();
    /// assert_eq!(refused.field(), "expires");
    /// ```
    #[must_use]
    pub fn at(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.field = field.into();
        self
    }

    /// The path of the field, for example `limits.currency` or `categories[2]`; `body` for the whole
    /// document.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.problem)
    }
}

impl std::error::Error for Invalid {}

/// `value` made safe to repeat in a message: what looks like an API key is masked, control characters are escaped, and a
/// long value is cut.
pub(crate) fn echo(value: &str) -> String {
    let value = masked(value);
    let mut shown: String = value.chars().take(ECHO_CHARS).flat_map(char::escape_debug).collect();
    if value.chars().nth(ECHO_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
