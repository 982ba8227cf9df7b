//! What a person signs.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::amount::Amount;
use crate::base64url;
use crate::environment::EnvironmentKind;
use crate::error::Invalid;
use crate::id::{DecisionId, MandateId, PersonId, ReviewId};
use crate::json::{Field, Object};
use crate::name::{AgentId, AgentName, Category, Currency, Recipient};
use crate::people::CredentialId;
use crate::time::Timestamp;

/// The longest statement that is read, in bytes: room for a reason of 500 characters and a long issuer.
pub const MAX_STATEMENT_BYTES: usize = 8192;

/// The size of a challenge and of a nonce, in bytes.
pub const CHALLENGE_BYTES: usize = 32;

/// The version of the format.
const VERSION: u8 = 1;

/// What a person signs: canonical JSON, whose SHA-256 is the challenge of the assertion.
///
/// ```
/// use mandate_core::people::{CredentialId, Statement, Subject, challenge};
/// use mandate_core::{AgentId, AgentName, EnvironmentKind, MandateId, PersonId, Timestamp};
/// let at = Timestamp::from_seconds(1_700_000_000);
/// let statement = Statement {
///     issuer: "https://verdicts.example".to_owned(),
///     kind: EnvironmentKind::Production,
///     organization: AgentName::parse("acme")?,
///     subject: Subject::Stop,
///     mandate: MandateId::new(at, 1),
///     agent: AgentId::parse("agt_buyer")?,
///     person: PersonId::new(at, 2),
///     credential: CredentialId::from_bytes(&[1, 2, 3])?,
///     nonce: [7; 32],
///     expires: at.plus_seconds(120),
/// };
/// let text = statement.to_json();
/// assert!(text.starts_with(r#"{"version":1,"issuer":"https://verdicts.example","kind":"production","#));
/// assert_eq!(Statement::parse(&text)?, statement);
/// assert_eq!(challenge(&text).len(), 32);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The service, as in its tokens.
    pub issuer: String,
    /// The kind of environment.
    pub kind: EnvironmentKind,
    /// The organization's name.
    pub organization: AgentName,
    /// The answer, and what it is an answer to.
    pub subject: Subject,
    /// The mandate that asked for the review, or that is revoked.
    pub mandate: MandateId,
    /// The agent.
    pub agent: AgentId,
    /// Who answers.
    pub person: PersonId,
    /// With which passkey.
    pub credential: CredentialId,
    /// Random bytes, so that no statement is like another.
    pub nonce: [u8; CHALLENGE_BYTES],
    /// Until when the service accepts the answer.
    pub expires: Timestamp,
}

/// The answer, and what it is an answer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The review is approved.
    Approve(Asked),
    /// The review is denied, with the reason that the person gave.
    Deny(Asked, Option<String>),
    /// The agent is stopped: its mandate is revoked.
    Stop,
}

/// The payment that waits for a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The review.
    pub review: ReviewId,
    /// The decision that asked for it.
    pub decision: DecisionId,
    /// The amount.
    pub amount: Amount,
    /// The currency of the amount.
    pub currency: Currency,
    /// The payee.
    pub recipient: Recipient,
    /// What the money is for.
    pub category: Category,
}

/// The SHA-256 of a statement's text: the challenge of the assertion over it.
///
/// ```
/// assert_eq!(mandate_core::people::challenge("{}")[..4], [0x44, 0x13, 0x6f, 0xa3]);
/// ```
#[must_use]
pub fn challenge(statement: &str) -> [u8; CHALLENGE_BYTES] {
    Sha256::digest(statement).into()
}

/// The members in the order in which they are written.
#[derive(Serialize)]
struct Written<'a> {
    version: u8,
    issuer: &'a str,
    kind: &'static str,
    organization: &'a AgentName,
    answer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    review: Option<ReviewId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<DecisionId>,
    mandate: MandateId,
    agent: &'a AgentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<&'a Currency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recipient: Option<&'a Recipient>,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'a Category>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    person: PersonId,
    credential: &'a CredentialId,
    nonce: String,
    expires: Timestamp,
}

