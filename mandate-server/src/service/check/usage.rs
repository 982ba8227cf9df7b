//! Counts the metering again from the log, one agent at a time.

use mandate_core::{AgentId, Day, Month, Timestamp, Verdict};

use super::account::{Account, Openings};
use super::{Finding, Listener, answers};
use crate::error::Fault;
use crate::model::records::{AgentKey, DecisionRecord, UsageKey, UsageRecord};
use crate::store::sql;
use crate::store::sql::check as rows;
use crate::store::sql::openings::Opening;
use crate::store::tx::Tx;

const TABLE: &str = "usage";
const DECISIONS: &str = "decisions";
const AGENTS: &str = "agents";
const MANDATES: &str = "mandates";
/// How many rows of metering are held in memory at a time.
const PAGE: i64 = 1_024;
/// Longer than every month, and shorter than two, in days.
const INTO_THE_NEXT_MONTH_DAYS: i64 = 32;
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// The counters of the agent whose decisions are being read.
#[derive(Debug, Default)]
pub(super) struct Counters {
    agent: Option<(i64, String)>,
    account: Account,
    /// What closed months have left of the agents that follow.
    openings: Openings,
    /// A decision of this agent could not be read, which is reported. Its metering cannot be compared with the log.
    incomplete: bool,
    /// How many rows of metering were found.
    met: i64,
    /// Whether every agent could be counted.
    skipped: bool,
}

impl Counters {
    /// Counts a decision. At the first one of another agent, the previous agent's metering is compared with the
    /// counters.
    pub(super) fn count(
        &mut self,
        tx: &mut Tx<'_>,
        environment: i64,
        agent: &str,
        decision: Option<&DecisionRecord>,
        listener: &mut dyn Listener,
    ) -> Result<(), Fault> {
        if !self.agent.as_ref().is_some_and(|(e, a)| *e == environment && a == agent) {
            self.begin(tx, environment, agent, listener)?;
        }
        let Some(decision) = decision else {
            self.incomplete = true;
            self.account.chain.break_off();
            return Ok(());
        };
        for (found, expected) in self.account.take(decision) {
            listener.finding(of_decision(environment, agent, decision, found, expected));
        }
        if decision.mandate.is_none()
            && let Some(from) =
                rows::governed_from(tx, environment, agent)?.filter(|from| *from <= decision.sequence)
        {
            let found = format!("sequence {} without a mandate", decision.sequence);
            let expected = format!("the mandate of {agent}, which has had one since sequence {from}");
            listener.finding(of_decision(environment, agent, decision, found, expected));
        }
        Ok(())
    }

    /// Compares the agent before, and those up to this one of which closed months have left nothing but an opening.
    fn begin(
        &mut self,
        tx: &mut Tx<'_>,
        environment: i64,
        agent: &str,
        listener: &mut dyn Listener,
    ) -> Result<(), Fault> {
        self.compare(tx, listener)?;
        while let Some(opening) = self.openings.next(tx, Some((environment, agent)))? {
            let is_its = opening.agent.environment == environment && opening.agent.agent.as_str() == agent;
            self.open(tx, opening)?;
            if is_its {
                return Ok(());
            }
            self.compare(tx, listener)?;
        }
        self.agent = Some((environment, agent.to_owned()));
        Ok(())
    }

    /// Begins with what closed months have left of an agent.
    fn open(&mut self, tx: &mut Tx<'_>, opening: Opening) -> Result<(), Fault> {
        self.agent = Some((opening.agent.environment, opening.agent.agent.as_str().to_owned()));
        self.account = Account::open(tx, opening)?;
        Ok(())
    }

