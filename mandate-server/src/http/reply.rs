//! The only renderer: what a handler answers becomes a response with its status, envelope and headers.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use mandate_core::{Invalid, RequestId, Verdict};

use crate::error::{Code, Fault, Refusal};
use crate::model::call::{Answer, Envelope, ErrorBody, ScriptError};
use crate::model::records::Mode;

/// The header that tells the id of the request, on every answer.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The header that says that the answer was given before.
pub const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// After how many seconds a request may be made again that there was no room for.
const OVERLOAD_RETRY_AFTER_SECONDS: u32 = 1;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// An answer is what its Content-Type says, whatever a browser makes of its bytes.
const NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");
/// An answer belongs to the caller, and to no cache on the way, unless it says otherwise.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// How many headers an answer gets beside those that it is made with.
const MAX_ADDED: usize = 5;

/// What stands in a status that hyper has written by itself.
const NO_BODY: &str = "content-length: 0\r\n";

/// The body of a response: whole, or a stream.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What is answered, before the headers that every answer carries.
#[derive(Debug)]
pub(crate) struct Reply {
    response: Response<Body>,
    /// What was decided for it, and in which mode.
    decided: Option<(Verdict, Mode)>,
}

/// Why a request was not carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The caller can mend it.
    Refused(Refusal),
    /// The key has used up its rate.
    RateLimited {
        /// When a request will be admitted again, in seconds.
        retry_after_seconds: u32,
    },
    /// The key has too many requests whose bodies are still on their way.
    TooManyBodies,
    /// There is no room for it now.
    Overloaded,
    /// Something went wrong on this side.
    Fault(Fault),
}

impl Reply {
    /// An answer with these headers and this body.
    pub(crate) fn new<const N: usize>(
        status: StatusCode,
        headers: [(HeaderName, HeaderValue); N],
        body: impl Into<Bytes>,
    ) -> Self {
        let mut response = Response::new(Full::new(body.into()).boxed_unsync());
        *response.status_mut() = status;
        *response.headers_mut() = HeaderMap::with_capacity(N + MAX_ADDED);
        response.headers_mut().extend(headers);
        Self::from(response)
    }

    /// An answer with a body that is sent as it is read.
    pub(super) fn streamed(status: StatusCode, body: Body) -> Self {
        let mut response = Response::new(body);
        *response.status_mut() = status;
        Self::from(response)
    }

    /// A text of one line.
    pub(crate) fn text(status: StatusCode, line: &'static str) -> Self {
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        Self::new(status, [(header::CONTENT_TYPE, plain)], line)
    }

    /// What was decided for it, and in which mode.
    pub(super) fn decided(&self) -> Option<(Verdict, Mode)> {
        self.decided
    }

    /// The answer with a header.
    pub(super) fn with(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.response.headers_mut().insert(name, value.into());
        self
    }
}

impl From<Response<Body>> for Reply {
    fn from(response: Response<Body>) -> Self {
        Self { response, decided: None }
    }
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut reply = if answer.body.is_empty() {
            Self::new(status, [], Bytes::new())
        } else {
            Self::new(status, [(header::CONTENT_TYPE, JSON)], answer.body)
        };
        reply.decided = answer.decided;
        if answer.replayed {
            reply.with(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"))
        } else {
            reply
        }
    }
}

impl From<ScriptError> for Failure {
    fn from(stop: ScriptError) -> Self {
        match stop {
            ScriptError::Refused(refusal) => Self::Refused(refusal),
            ScriptError::Fault(fault) => Self::Fault(fault),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::Refused(invalid.into())
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The response to the request `id`, with the headers that every answer carries.
pub(crate) fn render(outcome: Result<Reply, Failure>, id: RequestId) -> Response<Body> {
    let Reply { mut response, .. } = outcome.unwrap_or_else(|failure| failed(&failure, id));
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::try_from(id.to_string()) {
        headers.insert(X_REQUEST_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFFING);
    headers.entry(header::CACHE_CONTROL).or_insert(NO_STORE);
    response
}

/// A status that hyper has written by itself, with the headers and the body that every answer has; and its number.
pub(super) fn amended(bare: &[u8], refusal: &Refusal, id: RequestId) -> (u16, Vec<u8>) {
    let bare = String::from_utf8_lossy(bare);
    let status = bare.split(' ').nth(1).and_then(|status| status.parse().ok());
    let (head, body) = render(Err(refusal.clone().into()), id).into_parts();
    let body = body.collect().now_or_never().and_then(Result::ok).unwrap_or_default().to_bytes();
    let lines = head.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        format!("{name}: {value}\r\n")
    });
    let headers = format!("{}content-length: {}\r\n", lines.collect::<String>(), body.len());
    let head = bare.replacen(NO_BODY, &headers, 1).into_bytes();
    (status.unwrap_or(refusal.code.status()), [head, body.to_vec()].concat())
}

fn failed(failure: &Failure, id: RequestId) -> Reply {
    match failure {
        Failure::Refused(refusal) if refusal.code == Code::Unauthorized => {
            refused(refusal, id).with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
        }
        Failure::Refused(refusal) => refused(refusal, id),
        Failure::RateLimited { retry_after_seconds } => {
            let message = format!("the key has used up its rate; retry after {retry_after_seconds} seconds");
            refused(&Refusal::new(Code::RateLimited, message), id)
                .with(header::RETRY_AFTER, *retry_after_seconds)
        }
        Failure::TooManyBodies => refused(&Refusal::new(Code::RateLimited, TOO_MANY_BODIES), id)
            .with(header::RETRY_AFTER, OVERLOAD_RETRY_AFTER_SECONDS),
        Failure::Overloaded => server_error(StatusCode::SERVICE_UNAVAILABLE, OVERLOADED, id)
            .with(header::RETRY_AFTER, OVERLOAD_RETRY_AFTER_SECONDS),
        Failure::Fault(_) => server_error(StatusCode::INTERNAL_SERVER_ERROR, SERVER_ERROR, id),
    }
}

const SERVER_ERROR: &str =
    "something went wrong on this side; a POST may be retried with the same Idempotency-Key";
const OVERLOADED: &str = "the service is busy; retry in a moment, a POST with the same Idempotency-Key";

const TOO_MANY_BODIES: &str = "the key, or its environment, has too many requests whose bodies are still on their way; \
                               retry when some have arrived";

fn refused(refusal: &Refusal, id: RequestId) -> Reply {
    match Answer::refused(refusal, id) {
        Ok(answer) => answer.into(),
        Err(_) => server_error(StatusCode::INTERNAL_SERVER_ERROR, SERVER_ERROR, id),
    }
}

fn server_error(status: StatusCode, message: &str, request_id: RequestId) -> Reply {
    let error = ErrorBody { code: "server_error", message, request_id };
    let body = serde_json::to_vec(&Envelope { error }).unwrap_or_default();
    Reply::new(status, [(header::CONTENT_TYPE, JSON)], body)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn rendered(outcome: Result<Reply, Failure>) -> String {
        let response = render(outcome, RequestId::from_bytes([0; 16]));
        let mut lines = vec![response.status().as_u16().to_string()];
        lines.extend(
            response.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())),
        );
        lines.sort();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        lines.push(String::from_utf8(body.to_vec()).unwrap());
        lines.join("\n")
    }

