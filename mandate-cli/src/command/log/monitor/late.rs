//! What a log must have had for a day: the decisions of tokens, and the witnesses' cosignatures. Late is what checkpoints and
//! proved entries show. What an answer alone says is not compared.

mod absent;
mod proved;

use std::path::Path;

use mandate_core::Timestamp;
use mandate_core::log::{
    Entry, Hash, LogProof, Policy, TILE_WIDTH, Tile, VerifierKey, read_bundle, token_hash,
};

use self::absent::Suspect;
use self::proved::{Proofs, must_be_of};
use super::look::{Found, Looked};
use super::state::Unwitnessed;
use crate::command::log::proof::PROMISED_SECONDS;
use crate::exit::{Exit, Failure};
use crate::input::Source as File;
use crate::lines::{Lines, unreadable};
use crate::public_log::entries::Entries;
use crate::public_log::place::{Place, is_origin_of};
use crate::public_log::proof::{issued_at, issuer, kind};
use crate::public_log::source::Source;
use crate::public_log::trust::Trust;

/// What was looked at of what is due.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) late: Vec<String>,
    /// What nothing proves to be late or in time, and why.
    pub(super) not_compared: Vec<String>,
}

impl Due {
    /// Looks for the tokens of a file that are older than a day, in the log and in those that it continues, of which the
    /// keys are among the others.
    pub(super) fn tokens(
        &mut self,
        path: &Path,
        source: &Source,
        keys: (&VerifierKey, &[VerifierKey]),
        (looked, now): (&Looked, Timestamp),
    ) -> Result<(), Found> {
        if let Place::Folder(folder) = source.place() {
            return Err(Failure::new(
                Exit::Usage,
                format!("{} has no proofs of tokens: it is a copy of tiles", folder.display()),
            )
            .next("leave --tokens out, or pass the log's address with --log URL")
            .into());
        }
        let file = File::File(path.to_owned());
        let mut proofs = Proofs::new(source, &looked.signed, keys);
        let mut suspects = Vec::new();
        let mut lines = Lines::open(&file, "the tokens")?;
        while let Some(line) = lines.next(|_| {}).map_err(|e| unreadable("the tokens", &file, &e))? {
            let token = String::from_utf8_lossy(&line.bytes).into_owned();
            if token.is_empty() && !line.too_long {
                continue;
            }
            let what = format!("line {} of {}", line.number, path.display());
            let parts = token_hash(&token).zip(issued_at(&token).zip(issuer(&token)));
            let (hash, (issued, iss)) =
                parts.ok_or_else(|| Failure::new(Exit::MalformedToken, format!("{what} is no token")))?;
            if now.seconds().saturating_sub(issued.seconds()) <= PROMISED_SECONDS {
                continue;
            }
            let (what, origin) =
                (format!("the token of {what}, issued {issued},"), looked.checkpoint.origin());
            if !is_origin_of(origin, &iss, kind(&token)?) {
                self.not_compared
                    .push(format!("{what} is of another issuer or kind of environment than {origin}"));
                continue;
            }
            let why = match source.proof(&hash)? {
                None => Some("the service gives no proof of it".to_owned()),
                Some(proof) => proofs.refused(&what, &token, &proof)?,
            };
            suspects.extend(why.map(|why| Suspect { what, token, hash, why }));
        }
        if !suspects.is_empty() {
            self.suspects(source, &looked.checkpoint, suspects)?;
        }
        Ok(())
    }

    /// Looks whether the policy's witnesses have cosigned what the log had a day ago. Gives since when entries wait for them;
    /// None: they have cosigned all there is. `waited` is the same at the last look.
    pub(super) fn witnesses(
        &mut self,
        source: &Source,
        trust: &Trust,
        looked: &Looked,
        waited: Option<Unwitnessed>,
        now: Timestamp,
    ) -> Result<Option<Unwitnessed>, Found> {
        let Err(refused) = trust.accept(&looked.signed) else { return Ok(None) };
        let waits = Unwitnessed { since: now, size: looked.checkpoint.size() };
        let Some(waited) = waited else { return Ok(Some(waits)) };
        if now.seconds().saturating_sub(waited.since.seconds()) <= PROMISED_SECONDS {
            return Ok(Some(waited));
        }
        let Unwitnessed { since, size } = waited;
        // The newest checkpoint waits for its cosignatures at most looks of a busy log. An older one may have them.
        match cosigned(source, trust, looked, size)? {
            Ok(None) => return Ok(Some(waits)),
            Ok(Some(index)) => self.late.push(format!(
                "neither the newest checkpoint nor that of the proof of entry {index} has the {size} entries that the log had at \
                 {since} with the cosignatures of the policy: {refused}"
            )),
            Err(why) => self.not_compared.push(format!(
                "whether a checkpoint of the {size} entries that the log had at {since} satisfies the policy: {why}"
            )),
        }
        Ok(Some(waited))
    }
}

/// None: the policy's witnesses have cosigned the log with the entries that it had when it had `size`. Otherwise the entry
/// whose proof names no such checkpoint, although the service names the newest one that has a quorum; or why nothing shows it.
fn cosigned(
    source: &Source,
    trust: &Trust,
    looked: &Looked,
    size: u64,
) -> Result<Result<Option<u64>, String>, Found> {
    let entries = Entries { source, checkpoint: &looked.checkpoint };
    let Some(index) = decision_before(entries, size)? else {
        return Ok(Err(
            "none of the last of these entries is a decision, whose proof would show it".to_owned()
        ));
    };
    let (entry, _) = entries.entry(index)?;
    let Ok(Entry::Decision { token, .. }) = Entry::parse(&entry) else {
        return Ok(Err(format!("entry {index} is no decision")));
    };
    let Some(proof) = source.proof(&token)? else {
        return Ok(Err(format!("the log gives no proof of entry {index}, which would show it")));
    };
    let of_entry = |proof: LogProof| {
        let holds = proof.verify(&Hash::of_leaf(&entry), trust.key.as_ref(), &Policy::none());
        holds.map_err(|e| e.to_string()).map(|_| proof.checkpoint)
    };
    let signed = match LogProof::parse(&proof).map_err(|e| e.to_string()).and_then(of_entry) {
        Ok(signed) => signed,
        Err(why) => return Ok(Err(format!("the proof of entry {index} does not hold: {why}"))),
    };
    // What they have cosigned must be this log.
    must_be_of(source, &looked.signed, &signed, &format!("entry {index}"))?;
    let has = trust.accept(&signed).is_ok_and(|accepted| accepted.checkpoint.size() >= size);
    Ok(Ok(Some(index).filter(|_| !has)))
}

/// The last decision before this place, if its bundle has one. What it is must be proved.
fn decision_before(entries: Entries<'_>, size: u64) -> Result<Option<u64>, Failure> {
    let Some(last) = size.checked_sub(1) else { return Ok(None) };
    let Some(tile) = Tile::of_entry(last, entries.checkpoint.size()) else { return Ok(None) };
    let (tile, bytes) = entries.source.tile(tile)?;
    let entries = read_bundle(&bytes, tile.width).unwrap_or_default();
    let first = last.saturating_sub(last % u64::from(TILE_WIDTH));
    let decisions = (first..=last)
        .zip(entries)
        .filter(|(_, entry)| matches!(Entry::parse(entry), Ok(Entry::Decision { .. })));
    Ok(decisions.map(|(index, _)| index).last())
}
