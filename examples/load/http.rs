//! HTTP/1.1 over connections that are kept, to this machine and no other.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::Failure;

/// A URL on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    address: SocketAddr,
    authority: String,
    path: String,
}

/// An answer, read to its end.
pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// One connection, with one request at a time.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
}

impl Target {
    /// Reads an `http` URL whose host has loopback addresses only.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let uri: Uri = text.parse()?;
        let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err("must be a URL that begins with http://".into());
        };
        let port = authority.port_u16().unwrap_or(80);
        let host = authority.host().trim_matches(['[', ']']);
        let addresses: Vec<_> = (host, port).to_socket_addrs()?.collect();
        match addresses.first() {
            Some(address) if addresses.iter().all(|address| address.ip().is_loopback()) => Ok(Self {
                address: *address,
                authority: authority.to_string(),
                path: uri.path().trim_end_matches('/').to_owned(),
            }),
            _ => {
                Err(format!("must be on this machine (127.0.0.1, [::1] or localhost); got the host `{host}`")
                    .into())
            }
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<Connection, Failure> {
        let stream =
            TcpStream::connect(self.address).await.map_err(|e| format!("cannot connect to {self}: {e}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection { sender, host: HeaderValue::from_str(&self.authority)? })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl Connection {
    pub(crate) async fn get(&mut self, path: &str) -> Result<Response, Failure> {
        let mut request = Request::new(Full::default());
        *request.uri_mut() = path.parse()?;
        self.send(request).await
    }

    /// Posts JSON; `authorization` is the whole value of the header.
    pub(crate) async fn post(
        &mut self,
        path: &Uri,
        authorization: &HeaderValue,
        body: impl Into<Bytes>,
    ) -> Result<Response, Failure> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = path.clone();
        request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.send(request).await
    }

    async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Result<Response, Failure> {
        request.headers_mut().insert(HOST, self.host.clone());
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Response { status: head.status, headers: head.headers, body })
    }
}