    fn answer(status: u16, body: &str, replayed: bool) -> Reply {
        Answer { status, body: body.into(), secret: false, replayed, decided: None }.into()
    }

    #[tokio::test]
    async fn every_kind_of_answer_is_rendered_here() {
        for (outcome, wanted) in [
            (
                Ok(answer(201, "{}", false)),
                "201\ncache-control: no-store\ncontent-type: application/json\n\
                 x-content-type-options: nosniff\nx-request-id: req_00000000000000000000000000\n{}",
            ),
            (
                Ok(answer(400, "{}", true)),
                "400\ncache-control: no-store\ncontent-type: application/json\nidempotency-replayed: true\n\
                 x-content-type-options: nosniff\nx-request-id: req_00000000000000000000000000\n{}",
            ),
            (
                Ok(answer(204, "", false)),
                "204\ncache-control: no-store\n\
                 x-content-type-options: nosniff\nx-request-id: req_00000000000000000000000000\n",
            ),
            (
                Err(Refusal::new(Code::Unauthorized, "no").into()),
                "401\ncache-control: no-store\ncontent-type: application/json\nwww-authenticate: Bearer\n\
                 x-content-type-options: nosniff\nx-request-id: req_00000000000000000000000000\n\
                 {\"error\":{\"code\":\"unauthorized\",\"message\":\"no\",\"request_id\":\"req_00000000000000000000000000\"}}",
            ),
            (
                Err(Failure::RateLimited { retry_after_seconds: 7 }),
                "429\ncache-control: no-store\ncontent-type: application/json\nretry-after: 7\n\
                 x-content-type-options: nosniff\nx-request-id: req_00000000000000000000000000\n\
                 {\"error\":{\"code\":\"rate_limited\",\"message\":\"the key has used up its rate; retry after 7 seconds\",\"request_id\":\"req_00000000000000000000000000\"}}",
            ),
            (
                Err(Failure::TooManyBodies),
                "429\ncache-control: no-store\ncontent-type: application/json\nretry-after: 1\n\
                 x-content-type-options: nosniff\nx-request-id: req_00000000000000000000000000\n\
                 {\"error\":{\"code\":\"rate_limited\",\"message\":\"the key, or its environment, has too many requests whose bodies are still on their way; retry when some have arrived\",\"request_id\":\"req_00000000000000000000000000\"}}",
            ),
            (
                Err(Failure::Overloaded),
                "503\ncache-control: no-store\ncontent-type: application/json\nretry-after: 1\n\
                 x-content-type-options: nosniff\nx-request-id: req_00000000000000000000000000\n\
                 {\"error\":{\"code\":\"server_error\",\"message\":\"the service is busy; retry in a moment, a POST with the same Idempotency-Key\",\"request_id\":\"req_00000000000000000000000000\"}}",
            ),
            (
                Err(Fault::new("the disk is full").into()),
                "500\ncache-control: no-store\ncontent-type: application/json\n\
                 x-content-type-options: nosniff\nx-request-id: req_00000000000000000000000000\n\
                 {\"error\":{\"code\":\"server_error\",\"message\":\"something went wrong on this side; a POST may be retried with the same Idempotency-Key\",\"request_id\":\"req_00000000000000000000000000\"}}",
            ),
        ] {
            assert_eq!(rendered(outcome).await, wanted);
        }
    }
}
