//! A person of an environment, with a row in each table that people have.

use std::sync::Arc;

use mandate_core::Principal;
use mandate_core::json::Object;
use mandate_core::people::{Answer, PersonKey, Statement};
use mandate_server::clock::{Ids, SystemClock, SystemEntropy};
use mandate_server::model::people::{AnswerRecord, Answered, PasskeyRecord, StatementRecord};
use mandate_server::service::audit::Operator;
use mandate_server::service::moments::Moments;
use mandate_server::service::people::{self as service, May, New, Secret};
use mandate_server::service::public_log::Governing;
use mandate_server::store::sql::{answers, people, sessions};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::apart;
use crate::world::World;

/// Answers that were signed, and the key of their passkey.
const VECTORS: &str = include_str!("../../../../mandate-core/vectors/people.json");

/// The answer that stopped an agent, and its passkey's key.
fn stop() -> (Answer, PersonKey) {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let answers = vectors["answers"].as_array().unwrap().iter();
    let stops =
        answers.filter(|one| one["name"] == "an agent is stopped").map(|one| one["answer"].to_string());
    let [stop] = &stops.collect::<Vec<_>>()[..] else { panic!("one agent is stopped") };
    let answer = Answer::read(Object::parse(stop.as_bytes()).unwrap()).unwrap();
    (answer, PersonKey::parse(vectors["key"].as_str().unwrap()).unwrap())
}

/// Creates a person with a passkey, who is signed in and has answered.
pub(crate) fn set(world: &World, by: &Operator) {
    let ids = Arc::new(Ids::new(Arc::new(SystemEntropy)));
    let moments = Moments::new(Arc::new(SystemClock), Arc::clone(&ids));
    let (stop, key) = stop();
    let signed = Statement::parse(&stop.statement).unwrap();
    let (of, at, id) = (signed.organization.clone(), by.at, signed.person);
    let roles = vec![Principal::parse("role:cfo").unwrap(), Principal::parse("role:cto").unwrap()];
    let new = New { id, name: "Ada".to_owned(), roles, may: May::Review, secret: Secret::new(ids.random()) };
    let credential = signed.credential.clone();
    let set = apart::run_once(&world.settings.database, |tx| {
        let record = service::create(tx, &moments, (&of, signed.kind), &new, by)?;
        let environment = record.environment;
        let passkey = PasskeyRecord {
            environment,
            credential: credential.clone(),
            person: id,
            key,
            label: "laptop".to_owned(),
            origin: "https://console.example".to_owned(),
            is_synced: true,
            enrolled_at: at,
            withdrawn_at: None,
        };
        people::insert_key(tx, &passkey)?;
        let (name, origin) = (&record.person.name, &passkey.origin);
        let enrolled = Governing::PersonKey { at, person: id, name, credential: &credential, key, origin };
        enrolled.record(tx, environment)?;
        Governing::PersonWithdrawn { at, person: id, credential: &credential }.record(tx, environment)?;
        people::withdraw(tx, &PasskeyRecord { withdrawn_at: Some(at), ..passkey })?;
        let session = sessions::insert(tx, environment, [3; 32], (id, &credential), at)?;
        sessions::use_challenge(tx, environment, [4; 32], at.plus_seconds(60))?;
        let (expires_at, challenge, used_at) = (at.plus_seconds(60), [5; 32], Some(at));
        let statement = stop.statement.clone();
        let statement = StatementRecord { environment, challenge, session, statement, expires_at, used_at };
        answers::insert_statement(tx, &statement)?;
        let (to, at) = (Answered::Mandate(signed.mandate), signed.expires.plus_seconds(-60));
        let content = stop.to_json();
        let hash = Sha256::digest(&content).into();
        let answer = AnswerRecord { environment, hash, person: id, to, at, content };
        Ok(answers::insert(tx, &answer)?)
    });
    set.unwrap().unwrap();
}
