//! What governs an environment, and who changed it: a record for each change, written in its transaction. The log holds a
//! hash of it, so that no change stays silent. docs/proof.md has the forms of those about people.

use mandate_core::json::one_line;
use mandate_core::people::{CredentialId, PersonKey};
use mandate_core::{AgentId, DecisionId, MandateId, PersonId, ReviewId, Terms, Timestamp};
use serde::Serialize;

use crate::error::Fault;
use crate::model::people::Actor;
use crate::model::records::Mode;
use crate::store::sql;
use crate::store::tx::Tx;

/// A change of what governs.
#[derive(Debug, Serialize)]
#[serde(tag = "type")]
pub enum Governing<'a> {
    /// An agent was registered.
    #[serde(rename = "agent.created")]
    AgentCreated {
        /// When.
        at: Timestamp,
        /// The agent.
        agent: &'a AgentId,
    },
    /// A mandate was written, and governs from then on.
    #[serde(rename = "mandate.created")]
    MandateCreated {
        /// When.
        at: Timestamp,
        /// Its agent.
        agent: &'a AgentId,
        /// Its id.
        mandate: MandateId,
        /// What it grants.
        terms: &'a Terms,
        /// The mandate that governed before.
        #[serde(skip_serializing_if = "Option::is_none")]
        replaces: Option<MandateId>,
        /// The first of the agent's decisions that it may decide.
        governs_from: u64,
    },
    /// A mandate was revoked.
    #[serde(rename = "mandate.revoked")]
    MandateRevoked {
        /// When.
        at: Timestamp,
        /// Its agent.
        agent: &'a AgentId,
        /// Its id.
        mandate: MandateId,
        /// The agent's last decision before.
        revoked_after: i64,
        /// Who revoked it.
        by: &'a Actor,
        /// The hash of the answer that a person signed.
        #[serde(skip_serializing_if = "Option::is_none")]
        answer: Option<&'a str>,
    },
    /// The mode was switched.
    #[serde(rename = "mode.switched")]
    ModeSwitched {
        /// When.
        at: Timestamp,
        /// The mode from then on.
        mode: Mode,
    },
    /// A review was approved: the request was decided again.
    #[serde(rename = "review.approved")]
    ReviewApproved(Answered<'a>),
    /// A review was denied.
    #[serde(rename = "review.denied")]
    ReviewDenied(Answered<'a>),
    /// A person has registered a passkey.
    #[serde(rename = "person.key")]
    PersonKey {
        /// When.
        at: Timestamp,
        /// The person.
        person: PersonId,
        /// The person's name.
        name: &'a str,
        /// The id of the passkey.
        credential: &'a CredentialId,
        /// Its public key.
        key: PersonKey,
        /// The console's origin at which it was registered.
        origin: &'a str,
    },
    /// A passkey was withdrawn.
    #[serde(rename = "person.withdrawn")]
    PersonWithdrawn {
        /// When.
        at: Timestamp,
        /// The person.
        person: PersonId,
        /// The id of the passkey.
        credential: &'a CredentialId,
    },
}

/// How a review was answered.
#[derive(Debug, Serialize)]
pub struct Answered<'a> {
    /// When.
    pub at: Timestamp,
    /// The agent.
    pub agent: &'a AgentId,
    /// The review.
    pub review: ReviewId,
    /// The decision that waited for it.
    pub decision: DecisionId,
    /// The decision that was made instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fresh: Option<DecisionId>,
    /// The person's reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// The agent's last decision before.
    pub resolved_after: i64,
    /// Who answered.
    pub by: &'a Actor,
    /// The hash of the answer that a person signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<&'a str>,
}

impl Governing<'_> {
    /// Writes the record. It locks the environment's row, so that a script calls it when all else is locked.
    ///
    /// # Errors
    /// The database fails.
    pub fn record(&self, tx: &mut Tx<'_>, environment: i64) -> Result<(), Fault> {
        let text =
            serde_json::to_string(self).map_err(|e| Fault::new(format!("cannot write a record: {e}")))?;
        sql::log_records::insert(tx, environment, &one_line(&text))
    }
}
