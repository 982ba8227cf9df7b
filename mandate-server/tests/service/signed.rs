//! What people have signed, as it is kept and recorded: `check` verifies it, and others can.

use std::sync::Arc;

use mandate_core::json::Object;
use mandate_core::people::Answer;
use mandate_core::{EnvironmentKind, MandateId};
use mandate_server::clock::Clock as _;
use mandate_server::model::people::{Actor, AnswerRecord, Answered, By, PasskeyRecord};
use mandate_server::service::people::statements::Subject;
use mandate_server::service::people::{self, May};
use mandate_server::service::{mandates, reviews};
use mandate_server::store::sql::{self, log_records};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::authenticator::{GOOD, ORIGIN, acme, answer, issue, operate, operator, person, run};
use crate::check;
use crate::people::review;
use crate::world::World;

const SANDBOX: EnvironmentKind = EnvironmentKind::Sandbox;

/// A script can wait for a lock. By what time its answer takes effect is what counts.
#[tokio::test]
async fn an_answer_that_waited_until_its_statement_expired_changes_nothing() {
    let world = World::new().await;
    let (ada, _) = person(&world, "Ada", "role:cfo", May::Review).await;
    let (approved, _) = review(&world).await;
    let (denied, _) = review(&world).await;
    let agent = world.agent("b").await;
    let mandate = MandateId::parse(&world.mandate(&agent, 1_000, "").await).unwrap();
    for (seconds, is_late) in [(0, true), (1, false)] {
        let until = Some(world.clock.now().plus_seconds(seconds));
        let by = By { actor: Actor::person(&ada.person), answer: Some("hash".to_owned()), until };
        let (moments, engine, of) =
            (Arc::clone(&world.moments), Arc::clone(&world.engine), ada.environment.clone());
        let outcomes = run(&world, move |tx| {
            let revoked = mandates::revoke_by(tx, of.id, mandate, &by, &moments).map(drop);
            let denied = reviews::deny_by(tx, &of, denied, (&by, None), &moments).map(drop);
            let approved = reviews::approve_by(tx, &of, approved, &by, &engine).map(drop);
            Ok([revoked, denied, approved].map(|outcome| outcome.map_err(|e| format!("{e:?}"))))
        });
        let outcomes = outcomes.await.unwrap();
        assert!(outcomes.iter().all(|outcome| outcome.is_err() == is_late), "{seconds}: {outcomes:?}");
        let said = |outcome: &Result<(), String>| {
            outcome.as_ref().is_err_and(|e| !e.contains("the statement is over"))
        };
        assert!(!outcomes.iter().any(said), "{outcomes:?}");
    }
}

/// Who can write to the database can write rows anew, with their checksums. What was signed they cannot.
#[tokio::test]
async fn a_check_verifies_what_people_signed_and_what_it_is_about() {
    let world = World::new().await;
    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let (bob, other) = person(&world, "Bob", "role:cfo", May::Review).await;
    let (denied, _) = review(&world).await;
    let issued = issue(&world, &ada, Subject::Deny(denied, Some("no".to_owned()))).await.unwrap();
    answer(&world, &ada, issued.challenge, key.sign(issued.challenge)).await.unwrap();
    let agent = world.agent("b").await;
    let mandate = MandateId::parse(&world.mandate(&agent, 1_000, "").await).unwrap();
    let issued = issue(&world, &ada, Subject::Stop(mandate)).await.unwrap();
    answer(&world, &ada, issued.challenge, key.sign(issued.challenge)).await.unwrap();
    assert_eq!(check::found(&world.database), Vec::<String>::new());

    let of_answers = |world: &World| {
        let found = check::findings(&world.database).into_iter().filter(|found| found.table == "answers");
        found.map(|found| (found.id.unwrap(), found.found)).collect::<Vec<_>>()
    };
    let environment = world.organization.environment.id;
    let kept = operate(&world, |tx| Ok(sql::answers::onward(tx, (i64::MIN, &[]), 10)?)).unwrap();
    let of_review = kept.iter().find(|record| record.to == Answered::Review(denied)).unwrap();
    let written = |record: &AnswerRecord| {
        let record = record.clone();
        assert_eq!(world.change("DELETE FROM answers WHERE review IS NOT NULL"), 1);
        operate(&world, |tx| Ok(sql::answers::insert(tx, &record)?)).unwrap();
    };
    // Another assertion, of the hash that it has.
    let mut forged = Answer::read(Object::parse(of_review.content.as_bytes()).unwrap()).unwrap();
    forged.assertion = other.sign_at([3; 32], ORIGIN, GOOD);
    forged.assertion.credential = key.credential.clone();
    let content = forged.to_json();
    written(&AnswerRecord { hash: Sha256::digest(&content).into(), content, ..of_review.clone() });
    let found = of_answers(&world);
    assert!(
        matches!(&found[..], [(id, found)] if *id == denied.to_string() && found.starts_with("challenge: ")),
        "{found:?}"
    );
    written(&AnswerRecord { hash: [9; 32], ..of_review.clone() });
    assert_eq!(of_answers(&world), [(denied.to_string(), "an answer of another hash".to_owned())]);
    written(&AnswerRecord { person: bob.person.id, ..of_review.clone() });
    assert_eq!(of_answers(&world), [(denied.to_string(), format!("a passkey of {}", ada.person.id))]);
    written(of_review);
    assert_eq!(check::found(&world.database), Vec::<String>::new());

    // The row of what was answered.
    assert_eq!(world.change("UPDATE decisions SET amount = '301' WHERE amount = '300'"), 1);
    assert_eq!(of_answers(&world), [(denied.to_string(), "amount 300 signed".to_owned())]);
    world.change("UPDATE decisions SET amount = '300' WHERE amount = '301'");

    // Another key under the name of Ada's passkey.
    let mut keys = operate(&world, |tx| Ok(sql::people::keys_of(tx, environment, bob.person.id)?)).unwrap();
    let forged =
        PasskeyRecord { credential: key.credential.clone(), person: ada.person.id, ..keys.remove(0) };
    assert_eq!(
        world.change("DELETE FROM person_keys WHERE person = (SELECT person FROM people WHERE name = 'Ada')"),
        1
    );
    operate(&world, |tx| Ok(sql::people::insert_key(tx, &forged)?)).unwrap();
    let mut found = of_answers(&world);
    found.sort();
    let mut ids = [denied.to_string(), mandate.to_string()];
    ids.sort();
    assert!(found.iter().all(|(_, found)| found.starts_with("signature: ")), "{found:?}");
    assert_eq!(found.into_iter().map(|(id, _)| id).collect::<Vec<_>>(), ids);
}

