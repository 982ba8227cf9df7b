//! Signs and publishes checkpoints: a log's size and root.

use mandate_core::EnvironmentKind;
use mandate_core::log::{
    Checkpoint, CheckpointUntrusted, Frontier, NoteSignature, SignedCheckpoint, VerifierKey,
};

use super::{keys, serve};
use crate::error::Fault;
use crate::model::master_key::MasterKey;
use crate::store::sql::public_log::{self, PublicLog};
use crate::store::sql::witnesses::{self, Witness};
use crate::store::tx::Tx;

/// The newest log of a kind, if it has grown since its newest checkpoint, and is not stopped.
///
/// # Errors
/// The database fails.
pub fn due(tx: &mut Tx<'_>, kind: EnvironmentKind) -> Result<Option<PublicLog>, Fault> {
    let log = public_log::newest(tx, kind)?;
    let published = published(&log)?.map_or(0, |checkpoint| checkpoint.checkpoint().size());
    Ok(Some(log).filter(|log| log.stopped.is_none() && log.tree.size() > published))
}

/// The newest published checkpoint of a log.
///
/// # Errors
/// It is damaged.
pub fn published(log: &PublicLog) -> Result<Option<SignedCheckpoint>, Fault> {
    log.checkpoint.as_deref().map(|text| stored(log, text)).transpose()
}

/// The checkpoint of a log that was signed and is not published yet: witnesses may have cosigned it.
///
/// # Errors
/// It is damaged.
pub fn unpublished(log: &PublicLog) -> Result<Option<SignedCheckpoint>, Fault> {
    log.signed.as_deref().map(|text| stored(log, text)).transpose()
}

/// The last checkpoint of a log that was signed, as far as its database knows.
///
/// # Errors
/// It is damaged.
pub fn last(log: &PublicLog) -> Result<Option<SignedCheckpoint>, Fault> {
    Ok(unpublished(log)?.or(published(log)?))
}

/// Reads a checkpoint that the database has of a log.
///
/// # Errors
/// It is damaged.
pub fn stored(log: &PublicLog, text: &str) -> Result<SignedCheckpoint, Fault> {
    let damaged = |e: &dyn std::fmt::Display| {
        Fault::corrupt(format!("database: the checkpoint of {} is damaged: {e}", log.origin))
    };
    SignedCheckpoint::parse(text.as_bytes()).map_err(|e| damaged(&e))
}

/// Signs the log as it is. The same log has the same signature, whichever server signs it.
///
/// # Errors
/// The log's key does not open under this master key.
pub fn sign(log: &PublicLog, master: &MasterKey) -> Result<SignedCheckpoint, Fault> {
    let checkpoint = Checkpoint::new(&log.origin, log.tree.size(), log.tree.root());
    let checkpoint = checkpoint.map_err(|e| Fault::new(format!("a checkpoint of {}: {e}", log.origin)))?;
    Ok(checkpoint.sign(&keys::open(log, master)?))
}

/// Signs the newest log of a kind as it is, if that is [`due`], and writes down what was signed: once that is committed,
/// witnesses may cosign it. It has the cosignatures that it had, if it was signed before. Nothing is signed where it, or a greater
/// one, was signed with another root.
///
/// # Errors
/// The database fails, or the log's key does not open under this master key.
pub fn sign_due(
    tx: &mut Tx<'_>,
    kind: EnvironmentKind,
    master: &MasterKey,
) -> Result<Option<(PublicLog, SignedCheckpoint)>, Fault> {
    let newest = public_log::newest(tx, kind)?.id;
    public_log::hold(tx, newest)?;
    // Read again, now that it is locked.
    let Some(before) = due(tx, kind)?.filter(|log| log.id == newest) else { return Ok(None) };
    let signed = sign(&before, master)?;
    if let Some(last) = unpublished(&before)? {
        if last.checkpoint() == signed.checkpoint() {
            return Ok(Some((before, last)));
        }
        if last.checkpoint().size() >= signed.checkpoint().size() {
            return Ok(None);
        }
    }
    public_log::put_checkpoints(tx, &PublicLog { signed: Some(signed.to_string()), ..before.clone() })?;
    Ok(Some((before, signed)))
}

