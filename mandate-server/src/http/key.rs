//! Which class of key an operation accepts.

use mandate_core::api_key::KeyClass;

/// Which class of key an operation accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// An organization key.
    Organization,
    /// An agent key.
    Agent,
    /// Either. An agent key reaches only the agent's own objects.
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
