//! A long log, verified by what others wrote: `ct-merkle` for root and proofs, Node's cryptography for the signature. Neither is
//! used by the product.

use std::process::Command;

use ct_merkle::InclusionProof;
use ct_merkle::mem_backed_tree::MemoryBackedTree;
use mandate_core::log::{Hash, inclusion_nodes, prove_inclusion};
use mandate_server::error::Fault;
use mandate_server::service::public_log::serve;
use mandate_server::store::tx::Tx;
use mandate_tests::campaign;
use sha2::Sha256;

use crate::public_log::{add_made_up, entries, keeper, log, published};
use crate::world::World;

const CHECKPOINT: &str = include_str!("../../../tests/strangers/verify_checkpoint.js");
/// How many entries are proved.
const PROOFS: usize = 1_000;

/// What Node says of a checkpoint.
fn read_by_node(verifier_key: &str, checkpoint: &str) -> String {
    let ran = Command::new("node").args(["-e", CHECKPOINT, verifier_key, checkpoint]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim_end().to_owned()
}

/// 1,000,000 entries from a scale of 10 on.
#[tokio::test]
async fn strangers_agree_on_the_root_the_proofs_and_the_signature() {
    let many = if campaign::scale() >= 10 { 1_000_000 } else { 20_000 };
    let world = World::new().await;
    let keeper = keeper(&world, None);
    keeper.look().await;
    let before = log(&world).tree.size();
    add_made_up(&world, &keeper, many).await;

    let mut tree = MemoryBackedTree::<Sha256, Vec<u8>>::new();
    for entry in entries(&world) {
        tree.push(entry.to_bytes());
    }
    let (log, checkpoint, root) = (log(&world), published(&world), tree.root());
    assert_eq!((tree.len(), checkpoint.checkpoint().size()), (before + many, before + many));
    assert_eq!(checkpoint.checkpoint().root().as_bytes().as_slice(), root.as_bytes().as_slice());

    let text = checkpoint.to_string();
    let read = read_by_node(&log.verifier_key, &text);
    assert_eq!(read, text.lines().take(3).collect::<Vec<_>>().join(" "));
    let size = tree.len().to_string();
    let edited = text.replacen(&format!("\n{size}\n"), &format!("\n{}\n", tree.len() + 1), 1);
    assert_ne!(edited, text);
    assert_eq!(read_by_node(&log.verifier_key, &edited), "refused");

    // The proofs, from the tiles as they are served.
    let indices: Vec<u64> = (0..tree.len()).step_by(usize::try_from(many).unwrap() / PROOFS).collect();
    let (asked, size) = (indices.clone(), tree.len());
    let prove = move |tx: &mut Tx<'_>| -> Result<Vec<Vec<Hash>>, Fault> {
        let prove = |index: &u64| {
            let tiles = serve::tiles(tx, &log, size, &inclusion_nodes(*index, size))?;
            Ok(prove_inclusion(*index, size, &tiles).unwrap())
        };
        asked.iter().map(prove).collect()
    };
    let proofs = world.store.read(prove).await.unwrap().unwrap();
    assert!(proofs.len() >= PROOFS);
    for (index, hashes) in indices.into_iter().zip(proofs) {
        let bytes = hashes.iter().flat_map(|hash| *hash.as_bytes()).collect();
        let proof = InclusionProof::<Sha256>::try_from_bytes(bytes).unwrap();
        let place = usize::try_from(index).unwrap();
        let entry = tree.get(place).unwrap();
        root.verify_inclusion(entry, index, &proof).unwrap();
        assert!(root.verify_inclusion(entry, index + 1, &proof).is_err());
        assert_eq!(proof.as_bytes(), tree.prove_inclusion(place).as_bytes());
    }
}
