//! The two kinds of environment: where nothing is real, and where it is.

use std::fmt;

/// Whether an environment is for trying things out or for real money. Keys of one kind never act on the other.
///
/// ```
/// use mandate_core::EnvironmentKind;
/// assert_eq!(EnvironmentKind::Production.to_string(), "production");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EnvironmentKind {
    /// For trying things out. Its API keys say `sandbox`, and so do the names of its signing keys.
    Sandbox,
    /// For real money. Its API keys say `live`.
    Production,
}

impl EnvironmentKind {
    /// Both, sandbox first.
    pub const ALL: [Self; 2] = [Self::Sandbox, Self::Production];

    /// `sandbox` or `production`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Production => "production",
        }
    }

    /// The kind that [`EnvironmentKind::as_str`] calls `text`.
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
