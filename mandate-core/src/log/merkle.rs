//! Proofs of inclusion and consistency (RFC 6962, sections 2.1.1 and 2.1.2).
//!
//! Both kinds of proof are lists of hashes of ranges of leaves. A walk from the root down gives the ranges; the proof has
//! them from below. Who makes a proof reads their hashes, who verifies one is given them.

use super::hash::Hash;
use super::node::{Leaves, Node, NodeReader};

/// Why a proof does not prove what it should.
///
/// ```
/// use mandate_core::log::{Hash, MerkleRefused, verify_inclusion};
/// let leaf = Hash::of_leaf(b"a");
/// let refused = verify_inclusion(&leaf, 1, 1, &[], &leaf).unwrap_err();
/// assert_eq!(refused, MerkleRefused::Index { index: 1, size: 1 });
/// assert_eq!(refused.name(), "index");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MerkleRefused {
    /// The tree has no entry with this index.
    #[error("a log of {size} entries has no entry with the index {index}")]
    Index {
        /// The index, from 0.
        index: u64,
        /// How many entries the tree has.
        size: u64,
    },
    /// The older tree is larger than the newer one.
    #[error("a log of {new} entries cannot be a later state of one with {old}")]
    Sizes {
        /// The size of the older tree.
        old: u64,
        /// The size of the newer tree.
        new: u64,
    },
    /// The proof has too many or too few hashes for these sizes.
    #[error("the proof must have {expected} hashes; got {found}")]
    Length {
        /// How many the proof must have.
        expected: usize,
        /// How many it has.
        found: usize,
    },
    /// The hashes do not lead to the root of the older tree.
    #[error("the proof does not lead to the root of the older tree")]
    OldRoot,
    /// The hashes do not lead to the root.
    #[error("the proof does not lead to the root of the tree")]
    Root,
}

impl MerkleRefused {
    /// The name of the check, which stays the same from version to version.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Index { .. } => "index",
            Self::Sizes { .. } => "sizes",
            Self::Length { .. } => "proof_length",
            Self::OldRoot => "old_root",
            Self::Root => "root",
        }
    }
}

/// The ranges whose hashes prove that leaf `index` is in a tree of `size`, from below. Empty if it cannot be.
fn inclusion_ranges(index: u64, size: u64) -> Vec<Leaves> {
    let (mut ranges, mut within) = (Vec::new(), Leaves { first: 0, end: size });
    while let Some((left, right)) = within.split().filter(|_| index < size) {
        let (inside, beside) = if index < left.end { (left, right) } else { (right, left) };
        ranges.push(beside);
        within = inside;
    }
    ranges.reverse();
    ranges
}

/// The ranges whose hashes prove that a tree of `old` leaves is the beginning of one with `new`, from below.
fn consistency_ranges(old: u64, new: u64) -> Vec<Leaves> {
    let (mut ranges, mut within) = (Vec::new(), Leaves { first: 0, end: new });
    if old == 0 || old >= new {
        return ranges;
    }
    while within.end != old {
        let Some((left, right)) = within.split() else { break };
        let (inside, beside) = if old <= left.end { (left, right) } else { (right, left) };
        ranges.push(beside);
        within = inside;
    }
    // If the older tree is one of the nodes, the verifier has its root already.
    if within.first != 0 {
        ranges.push(within);
    }
    ranges.reverse();
    ranges
}

fn hashes<R: NodeReader + ?Sized>(ranges: Vec<Leaves>, reader: &R) -> Result<Vec<Hash>, R::Error> {
    ranges.into_iter().map(|range| range.hash(reader)).collect()
}

/// The nodes that [`prove_inclusion`] reads.
#[must_use]
pub fn inclusion_nodes(index: u64, size: u64) -> Vec<Node> {
    inclusion_ranges(index, size).into_iter().flat_map(Leaves::nodes).collect()
}

/// The nodes that [`prove_consistency`] reads.
#[must_use]
pub fn consistency_nodes(old: u64, new: u64) -> Vec<Node> {
    consistency_ranges(old, new).into_iter().flat_map(Leaves::nodes).collect()
}

/// The proof that leaf `index` is in the tree of `size` leaves, from the leaf's sibling up. It is empty if the tree has only
/// that leaf, or not that leaf.
///
/// # Errors
/// A node could not be read.
pub fn prove_inclusion<R: NodeReader + ?Sized>(
    index: u64,
    size: u64,
    reader: &R,
) -> Result<Vec<Hash>, R::Error> {
    hashes(inclusion_ranges(index, size), reader)
}

