//! The answers for an unknown path or method, and the record of the path that was found.

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use axum::routing::MethodRouter;

use super::log::RequestLog;
use super::respond::Failure;
use crate::error::{Code, Refusal};
use crate::traces::{OTHER_METHOD, known};

/// `handlers` on `path`, which is recorded in the request log. Other methods are refused.
pub(super) fn on_path<S: Clone + Send + Sync + 'static>(
    path: &'static str,
    handlers: MethodRouter<S>,
) -> MethodRouter<S> {
    let record = move |request: Request, next: Next| async move {
        match found(&request, path) {
            Ok(()) => next.run(request).await,
            Err(failure) => failure.into_response(),
        }
    };
    handlers.fallback(unsupported).layer(from_fn(record))
}

/// Records in the request log that `path` was found. axum would accept an empty segment in the middle of a path as an
/// id; such a path is unknown.
pub(super) fn found(request: &Request, path: &'static str) -> Result<(), Failure> {
    if request.uri().path().contains("//") {
        return Err(unknown());
    }
    if let Some(log) = request.extensions().get::<Arc<RequestLog>>() {
        log.found(path);
    }
    Ok(())
}

/// The answer for a method that the path does not have. It is 400, not 405: the codes of the API are a closed
/// set. The path is named as its template, and a method only if it is a known one: a caller can put a secret into either.
pub(super) async fn unsupported(request: Request) -> Failure {
    let path = request.extensions().get::<Arc<RequestLog>>().map_or("this path", |log| log.path());
    let method = match known(request.method()) {
        OTHER_METHOD => "this method",
        method => method,
    };
    Refusal::invalid(format!("{method} is not supported on {path}")).into()
}

/// The answer for an unknown path.
pub(super) async fn no_such_path() -> Failure {
    unknown()
}

fn unknown() -> Failure {
    Refusal::new(Code::NotFound, "no such path").into()
}
