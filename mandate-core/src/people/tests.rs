//! A passkey in memory, and every check of its answers.

use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::es256::{SecretKey, Signer as _, p256};
use crate::json::Object;
use crate::jwks::Kid;
use crate::{
    AgentId, AgentName, Amount, Category, Currency, DecisionId, EnvironmentKind, MandateId, PersonId,
    Recipient, ReviewId, Timestamp,
};

mod edits;
mod refusals;

pub(crate) const ORIGIN: &str = "https://console.example";

/// User present and verified.
pub(crate) const VERIFIED: u8 = 0b101;
/// And a new key.
pub(crate) const WITH_KEY: u8 = VERIFIED | 0b0100_0000;

pub(crate) fn party() -> RelyingParty {
    RelyingParty::of_origin(ORIGIN).unwrap()
}

fn secret() -> SecretKey {
    SecretKey::from_bytes([9; 32]).unwrap()
}

pub(crate) fn key() -> PersonKey {
    PersonKey::from(*secret().public_key())
}

pub(crate) fn credential() -> CredentialId {
    CredentialId::from_bytes(&[0xc1; 16]).unwrap()
}

pub(crate) fn client_data(kind: &str, challenge: &[u8], origin: &str) -> Vec<u8> {
    let challenge = crate::base64url::encode(challenge);
    format!(r#"{{"type":"{kind}","challenge":"{challenge}","origin":"{origin}","crossOrigin":false}}"#).into()
}

/// The head of an authenticator's data, and what follows the counter.
pub(crate) fn authenticator_data(flags: u8, rest: &[u8]) -> Vec<u8> {
    [Sha256::digest("console.example").as_slice(), &[flags, 0, 0, 0, 1], rest].concat()
}

/// An integer of a signature in DER.
fn integer(half: &[u8]) -> Vec<u8> {
    let digits = &half[half.iter().position(|byte| *byte != 0).unwrap()..];
    let sign: &[u8] = if digits[0] < 0x80 { &[] } else { &[0] };
    let length = u8::try_from(sign.len() + digits.len()).unwrap();
    [&[2, length], sign, digits].concat()
}

/// The signature of the passkey over both, in DER.
pub(crate) fn signature(authenticator_data: &[u8], client_data: &[u8]) -> Vec<u8> {
    let signer = p256::Signer::new(&secret(), Kid::parse("passkey").unwrap()).unwrap();
    let message = [authenticator_data, &Sha256::digest(client_data)].concat();
    let fixed = signer.sign(&message).unwrap();
    let parts = [integer(&fixed[..32]), integer(&fixed[32..])].concat();
    [&[0x30, u8::try_from(parts.len()).unwrap()], parts.as_slice()].concat()
}

/// An assertion that is signed, whatever it says.
pub(crate) fn assertion_of(authenticator_data: Vec<u8>, client_data: Vec<u8>) -> Assertion {
    let signature = signature(&authenticator_data, &client_data);
    Assertion { credential: credential(), authenticator_data, client_data, signature }
}

pub(crate) fn assertion(challenge: &[u8]) -> Assertion {
    assertion_of(authenticator_data(VERIFIED, &[]), client_data("webauthn.get", challenge, ORIGIN))
}

/// A statement about a payment of 40.50 USD.
pub(crate) fn statement(subject: impl FnOnce(Asked) -> Subject) -> Statement {
    let at = Timestamp::from_seconds(1_790_000_000);
    let asked = Asked {
        review: ReviewId::new(at, 1),
        decision: DecisionId::new(at, 2),
        amount: Amount::parse("40.50").unwrap(),
        currency: Currency::parse("USD").unwrap(),
        recipient: Recipient::parse("vendor:acme").unwrap(),
        category: Category::parse("software").unwrap(),
    };
    Statement {
        issuer: "https://verdicts.example".to_owned(),
        kind: EnvironmentKind::Production,
        organization: AgentName::parse("acme").unwrap(),
        subject: subject(asked),
        mandate: MandateId::new(at, 3),
        agent: AgentId::parse("agt_buyer").unwrap(),
        person: PersonId::new(at, 4),
        credential: credential(),
        nonce: [5; 32],
        expires: at.plus_seconds(120),
    }
}

pub(crate) fn answer_of(statement: String) -> Answer {
    let assertion = assertion(&challenge(&statement));
    Answer { statement, assertion }
}

/// A key of ES256 in COSE.
pub(crate) fn cose(x: &[u8], y: &[u8]) -> Vec<u8> {
    [&[0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 0x20], x, &[0x22, 0x58, 0x20], y].concat()
}

pub(crate) fn own_cose() -> Vec<u8> {
    cose(secret().public_key().x(), secret().public_key().y())
}

/// What follows the counter in a registration: model, id and key.
pub(crate) fn attested(id: &[u8], key: &[u8]) -> Vec<u8> {
    let length = u16::try_from(id.len()).unwrap().to_be_bytes();
    [&[0xaa; 16], length.as_slice(), id, key].concat()
}

pub(crate) fn registration(flags: u8, rest: &[u8]) -> Registration {
    Registration {
        authenticator_data: authenticator_data(flags, rest),
        client_data: client_data("webauthn.create", &[6; 32], ORIGIN),
    }
}

#[test]
fn an_answer_verifies_and_comes_back() {
    for subject in [
        Subject::Approve,
        |asked| Subject::Deny(asked, Some("too \"dear\"\n".to_owned())),
        |asked| Subject::Deny(asked, None),
        |_| Subject::Stop,
    ] as [fn(Asked) -> Subject; 4]
    {
        let statement = statement(subject);
        let answer = answer_of(statement.to_json());
        assert_eq!(answer.verify(&party(), &key()), Ok(statement));
        let text = answer.to_json();
        assert_eq!(Answer::read(Object::parse(text.as_bytes()).unwrap()).unwrap(), answer);
        assert_eq!(crate::json::canonical(text.as_bytes()).unwrap(), text);
    }
}

#[test]
fn a_statement_is_these_bytes() {
    let text = r#"{"version":1,"issuer":"https://verdicts.example","kind":"production","organization":"acme","answer":"deny","review":"rev_01m3250v000000000000000001","decision":"dec_01m3250v000000000000000002","mandate":"mnd_01m3250v000000000000000003","agent":"agt_buyer","amount":40.5,"currency":"USD","recipient":"vendor:acme","category":"software","reason":"no","person":"per_01m3250v000000000000000004","credential":"wcHBwcHBwcHBwcHBwcHBwQ","nonce":"BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU","expires":"2026-09-21T14:15:20.000Z"}"#;
    assert_eq!(statement(|asked| Subject::Deny(asked, Some("no".to_owned()))).to_json(), text);
}

#[test]
fn a_registration_gives_the_key_and_whether_it_is_synced() {
    let rest = attested(&[7; 20], &own_cose());
    for (flags, extensions, is_synced) in
        [(WITH_KEY, &[][..], false), (WITH_KEY | 0b1000, &[], true), (WITH_KEY | 0b1001_1000, &[0xa0], true)]
    {
        let new = registration(flags, &[&rest, extensions].concat()).verify(&[6; 32], &party()).unwrap();
        let credential = CredentialId::from_bytes(&[7; 20]).unwrap();
        assert_eq!(new, NewKey { credential, key: key(), is_synced });
    }
}

proptest! {
    #[test]
    fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in ".{0,200}") {
        let _ = Statement::parse(&text);
        let _ = RelyingParty::of_origin(&text);
        prop_assert!(registration(WITH_KEY, &bytes).verify(&[6; 32], &party()).is_err());
        let odd = Assertion { signature: bytes.clone(), ..assertion(&[6; 32]) };
        prop_assert!(odd.verify(&[6; 32], &party(), &key()).is_err());
        let odd = Assertion { authenticator_data: bytes.clone(), client_data: bytes, ..assertion(&[6; 32]) };
        prop_assert!(odd.verify(&[6; 32], &party(), &key()).is_err());
    }
}
