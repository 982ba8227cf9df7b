//! What the governing records of an export say of people: their passkeys, who has answered, and what was signed. The records
//! of mandates are read with them: people revoke mandates.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use mandate_core::json::{Field, Object};
use mandate_core::people::{CredentialId, PersonKey, RelyingParty};
use mandate_core::{DecisionId, Invalid, PersonId, ReviewId, ReviewStatus, Timestamp};

use super::granted::Granted;
use super::{Grants, Review, Stop};

/// Who has answered a review or revoked a mandate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Actor {
    /// A person, by a passkey.
    Person { id: PersonId, name: String },
    /// An organization's API key.
    Key { id: String, name: Option<String> },
}

/// A governing record of a passkey, of an answer to a review, or of a mandate.
#[derive(Debug, Clone)]
pub(crate) struct PersonRecord {
    number: u64,
    change: Change,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Enrolled(Box<Passkey>),
    Withdrawn { person: PersonId, credential: CredentialId, at: Timestamp },
    Answered(Box<Resolution>),
    Granted(Box<Granted>),
    Stopped(Box<Stop>),
}

/// A passkey that was enrolled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passkey {
    pub(crate) person: PersonId,
    name: String,
    credential: CredentialId,
    pub(crate) key: PersonKey,
    pub(crate) party: RelyingParty,
    enrolled: Moment,
    withdrawn: Option<Moment>,
}

/// When something happened: its number among the governing records, if it has one, and the instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) number: Option<u64>,
    pub(crate) at: Timestamp,
}

/// How a review was answered, by its governing record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolution {
    pub(crate) number: u64,
    pub(crate) review: ReviewId,
    pub(crate) decision: DecisionId,
    pub(crate) status: ReviewStatus,
    pub(crate) at: Timestamp,
    /// The decision that resulted from an approval.
    pub(crate) fresh: Option<DecisionId>,
    /// Why it was denied.
    pub(crate) reason: Option<String>,
    /// The agent's last decision before.
    pub(crate) after: u64,
    pub(crate) by: Actor,
    /// The hash of what a person signed.
    pub(crate) hash: Option<String>,
}

/// A record that contradicts another.
#[derive(Debug)]
pub(crate) struct Conflict {
    pub(crate) number: u64,
    /// The check that finds it.
    pub(crate) check: &'static str,
    pub(crate) found: String,
}

/// Why a passkey could not answer.
#[derive(Debug)]
pub(crate) enum NoPasskey {
    NotEnrolled,
    Withdrawn(Timestamp),
}

/// The people and passkeys of an environment, and the answers that its governing records name.
#[derive(Debug, Default)]
pub(crate) struct People {
    keys: HashMap<CredentialId, Vec<Passkey>>,
    names: HashMap<PersonId, String>,
    resolutions: HashMap<ReviewId, Resolution>,
    /// Of each approval the decision that resulted from it.
    approvals: HashMap<DecisionId, ReviewId>,
    pub(crate) grants: Grants,
    pub(crate) conflicts: Vec<Conflict>,
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
        let answered = |record: &mut Object<'_>, status| {
            Ok::<_, Invalid>(Some(Change::Answered(Box::new(Resolution::read(record, number, status)?))))
        };
        let change = match kind.as_ref() {
            "person.key" => Some(Change::Enrolled(Box::new(Passkey::read(&mut record, number)?))),
            "person.withdrawn" => Some(Change::Withdrawn {
                person: PersonId::parse(&record.require("person")?.string()?)?,
                credential: CredentialId::parse(&record.require("credential")?.string()?)?,
                at: super::instant(&record.require("at")?)?,
            }),
            "review.approved" => answered(&mut record, ReviewStatus::Approved)?,
            "review.denied" => answered(&mut record, ReviewStatus::Denied)?,
            "mandate.created" => Some(Change::Granted(Box::new(Granted::read(&mut record, number)?))),
            "mandate.revoked" => Some(Change::Stopped(Box::new(Stop::read(&mut record, number, answer)?))),
            _ => None,
        };
        if answer.is_some() && !matches!(&change, Some(Change::Stopped(stop)) if stop.is_by_person()) {
            let must = "must only be beside the record mandate.revoked of a person";
            return Err(Invalid::new("answer", must));
        }
        Ok(change.map(|change| Self { number, change }))
    }
}

