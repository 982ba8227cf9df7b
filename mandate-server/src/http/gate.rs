//! The fixed order of checks on every request to the API, made here once: key, path, method, key class, rate.
//!
//! The request's id is drawn before; body, parameters and objects are looked at by the handlers behind.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use mandate_core::Timestamp;
use mandate_core::api_key::{ApiKey, KeyClass};
use tokio::sync::OwnedSemaphorePermit;

use super::callers::KeyHash;
use super::exchange::{Site, Told};
use super::input::shown;
use super::reply::{Failure, Reply};
use super::routes::{Key, Route};
use super::{Api, KEY_SET_PATH};
use crate::error::{Code, Refusal};
use crate::model::call::{Call, Caller};
use crate::traces::Traced;

/// The answer to every request whose key will not do, whatever is wrong with it.
const UNAUTHORIZED: &str = "the API key is missing or revoked; send it as `Authorization: Bearer <API_KEY>`. \
                            Keys are issued at onboarding";
/// The scheme of credentials (RFC 6750, section 2.1).
const BEARER: &str = "Bearer";

/// A request that has passed the gate.
pub(super) struct Admitted {
    pub(super) api: Arc<Api>,
    /// Who calls, and when. The idempotency key is not read yet.
    pub(super) call: Call,
    /// Its place in a trace, if it is among those sampled.
    pub(super) traced: Option<Traced>,
    pub(super) key: ApiKey,
    pub(super) key_hash: KeyHash,
    /// What stands in the path in the place of `{id}`, as it was sent; empty where the path has no such place.
    pub(super) id: String,
    pub(super) head: Parts,
    pub(super) body: Incoming,
    /// Its place among the requests that are under way.
    pub(super) room: OwnedSemaphorePermit,
}

impl Site for Api {
    async fn respond(self: Arc<Self>, request: Request<Incoming>, told: &mut Told) -> Result<Reply, Failure> {
        let (head, body) = request.into_parts();
        if head.uri.path() == KEY_SET_PATH && matches!(head.method, Method::GET | Method::HEAD) {
            told.path = KEY_SET_PATH;
            let location = [(header::LOCATION, self.key_set_location.clone())];
            return Ok(Reply::new(StatusCode::PERMANENT_REDIRECT, location, ""));
        }
        let now = self.clock.now();
        let key = presented(&head.headers).ok_or_else(unauthorized)?;
        let key_hash = key.hash();
        let caller = self.caller(key_hash, now).await?;
        let (route, id) = self.route(&head, &caller, told)?;
        if let Err(exceeded) = self.rates.admit(caller.key, caller.rate, now) {
            self.metrics.rate_limited();
            return Err(Failure::RateLimited { retry_after_seconds: exceeded.retry_after_seconds });
        }
        let room = self.make_room()?;
        let traced = told.traced.clone();
        let call = Call { caller, request_id: told.id, at: now, idempotency: None };
        route
            .run(Admitted { api: Arc::clone(&self), call, traced, key, key_hash, id, head, body, room })
            .await
    }
}

impl Api {
    /// A place among the requests that are under way.
    pub(super) fn make_room(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.room).try_acquire_owned().map_err(|_| {
            self.metrics.overloaded();
            Failure::Overloaded
        })
    }

    /// Who is behind a key.
    pub(super) async fn caller(&self, key: KeyHash, at: Timestamp) -> Result<Arc<Caller>, Failure> {
        self.callers.find(key, at).await?.ok_or_else(unauthorized)
    }

    /// The operation asked for, and the id in its path: path, method and key class are checked, in that order.
    fn route(&self, head: &Parts, caller: &Caller, told: &mut Told) -> Result<(&Route, String), Refusal> {
        let path = head.uri.path();
        let (routes, id) =
            self.routes.find(path).ok_or_else(|| Refusal::new(Code::NotFound, "no such path"))?;
        told.path = routes.first().map_or("", |route| route.path);
        let route = routes.iter().find(|route| route.method == head.method).ok_or_else(|| {
            Refusal::invalid(format!("{} is not supported on {}", shown(head.method.as_str()), shown(path)))
        })?;
        let class = caller.class();
        if route.key.takes(class) { Ok((route, id.to_owned())) } else { Err(forbidden(route.key, class)) }
    }
}

/// The key that a request presents, if it is one, and one only.
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
