//! The only place that reads the clock, random bytes and environment variables.
#![expect(clippy::disallowed_methods, reason = "this is the home of clock, randomness and environment")]

use std::time::{SystemTime, UNIX_EPOCH};

use mandate_core::Timestamp;
use zeroize::Zeroizing;

use crate::exit::{Exit, Failure};

/// The time of the system's clock.
pub(crate) fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Random bytes that cannot be guessed.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Failure::new(Exit::Io, format!("the system cannot provide random bytes: {e}")))?;
    Ok(bytes)
}

/// The variable `name`; an empty one counts as absent.
pub(crate) fn variable(name: &'static str) -> Result<Option<Zeroizing<String>>, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(Zeroizing::new(value)).filter(|v| !v.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::new(Exit::Usage, format!("{name} must be UTF-8")))
        }
    }
}

/// Whether the variable `name` is set, though it may be empty.
pub(crate) fn is_set(name: &'static str) -> bool {
    std::env::var_os(name).is_some()
}

/// Every variable that is UTF-8, as name and value.
pub(crate) fn variables() -> impl Iterator<Item = (String, Zeroizing<String>)> {
    std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?, Zeroizing::new(value.into_string().ok()?)))
    })
}
