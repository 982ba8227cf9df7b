//! Examples of the specifications, and spellings that lenient readers accept.

use super::*;

/// The example of the specification of signed notes.
#[test]
fn the_specifications_note_verifies() {
    let key =
        VerifierKey::parse("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k").unwrap();
    let text = "This is an example message.\n\n\u{2014} example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2O\
                NncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";
    let note = Note::parse(text.as_bytes()).unwrap();
    let signature = &note.signatures()[0];
    assert!(key.made(signature));
    assert!(key.verifies(note.text().as_bytes(), signature.bytes().try_into().unwrap()));
    assert!(!key.verifies(b"This is another message.\n", signature.bytes().try_into().unwrap()));
    assert_eq!(note.to_string(), text);
}

/// The examples of the specifications of checkpoints and cosignatures.
#[test]
fn the_specifications_checkpoint_is_read() {
    let text = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n\
        \u{2014} example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+\
        zyWE+xeMcTOAYQ8=\n\u{2014} witness.example.com/w1 jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJ\
        sX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n";
    let read = SignedCheckpoint::parse(text.as_bytes()).unwrap();
    assert_eq!((read.checkpoint().size(), read.note().signatures().len()), (20_852_163, 2));
    assert_eq!(read.to_string(), text);
    // The time of the cosignature is that of the specification's example of the signed message.
    assert_eq!(read.note().signatures()[1].bytes()[..8], 1_679_315_147_u64.to_be_bytes());
}

#[test]
fn an_empty_tree_has_one_root() {
    let key = log_key();
    let verified = |root| Checkpoint::new(ORIGIN, 0, root).unwrap().sign(&key).verify(key.verifier()).is_ok();
    assert!(verified(Hash::of_empty_tree()) && !verified(leaf(0)));
}

#[test]
fn malformed_checkpoints_are_refused() {
    let good = Checkpoint::new(ORIGIN, 5, root(five())).unwrap().to_string();
    let hash = root(five()).to_string();
    for (text, name) in [
        (good.clone(), None),
        (good.clone() + "an extension line\n", None),
        (good.trim_end().to_owned(), Some("checkpoint_lines")),
        (format!("{ORIGIN}\n5\n"), Some("checkpoint_lines")),
        (format!("\n5\n{hash}\n"), Some("checkpoint_lines")),
        (good.clone() + "\n", Some("checkpoint_lines")),
        (good.replace("\n5\n", "\n05\n"), Some("tree_size")),
        (good.replace("\n5\n", "\n+5\n"), Some("tree_size")),
        (good.replace("\n5\n", "\n9223372036854775808\n"), Some("tree_size")),
        (good.replace('=', ""), Some("root_hash")),
        (good.replace(&hash, "AAAA"), Some("root_hash")),
        (good.replace(ORIGIN, &"o".repeat(256)), Some("origin_form")),
    ] {
        assert_eq!(Checkpoint::parse(&text).err().map(|refused| refused.name()), name, "{text:?}");
    }
}

#[test]
fn notes_have_limits() {
    let line = "\u{2014} key.example AAAAAQI=\n";
    let note = |lines: usize| format!("text\n\n{}", line.repeat(lines));
    assert_eq!(Note::parse(note(MAX_SIGNATURES).as_bytes()).unwrap().signatures().len(), MAX_SIGNATURES);
    assert_eq!(Note::parse(note(MAX_SIGNATURES + 1).as_bytes()).unwrap_err(), NoteRefused::Signatures);
    let long = format!("{}\n\n{line}", "t".repeat(MAX_NOTE_BYTES));
    assert_eq!(Note::parse(long.as_bytes()).unwrap_err().name(), "note_size");
    for (text, name) in [
        (format!("text\n\n{}", line.replace('\n', "\r\n")), "note_control"),
        (format!("text\n\n{}", line.replace("AAAAAQI=", "AAAAAQJ=")), "signature_line"),
        (format!("text\n\n{}", line.replace("AAAAAQI=", "AAAAAQI")), "signature_line"),
        (format!("text\n\n{}", line.replace("AAAAAQI=", "AAAAAQ==")), "signature_line"),
        (format!("text\n\n{}", line.replace("key.example", "key+example")), "signature_line"),
        (format!("text\n\n{}", line.replace("key.example", "key\u{a0}example")), "signature_line"),
        (format!("text\n\n{}", line.replace('\u{2014}', "-")), "signature_line"),
        (format!("text\n\n{line}\n"), "signature_line"),
        (format!("text\n{line}"), "note_blank_line"),
        ("text\n\n".to_owned(), "signature_line"),
    ] {
        assert_eq!(Note::parse(text.as_bytes()).err().map(|refused| refused.name()), Some(name), "{text:?}");
    }
}

