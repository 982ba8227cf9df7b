//! Policies, bare checkpoints, cosignatures and requests to witnesses.

use super::*;
use crate::log::{AddCheckpoint, WitnessRefused, WitnessedLog};

/// When the witnesses of the vectors cosign.
const SECONDS: u64 = 1_767_960_000;

pub(super) fn policies() -> Vec<(&'static str, String, Option<&'static str>)> {
    let [log, one, two, three] =
        [log_key(), witness(1), witness(2), witness(3)].map(|key| key.verifier().to_string());
    let witnesses = format!("witness one {one}\nwitness two {two}\n");
    let with = |rest: &str| format!("{witnesses}{rest}");
    let edited = |key: &str| key.replacen('+', "+0", 1);
    vec![
        ("two of two, of one log", policy(), None),
        ("no witness", "quorum none\n".to_owned(), None),
        ("one witness", with("quorum two\n"), None),
        ("comments, tabs and blank lines", with("# a comment\n\n \t\nquorum\tone\n"), None),
        (
            "URLs",
            format!("log {log} https://l.example/\nwitness w {one} https://w.example/\nquorum w\n"),
            None,
        ),
        ("any of two", with("group any-one any one two\nquorum any-one\n"), None),
        (
            "a group in a group",
            with(&format!(
                "witness three {three}\ngroup inner 1 one two\ngroup outer 2 inner three\nquorum outer\n"
            )),
            None,
        ),
        ("empty", String::new(), Some("policy_quorum")),
        ("without a quorum", witnesses.clone(), Some("policy_quorum")),
        ("two quorums", with("quorum one\nquorum one\n"), Some("policy_quorum")),
        ("without a final line feed", with("quorum one"), Some("policy_end")),
        ("CRLF", "quorum none\r\n".to_owned(), Some("policy_character")),
        ("another word", with("quorums one\n"), Some("policy_word")),
        ("an uppercase word", "Quorum none\n".to_owned(), Some("policy_word")),
        ("a log without a key", "log\nquorum none\n".to_owned(), Some("policy_words")),
        ("a witness without a key", "witness one\nquorum none\n".to_owned(), Some("policy_words")),
        ("a group without members", with("group g any\nquorum g\n"), Some("policy_words")),
        ("a quorum of two words", with("quorum one two\n"), Some("policy_words")),
        ("a witness's key for a log", format!("log {one}\nquorum none\n"), Some("key_type")),
        ("a log's key for a witness", format!("witness w {log}\nquorum w\n"), Some("key_type")),
        ("a key with another id", format!("witness w {}\nquorum w\n", edited(&one)), Some("key_id")),
        ("a key of two parts", "log a+b\nquorum none\n".to_owned(), Some("key_parts")),
        ("a key twice", with(&format!("witness three {one}\nquorum one\n")), Some("duplicate_key")),
        ("a name twice", with(&format!("witness one {three}\nquorum one\n")), Some("duplicate_name")),
        ("a witness named none", format!("witness none {one}\nquorum none\n"), Some("duplicate_name")),
        ("an unknown quorum", with("quorum three\n"), Some("undefined")),
        ("a member that comes later", format!("group g any one\n{witnesses}quorum g\n"), Some("undefined")),
        ("a member twice", with("group g 1 one one\nquorum g\n"), Some("member_twice")),
        (
            "a member of two groups",
            with("group g any one\ngroup h any one\nquorum h\n"),
            Some("member_twice"),
        ),
        ("a threshold of 0", with("group g 0 one two\nquorum g\n"), Some("threshold")),
        ("a threshold of 3 of 2", with("group g 3 one two\nquorum g\n"), Some("threshold")),
        ("a threshold with a leading zero", with("group g 01 one two\nquorum g\n"), Some("threshold")),
    ]
}

pub(super) fn policy_check(text: &str) -> Option<&'static str> {
    Policy::parse(text.as_bytes()).err().map(|refused| refused.name())
}

/// The checkpoint of five leaves.
fn five() -> Checkpoint {
    Checkpoint::new(ORIGIN, 5, root(leaves(5).0)).unwrap()
}

