//! The types of events, as webhooks receive them.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::error::Invalid;
use crate::escrow::EscrowState;

/// What an event reports: a state that has already changed.
///
/// ```
/// use mandate_core::{EscrowState, EventKind};
/// assert_eq!(EventKind::MandateRevoked.as_str(), "mandate.revoked");
/// assert_eq!(EventKind::of_escrow(EscrowState::Released), Some(EventKind::EscrowReleased));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// A request needs a review, which waits for a person.
    DecisionReviewPending,
    /// A review was approved or denied, or has expired.
    DecisionResolved,
    /// A mandate was revoked.
    MandateRevoked,
    /// A mandate has seven days left.
    MandateExpiring,
    /// The buyer's funds are locked in the contract.
    EscrowFunded,
    /// The condition was attested.
    EscrowDelivered,
    /// Funds moved to the seller.
    EscrowReleased,
    /// Funds returned to the buyer.
    EscrowRefunded,
    /// A party disputed the deal.
    EscrowDisputed,
    /// The provider of settlement has refused to move an escrow's funds.
    EscrowSettlementRefused,
    /// A ping of the webhook was requested.
    Ping,
}

impl EventKind {
    /// All types.
    pub const ALL: [Self; 11] = [
        Self::DecisionReviewPending,
        Self::DecisionResolved,
        Self::MandateRevoked,
        Self::MandateExpiring,
        Self::EscrowFunded,
        Self::EscrowDelivered,
        Self::EscrowReleased,
        Self::EscrowRefunded,
        Self::EscrowDisputed,
        Self::EscrowSettlementRefused,
        Self::Ping,
    ];

    /// The word in claims and bodies, under `type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DecisionReviewPending => "decision.review_pending",
            Self::DecisionResolved => "decision.resolved",
            Self::MandateRevoked => "mandate.revoked",
            Self::MandateExpiring => "mandate.expiring",
            Self::EscrowFunded => "escrow.funded",
            Self::EscrowDelivered => "escrow.delivered",
            Self::EscrowReleased => "escrow.released",
            Self::EscrowRefunded => "escrow.refunded",
            Self::EscrowDisputed => "escrow.disputed",
            Self::EscrowSettlementRefused => "escrow.settlement_refused",
            Self::Ping => "ping",
        }
    }

    /// Reads the word.
    ///
    /// ```
    /// use mandate_core::EventKind;
    /// assert_eq!(EventKind::parse("mandate.revoked")?, EventKind::MandateRevoked);
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The text is not one of the eleven types.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let wanted = "must be decision.review_pending, decision.resolved, mandate.revoked, mandate.expiring, \
                          escrow.funded, escrow.delivered, escrow.released, escrow.refunded, escrow.disputed, \
                          escrow.settlement_refused or ping";
            Invalid::value("type", wanted, text)
        })
    }

    /// The event of an escrow that has entered `state`. None while it is being opened, and where it failed: the refusal has
    /// an event of its own.
    ///
    /// ```
    /// use mandate_core::{EscrowState, EventKind};
    /// assert_eq!(EventKind::of_escrow(EscrowState::Funded), Some(EventKind::EscrowFunded));
    /// assert_eq!(EventKind::of_escrow(EscrowState::Opening), None);
    /// ```
    #[must_use]
    pub const fn of_escrow(state: EscrowState) -> Option<Self> {
        match state {
            EscrowState::Opening | EscrowState::Failed => None,
            EscrowState::Funded => Some(Self::EscrowFunded),
            EscrowState::Delivered => Some(Self::EscrowDelivered),
            EscrowState::Released => Some(Self::EscrowReleased),
            EscrowState::Refunded => Some(Self::EscrowRefunded),
            EscrowState::Disputed => Some(Self::EscrowDisputed),
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_one_word() {
        for (place, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(EventKind::parse(kind.as_str()).unwrap(), kind);
            assert_eq!(EventKind::ALL.iter().position(|other| other.as_str() == kind.as_str()), Some(place));
            let refused = EventKind::parse(&kind.as_str().to_uppercase()).unwrap_err().to_string();
            assert!(refused.starts_with("type must be ") && refused.contains(kind.as_str()), "{refused}");
        }
        assert!(EventKind::parse("").is_err() && EventKind::parse("mandate.created").is_err());
    }

    #[test]
    fn each_state_of_an_escrow_has_its_event_but_the_two_before_and_without_funds() {
        for state in EscrowState::ALL {
            let event = EventKind::of_escrow(state).map(EventKind::as_str);
            let silent = matches!(state, EscrowState::Opening | EscrowState::Failed);
            assert_eq!(event, (!silent).then(|| format!("escrow.{state}")).as_deref());
        }
    }
}
