//! People: enrolled by a link, signed in by a passkey, answering by what they sign.

use std::sync::Arc;

use mandate_core::json::Object;
use mandate_core::people::Answer;
use mandate_core::{EnvironmentKind, MandateId, ReviewId};
use mandate_server::clock::Clock as _;
use mandate_server::service::exports::Format;
use mandate_server::service::people::answers::Outcome;
use mandate_server::service::people::enrolment::Finished;
use mandate_server::service::people::statements::{MAX_STATEMENTS, STATEMENT_SECONDS, Subject};
use mandate_server::service::people::{self, May, Secret, Viewer, sessions};
use mandate_server::store::sql::decisions::Filter;
use mandate_server::store::sql::log_records;
use serde_json::{Value, json};

use crate::authenticator::{
    Authenticator, GOOD, ORIGIN, acme, answer, audited, created, enrol, finish, issue, operate, operator,
    party, person, run, signed_in,
};
use crate::exports::Archive;
use crate::oracle;
use crate::world::World;

const REVIEWED: &str = r#","review_above":200"#;
const SANDBOX: EnvironmentKind = EnvironmentKind::Sandbox;

/// A review that waits for `role:cfo`.
pub(crate) async fn review(world: &World) -> (ReviewId, Value) {
    // One byte would be the same now and then.
    let number = u128::from_be_bytes(world.new_id());
    let agent = world.agent(&format!("a{number}")).await;
    world.mandate(&agent, 10_000, REVIEWED).await;
    let asked = world.ask(&agent, "300").await;
    (ReviewId::parse(asked["review"]["id"].as_str().unwrap()).unwrap(), asked["decision"].clone())
}

/// The checks by which answers were refused.
fn refused(world: &World) -> Vec<String> {
    let of = |(action, check): (String, Option<String>)| check.filter(|_| action == "person.answer_refused");
    audited(world).into_iter().filter_map(of).collect()
}

/// The newest governing records of the sandbox, oldest first.
fn governing(world: &World) -> Vec<Value> {
    let environment = world.organization.environment.id;
    let records = operate(world, |tx| Ok(log_records::onward(tx, environment, 0, 1_000)?)).unwrap();
    records.iter().map(|record| serde_json::from_str(&record.record).unwrap()).collect()
}

async fn found(world: &World, secret: &Secret) -> Option<(Viewer, bool)> {
    let (now, environment) = (world.clock.now(), world.organization.environment.clone());
    let secret = Secret::parse(&secret.to_text()).unwrap();
    let read = world.store.read(move |tx| sessions::find(tx, now, &environment, &acme(), &secret));
    read.await.unwrap().unwrap()
}

#[tokio::test]
async fn an_answer_is_what_the_person_signed_and_the_log_says_so() {
    let archive = Archive::new().await;
    let world = &archive.world;
    let (ada, key) = person(world, "Ada", "role:cfo", May::Review).await;
    let (approved, decision) = review(world).await;
    let (denied, _) = review(world).await;
    let issued = issue(world, &ada, Subject::Approve(approved)).await.unwrap();
    assert!(
        issued.json.contains(r#""amount":300,"currency":"USD","recipient":"vendor:v""#),
        "{}",
        issued.json
    );
    let outcome = answer(world, &ada, issued.challenge, key.sign(issued.challenge)).await.unwrap();
    let Outcome::Approved { decision: fresh, .. } = outcome else { panic!("{outcome:?}") };

    let subject = Subject::Deny(denied, Some("too dear".to_owned()));
    let issued = issue(world, &ada, subject).await.unwrap();
    assert_eq!(answer(world, &ada, issued.challenge, key.sign(issued.challenge)).await, Ok(Outcome::Denied));

    let shown = world.decision(&world.organization, &decision).await;
    let by = json!({ "kind": "person", "id": ada.person.id.to_string(), "name": "Ada" });
    assert_eq!(
        (&shown["review"]["resolved_by"], &shown["review"]["decision"]),
        (&by, &json!(fresh.to_string()))
    );
    let records = governing(world);
    let [.., approval, denial] = &records[..] else { panic!("{records:?}") };
    assert_eq!((&approval["type"], &approval["by"]), (&json!("review.approved"), &by));
    assert_eq!(
        (&denial["type"], &denial["by"], &denial["reason"]),
        (&json!("review.denied"), &by, &json!("too dear"))
    );
    assert_eq!(records[0]["type"], "person.key");
    assert_eq!((&records[0]["name"], &records[0]["origin"]), (&json!("Ada"), &json!(ORIGIN)));

    let (_, content) = archive.export(Format::Ndjson, Filter::default()).await;
    let lines: Vec<Value> = content.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let exported = lines.iter().find(|line| line["decision"]["jti"] == decision).unwrap();
    let text = exported["decision"]["review"]["answer"].to_string();
    let kept = Answer::read(Object::parse(text.as_bytes()).unwrap()).unwrap();
    assert_eq!(approval["answer"], kept.hash());
    let enrolled = mandate_core::people::PersonKey::parse(records[0]["key"].as_str().unwrap()).unwrap();
    assert_eq!(kept.verify(&party(), &enrolled).unwrap().person, ada.person.id);
    assert!(audited(world).contains(&("person.answered".to_owned(), None)));
    world.store.close();
    oracle::holds(&world.database);
}

#[tokio::test]
async fn an_organization_key_is_named_and_an_agent_does_not_see_who_answered() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 10_000, REVIEWED).await;
    let asked = world.ask(&agent, "300").await;
    world.deny(&asked["review"]["id"], None).await;
    let shown = world.decision(&world.organization, &asked["decision"]).await;
    let by = &shown["review"]["resolved_by"];
    assert_eq!(by["kind"], "key");
    assert!(by["id"].as_str().unwrap().starts_with("key_"), "{by}");
    let own = world.decision(&agent, &asked["decision"]).await;
    assert_eq!((&own["review"]["status"], own["review"].get("resolved_by")), (&json!("denied"), None));
}