    /// Compares the metering of the agent with the counters.
    fn compare(&mut self, tx: &mut Tx<'_>, listener: &mut dyn Listener) -> Result<(), Fault> {
        let Account { chain, months, .. } = std::mem::take(&mut self.account);
        let incomplete = std::mem::take(&mut self.incomplete);
        self.skipped |= incomplete;
        let Some((environment, agent)) = self.agent.take() else { return Ok(()) };
        // An invalid name belongs to no registered agent, which is reported.
        let Ok(agent) = AgentId::parse(&agent) else { return Ok(()) };
        if incomplete {
            return Ok(());
        }
        let agent = AgentKey { environment, agent };
        if let Some(stored) = sql::agents::last(tx, &agent)?
            && let Some((found, expected)) = chain.end(stored)
        {
            let finding = Finding::row(AGENTS, environment, agent.agent.as_str(), found, expected);
            listener.finding(finding.of(Some(agent.agent.to_string()), Some(stored.0)));
        }
        for beyond in rows::beyond(tx, &agent, chain.last())? {
            listener.finding(of_mandate(&agent, &beyond, chain.last()));
        }
        for ((month, currency), counted) in months {
            let key = UsageKey { agent: agent.clone(), month, currency };
            let stored = match sql::usage::find(tx, &key) {
                Ok(stored) => stored,
                Err(fault) if fault.hides_the_database() || !answers(tx) => return Err(fault),
                Err(fault) => {
                    self.met += 1;
                    listener.finding(finding(&key, fault.to_string(), &shown(&counted)));
                    continue;
                }
            };
            self.met += i64::from(stored.stored.is_some());
            let same = UsageRecord { stored: None, ..stored.clone() } == counted;
            if !same {
                listener.finding(finding(&key, shown(&stored), &shown(&counted)));
            }
        }
        Ok(())
    }

    /// After the last decision: looks for metering without decisions.
    pub(super) fn end(mut self, tx: &mut Tx<'_>, listener: &mut dyn Listener) -> Result<(), Fault> {
        self.compare(tx, listener)?;
        while let Some(opening) = self.openings.next(tx, None)? {
            self.open(tx, opening)?;
            self.compare(tx, listener)?;
        }
        if !self.skipped && self.met == rows::usage_rows(tx)? {
            return Ok(());
        }
        let mut page = rows::usage(tx, None, PAGE)?;
        while let Some(last) = page.last() {
            let next = rows::usage(tx, Some(last), PAGE)?;
            for key in page {
                if !rows::is_counted(tx, &key, instants(key.month)?)? {
                    listener.finding(finding(&key, "a row of metering".to_owned(), "no row: no decision"));
                }
            }
            page = next;
        }
        Ok(())
    }
}

/// The instants of a month.
pub(in crate::service) fn instants(month: Month) -> Result<std::ops::Range<Timestamp>, Fault> {
    let first = |month: Month| Ok::<_, Fault>(Day::parse(&format!("{month}-01"))?.start());
    let start = first(month)?;
    let end = first(start.plus_seconds(INTO_THE_NEXT_MONTH_DAYS * DAY_SECONDS).month())?;
    Ok(start..end)
}

fn of_mandate(agent: &AgentKey, beyond: &rows::Beyond, last: i64) -> Finding {
    let shown = |name: &str, sequence: Option<i64>| sequence.map(|sequence| format!("{name} {sequence}"));
    let ends = [
        shown("governs_from", Some(beyond.governs_from)),
        shown("revoked_after", beyond.revoked_after),
        shown("governed_until", beyond.governed_until),
    ];
    let found = ends.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let expected =
        format!("none behind sequence {last}, the newest of its agent; governs_from may be the next");
    let finding = Finding::row(MANDATES, agent.environment, beyond.mandate.to_string(), found, expected);
    finding.of(Some(agent.agent.to_string()), Some(beyond.governs_from))
}

fn of_decision(
    environment: i64,
    agent: &str,
    decision: &DecisionRecord,
    found: String,
    expected: String,
) -> Finding {
    let finding = Finding::row(DECISIONS, environment, decision.id.to_string(), found, expected);
    finding.of(Some(agent.to_owned()), Some(decision.sequence))
}

fn finding(key: &UsageKey, found: String, expected: &str) -> Finding {
    let id = format!("{} {} {}", key.agent.agent, key.month, key.currency);
    let finding = Finding::row(TABLE, key.agent.environment, id, found, expected);
    finding.of(Some(key.agent.agent.to_string()), None)
}

/// The counters, those by verdict where they are not 0.
fn shown(usage: &UsageRecord) -> String {
    let counts = Verdict::ALL.iter().zip(usage.verdicts).filter(|(_, count)| *count != 0);
    let counts: Vec<_> = counts.map(|(verdict, count)| format!("{verdict} {count}")).collect();
    let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    format!("spent {}, requests {}, {counts}", usage.spent, usage.requests)
}
