//! What people signed with their passkeys, in exports: what `mandate audit` finds, and `report --by person`.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use mandate_core::people::{Answer, Asked, Assertion, CredentialId, Statement, Subject, challenge};
use mandate_core::{
    AgentId, AgentName, Amount, Category, Currency, DecisionId, EnvironmentKind, MandateId, PersonId,
    Recipient, ReviewId, Timestamp,
};
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::audit::{check, decision, find, run};
use crate::export::{ISSUER, Plan, lines, sealed};
use crate::harness::{mandate, run_with_stdin};

const ORIGIN: &str = "https://console.example";

/// An export with one answer of a person's, before it is sealed.
struct Told {
    passkey: KeyPair,
    lines: Vec<String>,
    /// The governing records, in the order of their numbers.
    records: Vec<Value>,
    /// Which line is answered, and what the person signed.
    at: usize,
    statement: Statement,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(1_700_000_000 + second)
}

fn base64url(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn person() -> PersonId {
    PersonId::new(at(0), 1)
}

fn credential() -> CredentialId {
    CredentialId::from_bytes(&[1; 16]).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// What a person signs to deny this decision's review.
fn denial(decision: &Value) -> Statement {
    let request = &decision["request"];
    let asked = Asked {
        review: ReviewId::parse(text(&decision["review"]["id"])).unwrap(),
        decision: DecisionId::parse(text(&decision["jti"])).unwrap(),
        amount: Amount::parse(&request["amount"].to_string()).unwrap(),
        currency: Currency::parse(text(&request["currency"])).unwrap(),
        recipient: Recipient::parse(text(&request["recipient"])).unwrap(),
        category: Category::parse(text(&request["category"])).unwrap(),
    };
    Statement {
        issuer: ISSUER.to_owned(),
        kind: EnvironmentKind::Sandbox,
        organization: AgentName::parse("acme").unwrap(),
        subject: Subject::Deny(asked, Some("not now".to_owned())),
        mandate: MandateId::parse(text(&decision["mandate"])).unwrap(),
        agent: AgentId::parse(text(&request["agent"])).unwrap(),
        person: person(),
        credential: credential(),
        nonce: [5; 32],
        expires: at(120),
    }
}

impl Told {
    fn new() -> Self {
        let lines = lines(&Plan::new(1200, 3));
        let at_line = find(&lines, |d| d["review"]["status"] == "denied");
        let passkey = KeyPair::generate().unwrap();
        let enrolled = json!({"type": "person.key", "at": at(0).to_string(), "person": person(), "name": "Ada",
            "credential": credential(), "key": base64url(passkey.der_bytes()), "origin": ORIGIN});
        let statement = denial(&decision(&lines[at_line]));
        Self { passkey, lines, records: vec![enrolled], at: at_line, statement }
    }

    /// Signs a text at the console.
    fn signed(&self, statement: String, flags: u8) -> Answer {
        let asked = base64url(&challenge(&statement));
        let client_data = format!(r#"{{"type":"webauthn.get","challenge":"{asked}","origin":"{ORIGIN}"}}"#);
        let data = [Sha256::digest("console.example").as_slice(), &[flags, 0, 0, 0, 0]].concat();
        let message = [data.as_slice(), &Sha256::digest(&client_data)].concat();
        let signature = self.passkey.sign(&message).unwrap();
        let assertion = Assertion {
            credential: credential(),
            authenticator_data: data,
            client_data: client_data.into_bytes(),
            signature,
        };
        Answer { statement, assertion }
    }

    /// The export with this answer, whose governing record has the next number; then these records.
    fn sealed(&self, answer: &Answer, after: &[Value]) -> String {
        let mut row: Value = serde_json::from_str(&self.lines[self.at]).unwrap();
        let review = &mut row["decision"]["review"];
        review["reason"] = json!("not now");
        review["resolved_by"] = json!({"kind": "person", "id": person(), "name": "Ada"});
        review["answer"] = serde_json::from_str(&answer.to_json()).unwrap();
        let answered = json!({"type": "review.denied", "at": at(60).to_string(), "answer": answer.hash()});
        let records = self.records.iter().chain([&answered]).chain(after);
        let records =
            records.zip(1..).map(|(record, number)| governing(record, number).to_string()).collect();
        let mut lines = self.lines.clone();
        lines[self.at] = row.to_string();
        with_records(lines, records)
    }

    fn sound(&self) -> Answer {
        self.signed(self.statement.to_json(), 0b101)
    }
}

/// The line of a governing record.
fn governing(record: &Value, number: u64) -> Value {
    let hidden = base64url(&[0; 32]);
    json!({"governing": record, "number": number, "random": hidden, "blind": hidden})
}

/// The export with these lines before its decisions.
fn with_records(mut lines: Vec<String>, records: Vec<String>) -> String {
    let first = lines.iter().position(|line| line.starts_with(r#"{"decision""#)).unwrap();
    lines.splice(first..first, records);
    sealed(&lines)
}

fn withdrawn() -> Value {
    json!({"type": "person.withdrawn", "at": at(70).to_string(), "person": person(), "credential": credential()})
}

#[test]
fn an_answer_of_an_enrolled_passkey_holds_and_is_listed() {
    let told = Told::new();
    let export = told.sealed(&told.sound(), &[withdrawn()]);
    let line = format!("answers      0 approved, 1 denied, 0 stopped, by Ada ({})\n", person());
    run(&export, &[]).code(0).shows(&line);
    let summary = run(&export, &["--json"]).code(0).json();
    let counts = json!({"name": "Ada", "approved": 0, "denied": 1, "stopped": 0});
    assert_eq!(summary["summary"]["people"][person().to_string()], counts);
    let report =
        run_with_stdin(&mut mandate(&["report", "-", "--by", "person", "--json"]), export.as_bytes());
    let rows = report.code(0).json()["rows"].take();
    let by_ada: Vec<_> = rows.as_array().unwrap().iter().filter(|row| row["name"] == "Ada").collect();
    let amount: Value =
        serde_json::from_str(&told.statement.subject.asked().unwrap().amount.to_string()).unwrap();
    let wanted = json!({"kind": "person", "id": person(), "name": "Ada", "answer": "denied", "currency": "USD",
        "requests": 1, "amount": amount});
    assert_eq!(by_ada, [&wanted]);
}

#[test]
fn digits_that_were_not_signed_are_found() {
    let told = Told::new();
    let Subject::Deny(asked, reason) = told.statement.subject.clone() else { panic!("{:?}", told.statement) };
    let other = |subject: Subject| Statement { subject, ..told.statement.clone() };
    let dearer = Asked { amount: Amount::parse("7").unwrap(), ..asked.clone() };
    for (said, statement) in [
        ("amount 7 signed", other(Subject::Deny(dearer, reason.clone()))),
        ("answer approve signed", other(Subject::Approve(asked.clone()))),
        ("reason `later` signed", other(Subject::Deny(asked, Some("later".to_owned())))),
        ("kind production signed", Statement { kind: EnvironmentKind::Production, ..told.statement.clone() }),
        ("person", Statement { person: PersonId::new(at(0), 2), ..told.statement.clone() }),
    ] {
        let answer = told.signed(statement.to_json(), 0b101);
        let found = check(&told.sealed(&answer, &[]), &[("answer_digits", 1)]);
        assert!(text(&found[0]["found"]).starts_with(said), "{found:?}");
    }
    let spaced = told.signed(told.statement.to_json().replacen(',', ", ", 1), 0b101);
    check(&told.sealed(&spaced, &[]), &[("answer_digits", 1)]);
}

#[test]
fn passkeys_that_were_not_enrolled_or_withdrawn_before_are_found() {
    let mut told = Told::new();
    let sound = told.sound();
    let enrolled = told.records.remove(0);
    check(&told.sealed(&sound, &[]), &[("answer_key", 1)]);
    check(&told.sealed(&sound, std::slice::from_ref(&enrolled)), &[("answer_key", 1)]);
    let mut of_another = enrolled.clone();
    of_another["person"] = json!(PersonId::new(at(0), 2));
    told.records = vec![of_another];
    check(&told.sealed(&sound, &[]), &[("answer_key", 1)]);
    told.records = vec![enrolled, withdrawn()];
    check(&told.sealed(&sound, &[]), &[("answer_withdrawn", 1)]);
}

#[test]
fn assertions_that_do_not_hold_are_found() {
    let told = Told::new();
    let unverified = told.signed(told.statement.to_json(), 0b001);
    let found = check(&told.sealed(&unverified, &[]), &[("answer_assertion", 1)]);
    assert!(text(&found[0]["found"]).starts_with("user_verification: "), "{found:?}");
    let forged = Told { passkey: KeyPair::generate().unwrap(), ..Told::new() };
    let found =
        check(&told.sealed(&forged.signed(told.statement.to_json(), 0b101), &[]), &[("answer_assertion", 1)]);
    assert!(text(&found[0]["found"]).starts_with("signature: "), "{found:?}");
}

#[test]
fn an_answer_that_the_record_does_not_name_is_found() {
    let told = Told::new();
    let sound = told.sound();
    let export = told.sealed(&sound, &[]);
    let lines: Vec<_> =
        export.lines().map(|line| line.replace(&sound.hash(), &base64url(&[1; 32]))).collect();
    check(&sealed(&lines), &[("answer", 1)]);
    let lines: Vec<_> =
        export.lines().map(|line| line.replacen(r#""answer":{"#, r#""later":{"#, 1)).collect();
    check(&sealed(&lines), &[("answer", 1)]);
}

#[test]
fn a_stop_is_audited_like_an_answer() {
    let told = Told::new();
    let export = |stopped: MandateId, has_answer: bool| {
        let statement = Statement { subject: Subject::Stop, ..told.statement.clone() };
        let answer = told.signed(statement.to_json(), 0b101);
        let record = json!({"type": "mandate.revoked", "at": at(60).to_string(), "agent": statement.agent,
            "mandate": stopped, "revoked_after": 7, "by": {"kind": "person", "id": person(), "name": "Ada"},
            "answer": answer.hash()});
        let mut stop = governing(&record, 2);
        if has_answer {
            stop["answer"] = serde_json::from_str(&answer.to_json()).unwrap();
        }
        with_records(told.lines.clone(), vec![governing(&told.records[0], 1).to_string(), stop.to_string()])
    };
    let sound = export(told.statement.mandate, true);
    run(&sound, &[])
        .code(0)
        .shows(&format!("answers      0 approved, 0 denied, 1 stopped, by Ada ({})\n", person()));
    check(&export(told.statement.mandate, false), &[("answer", 1)]);
    check(&export(MandateId::new(at(0), 9), true), &[("answer_digits", 1)]);
}