#[tokio::test]
async fn a_person_stops_an_agent_once() {
    let world = World::new().await;
    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let agent = world.agent("a").await;
    let mandate = world.mandate(&agent, 1_000, "").await;
    let id = MandateId::parse(&mandate).unwrap();
    let (first, second) = (
        issue(&world, &ada, Subject::Stop(id)).await.unwrap(),
        issue(&world, &ada, Subject::Stop(id)).await.unwrap(),
    );
    assert_eq!(answer(&world, &ada, first.challenge, key.sign(first.challenge)).await, Ok(Outcome::Stopped));
    assert_eq!(world.ask(&agent, "1").await["verdict"], "deny_revoked");
    let again = answer(&world, &ada, second.challenge, key.sign(second.challenge)).await.unwrap_err();
    assert_eq!(again.message, format!("mandate {mandate} is revoked already: the agent is stopped"));
    assert_eq!(refused(&world), ["mandate"]);
    let revoked = governing(&world).pop().unwrap();
    assert_eq!((&revoked["type"], &revoked["by"]["name"]), (&json!("mandate.revoked"), &json!("Ada")));
    assert!(revoked["answer"].is_string());
    world.store.close();
    oracle::holds(&world.database);
}

/// It was replaced after the statement was given.
#[tokio::test]
async fn a_stop_of_a_mandate_that_was_replaced_is_refused_and_recorded() {
    let world = World::new().await;
    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let agent = world.agent("a").await;
    let mandate = MandateId::parse(&world.mandate(&agent, 1_000, "").await).unwrap();
    let issued = issue(&world, &ada, Subject::Stop(mandate)).await.unwrap();
    world.mandate(&agent, 2_000, "").await;
    let refusal = answer(&world, &ada, issued.challenge, key.sign(issued.challenge)).await.unwrap_err();
    assert!(refusal.message.starts_with(&format!("mandate {mandate} was replaced")), "{}", refusal.message);
    assert_eq!(refused(&world), ["mandate"]);
    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");
}

#[tokio::test]
async fn the_second_of_two_people_is_told_who_was_first() {
    let world = World::new().await;
    let (ada, one) = person(&world, "Ada", "role:cfo", May::Review).await;
    let (bob, other) = person(&world, "Bob", "role:cfo", May::Review).await;
    let (review, _) = review(&world).await;
    let first = issue(&world, &ada, Subject::Approve(review)).await.unwrap();
    let second = issue(&world, &bob, Subject::Deny(review, None)).await.unwrap();
    answer(&world, &ada, first.challenge, one.sign(first.challenge)).await.unwrap();
    let made = other.sign(second.challenge);
    let lost = answer(&world, &bob, second.challenge, made.clone()).await.unwrap();
    // Sent again, since what came back was lost.
    assert_eq!(answer(&world, &bob, second.challenge, made).await.as_ref(), Ok(&lost));
    let Outcome::Lost { status, by } = lost else { panic!("{lost:?}") };
    assert_eq!((status.to_string(), by.name.as_deref()), ("approved".to_owned(), Some("Ada")));
    assert_eq!(refused(&world), ["lost"]);
}

