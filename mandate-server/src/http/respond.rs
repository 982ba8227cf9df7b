//! Responses: what handlers return becomes a response with its status, headers and error envelope.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use mandate_core::api_key::masked;
use mandate_core::{Invalid, RequestId};

use crate::error::{Code, Fault, Refusal};
use crate::model::call::{Answer, Envelope, ErrorBody, ScriptError};

/// The header that carries the id of the request, on every answer.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The header that says that the answer was given before.
pub const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// After how many seconds a request that was refused for lack of room may be repeated.
const OVERLOAD_RETRY_AFTER_SECONDS: u32 = 1;
/// The longest time after which a request may be made again, in seconds, while the clock is behind.
const LONGEST_RETRY_AFTER_SECONDS: u32 = 60;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Browsers must not guess another type than the Content-Type.
const NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");
/// No cache may keep an answer, unless its handler says otherwise.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The longest part of a request that a message repeats, in characters.
const ESCAPED_CHARS: usize = 200;

/// How many headers an answer gets besides its own.
const MAX_ADDED: usize = 5;

/// The last header of a status that hyper has written by itself.
const NO_BODY: &str = "content-length: 0\r\n";

/// Why a request was not carried out.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The caller can correct it.
    Refused(Refusal),
    /// The key has used up its rate.
    RateLimited {
        /// When a request will be admitted again, in seconds.
        retry_after_seconds: u32,
    },
    /// The key has too many requests whose bodies are still on their way.
    TooManyBodies,
    /// The key has too many answers that were not read, or all keys together have.
    Unread,
    /// The server has no room for it now.
    Overloaded,
    /// The server failed.
    Fault(Fault),
}

/// An extension of a response that reports a failure: its body says so already, as a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rendered;

/// A response with these headers and this body.
pub(super) fn response<const N: usize>(
    status: StatusCode,
    headers: [(HeaderName, HeaderValue); N],
    body: impl Into<Body>,
) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::with_capacity(N + MAX_ADDED);
    response.headers_mut().extend(headers);
    response
}

/// A text of one line.
pub(super) fn text(status: StatusCode, line: &'static str) -> Response {
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response(status, [(header::CONTENT_TYPE, plain)], line)
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = if self.body.is_empty() {
            response(status, [], Body::empty())
        } else {
            response(status, [(header::CONTENT_TYPE, JSON)], self.body)
        };
        if self.replayed {
            response.headers_mut().insert(IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true"));
        }
        response
    }
}

/// A failure has no body yet: [`finish`] writes it, since it carries the id of the request.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

impl Failure {
    /// The failure that `response` reports, if it does.
    pub(super) fn of(response: &Response) -> Option<&Self> {
        response.extensions().get::<Arc<Self>>().map(|failure| &**failure)
    }

    /// The answer to the request `id` as JSON.
    pub(super) fn render(&self, id: RequestId) -> Response {
        match self {
            Self::Refused(refusal) => refused(refusal, id),
            Self::RateLimited { retry_after_seconds } => {
                let message =
                    format!("the key has used up its rate; retry after {retry_after_seconds} seconds");
                let refusal = Refusal::new(Code::RateLimited, message);
                retry_after(refused(&refusal, id), *retry_after_seconds)
            }
            Self::TooManyBodies => {
                let refusal = Refusal::new(Code::RateLimited, TOO_MANY_BODIES);
                retry_after(refused(&refusal, id), OVERLOAD_RETRY_AFTER_SECONDS)
            }
            Self::Unread => {
                let full = server_error(StatusCode::SERVICE_UNAVAILABLE, UNREAD, id);
                retry_after(full, OVERLOAD_RETRY_AFTER_SECONDS)
            }
            Self::Overloaded | Self::Fault(Fault::Full(_)) => {
                let busy = server_error(StatusCode::SERVICE_UNAVAILABLE, OVERLOADED, id);
                retry_after(busy, OVERLOAD_RETRY_AFTER_SECONDS)
            }
            Self::Fault(Fault::ClockBehind { behind_millis }) => {
                let behind = server_error(StatusCode::SERVICE_UNAVAILABLE, CLOCK_BEHIND, id);
                let seconds = u32::try_from(behind_millis / 1_000).unwrap_or(u32::MAX);
                retry_after(behind, seconds.clamp(1, LONGEST_RETRY_AFTER_SECONDS))
            }
            Self::Fault(_) => server_error(StatusCode::INTERNAL_SERVER_ERROR, SERVER_ERROR, id),
        }
    }
}

