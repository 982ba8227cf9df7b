//! A person of an environment, with a row in each table that people have.

use std::sync::Arc;

use mandate_core::es256::SecretKey;
use mandate_core::people::CredentialId;
use mandate_core::{AgentName, EnvironmentKind, MandateId, PersonId, Principal};
use mandate_server::clock::{Ids, SystemClock, SystemEntropy};
use mandate_server::model::people::{AnswerRecord, Answered, PasskeyRecord, StatementRecord};
use mandate_server::service::audit::Operator;
use mandate_server::service::moments::Moments;
use mandate_server::service::people::{self as service, May, New, Secret};
use mandate_server::store::sql::{answers, people, sessions};

use crate::apart;
use crate::world::World;

/// Creates a person with a passkey, who is signed in and has answered.
pub(crate) fn set(world: &World, by: &Operator) {
    let ids = Arc::new(Ids::new(Arc::new(SystemEntropy)));
    let moments = Moments::new(Arc::new(SystemClock), Arc::clone(&ids));
    let (of, at, id) = (AgentName::parse("acme").unwrap(), by.at, PersonId::from_bytes([1; 16]));
    let roles = vec![Principal::parse("role:cfo").unwrap(), Principal::parse("role:cto").unwrap()];
    let new = New { id, name: "Ada".to_owned(), roles, may: May::Review, secret: Secret::new(ids.random()) };
    let credential = CredentialId::from_bytes(&[2; 40]).unwrap();
    let set = apart::run_once(&world.settings.database, |tx| {
        let record = service::create(tx, &moments, (&of, EnvironmentKind::Sandbox), &new, by)?;
        let (environment, text) = (record.environment, "{}".to_owned());
        let passkey = PasskeyRecord {
            environment,
            credential: credential.clone(),
            person: id,
            key: (*SecretKey::from_bytes([7; 32]).unwrap().public_key()).into(),
            label: "laptop".to_owned(),
            origin: "https://console.example".to_owned(),
            is_synced: true,
            enrolled_at: at,
            withdrawn_at: None,
        };
        people::insert_key(tx, &passkey)?;
        people::withdraw(tx, &PasskeyRecord { withdrawn_at: Some(at), ..passkey })?;
        let session = sessions::insert(tx, environment, [3; 32], (id, &credential), at)?;
        sessions::use_challenge(tx, environment, [4; 32], at.plus_seconds(60))?;
        let (expires_at, challenge, used_at) = (at.plus_seconds(60), [5; 32], Some(at));
        let statement =
            StatementRecord { environment, challenge, session, statement: text.clone(), expires_at, used_at };
        answers::insert_statement(tx, &statement)?;
        let to = Answered::Mandate(MandateId::from_bytes([6; 16]));
        let answer = AnswerRecord { environment, hash: [7; 32], person: id, to, at, content: text };
        Ok(answers::insert(tx, &answer)?)
    });
    set.unwrap().unwrap();
}