/// The page signs again when the first answer got lost on its way back.
#[tokio::test]
async fn an_answer_that_is_sent_again_has_its_outcome_again() {
    let world = World::new().await;
    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let agent = world.agent("a").await;
    let stopped = MandateId::parse(&world.mandate(&agent, 1_000, "").await).unwrap();
    let [(approved, _), (denied, _)] = [review(&world).await, review(&world).await];
    for subject in [Subject::Approve(approved), Subject::Deny(denied, None), Subject::Stop(stopped)] {
        let issued = issue(&world, &ada, subject.clone()).await.unwrap();
        let made = key.sign(issued.challenge);
        let outcome = answer(&world, &ada, issued.challenge, made.clone()).await.unwrap();
        let (records, written) = (audited(&world).len(), governing(&world).len());
        world.clock.advance(STATEMENT_SECONDS);
        assert_eq!(answer(&world, &ada, issued.challenge, made).await.unwrap(), outcome);
        if !matches!(subject, Subject::Stop(_)) {
            let anew = key.sign(issued.challenge);
            assert_eq!(answer(&world, &ada, issued.challenge, anew).await.unwrap(), outcome);
        }
        assert_eq!((audited(&world).len(), governing(&world).len()), (records, written));
    }
    // A statement that was used up by what was not signed has no answer; one that came second has another's.
    let (pending, _) = review(&world).await;
    let subject = || Subject::Approve(pending);
    let [other, first] =
        [issue(&world, &ada, subject()).await.unwrap(), issue(&world, &ada, subject()).await.unwrap()];
    assert!(answer(&world, &ada, other.challenge, key.sign([0; 32])).await.is_err());
    let used = answer(&world, &ada, other.challenge, key.sign(other.challenge)).await.unwrap_err();
    assert_eq!(used.message, "the statement is used: it is good once; open the page again");
    answer(&world, &ada, first.challenge, key.sign(first.challenge)).await.unwrap();
    let lost = answer(&world, &ada, other.challenge, key.sign(other.challenge)).await.unwrap();
    assert!(matches!(lost, Outcome::Lost { .. }), "{lost:?}");
    assert_eq!(refused(&world), ["challenge", "used"]);
}

/// Each attack leaves the review pending, and an audit record that names the check.
#[tokio::test]
async fn what_was_not_signed_by_this_person_for_this_answer_is_refused() {
    let world = World::new().await;
    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let (bob, other) = person(&world, "Bob", "role:cfo", May::Review).await;
    let (review, _) = review(&world).await;
    let subject = || Subject::Approve(review);
    let mut checks = Vec::new();
    for (check, made) in [("credential", other.sign([0; 32])), ("challenge", key.sign([0; 32]))] {
        let issued = issue(&world, &ada, subject()).await.unwrap();
        assert!(answer(&world, &ada, issued.challenge, made).await.is_err(), "{check}");
        checks.push(check);
    }
    for (check, origin, flags) in [
        ("origin", "https://console.evil.example", GOOD),
        ("user_verification", ORIGIN, GOOD & !4),
        ("user_presence", ORIGIN, GOOD & !1),
    ] {
        let issued = issue(&world, &ada, subject()).await.unwrap();
        let made = key.sign_at(issued.challenge, origin, flags);
        assert!(answer(&world, &ada, issued.challenge, made).await.is_err(), "{check}");
        checks.push(check);
    }
    let issued = issue(&world, &ada, subject()).await.unwrap();
    let made = key.sign_for(issued.challenge, "https://other.example");
    assert!(answer(&world, &ada, issued.challenge, made).await.is_err(), "another relying party");
    checks.push("relying_party");
    let issued = issue(&world, &ada, subject()).await.unwrap();
    let made = key.sign(issued.challenge);
    assert!(answer(&world, &bob, issued.challenge, made.clone()).await.is_err(), "of another session");
    let mut edited = made.clone();
    *edited.signature.last_mut().unwrap() ^= 1;
    assert!(answer(&world, &ada, issued.challenge, edited).await.is_err(), "another signature");
    assert!(answer(&world, &ada, issued.challenge, made).await.is_err(), "used up by the attempt before");
    let issued = issue(&world, &ada, subject()).await.unwrap();
    world.clock.advance(STATEMENT_SECONDS);
    assert!(answer(&world, &ada, issued.challenge, key.sign(issued.challenge)).await.is_err(), "late");
    checks.extend(["unknown", "signature", "used", "late"]);
    assert_eq!(refused(&world), checks);
    assert_eq!(governing(&world).iter().filter(|record| record["type"] == "review.approved").count(), 0);
}

