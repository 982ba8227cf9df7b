//! Attacks on how people come in and on what they sign: none gets through, and each is an audit record.

use std::sync::Arc;

use mandate_core::{AgentName, EnvironmentKind, MandateId, ReviewId};
use mandate_server::clock::Clock as _;
use mandate_server::error::Refusal;
use mandate_server::service::people::challenges::CHALLENGE_SECONDS;
use mandate_server::service::people::enrolment::Finished;
use mandate_server::service::people::refused::{MAX_RECORDED, RECORDED_SECONDS, forged};
use mandate_server::service::people::sessions::{self, KEPT_LINK_SECONDS, LONGEST_SECONDS, MAX_SESSIONS};
use mandate_server::service::people::statements::{STATEMENT_SECONDS, Subject};
use mandate_server::service::people::{self, ENROLMENT_SECONDS, May, Secret, Viewer, sign_in as service};
use mandate_server::store::sql;
use serde_json::json;

use crate::authenticator::{
    Authenticator, GOOD, ORIGIN, acme, answer, audited, begin, challenge, challenges, created, enrol, finish,
    issue, operate, operator, party, person, run, sign_in, signed_in,
};
use crate::world::World;

const SANDBOX: EnvironmentKind = EnvironmentKind::Sandbox;
/// How many sign-ins are tried.
const MANY: usize = 10_000;
/// In how many transactions.
const PIECES: usize = 10;

/// The newest audit record: what was refused, and by which check.
fn newest(world: &World) -> (String, Option<String>) {
    audited(world).pop().unwrap()
}

fn recorded(action: &str, check: &str) -> (String, Option<String>) {
    (action.to_owned(), Some(check.to_owned()))
}

