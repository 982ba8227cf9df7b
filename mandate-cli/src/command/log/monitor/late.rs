//! What a log must have had for a day: the decisions of tokens, and the witnesses' cosignatures.

use std::path::Path;

use mandate_core::Timestamp;
use mandate_core::log::{Policy, SignedCheckpoint, token_hash};

use super::state::State;
use crate::command::log::proof::PROMISED_SECONDS;
use crate::exit::{Exit, Failure};
use crate::input::Source as File;
use crate::lines::{Lines, unreadable};
use crate::public_log::place::Place;
use crate::public_log::proof::{check, issued_at};
use crate::public_log::source::Source;
use crate::public_log::trust::Trust;

/// The tokens of a file that are older than a day and not in the log.
pub(super) fn tokens(
    file: Option<&Path>,
    source: &Source,
    trust: &Trust,
    now: Timestamp,
) -> Result<Vec<String>, Failure> {
    let mut late = Vec::new();
    let Some(path) = file else { return Ok(late) };
    if let Place::Folder(folder) = source.place() {
        return Err(Failure::new(
            Exit::Usage,
            format!("{} has no proofs of tokens: it is a copy of tiles", folder.display()),
        )
        .next("leave --tokens out, or pass the log's address with --log URL"));
    }
    let file = File::File(path.to_owned());
    // Whether the witnesses have cosigned is looked at apart.
    let own = Trust { key: trust.key.clone(), policy: Policy::none() };
    let mut lines = Lines::open(&file, "the tokens")?;
    while let Some(line) = lines.next(|_| {}).map_err(|e| unreadable("the tokens", &file, &e))? {
        let token = String::from_utf8_lossy(&line.bytes).into_owned();
        if token.is_empty() && !line.too_long {
            continue;
        }
        let what = format!("line {} of {}", line.number, path.display());
        let parts = token_hash(&token).zip(issued_at(&token));
        let (hash, issued) =
            parts.ok_or_else(|| Failure::new(Exit::MalformedToken, format!("{what} is no token")))?;
        let is_due = now.seconds().saturating_sub(issued.seconds()) > PROMISED_SECONDS;
        let missing = match source.proof(&hash)? {
            None => Some("is not in the log".to_owned()),
            Some(proof) => check(&token, &proof, &own)
                .err()
                .map(|unproved| format!("is not proved: {}", unproved.refused())),
        };
        if let Some(missing) = missing.filter(|_| is_due) {
            late.push(format!("the token of {what}, issued {issued}, {missing}"));
        }
    }
    Ok(late)
}

/// Since when entries wait for the policy's witnesses, which is late after a day. None: they have cosigned all there is.
pub(super) fn witnesses(
    trust: &Trust,
    signed: &SignedCheckpoint,
    before: Option<&State>,
    now: Timestamp,
    late: &mut Vec<String>,
) -> Option<Timestamp> {
    let refused = trust.accept(signed).err()?;
    let since = before.and_then(|state| state.unwitnessed_since).unwrap_or(now);
    if now.seconds().saturating_sub(since.seconds()) > PROMISED_SECONDS {
        late.push(format!("no checkpoint has satisfied the policy since {since}: {refused}"));
    }
    Some(since)
}
