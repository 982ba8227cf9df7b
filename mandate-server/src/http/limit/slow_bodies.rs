//! Bodies that arrive slowly. A request that waits for its body takes no room from requests that are ready.
//! Instead, slow bodies are limited for each key and each environment.

use std::sync::Arc;

use super::concurrency::{ConcurrencyLimits, Permit};
use crate::model::call::Caller;

/// How many slow bodies one key may have at a time.
pub(crate) const MAX_OF_KEY: usize = 64;
/// How many slow bodies all keys of one environment may have: an organization can create any number of agent
/// keys.
const MAX_OF_ENVIRONMENT: usize = 512;

/// The slow bodies of each key and environment.
#[derive(Debug, Default)]
pub(crate) struct SlowBodies {
    keys: Arc<ConcurrencyLimits<i64>>,
    environments: Arc<ConcurrencyLimits<i64>>,
}

/// Counts one slow body until it is dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "both permits end when it is dropped")]
pub(in crate::http) struct SlowBody(Permit<i64>, Permit<i64>);

impl SlowBodies {
    /// Counts one more slow body of a caller, unless it has too many.
    pub(in crate::http) fn acquire(&self, caller: &Caller) -> Option<SlowBody> {
        let of_key = self.keys.acquire(caller.key, MAX_OF_KEY)?;
        let of_environment = self.environments.acquire(caller.environment.id, MAX_OF_ENVIRONMENT)?;
        Some(SlowBody(of_key, of_environment))
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
    fn a_key_and_an_environment_have_a_bounded_number_of_slow_bodies() {
        let bodies = SlowBodies::default();
        let wait = |key, environment| bodies.acquire(&caller(key, environment));
        let mut held: Vec<_> = (0..MAX_OF_KEY).map(|_| wait(1, 1).unwrap()).collect();
        assert!(wait(1, 1).is_none());
        for number in MAX_OF_KEY..MAX_OF_ENVIRONMENT {
            let key = 2 + i64::try_from(number / MAX_OF_KEY).unwrap();
            held.push(wait(key, 1).unwrap());
        }
        assert!(wait(100, 1).is_none(), "a key more brings the environment no more");
        assert!(wait(101, 2).is_some(), "other environments are not affected");
        held.pop();
        held.push(wait(100, 1).unwrap());
        drop(held);
        assert!(
            bodies.keys.is_empty() && bodies.environments.is_empty(),
            "a caller without any is forgotten"
        );
    }
}
