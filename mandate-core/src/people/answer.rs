//! A person's answer, as it is kept and exported.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::assertion::{Assertion, AssertionError};
use super::key::{CredentialId, PersonKey};
use super::party::RelyingParty;
use super::statement::{Statement, challenge};
use crate::base64url;
use crate::error::Invalid;
use crate::json::Object;

/// A person's answer: the statement, and the assertion over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The text of the statement, exactly as it was signed.
    pub statement: String,
    /// The assertion, whose challenge is the SHA-256 of the text.
    pub assertion: Assertion,
}

/// Why an answer is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The statement is malformed, or in another spelling.
    #[error("the statement is refused: {0}")]
    Statement(Invalid),
    /// The statement names another passkey than the one that signed.
    #[error("the statement names the passkey `{stated}`; the assertion is of `{signed}`")]
    Credential {
        /// The passkey that the statement names.
        stated: CredentialId,
        /// The passkey that the assertion names.
        signed: CredentialId,
    },
    /// The assertion is refused.
    #[error(transparent)]
    Assertion(#[from] AssertionError),
}

/// The members in the order of their names.
#[derive(Serialize)]
struct Written<'a> {
    authenticator_data: String,
    client_data_json: String,
    credential: &'a CredentialId,
    signature: String,
    statement: &'a str,
}

impl AnswerError {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Statement(_) => "statement",
            Self::Credential { .. } => "credential",
            Self::Assertion(refused) => refused.name(),
        }
    }
}

impl Answer {
    /// Reads the members `statement`, `credential`, `authenticator_data`, `client_data_json` and `signature`. The statement
    /// is text, exactly as it was signed; the others are base64url.
    ///
    /// # Errors
    /// A member is missing or unknown, or of another form.
    pub fn read(mut object: Object<'_>) -> Result<Self, Invalid> {
        let statement = object.require("statement")?.string()?.into_owned();
        let assertion = Assertion::take(&mut object, ["authenticator_data", "client_data_json"])?;
        object.finish()?;
        Ok(Self { statement, assertion })
    }

    /// The answer as canonical JSON: what is kept, exported and hashed.
    #[must_use]
    pub fn to_json(&self) -> String {
        let written = Written {
            authenticator_data: base64url::encode(&self.assertion.authenticator_data),
            client_data_json: base64url::encode(&self.assertion.client_data),
            credential: &self.assertion.credential,
            signature: base64url::encode(&self.assertion.signature),
            statement: &self.statement,
        };
        // Writing text to memory cannot fail.
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// The SHA-256 of [`Answer::to_json`] as base64url: what the public log commits to.
    #[must_use]
    pub fn hash(&self) -> String {
        base64url::encode(&Sha256::digest(self.to_json()))
    }

    /// Checks that the assertion is over the statement, under `key` and at the site `party`, and returns the statement.
    ///
    /// What the statement says, and since when and until when the key was enrolled, is for the caller to compare.
    ///
    /// # Errors
    /// A check fails: the error says which.
    pub fn verify(&self, party: &RelyingParty, key: &PersonKey) -> Result<Statement, AnswerError> {
        let statement = Statement::parse(&self.statement).map_err(AnswerError::Statement)?;
        if statement.credential != self.assertion.credential {
            return Err(AnswerError::Credential {
                stated: statement.credential,
                signed: self.assertion.credential.clone(),
            });
        }
        self.assertion.verify(&challenge(&self.statement), party, key)?;
        Ok(statement)
    }
}
