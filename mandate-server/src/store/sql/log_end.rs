//! The end of the log, which is read at a start to find the decisions that no agent's rows count yet: see `uncounted`.
//!
//! What is missed here is spent without being counted. So where this is read to decide on, the log is held against a second
//! tree that has each of its rows, the index by verdict, and against the numbers that an agent's decisions have one after the
//! other. The checksums of uncounted decisions, and of each agent's first decision here, are verified too.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use mandate_core::{AgentId, DecisionId, Verdict};

use super::checksums::{DECISIONS, ENVIRONMENTS as ENVIRONMENT_ROWS, UNCOUNTED};
use super::{agent_rows, uncounted};
use crate::error::Fault;
use crate::model::records::AgentKey;
use crate::store::tx::{Backend, Tx, Value};
use crate::store::uncounted::Uncounted;

/// Rows of the log that are read at a time. In memory one takes about a kilobyte.
const READ: i64 = 256;

const ENVIRONMENTS: &str = "/* log_end.environments */
    SELECT environment, environment, organization, kind, policy_version, mode, since, checksum
    FROM environments ORDER BY environment";
const WITH_AGENTS: &str = "/* log_end.with_agents */
    SELECT environment FROM agents WHERE environment > $1 ORDER BY environment LIMIT 1";
const SINCE: &str = "/* log_end.since */ SELECT one, since, checksum FROM uncounted";
const BEGIN_AT: &str = "/* log_end.begin_at */ UPDATE uncounted SET since = $1, checksum = $2";
/// What is looked at, and the whole row, to verify its checksum.
const END_OF_LOG: &str = "/* log_end.end_of_log */
    SELECT decision, agent, sequence, environment, decision, sequence, decided_at, verdict, mandate, nonce, agent, amount,
        currency, recipient, category, mode, reason, denials, spent, recent_requests, supersedes, review, issuer,
        signing_key, signature, checksum
    FROM decisions WHERE environment = $1 AND decision > $2 ORDER BY decision LIMIT $3";
const INDEXED: &str = "/* log_end.indexed */ SELECT COUNT(*) FROM decisions INDEXED BY decisions_by_verdict
    WHERE environment = $1 AND verdict = $2 AND decision > $3";

/// An agent with decisions at the end of the log.
struct Agent {
    /// The number of the newest decision that is counted, and that decision. None if the agent's row is damaged: nothing is
    /// decided on it, and all that was read may be lacking, should the row be read whole later.
    counted: Option<(i64, Option<DecisionId>)>,
    /// The number of the newest decision that was read.
    newest: Option<i64>,
}

/// Reads the decisions that no agent's rows count yet into `uncounted`.
///
/// # Errors
/// Where this transaction verifies: something of it is damaged, or not found.
pub fn gather(tx: &mut Tx<'_>, uncounted: &Uncounted) -> Result<(), Fault> {
    let begins = since(tx)?;
    let from =
        begins.map_or([0; 16], |id| (u128::from_be_bytes(id.to_bytes()).saturating_sub(1)).to_be_bytes());
    for environment in environments(tx)? {
        let read = gather_of(tx, environment, from, uncounted)?;
        if tx.verifies() {
            must_be_all(tx, environment, from, read)?;
        }
    }
    uncounted.is_read(begins);
    Ok(())
}

/// All environments. Where this transaction verifies, none is another one, hidden, or there twice: what was spent in it would not
/// be read, or be read twice.
fn environments(tx: &mut Tx<'_>) -> Result<BTreeSet<i64>, Fault> {
    let (verifies, mut all) = (tx.verifies(), BTreeSet::new());
    for mut row in tx.query(ENVIRONMENTS, &[])? {
        let environment = row.integer()?;
        if verifies {
            ENVIRONMENT_ROWS.must_hold(&[], &row)?;
        }
        if !all.insert(environment) && verifies {
            return Err(ENVIRONMENT_ROWS.damaged(&[environment.into()], "it is there twice"));
        }
    }
    let mut after = Some(i64::MIN).filter(|_| verifies);
    while let Some(environment) = after {
        let next = tx.row(WITH_AGENTS, &[environment.into()])?;
        after = next.map(|mut row| row.integer()).transpose()?;
        if let Some(environment) = after.filter(|environment| !all.contains(environment)) {
            return Err(ENVIRONMENT_ROWS.damaged(&[environment.into()], "it has agents, and is not found"));
        }
    }
    Ok(all)
}

