//! The public listener: what strangers may see, without a key.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use sha2::{Digest as _, Sha256};

use super::KEY_SET_PATH;
use super::contract::{self, CONTRACT_PATH, Hosts};
use super::input::shown;
use super::listen::{Site, Told};
use super::reference::{self, REFERENCE_PATH};
use super::reply::{Failure, Reply};
use crate::error::{Code, Fault, Refusal};

/// What the key set's Content-Type is (RFC 7517, section 8.5.2).
const JWK_SET: &str = "application/jwk-set+json";
/// What the contract's Content-Type is (RFC 9512).
const YAML: &str = "application/yaml";
/// Anybody may keep what is published for five minutes.
const CACHED: HeaderValue = HeaderValue::from_static("public, max-age=300");
/// The way in for people: it leads to the reference.
const ROOT_PATH: &str = "/";

/// The public listener: a few documents, each under its path.
pub(crate) struct Public {
    documents: HashMap<&'static str, Document>,
}

impl Public {
    /// Publishes `key_set`, a JWK Set, and the contract of a server with these addresses.
    pub(crate) fn new(key_set: &str, hosts: Hosts<'_>) -> Result<Self, Fault> {
        let contract = Bytes::from(contract::yaml(hosts)?);
        let mut documents = HashMap::from([
            (KEY_SET_PATH, Document::new(JWK_SET, Bytes::copy_from_slice(key_set.as_bytes()))?),
            (CONTRACT_PATH, Document::new(YAML, contract)?),
        ]);
        for (path, content_type, body) in reference::files()? {
            documents.insert(path, Document::new(content_type, body)?);
        }
        Ok(Self { documents })
    }
}

impl Site for Public {
    async fn respond(self: Arc<Self>, request: Request<Incoming>, told: &mut Told) -> Result<Reply, Failure> {
        let path = request.uri().path();
        let (path, reply) = if path == ROOT_PATH {
            let location = [(header::LOCATION, HeaderValue::from_static(REFERENCE_PATH))];
            (ROOT_PATH, Reply::new(StatusCode::FOUND, location, ""))
        } else {
            let document = self.documents.get_key_value(path);
            let (path, document) = document.ok_or_else(|| Refusal::new(Code::NotFound, "no such path"))?;
            (*path, document.reply(request.headers()))
        };
        told.path = path;
        match *request.method() {
            Method::GET | Method::HEAD => Ok(reply),
            ref method => {
                let method = shown(method.as_str());
                Err(Refusal::invalid(format!("{method} is not supported on {path}")).into())
            }
        }
    }
}

/// Something that is published.
struct Document {
    content_type: HeaderValue,
    body: Bytes,
    /// A strong one (RFC 9110, section 8.8.3): the hash of the bytes.
    etag: HeaderValue,
}

impl Document {
    fn new(content_type: &'static str, body: Bytes) -> Result<Self, Fault> {
        let hash = Bytes::copy_from_slice(&Sha256::digest(&body));
        let etag = HeaderValue::try_from(format!("\"{hash:x}\"")).map_err(|e| Fault::new(e.to_string()))?;
        Ok(Self { content_type: HeaderValue::from_static(content_type), body, etag })
    }

    fn reply(&self, headers: &HeaderMap) -> Reply {
        let validators = [(header::CACHE_CONTROL, CACHED), (header::ETAG, self.etag.clone())];
        if matches(headers, &self.etag) {
            return Reply::new(StatusCode::NOT_MODIFIED, validators, "");
        }
        let [cached, etag] = validators;
        let content_type = (header::CONTENT_TYPE, self.content_type.clone());
        let policy = (header::CONTENT_SECURITY_POLICY, reference::POLICY);
        Reply::new(StatusCode::OK, [content_type, policy, cached, etag], self.body.clone())
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
        let etag = |text: &'static str| Document::new(JWK_SET, Bytes::from(text)).unwrap().etag;
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
