//! What names stand for, as the operating system says.

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// How many names are looked up at a time. Each takes a thread, for as long as the name servers let it wait.
const MAX_LOOKUPS: usize = 128;

/// Says what a name stands for, just now.
pub trait Names: Send + Sync + 'static {
    /// The addresses of a name, whatever their port; none, where it stands for nothing.
    fn look_up(&self, name: &str) -> BoxFuture<'static, Vec<SocketAddr>>;
}

type Lookup = Shared<BoxFuture<'static, Vec<SocketAddr>>>;

/// The operating system's resolver. A name that is being looked up is not looked up beside that: one whose name servers
/// do not answer holds one thread.
#[derive(Debug, Clone)]
pub struct SystemNames {
    room: Arc<Semaphore>,
    asked: Arc<Mutex<HashMap<String, Lookup>>>,
}

impl Default for SystemNames {
    fn default() -> Self {
        Self { room: Arc::new(Semaphore::new(MAX_LOOKUPS)), asked: Arc::default() }
    }
}

impl Names for SystemNames {
    fn look_up(&self, name: &str) -> BoxFuture<'static, Vec<SocketAddr>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lookup) = asked.get(name) {
            return lookup.clone().boxed();
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
        lookup.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_is_asked_once_for_a_name_that_many_wait_for() {
        let names = SystemNames::default();
        let lookups: Vec<_> = (0..8).map(|_| names.look_up("localhost")).collect();
        assert_eq!(names.asked.lock().unwrap().len(), 1);
        for lookup in lookups {
            assert!(lookup.await.iter().all(|at| at.ip().is_loopback()));
        }
        assert!(names.asked.lock().unwrap().is_empty(), "the next is asked anew");
        assert!(names.look_up("no-such-name.invalid").await.is_empty());
    }
}
