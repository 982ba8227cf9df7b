//! A growing tree of which only the rightmost nodes are kept: what an appender needs.

use super::hash::Hash;
use super::node::{Leaves, MAX_TREE_SIZE, Node, NodeReader, joined};

/// The complete nodes along the right edge of a tree, at most 63 hashes (a "compact range"). It gives the root, and grows by
/// a leaf at a time, without the rest of the tree.
///
/// ```
/// use mandate_core::log::{Frontier, Hash};
/// let mut tree = Frontier::default();
/// assert_eq!(tree.root(), Hash::of_empty_tree());
/// let [a, b] = [b"a", b"b"].map(|entry| Hash::of_leaf(entry));
/// tree.append(a, |_, _| {})?;
/// // The second leaf completes a node above both, too.
/// let mut completed = Vec::new();
/// tree.append(b, |node, _| completed.push((node.level, node.index)))?;
/// assert_eq!((tree.size(), tree.root()), (2, Hash::of_node(&a, &b)));
/// assert_eq!(completed, [(0, 1), (1, 0)]);
/// # Ok::<(), mandate_core::log::TreeFull>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// The hashes of the nodes of all leaves, from left to right.
    hashes: Vec<Hash>,
}

/// The tree has [`MAX_TREE_SIZE`] leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the log is full: it has {MAX_TREE_SIZE} entries")]
pub struct TreeFull;

impl Frontier {
    /// The frontier of a tree with `size` leaves, from the hashes of its nodes, from left to right. `None`: a tree of that
    /// size has another number of them.
    ///
    /// ```
    /// use mandate_core::log::{Frontier, Hash};
    /// let hash = Hash::of_leaf(b"a");
    /// assert!(Frontier::new(1, vec![hash]).is_some());
    /// assert!(Frontier::new(2, vec![hash, hash]).is_none());
    /// ```
    #[must_use]
    pub fn new(size: u64, hashes: Vec<Hash>) -> Option<Self> {
        let fits = size <= MAX_TREE_SIZE && u32::try_from(hashes.len()) == Ok(size.count_ones());
        fits.then_some(Self { size, hashes })
    }

    /// The frontier of a tree with `size` leaves whose nodes `reader` has.
    ///
    /// # Errors
    /// A node could not be read.
    pub fn read<R: NodeReader + ?Sized>(size: u64, reader: &R) -> Result<Self, R::Error> {
        let hashes = Self::nodes(size).into_iter().map(|node| reader.node(node)).collect::<Result<_, _>>()?;
        Ok(Self { size, hashes })
    }

    /// The nodes along the right edge of a tree with `size` leaves, from left to right.
    #[must_use]
    pub fn nodes(size: u64) -> Vec<Node> {
        Leaves { first: 0, end: size }.nodes()
    }

    /// How many leaves the tree has.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The hashes of [`Frontier::nodes`].
    #[must_use]
    pub fn hashes(&self) -> &[Hash] {
        &self.hashes
    }

    /// The root of the tree.
    #[must_use]
    pub fn root(&self) -> Hash {
        joined(&self.hashes)
    }

    /// Adds a leaf with this hash (see [`Hash::of_leaf`]). `completed` is called with the leaf's own node and with each node
    /// above it that this leaf completes, from below: the hashes at levels 0, 8, 16 … are those of tiles.
    ///
    /// # Errors
    /// The tree is full.
    pub fn append(&mut self, leaf: Hash, mut completed: impl FnMut(Node, Hash)) -> Result<(), TreeFull> {
        let index = self.size;
        if index >= MAX_TREE_SIZE {
            return Err(TreeFull);
        }
        let (mut node, mut hash) = (Node { level: 0, index }, leaf);
        completed(node, hash);
        // A node with an odd index completes the one above it.
        while node.index & 1 == 1 {
            let Some(left) = self.hashes.pop() else { break };
            hash = Hash::of_node(&left, &hash);
            node = Node { level: node.level.saturating_add(1), index: node.index >> 1 };
            completed(node, hash);
        }
        self.hashes.push(hash);
        self.size = index.saturating_add(1);
        Ok(())
    }
}

/// The root of a tree with these leaves.
///
/// ```
/// use mandate_core::log::{Hash, root};
/// assert_eq!(root([]), Hash::of_empty_tree());
/// assert_eq!(root([Hash::of_leaf(b"a")]), Hash::of_leaf(b"a"));
/// ```
#[must_use]
pub fn root(leaves: impl IntoIterator<Item = Hash>) -> Hash {
    let mut tree = Frontier::default();
    for leaf in leaves {
        // No iterator that ends in this age has 2⁶³ leaves.
        let _ = tree.append(leaf, |_, _| {});
    }
    tree.root()
}
