//! `log.json`: roots, proofs of inclusion and consistency, whole proofs of decisions, entries, policies, checkpoints,
//! cosignatures and requests to witnesses of the public log.

mod witnessing;

use super::*;
use crate::es256::SecretKey as SigningSecret;
use crate::log::{
    Checkpoint, Entry, Frontier, Hash, KeyChange, KeyEvent, KeyKind, LogProof, Node, NodeReader, Policy,
    SigningKey, cosign, decision_extra, prove_consistency, prove_inclusion, root, token_hash,
    verify_consistency, verify_inclusion,
};
use crate::{Timestamp, log::SignedCheckpoint};

const FILE: &str = include_str!("../../vectors/log.json");
const ORIGIN: &str = "verdicts.example/log/sandbox";
const TOKEN: &str = "header.claims.signature";

/// The leaves of a tree; entry number n is the 8 bytes of n, big-endian.
struct Leaves(Vec<Hash>);

impl NodeReader for Leaves {
    type Error = std::convert::Infallible;

    fn node(&self, node: Node) -> Result<Hash, Self::Error> {
        let first = usize::try_from(node.first_leaf()).unwrap();
        Ok(root(self.0[first..first + usize::try_from(node.leaves()).unwrap()].iter().copied()))
    }
}

fn leaves(size: u64) -> Leaves {
    Leaves((0..size).map(|number| Hash::of_leaf(&number.to_be_bytes())).collect())
}

fn texts(hashes: &[Hash]) -> Vec<String> {
    hashes.iter().map(ToString::to_string).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn log_key() -> SigningKey {
    SigningKey::new(ORIGIN, KeyKind::Note, &[7; 32]).unwrap()
}

fn witness(number: u8) -> SigningKey {
    SigningKey::new(&format!("w{number}.example"), KeyKind::Cosignature, &[number; 32]).unwrap()
}

fn decision() -> Entry {
    let (tag, record) = (Hash::sha256(b"tag"), Hash::sha256(b"record"));
    Entry::Decision { tag, token: token_hash(TOKEN).unwrap(), record }
}

/// The proof of a decision that is entry 2 of 5, in a checkpoint that both witnesses cosigned.
fn proof() -> LogProof {
    let mut five = leaves(5);
    five.0[2] = decision().leaf();
    let mut checkpoint = Checkpoint::new(ORIGIN, 5, root(five.0.iter().copied())).unwrap().sign(&log_key());
    for number in [1, 2] {
        let line = cosign(&witness(number), checkpoint.checkpoint(), 1_767_960_000);
        checkpoint.add(line);
    }
    let extra = Some(decision_extra(&Hash::sha256(b"tag"), &Hash::sha256(b"record")));
    LogProof { extra, index: 2, hashes: prove_inclusion(2, 5, &five).unwrap(), checkpoint }
}

fn policy() -> String {
    let [log, one, two] = [log_key(), witness(1), witness(2)].map(|key| key.verifier().to_string());
    format!("log {log}\nwitness one {one}\nwitness two {two}\ngroup both all one two\nquorum both\n")
}

fn trees() -> Vec<Value> {
    [1_u64, 2, 3, 4, 5, 7, 8, 13, 256, 257]
        .into_iter()
        .map(|size| {
            let all = leaves(size);
            let (index, old) = (size * 2 / 3, size.div_ceil(2));
            let old_root = Frontier::read(old, &all).unwrap().root();
            json!({"size": size, "root": root(all.0.iter().copied()).to_string(), "index": index,
                "inclusion": texts(&prove_inclusion(index, size, &all).unwrap()), "old": old,
                "old_root": old_root.to_string(),
                "consistency": texts(&prove_consistency(old, size, &all).unwrap())})
        })
        .collect()
}

/// The check that refuses a proof of the decision of [`TOKEN`] under [`policy`].
fn proof_check(text: &str) -> Option<&'static str> {
    match LogProof::parse(text.as_bytes()) {
        Err(refused) => Some(refused.name()),
        Ok(proof) => {
            let policy = Policy::parse(policy().as_bytes()).unwrap();
            proof.verify_decision(TOKEN, None, &policy).err().map(|not| not.name())
        }
    }
}

