//! Whose key an operation takes.

use mandate_core::api_key::KeyClass;

/// Whose key an operation takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// An organization's.
    Organization,
    /// An agent's.
    Agent,
    /// Either; an agent's key reaches only the agent's own objects.
    Any,
}

impl Key {
    /// Whether a key of `class` is accepted.
    #[must_use]
    pub fn accepts(self, class: KeyClass) -> bool {
        match self {
            Self::Organization => class == KeyClass::Organization,
            Self::Agent => class == KeyClass::Agent,
            Self::Any => true,
        }
    }
}
