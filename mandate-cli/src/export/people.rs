//! What an export says of people: their passkeys, who has answered, and what was signed.

use std::collections::{BTreeMap, HashMap};

use mandate_core::json::{Field, Object};
use mandate_core::people::{Answer, CredentialId, PersonKey, RelyingParty};
use mandate_core::{AgentId, Invalid, MandateId, PersonId, Timestamp};

/// Who has answered a review or revoked a mandate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Actor {
    /// A person, by a passkey.
    Person { id: PersonId, name: String },
    /// An organization's API key.
    Key { id: String, name: Option<String> },
}

/// A governing record that people's answers rest on, and the line that it is on.
#[derive(Debug, Clone)]
pub(crate) struct PersonRecord {
    pub(crate) number: u64,
    change: Change,
}

#[derive(Debug, Clone)]
enum Change {
    Enrolled(Box<Passkey>),
    Withdrawn {
        credential: CredentialId,
        at: Timestamp,
    },
    /// A review was answered: the hash of the answer.
    Answered(String),
    Stopped(Box<Stop>),
}

/// A passkey that was enrolled.
#[derive(Debug, Clone)]
pub(crate) struct Passkey {
    pub(crate) person: PersonId,
    credential: CredentialId,
    pub(crate) key: PersonKey,
    pub(crate) party: RelyingParty,
    enrolled: Moment,
    withdrawn: Option<Moment>,
}

/// When something happened: its number among the governing records, if it has one, and the instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) number: Option<u64>,
    pub(crate) at: Timestamp,
}

/// A mandate that was revoked by a person.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    pub(crate) by: Actor,
    pub(crate) agent: AgentId,
    pub(crate) mandate: MandateId,
    pub(crate) at: Timestamp,
    /// The hash that the record holds.
    pub(crate) hash: Option<String>,
    pub(crate) answer: Option<Answer>,
}

/// Why a passkey could not answer.
#[derive(Debug)]
pub(crate) enum NoPasskey {
    NotEnrolled,
    Withdrawn(Timestamp),
}

/// The passkeys of an environment, and the answers that its governing records name.
#[derive(Debug, Default)]
pub(crate) struct People {
    keys: HashMap<CredentialId, Vec<Passkey>>,
    answered: HashMap<String, u64>,
    pub(crate) stops: Vec<(u64, Stop)>,
}

impl Actor {
    /// Reads `{kind, id, name?}`.
    pub(crate) fn read(field: &Field<'_>) -> Result<Self, Invalid> {
        let mut actor = field.object()?;
        let (kind, id) = (actor.require("kind")?.string()?, actor.require("id")?);
        let text = id.string()?.into_owned();
        let name = actor.take("name").map(|name| name.string()).transpose()?.map(Into::into);
        match kind.as_ref() {
            "person" => {
                let id = PersonId::parse(&text).map_err(|e| e.at(id.path()))?;
                Ok(Self::Person { id, name: name.unwrap_or_default() })
            }
            "key" => Ok(Self::Key { id: text, name }),
            other => Err(Invalid::value(format!("{}.kind", field.path()), "must be person or key", other)),
        }
    }
}

impl PersonRecord {
    /// Reads what a governing record says of people. `None`: nothing.
    pub(super) fn read(
        field: &Field<'_>,
        number: u64,
        answer: Option<&Field<'_>>,
    ) -> Result<Option<Self>, Invalid> {
        let mut record = field.object()?;
        let kind = record.require("type")?.string()?;
        let change = match kind.as_ref() {
            "person.key" => Some(Change::Enrolled(Box::new(Passkey::read(&mut record, number)?))),
            "person.withdrawn" => Some(Change::Withdrawn {
                credential: CredentialId::parse(&record.require("credential")?.string()?)?,
                at: super::instant(&record.require("at")?)?,
            }),
            "review.approved" | "review.denied" => {
                let hash = record.take("answer").map(|hash| hash.string()).transpose()?;
                hash.map(|hash| Change::Answered(hash.into_owned()))
            }
            "mandate.revoked" => Stop::read(&mut record, answer)?.map(|stop| Change::Stopped(Box::new(stop))),
            _ => None,
        };
        Ok(change.map(|change| Self { number, change }))
    }
}

impl Passkey {
    fn read(record: &mut Object<'_>, number: u64) -> Result<Self, Invalid> {
        let at = super::instant(&record.require("at")?)?;
        Ok(Self {
            person: PersonId::parse(&record.require("person")?.string()?)?,
            credential: CredentialId::parse(&record.require("credential")?.string()?)?,
            key: PersonKey::parse(&record.require("key")?.string()?)?,
            party: RelyingParty::of_origin(&record.require("origin")?.string()?)?,
            enrolled: Moment { number: Some(number), at },
            withdrawn: None,
        })
    }
}

impl Stop {
    fn read(record: &mut Object<'_>, answer: Option<&Field<'_>>) -> Result<Option<Self>, Invalid> {
        let by = record.take("by").map(|by| Actor::read(&by)).transpose()?;
        let Some(by @ Actor::Person { .. }) = by else { return Ok(None) };
        Ok(Some(Self {
            by,
            agent: AgentId::parse(&record.require("agent")?.string()?)?,
            mandate: MandateId::parse(&record.require("mandate")?.string()?)?,
            at: super::instant(&record.require("at")?)?,
            hash: record.take("answer").map(|hash| hash.string()).transpose()?.map(Into::into),
            answer: answer.map(|answer| Answer::read(answer.object()?)).transpose()?,
        }))
    }
}

impl Moment {
    /// Whether this was before `other`: by the numbers, if both have one. Clocks step.
    fn precedes(self, other: Self) -> bool {
        match self.number.zip(other.number) {
            Some((number, other)) => number < other,
            None => self.at <= other.at,
        }
    }
}

impl People {
    /// Takes the records of all exports, each once, in their order.
    pub(crate) fn of_records(records: impl IntoIterator<Item = PersonRecord>) -> Self {
        let records: BTreeMap<u64, Change> =
            records.into_iter().map(|record| (record.number, record.change)).collect();
        let mut people = Self::default();
        for (number, change) in records {
            match change {
                Change::Enrolled(passkey) => {
                    people.keys.entry(passkey.credential.clone()).or_default().push(*passkey);
                }
                Change::Withdrawn { credential, at } => {
                    let last = people.keys.get_mut(&credential).and_then(|passkeys| passkeys.last_mut());
                    if let Some(passkey) = last {
                        passkey.withdrawn.get_or_insert(Moment { number: Some(number), at });
                    }
                }
                Change::Answered(hash) => _ = people.answered.insert(hash, number),
                Change::Stopped(stop) => people.stops.push((number, *stop)),
            }
        }
        people
    }

    /// The number of the governing record of the answer with this hash.
    pub(crate) fn number(&self, hash: &str) -> Option<u64> {
        self.answered.get(hash).copied()
    }

    /// The passkey, if it was enrolled and not withdrawn then.
    pub(crate) fn passkey(&self, credential: &CredentialId, then: Moment) -> Result<&Passkey, NoPasskey> {
        let passkeys = self.keys.get(credential).map(Vec::as_slice).unwrap_or_default();
        let enrolled = passkeys.iter().rev().find(|passkey| passkey.enrolled.precedes(then));
        let passkey = enrolled.ok_or(NoPasskey::NotEnrolled)?;
        match passkey.withdrawn.filter(|withdrawn| !then.precedes(*withdrawn)) {
            Some(withdrawn) => Err(NoPasskey::Withdrawn(withdrawn.at)),
            None => Ok(passkey),
        }
    }
}
