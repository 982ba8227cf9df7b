//! The listeners: their sockets, their addresses as clients know them, and their limits.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use mandate_core::Timestamp;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::Urls;
use crate::config::{Descriptors, Settings, TlsFiles, VERSION_PATH};
use crate::error::{Fault, Repeated};
use crate::http::{Identity, Limits, Listener, MAX_CONNECTIONS_PER_PEER, RequestIds, Site};
use crate::metrics::{Listener as Name, Metrics};
use crate::traces::Traces;

/// The host of a console on this machine. There are no passkeys for the address of a host.
const LOCALHOST: &str = "localhost";
/// One address has a share of a listener's connections at most: one part in this many.
const PEERS: usize = 4;

/// A socket, and its actual address.
pub(super) struct Socket {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
}

pub(super) struct Sockets {
    pub(super) api: Socket,
    pub(super) public: Socket,
    pub(super) ops: Socket,
    /// Absent: this server has no console.
    pub(super) console: Option<Socket>,
}

impl Sockets {
    pub(super) async fn bind(settings: &Settings) -> Result<Self, Fault> {
        let console = match settings.console_address {
            Some(address) => Some(bind("console_address", address).await?),
            None => None,
        };
        Ok(Self {
            api: bind("api_address", settings.api_address).await?,
            public: bind("public_address", settings.public_address).await?,
            ops: bind("ops_address", settings.ops_address).await?,
            console,
        })
    }

    pub(super) fn urls(&self, settings: &Settings) -> Urls {
        let scheme = |tls: bool| if tls { "https" } else { "http" };
        let public = format!("{}://{}", scheme(settings.public_tls.is_some()), self.public.address);
        let base = || format!("{}://{}{VERSION_PATH}", scheme(settings.tls.is_some()), self.api.address);
        let console = self.console.as_ref().map(|console| {
            let port = console.address.port();
            format!("{}://{LOCALHOST}:{port}", scheme(settings.console_tls.is_some()))
        });
        Urls {
            base: settings.base_url.clone().unwrap_or_else(base),
            verdicts: settings.verdicts_url.clone().unwrap_or_else(|| public.clone()),
            docs: settings.docs_url.clone().unwrap_or(public),
            console: settings.console_url.clone().or(console),
            ops: format!("http://{}", self.ops.address),
        }
    }
}

async fn bind(setting: &str, address: SocketAddr) -> Result<Socket, Fault> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        Ok::<_, std::io::Error>(Socket { address: listener.local_addr()?, listener })
    };
    bound.await.map_err(|e| Fault::Listen(format!("cannot listen on {address} ({setting}): {e}")))
}

/// The TLS certificates of the listeners.
pub(super) struct Tls {
    pub(super) api: Option<TlsAcceptor>,
    pub(super) public: Option<TlsAcceptor>,
    pub(super) console: Option<TlsAcceptor>,
    /// The certificates, which are checked for changes.
    pub(super) identities: Vec<Arc<Identity>>,
}

impl Tls {
    /// Reads the certificates that the settings name.
    pub(super) fn read(settings: &Settings, now: Timestamp) -> Result<Self, Fault> {
        let mut identities = Vec::new();
        let mut acceptor = |files: &Option<TlsFiles>, known: &Option<TlsAcceptor>| {
            let Some(files) = files else { return Ok(None) };
            if settings.tls.as_ref() == Some(files) && known.is_some() {
                return Ok(known.clone());
            }
            let identity = Arc::new(Identity::read(files.clone(), now)?);
            identities.push(Arc::clone(&identity));
            identity.acceptor().map(Some)
        };
        let api = acceptor(&settings.tls, &None)?;
        let public = acceptor(&settings.public_tls, &api)?;
        let console = acceptor(&settings.console_tls, &api)?;
        Ok(Self { api, public, console, identities })
    }
}

/// What all listeners have in common.
pub(super) struct Listeners {
    pub(super) ids: Arc<RequestIds>,
    pub(super) metrics: Metrics,
    pub(super) traces: Traces,
    /// Whether all connections come from a proxy.
    pub(super) proxied: bool,
    /// How many connections there is room for.
    pub(super) descriptors: Descriptors,
}

impl Listeners {
    /// A listener at an address. Peers on this machine, and a proxy, may have any number of connections.
    pub(super) fn listener(
        &self,
        name: Name,
        address: SocketAddr,
        router: Router,
        tls: Option<TlsAcceptor>,
    ) -> Listener {
        let limited = !self.proxied && !address.ip().is_loopback();
        let connections = match name {
            Name::Api => self.descriptors.api,
            Name::Public => self.descriptors.public,
            Name::Ops => self.descriptors.ops,
            Name::Console => self.descriptors.console,
        };
        let per_peer = MAX_CONNECTIONS_PER_PEER.min(connections.div_ceil(PEERS));
        let connections_per_peer = limited.then_some(per_peer);
        let limits = Limits { connections, connections_per_peer, ..Limits::default() };
        let (ids, metrics, traces) = (Arc::clone(&self.ids), self.metrics.clone(), self.traces.clone());
        Listener {
            site: Site { name, router, ids, metrics, traces, repeated: Repeated::default() },
            tls,
            limits,
        }
    }
}
