//! What is acknowledged is there; what ended in a fault is not.

use mandate_core::AgentId;
use mandate_server::error::{Fault, Refusal};
use mandate_server::model::call::ScriptError;
use mandate_server::service::{agents, organizations};
use mandate_server::store::Authorization;

use crate::apart;
use crate::oracle;
use crate::world::{World, random_key};
use mandate_core::api_key::KeyClass;

#[tokio::test]
async fn a_fault_or_a_panic_undoes_its_own_script_and_no_other() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let spoil = |how: fn()| {
        let call = world.call(&world.organization);
        world.store.write::<(), _>(move |tx| {
            let create = agents::Create {
                name: mandate_core::AgentName::parse("ghost").unwrap(),
                key: random_key(KeyClass::Agent),
                id: [9; 16],
                at: call.at,
            };
            agents::create(tx, &call, &create)?;
            how();
            Err(ScriptError::Fault(Fault::new("spoilt")))
        })
    };
    let ((fault, panic), asked) = tokio::join!(
        async { tokio::join!(spoil(|| ()), spoil(|| panic!("spoilt"))) },
        world.ask(&agent, "1")
    );
    assert!(fault.is_err() && panic.is_err());
    assert_eq!(asked["verdict"], "allow");
    let call = world.call(&world.organization);
    let ghost = world.store.read(move |tx| agents::get(tx, &call, "agt_ghost")).await.unwrap();
    assert!(matches!(ghost, Err(ScriptError::Refused(_))));
    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow", "the writer goes on");
    world.store.close();
    assert_eq!(oracle::holds(&world.database), 2);
}

#[tokio::test]
async fn an_authorization_that_cannot_be_decided_harms_no_other_in_its_batch() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.mandate(&agent, 1_000, "").await;
    let call = world.call(&agent);
    let mut request = World::request(&agent, "1");
    request.agent = AgentId::parse("agt_ghost").unwrap();
    let ghost = Authorization::new(call.clone(), Ok(request));
    let malformed = Authorization::new(call, Err(Refusal::invalid("amount is required")));

    // The writer is held until all three wait, so that they come into one batch.
    let (release, gate) = std::sync::mpsc::channel();
    let gate = std::sync::Mutex::new(gate);
    let hold = world.store.write(move |_| {
        gate.lock().unwrap().recv().unwrap();
        Ok(())
    });
    let (_, ghost, refused, asked, ()) = tokio::join!(
        hold,
        world.store.decide(ghost),
        world.store.decide(malformed),
        world.ask(&agent, "1"),
        async { release.send(()).unwrap() },
    );
    assert!(ghost.is_err());
    assert_eq!(refused.unwrap().status, 400);
    assert_eq!(asked["verdict"], "allow");
    let basis = world.decision(&agent, &asked["decision"]).await["basis"].clone();
    assert_eq!(basis, serde_json::json!({"spent": 0, "recent_requests": 0}), "decided once");
    world.store.close();
    assert_eq!(oracle::holds(&world.database), 1);
}

#[tokio::test]
async fn operator_commands_work_beside_the_running_store_and_names_are_taken_once() {
    let world = World::new().await;
    let create = |name: &str| organizations::Create {
        name: mandate_core::AgentName::parse(name).unwrap(),
        sandbox_key: random_key(KeyClass::Organization),
        live_key: random_key(KeyClass::Organization),
        at: mandate_server::clock::Clock::now(&*world.clock),
    };
    let (fresh, taken) = (create("other"), create("acme"));
    assert!(apart::run_once(&world.database, |tx| organizations::create(tx, &fresh)).unwrap().is_ok());
    let refused =
        apart::run_once(&world.database, |tx| organizations::create(tx, &taken)).unwrap().unwrap_err();
    assert_eq!(refused.message, "name `acme` is taken by another organization; choose another");
    let other = crate::world::find(&world.store, &fresh.sandbox_key, fresh.at).await;
    assert_ne!(other.environment.id, world.organization.environment.id);
}
