//! People who answer with a passkey, and who has answered: a person, or an organization's key.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mandate_core::people::{CredentialId, PersonKey};
use mandate_core::{Invalid, MandateId, PersonId, Principal, ReviewId, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::error::{Fault, Refusal};

/// What a person may do in the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum May {
    /// Read everything of the environment.
    Read,
    /// Also answer reviews that wait for one of the person's roles, and stop agents.
    Review,
}

impl May {
    /// The word, as operators write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Review => "review",
        }
    }

    /// Reads the word.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        [Self::Read, Self::Review]
            .into_iter()
            .find(|may| may.as_str() == text)
            .ok_or_else(|| Invalid::value("may", "must be read or review", text))
    }
}

/// A person of an environment, as the console sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Their id.
    pub id: PersonId,
    /// Their name.
    pub name: String,
    /// The principals that they are, as mandates name them.
    pub roles: Vec<Principal>,
    /// What they may do.
    pub may: May,
}

/// Who has answered a review or revoked a mandate: `resolved_by` of a review, and `by` in the public log's records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// What it is.
    pub kind: ActorKind,
    /// The id of the key, as `key list` shows it, or of the person.
    pub id: String,
    /// The label of the key, or the name of the person, at that time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    /// An organization's API key.
    Key,
    /// A person, by a passkey.
    Person,
}

impl Actor {
    /// This person.
    #[must_use]
    pub fn person(person: &Person) -> Self {
        Self { kind: ActorKind::Person, id: person.id.to_string(), name: Some(person.name.clone()) }
    }

    /// As JSON, as it is kept.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Writing text to memory cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads what is kept.
    ///
    /// # Errors
    /// It is another text.
    pub fn read(text: &str) -> Result<Self, Fault> {
        serde_json::from_str(text).map_err(|e| Fault::corrupt(format!("database: reviews.resolved_by: {e}")))
    }
}

/// By name and kind, for a sentence: `Ada (person)`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ActorKind::Key => "key",
            ActorKind::Person => "person",
        };
        write!(f, "{} ({kind})", self.name.as_ref().unwrap_or(&self.id))
    }
}

/// Why a statement that has expired is refused.
pub const LATE: &str = "the statement is over: it is good for two minutes";

/// Who answers now. For a person with the hash of the answer that they signed, as the public log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    /// Who.
    pub actor: Actor,
    /// The hash of the signed answer.
    pub answer: Option<String>,
    /// When the statement that was signed expires. What waited for a lock until then changes nothing.
    pub until: Option<Timestamp>,
}

impl By {
    /// Refuses what is too late at `now`.
    ///
    /// # Errors
    /// The statement that was signed has expired.
    pub fn must_be_in_time(&self, now: Timestamp) -> Result<(), Refusal> {
        match self.until.filter(|until| *until <= now) {
            Some(_) => Err(Refusal::invalid(LATE)),
            None => Ok(()),
        }
    }
}

/// The number of bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// The secret of an enrolment link or of a session. Only its SHA-256 is stored.
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl Secret {
    /// The secret with these random bytes.
    #[must_use]
    pub fn new(random: Zeroizing<[u8; SECRET_BYTES]>) -> Self {
        Self(random)
    }

    /// Reads the text. None if it is no secret; nothing repeats it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = Zeroizing::new(URL_SAFE_NO_PAD.decode(text).ok()?);
        Some(Self(Zeroizing::new(bytes.as_slice().try_into().ok()?)))
    }

    /// The text, for the link or the cookie.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE_NO_PAD.encode(*self.0))
    }

    /// What is stored.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(*self.0).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A person's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonRecord {
    /// The tenant.
    pub environment: i64,
    /// The person.
    pub person: Person,
    /// When they were created.
    pub created_at: Timestamp,
    /// When they were disabled.
    pub disabled_at: Option<Timestamp>,
}

/// A passkey's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasskeyRecord {
    /// The tenant.
    pub environment: i64,
    /// Its id, as its authenticator chose it.
    pub credential: CredentialId,
    /// Whose it is.
    pub person: PersonId,
    /// The public key.
    pub key: PersonKey,
    /// What its person calls it.
    pub label: String,
    /// The console's origin at which it was registered.
    pub origin: String,
    /// Whether it may be copied to other devices of its person.
    pub is_synced: bool,
    /// When it was enrolled.
    pub enrolled_at: Timestamp,
    /// When it was withdrawn.
    pub withdrawn_at: Option<Timestamp>,
}

/// An enrolment link's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolmentRecord {
    /// The tenant.
    pub environment: i64,
    /// The SHA-256 of its secret.
    pub hash: [u8; 32],
    /// Who registers a passkey by it.
    pub person: PersonId,
    /// Until when.
    pub expires_at: Timestamp,
    /// When a registration was finished.
    pub used_at: Option<Timestamp>,
}

/// A session's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its number.
    pub session: i64,
    /// The tenant.
    pub environment: i64,
    /// Who.
    pub person: PersonId,
    /// The passkey that opened it.
    pub credential: CredentialId,
    /// When it began.
    pub created_at: Timestamp,
    /// When it was last used, at most a minute ago.
    pub seen_at: Timestamp,
}

/// A statement's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementRecord {
    /// The tenant.
    pub environment: i64,
    /// The SHA-256 of its text.
    pub challenge: [u8; 32],
    /// The session that it was given to.
    pub session: i64,
    /// Its text.
    pub statement: String,
    /// Until when it is good.
    pub expires_at: Timestamp,
    /// When it was answered.
    pub used_at: Option<Timestamp>,
}

/// What a person has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// A review.
    Review(ReviewId),
    /// A mandate, which was revoked.
    Mandate(MandateId),
}

/// An answer's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRecord {
    /// The tenant.
    pub environment: i64,
    /// The SHA-256 of its content.
    pub hash: [u8; 32],
    /// Who.
    pub person: PersonId,
    /// To what.
    pub to: Answered,
    /// When.
    pub at: Timestamp,
    /// Canonical JSON: the statement and the assertion over it.
    pub content: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_comes_back_from_its_text_alone() {
        let secret = Secret::new(Zeroizing::new([7; 32]));
        assert_eq!(Secret::parse(&secret.to_text()).unwrap().hash(), secret.hash());
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        let text = secret.to_text();
        for text in ["", "BwcH", &text[1..], &format!("{}=", *text), &format!("{}AA", *text)] {
            assert!(Secret::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn who_answered_is_kept_as_it_is_shown() {
        let key = Actor { kind: ActorKind::Key, id: "key_abababababab".to_owned(), name: None };
        assert_eq!(key.to_json(), r#"{"kind":"key","id":"key_abababababab"}"#);
        assert_eq!(Actor::read(&key.to_json()).unwrap(), key);
        assert_eq!(key.to_string(), "key_abababababab (key)");
        let ada = Actor { kind: ActorKind::Person, id: "per_1".to_owned(), name: Some("Ada".to_owned()) };
        assert_eq!((Actor::read(&ada.to_json()).unwrap(), ada.to_string()), (ada, "Ada (person)".to_owned()));
        assert!(Actor::read("Ada").is_err());
    }
}
