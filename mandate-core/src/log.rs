//! The public log: verdicts that were signed stay said, also against the operator of the service.
//!
//! A service appends an [`Entry`] for each decision to one Merkle tree (RFC 6962, RFC 9162), and publishes the tree in the
//! formats of C2SP: tiles ([`Tile`]), checkpoints ([`SignedCheckpoint`]), cosignatures of witnesses ([`cosign`]), policies
//! of verifiers ([`Policy`]) and proofs ([`LogProof`]).
//!
//! Like the rest of the library this has no I/O, no clock and no randomness. Every format is read strictly: what has two
//! spellings in lenient readers has one here. Every error has a `name` that stays the same from version to version.
//!
//! # Where to begin
//!
//! - **Verifying a proof**: [`VerifierKey::parse`], [`Policy::parse`], [`LogProof::parse`], [`LogProof::verify_decision`].
//! - **Appending**: [`Entry::to_bytes`], [`Frontier::append`], [`Tile::between`], [`Checkpoint::with_signature`].
//! - **Serving a proof**: [`TileSet`], [`prove_inclusion`], [`LogProof`].
//! - **Watching a log**: [`SignedCheckpoint::verify`], [`prove_consistency`], [`verify_consistency`], [`WatchKey`].
//! - **Witnessing**: [`AddCheckpoint`], [`WitnessedLog::decide`], [`cosign`].
//!
//! ```
//! use mandate_core::log::{Frontier, Hash, Tile};
//! let mut tree = Frontier::default();
//! let mut tile = Vec::new();
//! for entry in [b"one", b"two"] {
//!     tree.append(Hash::of_leaf(entry), |node, hash| {
//!         if node.level == 0 {
//!             tile.extend_from_slice(hash.as_bytes());
//!         }
//!     })?;
//! }
//! let paths: Vec<_> = Tile::between(0, tree.size()).map(Tile::path).collect();
//! assert_eq!(paths, ["tile/0/000.p/2", "tile/entries/000.p/2"]);
//! assert_eq!(tile.len(), 64);
//! # Ok::<(), mandate_core::log::TreeFull>(())
//! ```

mod base64;
mod bundle;
mod checkpoint;
mod cosignature;
mod decimal;
mod decision;
mod entry;
mod frontier;
mod hash;
mod key;
mod merkle;
mod node;
mod note;
mod policy;
mod proof;
#[cfg(test)]
mod tests;
mod tile;
mod tile_set;
mod witness;

pub use bundle::{MAX_ENTRY_BYTES, read_bundle, write_entry};
pub use checkpoint::{
    Checkpoint, CheckpointRefused, CheckpointUntrusted, MAX_ORIGIN_BYTES, SignedCheckpoint,
};
pub use cosignature::{Cosigned, cosign, cosignature, cosignature_message};
pub use decision::{decision_extra, decision_record};
pub use entry::{
    BlindSecret, COMMITMENT_BYTES, Entry, EntryRefused, KeyChange, KeyEvent, WatchKey, record_hash,
    token_hash,
};
pub use frontier::{Frontier, TreeFull, root};
pub use hash::{HASH_BYTES, Hash};
pub use key::{
    ED25519_KEY_BYTES, ED25519_SIGNATURE_BYTES, KeyKind, KeyRefused, MAX_KEY_NAME_BYTES, SigningKey,
    VerifierKey,
};
pub use merkle::{
    MerkleRefused, consistency_nodes, inclusion_nodes, prove_consistency, prove_inclusion,
    verify_consistency, verify_inclusion,
};
pub use node::{MAX_TREE_SIZE, Node, NodeReader};
pub use note::{MAX_NOTE_BYTES, MAX_SIGNATURES, Note, NoteRefused, NoteSignature};
pub use policy::{Accepted, MAX_POLICY_BYTES, MAX_POLICY_ITEMS, Policy, PolicyProblem, PolicyRefused};
pub use proof::{LogProof, MAX_EXTRA_BYTES, MAX_PROOF_BYTES, MAX_PROOF_HASHES, NotProved, ProofRefused};
pub use tile::{TILE_BYTES, TILE_WIDTH, Tile, TileKind, TileRefused, read_hashes};
pub use tile_set::{NodeMissing, TileSet};
pub use witness::{
    AddCheckpoint, CONFLICT_CONTENT_TYPE, MAX_ADD_CHECKPOINT_BYTES, WitnessRefused, WitnessedLog,
    read_conflict, write_conflict,
};
