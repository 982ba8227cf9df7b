//! Reads entries against a verified checkpoint. Tiles and bundles are only bytes until their hashes lead to its root.

use indicatif::{ProgressBar, ProgressStyle};
use mandate_core::log::{
    Checkpoint, Frontier, Hash, TILE_WIDTH, Tile, TileSet, prove_inclusion, read_bundle, verify_inclusion,
};

use super::Refused;
use super::source::Source;
use crate::exit::Failure;

/// A log at the size of a checkpoint that was verified.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entries<'a> {
    pub(crate) source: &'a Source,
    pub(crate) checkpoint: &'a Checkpoint,
}

impl Entries<'_> {
    /// Reads all entries from `from` on, in order. What `see` gets is not proved before this returns: the root of the log
    /// when it had `from` entries, by the same proof.
    pub(crate) fn scan(
        &self,
        from: u64,
        mut see: impl FnMut(u64, &[u8]) -> Result<(), Failure>,
    ) -> Result<Hash, Failure> {
        let size = self.checkpoint.size();
        let mut tree = self.frontier(from)?;
        let before = tree.root();
        let progress = progress(size.saturating_sub(from));
        while tree.size() < size {
            let (index, wanted) = (tree.size(), Tile::of_entry(tree.size(), size));
            let Some(wanted) = wanted else { break };
            let (tile, bytes) = self.source.tile(wanted)?;
            let entries = read_bundle(&bytes, tile.width).map_err(|e| refused(tile, e.name(), e))?;
            let first = index.saturating_sub(tile.index.saturating_mul(u64::from(TILE_WIDTH)));
            let skipped = usize::try_from(first).unwrap_or(usize::MAX);
            let wanted = usize::from(wanted.width).saturating_sub(skipped);
            for entry in entries.into_iter().skip(skipped).take(wanted) {
                see(tree.size(), entry)?;
                tree.append(Hash::of_leaf(entry), |_, _| {}).map_err(|e| self.refused("tree_size", e))?;
            }
            progress.set_position(tree.size().saturating_sub(from));
        }
        progress.finish_and_clear();
        if tree.root() == *self.checkpoint.root() {
            return Ok(before);
        }
        Err(self.refused("root", "its entries and tiles do not lead to the root of its checkpoint"))
    }

    /// An entry, with the proof that it is in the log.
    pub(crate) fn entry(&self, index: u64) -> Result<(Vec<u8>, Vec<Hash>), Failure> {
        let size = self.checkpoint.size();
        let wanted = Tile::of_entry(index, size)
            .ok_or_else(|| self.refused("index", format!("a log of {size} entries has no entry {index}")))?;
        let (tile, bytes) = self.source.tile(wanted)?;
        let entries = read_bundle(&bytes, tile.width).map_err(|e| refused(tile, e.name(), e))?;
        let place = usize::try_from(index % u64::from(TILE_WIDTH)).unwrap_or(usize::MAX);
        let entry = entries.get(place).copied().unwrap_or_default().to_vec();
        let mut tiles = TileSet::new(size);
        self.fill(&mut tiles, TileSet::for_inclusion(&TileSet::new(size), index))?;
        let proof = prove_inclusion(index, size, &tiles).map_err(|e| self.refused("tile_width", e))?;
        verify_inclusion(&Hash::of_leaf(&entry), index, size, &proof, self.checkpoint.root())
            .map_err(|e| self.refused(e.name(), format!("entry {index} is not proved: {e}")))?;
        Ok((entry, proof))
    }

    fn frontier(&self, size: u64) -> Result<Frontier, Failure> {
        let mut tiles = TileSet::new(self.checkpoint.size());
        let wanted = tiles.for_nodes(&Frontier::nodes(size));
        self.fill(&mut tiles, wanted)?;
        Frontier::read(size, &tiles).map_err(|e| self.refused("tile_width", e))
    }

    fn fill(&self, tiles: &mut TileSet, wanted: impl IntoIterator<Item = Tile>) -> Result<(), Failure> {
        for tile in wanted {
            let (tile, bytes) = self.source.tile(tile)?;
            tiles.insert(tile, &bytes).map_err(|e| refused(tile, e.name(), e))?;
        }
        Ok(())
    }

    fn refused(&self, check: &'static str, why: impl ToString) -> Failure {
        Refused::new(check, why).of(&format!("the log at {}", self.source.place()))
    }
}

/// Shows on a terminal how far the reading of this many entries is.
fn progress(entries: u64) -> ProgressBar {
    let progress = ProgressBar::new(entries);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos} of {len} entries {eta}") {
        progress.set_style(style);
    }
    progress
}

fn refused(tile: Tile, check: &'static str, why: impl ToString) -> Failure {
    Refused::new(check, why).of(&format!("{} of the log", tile.path()))
}
