//! The eight verdicts, and sets of denials.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::error::Invalid;

/// The service's answer to a request to spend.
///
/// ```
/// use mandate_core::Verdict;
/// assert_eq!(Verdict::parse("deny_limit")?, Verdict::DenyLimit);
/// assert_eq!(Verdict::ALL.into_iter().filter(|verdict| verdict.is_denial()).count(), 6);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Within all limits.
    Allow,
    /// Within the limits, above the mandate's review threshold: waits for a person.
    Review,
    /// The agent has no mandate.
    DenyNoMandate,
    /// The governing mandate was revoked.
    DenyRevoked,
    /// The governing mandate is past its last day.
    DenyExpired,
    /// The currency is another, or the amount exceeds the mandate's limit for a transaction or a month.
    DenyLimit,
    /// The category is not among the mandate's.
    DenyCategory,
    /// The agent made more than 10 requests in 60 seconds.
    DenyVelocity,
}

impl Verdict {
    /// All verdicts. The denials are in the order of evaluation.
    pub const ALL: [Self; 8] = [
        Self::Allow,
        Self::Review,
        Self::DenyNoMandate,
        Self::DenyRevoked,
        Self::DenyExpired,
        Self::DenyLimit,
        Self::DenyCategory,
        Self::DenyVelocity,
    ];

    /// The code in claims and bodies.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Review => "review",
            Self::DenyNoMandate => "deny_no_mandate",
            Self::DenyRevoked => "deny_revoked",
            Self::DenyExpired => "deny_expired",
            Self::DenyLimit => "deny_limit",
            Self::DenyCategory => "deny_category",
            Self::DenyVelocity => "deny_velocity",
        }
    }

    /// Reads a code.
    ///
    /// ```
    /// use mandate_core::Verdict;
    /// assert_eq!(Verdict::parse("allow")?, Verdict::Allow);
    /// assert!(Verdict::parse("ALLOW").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The text is not one of the eight codes.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::ALL.into_iter().find(|v| v.as_str() == text).ok_or_else(|| {
            let wanted = "must be allow, review, deny_no_mandate, deny_revoked, deny_expired, deny_limit, \
                          deny_category or deny_velocity";
            Invalid::value("verdict", wanted, text)
        })
    }

    /// Whether this is one of the six denials.
    ///
    /// ```
    /// use mandate_core::Verdict;
    /// assert!(Verdict::DenyVelocity.is_denial());
    /// assert!(!Verdict::Review.is_denial());
    /// ```
    #[must_use]
    pub fn is_denial(self) -> bool {
        !matches!(self, Self::Allow | Self::Review)
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Allow | Self::Review => 0,
            Self::DenyNoMandate => 1,
            Self::DenyRevoked => 2,
            Self::DenyExpired => 4,
            Self::DenyLimit => 8,
            Self::DenyCategory => 16,
            Self::DenyVelocity => 32,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The set of denials that held for one request, in the order of evaluation.
///
/// ```
/// use mandate_core::{Denials, Verdict};
/// let mut denials = Denials::default();
/// denials.add(Verdict::DenyVelocity);
/// denials.add(Verdict::DenyLimit);
/// assert_eq!(denials.first(), Some(Verdict::DenyLimit));
/// assert_eq!(denials.to_string(), "deny_limit deny_velocity");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Denials(u8);

impl Denials {
    /// Adds a denial. `allow` and `review` are not denials and change nothing.
    ///
    /// ```
    /// use mandate_core::{Denials, Verdict};
    /// let mut denials = Denials::default();
    /// denials.add(Verdict::Review);
    /// assert!(denials.is_empty());
    /// ```
    pub fn add(&mut self, verdict: Verdict) {
        self.0 |= verdict.bit();
    }

    /// The denials, in the order of evaluation.
    ///
    /// ```
    /// use mandate_core::{Denials, Verdict};
    /// let denials = Denials::parse("deny_velocity deny_expired")?;
    /// assert!(denials.iter().eq([Verdict::DenyExpired, Verdict::DenyVelocity]));
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    pub fn iter(self) -> impl Iterator<Item = Verdict> {
        Verdict::ALL.into_iter().filter(move |v| self.0 & v.bit() != 0)
    }

    /// The denial that gives the verdict, if there is one.
    ///
    /// ```
    /// use mandate_core::{Denials, Verdict};
    /// assert_eq!(Denials::parse("deny_velocity deny_limit")?.first(), Some(Verdict::DenyLimit));
    /// assert_eq!(Denials::default().first(), None);
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    #[must_use]
    pub fn first(self) -> Option<Verdict> {
        self.iter().next()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Reads codes separated by single spaces, as [`Denials`] is displayed. The empty text is the empty set.
    ///
    /// ```
    /// use mandate_core::Denials;
    /// assert_eq!(Denials::parse("deny_limit deny_category")?.to_string(), "deny_limit deny_category");
    /// assert!(Denials::parse("")?.is_empty());
    /// assert!(Denials::parse("allow").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// A word is not the code of a denial.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let mut denials = Self::default();
        for word in text.split(' ').filter(|w| !w.is_empty()) {
            let verdict = Verdict::parse(word)?;
            if !verdict.is_denial() {
                return Err(Invalid::value("denials", "must hold codes of denials only", word));
            }
            denials.add(verdict);
        }
        Ok(denials)
    }
}

impl fmt::Display for Denials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, verdict) in self.iter().enumerate() {
            let gap = if place == 0 { "" } else { " " };
            write!(f, "{gap}{verdict}")?;
        }
        Ok(())
    }
}

impl Serialize for Denials {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_sets_come_back() {
        for verdict in Verdict::ALL {
            assert_eq!(Verdict::parse(verdict.as_str()).unwrap(), verdict);
        }
        assert!(Verdict::parse("ALLOW").is_err());
        for bits in 0..64 {
            let denials = Denials(bits);
            assert_eq!(Denials::parse(&denials.to_string()).unwrap(), denials);
        }
        assert!(Denials::parse("allow").is_err());
    }
}
