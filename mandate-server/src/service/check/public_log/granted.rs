//! Mandates and modes are what the governing records of their environment say, which the public log commits to.

use std::collections::HashMap;

use mandate_core::json::Object;
use mandate_core::{AgentId, Mandate, MandateId, Terms, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::damaged::Damaged;
use super::{Finding, Listener, MAX_FINDINGS};
use crate::error::Fault;
use crate::model::records::Mode;
use crate::service::check::shown;
use crate::service::organizations;
use crate::store::sql::check::{IdKind, each};
use crate::store::sql::environments::EnvironmentRecord;
use crate::store::tx::Tx;

/// What the records of an environment say.
#[derive(Default)]
pub(super) struct Granted {
    mandates: HashMap<MandateId, Mandate>,
    /// The newest mandate of each agent.
    newest: HashMap<AgentId, MandateId>,
    switched: Option<(Mode, Timestamp)>,
}

/// The members of the records that are compared here.
#[derive(Deserialize)]
struct Record<'a> {
    #[serde(rename = "type")]
    kind: String,
    at: String,
    mandate: Option<String>,
    #[serde(borrow)]
    terms: Option<&'a RawValue>,
    replaces: Option<String>,
    governs_from: Option<u64>,
    revoked_after: Option<u64>,
    mode: Option<String>,
}

impl Granted {
    /// Takes the next record. One that cannot be read is not that of its entry.
    pub(super) fn take(&mut self, record: &str) {
        let Ok(record) = serde_json::from_str::<Record<'_>>(record) else { return };
        let Ok(at) = Timestamp::parse(&record.at) else { return };
        match record.kind.as_str() {
            "mandate.created" => drop(self.create(&record, at)),
            "mandate.revoked" => {
                let id = record.mandate.and_then(|id| MandateId::parse(&id).ok());
                if let Some(mandate) = id.and_then(|id| self.mandates.get_mut(&id)) {
                    (mandate.revoked_at, mandate.revoked_after) = (Some(at), record.revoked_after);
                }
            }
            "mode.switched" => {
                let mode = record.mode.and_then(|mode| Mode::parse(&mode).ok());
                self.switched = mode.map(|mode| (mode, at)).or(self.switched);
            }
            _ => {}
        }
    }

    fn create(&mut self, record: &Record<'_>, at: Timestamp) -> Option<()> {
        let id = MandateId::parse(record.mandate.as_deref()?).ok()?;
        let terms = Terms::read(Object::parse(record.terms?.get().as_bytes()).ok()?).ok()?;
        let (agent, governs_from) = (terms.agent.clone(), record.governs_from?);
        let before = self.newest.insert(agent, id).and_then(|before| self.mandates.get_mut(&before));
        if let Some(before) = before {
            before.governed_until = Some(governs_from.saturating_sub(1));
            before.replaced_by = Some(id).filter(|_| record.replaces == Some(before.id.to_string()));
        }
        self.mandates.insert(id, Mandate { governs_from, ..Mandate::new(id, terms, at) });
        Some(())
    }

    /// Compares the rows with it, but for those whose checksum does not hold: they are findings already.
    pub(super) fn compare(
        mut self,
        tx: &mut Tx<'_>,
        environment: &EnvironmentRecord,
        damaged: &Damaged,
        listener: &mut dyn Listener,
    ) -> Result<(), Fault> {
        let of = environment.environment;
        let wanted =
            self.switched.unwrap_or((organizations::initial_mode(environment.kind), environment.created_at));
        let has = (environment.mode, environment.since);
        if has != wanted && !damaged.has("environments", of, "") {
            let told = |(mode, since): (Mode, Timestamp)| format!("{} since {since}", mode.as_str());
            listener.finding(Finding::row("environments", of, of.to_string(), told(has), told(wanted)));
        }
        self.compare_mandates(tx, of, damaged, listener)
    }

    fn compare_mandates(
        &mut self,
        tx: &mut Tx<'_>,
        environment: i64,
        damaged: &Damaged,
        listener: &mut dyn Listener,
    ) -> Result<(), Fault> {
        let mut findings = 0;
        each::mandate(tx, environment, &mut |id, row| {
            let id = shown(id, IdKind::Mandate);
            let recorded = MandateId::parse(&id).ok().and_then(|id| self.mandates.remove(&id));
            let finding = match row {
                Ok(mandate) => compared(environment, &mandate, recorded.as_ref()),
                Err(why) => Some(unreadable(environment, id.clone(), &why)),
            };
            if let Some(finding) = finding.filter(|_| !damaged.has("mandates", environment, &id)) {
                findings += 1;
                if findings <= MAX_FINDINGS {
                    listener.finding(finding);
                }
            }
            Ok(())
        })?;
        let room = usize::try_from(MAX_FINDINGS - findings).unwrap_or_default();
        for id in self.mandates.keys().take(room) {
            let (found, expected) = ("a governing record, and no row", "the mandate");
            listener.finding(Finding::row("mandates", environment, id.to_string(), found, expected));
        }
        Ok(())
    }
}

/// Reports the mandates of an environment that cannot be read, where there are no records to compare them with.
pub(super) fn look(
    tx: &mut Tx<'_>,
    environment: i64,
    damaged: &Damaged,
    listener: &mut dyn Listener,
) -> Result<(), Fault> {
    let mut findings = 0;
    each::mandate(tx, environment, &mut |id, row| {
        let Err(why) = row else { return Ok(()) };
        let id = shown(id, IdKind::Mandate);
        findings += 1;
        if findings <= MAX_FINDINGS && !damaged.has("mandates", environment, &id) {
            listener.finding(unreadable(environment, id, &why));
        }
        Ok(())
    })
}

/// The finding that a mandate cannot be read.
fn unreadable(environment: i64, id: String, why: &str) -> Finding {
    Finding::row("mandates", environment, id, why, "a mandate that can be read")
}

/// The finding that a mandate is not what its records say.
fn compared(environment: i64, mandate: &Mandate, recorded: Option<&Mandate>) -> Option<Finding> {
    let (found, expected) = match recorded {
        Some(recorded) if recorded == mandate => return None,
        Some(recorded) => differing(mandate, recorded),
        None => ("no governing record".to_owned(), "the record of the mandate".to_owned()),
    };
    let (agent, from) = (mandate.terms.agent.to_string(), i64::try_from(mandate.governs_from));
    let finding = Finding::row("mandates", environment, mandate.id.to_string(), found, expected);
    Some(finding.of(Some(agent), from.ok()))
}

/// In what a mandate differs from its records: what the row has, and what they say.
fn differing(row: &Mandate, recorded: &Mandate) -> (String, String) {
    let pairs = fields(row).into_iter().zip(fields(recorded)).filter(|(row, recorded)| row != recorded);
    let (found, expected): (Vec<_>, Vec<_>) = pairs.unzip();
    (found.join(", "), format!("{}, as its governing records say", expected.join(", ")))
}

fn fields(mandate: &Mandate) -> [String; 7] {
    fn told(name: &str, value: Option<impl ToString>) -> String {
        format!("{name} {}", value.map_or_else(|| "none".to_owned(), |value| value.to_string()))
    }
    [
        told("terms", serde_json::to_string(&mandate.terms).ok()),
        told("created_at", Some(mandate.created_at)),
        told("governs_from", Some(mandate.governs_from)),
        told("governed_until", mandate.governed_until),
        told("replaced_by", mandate.replaced_by),
        told("revoked_at", mandate.revoked_at),
        told("revoked_after", mandate.revoked_after),
    ]
}