/// The proof that the tree of `new` leaves begins with the tree of `old`. It is empty for `old` 0, and for equal sizes.
///
/// # Errors
/// A node could not be read.
pub fn prove_consistency<R: NodeReader + ?Sized>(
    old: u64,
    new: u64,
    reader: &R,
) -> Result<Vec<Hash>, R::Error> {
    hashes(consistency_ranges(old, new), reader)
}

fn check_length(ranges: &[Leaves], proof: &[Hash]) -> Result<(), MerkleRefused> {
    let (expected, found) = (ranges.len(), proof.len());
    if expected == found { Ok(()) } else { Err(MerkleRefused::Length { expected, found }) }
}

/// Checks that the tree with `size` leaves and this `root` has the leaf with the hash `leaf` at `index`.
///
/// ```
/// use mandate_core::log::{Hash, root, verify_inclusion};
/// let [a, b] = [b"a", b"b"].map(|entry| Hash::of_leaf(entry));
/// assert!(verify_inclusion(&a, 0, 2, &[b], &root([a, b])).is_ok());
/// assert!(verify_inclusion(&a, 1, 2, &[b], &root([a, b])).is_err());
/// ```
///
/// # Errors
/// The index is not below the size, the proof has another length, or it does not lead to the root.
pub fn verify_inclusion(
    leaf: &Hash,
    index: u64,
    size: u64,
    proof: &[Hash],
    root: &Hash,
) -> Result<(), MerkleRefused> {
    if index >= size {
        return Err(MerkleRefused::Index { index, size });
    }
    let ranges = inclusion_ranges(index, size);
    check_length(&ranges, proof)?;
    let found = ranges.iter().zip(proof).fold(*leaf, |hash, (range, sibling)| {
        if range.first > index { Hash::of_node(&hash, sibling) } else { Hash::of_node(sibling, &hash) }
    });
    if found == *root { Ok(()) } else { Err(MerkleRefused::Root) }
}

/// Checks that the tree with `new.0` leaves and the root `new.1` begins with the one of `old`.
///
/// ```
/// use mandate_core::log::{Hash, root, verify_consistency};
/// let [a, b] = [b"a", b"b"].map(|entry| Hash::of_leaf(entry));
/// assert!(verify_consistency((1, &a), (2, &root([a, b])), &[b]).is_ok());
/// ```
///
/// # Errors
/// The sizes do not ascend, the proof has another length, or it does not lead to one of the roots. The empty tree has the
/// root of [`Hash::of_empty_tree`], and no other.
pub fn verify_consistency(
    (old, old_root): (u64, &Hash),
    (new, new_root): (u64, &Hash),
    proof: &[Hash],
) -> Result<(), MerkleRefused> {
    if old > new {
        return Err(MerkleRefused::Sizes { old, new });
    }
    let ranges = consistency_ranges(old, new);
    if old == 0 || old == new {
        check_length(&[], proof)?;
        let empty = Hash::of_empty_tree();
        let same = if old == new { old_root == new_root } else { *old_root == empty };
        let sound = same && (new > 0 || *new_root == empty);
        return if sound { Ok(()) } else { Err(MerkleRefused::OldRoot) };
    }
    check_length(&ranges, proof)?;
    let mut steps = ranges.iter().zip(proof);
    // The largest node that ends where the older tree ends: the whole older tree, or the first hash of the proof.
    let whole = old.is_power_of_two();
    let first = if whole { Some(*old_root) } else { steps.next().map(|(_, hash)| *hash) };
    let Some(first) = first else {
        return Err(MerkleRefused::Length { expected: 1, found: 0 });
    };
    let (found_old, found_new) = steps.fold((first, first), |(old_hash, new_hash), (range, hash)| {
        if range.first >= old {
            (old_hash, Hash::of_node(&new_hash, hash))
        } else {
            (Hash::of_node(hash, &old_hash), Hash::of_node(hash, &new_hash))
        }
    });
    if found_old != *old_root {
        Err(MerkleRefused::OldRoot)
    } else if found_new != *new_root {
        Err(MerkleRefused::Root)
    } else {
        Ok(())
    }
}
