//! Blocking HTTP requests over reqwest's asynchronous client on one event loop: only there a stalled body can
//! be timed out.

use std::io;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout_at};

use super::{Error, verbose};
use crate::proxy::UsableProxy;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit of a request with its whole answer.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const USER_AGENT: &str = concat!("mandate/", env!("CARGO_PKG_VERSION"));

/// Runs on whichever thread waits. It is never dropped: that would wait for a hanging name resolution.
static RUNTIME: LazyLock<io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().build());

/// A client for one address. It is set up with the first request.
#[derive(Debug, Clone)]
pub(crate) struct Transport {
    /// Whether the address is reached without TLS, so that no root certificate is needed.
    is_plain: bool,
    via: Option<UsableProxy>,
    client: OnceLock<Client>,
}

/// An answer of any status, whose body is still to be read.
#[derive(Debug)]
pub(crate) struct Response {
    response: reqwest::Response,
    deadline: Instant,
}

impl Transport {
    pub(super) fn new(is_plain: bool, via: Option<UsableProxy>) -> Self {
        Self { is_plain, via, client: OnceLock::new() }
    }

    /// A request, to be completed and sent.
    pub(crate) fn request(&self, method: Method, url: &str) -> Result<RequestBuilder, Error> {
        Ok(self.client()?.request(method, url))
    }

    /// A GET request, to be completed and sent.
    pub(crate) fn get(&self, url: &str) -> Result<RequestBuilder, Error> {
        self.request(Method::GET, url)
    }

    fn client(&self) -> Result<&Client, Error> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let redirects = reqwest::redirect::Policy::none();
        let builder = Client::builder().redirect(redirects).connect_timeout(CONNECT_TIMEOUT);
        let builder = builder.user_agent(USER_AGENT).no_proxy();
        let builder = match &self.via {
            Some(via) => builder.proxy(via.proxy()?),
            None => builder,
        };
        // The system's root certificates take time to read, and may be missing. Loopback needs none.
        let builder = if self.is_plain { builder.tls_certs_only([]) } else { builder };
        let client = builder.build()?;
        Ok(self.client.get_or_init(|| client))
    }
}

/// Sends a request and waits for the head of its answer. Head and body together must arrive within `limit`.
pub(crate) fn send(request: RequestBuilder, limit: Duration) -> Result<Response, Error> {
    let deadline = Instant::now() + limit;
    let (client, request) = request.build_split();
    let request = request?;
    verbose::request(&request);
    let response = wait(deadline, client.execute(request))?;
    verbose::head(response.status(), response.headers());
    Ok(Response { response, deadline })
}

impl Response {
    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn is_success(&self) -> bool {
        self.response.status().is_success()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The text of a header, if it is present and ASCII.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers().get(name)?.to_str().ok()
    }

    /// The same answer, with a new time limit for its body.
    pub(crate) fn within(self, limit: Duration) -> Self {
        Self { deadline: Instant::now() + limit, ..self }
    }

    /// The next bytes of the body. None at its end.
    pub(crate) fn piece(&mut self) -> Result<Option<Vec<u8>>, Error> {
        Ok(wait(self.deadline, self.response.chunk())?.map(Vec::from))
    }

    /// The body, at most `limit` bytes long.
    pub(crate) fn bytes(mut self, limit: u64) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece()? {
            body.extend_from_slice(&piece);
            if u64::try_from(body.len()).is_ok_and(|length| length > limit) {
                return Err(Error::TooLong(limit));
            }
        }
        Ok(body)
    }

    /// The body as text, at most `limit` bytes long.
    pub(crate) fn text(self, limit: u64) -> Result<String, Error> {
        let text = String::from_utf8(self.bytes(limit)?).map_err(|_| Error::NotUtf8)?;
        verbose::body(&text);
        Ok(text)
    }
}

/// Waits for `work`, until `deadline` at most.
fn wait<T>(deadline: Instant, work: impl Future<Output = reqwest::Result<T>>) -> Result<T, Error> {
    let runtime = RUNTIME.as_ref().map_err(|e| Error::NoRuntime(e.to_string()))?;
    match runtime.block_on(async { timeout_at(deadline, work).await }) {
        Ok(done) => Ok(done?),
        Err(_) => Err(Error::Timeout),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    /// Sends a request to a server that writes `answer` and keeps the connection open until the client closes
    /// it.
    fn answered(answer: &'static str, limit: Duration) -> Result<Response, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
            // An answer before the request would be another error.
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            stream.write_all(answer.as_bytes()).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        send(Transport::new(true, None).get(&url).unwrap(), limit)
    }

    #[test]
    fn an_answer_or_a_body_that_stalls_times_out() {
        let limit = Duration::from_millis(200);
        let error = answered("HTTP/1.1 200 OK\r\n", limit).unwrap_err();
        assert!(error.is_timeout() && error.is_passing(), "{error}");
        let stalled = answered("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab", REQUEST_TIMEOUT).unwrap();
        let error = stalled.within(limit).text(3).unwrap_err();
        assert!(error.is_timeout() && error.is_passing(), "{error}");
    }

    #[test]
    fn a_body_is_read_up_to_its_limit() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(answered(answer, REQUEST_TIMEOUT).unwrap().text(3).unwrap(), "abc");
        let error = answered(answer, REQUEST_TIMEOUT).unwrap().text(2).unwrap_err();
        assert!(matches!(error, Error::TooLong(2)) && !error.is_passing(), "{error}");
    }
}
