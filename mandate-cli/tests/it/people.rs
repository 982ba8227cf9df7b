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
use crate::export::{ISSUER, Plan, answer, governing, lines, sealed};
use crate::harness::{mandate, run_with_stdin};

const ORIGIN: &str = "https://console.example";

/// An export with one answer of a person's, before it is sealed.
pub(crate) struct Told {
    passkey: KeyPair,
    pub(crate) lines: Vec<String>,
    /// The governing records of people, in the order of their numbers.
    pub(crate) records: Vec<Value>,
    /// Those of other answers to reviews.
    pub(crate) others: Vec<Value>,
    /// Which line is answered, and what the person signed.
    pub(crate) at: usize,
    pub(crate) statement: Statement,
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(1_700_000_000 + second)
}

fn base64url(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn person() -> PersonId {
    PersonId::new(at(0), 1)
}

fn credential() -> CredentialId {
    CredentialId::from_bytes(&[1; 16]).unwrap()
}

pub(crate) fn text(value: &Value) -> &str {
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
        expires: resolved(decision).plus_seconds(60),
    }
}

/// When the review was answered.
fn resolved(decision: &Value) -> Timestamp {
    Timestamp::parse(text(&decision["review"]["resolved_at"])).unwrap()
}

pub(crate) fn by_ada() -> Value {
    json!({"kind": "person", "id": person(), "name": "Ada"})
}

impl Told {
    pub(crate) fn new() -> Self {
        let lines = lines(&Plan::new(1200, 3));
        let at_line = find(&lines, |d| d["review"]["status"] == "denied");
        let passkey = KeyPair::generate().unwrap();
        let enrolled = json!({"type": "person.key", "at": at(0).to_string(), "person": person(), "name": "Ada",
            "credential": credential(), "key": base64url(passkey.der_bytes()), "origin": ORIGIN});
        let statement = denial(&decision(&lines[at_line]));
        let is_governing = |line: &String| line.starts_with(r#"{"governing""#);
        let others = lines
            .iter()
            .filter(|line| is_governing(line))
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["governing"].take());
        let answered = decision(&lines[at_line])["jti"].clone();
        let others = others.filter(|record| record["decision"] != answered).collect();
        let at = at_line - lines.iter().filter(|line| is_governing(line)).count();
        let lines = lines.into_iter().filter(|line| !is_governing(line)).collect();
        Self { passkey, lines, records: vec![enrolled], others, at, statement }
    }

    /// Signs a text at the console.
    pub(crate) fn signed(&self, statement: String, flags: u8) -> Answer {
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

    /// The row with this answer.
    pub(crate) fn answered(&self, answer: &Answer) -> Value {
        let mut row: Value = serde_json::from_str(&self.lines[self.at]).unwrap();
        let review = &mut row["decision"]["review"];
        review["reason"] = json!("not now");
        review["resolved_by"] = by_ada();
        review["answer"] = serde_json::from_str(&answer.to_json()).unwrap();
        row
    }

    /// The governing record of this answer.
    pub(crate) fn recorded(&self, answer: &Answer) -> Value {
        let mut record = self::answer(&self.answered(answer).to_string()).unwrap();
        record["answer"] = json!(answer.hash());
        record
    }

    /// The export with this answer, whose governing record has the next number; then these records.
    pub(crate) fn sealed(&self, answer: &Answer, after: &[Value]) -> String {
        self.of(&self.answered(answer), Some(&self.recorded(answer)), after)
    }

    /// The export with this row, and this record of its answer.
    pub(crate) fn of(&self, row: &Value, record: Option<&Value>, after: &[Value]) -> String {
        let mut lines = self.lines.clone();
        lines[self.at] = row.to_string();
        let records = self.records.iter().chain(record).chain(after).chain(&self.others);
        with_records(lines, records.zip(1..).map(|(record, number)| governing(record, number)).collect())
    }

    pub(crate) fn sound(&self) -> Answer {
        self.signed(self.statement.to_json(), 0b101)
    }
}

/// The export with these lines before its decisions.
pub(crate) fn with_records(mut lines: Vec<String>, records: Vec<String>) -> String {
    let first = lines.iter().position(|line| line.starts_with(r#"{"decision""#)).unwrap();
    lines.splice(first..first, records);
    sealed(&lines)
}

pub(crate) fn withdrawn() -> Value {
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

/// The service has got another address while the review waited.
#[test]
fn an_answer_may_name_any_accepted_issuer_and_no_other() {
    let told = Told::new();
    let issuer = "https://verdicts.moved.example";
    let statement = Statement { issuer: issuer.to_owned(), ..told.statement.clone() };
    let export = told.sealed(&told.signed(statement.to_json(), 0b101), &[]);
    run(&export, &["--issuer", issuer]).code(0);
    let found = check(&export, &[("answer_digits", 1)]);
    assert_eq!(text(&found[0]["found"]), format!("issuer {issuer} signed"));
    assert_eq!(text(&found[0]["expected"]), ISSUER);
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
    check(&sealed(&lines), &[("answer_record", 1)]);
    let lines: Vec<_> =
        export.lines().map(|line| line.replacen(r#""answer":{"#, r#""later":{"#, 1)).collect();
    check(&sealed(&lines), &[("answer", 1), ("answer_record", 1)]);
}

#[test]
fn an_answer_after_its_statement_expired_is_found() {
    let told = Told::new();
    for (seconds, expected) in [(-60, Some("answer_late")), (-61, Some("answer_late")), (-59, None)] {
        let statement =
            Statement { expires: told.statement.expires.plus_seconds(seconds), ..told.statement.clone() };
        let export = told.sealed(&told.signed(statement.to_json(), 0b101), &[]);
        match expected {
            Some(name) => drop(check(&export, &[(name, 1)])),
            None => drop(run(&export, &[]).code(0)),
        }
    }
}

/// A stranger writes a verifier by docs/proof.md.
#[test]
fn the_documented_order_of_a_statement_is_the_one_that_is_signed() {
    let page = include_str!("../../../docs/proof.md");
    let table = page.split("| Member | In | Value |").nth(1).unwrap().split("\n\n").next().unwrap();
    let documented: Vec<_> = table
        .lines()
        .filter_map(|row| row.strip_prefix("| `"))
        .map(|row| row.split_once("` | ").unwrap())
        .map(|(name, rest)| (name, rest.split(" | ").next().unwrap()))
        .collect();
    assert_eq!(documented.len(), 18);
    let denial = Told::new().statement;
    let asked = denial.subject.asked().unwrap().clone();
    let other = |subject: Subject| Statement { subject, ..denial.clone() }.to_json();
    for (text, has) in [
        (denial.to_json(), &["each", "review", "reason"][..]),
        (other(Subject::Deny(asked.clone(), None)), &["each", "review"]),
        (other(Subject::Approve(asked)), &["each", "review"]),
        (other(Subject::Stop), &["each"]),
    ] {
        let members: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
        let mut expected = documented.iter().filter(|(_, of)| has.contains(of)).map(|(name, _)| *name);
        let mut places: Vec<_> =
            members.keys().map(|name| (text.find(&format!("\"{name}\":")).unwrap(), name.as_str())).collect();
        places.sort_unstable();
        assert!(expected.by_ref().eq(places.into_iter().map(|(_, name)| name)), "{text}");
    }
}