fn proofs() -> Vec<(&'static str, String, Option<&'static str>)> {
    let good = proof().to_string();
    let lines: Vec<_> = good.split_inclusive('\n').collect();
    let without = |place: usize| [&lines[..place], &lines[place + 1..]].concat().concat();
    let last = lines.len() - 1;
    let hash = lines[3].trim_end();
    vec![
        ("a decision", good.clone(), None),
        ("an unknown signature", good.clone() + "\u{2014} stranger.example AAAAAQI=\n", None),
        ("CRLF", good.replace('\n', "\r\n"), Some("proof_header")),
        ("no final line feed", good.trim_end().to_owned(), Some("note_end")),
        ("no extra data", without(1), Some("extra")),
        ("an index with a leading zero", good.replace("index 2", "index 02"), Some("proof_index")),
        ("another index", good.replace("index 2", "index 3"), Some("root")),
        ("an index that the log does not have", good.replace("index 2", "index 5"), Some("index")),
        ("the index twice", good.replace("index 2\n", "index 2\nindex 2\n"), Some("proof_hash")),
        ("a hash too few", without(3), Some("proof_length")),
        ("a hash without padding", good.replace(hash, hash.trim_end_matches('=')), Some("proof_hash")),
        ("another size", good.replace("\n5\n", "\n6\n"), Some("signature")),
        (
            "another origin",
            good.replacen(&format!("\n\n{ORIGIN}\n"), "\n\nother.example\n", 1),
            Some("origin"),
        ),
        ("without the log's signature", without(last - 2), Some("unsigned")),
        ("without a cosignature", without(last), Some("quorum")),
        ("a cosignature twice", good.clone() + lines[last], Some("signed_twice")),
    ]
}

fn entries() -> Vec<(&'static str, Vec<u8>)> {
    let public = *SigningSecret::from_bytes([7; 32]).unwrap().public_key();
    let event = |change| {
        let kid = Kid::for_key(&public, EnvironmentKind::Sandbox);
        Entry::Key(KeyEvent { change, at: Timestamp::from_seconds(1_767_960_000), kid, public })
    };
    let [tag, random, record] = [b"tag", b"rnd", b"rec"].map(|text| Hash::sha256(text));
    let published = event(KeyChange::Published).to_bytes();
    let changed = |place: usize, byte: u8| {
        let mut bytes = published.clone();
        bytes[place] = byte;
        bytes
    };
    vec![
        ("a decision", decision().to_bytes()),
        ("a governing record", Entry::Governing { tag, random, record }.to_bytes()),
        ("a key that was published", published.clone()),
        ("a key that was revoked", event(KeyChange::Revoked).to_bytes()),
        ("an older log", Entry::OlderLog(proof().checkpoint).to_bytes()),
        ("nothing", Vec::new()),
        ("an unknown type", changed(0, 5)),
        ("a decision of 96 bytes", decision().to_bytes()[..96].to_vec()),
        ("a decision of 98 bytes", [decision().to_bytes(), vec![0]].concat()),
        ("an unknown change of a key", changed(1, 4)),
        ("an instant before 1970", changed(2, 0xff)),
        ("a key that is no point", changed(10, published[10] ^ 1)),
        ("another key's thumbprint", changed(74, published[74] ^ 1)),
        ("a kid of another length", changed(106, published[106] - 1)),
        ("a kid with a space", changed(107, b' ')),
    ]
}

fn wanted() -> Value {
    let proofs: Vec<_> = proofs()
        .into_iter()
        .map(|(name, text, check)| json!({"name": name, "proof": text, "check": check}))
        .collect();
    let entries: Vec<_> = entries()
        .into_iter()
        .map(|(name, bytes)| {
            let check = Entry::parse(&bytes).err().map(|refused| refused.name());
            json!({"name": name, "entry": hex(&bytes), "check": check, "leaf": Hash::of_leaf(&bytes).to_string()})
        })
        .collect();
    let named = |key: &'static str, rows: Vec<(&'static str, String, Option<&'static str>)>| {
        let row = |(name, text, check)| json!({"name": name, key: text, "check": check});
        Value::Array(rows.into_iter().map(row).collect())
    };
    let cosignatures = witnessing::cosignatures().into_iter().map(
        |(name, text, seconds, check)| json!({"name": name, "checkpoint": text, "seconds": seconds, "check": check}),
    );
    let requests = witnessing::requests().into_iter().map(
        |(name, text, status, check)| json!({"name": name, "request": text, "status": status, "check": check}),
    );
    let (size, last) = witnessing::witnessed().last.unwrap();
    json!({"token": TOKEN, "policy": policy(), "log_key": log_key().verifier().to_string(),
        "trees": trees(), "proofs": proofs, "entries": entries,
        "policies": named("policy", witnessing::policies()),
        "checkpoints": named("checkpoint", witnessing::checkpoints()),
        "witness_key": witness(1).verifier().to_string(), "cosignatures": cosignatures.collect::<Vec<_>>(),
        "witnessed": {"size": size, "root": last.to_string()}, "requests": requests.collect::<Vec<_>>()})
}

