//! The state machine of an escrow: money locked for a deal until it is released to the seller or refunded to the buyer.
//!
//! A state that moves funds is entered when they have moved, not when that was asked for.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::error::Invalid;

/// The state of an escrow.
///
/// ```
/// use mandate_core::EscrowState;
/// let state = EscrowState::Funded.transition(EscrowState::Delivered)?.transition(EscrowState::Released)?;
/// assert_eq!(state.as_str(), "released");
/// assert!(state.next().is_empty());
/// # Ok::<(), mandate_core::NoTransition>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EscrowState {
    /// The buyer's funds are to be locked; the provider of settlement has not answered.
    Opening,
    /// The buyer's funds are locked in the contract.
    Funded,
    /// The condition was attested.
    Delivered,
    /// Funds moved to the seller. Final.
    Released,
    /// Funds returned to the buyer. Final.
    Refunded,
    /// A party disputed the deal.
    Disputed,
    /// The buyer's funds were not locked: the provider of settlement has refused. Final.
    Failed,
}

/// A transition that the escrow's state does not allow.
///
/// ```
/// use mandate_core::{EscrowState, NoTransition};
/// let NoTransition { from, to } = EscrowState::Refunded.transition(EscrowState::Funded).unwrap_err();
/// assert_eq!((from, to), (EscrowState::Refunded, EscrowState::Funded));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an escrow that is {from} cannot become {to}; {}", Next(*from))]
pub struct NoTransition {
    /// The current state.
    pub from: EscrowState,
    /// The requested state.
    pub to: EscrowState,
}

/// The states that may follow, in words.
struct Next(EscrowState);

impl EscrowState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Opening,
        Self::Funded,
        Self::Delivered,
        Self::Released,
        Self::Refunded,
        Self::Disputed,
        Self::Failed,
    ];

    /// The states that may follow; none after a final one. Those after [`EscrowState::Opening`] follow from
    /// the provider's answer, and cannot be asked for.
    ///
    /// ```
    /// use mandate_core::EscrowState;
    /// assert_eq!(EscrowState::Disputed.next(), [EscrowState::Released, EscrowState::Refunded]);
    /// ```
    #[must_use]
    pub const fn next(self) -> &'static [Self] {
        match self {
            Self::Opening => &[Self::Funded, Self::Failed],
            Self::Funded => &[Self::Delivered, Self::Refunded, Self::Disputed],
            Self::Delivered => &[Self::Released, Self::Disputed],
            Self::Disputed => &[Self::Released, Self::Refunded],
            Self::Released | Self::Refunded | Self::Failed => &[],
        }
    }

    /// The transition to `to`.
    ///
    /// ```
    /// use mandate_core::EscrowState;
    /// assert!(EscrowState::Funded.transition(EscrowState::Delivered).is_ok());
    /// let refused = EscrowState::Funded.transition(EscrowState::Released).unwrap_err();
    /// assert_eq!(
    ///     refused.to_string(),
    ///     "an escrow that is funded cannot become released; it can become delivered, refunded or disputed"
    /// );
    /// ```
    ///
    /// # Errors
    /// `to` is not one of [`EscrowState::next`].
    pub fn transition(self, to: Self) -> Result<Self, NoTransition> {
        if self.next().contains(&to) { Ok(to) } else { Err(NoTransition { from: self, to }) }
    }

    /// The word in bodies and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Funded => "funded",
            Self::Delivered => "delivered",
            Self::Released => "released",
            Self::Refunded => "refunded",
            Self::Disputed => "disputed",
            Self::Failed => "failed",
        }
    }

    /// Reads the word.
    ///
    /// ```
    /// use mandate_core::EscrowState;
    /// assert_eq!(EscrowState::parse("disputed")?, EscrowState::Disputed);
    /// assert!(EscrowState::parse("open").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The text is not one of the seven states.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let wanted = "must be opening, funded, delivered, released, refunded, disputed or failed";
        Self::ALL
            .into_iter()
            .find(|s| s.as_str() == text)
            .ok_or_else(|| Invalid::value("state", wanted, text))
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.next() {
            [] => f.write_str("that state is final"),
            [only] => write!(f, "it can become {only}"),
            [first, last] => write!(f, "it can become {first} or {last}"),
            [first, between @ .., last] => {
                write!(f, "it can become {first}")?;
                between.iter().try_for_each(|state| write!(f, ", {state}"))?;
                write!(f, " or {last}")
            }
        }
    }
}

impl fmt::Display for EscrowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for EscrowState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_states() {
        let allowed = [
            "opening funded",
            "opening failed",
            "funded delivered",
            "funded refunded",
            "funded disputed",
            "delivered released",
            "delivered disputed",
            "disputed released",
            "disputed refunded",
        ];
        for from in EscrowState::ALL {
            assert_eq!(EscrowState::parse(from.as_str()).unwrap(), from);
            for to in EscrowState::ALL {
                let wanted = allowed.contains(&format!("{from} {to}").as_str());
                assert_eq!(from.transition(to).is_ok(), wanted, "{from} {to}");
            }
        }
        assert_eq!(
            EscrowState::Released.transition(EscrowState::Funded).unwrap_err().to_string(),
            "an escrow that is released cannot become funded; that state is final"
        );
    }
}
