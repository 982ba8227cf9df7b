//! A long log, verified by what others wrote: `ct-merkle` for root and proofs, Node's cryptography for the signature, and
//! `aics-tlog` for all of it, from files. None is used by the product.

use std::path::Path;
use std::process::Command;

use ct_merkle::InclusionProof;
use ct_merkle::mem_backed_tree::MemoryBackedTree;
use mandate_core::log::{Hash, Tile, inclusion_nodes, prove_inclusion};
use mandate_server::error::Fault;
use mandate_server::service::public_log::serve;
use mandate_server::store::sql::public_log::PublicLog;
use mandate_server::store::tx::Tx;
use mandate_tests::command::log_strangers;
use mandate_tests::{Ran, campaign};
use sha2::Sha256;

use crate::public_log::{add_made_up, entries, keeper, log, published};
use crate::world::World;

const READ_LOG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/strangers/read_log.py");
const CHECKPOINT: &str = include_str!("../../../tests/strangers/verify_checkpoint.js");
/// How many entries are proved.
const PROOFS: usize = 1_000;

/// What Node says of a checkpoint.
fn read_by_node(verifier_key: &str, checkpoint: &str) -> String {
    let ran = Command::new("node").args(["-e", CHECKPOINT, verifier_key, checkpoint]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim_end().to_owned()
}

/// Writes a log of so many entries as files.
async fn write_files(world: &World, log: &PublicLog, size: u64, folder: &Path) {
    let log = log.clone();
    let read = move |tx: &mut Tx<'_>| -> Result<Vec<_>, Fault> {
        Tile::between(0, size).map(|tile| Ok((tile.path(), serve::read_tile(tx, &log, tile)?))).collect()
    };
    let mut files = world.store.read(read).await.unwrap().unwrap();
    files.push(("checkpoint".to_owned(), published(world).to_string().into_bytes()));
    for (path, bytes) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// What aics-tlog says of the log in a folder, and of proofs of its entries.
fn read_by_aics(programs: &Path, folder: &Path, verifier_key: &str, proofs: &[(u64, Vec<Hash>)]) -> String {
    let hexadecimal =
        |hash: &Hash| hash.as_bytes().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let proofs: Vec<(u64, Vec<_>)> =
        proofs.iter().map(|(index, hashes)| (*index, hashes.iter().map(hexadecimal).collect())).collect();
    let mut command = Command::new(programs.join("python"));
    command.args([READ_LOG, &format!("file://{}", folder.display()), verifier_key]);
    Ran::with_stdin(&mut command, serde_json::to_string(&proofs).unwrap().as_bytes()).code(0).out
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
    let (asked, size, of) = (indices.clone(), tree.len(), log.clone());
    let prove = move |tx: &mut Tx<'_>| -> Result<Vec<Vec<Hash>>, Fault> {
        let prove = |index: &u64| {
            let tiles = serve::tiles(tx, &of, size, &inclusion_nodes(*index, size))?;
            Ok(prove_inclusion(*index, size, &tiles).unwrap())
        };
        asked.iter().map(prove).collect()
    };
    let proofs = world.store.read(prove).await.unwrap().unwrap();
    assert!(proofs.len() >= PROOFS);
    let proofs: Vec<_> = indices.into_iter().zip(proofs).collect();
    if let Some(programs) = log_strangers() {
        let folder = tempfile::tempdir().unwrap();
        write_files(&world, &log, size, folder.path()).await;
        let read = read_by_aics(&programs, folder.path(), &log.verifier_key, &proofs);
        assert!(
            read.starts_with(&format!("{size} ")) && read.ends_with(&format!(" {}\n", proofs.len())),
            "{read}"
        );
    }
    for (index, hashes) in proofs {
        let bytes = hashes.iter().flat_map(|hash| *hash.as_bytes()).collect();
        let proof = InclusionProof::<Sha256>::try_from_bytes(bytes).unwrap();
        let place = usize::try_from(index).unwrap();
        let entry = tree.get(place).unwrap();
        root.verify_inclusion(entry, index, &proof).unwrap();
        assert!(root.verify_inclusion(entry, index + 1, &proof).is_err());
        assert_eq!(proof.as_bytes(), tree.prove_inclusion(place).as_bytes());
    }
}
