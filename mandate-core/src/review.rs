//! The state machine of a review: pending until a resolution wins or the review expires.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::error::Invalid;
use crate::time::Timestamp;

/// The status of a review.
///
/// ```
/// use mandate_core::{Resolution, ReviewStatus, Timestamp};
/// let (ends, now) = (Timestamp::from_seconds(86_400), Timestamp::from_seconds(60));
/// let status = ReviewStatus::Pending.at(ends, now).resolve(Resolution::Approve)?;
/// assert_eq!(status.as_str(), "approved");
/// # Ok::<(), mandate_core::AlreadyResolved>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReviewStatus {
    /// A person has not answered yet.
    Pending,
    /// Approved: the request was evaluated again, and a fresh decision made.
    Approved,
    /// Denied.
    Denied,
    /// No answer came in time.
    Expired,
}

/// A person's answer.
///
/// ```
/// use mandate_core::{Resolution, ReviewStatus};
/// assert_eq!(ReviewStatus::Pending.resolve(Resolution::Approve)?, ReviewStatus::Approved);
/// # Ok::<(), mandate_core::AlreadyResolved>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// Evaluate the request again, without the threshold.
    Approve,
    /// Refuse the request.
    Deny,
}

/// The review is already resolved, with this status.
///
/// ```
/// use mandate_core::{AlreadyResolved, ReviewStatus};
/// let refused = AlreadyResolved(ReviewStatus::Expired);
/// assert_eq!(refused.to_string(), "the review is expired; only a pending review can be resolved");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the review is {0}; only a pending review can be resolved")]
pub struct AlreadyResolved(pub ReviewStatus);

impl ReviewStatus {
    /// All statuses.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Approved, Self::Denied, Self::Expired];

    /// The status at `now` of a review that is recorded as `self` and ends at `expires_at`. A pending review
    /// whose time has passed is expired, whether or not that was recorded.
    ///
    /// ```
    /// use mandate_core::{ReviewStatus, Timestamp};
    /// let ends = Timestamp::from_seconds(100);
    /// assert_eq!(ReviewStatus::Pending.at(ends, Timestamp::from_seconds(99)), ReviewStatus::Pending);
    /// assert_eq!(ReviewStatus::Pending.at(ends, ends), ReviewStatus::Expired);
    /// assert_eq!(ReviewStatus::Denied.at(ends, ends), ReviewStatus::Denied);
    /// ```
    #[must_use]
    pub fn at(self, expires_at: Timestamp, now: Timestamp) -> Self {
        if self == Self::Pending && now >= expires_at { Self::Expired } else { self }
    }

    /// The status after `resolution`.
    ///
    /// ```
    /// use mandate_core::{AlreadyResolved, Resolution, ReviewStatus};
    /// assert_eq!(ReviewStatus::Pending.resolve(Resolution::Deny), Ok(ReviewStatus::Denied));
    /// let refused = ReviewStatus::Denied.resolve(Resolution::Approve);
    /// assert_eq!(refused, Err(AlreadyResolved(ReviewStatus::Denied)));
    /// ```
    ///
    /// # Errors
    /// The review is not pending.
    pub fn resolve(self, resolution: Resolution) -> Result<Self, AlreadyResolved> {
        match (self, resolution) {
            (Self::Pending, Resolution::Approve) => Ok(Self::Approved),
            (Self::Pending, Resolution::Deny) => Ok(Self::Denied),
            (resolved, _) => Err(AlreadyResolved(resolved)),
        }
    }

    /// The word in bodies.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
        }
    }

    /// Reads the word.
    ///
    /// ```
    /// use mandate_core::ReviewStatus;
    /// assert_eq!(ReviewStatus::parse("pending")?, ReviewStatus::Pending);
    /// assert!(ReviewStatus::parse("open").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The text is not one of the four statuses.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let wanted = "must be pending, approved, denied or expired";
        Self::ALL
            .into_iter()
            .find(|s| s.as_str() == text)
            .ok_or_else(|| Invalid::value("review", wanted, text))
    }
}

impl fmt::Display for ReviewStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ReviewStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pending_review_is_resolved() {
        for status in ReviewStatus::ALL {
            assert_eq!(ReviewStatus::parse(status.as_str()).unwrap(), status);
            for (resolution, resolved) in
                [(Resolution::Approve, ReviewStatus::Approved), (Resolution::Deny, ReviewStatus::Denied)]
            {
                let wanted =
                    if status == ReviewStatus::Pending { Ok(resolved) } else { Err(AlreadyResolved(status)) };
                assert_eq!(status.resolve(resolution), wanted);
            }
        }
        assert_eq!(
            AlreadyResolved(ReviewStatus::Denied).to_string(),
            "the review is denied; only a pending review can be resolved"
        );
    }
}
