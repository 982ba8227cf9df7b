//! What an export says of the entries of the public log: for each decision and each governing record, what the log must
//! hold.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mandate_core::json::{Field, Object};
use mandate_core::log::{Entry as LogEntry, Hash, WatchKey, decision_record, record_hash, token_hash};
use mandate_core::{AgentId, DecisionId, Invalid, Timestamp};

/// A line about an entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Logged {
    pub(crate) row: LoggedRow,
    /// The hash of the record with its blind. None: the line has no blind, as in exports of earlier versions.
    pub(crate) record: Option<Hash>,
}

/// What the entry is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoggedRow {
    Decision {
        id: DecisionId,
        agent: AgentId,
        sequence: u64,
        decided_at: Timestamp,
        /// The hash of its token's signing input.
        token: Hash,
    },
    Governing {
        number: u64,
        random: Hash,
        /// What has happened, for example `agent.created`.
        kind: String,
        agent: Option<AgentId>,
        at: Option<Timestamp>,
    },
}

impl Logged {
    /// Reads a line of an export. None: it is a line of another kind, or none of an export.
    pub(crate) fn read(line: &[u8]) -> Result<Option<Self>, Invalid> {
        let mut whole = Object::parse_as("line", line)?;
        if let Some(field) = whole.take("decision") {
            let blind = whole.take("blind").map(|field| hash(&field)).transpose()?;
            whole.finish()?;
            return Self::decision(&field, blind).map(Some);
        }
        let Some(field) = whole.take("governing") else { return Ok(None) };
        // What a person signed. The record has its hash.
        whole.take("answer");
        let logged = Self::governing(&field, &mut whole)?;
        whole.finish()?;
        Ok(Some(logged))
    }

    fn decision(field: &Field<'_>, blind: Option<Hash>) -> Result<Self, Invalid> {
        let record = decision_record(field.raw())?;
        let mut decision = field.object()?;
        let token = decision.require("verdict_token")?.string()?;
        let token = token_hash(&token);
        let id = DecisionId::parse(&decision.require("jti")?.string()?)?;
        let agent = AgentId::parse(&decision.require("request")?.object()?.require("agent")?.string()?)?;
        let sequence = super::count(&decision.require("sequence")?, 1)?;
        let decided_at = super::instant(&decision.require("decided_at")?)?;
        let token = token.ok_or_else(|| Invalid::new("decision.verdict_token", "must be a token"))?;
        let record = blind.map(|blind| record_hash(&blind, record.as_bytes()));
        Ok(Self { row: LoggedRow::Decision { id, agent, sequence, decided_at, token }, record })
    }

    /// Reads the members of a governing record's line. Types and members that are not known are taken too.
    pub(super) fn governing(field: &Field<'_>, line: &mut Object<'_>) -> Result<Self, Invalid> {
        let number = super::count(&line.require("number")?, 1)?;
        let random = hash(&line.require("random")?)?;
        let blind = hash(&line.require("blind")?)?;
        let mut record = field.object()?;
        record.strict()?;
        let kind = record.require("type")?.string()?.into_owned();
        let agent = record.take("agent").map(|field| AgentId::parse(&field.string()?)).transpose()?;
        let at = record.take("at").map(|field| super::instant(&field)).transpose()?;
        let record = Some(record_hash(&blind, field.raw().as_bytes()));
        Ok(Self { row: LoggedRow::Governing { number, random, kind, agent, at }, record })
    }

    /// The number of a governing record; of a decision, 0.
    pub(super) fn number(&self) -> u64 {
        match &self.row {
            LoggedRow::Decision { .. } => 0,
            LoggedRow::Governing { number, .. } => *number,
        }
    }

    /// The tag under which the holder of the environment's watch key finds the entry.
    pub(crate) fn tag(&self, key: &WatchKey) -> Hash {
        match &self.row {
            LoggedRow::Decision { agent, sequence, .. } => key.decision(agent, *sequence),
            LoggedRow::Governing { number, .. } => key.governing(*number),
        }
    }

    /// How the entry is found without a watch key: no other entry has this token, or these random bytes.
    pub(crate) fn handle(&self) -> Hash {
        match &self.row {
            LoggedRow::Decision { token, .. } => *token,
            LoggedRow::Governing { random, .. } => *random,
        }
    }

    /// Whether `entry` is of this kind, with this token or these random bytes and this record.
    pub(crate) fn is(&self, entry: &LogEntry) -> bool {
        match (&self.row, entry) {
            (LoggedRow::Decision { token, .. }, LogEntry::Decision { token: logged, record, .. }) => {
                token == logged && self.record == Some(*record)
            }
            (LoggedRow::Governing { random, .. }, LogEntry::Governing { random: logged, record, .. }) => {
                random == logged && self.record == Some(*record)
            }
            _ => false,
        }
    }
}

/// 32 bytes in base64url.
pub(super) fn hash(field: &Field<'_>) -> Result<Hash, Invalid> {
    let text = field.string()?;
    let bytes = URL_SAFE_NO_PAD.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.map(Hash::new).ok_or_else(|| Invalid::new(field.path(), "must be 43 characters of base64url"))
}
