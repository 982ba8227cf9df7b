//! Mandates beside their governing records, agents that people stopped, and other records of people: what `mandate audit` finds.

use mandate_core::people::{Statement, Subject};
use mandate_core::{AgentId, MandateId, PersonId, Timestamp};
use serde_json::{Value, json};

use crate::audit::{check, run};
use crate::export::{Plan, answer, governing, lines, sealed};
use crate::people::{Told, at, by_ada, person, text, with_records, withdrawn};

/// An export of which a person has revoked one mandate, and what of it is changed.
struct Stopped {
    told: Told,
    /// What the person signed, in time.
    statement: Statement,
    /// Which of the other records it is.
    at: usize,
}

impl Stopped {
    fn new() -> Self {
        let mut told = Told::new();
        let denied = answer(&told.lines[told.at]).unwrap();
        let at = told.others.iter().position(|record| record["type"] == "mandate.revoked").unwrap();
        told.others.push(denied);
        let record = &told.others[at];
        let statement = Statement {
            subject: Subject::Stop,
            mandate: MandateId::parse(text(&record["mandate"])).unwrap(),
            agent: AgentId::parse(text(&record["agent"])).unwrap(),
            expires: Timestamp::parse(text(&record["at"])).unwrap().plus_seconds(1),
            ..told.statement.clone()
        };
        Self { told, statement, at }
    }

    /// The governing records as lines, of which that of the stop is changed.
    fn records(&self, statement: &Statement, change: impl Fn(&mut Value)) -> Vec<String> {
        let records = self.told.records.iter().chain(&self.told.others);
        let mut lines: Vec<_> = records.zip(1..).map(|(record, number)| governing(record, number)).collect();
        let place = &mut lines[self.told.records.len() + self.at];
        let answer = self.told.signed(statement.to_json(), 0b101);
        let mut line: Value = serde_json::from_str(place).unwrap();
        (line["governing"]["by"], line["governing"]["answer"]) = (by_ada(), json!(answer.hash()));
        line["answer"] = serde_json::from_str(&answer.to_json()).unwrap();
        change(&mut line);
        *place = as_written(&line);
        lines
    }

    fn export(&self, change: impl Fn(&mut Value)) -> String {
        with_records(self.told.lines.clone(), self.records(&self.statement, change))
    }

    fn signed(&self, statement: &Statement) -> String {
        with_records(self.told.lines.clone(), self.records(statement, |_| ()))
    }
}

