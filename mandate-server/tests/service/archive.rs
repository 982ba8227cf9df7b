//! The archive of signing keys: what was signed long ago still verifies.

use mandate_core::EnvironmentKind;
use mandate_core::jwks::KeySet;
use mandate_core::jwt::Unverified;
use mandate_server::clock::{Clock as _, SystemEntropy};
use mandate_server::model::master_key::MasterKey;
use mandate_server::service::audit::Operator;
use mandate_server::service::signing;
use mandate_server::service::signing::rotation::{self, INCOMING_SECONDS, Maker, OUTGOING_SECONDS};

use crate::apart;
use crate::world::World;

const MASTER: [u8; 32] = [7; 32];
const KINDS: [EnvironmentKind; 2] = EnvironmentKind::ALL;

/// Rotates the keys of both kinds, and lets time pass until the new ones sign and the old ones are retired.
fn rotate(world: &World) {
    let (master, by) =
        (MasterKey::from_bytes(MASTER), Operator { name: "test".to_owned(), at: world.clock.now() });
    let rotated = apart::run_once(&world.database, |tx| {
        let maker = Maker { master: &master, entropy: &SystemEntropy };
        let rotated = rotation::rotate(tx, maker, &KINDS, &by)?;
        world.keyring.refresh(tx)?;
        Ok(rotated)
    });
    assert_eq!(rotated.unwrap().unwrap().len(), 2);
    world.clock.advance(INCOMING_SECONDS + OUTGOING_SECONDS);
}

fn archived(world: &World) -> KeySet {
    let archive = apart::run_once(&world.database, |tx| Ok(signing::archive(tx)?)).unwrap().unwrap();
    KeySet::parse_archive(archive.as_bytes()).unwrap()
}

#[tokio::test]
async fn a_hundred_rotations_leave_an_archive_of_all_keys() {
    const ROTATIONS: usize = 100;
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 1000, "").await;
    let mut tokens = Vec::new();
    for _ in 0..ROTATIONS {
        rotate(&world);
        tokens.push(world.ask(&agent, "1").await["verdict_token"].as_str().unwrap().to_owned());
    }
    let archive = archived(&world);
    assert_eq!(archive.len(), (ROTATIONS + 1) * KINDS.len());
    for token in tokens {
        assert!(Unverified::parse(&token).unwrap().verify(&archive).is_ok());
    }
    let today = world.keyring.public_key_set(world.clock.now()).unwrap();
    assert_eq!(KeySet::parse(today.as_bytes()).unwrap().len(), KINDS.len(), "what is published stays small");
}

#[tokio::test]
async fn tokens_of_a_retired_key_are_rebuilt_and_verify_under_the_archive() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 1000, "").await;
    let before = world.ask(&agent, "40").await;
    rotate(&world);
    let after = world.ask(&agent, "41").await;
    let archive = archived(&world);
    let today = KeySet::parse(world.keyring.public_key_set(world.clock.now()).unwrap().as_bytes()).unwrap();
    for (answer, in_today) in [(before, false), (after, true)] {
        let decision = world.decision(&agent, &answer["decision"]).await;
        assert_eq!(decision["verdict_token"], answer["verdict_token"]);
        let token = Unverified::parse(answer["verdict_token"].as_str().unwrap()).unwrap();
        assert_eq!(
            (today.find(token.kid()).is_some(), archive.find(token.kid()).is_some()),
            (in_today, true)
        );
        assert!(token.verify(&archive).is_ok());
    }
}
