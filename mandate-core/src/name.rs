//! Names that organizations choose: agents, principals, recipients, categories, currencies.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::error::Invalid;

fn is_lower_alnum(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Whether `text` is `prefix` and 1 to `most` bytes, the first of which satisfies `first` and the others
/// `rest`.
fn shaped(text: &str, prefix: &str, most: usize, first: fn(u8) -> bool, rest: fn(u8) -> bool) -> bool {
    let Some(name) = text.strip_prefix(prefix) else { return false };
    let mut bytes = name.bytes();
    name.len() <= most && bytes.next().is_some_and(first) && bytes.all(rest)
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $field:literal, $wanted:literal, $shape:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        // Shared: names pass from thread to thread, and are copied more often than read.
        pub struct $name(Arc<str>);

        impl $name {
            /// Reads the text.
            ///
            /// ```
            #[doc = concat!("let refused = mandate_core::", stringify!($name), "::parse(\"é\").unwrap_err();")]
            #[doc = concat!("assert_eq!(refused.to_string(), \"", $field, " ", $wanted, "; got `é`\");")]
            /// ```
            ///
            /// # Errors
            /// The text has another form. The message says which form is accepted.
            pub fn parse(text: &str) -> Result<Self, Invalid> {
                let shape: fn(&str) -> bool = $shape;
                if shape(text) { Ok(Self(text.into())) } else { Err(Invalid::value($field, $wanted, text)) }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    )*};
}

names! {
    /// The name of an agent, unique within one environment of an organization.
    ///
    /// ```
    /// use mandate_core::AgentName;
    /// assert_eq!(AgentName::parse("buyer-7")?.as_str(), "buyer-7");
    /// assert!(AgentName::parse("Buyer 7").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    AgentName, "name", "must match [a-z0-9][a-z0-9_-]{0,63}",
        |t| shaped(t, "", 64, is_lower_alnum, |b| is_lower_alnum(b) || b == b'_' || b == b'-');

    /// The id of an agent: `agt_` and its name.
    ///
    /// ```
    /// use mandate_core::{AgentId, AgentName};
    /// let id = AgentId::of(&AgentName::parse("buyer-7")?);
    /// assert_eq!(id.as_str(), "agt_buyer-7");
    /// assert_eq!(id.name(), "buyer-7");
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    AgentId, "agent", "must be `agt_` and the agent's name, [a-z0-9][a-z0-9_-]{0,63}",
        |t| shaped(t, AgentId::PREFIX, 64, is_lower_alnum, |b| is_lower_alnum(b) || b == b'_' || b == b'-');

    /// The accountable party of a mandate, `role:<role_name>`.
    ///
    /// ```
    /// use mandate_core::Principal;
    /// assert_eq!(Principal::parse("role:head-of-it")?.as_str(), "role:head-of-it");
    /// assert!(Principal::parse("head-of-it").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    Principal, "principal", "must be `role:` and a name that matches [a-z0-9][a-z0-9_.-]{0,63}",
        |t| shaped(t, "role:", 64, is_lower_alnum, |b| is_lower_alnum(b) || matches!(b, b'_' | b'.' | b'-'));

    /// Who is to be paid, `vendor:<name>`.
    ///
    /// ```
    /// use mandate_core::Recipient;
    /// assert_eq!(Recipient::parse("vendor:Acme")?.as_str(), "vendor:Acme");
    /// assert!(Recipient::parse("Acme").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    Recipient, "recipient", "must be `vendor:` and a name that matches [A-Za-z0-9][A-Za-z0-9_.-]{0,127}",
        |t| shaped(t, "vendor:", 128, |b| b.is_ascii_alphanumeric(),
            |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));

    /// What the money is for. A mandate allows categories by exact match.
    ///
    /// ```
    /// use mandate_core::Category;
    /// assert_eq!(Category::parse("cloud.compute")?.as_str(), "cloud.compute");
    /// assert!(Category::parse("Cloud").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    Category, "category", "must match [a-z0-9][a-z0-9_.-]{0,63}",
        |t| shaped(t, "", 64, is_lower_alnum, |b| is_lower_alnum(b) || matches!(b, b'_' | b'.' | b'-'));

    /// A currency: an ISO 4217 code such as `USD`, or a token such as `USDC`.
    ///
    /// ```
    /// use mandate_core::Currency;
    /// assert_eq!(Currency::parse("USDC")?.as_str(), "USDC");
    /// assert!(Currency::parse("usdc").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    Currency, "currency", "must be 3 to 8 characters of A-Z and 0-9, the first a letter",
        |t| t.len() >= 3 && shaped(t, "", 8, |b| b.is_ascii_uppercase(),
            |b| b.is_ascii_uppercase() || b.is_ascii_digit());

    /// The organization's policy set, `pol_<date>.<n>`. Decisions carry it; it does not reveal the rules.
    ///
    /// ```
    /// use mandate_core::PolicyVersion;
    /// assert_eq!(PolicyVersion::parse("pol_2026-03-01.1")?.as_str(), "pol_2026-03-01.1");
    /// assert!(PolicyVersion::parse("2026-03-01").is_err());
    /// # Ok::<(), mandate_core::Invalid>(())
    /// ```
    PolicyVersion, "policy_version", "must be `pol_` and up to 60 characters of 0-9, `-` and `.`",
        |t| shaped(t, "pol_", 60, |b| b.is_ascii_digit(), |b| b.is_ascii_digit() || matches!(b, b'-' | b'.'));
}

