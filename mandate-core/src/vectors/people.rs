//! A person's answers and registrations, good and bad, each with the check that refuses it.

use serde_json::{Value, json};

use super::check_file;
use crate::base64url::encode;
use crate::people::tests::{
    ORIGIN, VERIFIED, WITH_KEY, answer_of, assertion_of, attested, authenticator_data, client_data, key,
    own_cose, party, registration, statement,
};
use crate::people::{Answer, Asked, Registration, Subject, challenge};

const FILE: &str = include_str!("../../vectors/people.json");

fn approve() -> String {
    statement(Subject::Approve).to_json()
}

/// An approval whose assertion has these parts.
fn approval(flags: u8, kind: &str, origin: &str) -> Answer {
    let statement = approve();
    let client_data = client_data(kind, &challenge(&statement), origin);
    let assertion = assertion_of(authenticator_data(flags, &[]), client_data);
    Answer { statement, assertion }
}

fn answers() -> Vec<(&'static str, Answer, Option<&'static str>)> {
    let denied = |asked: Asked| Subject::Deny(asked, Some("not this month".to_owned()));
    let edited = |from: &str, to: &str| approve().replacen(from, to, 1);
    let mut signature = answer_of(approve());
    signature.assertion.signature[40] ^= 1;
    vec![
        ("an approval", answer_of(approve()), None),
        ("a denial with a reason", answer_of(statement(denied).to_json()), None),
        ("an agent is stopped", answer_of(statement(|_| Subject::Stop).to_json()), None),
        (
            "another amount than the one that was signed",
            Answer { statement: edited("40.5", "90.5"), ..answer_of(approve()) },
            Some("challenge"),
        ),
        ("an amount in another spelling", answer_of(edited("40.5", "40.50")), Some("statement")),
        ("white space in the statement", answer_of(edited(",", ", ")), Some("statement")),
        ("another passkey in the statement", answer_of(edited("\"wcHB", "\"wsHB")), Some("credential")),
        ("a registration", approval(VERIFIED, "webauthn.create", ORIGIN), Some("type")),
        ("another site", approval(VERIFIED, "webauthn.get", "https://evil.example"), Some("origin")),
        ("no user was present", approval(0b100, "webauthn.get", ORIGIN), Some("user_presence")),
        ("no user was verified", approval(0b001, "webauthn.get", ORIGIN), Some("user_verification")),
        ("an edited signature", signature, Some("signature")),
    ]
}

fn registrations() -> Vec<(&'static str, Registration, Option<&'static str>)> {
    let rest = attested(&[7; 20], &own_cose());
    let rsa = attested(&[7; 20], &[0xa4, 1, 3, 3, 0x39, 1, 0, 0x20, 0x59, 1, 0]);
    vec![
        ("a passkey of one device", registration(WITH_KEY, &rest), None),
        ("a synced passkey", registration(WITH_KEY | 0b1_1000, &rest), None),
        ("a key of RS256", registration(WITH_KEY, &rsa), Some("algorithm")),
        ("a key that is cut off", registration(WITH_KEY, &rest[..100]), Some("authenticator_data")),
        ("no user was verified", registration(WITH_KEY & !0b100, &rest), Some("user_verification")),
    ]
}

fn answer(name: &str, answer: &Answer, refused: Option<&str>) -> Value {
    let found = answer.verify(&party(), &key());
    assert_eq!(found.as_ref().err().map(crate::people::AnswerError::name), refused, "{name}: {found:?}");
    let object: Value = serde_json::from_str(&answer.to_json()).unwrap();
    json!({"name": name, "answer": object, "hash": answer.hash(), "refused": refused})
}

fn enrolled(name: &str, new: &Registration, refused: Option<&str>) -> Value {
    let found = new.verify(&[6; 32], &party());
    assert_eq!(
        found.as_ref().err().map(crate::people::RegistrationError::name),
        refused,
        "{name}: {found:?}"
    );
    let found = found.ok();
    json!({
        "name": name,
        "registration": {
            "authenticatorData": encode(&new.authenticator_data), "clientDataJSON": encode(&new.client_data)
        },
        "credential": found.as_ref().map(|new| new.credential.to_string()),
        "key": found.as_ref().map(|new| new.key.to_string()),
        "is_synced": found.map(|new| new.is_synced),
        "refused": refused,
    })
}

#[test]
fn the_file_is_what_the_table_of_answers_says() {
    let answers: Vec<_> = answers().iter().map(|(name, it, refused)| answer(name, it, *refused)).collect();
    let new: Vec<_> =
        registrations().iter().map(|(name, it, refused)| enrolled(name, it, *refused)).collect();
    let description = "Answers that people signed with a passkey, and registrations of passkeys. `refused` names the \
        check that fails first; null: it is sound. The challenge of an answer is the SHA-256 of its statement; that of \
        each registration is `challenge`.";
    let file = json!({
        "description": description,
        "origin": ORIGIN,
        "relying_party": party().id(),
        "key": key(),
        "challenge": encode(&[6; 32]),
        "answers": answers,
        "registrations": new,
    });
    check_file("people.json", FILE, &file);
}
