//! The secrets of each environment's entries: one hides what records say, the other finds the entries.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use hmac::Mac;
use mandate_core::log::{BlindSecret, Hash, WatchKey};
use zeroize::Zeroizing;

use crate::model::mac;

/// The secrets of all environments. They come from one secret, so that a new environment needs nothing.
pub struct LogSecrets {
    root: Zeroizing<[u8; 32]>,
    known: RwLock<HashMap<i64, Arc<EnvironmentSecrets>>>,
}

/// The secrets of one environment.
pub struct EnvironmentSecrets {
    /// Hides what records say.
    pub blind: BlindSecret,
    /// Finds the environment's entries.
    pub watch: WatchKey,
    random: Zeroizing<[u8; 32]>,
}

impl EnvironmentSecrets {
    /// The random bytes of governing record `number`. Without the secret they look random.
    #[must_use]
    pub fn random(&self, number: u64) -> Hash {
        Hash::new(mac(&self.random, &[&number.to_be_bytes()]))
    }
}

impl fmt::Debug for EnvironmentSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvironmentSecrets(…)")
    }
}

impl LogSecrets {
    /// The secrets that come from `root`.
    #[must_use]
    pub fn new(root: Zeroizing<[u8; 32]>) -> Self {
        Self { root, known: RwLock::default() }
    }

    /// Those of one environment.
    #[must_use]
    pub fn environment(&self, environment: i64) -> Arc<EnvironmentSecrets> {
        if let Some(known) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&environment) {
            return Arc::clone(known);
        }
        let secrets = Arc::new(EnvironmentSecrets {
            blind: BlindSecret::new(self.derive(b"blind", environment)),
            watch: WatchKey::new(self.derive(b"watch", environment)),
            random: Zeroizing::new(self.derive(b"random", environment)),
        });
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(environment).or_insert(secrets))
    }

    fn derive(&self, purpose: &[u8], environment: i64) -> [u8; 32] {
        mac(&self.root, &[b"mandate public log 1 ", purpose, &environment.to_be_bytes()])
    }
}

/// HMAC-SHA-256 of these parts.
fn mac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    parts.iter().fold(mac::under(key), Mac::chain_update).finalize().into_bytes().into()
}

impl fmt::Debug for LogSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogSecrets(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_environment_has_its_own_secrets_and_keeps_them() {
        let of = |root| LogSecrets::new(Zeroizing::new([root; 32]));
        let (one, other) = (of(1), of(2));
        let watch = |secrets: &LogSecrets, environment| secrets.environment(environment).watch.governing(1);
        assert_eq!(watch(&one, 1), watch(&of(1), 1));
        assert_ne!(watch(&one, 1), watch(&one, 2));
        assert_ne!(watch(&one, 1), watch(&other, 1));
        assert_ne!(watch(&one, 1), one.environment(1).blind.governing(1));
        let random = |number| one.environment(1).random(number);
        assert_eq!(random(1), of(1).environment(1).random(1));
        assert_ne!(random(1), random(2));
        assert_eq!(format!("{:?}", one.environment(1)), "EnvironmentSecrets(…)");
        assert_eq!(format!("{one:?}"), "LogSecrets(…)");
    }
}