impl Passkey {
    fn read(record: &mut Object<'_>, number: u64) -> Result<Self, Invalid> {
        let at = super::instant(&record.require("at")?)?;
        Ok(Self {
            person: PersonId::parse(&record.require("person")?.string()?)?,
            name: record.require("name")?.string()?.into_owned(),
            credential: CredentialId::parse(&record.require("credential")?.string()?)?,
            key: PersonKey::parse(&record.require("key")?.string()?)?,
            party: RelyingParty::of_origin(&record.require("origin")?.string()?)?,
            enrolled: Moment { number: Some(number), at },
            withdrawn: None,
        })
    }
}

impl Resolution {
    fn read(record: &mut Object<'_>, number: u64, status: ReviewStatus) -> Result<Self, Invalid> {
        Ok(Self {
            number,
            review: ReviewId::parse(&record.require("review")?.string()?)?,
            decision: DecisionId::parse(&record.require("decision")?.string()?)?,
            status,
            at: super::instant(&record.require("at")?)?,
            fresh: record.take("fresh").map(|fresh| DecisionId::parse(&fresh.string()?)).transpose()?,
            reason: record.take("reason").map(|reason| reason.string()).transpose()?.map(Into::into),
            after: super::count(&record.require("resolved_after")?, 0)?,
            by: Actor::read(&record.require("by")?)?,
            hash: record.take("answer").map(|hash| hash.string()).transpose()?.map(Into::into),
        })
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
        let (mut people, mut changes) = (Self::default(), BTreeMap::new());
        for PersonRecord { number, change } in records {
            match changes.entry(number) {
                Entry::Vacant(place) => _ = place.insert(change),
                Entry::Occupied(known) if *known.get() == change => {}
                Entry::Occupied(_) => {
                    people.conflict(number, "answer_record", "two records of this number".to_owned());
                }
            }
        }
        for (number, change) in changes {
            people.take(number, change);
        }
        people
    }

    fn take(&mut self, number: u64, change: Change) {
        match change {
            Change::Enrolled(passkey) => {
                self.names.insert(passkey.person, passkey.name.clone());
                self.keys.entry(passkey.credential.clone()).or_default().push(*passkey);
            }
            Change::Withdrawn { person, credential, at } => {
                let last = self.keys.get_mut(&credential).and_then(|passkeys| passkeys.last_mut());
                let its = last.filter(|passkey| passkey.person == person && passkey.withdrawn.is_none());
                if let Some(passkey) = its {
                    passkey.withdrawn = Some(Moment { number: Some(number), at });
                } else {
                    let found = format!("the passkey {credential} of {person} withdrawn");
                    self.conflict(number, "answer_withdrawn", found);
                }
            }
            Change::Answered(resolution) => {
                let review = resolution.review;
                if let Some(first) = self.resolutions.get(&review) {
                    let said = format!("an answer to {review}, which record {} has answered", first.number);
                    self.conflict(number, "answer_record", said);
                } else {
                    self.approvals.extend(resolution.fresh.map(|fresh| (fresh, review)));
                    self.resolutions.insert(review, *resolution);
                }
            }
            Change::Granted(granted) => {
                if let Some(found) = self.grants.write(*granted) {
                    self.conflict(number, "mandate_record", found);
                }
            }
            Change::Stopped(stop) => {
                if let Some(found) = self.grants.revoke(*stop) {
                    self.conflict(number, "mandate_record", found);
                }
            }
        }
    }

    fn conflict(&mut self, number: u64, check: &'static str, found: String) {
        self.conflicts.push(Conflict { number, check, found });
    }

    /// The name under which a person's newest passkey was enrolled.
    pub(crate) fn name(&self, person: PersonId) -> Option<&str> {
        self.names.get(&person).map(String::as_str)
    }

    /// How a review was answered, by the records up to this number.
    pub(crate) fn resolution(&self, review: ReviewId, newest: u64) -> Option<&Resolution> {
        self.resolutions.get(&review).filter(|resolution| resolution.number <= newest)
    }

    /// Whether a record up to this number says that the approval of `original` led to `fresh`.
    pub(crate) fn has_approved(&self, original: DecisionId, fresh: DecisionId, newest: u64) -> bool {
        let review = self.approvals.get(&fresh);
        let recorded = review.and_then(|review| self.resolution(*review, newest));
        recorded.is_some_and(|recorded| recorded.decision == original)
    }

    /// Who has answered a review: by its governing record; without one, by the row.
    pub(crate) fn answered_by<'a>(&'a self, review: &'a Review, newest: u64) -> Option<&'a Actor> {
        let recorded = review.id.and_then(|id| self.resolution(id, newest));
        recorded.map(|recorded| &recorded.by).or(review.resolved_by.as_ref())
    }

    /// All answers to reviews.
    pub(crate) fn resolutions(&self) -> impl Iterator<Item = &Resolution> {
        self.resolutions.values()
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
