//! What is asked: requests that the mandate allows, wants reviewed, or denies, in stated shares.

/// The mandate that every agent gets, but for the agent's id.
pub(crate) fn mandate(agent: &str) -> String {
    include_str!("../mandate.json").replace("AGENT", agent)
}

/// How much is asked for where the mandate allows it.
pub(crate) const ALLOWED: &str = "40";
/// In what every mandate is.
pub(crate) const CURRENCY: &str = "USD";

/// One kind of request, named by the verdict that it gets while its agent is not too fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Allow,
    Review,
    Limit,
    Category,
}

impl Asked {
    const ALL: [Self; 4] = [Self::Allow, Self::Review, Self::Limit, Self::Category];

    pub(crate) fn verdict(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Review => "review",
            Self::Limit => "deny_limit",
            Self::Category => "deny_category",
        }
    }

    pub(crate) fn body(self, recipient: &str) -> String {
        let (amount, category) = match self {
            Self::Allow => (ALLOWED, "software"),
            Self::Review => ("300.5", "software"),
            Self::Limit => ("900", "software"),
            Self::Category => (ALLOWED, "travel"),
        };
        format!(
            r#"{{"amount":{amount},"currency":"{CURRENCY}","recipient":"{recipient}","category":"{category}"}}"#
        )
    }

    /// Whether the request may be answered so: as asked, or with the velocity rule where nothing before it denies.
    pub(crate) fn accepts(self, verdict: &str) -> bool {
        verdict == self.verdict()
            || (matches!(self, Self::Allow | Self::Review) && verdict == "deny_velocity")
    }
}

/// The kinds in their shares, one element a share, spread evenly.
#[derive(Debug, Clone)]
pub(crate) struct Mix(Vec<Asked>);

/// The most shares there can be.
const MAX_SHARES: usize = 1_000;

impl Mix {
    /// Reads `allow=85,deny_limit=15`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut shares = Vec::new();
        for part in text.split(',') {
            let kind = part.split_once('=').and_then(|(name, share)| {
                let asked = Asked::ALL.into_iter().find(|asked| asked.verdict() == name)?;
                Some((asked, share.parse::<usize>().ok()?))
            });
            let (asked, share) = kind.ok_or_else(|| {
                format!("must be shares of allow, review, deny_limit and deny_category, such as allow=9,review=1; got `{part}`")
            })?;
            shares.extend(std::iter::repeat_n((asked, share), share.min(MAX_SHARES + 1)).enumerate());
        }
        if !(1..=MAX_SHARES).contains(&shares.len()) {
            return Err(format!("must have 1 to {MAX_SHARES} shares in all; got {}", shares.len()));
        }
        // The n-th of m equal shares comes n / m of the way through.
        shares.sort_by_key(|(place, (_, share))| place * MAX_SHARES / share);
        Ok(Self(shares.into_iter().map(|(_, (asked, _))| asked).collect()))
    }

    /// What the n-th request asks.
    pub(crate) fn nth(&self, n: usize) -> Asked {
        self.0.get(n % self.0.len()).copied().unwrap_or(Asked::Allow)
    }
}
