//! `mandate log` against logs that are built from real tokens and served as files, honest and not.

mod audit;
mod edits;
mod files;
mod keys;
mod late;
mod monitor;
mod origins;
mod page;
mod proofs;
mod site;
mod witness;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use mandate_core::EnvironmentKind;
use mandate_core::Timestamp;
use mandate_core::log::{
    Checkpoint, Entry, Hash, KeyChange, KeyEvent, KeyKind, LogProof, Node, NodeReader, SignedCheckpoint,
    SigningKey, Tile, TileKind, WatchKey, cosign, decision_extra, prove_inclusion, root, token_hash,
    write_entry,
};
use serde_json::json;

use self::site::Site;
use crate::harness::{Ran, mandate};
use crate::issuer::{IAT, key, token};

/// A log in memory.
#[derive(Clone)]
struct TestLog {
    key: SigningKey,
    entries: Vec<Vec<u8>>,
    witnesses: Vec<SigningKey>,
    /// When the witnesses cosign.
    cosigned: u64,
}

/// All nodes, from the leaves.
struct Leaves(Vec<Hash>);

impl NodeReader for Leaves {
    type Error = std::convert::Infallible;

    fn node(&self, node: Node) -> Result<Hash, Self::Error> {
        let first = usize::try_from(node.first_leaf()).unwrap();
        Ok(root(self.0[first..first + usize::try_from(node.leaves()).unwrap()].iter().copied()))
    }
}

fn watch_key() -> WatchKey {
    WatchKey::new([5; 32])
}

fn witness(number: u8) -> SigningKey {
    SigningKey::new(&format!("w{number}.example"), KeyKind::Cosignature, &[number; 32]).unwrap()
}

/// The entry of a token's decision, and its tag and record.
fn decision(token: &str) -> Entry {
    let (tag, record) = (Hash::sha256(token.as_bytes()), Hash::sha256(b"record"));
    Entry::Decision { tag, token: token_hash(token).unwrap(), record }
}

fn key_event(change: KeyChange) -> Entry {
    let signer = key(EnvironmentKind::Sandbox);
    let (kid, public) = (signer.kid().clone(), *signer.public_key());
    Entry::Key(KeyEvent { change, at: Timestamp::from_seconds(IAT - 60), kid, public })
}

fn governing(number: u64) -> Entry {
    let [random, record] =
        ["random", "record"].map(|part| Hash::sha256(format!("{part} {number}").as_bytes()));
    Entry::Governing { tag: watch_key().governing(number), random, record }
}

/// Another environment's.
fn strange(number: u64) -> Entry {
    let [tag, token, record] =
        ["tag", "token", "record"].map(|part| Hash::sha256(format!("strange {part} {number}").as_bytes()));
    Entry::Decision { tag, token, record }
}

impl TestLog {
    fn new(origin: &str) -> Self {
        let key = SigningKey::new(origin, KeyKind::Note, &[7; 32]).unwrap();
        Self { key, entries: Vec::new(), witnesses: Vec::new(), cosigned: u64::try_from(IAT).unwrap() + 5 }
    }

    /// The log at a site, of the sandbox.
    fn at(site: &Site) -> Self {
        Self::new(&format!("{}/log/sandbox", site.address().trim_start_matches("http://")))
    }

    fn push(&mut self, entry: &Entry) -> u64 {
        self.entries.push(entry.to_bytes());
        u64::try_from(self.entries.len()).unwrap() - 1
    }

    fn strangers(&mut self, count: u64) {
        let first = u64::try_from(self.entries.len()).unwrap();
        (first..first + count).for_each(|number| {
            self.push(&strange(number));
        });
    }

    fn size(&self) -> u64 {
        u64::try_from(self.entries.len()).unwrap()
    }

    fn leaves(&self) -> Leaves {
        Leaves(self.entries.iter().map(|entry| Hash::of_leaf(entry)).collect())
    }

