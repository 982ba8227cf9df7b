//! Agents and passkeys are what the public log has of them.

use mandate_core::EnvironmentKind::Sandbox;
use mandate_core::people::CredentialId;
use mandate_core::{AgentId, Timestamp};
use mandate_server::clock::Clock as _;
use mandate_server::model::people::PasskeyRecord;
use mandate_server::service::people::{self, May};
use mandate_server::store::sql;
use mandate_server::store::sql::agents::Agent;

use crate::authenticator::{acme, operate, operator, person};
use crate::check;
use crate::world::World;

const NO_RECORD: &str = "no governing record of it in the public log";
const NO_ROW: &str = "no row, and a governing record of it in the public log";

/// What a check finds with the public log: the table, the id, and what it finds.
fn found(world: &World) -> Vec<(String, String, String)> {
    let all = check::findings(&world.database).into_iter();
    let of_the_log = all.filter(|finding| finding.found.contains("public log"));
    of_the_log.map(|finding| (finding.table, finding.id.unwrap_or_default(), finding.found)).collect()
}

#[tokio::test]
async fn an_agent_that_is_not_what_was_recorded_is_found() {
    let world = World::new().await;
    world.agent("buyer").await;
    world.clock.advance(1);
    world.agent("silent").await;
    assert_eq!(check::findings(&world.database), []);
    let of = |agent: &str, found: &str| vec![("agents".to_owned(), agent.to_owned(), found.to_owned())];

    world.change("UPDATE agents SET created_at = created_at + 1 WHERE agent = 'agt_buyer'");
    let later = "created at 2026-06-15T12:00:00.001Z, unlike its records in the public log";
    assert_eq!(found(&world), of("agt_buyer", later));
    world.change("UPDATE agents SET created_at = created_at - 1 WHERE agent = 'agt_buyer'");
    assert_eq!(check::findings(&world.database), []);

    let agent = Agent {
        id: AgentId::parse("agt_other").unwrap(),
        position: world.new_id(),
        created_at: world.clock.now(),
        governing: None,
    };
    let environment = world.organization.environment.id;
    assert!(operate(&world, |tx| Ok(sql::agents::insert(tx, environment, &agent)?)).unwrap());
    assert_eq!(found(&world), of("agt_other", NO_RECORD));
    assert_eq!(world.change("DELETE FROM agents WHERE agent = 'agt_other'"), 1);
    assert_eq!(check::findings(&world.database), []);

    // Nothing is in the public log yet: the records wait.
    world.change("UPDATE log_records SET record = replace(record, 'agt_silent', 'agt_other')");
    assert_eq!(found(&world), [of("agt_silent", NO_RECORD), of("agt_other", NO_ROW)].concat());
    world.change("UPDATE log_records SET record = replace(record, 'agt_other', 'agt_silent')");
    assert_eq!(check::findings(&world.database), []);

    world.change("DELETE FROM api_keys WHERE agent = 'agt_silent'");
    assert_eq!(world.change("DELETE FROM agents WHERE agent = 'agt_silent'"), 1);
    assert_eq!(found(&world), of("agt_silent", NO_ROW));
}

/// Each row has the checksum of what it is then.
#[tokio::test]
async fn a_passkey_that_is_not_what_was_recorded_is_found() {
    let world = World::new().await;
    let (ada, _) = person(&world, "Ada", "role:cfo", May::Review).await;
    world.clock.advance(1);
    let (bob, _) = person(&world, "Bob", "role:cfo", May::Review).await;
    world.clock.advance(1);
    let by = operator(&world);
    operate(&world, |tx| people::disable(tx, &world.moments, (&acme(), Sandbox), bob.person.id, &by))
        .unwrap();
    assert_eq!(check::findings(&world.database), []);
    let environment = world.organization.environment.id;
    let of = |person| {
        let mut keys = operate(&world, |tx| Ok(sql::people::keys_of(tx, environment, person)?)).unwrap();
        keys.remove(0)
    };
    let (whole, withdrawn) = (of(ada.person.id), of(bob.person.id));
    let replace = |record: &PasskeyRecord| {
        let delete = "DELETE FROM person_keys WHERE credential = $1";
        let credential = record.credential.as_bytes().to_vec();
        operate(&world, |tx| {
            tx.execute_one(delete, &[credential.into()])?;
            Ok(sql::people::insert_key(tx, record)?)
        })
        .unwrap();
    };
    let later = |at: Timestamp| at.plus_seconds(1);
    for (altered, back) in [
        (PasskeyRecord { person: bob.person.id, ..whole.clone() }, &whole),
        (PasskeyRecord { key: withdrawn.key, ..whole.clone() }, &whole),
        (PasskeyRecord { origin: "https://console.other".to_owned(), ..whole.clone() }, &whole),
        (PasskeyRecord { enrolled_at: later(whole.enrolled_at), ..whole.clone() }, &whole),
        (PasskeyRecord { withdrawn_at: Some(world.clock.now()), ..whole.clone() }, &whole),
        (PasskeyRecord { withdrawn_at: None, ..withdrawn.clone() }, &withdrawn),
        (PasskeyRecord { withdrawn_at: withdrawn.withdrawn_at.map(later), ..withdrawn.clone() }, &withdrawn),
    ] {
        replace(&altered);
        let found = found(&world);
        let [(table, id, what)] = &found[..] else { panic!("{altered:?}: {found:?}") };
        assert_eq!((table.as_str(), id), ("person_keys", &altered.credential.to_string()));
        assert!(what.ends_with(", unlike its records in the public log"), "{altered:?}: {what}");
        replace(back);
        assert_eq!(check::findings(&world.database), []);
    }
    // What it is called is in no record.
    replace(&PasskeyRecord { label: "another".to_owned(), ..whole.clone() });
    assert_eq!(check::findings(&world.database), []);

    let credential = CredentialId::from_bytes(&[1, 2, 3]).unwrap();
    let added = PasskeyRecord { credential: credential.clone(), ..whole };
    operate(&world, |tx| Ok(sql::people::insert_key(tx, &added)?)).unwrap();
    assert_eq!(
        world.change("DELETE FROM person_keys WHERE person = (SELECT person FROM people WHERE name = 'Bob')"),
        1
    );
    let of = |id: &CredentialId, found: &str| ("person_keys".to_owned(), id.to_string(), found.to_owned());
    assert_eq!(found(&world), [of(&credential, NO_RECORD), of(&withdrawn.credential, NO_ROW)]);
}
