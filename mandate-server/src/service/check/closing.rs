//! Checks the decisions of a month that is to be closed, and counts them in the openings of their agents.

use mandate_core::{AgentId, DecisionId};

use super::account::Account;
use super::log::{self, CheckedEntry};
use super::{Finding, Listener};
use crate::error::Fault;
use crate::model::records::{AgentKey, DecisionRecord};
use crate::store::sql::check as rows;
use crate::store::sql::openings;
use crate::store::tx::Tx;

/// A place in the log, agent by agent: environment, agent, and decision.
type Place = (i64, String, Vec<u8>);

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

/// Decisions of a month that is to be closed, in their order, whose signatures, verdicts and checksums hold.
#[derive(Debug)]
pub struct Piece {
    decisions: Vec<(AgentKey, DecisionRecord)>,
    last: Place,
}

impl Piece {
    /// How many decisions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.decisions.len()
    }

    /// Whether there is no decision.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.decisions.is_empty()
    }
}

/// Checks at most `limit` decisions behind a piece and before `behind`, each by itself, as a whole check does. This takes
/// time, so it holds no lock. None at the end.
pub(in crate::service) fn look(
    tx: &mut Tx<'_>,
    after: Option<&Piece>,
    behind: DecisionId,
    limit: i64,
) -> Result<Option<Piece>, Fault> {
    let (environment, agent, decision) =
        after.map_or((i64::MIN, "", &[][..]), |Piece { last, .. }| (last.0, &last.1, &last.2));
    let mut page = rows::log_before(tx, (environment, agent, decision), behind, limit)?;
    let Some(last) = page.last() else { return Ok(None) };
    let last = (last.environment, last.agent.clone(), last.decision.clone());
    let mut first = First::default();
    let keys = log::keys(tx, &mut first)?;
    let mut decisions = Vec::with_capacity(page.len());
    for CheckedEntry { environment, agent, decision, findings } in log::look_at(&mut page, &keys)? {
        for finding in findings {
            first.finding(finding);
        }
        if let Some(decision) = decision {
            decisions.push((AgentKey { environment, agent: AgentId::parse(&agent)? }, decision));
        }
    }
    first.refuse()?;
    Ok(Some(Piece { decisions, last }))
}

/// Checks a piece as what follows the decisions before it, and counts it in the openings of its agents, but for what is
/// counted there already.
pub(in crate::service) fn count(tx: &mut Tx<'_>, piece: &Piece) -> Result<(), Fault> {
    let mut first = First::default();
    let mut current: Option<(&AgentKey, Account)> = None;
    for (key, decision) in &piece.decisions {
        let mut account = match current.take() {
            Some((same, account)) if same == key => account,
            other => {
                keep(tx, other)?;
                openings::find(tx, key)?
                    .map_or_else(|| Ok(Account::default()), |opening| Account::open(tx, opening))?
            }
        };
        for (found, expected) in account.take(decision) {
            let id = decision.id.to_string();
            let finding = Finding::row("decisions", key.environment, id, found, expected);
            first.finding(finding.of(Some(key.agent.to_string()), Some(decision.sequence)));
        }
        current = Some((key, account));
    }
    first.refuse()?;
    keep(tx, current)
}

fn keep(tx: &mut Tx<'_>, counted: Option<(&AgentKey, Account)>) -> Result<(), Fault> {
    counted.map_or(Ok(()), |(agent, account)| account.keep(tx, agent))
}