    fn checkpoint(&self) -> SignedCheckpoint {
        let root = root(self.leaves().0);
        let mut signed =
            Checkpoint::new(self.key.verifier().name(), self.size(), root).unwrap().sign(&self.key);
        for witness in &self.witnesses {
            let line = cosign(witness, signed.checkpoint(), self.cosigned);
            signed.add(line);
        }
        signed
    }

    fn proof(&self, index: u64, extra: Option<Vec<u8>>) -> LogProof {
        let hashes = prove_inclusion(index, self.size(), &self.leaves()).unwrap();
        LogProof { extra, index, hashes, checkpoint: self.checkpoint() }
    }

    /// The proof of a token's decision, as the service gives it.
    fn proof_of(&self, token: &str) -> String {
        let Entry::Decision { tag, record, .. } = decision(token) else { panic!() };
        let entry = decision(token).to_bytes();
        let index = self.entries.iter().position(|other| *other == entry).unwrap();
        self.proof(u64::try_from(index).unwrap(), Some(decision_extra(&tag, &record))).to_string()
    }

    fn tile(&self, tile: Tile) -> Vec<u8> {
        let first = tile.index * 256;
        let range = first..first + u64::from(tile.width);
        match tile.kind {
            TileKind::Entries => {
                let mut bundle = Vec::new();
                for index in range {
                    write_entry(&mut bundle, &self.entries[usize::try_from(index).unwrap()]).unwrap();
                }
                bundle
            }
            TileKind::Hashes { level } => {
                let leaves = self.leaves();
                let hash = |index| leaves.node(Node { level: level * 8, index }).unwrap();
                range.flat_map(|index| *hash(index).as_bytes()).collect()
            }
        }
    }

    /// All files of the log at its size, below its prefix.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files: BTreeMap<_, _> =
            Tile::between(0, self.size()).map(|tile| (tile.path(), self.tile(tile))).collect();
        files.insert("checkpoint".to_owned(), self.checkpoint().to_string().into_bytes());
        files.insert("key".to_owned(), format!("{}\n", self.key.verifier()).into_bytes());
        files
    }

    /// Serves the log at the site, in place of what was served there: the address is its origin.
    fn publish(&self, site: &Site) {
        let origin = self.key.verifier().name();
        let path = origin.split_once('/').map_or("log/sandbox", |(_, path)| path);
        site.serve(&format!("/{path}/"), self.files());
    }

    /// Serves the proof of a token.
    fn publish_proof(&self, site: &Site, token: &str) {
        site.add(&proof_path(token), self.proof_of(token).into_bytes());
    }

    /// Writes the log as `mandate-server log export` does.
    fn write(&self, folder: &Path) {
        for (path, bytes) in self.files() {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }

    fn verifier(&self) -> String {
        self.key.verifier().to_string()
    }
}

/// A policy that asks for these witnesses, all of them.
fn policy_of(witnesses: &[SigningKey]) -> String {
    let line = |key: &SigningKey| format!("witness {0} {1}\n", key.verifier().name(), key.verifier());
    let lines: Vec<_> = witnesses.iter().map(line).collect();
    let names: Vec<_> = witnesses.iter().map(|key| key.verifier().name()).collect();
    format!("{}group all all {}\nquorum all\n", lines.concat(), names.join(" "))
}

/// Where the service has the proof of a token.
fn proof_path(token: &str) -> String {
    proof_of_hash(&token_hash(token).unwrap())
}

/// Where it has the proof of the decision with this hash.
fn proof_of_hash(hash: &Hash) -> String {
    let hex = hash.as_bytes().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    format!("/log/sandbox/proof/{hex}")
}

#[expect(clippy::disallowed_methods, reason = "what a token says is compared with the clock of the binary")]
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// A token of the site's issuer.
fn token_of(site: &Site, number: u64) -> String {
    token(json!({"iss": site.address(), "nonce": format!("n_{number:026}")}))
}

/// `mandate log` with a folder for its configuration.
fn log(folder: &Path, args: &[&str]) -> Command {
    let mut command = mandate(&[&["log"], args].concat());
    command.env("MANDATE_CONFIG_DIR", folder.join("config"));
    command
}

fn ran(mut command: Command) -> Ran {
    command.output().unwrap().into()
}

fn write(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
