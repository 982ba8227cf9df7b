//! Takes from the end of a log that ends what was never published: it moves to the log that follows.

use mandate_core::log::{Entry, TILE_WIDTH, Tile, TileKind};

use super::append::{RUN, entries_of, key_lines};
use super::{publish, serve};
use crate::error::Fault;
use crate::store::sql::public_log::{self, PublicLog};
use crate::store::tx::Tx;

/// Takes what the published checkpoint of a log does not have, and gives these entries. One that names an older log is left out.
pub(super) fn cut(tx: &mut Tx<'_>, log: &mut PublicLog) -> Result<Vec<Vec<u8>>, Fault> {
    let damaged = |what: &str| Fault::corrupt(format!("database: {} {what}", log.origin));
    let (size, has) =
        (publish::published(log)?.map_or(0, |published| published.checkpoint().size()), log.tree.size());
    let tree = publish::tree_at(tx, log, size)?;
    let tree = tree.ok_or_else(|| damaged("has fewer entries than its checkpoint"))?;
    let behind: Vec<_> = Tile::between(size, has).collect();
    let mut taken = Vec::new();
    for tile in behind.iter().filter(|tile| tile.kind == TileKind::Entries) {
        let bundle = serve::read_tile(tx, log, *tile)?;
        let entries = entries_of(&bundle).ok_or_else(|| damaged("has a bundle that ends within an entry"))?;
        let indexed = (tile.index * u64::from(TILE_WIDTH)..).zip(entries);
        let names_older = |entry: &[u8]| matches!(Entry::parse(entry), Ok(Entry::OlderLog(_)));
        let moved = indexed.filter(|(index, entry)| *index >= size && !names_older(entry));
        taken.extend(moved.map(|(_, entry)| entry.to_vec()));
    }
    let mut kept = Vec::new();
    for tile in Tile::between(0, size).filter(|tile| !tile.is_full()) {
        kept.push((serve::place(tile)?, serve::read_tile(tx, log, tile)?));
    }
    for tile in behind {
        public_log::remove_tile(tx, log.id, serve::place(tile)?)?;
    }
    for (place, content) in kept {
        public_log::put_tile(tx, log.id, place, content)?;
    }
    log.key_entries = key_lines(&log.key_entries, size);
    log.tree = tree;
    log.indexed = log.indexed.min(size / RUN * RUN);
    public_log::cut_places(tx, log.id, log.indexed / RUN)?;
    public_log::grow(tx, log)?;
    Ok(taken)
}
