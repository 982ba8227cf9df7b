//! Limits the number of concurrent name lookups, in all and for each tenant.
//!
//! A lookup occupies a thread of the operating system's resolver. It cannot be cancelled, so it may outlive its
//! caller, and it keeps its place until it ends. A caller that waits for a place gives up when its request ends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::Notify;
use tokio::task_local;
use tokio::time::timeout;

use super::{Names, NoAnswer};

/// How many names one client looks up at a time.
const MAX_LOOKUPS: usize = 128;
/// How many of these places are kept for environments that have no lookup under way.
const KEPT_LOOKUPS: usize = 32;
/// How many names are looked up at a time for one environment.
const MAX_OF_ENVIRONMENT: usize = 16;
/// How long a lookup waits for a place. Lookups usually take milliseconds: if no place is free for so long, the
/// name servers do not answer.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// The environment for which a request is made; none for those of the server itself.
type Environment = Option<i64>;
type Lookup = Shared<BoxFuture<'static, Vec<SocketAddr>>>;
type UnderWay = BTreeMap<(Environment, String), Lookup>;

task_local! {
    static ENVIRONMENT: i64;
}

/// Makes requests for an environment. Their lookups use its places.
pub async fn on_behalf_of<F: Future>(environment: i64, requests: F) -> F::Output {
    ENVIRONMENT.scope(environment, requests).await
}

/// Looks names up within the limits. Concurrent lookups of one name for one environment share one. No environment
/// waits for a lookup of another.
#[derive(Clone)]
pub(super) struct Lookups {
    names: Arc<dyn Names>,
    under_way: Arc<Mutex<UnderWay>>,
    ended: Arc<Notify>,
}

impl Lookups {
    pub(super) fn new(names: Arc<dyn Names>) -> Self {
        Self { names, under_way: Arc::default(), ended: Arc::default() }
    }

    /// The addresses of a name, for the environment whose request this is.
    ///
    /// # Errors
    /// The name resolves to none, or no place was free in time.
    pub(super) async fn look_up(&self, name: &str) -> Result<Vec<SocketAddr>, NoAnswer> {
        let environment = ENVIRONMENT.try_with(|environment| *environment).ok();
        let begun = timeout(MAX_WAIT, self.begun(environment, name)).await;
        let found = begun.map_err(|_| NoAnswer::Crowded)?.await;
        if found.is_empty() { Err(NoAnswer::NoAddress) } else { Ok(found) }
    }

    /// Waits until a lookup of the name has begun.
    async fn begun(&self, environment: Environment, name: &str) -> Lookup {
        loop {
            // Registered before the check, so that no end is missed.
            let ended = self.ended.notified();
            if let Some(lookup) = self.begin(environment, name) {
                return lookup;
            }
            ended.await;
        }
    }

    /// Returns the running lookup of the name, or begins one if there is room.
    fn begin(&self, environment: Environment, name: &str) -> Option<Lookup> {
        let key = (environment, name.to_owned());
        let mut under_way = self.under_way();
        if let Some(lookup) = under_way.get(&key) {
            return Some(lookup.clone());
        }
        if !has_room(&under_way, environment) {
            return None;
        }
        let (lookups, asked, looking_up) = (self.clone(), key.clone(), self.names.look_up(name));
        // A task of its own goes on without its caller, as the resolver's thread does.
        let answered = tokio::spawn(async move {
            let found = looking_up.await;
            lookups.under_way().remove(&asked);
            lookups.ended.notify_waiters();
            found
        });
        let lookup = answered.map(Result::unwrap_or_default).boxed().shared();
        under_way.insert(key, lookup.clone());
        Some(lookup)
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the environment may begin another lookup.
fn has_room(under_way: &UnderWay, environment: Environment) -> bool {
    let own = under_way.keys().filter(|(of, _)| *of == environment).count();
    let most = if own == 0 { MAX_LOOKUPS } else { MAX_LOOKUPS - KEPT_LOOKUPS };
    own < MAX_OF_ENVIRONMENT && under_way.len() < most
}

#[cfg(test)]
mod tests;