impl AgentId {
    /// The prefix of such an id.
    pub const PREFIX: &'static str = "agt_";

    /// The id of the agent with that name.
    #[must_use]
    pub fn of(name: &AgentName) -> Self {
        Self(format!("{}{name}", Self::PREFIX).into())
    }

    /// The agent's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.strip_prefix(Self::PREFIX).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        let long = "a".repeat(64);
        for (ok, text) in [
            (true, "a"),
            (true, "0-_"),
            (true, long.as_str()),
            (false, ""),
            (false, "-a"),
            (false, "A"),
            (false, "a.b"),
            (false, "é"),
            (false, "a\n"),
            (false, &format!("{long}a")),
        ] {
            assert_eq!(AgentName::parse(text).is_ok(), ok, "{text:?}");
            assert_eq!(AgentId::parse(&format!("agt_{text}")).is_ok(), ok, "{text:?}");
        }
        for (ok, text) in [
            (true, "USD"),
            (true, "USDC"),
            (true, "A1234567"),
            (false, "US"),
            (false, "usd"),
            (false, "1AB"),
            (false, "A12345678"),
            (false, "US D"),
        ] {
            assert_eq!(Currency::parse(text).is_ok(), ok, "{text:?}");
        }
        for (ok, text) in [
            (true, "vendor:Acme_1.x-y"),
            (false, "vendor:"),
            (false, "Acme"),
            (false, "vendor:.a"),
            (false, "vendor:a b"),
            (false, "VENDOR:a"),
        ] {
            assert_eq!(Recipient::parse(text).is_ok(), ok, "{text:?}");
        }
        assert!(Principal::parse("role:finance.lead").is_ok() && Principal::parse("finance").is_err());
        assert!(Category::parse("cloud.compute").is_ok() && Category::parse("Cloud").is_err());
        assert!(PolicyVersion::parse("pol_2026-11-21.1").is_ok() && PolicyVersion::parse("pol_x").is_err());
    }

    #[test]
    fn a_refusal_repeats_the_value_and_says_what_is_accepted() {
        assert_eq!(
            Currency::parse("usd").unwrap_err().to_string(),
            "currency must be 3 to 8 characters of A-Z and 0-9, the first a letter; got `usd`"
        );
    }
}
