//! What the public listener serves of the logs.

use mandate_core::EnvironmentKind;
use mandate_core::log::{
    Entry, HASH_BYTES, Hash, LogProof, Node, Tile, TileKind, TileSet, decision_extra, inclusion_nodes,
    prove_inclusion,
};

use super::{append, keys, publish};
use crate::error::Fault;
use crate::store::sql::public_log::{self, ENTRIES, PublicLog, TilePlace};
use crate::store::tx::Tx;

/// Which log: its kind, and its number among those of the kind.
pub type Which = (EnvironmentKind, u64);

fn log(tx: &mut Tx<'_>, (kind, number): Which) -> Result<Option<PublicLog>, Fault> {
    Ok(public_log::of_kind(tx, kind)?.into_iter().find(|log| keys::number(&log.origin) == number))
}

/// The key that verifies the checkpoints of a log, as a line. None if there is no such log.
///
/// # Errors
/// The database fails.
pub fn key(tx: &mut Tx<'_>, which: Which) -> Result<Option<String>, Fault> {
    Ok(log(tx, which)?.map(|log| log.verifier_key + "\n"))
}

/// The key of the log that has begun in place of a log, as a line. None if that one goes on.
///
/// # Errors
/// The database fails.
pub fn next(tx: &mut Tx<'_>, which: Which) -> Result<Option<String>, Fault> {
    let (kind, number) = which;
    let mut logs = public_log::of_kind(tx, kind)?;
    logs.retain(|log| keys::number(&log.origin) > number);
    Ok(logs.pop().map(|log| log.verifier_key + "\n"))
}

/// Where the published entries of signing keys are in a log: for each a line with its number and the key's id. A hint that saves
/// readers the whole log. None if there is no such log.
///
/// # Errors
/// The database fails, or the checkpoint is damaged.
pub fn key_entries(tx: &mut Tx<'_>, which: Which) -> Result<Option<String>, Fault> {
    let Some(log) = log(tx, which)? else { return Ok(None) };
    let published = publish::published(&log)?.map_or(0, |signed| signed.checkpoint().size());
    Ok(Some(append::key_lines(&log.key_entries, published)))
}

/// The newest checkpoint of a log. None if none is published yet.
///
/// # Errors
/// The database fails.
pub fn checkpoint(tx: &mut Tx<'_>, which: Which) -> Result<Option<String>, Fault> {
    Ok(log(tx, which)?.and_then(|log| log.checkpoint))
}

/// A tile or a bundle of a log, as far as it is published: what caches keep for ever must not change. None if the log does not
/// have it.
///
/// # Errors
/// The database fails, or the checkpoint is damaged.
pub fn tile(tx: &mut Tx<'_>, which: Which, tile: Tile) -> Result<Option<Vec<u8>>, Fault> {
    let Some(log) = log(tx, which)? else { return Ok(None) };
    let published = publish::published(&log)?.map_or(0, |signed| signed.checkpoint().size());
    if tile.is_within(published) { read_tile(tx, &log, tile).map(Some) } else { Ok(None) }
}

/// Where the database has a tile.
pub(super) fn place(tile: Tile) -> Result<TilePlace, Fault> {
    let level = match tile.kind {
        TileKind::Hashes { level } => i64::from(level),
        TileKind::Entries => ENTRIES,
    };
    let number = i64::try_from(tile.index);
    Ok(TilePlace { level, tile: number.map_err(|_| Fault::new("a log has no tile of so great a number"))? })
}

/// What a tile that a log has holds.
///
/// # Errors
/// The database fails, or the tile is damaged.
pub fn read_tile(tx: &mut Tx<'_>, log: &PublicLog, tile: Tile) -> Result<Vec<u8>, Fault> {
    let damaged =
        || Fault::corrupt(format!("database: {} of the log {} is damaged", tile.path(), log.origin));
    let mut content = public_log::tile(tx, log.id, place(tile)?)?.ok_or_else(damaged)?;
    let bytes = match tile.kind {
        TileKind::Hashes { .. } => Some(usize::from(tile.width) * HASH_BYTES),
        TileKind::Entries => append::bytes_of_entries(&content, tile.width),
    };
    let bytes = bytes.filter(|bytes| *bytes <= content.len()).ok_or_else(damaged)?;
    // The tile may have grown since.
    content.truncate(bytes);
    Ok(content)
}

/// The tiles that have these nodes, of a log as it was with `size` entries.
///
/// # Errors
/// The database fails, or a tile is damaged.
pub fn tiles(tx: &mut Tx<'_>, log: &PublicLog, size: u64, nodes: &[Node]) -> Result<TileSet, Fault> {
    let mut tiles = TileSet::new(size);
    for tile in tiles.for_nodes(nodes) {
        let content = read_tile(tx, log, tile)?;
        tiles.insert(tile, &content).map_err(|e| Fault::corrupt(format!("{}: {e}", log.origin)))?;
    }
    Ok(tiles)
}

/// The proof that a token's decision is in a log of a kind, by the SHA-256 of the token's signing input. None if it is not
/// in one, or in none that has a checkpoint with it yet.
///
/// It names the newest checkpoint with its quorum of witnesses, if that has the entry, and otherwise the newest.
///
/// # Errors
/// The database fails, or what it has of the log is damaged.
pub fn proof(tx: &mut Tx<'_>, kind: EnvironmentKind, token: &Hash) -> Result<Option<String>, Fault> {
    Ok(find(tx, kind, token)?.map(|proof| proof.to_string()))
}

/// The same, as a value.
pub(super) fn find(tx: &mut Tx<'_>, kind: EnvironmentKind, token: &Hash) -> Result<Option<LogProof>, Fault> {
    for log in public_log::of_kind(tx, kind)? {
        let Some((index, entry)) = append::find(tx, &log, token)? else { continue };
        for text in [&log.witnessed, &log.checkpoint].into_iter().flatten() {
            let checkpoint = publish::stored(&log, text)?;
            let size = checkpoint.checkpoint().size();
            if index >= size {
                continue;
            }
            let damaged = |e: &dyn std::fmt::Display| Fault::corrupt(format!("{}: {e}", log.origin));
            let tiles = tiles(tx, &log, size, &inclusion_nodes(index, size))?;
            let hashes = prove_inclusion(index, size, &tiles).map_err(|e| damaged(&e))?;
            let Entry::Decision { tag, record, .. } = &entry else { continue };
            let extra = Some(decision_extra(tag, record));
            return Ok(Some(LogProof { extra, index, hashes, checkpoint }));
        }
    }
    Ok(None)
}
