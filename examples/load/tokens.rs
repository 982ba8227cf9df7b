//! Verifies tokens as a stranger would: against the key set that the service publishes.

use std::time::{SystemTime, UNIX_EPOCH};

use mandate_core::Timestamp;
use mandate_core::jwks::KeySet;
use mandate_core::verify::{Expected, verify_verdict};
use mandate_core::{Amount, Currency, Recipient};

use crate::Failure;
use crate::ask::Sample;
use crate::connection::Connection;
use crate::mix::{ALLOWED, CURRENCY};
use crate::target::Target;

/// Where the key set is, on every host.
const KEY_SET_PATH: &str = "/.well-known/jwks.json";

/// The time.
#[expect(clippy::disallowed_methods, reason = "the home of the clock in this command")]
pub(crate) fn now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// Verifies all tokens, each at the time of its arrival and as the answer to its request. Returns how many there were.
pub(crate) async fn verify(api: &Target, tokens: &[Sample]) -> Result<usize, Failure> {
    let mut connection = Connection::open(api).await?;
    let redirect = connection.exchange(api.get(KEY_SET_PATH).as_bytes()).await?;
    let location = redirect.header("location").ok_or("the API does not say where its key set is")?;
    let issuer = location.strip_suffix(KEY_SET_PATH).ok_or("the key set is not at its place")?;
    let published = Target::parse(&location)?;
    let mut connection = Connection::open(&published).await?;
    let document = connection.exchange(published.get(&published.path).as_bytes()).await?;
    let keys = KeySet::parse(document.body)?;
    for Sample { token, recipient, arrived } in tokens {
        let expected = Expected {
            amount: Some(Amount::parse(ALLOWED)?),
            currency: Some(Currency::parse(CURRENCY)?),
            recipient: Some(Recipient::parse(recipient)?),
            // The load may be of a sandbox, and usually is.
            environment: None,
            ..Expected::new(issuer, *arrived)
        };
        let _ = verify_verdict(token, &keys, &expected)?;
    }
    Ok(tokens.len())
}
