//! Long answers, which are read as they arrive.

use std::time::Duration;

use reqwest::Method;

use super::{Call, Client, MAX_ANSWER_BYTES, Reply, retry_after, worth_another};
use crate::exit::Failure;
use crate::http::{self, Response};

/// How long a stream may take to begin.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one answer is read at most. The caller then requests the rest, which also reveals a service that
/// has gone silent.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Where a stream resumes.
#[derive(Debug)]
pub(crate) struct Resume {
    /// The first byte that is requested.
    pub(crate) from: u64,
    /// The ETag of the content that the earlier bytes belong to. If it has changed, everything is sent.
    pub(crate) etag: String,
}

impl Client {
    /// Opens a stream of the content at `path`, or of the rest of it, of any length. After a minute, reading
    /// fails with a timeout, and the stream can be resumed.
    pub(crate) fn stream(
        &self,
        path: &str,
        accept: &str,
        resume: Option<&Resume>,
    ) -> Result<Response, Failure> {
        let call = Call::new(Method::GET, path, &[], None);
        let facts = |answer: &Response| (answer.status(), retry_after(answer.headers()));
        let tried = self.patiently(|| self.begin(path, accept, resume), |tried| worth_another(tried, facts));
        let response = tried.map_err(|e| self.unreachable(&call, &e))?.within(READ_TIMEOUT);
        if response.is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.text(MAX_ANSWER_BYTES).map_err(|e| self.unreachable(&call, &e))?;
        let retry_after = retry_after(&headers);
        Err(self.failed(&call, &Reply { status, headers, body, retry_after, is_repeated: false }))
    }

    fn begin(&self, path: &str, accept: &str, resume: Option<&Resume>) -> Result<Response, http::Error> {
        let mut request = self.request(Method::GET, self.access.base.join(path).as_str(), accept)?;
        if let Some(Resume { from, etag }) = resume {
            request = request.header("range", format!("bytes={from}-")).header("if-range", etag);
        }
        http::send(request, BEGIN_TIMEOUT)
    }
}