#[tokio::test]
async fn only_a_person_with_the_role_may_answer_and_only_while_they_have_it() {
    let world = World::new().await;
    let (review, _) = review(&world).await;
    let (cto, _) = person(&world, "Cy", "role:cto", May::Review).await;
    let (reader, _) = person(&world, "Rae", "role:cfo", May::Read).await;
    let refusal = issue(&world, &cto, Subject::Approve(review)).await.unwrap_err();
    assert_eq!(refusal.message, "only a person with the role `role:cfo` may answer this; yours: role:cto");
    assert_eq!(issue(&world, &reader, Subject::Approve(review)).await.unwrap_err().code.status(), 403);
    assert_eq!(refused(&world), ["role", "may"]);

    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let issued = issue(&world, &ada, Subject::Approve(review)).await.unwrap();
    let (of, id, by) = (acme(), ada.person.id, operator(&world));
    operate(&world, |tx| people::disable(tx, &world.moments, (&of, SANDBOX), id, &by)).unwrap();
    let over = answer(&world, &ada, issued.challenge, key.sign(issued.challenge)).await.unwrap_err();
    assert_eq!((over.code.status(), &*over.message), (401, "the session is over; sign in again"));
    let withdrawn = governing(&world).pop().unwrap();
    assert_eq!(withdrawn["type"], "person.withdrawn");
    assert_eq!(withdrawn["credential"], key.credential.to_string());
    let gone = signed_in(&world, &key).await.unwrap_err();
    assert!(gone.contains("is not enrolled for acme in sandbox"), "{gone}");
    assert!(audited(&world).contains(&("person.sign_in_failed".to_owned(), Some("withdrawn".to_owned()))));
    let twice = operate(&world, |tx| people::disable(tx, &world.moments, (&of, SANDBOX), id, &by));
    assert_eq!(twice.map(drop), Err(format!("{id} is disabled already")));
}

#[tokio::test]
async fn a_link_is_good_once_for_a_day_and_opening_it_uses_nothing_up() {
    let world = World::new().await;
    let (id, link) = created(&world, "Ada", "role:cfo", May::Review);
    let (key, other) = (Authenticator::new(), Authenticator::new());
    // A registration for another challenge is refused, and leaves the link as it was.
    let made = Finished { challenge: [1; 32], registration: key.register([1; 32]), label: "x".to_owned() };
    assert!(finish(&world, &link, made).await.unwrap_err().message.contains("the challenge is unknown"));
    let (viewer, session) = enrol(&world, &link, &key).await.unwrap();
    assert_eq!(viewer.person.id, id);
    assert_eq!(found(&world, &session).await.unwrap().0, viewer);
    let again = enrol(&world, &link, &other).await.unwrap_err();
    assert!(again.message.starts_with("the enrolment link was used"), "{}", again.message);

    let (of, by) = (acme(), operator(&world));
    let links = [[3; 32], [4; 32]].map(|random| Secret::new(zeroize::Zeroizing::new(random)));
    for link in &links {
        operate(&world, |tx| people::enrol(tx, &world.moments, (&of, SANDBOX), (id, link), &by)).unwrap();
    }
    let [former, newest] = &links;
    assert_eq!(enrol(&world, former, &other).await.unwrap_err().code.status(), 404);
    let enrolled = enrol(&world, newest, &key).await.unwrap_err();
    assert!(enrolled.message.contains("is enrolled already"), "{}", enrolled.message);
    world.clock.advance(people::ENROLMENT_SECONDS);
    assert_eq!(enrol(&world, newest, &other).await.unwrap_err().code.status(), 404);
}

