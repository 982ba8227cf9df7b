//! Rows of answered reviews beside the governing records of the answers: what `mandate audit` and `report --by person` make of
//! both.

use mandate_core::{DecisionId, PersonId};
use serde_json::{Value, json};

use crate::audit::{check, decision, run};
use crate::export::sealed;
use crate::harness::{Ran, mandate, run_with_stdin};
use crate::people::{Told, at, person, text};

/// The operator can write a row anew and sign the export again. The records are in the public log.
#[test]
fn a_row_that_says_other_than_its_governing_record_is_found() {
    let told = Told::new();
    let sound = told.sound();
    let (row, record) = (told.answered(&sound), told.recorded(&sound));
    let changed = |value: &Value, change: &dyn Fn(&mut Value)| {
        let mut value = value.clone();
        change(&mut value);
        value
    };
    let review = |change: &dyn Fn(&mut Value)| changed(&row, &|row| change(&mut row["decision"]["review"]));
    let without = |value: &mut Value, name: &str| drop(value.as_object_mut().unwrap().remove(name));
    let key = json!({"kind": "key", "id": "key_abababababab"});
    let other = json!({"kind": "person", "id": PersonId::new(at(0), 2), "name": "Bea"});
    let pending = review(&|review| {
        *review = json!({"id": review["id"], "status": "pending", "waits_for": "role:cfo"});
    });
    let by_key_without_answer = review(&|review| {
        review["resolved_by"] = key.clone();
        without(review, "answer");
    });
    for (rewritten, expected) in [
        (&by_key_without_answer, &[("answer_record", 2)][..]),
        (&review(&|review| without(review, "answer")), &[("answer", 1), ("answer_record", 1)]),
        (&review(&|review| review["resolved_by"] = key.clone()), &[("answer", 1), ("answer_record", 1)]),
        (
            &review(&|review| review["resolved_by"] = other.clone()),
            &[("answer_digits", 1), ("answer_key", 1), ("answer_record", 1)],
        ),
        (&review(&|review| review["resolved_at"] = json!(at(1).to_string())), &[("answer_record", 1)]),
        (&pending, &[("answer_record", 5)]),
    ] {
        let found = check(&told.of(rewritten, Some(&record), &[]), expected);
        assert!(found.iter().all(|found| found["id"] == row["decision"]["jti"]), "{found:?}");
    }
    let found = check(&told.of(&by_key_without_answer, Some(&record), &[]), &[("answer_record", 2)]);
    assert!(text(&found[0]["found"]).starts_with("resolved_by key key_abababababab"), "{found:?}");
    assert!(text(&found[0]["expected"]).starts_with(&format!("person {} `Ada`", person())), "{found:?}");
    assert_eq!(found[1]["expected"], json!(format!("{}, as governing record 2 has it", sound.hash())));
    // A record of a key's answer, or of another one.
    let of_a_key = changed(&record, &|record| {
        record["by"] = key.clone();
        without(record, "answer");
    });
    check(&told.of(&row, Some(&of_a_key), &[]), &[("answer_record", 2)]);
    check(&told.of(&row, None, &[]), &[("answer_record", 1)]);
    let twice = told.of(&row, Some(&record), std::slice::from_ref(&record));
    check(&twice, &[("answer_record", 1)]);
    // The row is gone, and so is every other one of its agent.
    let agent = row["decision"]["request"]["agent"].clone();
    let whole = told.sealed(&sound, &[]);
    let rest: Vec<_> = whole
        .lines()
        .filter(|line| !line.starts_with(r#"{"decision""#) || decision(line)["request"]["agent"] != agent)
        .map(ToOwned::to_owned)
        .collect();
    let found = run(&sealed(&rest), &["--json"]).code(23).out;
    assert!(found.contains("none, though governing record 2 has answered its review"), "{found}");
}

#[test]
fn what_an_export_does_not_hold_is_not_compared_and_counted() {
    let told = Told::new();
    let whole = told.sealed(&told.sound(), &[]);
    let lines: Vec<_> = whole.lines().map(ToOwned::to_owned).collect();
    // An export of one verdict has of the governing records those of passkeys alone.
    let is_in = |line: &&String| match &line[..12] {
        r#"{"governing""# => line.contains(r#""type":"person."#),
        r#"{"decision":"# => decision(line)["verdict"] == "review",
        _ => true,
    };
    let mut reviews: Vec<_> = lines.iter().filter(is_in).cloned().collect();
    reviews[0] = reviews[0].replacen(r#""created_at""#, r#""verdict":"review","created_at""#, 1);
    let answers = reviews.iter().filter(|line| line.contains(r#""resolved_at""#)).count();
    let ran = run(&sealed(&reviews), &["--json"]).code(0).json();
    assert_eq!(ran["summary"]["unrecorded"], json!(answers));
    run(&sealed(&reviews), &[]).code(0).shows(&format!("unrecorded   {answers} answers were not compared"));
    // One that begins later has all records.
    let later = decision(&lines[told.at + 1 + told.others.len() + told.records.len()])["jti"].clone();
    let since = DecisionId::parse(text(&later)).unwrap().created_at();
    let part = crate::order::window(&lines, since);
    let outside = part.iter().filter(|line| line.contains(r#""type":"review."#)).count()
        - part
            .iter()
            .filter(|line| line.starts_with(r#"{"decision""#) && line.contains(r#""resolved_at""#))
            .count();
    assert!(outside > 0);
    // A decision of it that came of an approval before it has the record of that.
    let is_from_before = |line: &&String| {
        line.starts_with(r#"{"decision""#)
            && decision(line)["supersedes"]
                .as_str()
                .is_some_and(|original| DecisionId::parse(original).unwrap().created_at() < since)
    };
    let fresh = decision(part.iter().find(is_from_before).unwrap())["jti"].to_string();
    let is_its = |line: &&String| line.starts_with(r#"{"governing""#) && line.contains(&fresh);
    let hidden: Vec<_> = part.iter().filter(|line| !is_its(line)).cloned().collect();
    let found = check(&sealed(&hidden), &[("answer_record", 1)]);
    let says = " without a governing record of its approval";
    assert!(text(&found[0]["found"]).ends_with(says), "{found:?}");
    let ran = run(&sealed(&part), &["--json"]).code(0).json();
    assert_eq!(ran["summary"]["outside_records"], json!(outside));
    run(&sealed(&part), &[])
        .code(0)
        .shows(&format!("outside      {outside} records of answers were not compared"));
}

#[test]
fn a_person_has_the_name_under_which_their_passkey_was_enrolled() {
    let told = Told::new();
    let sound = told.sound();
    let mut row = told.answered(&sound);
    let mut record = told.recorded(&sound);
    row["decision"]["review"]["resolved_by"]["name"] = json!("Bea");
    record["by"]["name"] = json!("Bea");
    let renamed = told.of(&row, Some(&record), &[]);
    let found = check(&renamed, &[("answer_name", 1)]);
    assert_eq!(found[0]["expected"], "`Ada`, as enrolled");
    let line = format!("answers      0 approved, 1 denied, 0 stopped, by Ada ({})\n", person());
    run(&renamed, &[]).code(23).shows(&line);
    let report = |export: &str| {
        run_with_stdin(&mut mandate(&["report", "-", "--by", "person", "--json"]), export.as_bytes()).code(0)
    };
    let of_people = |ran: &Ran| {
        let rows = ran.json()["rows"].take();
        let rows = rows.as_array().unwrap().iter().filter(|row| row["kind"] == "person");
        rows.map(|row| row["name"].clone()).collect::<Vec<_>>()
    };
    let ran = report(&renamed);
    assert_eq!(of_people(&ran), ["Ada"]);
    ran.says("1 rows name another than the governing record");
    // Who answered is in the record of the answer.
    row["decision"]["review"]["resolved_by"] = json!({"kind": "key", "id": "key_abababababab"});
    let ran = report(&told.of(&row, Some(&told.recorded(&sound)), &[]));
    assert_eq!(of_people(&ran), ["Ada"]);
    ran.says("1 rows name another than the governing record");
    assert_eq!(report(&told.sealed(&sound, &[])).err, "");
}
