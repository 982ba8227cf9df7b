//! Requests as they are written, and every byte of their answers.

use std::net::SocketAddr;

use mandate_server::http::{IDEMPOTENCY_REPLAYED, X_REQUEST_ID};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An answer, as it came over the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case, sorted; `date` is left out.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

/// One request over a connection of its own, written as given.
pub(crate) async fn exchange(at: SocketAddr, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
    over(TcpStream::connect(at).await.unwrap(), method, path, headers, body).await
}

/// The same over this connection.
pub(crate) async fn over(
    mut stream: TcpStream,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Reply {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that has seen enough may close before all of the body is written.
    let _ = stream.write_all(body).await;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    Reply::read(&bytes)
}

impl Reply {
    fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| line.split_once(": ").unwrap());
        let mut headers: Vec<_> = headers.map(|(n, v)| (n.to_lowercase(), v.to_owned())).collect();
        headers.retain(|(name, _)| name != "date");
        headers.sort();
        Self { status, headers, body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn succeeded(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(crate) fn replayed(&self) -> bool {
        self.header(IDEMPOTENCY_REPLAYED.as_str()) == Some("true")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The error code, when the answer is the envelope of its own request.
    pub(crate) fn code(&self) -> String {
        let error = &self.json()["error"];
        assert_eq!(error["request_id"].as_str(), self.header(X_REQUEST_ID.as_str()), "{}", self.body);
        assert_eq!(error.as_object().unwrap().len(), 3, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/json"));
        error["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_else(|| panic!("{}", self.body)).to_owned()
    }

    /// Checks that this is an error of `code`. Returns its message.
    pub(crate) fn refused(&self, status: u16, code: &str) -> String {
        assert_eq!((self.status, self.code().as_str()), (status, code), "{}", self.body);
        self.message()
    }

    /// The answer with its request's id blotted out.
    pub(crate) fn anonymous(&self) -> Self {
        let id = self.header(X_REQUEST_ID.as_str()).unwrap().to_owned();
        let mut blotted = self.clone();
        blotted.body = blotted.body.replace(&id, "req_");
        blotted.headers.iter_mut().for_each(|(_, value)| *value = value.replace(&id, "req_"));
        blotted
    }
}