/// Has the log's row say again what it said in `before`, when it was read to be signed: all witnesses have refused that
/// checkpoint. If it says something else by now, it stays.
///
/// # Errors
/// The database fails.
pub fn take_back(tx: &mut Tx<'_>, before: &PublicLog, refused: &SignedCheckpoint) -> Result<(), Fault> {
    public_log::hold(tx, before.id)?;
    let Some(mut found) = of_id(tx, before)? else { return Ok(()) };
    if unpublished(&found)?.as_ref() == Some(refused) {
        found.signed.clone_from(&before.signed);
        public_log::put_checkpoints(tx, &found)?;
    }
    Ok(())
}

/// Keeps the cosignatures of a checkpoint where the database has it, signed or published.
///
/// # Errors
/// The database fails.
pub fn keep_cosignatures(tx: &mut Tx<'_>, log: &PublicLog, cosigned: &SignedCheckpoint) -> Result<(), Fault> {
    public_log::hold(tx, log.id)?;
    let Some(mut found) = of_id(tx, log)? else { return Ok(()) };
    let (signed, published) = (unpublished(&found)?, published(&found)?);
    for (place, text) in [(signed, &mut found.signed), (published, &mut found.checkpoint)] {
        if let Some(mut old) = place.filter(|old| old.checkpoint() == cosigned.checkpoint()) {
            add_cosignatures(&mut old, cosigned);
            *text = Some(old.to_string());
        }
    }
    public_log::put_checkpoints(tx, &found)
}

fn add_cosignatures(to: &mut SignedCheckpoint, of: &SignedCheckpoint) {
    for signature in of.note().signatures() {
        add_cosignature(to, signature);
    }
}

/// Adds a cosignature to a checkpoint, unless the checkpoint could not be read again with it: it has as many as a note can, such
/// as those of witnesses that are not asked any more. Says whether it did.
pub fn add_cosignature(to: &mut SignedCheckpoint, signature: &NoteSignature) -> bool {
    let mut with = to.clone();
    with.add(signature.clone());
    let has_room = SignedCheckpoint::parse(with.to_string().as_bytes()).is_ok();
    if has_room {
        *to = with;
    }
    has_room
}

/// A log as the database has it by now.
fn of_id(tx: &mut Tx<'_>, log: &PublicLog) -> Result<Option<PublicLog>, Fault> {
    Ok(public_log::of_kind(tx, log.kind)?.into_iter().find(|found| found.id == log.id))
}

/// The newest checkpoint of the newest log of a kind, if that goes on and a configured witness has not cosigned it.
///
/// # Errors
/// The database fails.
pub fn uncosigned(
    tx: &mut Tx<'_>,
    kind: EnvironmentKind,
) -> Result<Option<(PublicLog, SignedCheckpoint)>, Fault> {
    let log = public_log::newest(tx, kind)?;
    let Some(signed) = published(&log)?.filter(|_| log.stopped.is_none()) else { return Ok(None) };
    let lacks = |witness: &Witness| !matches!(signed.cosignature(&witness.key), Ok(Some(_)));
    let is_lacking = witnesses::all(tx)?.iter().any(lacks);
    Ok(is_lacking.then_some((log, signed)))
}

/// Publishes a checkpoint, unless a greater one is published, or another log was begun meanwhile and has taken entries of it. To
/// one of the same size it adds cosignatures. `witnessed`: it has its quorum.
///
/// # Errors
/// The database fails.
pub fn publish(
    tx: &mut Tx<'_>,
    log: &PublicLog,
    (checkpoint, witnessed): (&SignedCheckpoint, bool),
) -> Result<(), Fault> {
    public_log::hold(tx, log.id)?;
    let said = checkpoint.checkpoint();
    let Some(mut found) = of_id(tx, log)? else { return Ok(()) };
    if found.tree.size() < said.size() {
        return Ok(());
    }
    // What stays of the one that is there: all of it, its cosignatures, or nothing.
    let merged = |text: Option<&String>| -> Result<Option<SignedCheckpoint>, Fault> {
        let Some(text) = text else { return Ok(Some(checkpoint.clone())) };
        let mut old = stored(&found, text)?;
        if old.checkpoint() == said {
            add_cosignatures(&mut old, checkpoint);
            return Ok(Some(old));
        }
        Ok((old.checkpoint().size() < said.size()).then(|| checkpoint.clone()))
    };
    let (published, has_quorum) = (merged(found.checkpoint.as_ref())?, merged(found.witnessed.as_ref())?);
    if let Some(newer) = has_quorum.filter(|_| witnessed) {
        found.witnessed = Some(newer.to_string());
    }
    if let Some(newer) = published {
        found.checkpoint = Some(newer.to_string());
    }
    if unpublished(&found)?.is_some_and(|signed| signed.checkpoint().size() <= said.size()) {
        found.signed = None;
    }
    public_log::put_checkpoints(tx, &found)
}

