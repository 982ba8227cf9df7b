//! The answers where a path or a method does not exist, and the record of which path does.

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use axum::routing::MethodRouter;

use super::log::RequestLog;
use super::respond::{Failure, escaped};
use crate::error::{Code, Refusal};

/// `handlers` on `path`, which is recorded in the request log. Any other method is refused.
pub(super) fn on_path<S: Clone + Send + Sync + 'static>(
    path: &'static str,
    handlers: MethodRouter<S>,
) -> MethodRouter<S> {
    let record = move |request: Request, next: Next| async move {
        // axum takes an empty segment in the middle of a path for an id.
        if request.uri().path().contains("//") {
            return no_such_path().await.into_response();
        }
        found(&request, path);
        next.run(request).await
    };
    handlers.fallback(unsupported).layer(from_fn(record))
}

/// Records in the request log which path was found.
pub(super) fn found(request: &Request, path: &'static str) {
    if let Some(log) = request.extensions().get::<Arc<RequestLog>>() {
        log.found(path);
    }
}

/// The answer where a path has no such method. It is 400, not 405: the codes of the API are a closed set.
pub(super) async fn unsupported(request: Request) -> Failure {
    let (method, path) = (escaped(request.method().as_str()), escaped(request.uri().path()));
    Refusal::invalid(format!("{method} is not supported on {path}")).into()
}

/// The answer where there is no such path.
pub(super) async fn no_such_path() -> Failure {
    Refusal::new(Code::NotFound, "no such path").into()
}
