//! Bodies that are waited for. They take no room from requests that can be carried out, and are bounded for each key and
//! each environment instead.

use std::sync::Arc;

use super::counts::{Counts, Held};
use crate::model::call::Caller;

/// How many bodies of one key are waited for at a time.
pub(crate) const MAX_OF_KEY: usize = 64;
/// How many of all keys of one environment: an organization makes as many agents' keys as it likes.
const MAX_OF_ENVIRONMENT: usize = 512;

/// Whose bodies are waited for.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    keys: Arc<Counts<i64>>,
    environments: Arc<Counts<i64>>,
}

/// A body that is waited for, until it is dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "what is held is let go when it is dropped")]
pub(super) struct OnItsWay(Held<i64>, Held<i64>);

impl Awaited {
    /// Waits for one more body of a caller, unless it has too many.
    pub(super) fn wait(&self, caller: &Caller) -> Option<OnItsWay> {
        let of_key = self.keys.hold(caller.key, MAX_OF_KEY)?;
        let of_environment = self.environments.hold(caller.environment.id, MAX_OF_ENVIRONMENT)?;
        Some(OnItsWay(of_key, of_environment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::call::Environment;
    use mandate_core::{EnvironmentKind, PolicyVersion};

    fn caller(key: i64, environment: i64) -> Caller {
        let policy_version = PolicyVersion::parse("pol_2026-11-21.1").unwrap();
        let environment = Environment { id: environment, kind: EnvironmentKind::Sandbox, policy_version };
        Caller { key, environment, agent: None, rate: 1, expires_at: None }
    }

    #[test]
    fn a_key_and_an_environment_have_so_many_on_their_way_and_no_more() {
        let awaited = Awaited::default();
        let wait = |key, environment| awaited.wait(&caller(key, environment));
        let mut held: Vec<_> = (0..MAX_OF_KEY).map(|_| wait(1, 1).unwrap()).collect();
        assert!(wait(1, 1).is_none());
        for number in MAX_OF_KEY..MAX_OF_ENVIRONMENT {
            let key = 2 + i64::try_from(number / MAX_OF_KEY).unwrap();
            held.push(wait(key, 1).unwrap());
        }
        assert!(wait(100, 1).is_none(), "a key more brings the environment no more");
        assert!(wait(101, 2).is_some(), "others are not concerned");
        held.pop();
        held.push(wait(100, 1).unwrap());
        drop(held);
        assert!(awaited.keys.is_empty() && awaited.environments.is_empty(), "who has none is forgotten");
    }
}