impl From<ScriptError> for Failure {
    fn from(error: ScriptError) -> Self {
        match error {
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

/// The response to the request `id`, with the headers that every answer carries, and no others.
pub(super) fn finish(response: Response, id: RequestId) -> Response {
    let mut response = match Failure::of(&response) {
        Some(failure) if response.extensions().get::<Rendered>().is_none() => failure.render(id),
        _ => response,
    };
    let bare = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::try_from(id.to_string()) {
        headers.insert(X_REQUEST_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFFING);
    headers.entry(header::CACHE_CONTROL).or_insert(NO_STORE);
    // axum adds both: the first to every answer of a method router's fallback, the second to empty bodies.
    headers.remove(header::ALLOW);
    if bare {
        headers.remove(header::CONTENT_LENGTH);
    }
    response
}

/// Turns a bare status that hyper has written into an answer with the headers and body of any other, and with those that
/// `add` gives it. Also returns the status.
pub(super) fn amended(
    bare: &[u8],
    refusal: &Refusal,
    id: RequestId,
    add: impl FnOnce(&mut HeaderMap),
) -> (u16, Vec<u8>) {
    let bare = String::from_utf8_lossy(bare);
    let status = bare.split(' ').nth(1).and_then(|status| status.parse().ok());
    let failure = Failure::from(refusal.clone()).into_response();
    let (mut head, body) = finish(failure, id).into_parts();
    add(&mut head.headers);
    let body = body.collect().now_or_never().and_then(Result::ok).unwrap_or_default().to_bytes();
    let lines = head.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes());
        format!("{name}: {value}\r\n")
    });
    let headers = format!("{}content-length: {}\r\n", lines.collect::<String>(), body.len());
    let head = bare.replacen(NO_BODY, &headers, 1).into_bytes();
    (status.unwrap_or(refusal.code.status()), [head, body.to_vec()].concat())
}

const SERVER_ERROR: &str =
    "something went wrong on this side; a POST may be retried with the same Idempotency-Key";
const CLOCK_BEHIND: &str =
    "the service's clock is behind; a POST may be retried with the same Idempotency-Key";
const OVERLOADED: &str = "the service is busy; retry in a moment, a POST with the same Idempotency-Key";

const UNREAD: &str =
    "too many answers, to this key or to all, were not read; read them or close their connections, and retry";
const TOO_MANY_BODIES: &str = "the key, or its environment, has too many requests whose bodies are still on their way; \
                               retry when some have arrived";

fn refused(refusal: &Refusal, id: RequestId) -> Response {
    let Ok(answer) = Answer::refused(refusal, id) else {
        return server_error(StatusCode::INTERNAL_SERVER_ERROR, SERVER_ERROR, id);
    };
    let mut response = answer.into_response();
    if refusal.code == Code::Unauthorized {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn server_error(status: StatusCode, message: &str, request_id: RequestId) -> Response {
    let error = ErrorBody { code: "server_error", message, request_id };
    let body = serde_json::to_vec(&Envelope { error }).unwrap_or_default();
    response(status, [(header::CONTENT_TYPE, JSON)], body)
}

fn retry_after(mut response: Response, seconds: u32) -> Response {
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    response
}

/// `text` made safe to repeat in a message: what looks like an API key is masked, control characters are escaped, and a long
/// text is cut.
pub(super) fn escaped(text: &str) -> String {
    let text = masked(text);
    let mut escaped: String = text.chars().take(ESCAPED_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(ESCAPED_CHARS).is_some() {
        escaped.push('…');
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_is_bounded_and_escaped() {
        assert_eq!(escaped("a\u{1b}b"), "a\\u{1b}b");
        assert_eq!(escaped(&"x".repeat(300)).chars().count(), ESCAPED_CHARS + 1);
    }

    async fn rendered(outcome: Result<Answer, Failure>) -> String {
        let response = finish(outcome.into_response(), RequestId::from_bytes([0; 16]));
        let mut lines = vec![response.status().as_u16().to_string()];
        lines.extend(
            response.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())),
        );
        lines.sort();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        lines.push(String::from_utf8(body.to_vec()).unwrap());
        lines.join("\n")
    }

    fn answer(status: u16, body: &str, replayed: bool) -> Answer {
        Answer { status, body: body.into(), secret: false, replayed, decided: None }
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
                Err(Failure::Unread),
                "503\ncache-control: no-store\ncontent-type: application/json\nretry-after: 1\n\
                 x-content-type-options: nosniff\nx-request-id: req_00000000000000000000000000\n\
                 {\"error\":{\"code\":\"server_error\",\"message\":\"too many answers, to this key or to all, were not read; read them or close their connections, and retry\",\"request_id\":\"req_00000000000000000000000000\"}}",
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