/// Reads the end of one environment's log, and says how many decisions it has.
fn gather_of(tx: &mut Tx<'_>, environment: i64, from: [u8; 16], uncounted: &Uncounted) -> Result<i64, Fault> {
    let (verifies, mut agents, mut after, mut read) = (tx.verifies(), HashMap::new(), from, 0);
    loop {
        let rows = tx.query(END_OF_LOG, &[environment.into(), after.into(), READ.into()])?;
        let is_last = rows.len() < usize::try_from(READ).unwrap_or(usize::MAX);
        for mut row in rows {
            let (before, place) = (after, row.bytes()?);
            let (id, name, sequence) = (DecisionId::from_bytes(place), row.text()?, row.integer()?);
            (after, read) = (place, read + 1);
            let damaged =
                |what: &str| DECISIONS.damaged(&[environment.into(), Value::Blob(place.to_vec())], what);
            let key = match AgentId::parse(&name) {
                Ok(agent) => AgentKey { environment, agent },
                Err(_) if verifies => return Err(damaged("it is of no agent")),
                // A decision that names no agent is a finding of `check`.
                Err(_) => continue,
            };
            let agent = match agents.entry(key.agent.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(Agent::find(tx, &key)?),
            };
            if verifies {
                if place <= before {
                    return Err(damaged("it is not in its place"));
                }
                let is_doubtful = agent.take(id, sequence);
                if is_doubtful.ok_or_else(|| damaged("it is not its agent's next one"))? {
                    DECISIONS.must_hold(&[], &row)?;
                }
            }
            uncounted.read(agent.lacks(id).then_some(&key), id);
        }
        if is_last {
            return Ok(read);
        }
    }
}

/// Holds what was read of the log against the index: a damaged page of one of them is none of the other.
fn must_be_all(tx: &mut Tx<'_>, environment: i64, from: [u8; 16], read: i64) -> Result<(), Fault> {
    let mut indexed = 0;
    for verdict in Verdict::ALL {
        let of = [environment.into(), verdict.as_str().into(), from.into()];
        indexed += tx.one_row(INDEXED, &of)?.integer()?;
    }
    if indexed == read {
        return Ok(());
    }
    Err(Fault::corrupt(format!(
        "database: decisions: the end of the log of environment {environment} has {read} rows, and its index has \
         {indexed}; `mandate-server check` finds more"
    )))
}

impl Agent {
    fn find(tx: &mut Tx<'_>, key: &AgentKey) -> Result<Self, Fault> {
        let counted = if tx.verifies() {
            match agent_rows::find(tx, key) {
                Ok(row) => Some(row.map_or((0, None), |row| (row.sequence, row.last))),
                Err(Fault::Corrupt(reason)) => {
                    tracing::error!(agent = key.agent.as_str(), reason, "nothing is decided for this agent");
                    None
                }
                Err(fault) => return Err(fault),
            }
        } else {
            Some((0, uncounted::counted_up_to(tx, key)?))
        };
        Ok(Self { counted, newest: None })
    }

    /// Whether a decision is in none of the agent's rows.
    fn lacks(&self, id: DecisionId) -> bool {
        self.counted.is_none_or(|(_, last)| last.is_none_or(|last| id > last))
    }

