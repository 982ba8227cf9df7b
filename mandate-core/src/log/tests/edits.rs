//! Every single byte of each format edited: refused, with the check that failed, or another document.

use super::*;

/// The names of the checks that refuse the edits of `bytes`, one for each byte. `verify` gives the name, or nothing if the
/// edited bytes are accepted.
fn edits(
    bytes: &[u8],
    verify: impl Fn(&[u8]) -> Option<&'static str>,
) -> std::collections::BTreeSet<&'static str> {
    assert_eq!(verify(bytes), None, "unchanged");
    let mut names = std::collections::BTreeSet::new();
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut edited = bytes.to_vec();
            edited[place] ^= 1 << bit;
            names.insert(verify(&edited).unwrap_or_else(|| panic!("byte {place} is not covered")));
        }
        let removed = [&bytes[..place], &bytes[place + 1..]].concat();
        names.insert(verify(&removed).unwrap_or_else(|| panic!("byte {place} may be missing")));
        for byte in *b"\n\r =0" {
            let inserted = [&bytes[..place], &[byte], &bytes[place..]].concat();
            if inserted != *bytes {
                names.insert(
                    verify(&inserted).unwrap_or_else(|| panic!("{byte} may come before byte {place}")),
                );
            }
        }
        // Where a file is cut.
        names.insert(verify(&bytes[..place]).unwrap_or_else(|| panic!("{place} bytes are accepted")));
    }
    for byte in *b"\n\r =0" {
        names.insert(verify(&[bytes, &[byte]].concat()).unwrap_or_else(|| panic!("{byte} may come behind")));
    }
    names
}

#[test]
fn a_checkpoint() {
    let key = log_key();
    let signed = Checkpoint::new(ORIGIN, 5, root(five())).unwrap().sign(&key).to_string();
    let names = edits(signed.as_bytes(), |bytes| match SignedCheckpoint::parse(bytes) {
        Err(refused) => Some(refused.name()),
        Ok(read) => read.verify(key.verifier()).err().map(|untrusted| untrusted.name()),
    });
    for name in [
        "note_utf8",
        "note_control",
        "note_end",
        "note_blank_line",
        "signature_line",
        "tree_size",
        "root_hash",
    ] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    for name in ["origin", "unsigned", "signature"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
}

#[test]
fn a_cosignature() {
    let witness = witness_key(1);
    let checkpoint = Checkpoint::new(ORIGIN, 5, root(five())).unwrap().sign(&log_key());
    let line = format!("{}\n", cosign(&witness, checkpoint.checkpoint(), 1_767_960_000));
    let names = edits(line.as_bytes(), |bytes| {
        let mut with = checkpoint.clone();
        match NoteSignature::parse_lines(bytes) {
            Err(refused) => return Some(refused.name()),
            Ok(signatures) => signatures.into_iter().for_each(|signature| with.add(signature)),
        }
        match with.cosignature(witness.verifier()) {
            Err(untrusted) => Some(untrusted.name()),
            // Another key's: ignored.
            Ok(None) => Some("unknown"),
            Ok(Some(_)) => None,
        }
    });
    for name in ["signature_line", "cosignature", "unknown"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
}

#[test]
fn a_proof() {
    let (log, policy) = (log_key(), policy());
    let names = edits(proof().to_string().as_bytes(), |bytes| match LogProof::parse(bytes) {
        Err(refused) => Some(refused.name()),
        Ok(proof) => proof.verify_decision(TOKEN, Some(log.verifier()), &policy).err().map(|not| not.name()),
    });
    for name in ["proof_header", "extra", "proof_index", "proof_hash", "root", "quorum"] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
}

#[test]
fn entries() {
    let public = *crate::es256::SecretKey::from_bytes([7; 32]).unwrap().public_key();
    let kid = crate::jwks::Kid::parse("sandbox-1").unwrap();
    let at = crate::Timestamp::from_millis(1_767_960_000_123);
    let event = KeyEvent { change: KeyChange::Published, at, kid, public };
    let governing = Entry::Governing { tag: leaf(1), random: leaf(2), record: leaf(3) };
    for entry in [decision(), governing, Entry::Key(event), Entry::OlderLog(checkpoint())] {
        let bytes = entry.to_bytes();
        assert_eq!(Entry::parse(&bytes), Ok(entry.clone()));
        let root = root([leaf(0), entry.leaf()]);
        let names = edits(&bytes, |bytes| match Entry::parse(bytes) {
            Err(refused) => Some(refused.name()),
            Ok(other) => {
                // One spelling: what is read is written alike.
                assert_eq!(other.to_bytes(), bytes);
                verify_inclusion(&other.leaf(), 1, 2, &[leaf(0)], &root).err().map(|refused| refused.name())
            }
        });
        assert!(names.contains("entry_type") && names.contains("root"), "{names:?}");
    }
}

#[test]
fn tiles_and_bundles() {
    let entries: Vec<_> = (0..5_u64).map(u64::to_be_bytes).collect();
    let mut bundle = Vec::new();
    let mut tile = Vec::new();
    for entry in &entries {
        write_entry(&mut bundle, entry).unwrap();
        tile.extend_from_slice(Hash::of_leaf(entry).as_bytes());
    }
    let names = edits(&tile, |bytes| match read_hashes(bytes, 5) {
        Err(refused) => Some(refused.name()),
        Ok(hashes) => (root(hashes) != root(leaves(5))).then_some("root"),
    });
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["root", "tile_bytes"]);
    let names = edits(&bundle, |bytes| match read_bundle(bytes, 5) {
        Err(refused) => Some(refused.name()),
        Ok(entries) => {
            (root(entries.iter().map(|entry| Hash::of_leaf(entry))) != root(leaves(5))).then_some("root")
        }
    });
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["entries_behind", "entry_cut", "root"]);
}
