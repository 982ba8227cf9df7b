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

/// What a counterparty is about to settle, and when.
///
/// It is strict: [`Expected::new`] refuses sandbox keys, and a verdict is refused (`not_compared`) unless `amount`,
/// `currency` and `recipient` are all expected. `environment` and `signature_only` say otherwise.
///
/// ```
/// use mandate_core::verify::{Expected, Leeway};
/// use mandate_core::{Amount, Currency, EnvironmentKind, Recipient, Timestamp};
/// let expected = Expected {
///     leeway: Leeway::from_seconds(5)?,
///     amount: Some(Amount::parse("40.50")?),
///     currency: Some(Currency::parse("USD")?),
///     recipient: Some(Recipient::parse("vendor:acme")?),
///     ..Expected::new("https://verdicts.example", Timestamp::from_seconds(1_772_366_400))
/// };
/// assert_eq!(expected.environment, Some(EnvironmentKind::Production));
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
    /// The kind of environment: by default [`EnvironmentKind::Production`], since the key set also publishes the keys
    /// of the sandbox, in which anyone can be allowed anything. With `None` the keys of both kinds are accepted.
    pub environment: Option<EnvironmentKind>,
    /// Whether a verdict is accepted although its amount, currency or recipient is not compared: for reading it, never
    /// for delivering on it. [`VerifiedVerdict::not_compared`](super::VerifiedVerdict::not_compared) names them.
    pub signature_only: bool,
    /// The amount, compared by value.
    pub amount: Option<Amount>,
    /// The currency.
    pub currency: Option<Currency>,
    /// The payee.
    pub recipient: Option<Recipient>,
    /// The mandate under which the agent spends. With `None` any mandate is accepted.
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
    /// Expects a token of `issuer` for real money that is valid at `now`, without leeway. What a verdict is to settle
    /// is for the caller to add.
    ///
    /// ```
    /// use mandate_core::{EnvironmentKind, Timestamp, verify::Expected};
    /// let expected = Expected::new("https://verdicts.example", Timestamp::from_seconds(1_772_366_400));
    /// assert_eq!(expected.leeway.seconds(), 0);
    /// assert_eq!(expected.environment, Some(EnvironmentKind::Production));
    /// assert!(!expected.signature_only);
    /// ```
    #[must_use]
    pub fn new(issuer: &'a str, now: Timestamp) -> Self {
        Self {
            issuer,
            now,
            leeway: Leeway::default(),
            environment: Some(EnvironmentKind::Production),
            signature_only: false,
            amount: None,
            currency: None,
            recipient: None,
            mandate: None,
        }
    }

    /// What a settlement needs and is not expected.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let needed = [
            ("amount", self.amount.is_some()),
            ("currency", self.currency.is_some()),
            ("recipient", self.recipient.is_some()),
        ];
        needed.into_iter().filter(|(_, is_expected)| !is_expected).map(|(name, _)| name).collect()
    }
}
