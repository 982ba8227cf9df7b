//! By which keys a log is trusted: its own, and those of the witnesses that a policy names. None of them is ever taken from
//! what they verify.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::path::PathBuf;

use mandate_core::log::{Accepted, KeyKind, MAX_POLICY_BYTES, Policy, SignedCheckpoint, VerifierKey};

use super::place::Place;
use super::{Refused, pins};
use crate::exit::{Exit, Failure};
use crate::input::{Source, without_line_break};

/// The longest file of a verifier key.
const MAX_KEY_BYTES: usize = 512;

/// The options that say by which keys a log is trusted.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Public log")]
pub(crate) struct TrustArgs {
    /// The log's verifier key, or @FILE [default: the one that `mandate log key pin` has stored]
    #[arg(long, value_name = "KEY|@FILE")]
    pub(crate) log_key: Option<String>,
    /// A policy (C2SP tlog-policy): which witnesses must have cosigned, and which logs are accepted
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
}

/// By which keys a log is trusted.
#[derive(Debug, Clone)]
pub(crate) struct Trust {
    /// The log's key. None: each log of the policy is accepted.
    pub(crate) key: Option<VerifierKey>,
    pub(crate) policy: Policy,
}

impl TrustArgs {
    /// The keys of the options, or the pinned one of the log.
    pub(crate) fn trust(&self, place: &Place) -> Result<Trust, Failure> {
        self.known(place)?.ok_or_else(|| {
            Failure::new(Exit::Usage, format!("the key of the log at {place} is not known"))
                .next(format_args!("mandate log key pin --log {place}; or pass --log-key KEY"))
        })
    }

    /// The same, if the key is known.
    pub(crate) fn known(&self, place: &Place) -> Result<Option<Trust>, Failure> {
        let policy = self.policy()?;
        if let Some(key) = self.named()? {
            return Ok(Some(Trust { key: Some(key), policy }));
        }
        if policy.logs().next().is_some() {
            return Ok(Some(Trust { key: None, policy }));
        }
        Ok(pins::find(place)?.map(|pin| Trust { key: Some(pin.key), policy }))
    }

    /// The key of the option.
    pub(crate) fn named(&self) -> Result<Option<VerifierKey>, Failure> {
        self.log_key.as_deref().map(|text| key(text, KeyKind::Note)).transpose()
    }

    /// The policy of the option; without one no witness is asked for.
    pub(crate) fn policy(&self) -> Result<Policy, Failure> {
        let Some(path) = &self.policy else { return Ok(Policy::none()) };
        let text = Source::File(path.clone()).read("the policy", MAX_POLICY_BYTES, Exit::Usage)?;
        Policy::parse(text.as_bytes()).map_err(|e| {
            Failure::new(Exit::Usage, format!("{} is refused ({}): {e}", path.display(), e.name()))
        })
    }
}

impl Trust {
    /// The checkpoint, if log and witnesses are those that are trusted.
    pub(crate) fn accept(&self, signed: &SignedCheckpoint) -> Result<Accepted, Refused> {
        self.policy.accept(signed, self.key.as_ref()).map_err(|e| Refused::new(e.name(), e))
    }

    /// The checkpoint in these bytes, and what was accepted of it.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<(SignedCheckpoint, Accepted), Refused> {
        let signed = SignedCheckpoint::parse(bytes).map_err(|e| Refused::new(e.name(), e))?;
        let accepted = self.accept(&signed)?;
        Ok((signed, accepted))
    }
}

/// When the witnesses of a policy have cosigned, the latest last: nothing without witnesses.
pub(crate) fn cosigned_at(accepted: &Accepted) -> Option<i64> {
    accepted.cosigned.values().map(|cosigned| cosigned.seconds).max()
}

/// The verifier key in a text, or in the file behind an `@`.
pub(crate) fn key(text: &str, kind: KeyKind) -> Result<VerifierKey, Failure> {
    let read = text
        .strip_prefix('@')
        .map(|path| Source::File(path.into()).read("the verifier key", MAX_KEY_BYTES, Exit::Usage));
    let read = read.transpose()?;
    parse(without_line_break(read.as_deref().unwrap_or(text)), kind)
        .map_err(|why| Failure::new(Exit::Usage, format!("`{text}` is not a verifier key: {why}")))
}

/// The verifier key in a text, if it is of this kind.
pub(crate) fn parse(text: &str, kind: KeyKind) -> Result<VerifierKey, String> {
    let key = VerifierKey::parse(text).map_err(|e| e.to_string())?;
    match (key.kind() == kind, kind) {
        (true, _) => Ok(key),
        (false, KeyKind::Note) => Err("it is a witness's; a log's is of type 1".to_owned()),
        (false, KeyKind::Cosignature) => Err("it is a log's; a witness's is of type 4".to_owned()),
    }
}
