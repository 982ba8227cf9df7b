//! The public listener: what strangers may see, without a key.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use sha2::{Digest as _, Sha256};

use super::KEY_SET_PATH;
use super::input::shown;
use super::listen::{Site, Told};
use super::reply::{Failure, Reply};
use crate::error::{Code, Fault, Refusal};

/// What the key set's Content-Type is (RFC 7517, section 8.5.2).
const JWK_SET: HeaderValue = HeaderValue::from_static("application/jwk-set+json");
/// Anybody may keep the key set for five minutes.
const CACHED: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// The public listener.
pub(crate) struct Public {
    key_set: Bytes,
    /// A strong one (RFC 9110, section 8.8.3): the hash of the bytes.
    etag: HeaderValue,
}

impl Public {
    /// Publishes `key_set`, a JWK Set.
    pub(crate) fn new(key_set: &str) -> Result<Self, Fault> {
        let hash = Bytes::copy_from_slice(&Sha256::digest(key_set.as_bytes()));
        let etag = HeaderValue::try_from(format!("\"{hash:x}\"")).map_err(|e| Fault::new(e.to_string()))?;
        Ok(Self { key_set: Bytes::copy_from_slice(key_set.as_bytes()), etag })
    }

    fn key_set(&self, headers: &HeaderMap) -> Reply {
        let validators = [(header::CACHE_CONTROL, CACHED), (header::ETAG, self.etag.clone())];
        if matches(headers, &self.etag) {
            return Reply::new(StatusCode::NOT_MODIFIED, validators, "");
        }
        let [cached, etag] = validators;
        Reply::new(StatusCode::OK, [(header::CONTENT_TYPE, JWK_SET), cached, etag], self.key_set.clone())
    }
}

impl Site for Public {
    async fn respond(self: Arc<Self>, request: Request<Incoming>, told: &mut Told) -> Result<Reply, Failure> {
        let path = request.uri().path();
        if path != KEY_SET_PATH {
            return Err(Refusal::new(Code::NotFound, "no such path").into());
        }
        told.path = KEY_SET_PATH;
        match *request.method() {
            Method::GET | Method::HEAD => Ok(self.key_set(request.headers())),
            ref method => {
                let method = shown(method.as_str());
                Err(Refusal::invalid(format!("{method} is not supported on {KEY_SET_PATH}")).into())
            }
        }
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
        let etag = |text: &str| Public::new(text).unwrap().etag;
        assert_eq!(etag("{}"), etag("{}"));
        assert_ne!(etag("{}"), etag("{ }"));
        assert!(etag("{}").to_str().unwrap().starts_with('"'), "a strong one");
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
