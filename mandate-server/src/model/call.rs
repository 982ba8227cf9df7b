//! A call of the API: its caller, its answer, and how a script may end without one.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use mandate_core::api_key::KeyClass;
use mandate_core::{AgentId, EnvironmentKind, Invalid, PolicyVersion, RequestId, Timestamp, Verdict};
use serde::{Deserialize, Serialize};

use super::idempotency::Claim;
use super::records::Mode;
use crate::error::{Fault, Refusal};

/// The environment of one organization: the tenant that every object belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Its number in the store.
    pub id: i64,
    /// Sandbox or production.
    pub kind: EnvironmentKind,
    /// The policy version on its decisions.
    pub policy_version: PolicyVersion,
}

/// The owner of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The key's number in the store: the scope of idempotency and of the rate.
    pub key: i64,
    /// The tenant.
    pub environment: Environment,
    /// The agent, for an agent key; none for an organization key.
    pub agent: Option<AgentId>,
    /// Requests that the key may make in any 60 seconds.
    pub rate: u32,
    /// When the key expires, if it does.
    pub expires_at: Option<Timestamp>,
}

impl Caller {
    /// The class of the key.
    #[must_use]
    pub fn class(&self) -> KeyClass {
        if self.agent.is_some() { KeyClass::Agent } else { KeyClass::Organization }
    }
}

/// One request to the API, after the gate: who calls, and under which idempotency key.
#[derive(Debug, Clone)]
pub struct Call {
    /// Who calls.
    pub caller: Arc<Caller>,
    /// The id of this request, which errors carry.
    pub request_id: RequestId,
    /// When the request arrived.
    pub at: Timestamp,
    /// The claim of its idempotency key, if the caller sent one.
    pub idempotency: Option<Claim>,
}

/// How a script ends without an answer of its own.
#[derive(Debug)]
pub enum ScriptError {
    /// A refusal, which the caller can correct. It precedes the first write, and is committed like a success.
    Refused(Refusal),
    /// A fault on this side. The transaction is rolled back.
    Fault(Fault),
}

impl ScriptError {
    /// The same as a fault, where a refusal cannot be.
    #[must_use]
    pub fn into_fault(self) -> Fault {
        match self {
            Self::Fault(fault) => fault,
            Self::Refused(refusal) => Fault::new(refusal.message),
        }
    }
}

/// What a script returns.
pub type Scripted = Result<Answer, ScriptError>;

impl From<Refusal> for ScriptError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Invalid> for ScriptError {
    fn from(invalid: Invalid) -> Self {
        Self::Refused(invalid.into())
    }
}

impl From<Fault> for ScriptError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Larger than most answers, in bytes.
const TYPICAL_BYTES: usize = 1024;

/// An answer. It is sent after the transaction has been committed.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The JSON body.
    pub body: Vec<u8>,
    /// Whether the body holds a secret. Such a body is kept encrypted.
    pub secret: bool,
    /// Whether this answer was kept under the same idempotency key before.
    pub replayed: bool,
    /// The verdict and the mode, if a decision was made. A replay makes none.
    pub decided: Option<(Verdict, Mode)>,
}

/// No body is shown, since it may hold a secret.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, replayed, .. } = self;
        f.debug_struct("Answer").field("status", status).field("replayed", replayed).finish_non_exhaustive()
    }
}

impl Answer {
    /// An answer with `body` written as JSON.
    ///
    /// # Errors
    /// The body cannot be written.
    pub fn new(status: u16, body: &impl Serialize) -> Result<Self, Fault> {
        let mut json = Vec::with_capacity(TYPICAL_BYTES);
        serde_json::to_writer(&mut json, body)
            .map_err(|e| Fault::new(format!("cannot write an answer: {e}")))?;
        Ok(Self { status, body: json, secret: false, replayed: false, decided: None })
    }

    /// An answer without a body: 204.
    #[must_use]
    pub fn empty() -> Self {
        Self { status: 204, body: Vec::new(), secret: false, replayed: false, decided: None }
    }

    /// The error envelope for a refusal of the request `request_id`.
    ///
    /// # Errors
    /// The body cannot be written.
    pub fn refused(refusal: &Refusal, request_id: RequestId) -> Result<Self, Fault> {
        let error = ErrorBody { code: refusal.code.as_str(), message: &refusal.message, request_id };
        Self::new(refusal.code.status(), &Envelope { error })
    }

    /// The answer as the request `request_id` gets it: a kept error carries the id of the request that it answers, not of
    /// the one that was refused first.
    ///
    /// # Errors
    /// A kept error is not the envelope.
    pub fn for_request(self, request_id: RequestId) -> Result<Self, Fault> {
        if !self.replayed || self.status < FIRST_ERROR {
            return Ok(self);
        }
        let kept: Kept<'_> = serde_json::from_slice(&self.body)
            .map_err(|e| Fault::corrupt(format!("a kept error is not the envelope: {e}")))?;
        let KeptError { code, message } = kept.error;
        let error = ErrorBody { code: &code, message: &message, request_id };
        let Self { body, .. } = Self::new(self.status, &Envelope { error })?;
        Ok(Self { body, ..self })
    }
}

/// The first status that is an error.
const FIRST_ERROR: u16 = 400;

/// The error envelope as it was kept.
#[derive(Deserialize)]
struct Kept<'a> {
    #[serde(borrow)]
    error: KeptError<'a>,
}

#[derive(Deserialize)]
struct KeptError<'a> {
    #[serde(borrow)]
    code: Cow<'a, str>,
    #[serde(borrow)]
    message: Cow<'a, str>,
}

/// The error envelope.
#[derive(Debug, Serialize)]
pub struct Envelope<'a> {
    /// The error.
    pub error: ErrorBody<'a>,
}

/// An error.
#[derive(Debug, Serialize)]
pub struct ErrorBody<'a> {
    /// One of the closed set of codes, or `server_error`.
    pub code: &'a str,
    /// A sentence for a person.
    pub message: &'a str,
    /// The id of the request, as the log has it.
    pub request_id: RequestId,
}
