//! The log as a whole: known answers, random trees against a naive one, and every byte of each format edited.

mod edits;
mod formats;
mod trees;
mod witnesses;

use super::*;

const ORIGIN: &str = "verdicts.example/log/sandbox";
const TOKEN: &str = "header.claims.signature";

fn log_key() -> SigningKey {
    SigningKey::new(ORIGIN, KeyKind::Note, &[7; 32]).unwrap()
}

fn witness_key(number: u8) -> SigningKey {
    let name = format!("w{number}.example");
    SigningKey::new(&name, KeyKind::Cosignature, &[number.wrapping_add(100); 32]).unwrap()
}

fn leaf(number: u64) -> Hash {
    Hash::of_leaf(&number.to_be_bytes())
}

/// The leaves of a tree of entries that are numbers.
fn leaves(size: u64) -> Vec<Hash> {
    (0..size).map(leaf).collect()
}

/// The root by the definition of RFC 6962, section 2.1.
fn naive_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Hash::sha256(b""),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            Hash::of_node(&naive_root(left), &naive_root(right))
        }
    }
}

/// All nodes of a tree, computed from its leaves.
#[derive(Debug)]
struct AllLeaves(Vec<Hash>);

impl NodeReader for AllLeaves {
    type Error = Node;

    fn node(&self, node: Node) -> Result<Hash, Node> {
        let first = usize::try_from(node.first_leaf()).unwrap();
        let end = first + usize::try_from(node.leaves()).unwrap();
        self.0.get(first..end).map(naive_root).ok_or(node)
    }
}

/// A decision's entry, for [`TOKEN`].
fn decision() -> Entry {
    let (tag, record) = (Hash::sha256(b"tag"), Hash::sha256(b"record"));
    Entry::Decision { tag, token: token_hash(TOKEN).unwrap(), record }
}

/// Five leaves, the third of which is [`decision`].
fn five() -> Vec<Hash> {
    let mut leaves = leaves(5);
    leaves[2] = decision().leaf();
    leaves
}

/// A checkpoint of [`five`], signed by the log and cosigned by two witnesses.
fn checkpoint() -> SignedCheckpoint {
    let mut signed = Checkpoint::new(ORIGIN, 5, root(five())).unwrap().sign(&log_key());
    for number in [1, 2] {
        let cosignature =
            cosign(&witness_key(number), signed.checkpoint(), 1_767_960_000 + u64::from(number));
        signed.add(cosignature);
    }
    signed
}

fn proof() -> LogProof {
    let Entry::Decision { tag, record, .. } = decision() else { panic!() };
    let hashes = prove_inclusion(2, 5, &AllLeaves(five())).unwrap();
    LogProof { extra: Some(decision_extra(&tag, &record)), index: 2, hashes, checkpoint: checkpoint() }
}

/// Two of two witnesses.
fn policy() -> Policy {
    let [one, two] = [1, 2].map(|number| witness_key(number).verifier().to_string());
    let log = log_key().verifier().to_string();
    let text =
        format!("log {log}\nwitness one {one}\nwitness two {two}\ngroup both all one two\nquorum both\n");
    Policy::parse(text.as_bytes()).unwrap()
}