/// A review that waits for `role:cfo`.
async fn review(world: &World) -> ReviewId {
    let agent = world.agent("a").await;
    world.mandate(&agent, 10_000, r#","review_above":200"#).await;
    let asked = world.ask(&agent, "300").await;
    ReviewId::parse(asked["review"]["id"].as_str().unwrap()).unwrap()
}

async fn sweep(world: &World) {
    let (moments, now) = (Arc::clone(&world.moments), world.clock.now());
    run(world, move |tx| Ok(sessions::forget(tx, &moments, now, 1_000)?)).await.unwrap();
}

#[tokio::test]
async fn no_attack_on_a_sign_in_begins_a_session_and_each_is_recorded() {
    let world = World::new().await;
    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let (_, other) = person(&world, "Bob", "role:cfo", May::Review).await;
    let (gone, withdrawn) = person(&world, "Cy", "role:cfo", May::Review).await;
    let (of, by, id) = (acme(), operator(&world), gone.person.id);
    operate(&world, |tx| people::disable(tx, &world.moments, (&of, SANDBOX), id, &by)).unwrap();
    let sessions = world.number("SELECT COUNT(*) FROM sessions");

    let good = challenge(&world, SANDBOX);
    let elsewhere = challenge(&world, EnvironmentKind::Production);
    let mut forged = challenge(&world, SANDBOX);
    forged[31] ^= 1;
    let mut edited = key.sign(good);
    *edited.signature.last_mut().unwrap() ^= 1;
    let attacks = [
        ("signature", good, other.posing_as(&key).sign(good)),
        ("signature", good, edited),
        ("credential", good, Authenticator::new().sign(good)),
        ("withdrawn", good, withdrawn.sign(good)),
        ("challenge", good, key.sign([9; 32])),
        ("challenge", elsewhere, key.sign(elsewhere)),
        ("challenge", forged, key.sign(forged)),
        ("origin", good, key.sign_at(good, "https://console.evil.example", GOOD)),
        ("relying_party", good, key.sign_for(good, "https://other.example")),
        ("user_verification", good, key.sign_at(good, ORIGIN, GOOD & !4)),
        ("user_presence", good, key.sign_at(good, ORIGIN, GOOD & !1)),
    ];
    for (check, challenge, assertion) in attacks {
        assert!(sign_in(&world, challenge, assertion).await.is_err(), "{check}");
        assert_eq!(newest(&world), recorded("person.sign_in_failed", check));
    }
    assert_eq!(world.number("SELECT COUNT(*) FROM sessions"), sessions);
    // None of them has used the challenge up; it is good once, and for five minutes.
    assert_eq!(sign_in(&world, good, key.sign(good)).await.unwrap().0.person, ada.person);
    for check in ["used", "late"] {
        let refused = sign_in(&world, good, key.sign(good)).await.unwrap_err();
        assert!(refused.message.starts_with("the challenge is unknown, used, or older than 5 minutes"));
        assert_eq!(newest(&world), recorded("person.sign_in_failed", check));
        world.clock.advance(CHALLENGE_SECONDS);
    }
    let late = challenge(&world, SANDBOX);
    world.clock.advance(CHALLENGE_SECONDS);
    sweep(&world).await;
    assert!(sign_in(&world, late, key.sign(late)).await.is_err());
    assert_eq!(newest(&world), recorded("person.sign_in_failed", "late"));
    assert_eq!(world.number("SELECT COUNT(*) FROM sessions"), sessions + 1);
}

#[tokio::test]
async fn no_link_is_good_twice_or_late_and_each_attempt_is_recorded() {
    let world = World::new().await;
    let (id, link) = created(&world, "Ada", "role:cfo", May::Review);
    let (key, other) = (Authenticator::new(), Authenticator::new());
    let refused = recorded("person.enrolment_refused", "used");
    // Two pages are open; a scanner has opened the link before both.
    begin(&world, &link).await.unwrap();
    let [first, second] = [begin(&world, &link).await.unwrap(), begin(&world, &link).await.unwrap()];
    let made = |key: &Authenticator, challenge| Finished {
        challenge,
        registration: key.register(challenge),
        label: "laptop".to_owned(),
    };
    assert!(finish(&world, &link, made(&key, challenge(&world, SANDBOX))).await.is_err());
    assert_eq!(newest(&world), recorded("person.enrolment_refused", "challenge"));
    finish(&world, &link, made(&key, first.challenge)).await.unwrap();
    assert!(finish(&world, &link, made(&other, second.challenge)).await.is_err());
    assert_eq!(newest(&world), refused);
    assert!(begin(&world, &link).await.is_err());
    assert_eq!(audited(&world).iter().filter(|record| **record == refused).count(), 2);

    let (of, by) = (acme(), operator(&world));
    let links = [[3; 32], [4; 32]].map(|random| Secret::new(zeroize::Zeroizing::new(random)));
    for link in &links {
        operate(&world, |tx| people::enrol(tx, &world.moments, (&of, SANDBOX), (id, link), &by)).unwrap();
    }
    let [replaced, newest_link] = &links;
    let over = recorded("person.enrolment_refused", "over");
    assert_eq!(begin(&world, replaced).await.unwrap_err().code.status(), 404);
    assert_eq!(newest(&world), over);
    let begun = begin(&world, newest_link).await.unwrap();
    world.clock.advance(CHALLENGE_SECONDS);
    assert!(finish(&world, newest_link, made(&other, begun.challenge)).await.is_err());
    assert_eq!(newest(&world), recorded("person.enrolment_refused", "late"));
    world.clock.advance(ENROLMENT_SECONDS);
    sweep(&world).await;
    let before = audited(&world).len();
    assert_eq!(enrol(&world, newest_link, &other).await.unwrap_err().code.status(), 404);
    assert_eq!((newest(&world), audited(&world).len()), (over, before + 1));
    // Nobody knows whose a guessed link is, nor in the end an old one.
    world.clock.advance(KEPT_LINK_SECONDS);
    sweep(&world).await;
    assert_eq!(enrol(&world, newest_link, &other).await.unwrap_err().code.status(), 404);
    assert_eq!(audited(&world).len(), before + 1);
    assert_eq!(world.number("SELECT COUNT(*) FROM enrolments"), 0);
}

/// The host is the same, so that browsers still offer the passkey: what it signs would not pass an audit.
#[tokio::test]
async fn a_passkey_of_another_origin_neither_signs_in_nor_answers() {
    let world = World::new().await;
    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let review = review(&world).await;
    let issued = issue(&world, &ada, Subject::Approve(review)).await.unwrap();
    let excluded = async || {
        let link = Secret::new(world.ids.random());
        let (of, by) = (acme(), operator(&world));
        let whose = (ada.person.id, &link);
        operate(&world, |tx| people::enrol(tx, &world.moments, (&of, SANDBOX), whose, &by)).unwrap();
        begin(&world, &link).await.unwrap().excluded.len()
    };
    assert_eq!(excluded().await, 1);
    let former = format!("{ORIGIN}:8443");
    operate(&world, |tx| {
        let mut moved = sql::people::find_key(tx, ada.environment.id, &key.credential)?.unwrap();
        tx.execute("DELETE FROM person_keys", &[])?;
        moved.origin = former.clone();
        Ok(sql::people::insert_key(tx, &moved)?)
    })
    .unwrap();
    let message = format!(
        "this passkey was registered at {former}, and the console is at {ORIGIN}; ask the operator for a link, and register a \
         passkey again"
    );
    let refused = recorded("person.answer_refused", "registered_elsewhere");
    let asked = issue(&world, &ada, Subject::Approve(review)).await.unwrap_err();
    assert_eq!((asked.code.status(), &asked.message, newest(&world)), (403, &message, refused.clone()));
    let before = audited(&world).len();
    let answered = answer(&world, &ada, issued.challenge, key.sign(issued.challenge)).await.unwrap_err();
    assert_eq!((answered.code.status(), &answered.message, newest(&world)), (403, &message, refused));
    assert_eq!(audited(&world).len(), before + 1);
    assert_eq!(signed_in(&world, &key).await.unwrap_err(), message);
    assert_eq!(newest(&world), recorded("person.sign_in_failed", "registered_elsewhere"));
    // The device that holds it may register again.
    assert_eq!(excluded().await, 0);
}

/// Statements are kept as long as the session that was given them can last.
#[tokio::test]
async fn a_statement_that_was_used_or_is_late_is_refused_as_such_also_hours_later() {
    let world = World::new().await;
    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let review = review(&world).await;
    let [used, late] = [
        issue(&world, &ada, Subject::Approve(review)).await,
        issue(&world, &ada, Subject::Approve(review)).await,
    ]
    .map(Result::unwrap);
    let wrong = key.sign([0; 32]);
    assert!(answer(&world, &ada, used.challenge, wrong).await.is_err());
    world.clock.advance(STATEMENT_SECONDS);
    for minute in 0..LONGEST_SECONDS / 60 - 5 {
        if minute % 60 == 0 {
            sweep(&world).await;
            for (check, challenge) in [("used", used.challenge), ("late", late.challenge)] {
                assert!(answer(&world, &ada, challenge, key.sign(challenge)).await.is_err());
                assert_eq!(
                    newest(&world),
                    recorded("person.answer_refused", check),
                    "{minute} minutes later"
                );
            }
        }
        world.clock.advance(60);
        let (now, session) = (world.clock.now(), ada.session);
        run(&world, move |tx| Ok(sessions::touch(tx, now, session)?)).await.unwrap();
    }
    world.clock.advance(LONGEST_SECONDS);
    sweep(&world).await;
    assert_eq!(world.number("SELECT COUNT(*) FROM statements"), 0);
}

#[tokio::test]
async fn what_is_of_another_tenant_is_refused_and_recorded() {
    let world = World::new().await;
    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let (bob, other) = person(&world, "Bob", "role:cfo", May::Review).await;
    let review = review(&world).await;
    // The statement of another environment, then that of another session.
    let stranger = world.stranger().await;
    let issued = issue(&world, &ada, Subject::Approve(review)).await.unwrap();
    world.change("UPDATE statements SET environment = environment + 2");
    assert!(answer(&world, &ada, issued.challenge, key.sign(issued.challenge)).await.is_err());
    assert_eq!(newest(&world), recorded("person.answer_refused", "unknown"));
    let issued = issue(&world, &ada, Subject::Approve(review)).await.unwrap();
    assert!(answer(&world, &bob, issued.challenge, other.sign(issued.challenge)).await.is_err());
    assert_eq!(newest(&world), recorded("person.answer_refused", "unknown"));
    for subject in [
        Subject::Approve(ReviewId::from_bytes([9; 16])),
        Subject::Deny(ReviewId::from_bytes([9; 16]), Some("no".to_owned())),
        Subject::Stop(MandateId::from_bytes([9; 16])),
    ] {
        assert_eq!(issue(&world, &ada, subject).await.unwrap_err().code.status(), 404);
        assert_eq!(newest(&world), recorded("person.answer_refused", "not_found"));
    }
    let before = audited(&world).len();
    let foreign = Viewer { environment: stranger.environment.clone(), ..ada.clone() };
    assert_eq!(issue(&world, &foreign, Subject::Approve(review)).await.unwrap_err().code.status(), 401);
    assert_eq!(audited(&world).len(), before, "no session, as without one");
}

/// Without a passkey as many as anyone likes: they write nothing but so many audit records an hour, and keep no person out. With
/// one, a person has so many sessions at a time.
#[tokio::test]
async fn ten_thousand_sign_ins_fill_nothing_and_keep_nobody_out() {
    let world = World::new().await;
    let (ada, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let (link, forger) = (created(&world, "Bob", "role:cfo", May::Read).1, Authenticator::new());
    let before = audited(&world).len();
    for (hour, pieces) in [(1, PIECES), (2, 1)] {
        for _ in 0..pieces {
            let (moments, environment) = (Arc::clone(&world.moments), world.organization.environment.clone());
            let challenge = challenge(&world, SANDBOX);
            let wrong = forger.posing_as(&key).sign(challenge);
            let tried = run(&world, move |tx| {
                let (of, mut refused) = ((&environment, &acme()), 0);
                for _ in 0..MANY / PIECES {
                    let tried = service::finish(tx, &moments, &challenges(), &party(), of, challenge, &wrong);
                    refused += usize::from(tried.is_err());
                }
                Ok(refused)
            });
            assert_eq!(tried.await.unwrap(), MANY / PIECES);
        }
        let recorded = i64::try_from(audited(&world).len() - before).unwrap();
        assert_eq!(recorded, MAX_RECORDED * hour);
        assert_eq!(world.number("SELECT COUNT(*) FROM challenges"), 0);
        world.clock.advance(RECORDED_SECONDS);
    }
    signed_in(&world, &key).await.unwrap();
    begin(&world, &link).await.unwrap();

    for _ in 0..2 * MAX_SESSIONS {
        signed_in(&world, &key).await.unwrap();
    }
    let (newest, _) = signed_in(&world, &key).await.unwrap();
    let of = (&acme(), SANDBOX);
    let listed = operate(&world, |tx| sessions::list(tx, &world.moments, of)).unwrap();
    let own: Vec<_> = listed.iter().filter(|listed| listed.session.person == ada.person.id).collect();
    assert_eq!(own.len(), usize::try_from(MAX_SESSIONS).unwrap());
    assert_eq!(own.last().unwrap().session.session, newest.session);
    world.clock.advance(CHALLENGE_SECONDS);
    sweep(&world).await;
    assert_eq!(world.number("SELECT COUNT(*) FROM challenges"), 0);
}

/// Those of one kind do not hide those of another, nor those of another environment.
#[tokio::test]
async fn so_many_refusals_of_a_kind_are_recorded_in_an_hour() {
    let world = World::new().await;
    let (_, key) = person(&world, "Ada", "role:cfo", May::Review).await;
    let forge = async |kind: EnvironmentKind, organization: AgentName| {
        let moments = Arc::clone(&world.moments);
        let refused = run(&world, move |tx| {
            let refusal = Refusal::invalid("forged");
            forged::<()>(tx, &moments, (&organization, kind), (json!({ "path": "answers" }), refusal))
        });
        assert_eq!(refused.await.unwrap_err().message, "forged");
    };
    let count = || {
        let refused = recorded("console.refused", "origin");
        i64::try_from(audited(&world).into_iter().filter(|record| *record == refused).count()).unwrap()
    };
    forge(SANDBOX, AgentName::parse("mist").unwrap()).await;
    assert_eq!(count(), 0);
    for _ in 0..2 * MAX_RECORDED {
        forge(SANDBOX, acme()).await;
    }
    assert_eq!(count(), MAX_RECORDED);
    forge(EnvironmentKind::Production, acme()).await;
    assert_eq!(count(), MAX_RECORDED + 1);
    assert!(sign_in(&world, [1; 32], key.sign([1; 32])).await.is_err());
    assert_eq!(newest(&world), recorded("person.sign_in_failed", "challenge"));
    world.clock.advance(RECORDED_SECONDS);
    forge(SANDBOX, acme()).await;
    assert_eq!(count(), MAX_RECORDED + 2);
}