#[test]
fn the_file_is_what_the_tables_say() {
    for (name, text, check) in proofs() {
        assert_eq!(proof_check(&text), check, "{name}");
    }
    for (name, text, check) in witnessing::policies() {
        assert_eq!(witnessing::policy_check(&text), check, "{name}");
    }
    for (name, text, check) in witnessing::checkpoints() {
        assert_eq!(witnessing::checkpoint_check(&text), check, "{name}");
    }
    for (name, text, seconds, check) in witnessing::cosignatures() {
        assert_eq!(witnessing::cosignature_check(&text), (seconds, check), "{name}");
    }
    for (name, text, status, check) in witnessing::requests() {
        assert_eq!(witnessing::request_check(&text), (status, check), "{name}");
    }
    check_file("log.json", FILE, &wanted());
}

/// The file as a reader in another language uses it.
#[test]
fn each_vector_has_its_result() {
    let file: Value = serde_json::from_str(FILE).unwrap();
    let hash = |value: &Value| Hash::parse(value.as_str().unwrap()).unwrap();
    let list = |value: &Value| value.as_array().unwrap().iter().map(hash).collect::<Vec<_>>();
    for tree in file["trees"].as_array().unwrap() {
        let number = |name: &str| tree[name].as_u64().unwrap();
        let (size, index, all) = (number("size"), number("index"), hash(&tree["root"]));
        let leaf = Hash::of_leaf(&index.to_be_bytes());
        assert_eq!(verify_inclusion(&leaf, index, size, &list(&tree["inclusion"]), &all), Ok(()));
        let old = (number("old"), &hash(&tree["old_root"]));
        assert_eq!(verify_consistency(old, (size, &all), &list(&tree["consistency"])), Ok(()));
    }
    for vector in file["proofs"].as_array().unwrap() {
        assert_eq!(proof_check(vector["proof"].as_str().unwrap()), vector["check"].as_str(), "{vector}");
    }
    for vector in file["entries"].as_array().unwrap() {
        let bytes = unhex(vector["entry"].as_str().unwrap());
        let check = Entry::parse(&bytes).err().map(|refused| refused.name());
        assert_eq!(check, vector["check"].as_str(), "{vector}");
        assert_eq!(Hash::of_leaf(&bytes), hash(&vector["leaf"]));
    }
    let rows = |list: &str| file[list].as_array().unwrap().clone();
    for vector in rows("policies") {
        let check = witnessing::policy_check(vector["policy"].as_str().unwrap());
        assert_eq!(check, vector["check"].as_str(), "{vector}");
    }
    for vector in rows("checkpoints") {
        let check = witnessing::checkpoint_check(vector["checkpoint"].as_str().unwrap());
        assert_eq!(check, vector["check"].as_str(), "{vector}");
    }
    for vector in rows("cosignatures") {
        let (seconds, check) = witnessing::cosignature_check(vector["checkpoint"].as_str().unwrap());
        assert_eq!((seconds, check), (vector["seconds"].as_u64(), vector["check"].as_str()), "{vector}");
    }
    for vector in rows("requests") {
        let (status, check) = witnessing::request_check(vector["request"].as_str().unwrap());
        assert_eq!(
            (Some(u64::from(status)), check),
            (vector["status"].as_u64(), vector["check"].as_str()),
            "{vector}"
        );
    }
    let checkpoint = SignedCheckpoint::parse(proof().checkpoint.to_string().as_bytes()).unwrap();
    assert!(checkpoint.verify(log_key().verifier()).is_ok());
}