    /// Takes the agent's next decision, and says whether its checksum is to be verified. None if another one is next.
    fn take(&mut self, id: DecisionId, sequence: i64) -> Option<bool> {
        let Some((counted, last)) = self.counted else { return Some(false) };
        let (is_uncounted, is_first) = (self.lacks(id), self.newest.is_none());
        let expected = match self.newest {
            // The first that is uncounted follows what is counted.
            newest if is_uncounted && newest.is_none_or(|newest| newest <= counted) => Some(counted + 1),
            Some(newest) => Some(newest + 1),
            None => None,
        };
        let is_next =
            expected.is_none_or(|expected| expected == sequence) && (last != Some(id) || counted == sequence);
        self.newest = Some(sequence);
        is_next.then_some(is_uncounted || is_first)
    }
}

/// The decisions that no agent's rows count yet, as the database has it, in the order of agents.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<(AgentKey, DecisionId)>, Fault> {
    let uncounted = Uncounted::default();
    gather(tx, &uncounted)?;
    let all = uncounted.between((i64::MIN, "", &[]), None, usize::MAX).into_iter();
    Ok(all.flat_map(|(agent, ids)| ids.into_iter().map(move |id| (agent.clone(), id))).collect())
}

/// Where in the log the uncounted decisions begin. All before are counted. None: they begin with the log.
pub fn since(tx: &mut Tx<'_>) -> Result<Option<DecisionId>, Fault> {
    let row = tx.row(SINCE, &[])?;
    let mut row =
        row.ok_or_else(|| Fault::corrupt("database: where the uncounted decisions begin is lost"))?;
    if tx.verifies() {
        UNCOUNTED.must_hold(&[], &row)?;
    }
    row.skip(1);
    Ok(row.blob()?.try_into().ok().map(DecisionId::from_bytes))
}

/// Writes where in the log the uncounted decisions begin.
pub fn begin_at(tx: &mut Tx<'_>, id: DecisionId) -> Result<(), Fault> {
    let row: [Value; 2] = [1.into(), id.to_bytes().into()];
    let checksum = UNCOUNTED.checksum(&row);
    let [_, since] = row;
    tx.execute_one(BEGIN_AT, &[since, checksum])
}

/// Has the uncounted decisions begin no earlier than after a closed month, whose decisions are deleted: from where they begin,
/// each agent's come one after the other. All before are counted. Where decisions are counted at once, nothing is written.
pub fn begin_after(tx: &mut Tx<'_>, id: DecisionId) -> Result<(), Fault> {
    if tx.backend() == Backend::Postgres || since(tx)?.is_some_and(|since| since >= id) {
        return Ok(());
    }
    begin_at(tx, id)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use mandate_core::Timestamp;

    use super::*;

    fn id(number: u128) -> DecisionId {
        DecisionId::new(Timestamp::from_seconds(1_800_000_000), number)
    }

    fn agent(counted: Option<(i64, Option<DecisionId>)>) -> Agent {
        Agent { counted, newest: None }
    }

    #[test]
    fn an_agents_decisions_come_one_after_the_other() {
        let mut sound = agent(Some((3, Some(id(30)))));
        let taken =
            [(20, 2), (30, 3), (40, 4), (50, 5)].map(|(number, sequence)| sound.take(id(number), sequence));
        // The first, and the uncounted ones.
        assert_eq!(taken, [Some(true), Some(false), Some(true), Some(true)]);
        let mut new = agent(Some((0, None)));
        assert_eq!([new.take(id(1), 1), new.take(id(2), 2)], [Some(true); 2]);
        let mut damaged = agent(None);
        assert_eq!((damaged.take(id(1), 9), damaged.lacks(id(1))), (Some(false), true));
    }

    #[test]
    fn one_that_is_missed_or_anothers_is_noticed() {
        for sequences in
            [&[(20, 2), (30, 3), (50, 5)][..], &[(50, 5)], &[(20, 2), (25, 3)], &[(20, 1), (30, 2)]]
        {
            let mut agent = agent(Some((3, Some(id(30)))));
            let mut taken = sequences.iter().map(|(number, sequence)| agent.take(id(*number), *sequence));
            let is_noticed = taken.any(|taken| taken.is_none());
            // Up to what is counted, another one shows when the last of them comes.
            assert_eq!(is_noticed, *sequences != [(20, 2), (25, 3)], "{sequences:?}");
        }
    }
}
