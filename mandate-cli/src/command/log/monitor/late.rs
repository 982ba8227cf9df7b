//! What a log must have had for a day: the decisions of tokens, and the witnesses' cosignatures.

use std::path::Path;

use mandate_core::Timestamp;
use mandate_core::log::{
    Checkpoint, Entry, Hash, LogProof, Policy, TILE_WIDTH, Tile, VerifierKey, read_bundle, token_hash,
};

use super::look::Looked;
use super::state::Unwitnessed;
use crate::command::log::proof::PROMISED_SECONDS;
use crate::exit::{Exit, Failure};
use crate::input::Source as File;
use crate::lines::{Lines, unreadable};
use crate::public_log::place::Place;
use crate::public_log::proof::{check, issued_at};
use crate::public_log::source::Source;
use crate::public_log::trust::Trust;

/// The tokens of a file that are older than a day and not in a log of one of these keys. The first one is the log's own.
pub(super) fn tokens(
    file: Option<&Path>,
    source: &Source,
    keys: &[VerifierKey],
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
    let trusts: Vec<_> =
        keys.iter().map(|key| Trust { key: Some(key.clone()), policy: Policy::none() }).collect();
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
            Some(proof) => unproved(&token, &proof, &trusts).map(|why| format!("is not proved: {why}")),
        };
        if let Some(missing) = missing.filter(|_| is_due) {
            late.push(format!("the token of {what}, issued {issued}, {missing}"));
        }
    }
    Ok(late)
}

/// Why a token is proved by none of these, as the first one says.
fn unproved(token: &str, proof: &[u8], trusts: &[Trust]) -> Option<String> {
    let mut refused = Vec::new();
    for trust in trusts {
        refused.push(check(token, proof, trust).err()?.refused().to_string());
    }
    refused.into_iter().next()
}

/// Since when entries wait for the policy's witnesses, which is late after a day. None: they have cosigned all there is.
/// `waited` is the same at the last look.
pub(super) fn witnesses(
    source: &Source,
    trust: &Trust,
    looked: &Looked,
    waited: Option<Unwitnessed>,
    now: Timestamp,
    late: &mut Vec<String>,
) -> Result<Option<Unwitnessed>, Failure> {
    let Err(refused) = trust.accept(&looked.signed) else { return Ok(None) };
    let waits = Unwitnessed { since: now, size: looked.checkpoint.size() };
    let Some(waited) = waited else { return Ok(Some(waits)) };
    if now.seconds().saturating_sub(waited.since.seconds()) <= PROMISED_SECONDS {
        return Ok(Some(waited));
    }
    // The newest checkpoint waits for its cosignatures at most looks of a busy log. An older one may have them.
    if cosigned(source, trust, &looked.checkpoint, waited.size)? {
        return Ok(Some(waits));
    }
    late.push(format!(
        "no checkpoint that was looked at has satisfied the policy since {}: {refused}",
        waited.since
    ));
    Ok(Some(waited))
}

/// Whether the policy's witnesses have cosigned the log with the entries that it had when it had `size`. A proof of one of
/// them names a checkpoint that has its quorum.
fn cosigned(source: &Source, trust: &Trust, checkpoint: &Checkpoint, size: u64) -> Result<bool, Failure> {
    let Some(token) = decision_before(source, checkpoint, size)? else { return Ok(false) };
    let proof = source.proof(&token)?.and_then(|proof| LogProof::parse(&proof).ok());
    let accepted = proof.and_then(|proof| trust.accept(&proof.checkpoint).ok());
    Ok(accepted.is_some_and(|accepted| accepted.checkpoint.size() >= size))
}

/// The hash by which the last decision before this place is asked for, if its bundle has one. It is a question to the log: what
/// comes back is checked.
fn decision_before(source: &Source, checkpoint: &Checkpoint, size: u64) -> Result<Option<Hash>, Failure> {
    let Some(last) = size.checked_sub(1) else { return Ok(None) };
    let Some(tile) = Tile::of_entry(last, checkpoint.size()) else { return Ok(None) };
    let (tile, bytes) = source.tile(tile)?;
    let entries = read_bundle(&bytes, tile.width).unwrap_or_default();
    let place = usize::try_from(last % u64::from(TILE_WIDTH)).unwrap_or_default();
    let decision = |entry: &&[u8]| match Entry::parse(entry) {
        Ok(Entry::Decision { token, .. }) => Some(token),
        _ => None,
    };
    Ok(entries.iter().take(place.saturating_add(1)).rev().find_map(decision))
}
