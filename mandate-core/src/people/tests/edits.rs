//! Every single bit of an answer turned over: refused, with the check that failed.

use std::collections::BTreeSet;

use super::*;

/// The names of the checks that refuse the edits of `bytes`, one for each bit.
fn edits(bytes: &[u8], verify: impl Fn(Vec<u8>) -> Option<&'static str>) -> BTreeSet<&'static str> {
    assert_eq!(verify(bytes.to_vec()), None, "unchanged");
    let edited = (0..bytes.len() * 8).map(|bit| {
        let mut edited = bytes.to_vec();
        edited[bit / 8] ^= 1 << (bit % 8);
        verify(edited).unwrap_or_else(|| panic!("bit {bit} is accepted"))
    });
    edited.collect()
}

fn refused(answer: &Answer, key: &PersonKey) -> Option<&'static str> {
    answer.verify(&party(), key).err().map(|refused| refused.name())
}

fn sound() -> Answer {
    answer_of(statement(Subject::Approve).to_json())
}

/// The answer with a part of its assertion changed.
fn with(change: impl FnOnce(&mut Assertion)) -> Answer {
    let mut answer = sound();
    change(&mut answer.assertion);
    answer
}

#[test]
fn of_the_statement() {
    let names = edits(sound().statement.as_bytes(), |bytes| match String::from_utf8(bytes) {
        Ok(statement) => refused(&Answer { statement, ..sound() }, &key()),
        Err(_) => Some("statement"),
    });
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["challenge", "credential", "statement"]);
}

#[test]
fn of_the_assertion() {
    let assertion = sound().assertion;
    let names = edits(&assertion.authenticator_data, |bytes| {
        refused(&with(|assertion| assertion.authenticator_data = bytes), &key())
    });
    let wanted = ["authenticator_data", "relying_party", "signature", "user_presence", "user_verification"];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), wanted);
    let names = edits(&assertion.client_data, |bytes| {
        refused(&with(|assertion| assertion.client_data = bytes), &key())
    });
    let wanted = ["challenge", "client_data", "origin", "signature", "type"];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), wanted);
    let names =
        edits(&assertion.signature, |bytes| refused(&with(|assertion| assertion.signature = bytes), &key()));
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["signature"]);
    let names = edits(assertion.credential.as_bytes(), |bytes| {
        let credential = CredentialId::from_bytes(&bytes).unwrap();
        refused(&with(|assertion| assertion.credential = credential), &key())
    });
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["credential"]);
}

#[test]
fn of_the_key() {
    let names = edits(&key().to_sec1(), |bytes| match PersonKey::from_sec1(&bytes) {
        Ok(other) => refused(&sound(), &other),
        Err(_) => Some("key"),
    });
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["key"]);
}

/// Nothing in a registration is signed. An edit is refused, names another passkey, or is in a part that is not read.
#[test]
fn of_a_registration() {
    let sound = registration(WITH_KEY, &attested(&[7; 20], &own_cose()));
    let new = sound.verify(&[6; 32], &party()).unwrap();
    let unread = |place: usize| (33..53).contains(&place);
    let names = edits(&sound.client_data, |bytes| {
        let edited = Registration { client_data: bytes, ..sound.clone() };
        match edited.verify(&[6; 32], &party()) {
            Err(refused) => Some(refused.name()),
            // A later member of another name.
            Ok(same) => (edited.client_data != sound.client_data && same == new).then_some("unknown member"),
        }
    });
    assert!(names.is_superset(&["challenge", "client_data", "origin", "type"].into()), "{names:?}");
    for place in 0..sound.authenticator_data.len() {
        let mut edited = sound.clone();
        edited.authenticator_data[place] ^= 1;
        if let Ok(found) = edited.verify(&[6; 32], &party()) {
            assert_eq!(found == new, unread(place), "byte {place}");
        }
    }
}
