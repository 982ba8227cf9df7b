//! What a page shows of the logs to anyone.

use mandate_core::log::{Hash, SignedCheckpoint};
use mandate_core::{EnvironmentKind, Timestamp};

use super::{publish, serve};
use crate::error::Fault;
use crate::store::sql::public_log;
use crate::store::sql::witnesses::{self, Witness};
use crate::store::tx::Tx;

/// Real money first.
const KINDS: [EnvironmentKind; 2] = [EnvironmentKind::Production, EnvironmentKind::Sandbox];

/// One log.
#[derive(Debug)]
pub struct Shown {
    /// Whose decisions are in it.
    pub kind: EnvironmentKind,
    /// Its name, in its checkpoints.
    pub origin: String,
    /// The key that verifies them, as it is published.
    pub key: String,
    /// No other has begun in its place.
    pub is_newest: bool,
    /// Nothing is appended any more.
    pub is_stopped: bool,
    /// The newest published checkpoint.
    pub checkpoint: Option<SignedCheckpoint>,
    /// The witnesses that are asked.
    pub witnesses: Vec<Cosigner>,
}

/// One witness.
#[derive(Debug)]
pub struct Cosigner {
    /// Its name.
    pub name: String,
    /// The size of the newest checkpoint that has its cosignature, and when it gave that. None, if neither the newest
    /// checkpoint nor the newest with a quorum has one.
    pub last: Option<(u64, Timestamp)>,
}

/// Where a token's decision is.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The kind of its log.
    pub kind: EnvironmentKind,
    /// Which entry it is, from 0.
    pub index: u64,
    /// How many entries the checkpoint has that proves it.
    pub size: u64,
}

/// All logs; of each kind the newest first.
///
/// # Errors
/// The database fails, or a checkpoint is damaged.
pub fn logs(tx: &mut Tx<'_>) -> Result<Vec<Shown>, Fault> {
    let asked = witnesses::all(tx)?;
    let mut shown = Vec::new();
    for kind in KINDS {
        for (place, log) in public_log::of_kind(tx, kind)?.into_iter().enumerate() {
            let checkpoint = publish::published(&log)?;
            let witnessed = log.witnessed.as_deref().map(|text| publish::stored(&log, text)).transpose()?;
            let signed: Vec<_> = checkpoint.iter().chain(&witnessed).collect();
            shown.push(Shown {
                kind,
                is_newest: place == 0,
                is_stopped: log.stopped.is_some(),
                witnesses: asked.iter().map(|witness| Cosigner::of(witness, &signed)).collect(),
                checkpoint,
                origin: log.origin,
                key: log.verifier_key,
            });
        }
    }
    Ok(shown)
}

/// Where the decision of a token is, by the SHA-256 of the token's signing input. None if no log has it, or not yet.
///
/// # Errors
/// The database fails, or what it has of a log is damaged.
pub fn look_up(tx: &mut Tx<'_>, token: &Hash) -> Result<Option<Place>, Fault> {
    for kind in KINDS {
        if let Some(proof) = serve::find(tx, kind, token)? {
            let size = proof.checkpoint.checkpoint().size();
            return Ok(Some(Place { kind, index: proof.index, size }));
        }
    }
    Ok(None)
}

impl Cosigner {
    fn of(witness: &Witness, signed: &[&SignedCheckpoint]) -> Self {
        let cosigned = signed.iter().filter_map(|signed| {
            // A cosignature that does not verify counts for none.
            let cosigned = signed.cosignature(&witness.key).ok().flatten()?;
            Some((signed.checkpoint().size(), Timestamp::from_seconds(cosigned.seconds)))
        });
        Self { name: witness.key.name().to_owned(), last: cosigned.max_by_key(|(_, at)| *at) }
    }
}
