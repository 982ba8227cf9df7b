//! The issuer's key set: fetched at the start, when it is five minutes old, and when an event names a key that is new.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use mandate_core::jwks::KeySet;
use mandate_core::jwt::TokenRefused;
use mandate_core::verify::{Expected, VerifiedEvent, VerifyError, verify_event};
use mandate_core::{EnvironmentKind, Timestamp};
use reqwest::Client;

use crate::Failure;

/// How long a key set may be used: as long as the issuer says that it may be cached.
const FRESH: Duration = Duration::from_mins(5);
/// How soon it may be fetched again: strangers can name any key.
const AGAIN: Duration = Duration::from_secs(10);

pub(crate) struct Keys {
    issuer: String,
    /// None: of any.
    environment: Option<EnvironmentKind>,
    client: Client,
    known: RefCell<KeySet>,
    fetched: Cell<Instant>,
}

impl Keys {
    pub(crate) async fn fetch(issuer: &str, allow_sandbox: bool) -> Result<Self, Failure> {
        let client = Client::builder().timeout(Duration::from_secs(10)).build()?;
        let known = RefCell::new(fetch(&client, issuer).await?);
        let environment = (!allow_sandbox).then_some(EnvironmentKind::Production);
        let fetched = Cell::new(Instant::now());
        Ok(Self { issuer: issuer.to_owned(), environment, client, known, fetched })
    }

    pub(crate) async fn verify(&self, token: &str) -> Result<VerifiedEvent, Failure> {
        if self.fetched.get().elapsed() > FRESH {
            self.refresh().await?;
        }
        match self.try_verify(token) {
            Err(VerifyError::Token(TokenRefused::UnknownKey { .. }))
                if self.fetched.get().elapsed() > AGAIN =>
            {
                self.refresh().await?;
                Ok(self.try_verify(token)?)
            }
            verified => Ok(verified?),
        }
    }

    fn try_verify(&self, token: &str) -> Result<VerifiedEvent, VerifyError> {
        let expected = Expected { environment: self.environment, ..Expected::new(&self.issuer, now()) };
        verify_event(token, &self.known.borrow(), &expected)
    }

    async fn refresh(&self) -> Result<(), Failure> {
        self.fetched.set(Instant::now());
        let keys = fetch(&self.client, &self.issuer).await?;
        self.known.replace(keys);
        Ok(())
    }
}

async fn fetch(client: &Client, issuer: &str) -> Result<KeySet, Failure> {
    let response = client.get(format!("{issuer}/.well-known/jwks.json")).send().await?.error_for_status()?;
    Ok(KeySet::parse(&response.bytes().await?)?)
}

#[expect(clippy::disallowed_methods, reason = "a program of its own has no clock but the machine's")]
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_seconds(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