/// A governing record's line, its first member first.
fn as_written(line: &Value) -> String {
    let members = ["number", "random", "blind", "answer"].iter();
    let rest = members.filter_map(|name| Some(format!(r#","{name}":{}"#, line.get(name)?)));
    format!(r#"{{"governing":{}{}}}"#, line["governing"], rest.collect::<String>())
}

fn without(value: &mut Value, name: &str) {
    assert!(value.as_object_mut().unwrap().remove(name).is_some(), "{name}");
}

#[test]
fn a_stop_is_audited_like_an_answer() {
    let stopped = Stopped::new();
    let by_ada = format!("answers      0 approved, 0 denied, 1 stopped, by Ada ({})\n", person());
    run(&stopped.export(|_| ()), &[]).code(0).shows(&by_ada);
    check(&stopped.export(|line| without(line, "answer")), &[("answer", 1)]);
    let other = Statement { mandate: MandateId::new(at(0), 9), ..stopped.statement.clone() };
    check(&stopped.signed(&other), &[("answer_digits", 1)]);
    let late = Statement { expires: stopped.statement.expires.plus_seconds(-1), ..stopped.statement.clone() };
    check(&stopped.signed(&late), &[("answer_late", 1)]);
    check(&stopped.export(|line| line["governing"]["by"]["name"] = json!("Bea")), &[("answer_name", 1)]);
    let by_key =
        |line: &mut Value| line["governing"]["by"] = json!({"kind": "key", "id": "key_abababababab"});
    // A key, or none, where a person has signed.
    let without_answer = |line: &mut Value| {
        by_key(line);
        without(line, "answer");
    };
    check(&stopped.export(without_answer), &[("answer", 1)]);
    check(&stopped.export(by_key), &[("line", 1), ("mandate_record", 2)]);
    let by_none = stopped.export(|line| without(&mut line["governing"], "by"));
    check(&by_none, &[("line", 1), ("mandate_record", 2)]);
}

#[test]
fn an_answer_beside_another_record_is_refused() {
    let told = Told::new();
    let export = told.sealed(&told.sound(), &[]);
    let mut lines: Vec<_> = export.lines().map(ToOwned::to_owned).collect();
    let is_enrolled = |line: &String| line.contains(r#""type":"person.key""#);
    let place = lines.iter().position(is_enrolled).unwrap();
    let mut line: Value = serde_json::from_str(&lines[place]).unwrap();
    line["answer"] = json!({"x": 1});
    lines[place] = as_written(&line);
    // The passkey is refused with its line; the records behind it count.
    let found = check(&sealed(&lines), &[("answer_key", 1), ("line", 1)]);
    let says = "answer must only be beside";
    assert!(found.iter().any(|found| text(&found["found"]).starts_with(says)), "{found:?}");
}

#[test]
fn a_withdrawal_of_what_was_not_enrolled_is_found() {
    let mut told = Told::new();
    let sound = told.sound();
    let mut of_another = withdrawn();
    of_another["person"] = json!(PersonId::new(at(0), 2));
    check(&told.sealed(&sound, &[of_another]), &[("answer_withdrawn", 1)]);
    check(&told.sealed(&sound, &[withdrawn(), withdrawn()]), &[("answer_withdrawn", 1)]);
    told.records.insert(0, withdrawn());
    check(&told.sealed(&sound, &[]), &[("answer_withdrawn", 1)]);
}

/// The operator can write a mandate's line anew and sign the export again. The records are in the public log.
#[test]
fn a_mandate_that_is_other_than_its_governing_records_is_found() {
    let stopped = Stopped::new();
    let id = stopped.statement.mandate.to_string();
    let of_mandate = |change: &dyn Fn(&mut Value)| {
        let mut lines = stopped.told.lines.clone();
        let is_its = |line: &&mut String| line.starts_with(r#"{"mandate""#) && line.contains(&id);
        let place = lines.iter_mut().find(is_its).unwrap();
        *place = crate::order::changed(place, change);
        with_records(lines, stopped.records(&stopped.statement, |_| ()))
    };
    let dearer = of_mandate(&|mandate| mandate["limits"]["per_month"] = json!(99999));
    let found = run(&dearer, &[]).code(23).shows("mandate_record: found terms ");
    found.shows(r#""per_month":99999"#).shows(r#""per_month":3000"#);
    let at = json!("2026-01-01T00:00:00.000Z");
    check(&of_mandate(&|mandate| mandate["revoked_at"] = at.clone()), &[("mandate_record", 1)]);
    let found = run(
        &of_mandate(&|mandate| {
            without(mandate, "revoked_at");
            without(mandate, "revoked_after");
        }),
        &["--json"],
    );
    let found = found.code(23).out;
    assert!(found.contains(r#""mandate_record":2"#), "{found}");
    // The other side: a record that is not there, there twice, or of another mandate.
    let records = stopped.records(&stopped.statement, |_| ());
    let place = stopped.told.records.len() + stopped.at;
    let with = |records: Vec<String>| with_records(stopped.told.lines.clone(), records);
    let mut less = records.clone();
    less.remove(place);
    check(&with(less), &[("mandate_record", 2)]);
    let mut more = records.clone();
    let mut again: Value = serde_json::from_str(&records[place]).unwrap();
    again["number"] = json!(records.len() + 1);
    more.push(as_written(&again));
    let found = run(&with(more), &[]).code(23);
    found.shows("mandate_record: found governing record ").shows(", 1 stopped, by Ada");
    let is_created = |line: &String| line.contains(r#""type":"mandate.created""#) && line.contains(&id);
    let created = records.iter().position(is_created).unwrap();
    let mut less = records;
    less.remove(created);
    check(&with(less), &[("mandate_record", 2)]);
}

#[test]
fn a_decision_without_a_mandate_that_a_record_has_written_is_found() {
    let mut lines = lines(&Plan { approve_every: 0, changes: false, ..Plan::new(40, 3) });
    let of_agent = |line: &String| line.starts_with(r#"{"decision""#) && line.contains(r#""agent":"agt_4""#);
    lines.retain(|line| !line.starts_with(r#"{"mandate""#) || !line.contains(r#""agent":"agt_4""#));
    let places: Vec<_> = (0..lines.len()).filter(|at| of_agent(&lines[*at])).collect();
    for at in &places {
        lines[*at] = crate::order::changed(&lines[*at], |decision| {
            without(decision, "mandate");
            decision["verdict"] = json!("deny_no_mandate");
        });
    }
    let found = run(&sealed(&lines), &["--json"]).code(23).out;
    assert!(found.contains(&format!(r#""mandate_record":{}"#, places.len())), "{found}");
}
