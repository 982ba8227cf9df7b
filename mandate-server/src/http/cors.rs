//! Cross-origin reading (the Fetch standard, section 3.2): any web page may read what the public listener answers, which
//! anyone may have without a key. The API never sends these headers: a key does not belong in a page.

use axum::body::Body;
use axum::response::Response;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};

use super::respond::response;

/// For how long a browser may keep the answer to a preflight, in seconds: a day. Browsers take less.
const MAX_AGE: HeaderValue = HeaderValue::from_static("86400");
const ANY: HeaderValue = HeaderValue::from_static("*");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD");

/// The answer to a request with which a browser asks what a page may ask for, if this is one. No path is looked up: what a
/// page may ask for does not depend on it.
pub(super) fn preflight<B>(request: &Request<B>) -> Option<Response> {
    let asks = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ORIGIN)
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    asks.then(|| {
        let headers = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, ANY),
            (header::ACCESS_CONTROL_MAX_AGE, MAX_AGE),
        ];
        response(StatusCode::NO_CONTENT, headers, Body::empty())
    })
}

/// Lets any page read an answer, its headers too. Credentials are not allowed, as the wildcard implies.
pub(super) fn allow(headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, ANY);
}
