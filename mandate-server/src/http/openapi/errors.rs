//! The error answers: one for each code of the API, with the one envelope.

use serde_json::json;
use utoipa::openapi::{Content, Ref, RefOr, Response, ResponseBuilder, Schema};
use utoipa::{PartialSchema, ToResponse, ToSchema};

use super::values::{self, one_of};
use crate::error::Code;

pub(super) const X_REQUEST_ID: &str = "X-Request-Id";
pub(super) const IDEMPOTENCY_REPLAYED: &str = "Idempotency-Replayed";
pub(super) const RETRY_AFTER: &str = "Retry-After";
pub(super) const WWW_AUTHENTICATE: &str = "WWW-Authenticate";

/// What kind of error.
#[derive(Debug)]
pub struct ErrorCode;

impl PartialSchema for ErrorCode {
    fn schema() -> RefOr<Schema> {
        one_of(codes()).description(Some("What kind of error.")).into()
    }
}

impl ToSchema for ErrorCode {}

/// The 409 of an operation that can meet a taken name, or an idempotency key that is in use.
#[derive(Debug)]
pub struct NameTaken;

impl<'r> ToResponse<'r> for NameTaken {
    fn response() -> (&'r str, RefOr<Response>) {
        let name = name(Code::NameTaken);
        (name, Ref::from_response_name(name).into())
    }
}

/// What every error answer carries.
#[derive(Debug, ToSchema)]
pub struct Error {
    /// What is wrong.
    pub error: ErrorBody,
}

/// What is wrong.
#[derive(Debug, ToSchema)]
pub struct ErrorBody {
    /// What kind of error.
    pub code: ErrorCode,
    /// A sentence for a person: what is wrong, and what would be accepted.
    pub message: String,
    /// The id of the request, by which it is found in the log; the same as in the header X-Request-Id. A kept error that
    /// is replayed has the id of the retry.
    pub request_id: values::RequestId,
}

/// The response that an operation refers to, and its status.
pub(super) fn refusal(code: Code) -> (String, Ref) {
    (code.status().to_string(), Ref::from_response_name(name(code)))
}

/// The status of every fault, and its response.
pub(super) fn fault() -> (String, Ref) {
    ("5XX".to_owned(), Ref::from_response_name("ServerError"))
}

/// What any request can be refused with before it is read to its end, each with the response that an operation refers to.
pub(super) fn of_the_connection() -> impl Iterator<Item = (String, Ref)> {
    OF_THE_CONNECTION.into_iter().map(|(status, name, ..)| (status.to_owned(), Ref::from_response_name(name)))
}

/// The codes that an error can carry.
fn codes() -> impl Iterator<Item = &'static str> {
    REFUSALS.iter().map(|(code, ..)| code.as_str()).chain([SERVER_ERROR_CODE])
}

/// The schemas of the error envelope, by name.
pub(super) fn schemas() -> Vec<(String, RefOr<Schema>)> {
    let mut schemas = vec![(Error::name().into(), Error::schema())];
    Error::schemas(&mut schemas);
    schemas
}

/// A reference to a header of the document.
pub(super) fn header(name: &str) -> Ref {
    Ref::new(format!("#/components/headers/{name}"))
}

/// The error answers, each by its name.
pub(super) fn responses() -> impl Iterator<Item = (&'static str, Response)> {
    REFUSALS
        .into_iter()
        .map(|(code, description, message)| (name(code), refused(code, description, message)))
        .chain([(
            "ServerError",
            error(
                SERVER_ERROR_CODE,
                SERVER_ERROR,
                "something went wrong on this side; a POST may be retried with the same Idempotency-Key",
            )
            .header_ref(RETRY_AFTER, header(RETRY_AFTER))
            .build(),
        )])
        .chain(OF_THE_CONNECTION.map(|(_, name, description, message)| {
            (name, error(Code::InvalidRequest.as_str(), description, message).build())
        }))
}

/// The answers to a head that cannot be read: status, name, description and message. The connection is closed.
const OF_THE_CONNECTION: [(&str, &str, &str, &str); 2] = [
    (
        "408",
        "RequestTimeout",
        "The head of the request did not arrive in time. The connection is closed.",
        "the head of the request did not arrive within 30 seconds",
    ),
    (
        "431",
        "HeadTooLarge",
        "The head of the request is too large. The connection is closed.",
        "the head of the request is larger than 16384 bytes, or has more than 100 headers",
    ),
];

/// The code of every 5xx.
const SERVER_ERROR_CODE: &str = "server_error";
const SERVER_ERROR: &str = "Something went wrong on the server's side, or it is busy (503, with Retry-After). A POST may be \
    retried with the same Idempotency-Key.";

const REFUSALS: [(Code, &str, &str); 7] = [
    (
        Code::InvalidRequest,
        "The body, a parameter or a header is not as it must be, or the object does not allow it. Nothing was changed.",
        "limit must be an integer between 1 and 100",
    ),
    (
        Code::Unauthorized,
        "The API key is missing, malformed, unknown, expired or revoked.",
        "the API key is missing or revoked; send it as `Authorization: Bearer <API_KEY>`. Keys are issued at onboarding",
    ),
    (
        Code::Forbidden,
        "The key is of the wrong class.",
        "this takes an organization key; the one sent is an agent key",
    ),
    (Code::NotFound, "There is no such object, or it belongs to someone else.", "no such object"),
    (
        Code::NameTaken,
        "`name_taken`: an agent of that name exists; choose another. Or `idempotency_conflict`: the Idempotency-Key was used \
         with another request less than 24 hours ago; use a new key.",
        "name `buyer` is taken by another agent; choose another",
    ),
    (
        Code::IdempotencyConflict,
        "The Idempotency-Key was used with another request less than 24 hours ago; use a new key.",
        "Idempotency-Key `order-17` was used with another request less than 24 hours ago; use a new key",
    ),
    (
        Code::RateLimited,
        "The key has used up its rate: requests in any 60 seconds. Or too many requests of the key, or of its environment, \
         wait for their bodies.",
        "the key has used up its rate; retry after 12 seconds",
    ),
];

fn name(code: Code) -> &'static str {
    match code {
        Code::InvalidRequest => "InvalidRequest",
        Code::Unauthorized => "Unauthorized",
        Code::Forbidden => "Forbidden",
        Code::NotFound => "NotFound",
        Code::NameTaken => "NameTaken",
        Code::IdempotencyConflict => "IdempotencyConflict",
        Code::RateLimited => "RateLimited",
    }
}

fn refused(code: Code, description: &str, message: &str) -> Response {
    let response = error(code.as_str(), description, message);
    match code {
        Code::Unauthorized => response.header_ref(WWW_AUTHENTICATE, header(WWW_AUTHENTICATE)),
        Code::RateLimited => response.header_ref(RETRY_AFTER, header(RETRY_AFTER)),
        Code::Forbidden => response,
        _ => response.header_ref(IDEMPOTENCY_REPLAYED, header(IDEMPOTENCY_REPLAYED)),
    }
    .build()
}

fn error(code: &str, description: &str, message: &str) -> ResponseBuilder {
    let example =
        json!({"error": {"code": code, "message": message, "request_id": "req_01jxs6m2t0f3k9v8q4r7w5x1yz"}});
    let mut content = Content::new(Some(Ref::from_schema_name(Error::name())));
    content.example = Some(example);
    ResponseBuilder::new()
        .description(description)
        .header_ref(X_REQUEST_ID, header(X_REQUEST_ID))
        .content("application/json", content)
}
