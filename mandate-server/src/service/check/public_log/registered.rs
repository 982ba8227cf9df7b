//! Agents and passkeys are what the governing records of their environment say.

use std::collections::HashMap;

use mandate_core::people::{CredentialId, PersonKey};
use mandate_core::{AgentId, PersonId, Timestamp};
use serde::Deserialize;

use super::damaged::Damaged;
use super::{Finding, Listener, MAX_FINDINGS};
use crate::error::Fault;
use crate::model::people::PasskeyRecord;
use crate::store::sql::agents::Agent;
use crate::store::sql::check::each;
use crate::store::tx::{Tx, Value};

const AGENTS: &str = "agents";
const KEYS: &str = "person_keys";
/// What is found of a row that lacks its record, and of a record that lacks its row.
const NO_RECORD: &str = "no governing record of it in the public log";
const NO_ROW: &str = "no row, and a governing record of it in the public log";

/// What the records of an environment say.
#[derive(Default)]
pub(super) struct Registered {
    agents: HashMap<AgentId, Timestamp>,
    keys: HashMap<CredentialId, Passkey>,
}

/// A passkey as its records have it. Its person may have another name than then.
#[derive(PartialEq, Eq)]
struct Passkey {
    person: PersonId,
    key: PersonKey,
    origin: String,
    enrolled_at: Timestamp,
    withdrawn_at: Option<Timestamp>,
}

/// The members of the records that are compared here.
#[derive(Deserialize)]
struct Record {
    #[serde(rename = "type")]
    kind: String,
    at: String,
    agent: Option<String>,
    person: Option<String>,
    credential: Option<String>,
    key: Option<String>,
    origin: Option<String>,
}

/// Reports findings about rows of a table, up to the greatest number of them.
struct Reporter<'a> {
    table: &'static str,
    environment: i64,
    damaged: &'a Damaged,
    listener: &'a mut dyn Listener,
    findings: i64,
}

impl Registered {
    /// Takes the next record. One that cannot be read is not that of its entry.
    pub(super) fn take(&mut self, record: &str) {
        let Ok(record) = serde_json::from_str::<Record>(record) else { return };
        let Ok(at) = Timestamp::parse(&record.at) else { return };
        match record.kind.as_str() {
            "agent.created" => {
                let agent = record.agent.and_then(|agent| AgentId::parse(&agent).ok());
                self.agents.extend(agent.map(|agent| (agent, at)));
            }
            "person.key" => self.keys.extend(Passkey::enrolled(record, at)),
            "person.withdrawn" => {
                let id = record.credential.and_then(|id| CredentialId::parse(&id).ok());
                if let Some(key) = id.and_then(|id| self.keys.get_mut(&id)) {
                    key.withdrawn_at = Some(at);
                }
            }
            _ => {}
        }
    }

    /// Compares the rows with it, but for those whose checksum does not hold: they are findings already.
    pub(super) fn compare(
        self,
        tx: &mut Tx<'_>,
        environment: i64,
        damaged: &Damaged,
        listener: &mut dyn Listener,
    ) -> Result<(), Fault> {
        let Self { mut agents, mut keys } = self;
        let mut report = Reporter { table: AGENTS, environment, damaged, listener, findings: 0 };
        each::agent(tx, environment, &mut |id, row| {
            let Value::Text(id) = id else { return Ok(()) };
            let recorded = AgentId::parse(id).ok().and_then(|id| agents.remove(&id));
            report.row(id, row.map(|Agent { created_at, .. }| created_at), recorded, |at| {
                format!("created at {at}")
            });
            Ok(())
        })?;
        for agent in agents.keys() {
            report.lost(agent.as_str());
        }
        let mut report = Reporter { table: KEYS, findings: 0, ..report };
        each::passkey(tx, environment, &mut |id, row| {
            let Value::Blob(id) = id else { return Ok(()) };
            let Ok(id) = CredentialId::from_bytes(id) else { return Ok(()) };
            report.row(&id.to_string(), row.map(Passkey::of), keys.remove(&id), Passkey::to_string);
            Ok(())
        })?;
        for key in keys.keys() {
            report.lost(&key.to_string());
        }
        Ok(())
    }
}

impl Reporter<'_> {
    /// Compares what a row says with what its records say.
    fn row<T: PartialEq>(
        &mut self,
        id: &str,
        row: Result<T, String>,
        recorded: Option<T>,
        told: impl Fn(&T) -> String,
    ) {
        let (found, expected) = match (row, recorded) {
            (Ok(row), Some(recorded)) if row == recorded => return,
            (Ok(row), Some(recorded)) => {
                (format!("{}, unlike its records in the public log", told(&row)), told(&recorded))
            }
            (Ok(_), None) => (NO_RECORD.to_owned(), "the record of it".to_owned()),
            (Err(why), _) => (why, "a row that can be read".to_owned()),
        };
        self.found(id, found, expected);
    }

    /// Reports a record without a row.
    fn lost(&mut self, id: &str) {
        self.found(id, NO_ROW.to_owned(), "the row".to_owned());
    }

    fn found(&mut self, id: &str, found: String, expected: String) {
        if self.damaged.has(self.table, self.environment, id) {
            return;
        }
        self.findings += 1;
        if self.findings <= MAX_FINDINGS {
            self.listener.finding(Finding::row(self.table, self.environment, id, found, expected));
        }
    }
}

impl Passkey {
    fn enrolled(record: Record, enrolled_at: Timestamp) -> Option<(CredentialId, Self)> {
        let key = Self {
            person: PersonId::parse(&record.person?).ok()?,
            key: PersonKey::parse(&record.key?).ok()?,
            origin: record.origin?,
            enrolled_at,
            withdrawn_at: None,
        };
        Some((CredentialId::parse(&record.credential?).ok()?, key))
    }

    fn of(record: PasskeyRecord) -> Self {
        let PasskeyRecord { person, key, origin, enrolled_at, withdrawn_at, .. } = record;
        Self { person, key, origin, enrolled_at, withdrawn_at }
    }
}

impl std::fmt::Display for Passkey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { person, key, origin, enrolled_at, withdrawn_at } = self;
        write!(f, "{key} of {person}, registered at {origin} at {enrolled_at}")?;
        withdrawn_at.map_or(Ok(()), |at| write!(f, ", withdrawn at {at}"))
    }
}
