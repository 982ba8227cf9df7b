//! What entries tell others: the holder of a token and of the whole log cannot try a spend or a limit against them.

use mandate_core::DecisionId;
use mandate_core::EnvironmentKind::Sandbox;
use mandate_core::json::one_line;
use mandate_core::log::{BlindSecret, Entry, Hash, decision_record, record_hash, token_hash};
use mandate_server::clock::Clock as _;
use mandate_server::service::decisions;
use mandate_server::store::sql::log_records;

use crate::apart;
use crate::public_log::{entries, keeper};
use crate::world::World;

/// The record with each number up to 2,000 in place of this one; the right one is among them once.
fn guesses(record: &str, name: &str, right: u32) -> Vec<String> {
    let of = |number: u32| format!("\"{name}\":{number}");
    assert_eq!(record.matches(&of(right)).count(), 1, "{record}");
    let all: Vec<_> = (0..2_000).map(|number| record.replace(&of(right), &of(number))).collect();
    assert_eq!(all.iter().filter(|guess| *guess == record).count(), 1);
    all
}

/// No guess has the hash in the log: neither without a blind, nor with one that an attacker could have. With the blind one has.
fn cannot_be_guessed(guesses: &[String], logged: &Hash, blind: &Hash, wrong: &[Hash]) {
    for guess in guesses {
        let bytes = guess.as_bytes();
        for hash in [Hash::sha256(bytes), Hash::of_leaf(bytes), record_hash(logged, bytes)] {
            assert_ne!(hash, *logged, "{guess}");
        }
        for blind in wrong {
            assert_ne!(record_hash(blind, bytes), *logged, "{guess}");
        }
    }
    let found = guesses.iter().filter(|guess| record_hash(blind, guess.as_bytes()) == *logged).count();
    assert_eq!(found, 1, "with the blind the same guesses find it");
}

#[tokio::test]
async fn a_spend_cannot_be_guessed_from_a_token_and_its_entry() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 1_000, "").await;
    let other = world.ask(&agent, "7").await;
    let answer = world.ask(&agent, "1").await;
    keeper(&world, None).look().await;
    let (call, name) = (world.call(&agent), answer["decision"].as_str().unwrap().to_owned());
    let (id, now) = (DecisionId::parse(&name).unwrap(), world.clock.now());
    let shown = world.store.read(move |tx| decisions::get(tx, &call, &name, now)).await.unwrap().unwrap();
    let record = decision_record(&one_line(std::str::from_utf8(&shown.body).unwrap())).unwrap();
    let decision = world.decision(&agent, &answer["decision"]).await;
    let token = token_hash(decision["verdict_token"].as_str().unwrap()).unwrap();
    // All that the log and the proof of the token say of it.
    let of_token = |entry: &Entry| match entry {
        Entry::Decision { tag, token: of, record } if *of == token => Some((*tag, *record)),
        _ => None,
    };
    let (tag, logged) = entries(&world).iter().find_map(of_token).unwrap();
    let blinds = &world.keyring.log_secrets().environment(world.organization.environment.id).blind;
    let elsewhere = world.keyring.log_secrets().environment(world.organization.environment.id + 1);
    let other = DecisionId::parse(other["decision"].as_str().unwrap()).unwrap();
    let wrong = [
        Hash::new([0; 32]),
        Hash::sha256(b""),
        tag,
        token,
        // Of another decision, which was given away; of another organization; and under no secret.
        blinds.decision(other),
        elsewhere.blind.decision(id),
        BlindSecret::new([0; 32]).decision(id),
    ];
    cannot_be_guessed(&guesses(&record, "spent", 7), &logged, &blinds.decision(id), &wrong);
}

#[tokio::test]
async fn a_limit_cannot_be_guessed_from_the_entry_of_its_mandate() {
    let world = World::new().await;
    let agent = world.agent("buyer").await;
    world.mandate(&agent, 1_234, "").await;
    let records = apart::run_once(&world.database, |tx| Ok(log_records::pending(tx, Sandbox, 10)?));
    let records = records.unwrap().unwrap();
    let mandate = records.iter().find(|record| record.record.contains("1234")).unwrap();
    keeper(&world, None).look().await;
    let secrets = world.keyring.log_secrets().environment(mandate.environment);
    let own = secrets.watch.governing(mandate.number);
    let of_mandate = |entry: &Entry| match entry {
        Entry::Governing { tag, random, record } if *tag == own => Some((*random, *record)),
        _ => None,
    };
    let (random, logged) = entries(&world).iter().find_map(of_mandate).unwrap();
    let elsewhere = world.keyring.log_secrets().environment(mandate.environment + 1);
    let wrong = [
        Hash::new([0; 32]),
        Hash::sha256(b""),
        own,
        random,
        secrets.blind.governing(mandate.number + 1),
        elsewhere.blind.governing(mandate.number),
        BlindSecret::new([0; 32]).governing(mandate.number),
    ];
    let blind = secrets.blind.governing(mandate.number);
    cannot_be_guessed(&guesses(&mandate.record, "per_month", 1_234), &logged, &blind, &wrong);
}
