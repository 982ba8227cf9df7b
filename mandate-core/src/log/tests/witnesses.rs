//! Policies and witnesses.

use super::*;

fn parsed(text: &str) -> Result<Policy, PolicyRefused> {
    Policy::parse(text.as_bytes())
}

/// `A`, `B` and `C` are keys of witnesses, `L` is the log's.
fn filled(text: &str) -> String {
    let keys = [("@A", 1), ("@B", 2), ("@C", 3)].map(|(short, number)| (short, witness_key(number)));
    let text = keys
        .iter()
        .fold(text.to_owned(), |text, (short, key)| text.replace(short, &key.verifier().to_string()));
    text.replace("@L", &log_key().verifier().to_string())
}

#[test]
fn quorums_count() {
    let cosigned_by = |numbers: &[u8]| {
        let mut signed = Checkpoint::new(ORIGIN, 5, root(five())).unwrap().sign(&log_key());
        for number in numbers {
            let cosignature = cosign(&witness_key(*number), signed.checkpoint(), 1);
            signed.add(cosignature);
        }
        signed
    };
    let all = "log @L\nwitness a @A\nwitness b @B\nwitness c @C\n";
    for (rule, wanted) in [
        ("quorum none\n", [true; 8]),
        ("quorum b\n", [false, false, true, true, false, false, true, true]),
        ("group g any a b c\nquorum g\n", [false, true, true, true, true, true, true, true]),
        ("group g 2 a b c\nquorum g\n", [false, false, false, true, false, true, true, true]),
        ("group g all a b c\nquorum g\n", [false, false, false, false, false, false, false, true]),
        (
            "group g any a b\ngroup h all g c\nquorum h\n",
            [false, false, false, false, false, true, true, true],
        ),
    ] {
        let policy = parsed(&(filled(all) + rule)).unwrap();
        for (mask, wanted) in wanted.into_iter().enumerate() {
            let numbers: Vec<u8> = (1..=3).filter(|number| mask & (1 << (number - 1)) != 0).collect();
            let accepted = policy.accept(&cosigned_by(&numbers), None);
            assert_eq!(accepted.is_ok(), wanted, "{rule} {numbers:?}");
            if let Ok(accepted) = accepted {
                assert_eq!(accepted.cosigned.len(), numbers.len());
            }
        }
    }
}

#[test]
fn malformed_policies_are_refused_by_line() {
    let many = "witness a @A\n".to_owned() + &"#\n".repeat(3);
    for (text, line, name) in [
        ("", 1, "policy_quorum"),
        ("quorum none", 1, "policy_end"),
        ("quorum none\r\n", 1, "policy_character"),
        ("# a comment\n\n \t\nquorum none\nquorum none\n", 5, "policy_quorum"),
        ("log @L\n", 1, "policy_quorum"),
        ("Quorum none\n", 1, "policy_word"),
        ("quorum\n", 1, "policy_words"),
        ("quorum a b\n", 1, "policy_words"),
        ("quorum a\nwitness a @A\n", 1, "undefined"),
        ("log @L https://a b\n", 1, "policy_words"),
        ("log @A\n", 1, "key_type"),
        ("witness l @L\n", 1, "key_type"),
        ("log a+b\n", 1, "key_parts"),
        ("log @L\nlog @L\n", 2, "duplicate_key"),
        ("witness a @A\nwitness b @A\n", 2, "duplicate_key"),
        ("witness a @A\nwitness a @B\n", 2, "duplicate_name"),
        ("witness none @A\n", 1, "duplicate_name"),
        ("witness a @A\ngroup a any a\n", 2, "duplicate_name"),
        ("witness a @A\ngroup g any\n", 2, "policy_words"),
        ("witness a @A\ngroup g 0 a\n", 2, "threshold"),
        ("witness a @A\ngroup g 2 a\n", 2, "threshold"),
        ("witness a @A\ngroup g 01 a\n", 2, "threshold"),
        ("witness a @A\ngroup g any none\n", 2, "undefined"),
        ("witness a @A\ngroup g any a a\n", 2, "member_twice"),
        ("witness a @A\ngroup g any a\ngroup h any a\n", 3, "member_twice"),
        ("group g any g\n", 1, "undefined"),
        (&many, 4, "policy_quorum"),
    ] {
        let refused = parsed(&filled(text)).unwrap_err();
        assert_eq!((refused.line, refused.name()), (line, name), "{text:?}");
    }
    assert!(parsed(&filled("\t witness \t a @A https://w.example/ \n#\x7e\nquorum\ta\n")).is_ok());
    // Names are bytes, and need not be text.
    let [key, bytes] = [witness_key(1).verifier().to_string().into_bytes(), b"\xff".to_vec()];
    let text = [b"witness ", &bytes[..], b" ", &key, b"\nquorum ", &bytes, b"\n"].concat();
    assert!(Policy::parse(&text).is_ok());
}

