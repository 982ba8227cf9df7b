//! The demonstration's person, who answers reviews in the console.

use std::sync::Arc;

use mandate_core::{AgentName, EnvironmentKind, PersonId, Principal};

use super::play::PRINCIPAL;
use crate::admin::operator;
use crate::clock::{Clock as _, Ids, SystemClock, SystemEntropy};
use crate::error::Fault;
use crate::model::people::PasskeyRecord;
use crate::service::moments::Moments;
use crate::service::people::{self, May, New, Secret};
use crate::store;

const NAME: &str = "Head of IT";

/// Where the person goes: a link that registers a passkey, until there is one of this console; then the console. A passkey
/// that was registered while the console had another port neither signs in nor answers here.
pub(super) fn invite(database: &str, organization: &AgentName, console: &str) -> Result<String, Fault> {
    let ids = Arc::new(Ids::new(Arc::new(SystemEntropy)));
    let moments = Moments::new(Arc::new(SystemClock), Arc::clone(&ids));
    let (of, by) = ((organization, EnvironmentKind::Sandbox), operator::here());
    let base = format!("{console}/{}/{organization}", of.1);
    let new = New {
        id: PersonId::from_bytes(ids.fresh(SystemClock.now())),
        name: NAME.to_owned(),
        roles: vec![Principal::parse(PRINCIPAL)?],
        may: May::Review,
        secret: Secret::new(ids.random()),
    };
    let link = format!("{base}/enrol#{}", *new.secret.to_text());
    let invited = store::run_once(database, |tx| {
        let listed = people::list(tx, of)?;
        let Some(known) = listed.iter().find(|listed| listed.record.person.name == NAME) else {
            people::create(tx, &moments, of, &new, &by)?;
            return Ok(link.clone());
        };
        let is_good = |key: &PasskeyRecord| key.withdrawn_at.is_none() && key.origin == console;
        if known.record.disabled_at.is_some() || known.keys.iter().any(is_good) {
            return Ok(format!("{base}/"));
        }
        people::enrol(tx, &moments, of, (known.record.person.id, &new.secret), &by)?;
        Ok(link.clone())
    })?;
    invited.map_err(|refusal| Fault::new(refusal.message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_core::es256::SecretKey;
    use mandate_core::people::CredentialId;

    use crate::admin::organization::draw;
    use crate::service::organizations;
    use crate::store::sql;

    #[test]
    fn a_passkey_of_another_port_is_replaced_by_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let database = format!("sqlite://{}", folder.path().join("dev.db").display());
        let organization = AgentName::parse("demo").unwrap();
        store::migrate(&database).unwrap();
        let new = draw(organization.clone(), SystemClock.now(), &SystemEntropy);
        store::run_once(&database, |tx| organizations::create(tx, &new)).unwrap().unwrap();
        let (here, elsewhere) = ("http://localhost:8083", "http://localhost:9083");
        let invited = |console: &str| invite(&database, &organization, console).unwrap();
        assert!(invited(here).starts_with("http://localhost:8083/sandbox/demo/enrol#"));
        let enrolled = store::run_once(&database, |tx| {
            let of = (&organization, EnvironmentKind::Sandbox);
            let record = people::list(tx, of)?.remove(0).record;
            let key = PasskeyRecord {
                environment: record.environment,
                credential: CredentialId::from_bytes(&[2; 16]).unwrap(),
                person: record.person.id,
                key: (*SecretKey::from_bytes([9; 32]).unwrap().public_key()).into(),
                label: "Laptop".to_owned(),
                origin: here.to_owned(),
                is_synced: false,
                enrolled_at: record.created_at,
                withdrawn_at: None,
            };
            Ok(sql::people::insert_key(tx, &key)?)
        });
        enrolled.unwrap().unwrap();
        assert_eq!(invited(here), "http://localhost:8083/sandbox/demo/");
        assert!(invited(elsewhere).starts_with("http://localhost:9083/sandbox/demo/enrol#"));
    }
}
