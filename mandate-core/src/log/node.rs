//! The nodes of a Merkle tree: which of them make up a range of leaves, and how their hashes make up its hash.

use super::hash::Hash;

/// The largest tree, in leaves. Databases and other implementations hold sizes as signed numbers of 64 bits.
pub const MAX_TREE_SIZE: u64 = i64::MAX as u64;

/// A node of the tree over 2^`level` leaves, the first of which is leaf `index` · 2^`level`. All of them are there: the hash
/// of a node never changes when the tree grows.
///
/// ```
/// use mandate_core::log::Node;
/// // Leaves 4 and 5.
/// let node = Node { level: 1, index: 2 };
/// assert_eq!((node.first_leaf(), node.leaves()), (4, 2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// The height above the leaves, which are at level 0. At most 62.
    pub level: u8,
    /// The place among the nodes of the level, from 0.
    pub index: u64,
}

/// Reads hashes of nodes, for example from tiles.
pub trait NodeReader {
    /// Why a hash could not be read.
    type Error;

    /// The hash of a node.
    ///
    /// # Errors
    /// It could not be read.
    fn node(&self, node: Node) -> Result<Hash, Self::Error>;
}

impl Node {
    /// The first leaf below it.
    #[must_use]
    pub fn first_leaf(self) -> u64 {
        self.index.unbounded_shl(u32::from(self.level))
    }

    /// How many leaves are below it.
    #[must_use]
    pub fn leaves(self) -> u64 {
        1_u64.unbounded_shl(u32::from(self.level))
    }
}

/// Leaves `first..end`, as they occur in a tree: `first` is a multiple of a power of two that is at least their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leaves {
    pub(super) first: u64,
    pub(super) end: u64,
}

impl Leaves {
    pub(super) fn count(self) -> u64 {
        self.end.saturating_sub(self.first)
    }

    /// The two parts whose hashes make up the hash of these leaves (RFC 6962, section 2.1): the left one has the largest power
    /// of two that is less than their number. `None`: it is one leaf or none.
    pub(super) fn split(self) -> Option<(Self, Self)> {
        let last = self.count().checked_sub(1).and_then(u64::checked_ilog2)?;
        let middle = self.first.saturating_add(1_u64.unbounded_shl(last));
        Some((Self { first: self.first, end: middle }, Self { first: middle, end: self.end }))
    }

    /// The complete nodes that make up these leaves, from left to right. Each is smaller than the one before.
    pub(super) fn nodes(self) -> Vec<Node> {
        let (mut nodes, mut first) = (Vec::new(), self.first);
        while let Some(level) = self.end.saturating_sub(first).checked_ilog2() {
            let node =
                Node { level: u8::try_from(level).unwrap_or(u8::MAX), index: first.unbounded_shr(level) };
            nodes.push(node);
            first = first.saturating_add(node.leaves());
        }
        nodes
    }

    /// The hash of these leaves.
    pub(super) fn hash<R: NodeReader + ?Sized>(self, reader: &R) -> Result<Hash, R::Error> {
        let hashes: Vec<_> =
            self.nodes().into_iter().map(|node| reader.node(node)).collect::<Result<_, _>>()?;
        Ok(joined(&hashes))
    }
}

/// The hash of leaves from the hashes of their [`Leaves::nodes`].
pub(super) fn joined(hashes: &[Hash]) -> Hash {
    let joined = hashes.iter().rev().copied().reduce(|right, left| Hash::of_node(&left, &right));
    joined.unwrap_or_else(Hash::of_empty_tree)
}
