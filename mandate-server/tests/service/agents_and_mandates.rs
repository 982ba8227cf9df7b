//! Which mandate governs, and who sees what.

use std::sync::Arc;

use mandate_server::service::{agents, mandates};

use crate::world::{World, json};

#[tokio::test]
async fn the_newest_mandate_governs_and_only_that_one_can_be_revoked() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let denied = world.ask(&agent, "1").await;
    assert_eq!(
        (&denied["verdict"], &denied["reason"]),
        (&"deny_no_mandate".into(), &"agent agt_a has no mandate".into())
    );
    assert!(world.decision(&agent, &denied["decision"]).await.get("mandate").is_none());

    let first = world.mandate(&agent, 1_000, "").await;
    let second = world.mandate(&agent, 1_000, "").await;
    let refused = world.revoke(&first).await;
    assert_eq!(refused.status, 400);
    let message = json(&refused)["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(&first) && message.contains(&second) && message.contains("agt_a"), "{message}");
    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");

    let revoked = json(&world.revoke(&second).await);
    assert_eq!(revoked["status"], "revoked");
    world.clock.advance(5);
    assert_eq!(json(&world.revoke(&second).await), revoked, "revoking again changes nothing");
    assert_eq!(world.ask(&agent, "1").await["verdict"], "deny_revoked");

    let third = world.mandate(&agent, 1_000, "").await;
    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");
    let (call, now) = (world.call(&world.organization), mandate_server::clock::Clock::now(&*world.clock));
    for (id, status, replaced_by) in [
        (first, "replaced", second.as_str().into()),
        (second, "revoked", serde_json::Value::Null),
        (third, "active", serde_json::Value::Null),
    ] {
        let call = call.clone();
        let found = world.store.read(move |tx| mandates::get(tx, &call, &id, now)).await.unwrap().unwrap();
        let found = json(&found);
        assert_eq!((&found["status"], &found["replaced_by"]), (&status.into(), &replaced_by));
    }
}

#[tokio::test]
async fn rows_that_contradict_each_other_are_a_fault_of_the_kind_corrupt() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let id = world.mandate(&agent, 1_000, "").await;
    let governs_no_more = "UPDATE agents SET governing = NULL";
    let changed = world.store.write(move |tx| Ok(tx.execute(governs_no_more, &[])?)).await;
    assert_eq!(changed.unwrap().unwrap(), 1);
    let (call, moments) = (world.call(&world.organization), Arc::clone(&world.moments));
    let revoke = mandates::Revoke { id, moments };
    let revoked = world.store.write(move |tx| mandates::revoke(tx, &call, &revoke)).await;
    let Err(fault) = revoked else { panic!("it is revoked") };
    assert_eq!(fault.kind(), "corrupt", "{fault}");
}

#[tokio::test]
async fn a_mandate_ends_with_its_last_day() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let body = r#"{"principal":"role:cfo","agent":"agt_a","categories":["c"],"expires":"2026-06-15",
        "limits":{"per_transaction":5,"currency":"USD"}}"#;
    let id = world.write_mandate(body).await["id"].as_str().unwrap().to_owned();
    world.clock.advance(43_199);
    assert_eq!(world.ask(&agent, "1").await["verdict"], "allow");
    world.clock.advance(1);
    let denied = world.ask(&agent, "1").await;
    assert_eq!(denied["verdict"], "deny_expired");
    assert_eq!(denied["reason"], format!("mandate {id} expired at the end of 2026-06-15"));
    let late = world.write_mandate(body).await;
    assert_eq!(
        late["error"]["message"],
        "expires must not be in the past; got `2026-06-15`, today is 2026-06-16 (UTC)"
    );
}

#[tokio::test]
async fn a_mandate_for_an_unknown_agent_is_refused() {
    let world = World::new().await;
    let body = r#"{"principal":"role:cfo","agent":"agt_ghost","categories":["c"],"expires":"2026-12-31",
        "limits":{"per_transaction":5,"currency":"USD"}}"#;
    assert_eq!(
        world.write_mandate(body).await["error"]["message"],
        "agent must be one that is registered in this environment; got `agt_ghost`"
    );
}

#[tokio::test]
async fn an_agent_sees_only_itself() {
    let world = World::new().await;
    let (a, b) = (world.agent("a").await, world.agent("b").await);
    let of_b = world.mandate(&b, 1_000, "").await;
    let decided = world.ask(&b, "1").await;
    for (id, found) in [("agt_a", true), ("agt_b", false), ("agt_ghost", false), ("b", false)] {
        let call = world.call(&a);
        let got = world.store.read(move |tx| agents::get(tx, &call, id)).await.unwrap();
        assert_eq!(got.is_ok(), found, "{id}");
    }
    let (call, now) = (world.call(&a), mandate_server::clock::Clock::now(&*world.clock));
    let decision = decided["decision"].as_str().unwrap().to_owned();
    let (other, again) = (call.clone(), call.clone());
    assert!(world.store.read(move |tx| mandates::get(tx, &call, &of_b, now)).await.unwrap().is_err());
    let got =
        world.store.read(move |tx| mandate_server::service::decisions::get(tx, &other, &decision, now)).await;
    assert!(got.unwrap().is_err());
    let query = mandate_server::service::listing::Query {
        limit: 100,
        from: mandate_server::service::listing::From::Newest,
    };
    let key = std::sync::Arc::new(mandate_core::cursor::CursorKey::new([1; 32]));
    let cursors = mandate_server::service::listing::Cursors { key, now };
    let listed =
        world.store.read(move |tx| agents::list(tx, &again, &query, &cursors)).await.unwrap().unwrap();
    assert_eq!(json(&listed)["data"].as_array().unwrap().len(), 1);
}
