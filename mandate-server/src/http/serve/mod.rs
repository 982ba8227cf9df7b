//! What lies below the routers: sockets and their connections, TLS, and the limits on heads, time and bytes.

pub(super) mod connections;
pub(super) mod stream;
pub(super) mod tls;
