//! Name resolution by the operating system.

use std::net::{SocketAddr, ToSocketAddrs as _};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::task::spawn_blocking;

/// Resolves names.
pub trait Names: Send + Sync + 'static {
    /// The addresses of a name, possibly none. Their ports do not matter. The caller limits time and number.
    fn look_up(&self, name: &str) -> BoxFuture<'static, Vec<SocketAddr>>;
}

/// The operating system's resolver. Each lookup occupies a thread until the name servers answer.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemNames;

impl Names for SystemNames {
    fn look_up(&self, name: &str) -> BoxFuture<'static, Vec<SocketAddr>> {
        let host = name.to_owned();
        let found = spawn_blocking(move || (host.as_str(), 0).to_socket_addrs());
        async move { found.await.ok().and_then(Result::ok).map(Iterator::collect).unwrap_or_default() }
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_knows_this_machine_and_no_name_that_there_is_not() {
        let found = SystemNames.look_up("localhost").await;
        assert!(!found.is_empty() && found.iter().all(|at| at.ip().is_loopback()), "{found:?}");
        assert!(SystemNames.look_up("no-such-name.invalid").await.is_empty());
    }
}