#[test]
fn only_the_pinned_log_is_accepted_and_only_if_the_policy_has_it() {
    let (signed, pinned) = (checkpoint(), log_key());
    let other = SigningKey::new(ORIGIN, KeyKind::Note, &[9; 32]).unwrap();
    let elsewhere = SigningKey::new("other.example", KeyKind::Note, &[7; 32]).unwrap();
    assert!(policy().accept(&signed, None).is_ok());
    assert!(policy().accept(&signed, Some(pinned.verifier())).is_ok());
    for key in [&other, &elsewhere] {
        let refused = policy().accept(&signed, Some(key.verifier())).unwrap_err();
        assert_eq!(refused.name(), "origin");
    }
    assert_eq!(Policy::none().accept(&signed, None).unwrap_err().name(), "origin");
    assert_eq!(Policy::none().accept(&signed, Some(other.verifier())).unwrap_err().name(), "unsigned");
    assert!(Policy::none().accept(&signed, Some(pinned.verifier())).unwrap().cosigned.is_empty());
}

#[test]
fn unknown_signatures_are_ignored_and_known_ones_must_verify_once() {
    let text = checkpoint().to_string();
    let line = |name: &str, id: u32| {
        let bytes = [&id.to_be_bytes()[..], &[1; 72]].concat();
        format!("\u{2014} {name} {}\n", super::super::base64::encode(&bytes))
    };
    let accepted = |text: &str| {
        let signed = SignedCheckpoint::parse(text.as_bytes()).unwrap();
        policy().accept(&signed, None).map_err(|refused| refused.name()).map(|_| ())
    };
    let witness = witness_key(1);
    let (name, id) = (witness.verifier().name(), witness.verifier().id());
    assert_eq!(accepted(&(text.clone() + &line("stranger.example", id) + &line(name, id ^ 1))), Ok(()));
    assert_eq!(accepted(&(text.clone() + &line("stranger.example", 1).repeat(2))), Ok(()));
    assert_eq!(accepted(&(text.clone() + &line(name, id))), Err("signed_twice"));
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    assert_eq!(accepted(&(text.clone() + lines[4])), Err("signed_twice"));
    let without: String = lines.iter().filter(|line| !line.contains(name)).copied().collect();
    assert_eq!(accepted(&without), Err("quorum"));
    assert_eq!(accepted(&(without + &line(name, id))), Err("cosignature"));
}

