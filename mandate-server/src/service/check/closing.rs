//! Checks the decisions of a month that is to be closed, and counts them in the openings of their agents.

use mandate_core::{AgentId, DecisionId};

use super::account::Account;
use super::log::{self, CheckedEntry};
use super::{Finding, Listener};
use crate::error::Fault;
use crate::model::records::AgentKey;
use crate::store::sql::check as rows;
use crate::store::sql::openings;
use crate::store::tx::Tx;

/// A place in the log, agent by agent: environment, agent, and decision.
pub(in crate::service) type Place = (i64, String, Vec<u8>);

/// Before the whole log.
pub(in crate::service) fn start() -> Place {
    (i64::MIN, String::new(), Vec::new())
}

/// Keeps the first finding.
#[derive(Default)]
struct First(Option<Finding>);

impl Listener for First {
    fn finding(&mut self, finding: Finding) {
        self.0.get_or_insert(finding);
    }

    fn looked_at(&mut self, _: i64, _: i64) {}
}

impl First {
    fn refuse(self) -> Result<(), Fault> {
        let Some(Finding { table, id, agent, found, expected, .. }) = self.0 else { return Ok(()) };
        let place: Vec<_> = [Some(table), id, agent].into_iter().flatten().collect();
        Err(Fault::corrupt(format!(
            "{}: found {found}; expected {expected}. No month is closed over a finding: `mandate-server check` shows all",
            place.join(" ")
        )))
    }
}

/// Checks at most `limit` decisions after a place and before `behind`, as a whole check does, and counts them in their
/// agents' openings, but for those that are counted there already. Returns where to go on. None at the end.
pub(in crate::service) fn advance(
    tx: &mut Tx<'_>,
    after: &Place,
    behind: DecisionId,
    limit: i64,
) -> Result<Option<(Place, usize)>, Fault> {
    let mut page = rows::log_before(tx, (after.0, &after.1, &after.2), behind, limit)?;
    let Some(last) = page.last() else { return Ok(None) };
    let last = (last.environment, last.agent.clone(), last.decision.clone());
    let mut first = First::default();
    let keys = log::keys(tx, &mut first)?;
    let checked = log::look_at(&mut page, &keys)?;
    let count = checked.len();
    let mut current: Option<(AgentKey, Account)> = None;
    for CheckedEntry { environment, agent, decision, findings } in checked {
        for finding in findings {
            first.finding(finding);
        }
        let Some(decision) = decision else { continue };
        let key = AgentKey { environment, agent: AgentId::parse(&agent)? };
        let mut account = match current.take() {
            Some((same, account)) if same == key => account,
            other => {
                keep(tx, other)?;
                openings::find(tx, &key)?
                    .map_or_else(|| Ok(Account::default()), |opening| Account::open(tx, opening))?
            }
        };
        for (found, expected) in account.take(&decision) {
            let id = decision.id.to_string();
            let finding = Finding::row("decisions", environment, id, found, expected);
            first.finding(finding.of(Some(agent.clone()), Some(decision.sequence)));
        }
        current = Some((key, account));
    }
    first.refuse()?;
    keep(tx, current)?;
    Ok(Some((last, count)))
}

fn keep(tx: &mut Tx<'_>, counted: Option<(AgentKey, Account)>) -> Result<(), Fault> {
    counted.map_or(Ok(()), |(agent, account)| account.keep(tx, &agent))
}
