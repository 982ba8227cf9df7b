//! The two kinds of environment: for trials, and for real money.

use std::fmt;

/// Whether an environment is for trials or for real money. Keys of one kind never work in the other.
///
/// ```
/// use mandate_core::EnvironmentKind;
/// assert_eq!(EnvironmentKind::Production.to_string(), "production");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EnvironmentKind {
    /// For trials. Its API keys contain `sandbox`, and so do the names of its signing keys.
    Sandbox,
    /// For real money. Its API keys contain `live`.
    Production,
}

impl EnvironmentKind {
    /// Both kinds, sandbox first.
    pub const ALL: [Self; 2] = [Self::Sandbox, Self::Production];

    /// `sandbox` or `production`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Production => "production",
        }
    }

    /// The kind whose [`EnvironmentKind::as_str`] is `text`, if there is one.
    ///
    /// ```
    /// use mandate_core::EnvironmentKind;
    /// assert_eq!(EnvironmentKind::parse("sandbox"), Some(EnvironmentKind::Sandbox));
    /// assert_eq!(EnvironmentKind::parse("Sandbox"), None);
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Whether this is the sandbox.
    #[must_use]
    pub const fn is_sandbox(self) -> bool {
        matches!(self, Self::Sandbox)
    }
}

impl fmt::Display for EnvironmentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