#[test]
fn a_witness_cosigns_what_is_consistent_and_nothing_else() {
    let (log, all) = (log_key(), leaves(9));
    let reader = AllLeaves(all.clone());
    let root_at = |size: usize| naive_root(&all[..size]);
    let signed = |size: u64, root: Hash| Checkpoint::new(ORIGIN, size, root).unwrap().sign(&log);
    let request = |old: u64, new: u64| AddCheckpoint {
        old,
        consistency: prove_consistency(old, new, &reader).unwrap(),
        checkpoint: signed(new, root_at(usize::try_from(new).unwrap())),
    };
    let keys = vec![log.verifier().clone()];
    let fresh = WitnessedLog { keys: keys.clone(), last: None };
    let at_five = WitnessedLog { keys: keys.clone(), last: Some((5, root_at(5))) };
    let answer = |known: &WitnessedLog, request: &AddCheckpoint| {
        let read = AddCheckpoint::parse(request.to_string().as_bytes()).unwrap();
        assert_eq!(read, *request);
        known.decide(&read).map(Checkpoint::size).map_err(|refused| (refused.status(), refused.name()))
    };
    assert_eq!(answer(&fresh, &request(0, 5)), Ok(5));
    assert_eq!(answer(&fresh, &request(0, 0)), Ok(0));
    assert_eq!(answer(&at_five, &request(5, 9)), Ok(9));
    assert_eq!(answer(&at_five, &request(5, 5)), Ok(5));
    assert_eq!(answer(&at_five, &request(0, 9)), Err((409, "conflict")));
    assert_eq!(answer(&fresh, &request(5, 9)), Err((409, "conflict")));
    let shrunk = AddCheckpoint { old: 5, ..request(0, 4) };
    assert_eq!(answer(&at_five, &shrunk), Err((400, "shrunk")));
    let fork = AddCheckpoint { checkpoint: signed(9, leaf(0)), ..request(5, 9) };
    assert_eq!(answer(&at_five, &fork), Err((422, "root")));
    let same_size = AddCheckpoint { checkpoint: signed(5, leaf(0)), ..request(5, 5) };
    assert_eq!(answer(&at_five, &same_size), Err((422, "old_root")));
    let more = AddCheckpoint { consistency: vec![leaf(0)], ..request(0, 5) };
    assert_eq!(answer(&fresh, &more), Err((422, "proof_length")));
    let empty = AddCheckpoint { checkpoint: signed(0, leaf(0)), ..request(0, 0) };
    assert_eq!(answer(&fresh, &empty), Err((422, "old_root")));
    let unknown = WitnessedLog { keys: vec![], last: None };
    assert_eq!(answer(&unknown, &request(0, 5)), Err((404, "unknown_log")));
    let other = SigningKey::new(ORIGIN, KeyKind::Note, &[9; 32]).unwrap();
    let others = WitnessedLog { keys: vec![other.verifier().clone()], last: None };
    assert_eq!(answer(&others, &request(0, 5)), Err((403, "unsigned")));
    let forged = Checkpoint::new(ORIGIN, 5, root_at(5)).unwrap().with_signature(log.verifier(), &[1; 64]);
    let forged = AddCheckpoint { checkpoint: forged, ..request(0, 5) };
    assert_eq!(answer(&fresh, &forged), Err((403, "signature")));
}

#[test]
fn malformed_requests_are_refused() {
    let checkpoint = checkpoint().to_string();
    let hash = leaf(0).to_string();
    for (body, name) in [
        (format!("old 1\n{hash}\n\n{checkpoint}"), None),
        (String::new(), Some("old")),
        (format!("old 01\n\n{checkpoint}"), Some("old")),
        (format!("old 1\r\n\n{checkpoint}"), Some("old")),
        (format!("old  1\n\n{checkpoint}"), Some("old")),
        (format!("old 1\nold 1\n\n{checkpoint}"), Some("proof_hash")),
        (format!("old 1\n{hash}\r\n\n{checkpoint}"), Some("proof_hash")),
        (format!("old 1\n{}\n\n{checkpoint}", hash.replace('=', "")), Some("proof_hash")),
        (format!("old 1\n{checkpoint}"), Some("proof_hash")),
        (format!("old 1\n{}\n{checkpoint}", format!("{hash}\n").repeat(64)), Some("proof_hashes")),
        (format!("old 1\n{hash}\n"), Some("proof_blank_line")),
        (format!("old 1\n\n{}", checkpoint.trim_end()), Some("note_end")),
        (format!("old 1\n\n{checkpoint}{}", " ".repeat(MAX_ADD_CHECKPOINT_BYTES)), Some("request_size")),
    ] {
        let refused = AddCheckpoint::parse(body.as_bytes()).err();
        assert_eq!(refused.as_ref().map(WitnessRefused::name), name, "{body}");
        assert!(refused.is_none_or(|refused| refused.status() == 400));
    }
}
