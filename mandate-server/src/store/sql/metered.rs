//! The metering in an agent's row, on PostgreSQL. It is newer than the agent's row of `usage`.
//!
//! A decision reads and writes its agent's row. With the metering in it, nothing else changes besides the log. The
//! row has room for one month and currency. Metering in other currencies is written to `usage` at once.

use std::fmt;

use mandate_core::{Currency, Month, Total};

use super::usage;
use crate::error::Fault;
use crate::model::records::{AgentKey, UsageKey, UsageRecord};
use crate::store::tx::Tx;

const PUT_BACK: &str = "/* metered.put_back */
    UPDATE agents SET metered = '' WHERE environment = $1 AND agent = $2 AND metered <> ''";

/// The metering in an agent's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metered {
    /// The month.
    pub month: Month,
    /// The currency.
    pub currency: Currency,
    /// The counters. Their row of `usage` has not been read.
    pub usage: UsageRecord,
}

impl Metered {
    /// Parses the text of an agent's row. None if it is empty.
    pub fn read(text: &str) -> Result<Option<Self>, Fault> {
        let mut words = text.split(' ');
        let mut next = || words.next().filter(|word| !word.is_empty());
        let Some(month) = next() else { return Ok(None) };
        let lost = || Fault::corrupt("database: an agent's metering is cut short");
        let (month, currency) = (Month::parse(month)?, Currency::parse(next().ok_or_else(lost)?)?);
        let spent = Total::parse(next().ok_or_else(lost)?)?;
        let mut count = || next().and_then(|word| word.parse::<i64>().ok()).ok_or_else(lost);
        let requests = count()?;
        let mut verdicts = [0; 8];
        for verdict in &mut verdicts {
            *verdict = count()?;
        }
        if words.next().is_some() {
            return Err(Fault::corrupt("database: an agent's metering is too long"));
        }
        Ok(Some(Self { month, currency, usage: UsageRecord { spent, requests, verdicts, stored: None } }))
    }

    /// Whether it is the metering of this month and currency.
    #[must_use]
    pub fn is_of(&self, month: Month, currency: &Currency) -> bool {
        self.month == month && self.currency == *currency
    }

    /// The key of the row of `usage` that it supersedes.
    #[must_use]
    pub fn key(&self, agent: &AgentKey) -> UsageKey {
        UsageKey { agent: agent.clone(), month: self.month, currency: self.currency.clone() }
    }
}

/// The text in an agent's row.
impl fmt::Display for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UsageRecord { spent, requests, verdicts, .. } = &self.usage;
        write!(f, "{} {} {spent} {requests}", self.month, self.currency)?;
        verdicts.iter().try_for_each(|count| write!(f, " {count}"))
    }
}

/// Puts the metering of an agent's row back into `usage`. The agent is locked.
pub fn put_back(tx: &mut Tx<'_>, agent: &AgentKey, text: &str) -> Result<(), Fault> {
    let Some(metered) = Metered::read(text)? else { return Ok(()) };
    tx.execute_one(PUT_BACK, &[agent.environment.into(), agent.agent.as_str().into()])?;
    usage::put_back(tx, &metered.key(agent), &metered.usage)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use mandate_core::{Amount, Verdict};

    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        let mut usage = UsageRecord { requests: 3, ..UsageRecord::default() };
        usage.add(Verdict::Allow, Amount::parse("40.5").unwrap());
        usage.add(Verdict::DenyVelocity, Amount::parse("7").unwrap());
        let (month, currency) = (Month::parse("2026-06").unwrap(), Currency::parse("USD").unwrap());
        let metered = Metered { month, currency, usage };
        assert_eq!(metered.to_string(), "2026-06 USD 40.5 3 1 0 0 0 0 0 0 1");
        assert_eq!(Metered::read(&metered.to_string()).unwrap().unwrap(), metered);
        assert_eq!(Metered::read("").unwrap(), None);
    }

    #[test]
    fn what_is_not_whole_is_no_metering() {
        let whole = "2026-06 USD 40.5 3 1 0 0 0 0 0 0 1";
        for cut in 1..whole.len() {
            assert!(Metered::read(&whole[..cut]).is_err() || cut == whole.len(), "{}", &whole[..cut]);
        }
        for other in ["2026-06 USD 40.5 3 1 0 0 0 0 0 0 1 0", "2026-06 USD x 3 1 0 0 0 0 0 0 1", " "] {
            assert!(Metered::read(other).map_or(true, |read| other == " " && read.is_none()), "{other}");
        }
    }
}
