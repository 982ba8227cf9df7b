//! The demonstration's person, who answers reviews in the console.

use std::sync::Arc;

use mandate_core::{AgentName, EnvironmentKind, PersonId, Principal};

use super::play::PRINCIPAL;
use crate::admin::operator;
use crate::clock::{Clock as _, Ids, SystemClock, SystemEntropy};
use crate::error::Fault;
use crate::service::moments::Moments;
use crate::service::people::{self, May, New, Secret};
use crate::store;

const NAME: &str = "Head of IT";

/// Where the person goes: a link that registers a passkey, until there is one; then the console.
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
        if known.record.disabled_at.is_some() || known.keys.iter().any(|key| key.withdrawn_at.is_none()) {
            return Ok(format!("{base}/"));
        }
        people::enrol(tx, &moments, of, (known.record.person.id, &new.secret), &by)?;
        Ok(link.clone())
    })?;
    invited.map_err(|refusal| Fault::new(refusal.message))
}
