//! What the console's script posts: JSON, from the console's own pages alone.

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderName};
use mandate_core::Invalid;
use mandate_core::json::Object;
use serde::Serialize;

use super::Console;
use super::session::Place;
use crate::error::{Code, Fault, Refusal};
use crate::http::body;
use crate::http::respond::{Failure, JSON, response};

/// What a browser says of the page that asks (Fetch Metadata Request Headers, section 2.2).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// A challenge, in bytes.
const CHALLENGE_BYTES: usize = 32;

/// A POST of the console's script, whose body has arrived.
pub(super) struct Post {
    pub(super) console: Arc<Console>,
    pub(super) place: Place,
    pub(super) headers: HeaderMap,
    body: Bytes,
}

impl FromRequest<Arc<Console>> for Post {
    type Rejection = Failure;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Failure> {
        let (head, body) = request.into_parts();
        let place = Place::of(head.uri.path())?;
        same_origin(&head.headers, console.party.origin())?;
        let content = body::read(body, || Ok::<_, Failure>(())).await?;
        let body = content.checked(&head.headers)?;
        Ok(Self { console: Arc::clone(console), place, headers: head.headers, body })
    }
}

impl Post {
    /// Applies `parse` to the body, a JSON object.
    pub(super) fn parse<T>(
        &self,
        parse: impl FnOnce(Object<'_>) -> Result<T, Invalid>,
    ) -> Result<T, Refusal> {
        Ok(Object::parse(&self.body).and_then(parse)?)
    }

    /// Refuses a body with any member.
    pub(super) fn nothing(&self) -> Result<(), Refusal> {
        Ok(Object::parse(&self.body)?.finish()?)
    }
}

/// Refuses what another site's page, or no page at all, has sent.
fn same_origin(headers: &HeaderMap, origin: &str) -> Result<(), Refusal> {
    let single = |name: &HeaderName| {
        let mut values = headers.get_all(name).iter();
        let first = values.next()?.to_str().ok()?;
        if values.next().is_some() { None } else { Some(first) }
    };
    let is_own = if headers.contains_key(&FETCH_SITE) {
        single(&FETCH_SITE) == Some("same-origin")
    } else {
        single(&header::ORIGIN) == Some(origin)
    };
    if is_own {
        return Ok(());
    }
    let message = format!("this is for the console's own pages at {origin} alone, in a browser");
    Err(Refusal::new(Code::Forbidden, message))
}

/// A challenge of a body.
pub(super) fn challenge(body: &mut Object<'_>) -> Result<[u8; CHALLENGE_BYTES], Invalid> {
    let text = body.require("challenge")?.string()?;
    let bytes = URL_SAFE_NO_PAD.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| Invalid::new("challenge", "must be base64url of 32 bytes"))
}

/// Bytes as the script takes them.
pub(super) fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An answer to the script.
pub(super) fn json(body: &impl Serialize) -> Result<Response, Failure> {
    let body = serde_json::to_vec(body).map_err(|e| Fault::new(e.to_string()))?;
    Ok(response(StatusCode::OK, [(header::CONTENT_TYPE, JSON)], body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn only_the_consoles_own_pages_may_post() {
        const OWN: &str = "https://console.example";
        let site = "sec-fetch-site";
        for (is_own, headers) in [
            (true, &[(site, "same-origin")][..]),
            (true, &[("origin", OWN)]),
            (true, &[(site, "same-origin"), ("origin", OWN)]),
            (false, &[]),
            (false, &[(site, "same-site")]),
            (false, &[(site, "cross-site")]),
            (false, &[(site, "none")]),
            (false, &[(site, "cross-site"), ("origin", OWN)]),
            (false, &[(site, "same-origin"), (site, "same-origin")]),
            (false, &[("origin", "null")]),
            (false, &[("origin", "https://console.example:444")]),
            (false, &[("origin", "https://console.example.evil.example")]),
            (false, &[("origin", "http://console.example")]),
            (false, &[("origin", OWN), ("origin", OWN)]),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            assert_eq!(same_origin(&map, OWN).is_ok(), is_own, "{headers:?}");
        }
    }
}