pub(super) fn checkpoints() -> Vec<(&'static str, String, Option<&'static str>)> {
    let good = five().sign(&log_key()).to_string();
    let empty = |root| Checkpoint::new(ORIGIN, 0, root).unwrap().sign(&log_key()).to_string();
    let other = SigningKey::new(ORIGIN, KeyKind::Note, &[8; 32]).unwrap();
    let line = good.split_inclusive('\n').next_back().unwrap();
    let extended = |line: &str| {
        let text = format!("{}{line}", five());
        Checkpoint::parse(&text).unwrap().sign(&log_key()).to_string()
    };
    vec![
        ("five entries", good.clone(), None),
        ("an empty log", empty(Hash::of_empty_tree()), None),
        ("an extension line", extended("an extension\n"), None),
        ("a signature of a stranger", good.clone() + "\u{2014} stranger.example AAAAAQI=\n", None),
        ("an empty log with another root", empty(Hash::of_leaf(b"a")), Some("empty_root")),
        ("another key of the same name", five().sign(&other).to_string(), Some("unsigned")),
        ("the signature twice", format!("{good}{line}"), Some("signed_twice")),
        ("another size", good.replace("\n5\n", "\n4\n"), Some("signature")),
        ("another origin", good.replacen(ORIGIN, "other.example", 1), Some("origin")),
        ("a size with a leading zero", good.replace("\n5\n", "\n05\n"), Some("tree_size")),
        ("a size with a sign", good.replace("\n5\n", "\n+5\n"), Some("tree_size")),
        ("a size of 2\u{2076}\u{00b3}", good.replace("\n5\n", "\n9223372036854775808\n"), Some("tree_size")),
        ("a root without padding", good.replacen("=\n", "\n", 1), Some("root_hash")),
        ("two lines of text", good.replacen("\n5\n", "\n", 1), Some("checkpoint_lines")),
        ("a blank line in the text", good.replacen("\n5\n", "\n5\n\n", 1), Some("checkpoint_lines")),
        ("CRLF", good.replace('\n', "\r\n"), Some("note_control")),
        ("no blank line", good.replace("\n\n", "\n"), Some("note_blank_line")),
        ("no final line feed", good.trim_end().to_owned(), Some("note_end")),
        ("a hyphen for the dash", good.replace('\u{2014}', "-"), Some("signature_line")),
        ("no signature", good.replace(line, ""), Some("signature_line")),
        ("nothing", String::new(), Some("note_end")),
    ]
}

pub(super) fn checkpoint_check(text: &str) -> Option<&'static str> {
    match SignedCheckpoint::parse(text.as_bytes()) {
        Err(refused) => Some(refused.name()),
        Ok(signed) => signed.verify(log_key().verifier()).err().map(|untrusted| untrusted.name()),
    }
}

/// Checkpoints, and when the first witness has cosigned them: never, where another has.
pub(super) fn cosignatures() -> Vec<(&'static str, String, Option<u64>, Option<&'static str>)> {
    let line = |key: &SigningKey, seconds| format!("{}\n", cosign(key, &five(), seconds));
    let signed = five().sign(&log_key()).to_string();
    let with = |lines: &[String]| format!("{signed}{}", lines.concat());
    let one = line(&witness(1), SECONDS);
    let of_another = format!(
        "{}\n",
        cosign(&witness(1), &Checkpoint::new(ORIGIN, 4, root(leaves(4).0)).unwrap(), SECONDS)
    );
    // The log's own signature under the witness's name has no time.
    let note = SigningKey::new("w1.example", KeyKind::Note, &[1; 32]).unwrap();
    let without_time = format!("{}\n", cosign(&note, &five(), SECONDS));
    vec![
        ("the witness", with(std::slice::from_ref(&one)), Some(SECONDS), None),
        ("two witnesses", with(&[line(&witness(2), 1), one.clone()]), Some(SECONDS), None),
        ("another witness", with(&[line(&witness(2), SECONDS)]), None, None),
        ("no witness", signed.clone(), None, None),
        ("a key of the same name and another type", with(&[without_time]), None, None),
        ("time 0", with(&[line(&witness(1), 0)]), None, Some("cosignature")),
        ("a time of 2\u{2076}\u{00b3}", with(&[line(&witness(1), 1 << 63)]), None, Some("cosignature")),
        ("of another checkpoint", with(&[of_another]), None, Some("cosignature")),
        ("twice", with(&[one.clone(), line(&witness(1), SECONDS + 1)]), None, Some("signed_twice")),
        ("without padding", with(&[one.replace('=', "")]), None, Some("signature_line")),
    ]
}

