//! The checks that every request to the API passes before its handler runs, in their fixed order: key, path, method, key
//! class, rate.
//!
//! The request's id is drawn earlier, in [`super::log`]. axum finds a handler by path and method, and every handler
//! takes [`Identified`] first, also those for unknown paths and methods. The rows of the table then call [`admit`].
//! After these checks, the extractors read body and parameters ([`super::extract`]), and the scripts of the service
//! look objects up.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Body as _;
use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use mandate_core::Timestamp;
use mandate_core::api_key::{ApiKey, KeyClass};
use tokio::sync::OwnedSemaphorePermit;

use super::Api;
use super::key::Key;
use super::key_cache::KeyHash;
use super::limit::downloads::Download;
use super::limit::unread::Read;
use super::respond::Failure;
use crate::error::{Code, Refusal};
use crate::model::call::Caller;

/// The answer to every request whose key is not accepted, for whatever reason.
const UNAUTHORIZED: &str = "the API key is missing or revoked; send it as `Authorization: Bearer <API_KEY>`. \
                            Keys are issued at onboarding";
/// The scheme of credentials (RFC 6750, section 2.1).
const BEARER: &str = "Bearer";

/// The caller of a request whose key is in force: an extension of the request.
#[derive(Clone)]
pub(super) struct Identified {
    pub(super) caller: Arc<Caller>,
    pub(super) key: ApiKey,
    pub(super) key_hash: KeyHash,
    /// When the request arrived.
    pub(super) at: Timestamp,
}

/// The first check: the key.
impl FromRequestParts<Arc<Api>> for Identified {
    type Rejection = Failure;

    async fn from_request_parts(head: &mut Parts, api: &Arc<Api>) -> Result<Self, Failure> {
        let at = api.clock.now();
        let key = presented(&head.headers).ok_or_else(unauthorized)?;
        let key_hash = key.hash();
        let caller = api.caller(key_hash, at).await?;
        Ok(Self { caller, key, key_hash, at })
    }
}

/// The checks after path and method: the class of the key, and its rate.
pub(super) fn admit(api: &Api, key: Key, identified: &Identified) -> Result<(), Failure> {
    let Identified { caller, at, .. } = identified;
    let class = caller.class();
    if !key.accepts(class) {
        return Err(forbidden(key, class).into());
    }
    api.rates.admit(caller.key, caller.rate, *at).map_err(|exceeded| {
        api.metrics.rate_limited();
        Failure::RateLimited { retry_after_seconds: exceeded.retry_after_seconds }
    })
}

impl Api {
    /// Makes room for one more request.
    pub(super) fn make_room(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.room).try_acquire_owned().map_err(|_| {
            self.metrics.overloaded();
            Failure::Overloaded
        })
    }

    /// A place for one more download.
    pub(super) fn begin_download(&self, environment: i64) -> Result<Download, Failure> {
        self.downloads.acquire(environment).ok_or_else(|| {
            self.metrics.overloaded();
            Failure::Overloaded
        })
    }

    /// Begins a read once its environment has a place for it, or refuses it if too many answers to the key, or to all keys,
    /// were not read.
    pub(super) async fn begin_read(&self, environment: i64, key: i64) -> Result<Read, Failure> {
        self.unread_answers.begin(environment, key).await.ok_or_else(|| {
            self.metrics.overloaded();
            Failure::Unread
        })
    }

    /// The answer to a read, counted until its peer has read it; or a refusal, if that would be too much. What is streamed
    /// is not counted: only a piece of it is in memory.
    pub(super) fn count_answer(&self, read: &Read, mut response: Response) -> Response {
        let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
        let Some(bytes) = bytes.filter(|bytes| *bytes > 0) else { return response };
        let Some(unread) = read.rendered(bytes) else {
            self.metrics.overloaded();
            return Failure::Unread.into_response();
        };
        response.extensions_mut().insert(Arc::new(unread));
        response
    }

    /// The caller with this key.
    pub(super) async fn caller(&self, key: KeyHash, at: Timestamp) -> Result<Arc<Caller>, Failure> {
        self.keys.find(key, at).await?.ok_or_else(unauthorized)
    }
}

/// The key of a request, if it has exactly one, in one header.
fn presented(headers: &HeaderMap) -> Option<ApiKey> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (scheme, key) = values.next()?.to_str().ok()?.split_once(' ')?;
    let alone = values.next().is_none() && scheme.eq_ignore_ascii_case(BEARER);
    if alone { ApiKey::parse(key).ok() } else { None }
}

fn unauthorized() -> Failure {
    Refusal::new(Code::Unauthorized, UNAUTHORIZED).into()
}

fn forbidden(wanted: Key, class: KeyClass) -> Refusal {
    let wanted = if wanted == Key::Agent { KeyClass::Agent } else { KeyClass::Organization };
    Refusal::new(Code::Forbidden, format!("this takes an {wanted} key; the one sent is an {class} key"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use mandate_core::EnvironmentKind;

    #[test]
    fn one_bearer_key_in_one_header() {
        let key = ApiKey::from_random(KeyClass::Agent, EnvironmentKind::Sandbox, &[7; 32]);
        let key = key.expose();
        let bearer = format!("Bearer {key}");
        for (found, values) in [
            (true, &[bearer.as_str()][..]),
            (true, &[&format!("bearer {key}")]),
            (false, &[]),
            (false, &[key]),
            (false, &["Bearer"]),
            (false, &["Bearer "]),
            (false, &[&format!("Bearer  {key}")]),
            (false, &[&format!("{bearer} ")]),
            (false, &[&format!("Basic {key}")]),
            (false, &[&format!("{bearer},{bearer}")]),
            (false, &[&bearer, &bearer]),
            (false, &[&bearer[..bearer.len() - 1]]),
        ] {
            let headers = values.iter().map(|v| (header::AUTHORIZATION, HeaderValue::from_str(v).unwrap()));
            let headers = headers.fold(HeaderMap::new(), |mut headers, (name, value)| {
                headers.append(name, value);
                headers
            });
            assert_eq!(presented(&headers).is_some(), found, "{values:?}");
        }
    }
}
