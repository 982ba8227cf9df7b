//! What a counterparty expects of a token.

use crate::amount::Amount;
use crate::environment::EnvironmentKind;
use crate::error::Invalid;
use crate::id::MandateId;
use crate::name::{Currency, Recipient};
use crate::time::Timestamp;

/// The largest leeway, in seconds.
pub const MAX_LEEWAY_SECONDS: i64 = 30;

/// How far the caller's and the issuer's clocks may differ: by default 0 seconds.
///
/// ```
/// use mandate_core::verify::Leeway;
/// assert_eq!(Leeway::default().seconds(), 0);
/// assert!(Leeway::from_seconds(5)? > Leeway::default());
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Leeway(i64);

/// What a counterparty is about to settle, and when. A field that is `None` is not checked.
///
/// ```
/// use mandate_core::verify::{Expected, Leeway};
/// use mandate_core::{Amount, Currency, EnvironmentKind, Timestamp};
/// let expected = Expected {
///     leeway: Leeway::from_seconds(5)?,
///     environment: Some(EnvironmentKind::Production),
///     amount: Some(Amount::parse("40.50")?),
///     currency: Some(Currency::parse("USD")?),
///     ..Expected::new("https://verdicts.example", Timestamp::from_seconds(1_772_366_400))
/// };
/// assert!(expected.recipient.is_none(), "any recipient is accepted");
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone)]
pub struct Expected<'a> {
    /// The issuer's address, `{verdicts_url}`, compared character for character.
    pub issuer: &'a str,
    /// The current time.
    pub now: Timestamp,
    /// How far the two clocks may differ.
    pub leeway: Leeway,
    /// The kind of environment. A caller that moves real money must expect [`EnvironmentKind::Production`]:
    /// the key set also publishes the keys of the sandbox, in which anyone can be allowed anything.
    pub environment: Option<EnvironmentKind>,
    /// The amount, compared by value.
    pub amount: Option<Amount>,
    /// The currency. An amount should always be checked together with it.
    pub currency: Option<Currency>,
    /// The payee.
    pub recipient: Option<Recipient>,
    /// The mandate under which the agent spends.
    pub mandate: Option<MandateId>,
}

impl Leeway {
    /// A leeway of 0 to [`MAX_LEEWAY_SECONDS`].
    ///
    /// ```
    /// use mandate_core::verify::Leeway;
    /// assert_eq!(Leeway::from_seconds(30)?.seconds(), 30);
    /// let refused = Leeway::from_seconds(31).unwrap_err();
    /// assert_eq!(refused.to_string(), "leeway must be from 0 to 30 seconds; got `31`");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// It is negative, or greater than [`MAX_LEEWAY_SECONDS`].
    pub fn from_seconds(seconds: i64) -> Result<Self, Invalid> {
        if (0..=MAX_LEEWAY_SECONDS).contains(&seconds) {
            return Ok(Self(seconds));
        }
        let accepted = format!("must be from 0 to {MAX_LEEWAY_SECONDS} seconds");
        Err(Invalid::value("leeway", &accepted, &seconds.to_string()))
    }

    /// The seconds.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0
    }
}

impl<'a> Expected<'a> {
    /// Expects a token of `issuer` that is valid at `now`, without leeway, for any request.
    ///
    /// ```
    /// use mandate_core::{Timestamp, verify::Expected};
    /// let expected = Expected::new("https://verdicts.example", Timestamp::from_seconds(1_772_366_400));
    /// assert_eq!(expected.leeway.seconds(), 0);
    /// assert!(expected.amount.is_none());
    /// ```
    #[must_use]
    pub fn new(issuer: &'a str, now: Timestamp) -> Self {
        Self {
            issuer,
            now,
            leeway: Leeway::default(),
            environment: None,
            amount: None,
            currency: None,
            recipient: None,
            mandate: None,
        }
    }
}