impl Statement {
    /// The text that is signed: JSON without white space, its members in a fixed order. What does not apply is left out.
    #[must_use]
    pub fn to_json(&self) -> String {
        let asked = self.subject.asked();
        let written = Written {
            version: VERSION,
            issuer: &self.issuer,
            kind: self.kind.as_str(),
            organization: &self.organization,
            answer: self.subject.answer(),
            review: asked.map(|asked| asked.review),
            decision: asked.map(|asked| asked.decision),
            mandate: self.mandate,
            agent: &self.agent,
            amount: asked.map(|asked| asked.amount),
            currency: asked.map(|asked| &asked.currency),
            recipient: asked.map(|asked| &asked.recipient),
            category: asked.map(|asked| &asked.category),
            reason: self.subject.reason(),
            person: self.person,
            credential: &self.credential,
            nonce: base64url::encode(&self.nonce),
            expires: self.expires,
        };
        // Writing text and numbers to memory cannot fail.
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// Reads a statement, in its one spelling.
    ///
    /// # Errors
    /// The text is longer than [`MAX_STATEMENT_BYTES`]; a member is missing, unknown or invalid; or the text is another
    /// spelling than [`Statement::to_json`] gives.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.len() > MAX_STATEMENT_BYTES {
            let problem = format!("must have at most {MAX_STATEMENT_BYTES} bytes; it has {}", text.len());
            return Err(Invalid::new("statement", problem));
        }
        let mut object = Object::parse_as("statement", text.as_bytes())?;
        let read = Self::read(&mut object)?;
        object.finish()?;
        if read.to_json() != text {
            let problem = "must be in its one spelling: without white space, its members in their order";
            return Err(Invalid::new("statement", problem));
        }
        Ok(read)
    }

    fn read(object: &mut Object<'_>) -> Result<Self, Invalid> {
        let version = object.require("version")?;
        if version.number()? != "1" {
            return Err(Invalid::value("version", "must be 1", version.raw()));
        }
        let kind = object.require("kind")?.string()?;
        let nonce = object.require("nonce")?.string()?;
        Ok(Self {
            issuer: object.require("issuer")?.string()?.into_owned(),
            kind: EnvironmentKind::parse(&kind)
                .ok_or_else(|| Invalid::value("kind", "must be sandbox or production", &kind))?,
            organization: read_as(&object.require("organization")?, AgentName::parse)?,
            subject: Subject::read(object)?,
            mandate: read_as(&object.require("mandate")?, MandateId::parse)?,
            agent: read_as(&object.require("agent")?, AgentId::parse)?,
            person: read_as(&object.require("person")?, PersonId::parse)?,
            credential: read_as(&object.require("credential")?, CredentialId::parse)?,
            nonce: base64url::decode_array(&nonce)
                .ok_or_else(|| Invalid::value("nonce", "must be base64url of 32 bytes", &nonce))?,
            expires: read_as(&object.require("expires")?, Timestamp::parse)?,
        })
    }
}

impl Subject {
    /// `approve`, `deny` or `stop`.
    #[must_use]
    pub fn answer(&self) -> &'static str {
        match self {
            Self::Approve(_) => "approve",
            Self::Deny(..) => "deny",
            Self::Stop => "stop",
        }
    }

    /// The payment that waits, unless an agent is stopped.
    #[must_use]
    pub fn asked(&self) -> Option<&Asked> {
        match self {
            Self::Approve(asked) | Self::Deny(asked, _) => Some(asked),
            Self::Stop => None,
        }
    }

    /// The reason of a denial, if the person gave one.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Deny(_, reason) => reason.as_deref(),
            Self::Approve(_) | Self::Stop => None,
        }
    }

    fn read(object: &mut Object<'_>) -> Result<Self, Invalid> {
        let answer = object.require("answer")?.string()?;
        match answer.as_ref() {
            "approve" => Ok(Self::Approve(Asked::read(object)?)),
            "deny" => {
                let reason = object.take("reason").map(|field| field.string()).transpose()?;
                Ok(Self::Deny(Asked::read(object)?, reason.map(Into::into)))
            }
            "stop" => Ok(Self::Stop),
            other => Err(Invalid::value("answer", "must be approve, deny or stop", other)),
        }
    }
}

impl Asked {
    fn read(object: &mut Object<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            review: read_as(&object.require("review")?, ReviewId::parse)?,
            decision: read_as(&object.require("decision")?, DecisionId::parse)?,
            amount: object.require("amount")?.amount()?,
            currency: read_as(&object.require("currency")?, Currency::parse)?,
            recipient: read_as(&object.require("recipient")?, Recipient::parse)?,
            category: read_as(&object.require("category")?, Category::parse)?,
        })
    }
}

/// The value of a member, with a refusal that names the member.
fn read_as<T>(field: &Field<'_>, parse: fn(&str) -> Result<T, Invalid>) -> Result<T, Invalid> {
    parse(&field.string()?).map_err(|refused| refused.at(field.path()))
}
