//! What the console's script posts: JSON, from the console's own pages alone.

use std::hash::BuildHasher as _;
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
use serde_json::json;

use super::Console;
use super::session::Place;
use crate::error::{Code, Fault, Refusal};
use crate::http::body;
use crate::http::limit::peers::Peer;
use crate::http::respond::{Failure, JSON, escaped, response};
use crate::service::people::challenges::CHALLENGE_BYTES;
use crate::service::people::refused::forged;

/// What a browser says of the page that asks (Fetch Metadata Request Headers, section 2.2).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// For how many forged requests at an environment's address the database is asked, in any 60 seconds.
const FORGED_PER_MINUTE: u32 = 60;

/// A POST of the console's script, whose body has arrived.
pub(super) struct Post {
    pub(super) console: Arc<Console>,
    pub(super) place: Place,
    pub(super) headers: HeaderMap,
    /// Who asks, where the listener sees it.
    pub(super) client: Option<Peer>,
    body: Bytes,
}

impl FromRequest<Arc<Console>> for Post {
    type Rejection = Failure;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Failure> {
        let (head, body) = request.into_parts();
        let place = Place::of(head.uri.path())?;
        if let Err(refusal) = same_origin(&head.headers, console.party.origin()) {
            return Err(console.forged(place, &head.headers, refusal).await);
        }
        let content = body::read(body, || Ok::<_, Failure>(())).await?;
        let body = content.checked(&head.headers)?;
        let client = head.extensions.get().copied();
        Ok(Self { console: Arc::clone(console), place, headers: head.headers, client, body })
    }
}

impl Console {
    /// Refuses a request that another site's page, or no page at all, has sent, with an audit record.
    async fn forged(&self, place: Place, headers: &HeaderMap, refusal: Refusal) -> Failure {
        let key = self.hasher.hash_one(("forged", &place.base)).cast_signed();
        if self.rates.admit(key, FORGED_PER_MINUTE, self.clock.now()).is_err() {
            return refusal.into();
        }
        let said = |name| headers.get(name).map(|value| escaped(&String::from_utf8_lossy(value.as_bytes())));
        let details =
            json!({ "path": place.rest, "origin": said(header::ORIGIN), "fetch_site": said(FETCH_SITE) });
        let moments = Arc::clone(&self.moments);
        let recorded = self.store.write(move |tx| {
            let of = (&place.organization, place.kind);
            forged::<()>(tx, &moments, of, (details.clone(), refusal.clone()))
        });
        match recorded.await {
            Ok(Err(refusal)) => refusal.into(),
            Ok(Ok(())) => Fault::new("a forged request is not refused").into(),
            Err(fault) => fault.into(),
        }
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
pub(super) fn answered(body: &impl Serialize) -> Result<Response, Failure> {
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