#[test]
fn keys_have_one_spelling_and_are_no_weak_points() {
    let good = log_key().verifier().to_string();
    let [name, id, key] = good.splitn(3, '+').collect::<Vec<_>>().try_into().unwrap();
    let weak = |byte: u8| {
        let mut point = [0; 32];
        point[0] = byte;
        VerifierKey::new(ORIGIN, KeyKind::Note, &point).err()
    };
    // The neutral element, a point of order 4, and 2²⁵⁵ − 18, which is a second spelling of 1.
    assert_eq!([weak(1), weak(0)], [Some(KeyRefused::PublicKey); 2]);
    let mut second = [0xff; 32];
    (second[0], second[31]) = (0xee, 0x7f);
    assert_eq!(VerifierKey::new(ORIGIN, KeyKind::Note, &second).err(), Some(KeyRefused::PublicKey));
    for (text, wanted) in [
        (format!("{name}+{id}"), KeyRefused::Parts),
        (format!("+{id}+{key}"), KeyRefused::Name),
        (format!("a b+{id}+{key}"), KeyRefused::Name),
        (format!("{name}+{}+{key}", id.to_uppercase()), KeyRefused::Id),
        (format!("{name}x+{id}+{key}"), KeyRefused::Id),
        (format!("{name}+{id}+{key}="), KeyRefused::Encoding),
        (format!("{name}+{id}+{key}\n"), KeyRefused::Encoding),
        (format!("{name}+{id}+"), KeyRefused::Kind),
        (format!("{name}+{id}+Ag=="), KeyRefused::Kind),
        (format!("{name}+{id}+AQ=="), KeyRefused::PublicKey),
    ] {
        assert_eq!(VerifierKey::parse(&text), Err(wanted), "{text}");
    }
    assert_eq!(VerifierKey::parse(&good).unwrap(), *log_key().verifier());
    assert!(!format!("{:?}", log_key()).contains("0707"));
}

#[test]
fn paths_of_tiles_have_one_spelling() {
    for path in ["tile/0/000", "tile/63/x999/999", "tile/entries/x001/x234/067.p/255", "tile/7/001.p/1"] {
        assert_eq!(Tile::parse(path).map(Tile::path).as_deref(), Ok(path));
    }
    for (path, name) in [
        ("", "path"),
        ("/tile/0/000", "path"),
        ("tile/64/000", "path"),
        ("tile/00/000", "path"),
        ("tile/-1/000", "path"),
        ("tile/data/000", "path"),
        ("tile/0/", "index"),
        ("tile/0/0", "index"),
        ("tile/0/0000", "index"),
        ("tile/0/x000/001", "index"),
        ("tile/0/001/234", "index"),
        ("tile/0/x001/x234", "index"),
        ("tile/0/x001/+67", "index"),
        ("tile/0/x999/x999/x999/x999/x999/x999/x999/999", "index"),
        ("tile/0/000/", "index"),
        ("tile/0/000.p/0", "width"),
        ("tile/0/000.p/256", "width"),
        ("tile/0/000.p/01", "width"),
        ("tile/0/000.p/", "width"),
        ("tile/0/000.p/1.p/1", "width"),
    ] {
        assert_eq!(Tile::parse(path).err().map(|refused| refused.name()), Some(name), "{path}");
    }
}