/// The members of a JSON object, in the order of its text.
fn members(text: &str) -> Vec<String> {
    let whole: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap();
    let place = |name: &String| (text.find(&format!("\"{name}\":")).unwrap(), name.clone());
    let mut places: Vec<_> = whole.keys().map(place).collect();
    places.sort_unstable();
    places.into_iter().map(|(_, name)| name).collect()
}

/// A stranger writes a verifier by docs/proof.md.
#[tokio::test]
async fn the_documented_forms_of_governing_records_are_those_that_are_written() {
    let world = World::new().await;
    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    for reason in [Some("no".to_owned()), None] {
        let (denied, _) = review(&world).await;
        let issued = issue(&world, &ada, Subject::Deny(denied, reason)).await.unwrap();
        answer(&world, &ada, issued.challenge, key.sign(issued.challenge)).await.unwrap();
    }
    let (approved, _) = review(&world).await;
    let issued = issue(&world, &ada, Subject::Approve(approved)).await.unwrap();
    answer(&world, &ada, issued.challenge, key.sign(issued.challenge)).await.unwrap();
    let (by_key, _) = review(&world).await;
    world.deny(&json!(by_key.to_string()), None).await;
    let agent = world.agent("b").await;
    let mandate = world.mandate(&agent, 1_000, "").await;
    let issued = issue(&world, &ada, Subject::Stop(MandateId::parse(&mandate).unwrap())).await.unwrap();
    answer(&world, &ada, issued.challenge, key.sign(issued.challenge)).await.unwrap();
    let by = operator(&world);
    operate(&world, |tx| people::disable(tx, &world.moments, (&acme(), SANDBOX), ada.person.id, &by))
        .unwrap();

    let page = include_str!("../../../docs/proof.md");
    let rows = page.split("| Record | Members |").nth(1).unwrap().split("\n\n").next().unwrap().lines();
    let mut documented: Vec<(&str, Vec<&str>)> = rows
        .filter_map(|row| row.strip_prefix("| `")?.split_once("` | "))
        .map(|(record, members)| (record, members.trim_end_matches(" |").split(", ").collect()))
        .collect();
    let environment = world.organization.environment.id;
    let records = operate(&world, |tx| Ok(log_records::onward(tx, environment, 0, 1_000)?)).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for text in records.iter().map(|record| &record.record) {
        let record: Value = serde_json::from_str(text).unwrap();
        let kind = record["type"].as_str().unwrap();
        let Some((kind, named)) = documented.iter().find(|(name, _)| *name == kind) else { continue };
        seen.insert(*kind);
        let there = members(text);
        let expected = named.iter().filter_map(|name| match name.strip_prefix("(`") {
            Some(name) => {
                Some(name.trim_end_matches("`)")).filter(|name| there.iter().any(|there| there == name))
            }
            None => Some(name.trim_matches('`')),
        });
        assert_eq!(there, expected.collect::<Vec<_>>(), "{text}");
        let of_person = record["by"]["kind"] == "person";
        assert_eq!(record["answer"].is_string(), of_person, "{text}");
    }
    documented.sort_unstable();
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        documented.iter().map(|(kind, _)| *kind).collect::<Vec<_>>()
    );
}
