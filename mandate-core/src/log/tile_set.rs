//! Tiles in memory, from which proofs are made.

use std::collections::{BTreeMap, BTreeSet};

use super::hash::Hash;
use super::merkle::{consistency_nodes, inclusion_nodes};
use super::node::{Node, NodeReader};
use super::tile::{Tile, TileKind, TileRefused, node_hash, read_hashes};

/// The tiles that a proof in a log of a given size needs. Ask which they are, fetch and insert them, make the proof.
///
/// ```
/// use mandate_core::log::{Frontier, Hash, Node, TileSet, prove_inclusion, root, verify_inclusion};
/// let leaves = [b"a", b"b", b"c"].map(|entry| Hash::of_leaf(entry));
/// let tile: Vec<u8> = leaves.iter().flat_map(|leaf| *leaf.as_bytes()).collect();
///
/// let mut tiles = TileSet::new(3);
/// for needed in tiles.for_inclusion(1) {
///     assert_eq!(needed.path(), "tile/0/000.p/3");
///     tiles.insert(needed, &tile)?;
/// }
/// let proof = prove_inclusion(1, 3, &tiles)?;
/// verify_inclusion(&leaves[1], 1, 3, &proof, &root(leaves))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct TileSet {
    size: u64,
    tiles: BTreeMap<(u8, u64), Vec<Hash>>,
}

/// A tile that a proof needs is not there, or is too narrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the hash of the node {} at level {} cannot be read: its tile is missing or too narrow", .node.index, .node.level)]
pub struct NodeMissing {
    /// The node that could not be read.
    pub node: Node,
}

impl TileSet {
    /// No tiles yet, of a log of `size` entries.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self { size, tiles: BTreeMap::new() }
    }

    /// The tiles of hashes that `nodes` need. Nodes that the log does not have need none.
    #[must_use]
    pub fn for_nodes(&self, nodes: &[Node]) -> BTreeSet<Tile> {
        nodes.iter().filter_map(|node| Tile::of_node(*node, self.size)).collect()
    }

    /// The tiles of hashes that a proof of the entry `index` needs.
    #[must_use]
    pub fn for_inclusion(&self, index: u64) -> BTreeSet<Tile> {
        self.for_nodes(&inclusion_nodes(index, self.size))
    }

    /// The tiles of hashes that a proof of consistency with the log at `old` entries needs.
    #[must_use]
    pub fn for_consistency(&self, old: u64) -> BTreeSet<Tile> {
        self.for_nodes(&consistency_nodes(old, self.size))
    }

    /// Takes the bytes of a tile of hashes. It may be wider than the log of this size has it: a log that has grown since
    /// serves the full tile. Bundles of entries are not taken.
    ///
    /// # Errors
    /// [`TileRefused::Bytes`]: they are not those of as many hashes.
    pub fn insert(&mut self, tile: Tile, bytes: &[u8]) -> Result<(), TileRefused> {
        if let TileKind::Hashes { level } = tile.kind {
            self.tiles.insert((level, tile.index), read_hashes(bytes, tile.width)?);
        }
        Ok(())
    }
}

impl NodeReader for TileSet {
    type Error = NodeMissing;

    fn node(&self, node: Node) -> Result<Hash, NodeMissing> {
        let tile = Tile::of_node(node, self.size);
        let hashes = tile.and_then(|tile| match tile.kind {
            TileKind::Hashes { level } => self.tiles.get(&(level, tile.index)),
            TileKind::Entries => None,
        });
        hashes.and_then(|hashes| node_hash(node, hashes)).ok_or(NodeMissing { node })
    }
}