/// The last published checkpoint of a log that ends: the greater one of the database's and of `remembered`, which was signed
/// for it. If the log has what that says, it is published.
///
/// # Errors
/// The database fails, or a checkpoint is damaged.
pub fn end(
    tx: &mut Tx<'_>,
    log: &mut PublicLog,
    remembered: Option<SignedCheckpoint>,
) -> Result<Option<SignedCheckpoint>, Fault> {
    let published = published(log)?;
    let size = published.as_ref().map_or(0, |published| published.checkpoint().size());
    let Some(last) = remembered.filter(|last| last.checkpoint().size() > size) else { return Ok(published) };
    let key = verifier(log)?;
    match last.verify(&key) {
        Ok(_) => {}
        Err(CheckpointUntrusted::Unsigned { .. } | CheckpointUntrusted::Origin { .. }) => {
            return Ok(published);
        }
        Err(e) => return Err(Fault::corrupt(format!("the last checkpoint of {}: {e}", log.origin))),
    }
    if behind(tx, log, &last)?.is_none() {
        (log.signed, log.checkpoint) = (None, Some(last.to_string()));
        public_log::put_checkpoints(tx, log)?;
    }
    Ok(Some(last))
}

/// The newest published checkpoint of the logs of a kind.
///
/// # Errors
/// The database fails, or the checkpoint is damaged.
pub fn last_of_kind(tx: &mut Tx<'_>, kind: EnvironmentKind) -> Result<Option<SignedCheckpoint>, Fault> {
    let logs = public_log::of_kind(tx, kind)?;
    logs.iter().find_map(|log| published(log).transpose()).transpose()
}

fn verifier(log: &PublicLog) -> Result<VerifierKey, Fault> {
    VerifierKey::parse(&log.verifier_key)
        .map_err(|e| Fault::corrupt(format!("database: the key of the log {}: {e}", log.origin)))
}

/// The tree that a log had when it had `size` entries. None if it never had as many.
///
/// # Errors
/// The database fails, or a tile is damaged.
pub fn tree_at(tx: &mut Tx<'_>, log: &PublicLog, size: u64) -> Result<Option<Frontier>, Fault> {
    if size > log.tree.size() {
        return Ok(None);
    }
    let tiles = serve::tiles(tx, log, size, &Frontier::nodes(size))?;
    let edge = Frontier::read(size, &tiles).map_err(|e| Fault::corrupt(format!("{}: {e}", log.origin)))?;
    Ok(Some(edge))
}

/// Why a log must not grow: `last` was signed for it, and it does not have what that says. A checkpoint of another log, or by
/// another key, says nothing of it.
///
/// # Errors
/// The database fails.
pub fn behind(tx: &mut Tx<'_>, log: &PublicLog, last: &SignedCheckpoint) -> Result<Option<String>, Fault> {
    let checkpoint = match last.verify(&verifier(log)?) {
        Ok(checkpoint) => checkpoint,
        Err(CheckpointUntrusted::Unsigned { .. } | CheckpointUntrusted::Origin { .. }) => return Ok(None),
        Err(e) => return Err(Fault::corrupt(format!("the last checkpoint of {}: {e}", log.origin))),
    };
    let (size, has) = (checkpoint.size(), log.tree.size());
    Ok(match tree_at(tx, log, size)?.map(|tree| tree.root()) {
        None => {
            Some(format!("the log has {has} entries, and a checkpoint of {size} was signed: it was restored"))
        }
        Some(root) if root != *checkpoint.root() => {
            Some(format!("the log has other entries than the checkpoint of {size} that was signed"))
        }
        Some(_) => None,
    })
}
