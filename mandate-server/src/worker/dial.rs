//! The way to webhooks: one POST, to no address but those that may be reached, within bounds of time and size.
//!
//! A name is looked up for each connection, and of what it stands for only the addresses that may be reached are handed
//! to the connector, which looks nothing up itself: what was checked is what is connected to. An address that stands in
//! the URL itself never comes by the lookup, and is checked with the URL, at each attempt. A connection that is used again
//! is still the one to the address that was checked.

use std::collections::HashMap;
use std::error::Error;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, retry};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::error::Fault;
use crate::service::endpoint::{self, Reach};

/// How long an attempt may take, from the lookup of the name to the end of the answer.
pub const ATTEMPT: Duration = Duration::from_secs(10);
/// How much of an answer's body is read, in bytes. What is longer costs the receiver its connection.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// How many headers an answer may have.
const MAX_HEADERS: usize = 100;
/// How long a connection is kept for the next attempt. Common servers close theirs after five seconds, and what is sent
/// into one that closes is lost.
const IDLE: Duration = Duration::from_secs(4);
/// How many connections to one host are kept.
const MAX_IDLE: usize = 64;
/// How many names are looked up at a time. Each takes a thread, for as long as the name servers let it wait.
const MAX_LOOKUPS: usize = 128;
/// What receivers see as the client.
const USER_AGENT: &str = "mandate";

/// Posts to webhooks.
pub struct Dialer {
    client: Client,
    reach: Arc<Reach>,
}

/// Why there was no answer. The text is for the receiver's owner; it holds neither the URL nor an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The URL may not be posted to, or not any more.
    #[error("not sent: {0}")]
    Refused(String),
    /// The name stands for nothing, or for nothing that may be reached.
    #[error("not sent: the host has no public address")]
    NoAddress,
    /// Nothing came in time.
    #[error("no answer in time")]
    Late,
    /// Nobody listens there.
    #[error("the connection was refused")]
    ConnectionRefused,
    /// No secure connection came about, for example since the certificate is not valid.
    #[error("no TLS connection could be made")]
    Tls,
    /// There was no connection, or it broke before the answer.
    #[error("the connection failed")]
    Connection,
    /// Something is wrong on this side.
    #[error("not sent")]
    Here,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("reach", &self.reach).finish_non_exhaustive()
    }
}

impl Dialer {
    /// A dialer that goes as far as `reach`.
    ///
    /// # Errors
    /// The client cannot be set up.
    pub fn new(reach: Reach) -> Result<Self, Fault> {
        Self::with(reach, Arc::new(SystemNames::new()), ATTEMPT)
    }

    /// A dialer that asks `names` what a name stands for, and waits so long for an answer.
    ///
    /// # Errors
    /// The client cannot be set up.
    pub fn with(reach: Reach, names: Arc<dyn Resolve>, attempt: Duration) -> Result<Self, Fault> {
        let reach = Arc::new(reach);
        let guarded = Guarded { names, reach: Arc::clone(&reach) };
        let client = Client::builder()
            .dns_resolver(guarded)
            .no_proxy()
            .redirect(Policy::none())
            .referer(false)
            .retry(retry::never())
            .timeout(attempt)
            .http1_max_headers(MAX_HEADERS)
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            .user_agent(USER_AGENT)
            .build();
        let client = client.map_err(|e| Fault::new(format!("deliveries: {e}")))?;
        Ok(Self { client, reach })
    }

    /// Posts a token; gives the status that was answered.
    ///
    /// # Errors
    /// No status was answered.
    pub async fn post(&self, url: &str, token: String) -> Result<u16, NoAnswer> {
        let url = endpoint::parse(url, &self.reach).map_err(|e| NoAnswer::Refused(e.to_string()))?;
        let request = self.client.post(url).header(CONTENT_TYPE, "application/jwt").body(token);
        let response = request.send().await.map_err(|e| NoAnswer::from(&e))?;
        let status = response.status().as_u16();
        read(response).await;
        Ok(status)
    }
}

/// Reads what is left of an answer, so that its connection can be used again. The status counts, however this ends.
async fn read(mut response: Response) {
    let mut bytes = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes += chunk.len();
        if bytes > MAX_ANSWER_BYTES {
            return;
        }
    }
}

impl From<&reqwest::Error> for NoAnswer {
    fn from(error: &reqwest::Error) -> Self {
        let causes = || std::iter::successors(error.source(), |error| cause(*error));
        let io = || causes().filter_map(|cause| cause.downcast_ref::<io::Error>());
        if error.is_timeout() {
            Self::Late
        } else if error.is_dns() {
            Self::NoAddress
        } else if io().any(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
            Self::ConnectionRefused
        } else if error.is_connect() && io().any(|e| e.kind() == io::ErrorKind::InvalidData) {
            Self::Tls
        } else {
            Self::Connection
        }
    }
}

/// What is behind an error. An I/O error passes over the one that it wraps.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// Says of a name only the addresses that may be reached.
struct Guarded {
    names: Arc<dyn Resolve>,
    reach: Arc<Reach>,
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (reach, text) = (Arc::clone(&self.reach), name.as_str().to_owned());
        let found = self.names.resolve(name);
        Box::pin(async move {
            let mut allowed = found.await?.filter(move |at| reach.allows_for(&text, at.ip())).peekable();
            match allowed.peek() {
                Some(_) => Ok(Box::new(allowed) as Addrs),
                None => Err(NoAnswer::NoAddress.into()),
            }
        })
    }
}

type Lookup = Shared<BoxFuture<'static, Vec<SocketAddr>>>;

/// The operating system's resolver. A name that is being looked up is not looked up beside that: one whose name servers
/// do not answer holds one thread.
struct SystemNames {
    room: Arc<Semaphore>,
    asked: Arc<Mutex<HashMap<String, Lookup>>>,
}

impl SystemNames {
    fn new() -> Self {
        Self { room: Arc::new(Semaphore::new(MAX_LOOKUPS)), asked: Arc::default() }
    }

    fn look_up(&self, name: &str) -> Lookup {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lookup) = asked.get(name) {
            return lookup.clone();
        }
        let (room, all, name) = (Arc::clone(&self.room), Arc::clone(&self.asked), name.to_owned());
        let host = name.clone();
        // A task of its own: it goes on when nobody waits any more, as the thread does.
        let answered = tokio::spawn(async move {
            let _permit = room.acquire_owned().await;
            let asking = host.clone();
            let found = spawn_blocking(move || (asking.as_str(), 0).to_socket_addrs()).await;
            all.lock().unwrap_or_else(PoisonError::into_inner).remove(&host);
            found.ok().and_then(Result::ok).map(Iterator::collect).unwrap_or_default()
        });
        let lookup = answered.map(Result::unwrap_or_default).boxed().shared();
        asked.insert(name, lookup.clone());
        lookup
    }
}

impl Resolve for SystemNames {
    fn resolve(&self, name: Name) -> Resolving {
        let lookup = self.look_up(name.as_str());
        Box::pin(async move { Ok(Box::new(lookup.await.into_iter()) as Addrs) })
    }
}

#[cfg(test)]
mod tests;
