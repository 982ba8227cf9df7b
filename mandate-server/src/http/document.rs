//! A document that the public listener publishes.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use sha2::{Digest as _, Sha256};

use super::respond::response;
use crate::error::Fault;

/// What a document may load and do where a browser shows it: nothing (CSP level 3). Browsers show texts and JSON with a style
/// of their own.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
/// Any cache may keep a document for five minutes.
const CACHED: HeaderValue = HeaderValue::from_static("public, max-age=300");
/// Any cache may keep what never changes for a year (RFC 8246).
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// A cache must ask again before each use (RFC 9111, section 5.2.2.4).
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

/// A document, with its path and the template of it that is recorded in the request log.
pub(super) type Published = (String, &'static str, Document);

/// A document with its headers.
pub(super) struct Document {
    content_type: HeaderValue,
    body: Bytes,
    /// A strong one (RFC 9110, section 8.8.3): the hash of the bytes.
    etag: HeaderValue,
    cache_control: HeaderValue,
    policy: HeaderValue,
}

impl Document {
    pub(super) fn new(content_type: &'static str, body: Bytes) -> Result<Self, Fault> {
        let hash = Bytes::copy_from_slice(&Sha256::digest(&body));
        let etag = HeaderValue::try_from(format!("\"{hash:x}\"")).map_err(|e| Fault::new(e.to_string()))?;
        Ok(Self {
            content_type: HeaderValue::from_static(content_type),
            body,
            etag,
            cache_control: CACHED,
            policy: POLICY,
        })
    }

    /// The same document, which caches must ask for again before each use.
    pub(super) fn no_cache(self) -> Self {
        Self { cache_control: NO_CACHE, ..self }
    }

    /// The same document, whose path names its bytes: a cache need never ask again.
    pub(super) fn immutable(self) -> Self {
        Self { cache_control: IMMUTABLE, ..self }
    }

    /// The same document under another policy of what it may load and do.
    pub(super) fn with_policy(self, policy: HeaderValue) -> Self {
        Self { policy, ..self }
    }

    /// The document; or, when the request names its `ETag`, that it has not changed.
    pub(super) fn respond(&self, headers: &HeaderMap) -> Response {
        let validators =
            [(header::CACHE_CONTROL, self.cache_control.clone()), (header::ETAG, self.etag.clone())];
        if matches(headers, &self.etag) {
            return response(StatusCode::NOT_MODIFIED, validators, Body::empty());
        }
        let [cached, etag] = validators;
        let content_type = (header::CONTENT_TYPE, self.content_type.clone());
        let policy = (header::CONTENT_SECURITY_POLICY, self.policy.clone());
        response(StatusCode::OK, [content_type, policy, cached, etag], self.body.clone())
    }
}

/// Whether If-None-Match names `etag` (RFC 9110, section 13.1.2: compared weakly).
fn matches(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(',')).any(|candidate| {
        let candidate = candidate.trim();
        candidate == "*" || candidate.strip_prefix("W/").unwrap_or(candidate).as_bytes() == etag.as_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_have_the_same_etag_and_others_another() {
        let etag = |text: &'static str| Document::new("text/plain", Bytes::from(text)).unwrap().etag;
        assert_eq!(etag("{}"), etag("{}"));
        assert_ne!(etag("{}"), etag("{ }"));
        assert!(etag("{}").to_str().unwrap().starts_with('"'), "a strong one");
    }

    #[test]
    fn what_is_not_promised_is_asked_for_again() {
        let document = Document::new("text/plain", Bytes::from("{}")).unwrap();
        assert_eq!(document.cache_control, CACHED);
        assert_eq!(document.no_cache().cache_control, NO_CACHE);
    }

    #[test]
    fn if_none_match_is_a_list() {
        let etag = HeaderValue::from_static("\"a\"");
        for (found, value) in [
            (true, "\"a\""),
            (true, "*"),
            (true, "W/\"a\""),
            (true, "\"b\", \"a\""),
            (false, "\"b\""),
            (false, "a"),
            (false, ""),
        ] {
            let headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_static(value))]);
            assert_eq!(matches(&headers, &etag), found, "{value}");
        }
        assert!(!matches(&HeaderMap::new(), &etag));
    }
}