#[test]
fn malformed_proofs_are_refused() {
    let good = proof().to_string();
    let hash = proof().hashes[0].to_string();
    for (text, name) in [
        (good.clone(), None),
        (good.replace('\n', "\r\n"), Some("proof_header")),
        (good.replace("@v1", "@v2"), Some("proof_header")),
        (good.replace("extra ", "extra"), Some("proof_index")),
        (good.replace("index 2", "index 02"), Some("proof_index")),
        (good.replace("index 2\n", "index 2\nindex 2\n"), Some("proof_hash")),
        (good.replace("index 2\n", "index 2\nextra AA==\n"), Some("proof_hash")),
        (good.replace(&hash, &hash.replace('=', "")), Some("proof_hash")),
        (good.replace(&hash, &format!("{hash}\n").repeat(64)), Some("proof_hashes")),
        (format!("{good}{}", "\n".repeat(MAX_PROOF_BYTES)), Some("proof_size")),
        (good.split_inclusive('\n').take(4).collect(), Some("proof_blank_line")),
        (good.trim_end().to_owned(), Some("note_end")),
    ] {
        let refused = LogProof::parse(text.as_bytes()).err();
        assert_eq!(refused.map(|refused| refused.name()), name, "{text}");
    }
    for extra in ["", "AR==", "AQ", "A"] {
        let text = format!("c2sp.org/tlog-proof@v1\nextra {extra}\nindex 0\n\n{}", checkpoint());
        assert_eq!(LogProof::parse(text.as_bytes()), Err(ProofRefused::Extra), "{extra}");
    }
    let short = LogProof { extra: Some(vec![1; 63]), ..proof() };
    assert_eq!(short.decision_entry(TOKEN), Err(NotProved::Extra));
    assert_eq!(LogProof { extra: None, ..proof() }.decision_entry(TOKEN), Err(NotProved::Extra));
    assert_eq!(proof().decision_entry("a.b"), Err(NotProved::Token));
    assert_eq!(proof().decision_entry(TOKEN), Ok(decision()));
}

#[test]
fn tags_and_blinds_are_those_of_the_definition() {
    use hmac::{Hmac, KeyInit, Mac};
    let mac = |parts: &[u8]| {
        let mac = Hmac::<sha2::Sha256>::new_from_slice(&[7; 32]).unwrap().chain_update(parts);
        Hash::new(mac.finalize().into_bytes().into())
    };
    let key = WatchKey::new([7; 32]);
    let agent = crate::AgentId::parse("agt_a").unwrap();
    assert_eq!(key.decision(&agent, 258), mac(b"\0\x01\x01\0\x05agt_a\0\x08\0\0\0\0\0\0\x01\x02"));
    assert_eq!(key.governing(3), mac(b"\0\x01\x02\0\x08\0\0\0\0\0\0\0\x03"));
    let blind = BlindSecret::new([7; 32]);
    let id = crate::DecisionId::parse("dec_01kjmr9s000000000000000001").unwrap();
    assert_eq!(blind.decision(id), mac(b"blinddec_01kjmr9s000000000000000001"));
    assert_eq!(blind.governing(10), mac(b"blind10"));
    assert_eq!(record_hash(&leaf(1), b"r"), Hash::sha256(&[leaf(1).as_bytes().as_slice(), b"r"].concat()));
    for text in
        ["", "watch_", "watch_AA", &key.reveal().replace("watch", "Watch"), &format!("{}=", key.reveal())]
    {
        assert!(WatchKey::parse(text).is_err_and(|refused| !refused.to_string().contains("AA")), "{text}");
    }
    assert_eq!(WatchKey::parse(&key.reveal()).unwrap().governing(3), key.governing(3));
}

#[test]
fn the_other_signature_of_a_token_has_the_same_hash() {
    assert_eq!(token_hash("a.b.c"), token_hash("a.b.d"));
    assert_ne!(token_hash("a.b.c"), token_hash("a.c.c"));
    for text in
        ["", "a", "a.b", "a.b.", "a.b.c.d", &format!("a.{}.c", "b".repeat(crate::jwt::MAX_TOKEN_BYTES))]
    {
        assert_eq!(token_hash(text), None);
    }
}