pub(super) fn cosignature_check(text: &str) -> (Option<u64>, Option<&'static str>) {
    let signed = match SignedCheckpoint::parse(text.as_bytes()) {
        Ok(signed) => signed,
        Err(refused) => return (None, Some(refused.name())),
    };
    match signed.cosignature(witness(1).verifier()) {
        Ok(cosigned) => (cosigned.map(|cosigned| u64::try_from(cosigned.seconds).unwrap()), None),
        Err(untrusted) => (None, Some(untrusted.name())),
    }
}

/// Requests to a witness that has cosigned three entries, with the status and the check of its answer.
pub(super) fn requests() -> Vec<(&'static str, String, u16, Option<&'static str>)> {
    let ask = |old: u64, all: &Leaves, key: &SigningKey| {
        let size = u64::try_from(all.0.len()).unwrap();
        let consistency = prove_consistency(old, size, all).unwrap();
        let checkpoint = Checkpoint::new(key.verifier().name(), size, root(all.0.iter().copied())).unwrap();
        AddCheckpoint { old, consistency, checkpoint: checkpoint.sign(key) }.to_string()
    };
    let good = ask(3, &leaves(5), &log_key());
    let mut fork = leaves(5);
    fork.0[1] = Hash::of_leaf(b"fork");
    let mut same_size = leaves(3);
    same_size.0[1] = Hash::of_leaf(b"fork");
    let other = SigningKey::new("other.example", KeyKind::Note, &[8; 32]).unwrap();
    let stranger = SigningKey::new(ORIGIN, KeyKind::Note, &[8; 32]).unwrap();
    let hash = good.lines().nth(1).unwrap();
    vec![
        ("two more entries", good.clone(), 200, None),
        ("the same size again", ask(3, &leaves(3), &log_key()), 200, None),
        ("from the beginning", ask(0, &leaves(5), &log_key()), 409, Some("conflict")),
        ("an older size", ask(2, &leaves(5), &log_key()), 409, Some("conflict")),
        ("a smaller log", good.replace("old 3", "old 6"), 400, Some("shrunk")),
        ("a fork", ask(3, &fork, &log_key()), 422, Some("old_root")),
        ("a fork of the same size", ask(3, &same_size, &log_key()), 422, Some("old_root")),
        ("a hash too few", good.replace(&format!("{hash}\n"), ""), 422, Some("proof_length")),
        ("another log", ask(3, &leaves(5), &other), 404, Some("unknown_log")),
        ("another key of the log's name", ask(3, &leaves(5), &stranger), 403, Some("unsigned")),
        ("another size than what was signed", good.replace("\n5\n", "\n6\n"), 403, Some("signature")),
        ("no old size", good.replace("old 3\n", ""), 400, Some("old")),
        ("an old size with a leading zero", good.replace("old 3", "old 03"), 400, Some("old")),
        ("a hash without padding", good.replace(hash, hash.trim_end_matches('=')), 400, Some("proof_hash")),
        ("64 hashes", good.replace(hash, &vec![hash; 64].join("\n")), 400, Some("proof_hashes")),
        ("no checkpoint", good.split_inclusive("\n\n").next().unwrap().to_owned(), 400, Some("note_end")),
        ("nothing", String::new(), 400, Some("old")),
    ]
}

/// What the witness of [`requests`] knows.
pub(super) fn witnessed() -> WitnessedLog {
    let root = root(leaves(3).0);
    WitnessedLog { keys: vec![log_key().verifier().clone()], last: Some((3, root)) }
}

pub(super) fn request_check(text: &str) -> (u16, Option<&'static str>) {
    let refused = |e: WitnessRefused| (e.status(), Some(e.name()));
    match AddCheckpoint::parse(text.as_bytes()) {
        Err(e) => refused(e),
        Ok(asked) => witnessed().decide(&asked).map_or_else(refused, |_| (200, None)),
    }
}