#[tokio::test]
async fn a_session_ends_when_idle_at_last_and_by_the_operator() {
    let world = World::new().await;
    let (viewer, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let (_, secret) = signed_in(&world, &key).await.unwrap();
    world.clock.advance(sessions::IDLE_SECONDS - 1);
    let (seen, is_due) = found(&world, &secret).await.unwrap();
    assert!(is_due);
    let (now, session) = (world.clock.now(), seen.session);
    run(&world, move |tx| Ok(sessions::touch(tx, now, session)?)).await.unwrap();
    world.clock.advance(sessions::IDLE_SECONDS - 1);
    assert!(found(&world, &secret).await.is_some());
    world.clock.advance(1);
    assert!(found(&world, &secret).await.is_none(), "idle");
    assert_eq!(
        issue(&world, &viewer, Subject::Stop(MandateId::from_bytes([1; 16])))
            .await
            .unwrap_err()
            .code
            .status(),
        401
    );

    let (seen, secret) = signed_in(&world, &key).await.unwrap();
    let steps = sessions::LONGEST_SECONDS / 600;
    for step in 1..=steps {
        world.clock.advance(600);
        assert_eq!(found(&world, &secret).await.is_some(), step < steps, "{step}");
        let now = world.clock.now();
        run(&world, move |tx| Ok(sessions::touch(tx, now, seen.session)?)).await.unwrap();
    }
    let (seen, secret) = signed_in(&world, &key).await.unwrap();
    let (of, by) = (acme(), operator(&world));
    let listed = operate(&world, |tx| sessions::list(tx, &world.moments, (&of, SANDBOX))).unwrap();
    assert_eq!(listed.iter().map(|listed| listed.session.session).collect::<Vec<_>>(), [seen.session]);
    operate(&world, |tx| sessions::end_by_operator(tx, (&of, SANDBOX), seen.session, &by)).unwrap();
    assert!(found(&world, &secret).await.is_none());
    world.clock.advance(sessions::LONGEST_SECONDS);
    forget(&world).await;
    let left = "SELECT (SELECT COUNT(*) FROM sessions) + (SELECT COUNT(*) FROM challenges) + (SELECT COUNT(*) FROM statements)";
    assert_eq!(world.number(left), 0);
}

/// A clock was a day ahead, and is set back: such a session would last for 32 hours.
#[tokio::test]
async fn a_session_that_is_dated_ahead_of_the_clock_is_over() {
    let world = World::new().await;
    let (_, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let (seen, secret) = signed_in(&world, &key).await.unwrap();
    world.clock.step(-5);
    assert!(found(&world, &secret).await.is_some(), "as a clock differs");
    world.clock.step(-1);
    assert!(found(&world, &secret).await.is_none(), "begun ahead");
    world.clock.step(6);
    let (ahead, session) = (world.clock.now().plus_seconds(60), seen.session);
    run(&world, move |tx| Ok(sessions::touch(tx, ahead, session)?)).await.unwrap();
    assert!(found(&world, &secret).await.is_none(), "used ahead");
    let (moments, now) = (Arc::clone(&world.moments), world.clock.now());
    let due = run(&world, move |tx| Ok(sessions::next_end(tx, &moments)?)).await.unwrap();
    assert!(due.unwrap() <= now, "a scheduled job ends it");
    forget(&world).await;
    world.clock.advance(55);
    assert!(found(&world, &secret).await.is_none(), "it does not come back when the clock has come there");
}

async fn forget(world: &World) {
    let (moments, now) = (Arc::clone(&world.moments), world.clock.now());
    run(world, move |tx| Ok(sessions::forget(tx, &moments, now, 100)?)).await.unwrap();
}

#[tokio::test]
async fn nothing_of_another_organization_is_reached() {
    let world = World::new().await;
    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let stranger = world.stranger().await;
    let (review, _) = review(&world).await;
    let foreign = Viewer { environment: stranger.environment.clone(), ..ada.clone() };
    assert_eq!(issue(&world, &foreign, Subject::Approve(review)).await.unwrap_err().code.status(), 401);
    let issued = issue(&world, &ada, Subject::Approve(review)).await.unwrap();
    let made = key.sign(issued.challenge);
    assert_eq!(answer(&world, &foreign, issued.challenge, made).await.unwrap_err().code.status(), 401);
    let unknown = ReviewId::from_bytes([9; 16]);
    assert_eq!(issue(&world, &ada, Subject::Approve(unknown)).await.unwrap_err().code.status(), 404);
}

#[tokio::test]
async fn a_statement_holds_no_reason_that_is_no_free_text() {
    let world = World::new().await;
    let (ada, _) = person(&world, "Ada", "role:cfo", May::Review).await;
    let (review, _) = review(&world).await;
    for (reason, message) in [
        ("a\0".to_owned(), "character 2 is U+0000"),
        ("\u{202e}".to_owned(), "character 1 is U+202E"),
        ("x".repeat(501), "reason must be at most 500 characters long"),
    ] {
        let refused = issue(&world, &ada, Subject::Deny(review, Some(reason))).await.unwrap_err();
        assert!(refused.message.ends_with(message), "{}", refused.message);
    }
    assert_eq!(world.number("SELECT COUNT(*) FROM statements"), 0);
}

#[tokio::test]
async fn a_session_is_given_so_many_statements() {
    let world = World::new().await;
    let (ada, _) = person(&world, "Ada", "role:cfo", May::Review).await;
    let (review, _) = review(&world).await;
    for _ in 0..MAX_STATEMENTS {
        issue(&world, &ada, Subject::Approve(review)).await.unwrap();
    }
    assert_eq!(issue(&world, &ada, Subject::Approve(review)).await.unwrap_err().code.status(), 429);
    world.clock.advance(STATEMENT_SECONDS);
    assert!(issue(&world, &ada, Subject::Approve(review)).await.is_ok());
}
