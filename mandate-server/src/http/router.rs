//! The table of routes: every operation of the API. It is what routes requests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::response::IntoResponse as _;
use axum::routing::{MethodRouter, delete, get, post};
use hyper::header;
use hyper::{Method, StatusCode};

use super::fallback::{found, no_such_path, unsupported};
use super::gate::{self, Identified};
use super::respond::Failure;
use super::{Api, KEY_SET_PATH};
use super::{
    agents, authorizations, decisions, enforcement, escrows, events, exports, mandates, reviews, usage,
    webhooks,
};

pub use super::key::Key;

use Key::{Agent, Any, Organization};

/// How many operations the OpenAPI document has: the rows of the table, and the key set of the public listener.
pub const OPERATIONS: usize = 29;
/// How many paths they have.
pub const PATHS: usize = 23;

/// The API, one row for each operation: method, path, key class, handler. The OpenAPI description of an
/// operation is above its handler.
///
/// What a row does not show: `route` checks the key's class and takes from its rate, before the body is read. The
/// extractors (`extract.rs`) take one of the 4,096 places, give it back while a slow body arrives, and read the body and
/// the `Idempotency-Key`. That key is looked up, and the answer kept, in the script's transaction.
#[must_use]
#[rustfmt::skip]
pub fn table() -> Vec<Route> {
    const DELETE: Method = Method::DELETE;
    const GET: Method = Method::GET;
    const POST: Method = Method::POST;
    vec![
        route(POST,   "/v1/agents",                   Organization, agents::create),
        route(GET,    "/v1/agents",                   Any,          agents::list),
        route(GET,    "/v1/agents/{id}",              Any,          agents::get),
        route(POST,   "/v1/mandates",                 Organization, mandates::create),
        route(GET,    "/v1/mandates",                 Any,          mandates::list),
        route(GET,    "/v1/mandates/{id}",            Any,          mandates::get),
        route(POST,   "/v1/mandates/{id}/revoke",     Organization, mandates::revoke),
        route(POST,   "/v1/authorizations",           Agent,        authorizations::create),
        route(POST,   "/v1/reviews/{id}/approve",     Organization, reviews::approve),
        route(POST,   "/v1/reviews/{id}/deny",        Organization, reviews::deny),
        route(POST,   "/v1/enforcement",              Organization, enforcement::set),
        route(GET,    "/v1/enforcement",              Organization, enforcement::get),
        route(GET,    "/v1/decisions",                Any,          decisions::list),
        route(GET,    "/v1/decisions/{id}",           Any,          decisions::get),
        route(POST,   "/v1/webhooks",                 Organization, webhooks::create),
        route(GET,    "/v1/webhooks",                 Organization, webhooks::list),
        route(GET,    "/v1/webhooks/{id}",            Organization, webhooks::get),
        route(DELETE, "/v1/webhooks/{id}",            Organization, webhooks::delete),
        route(POST,   "/v1/webhooks/{id}/ping",       Organization, webhooks::ping),
        route(GET,    "/v1/events",                   Organization, events::list),
        route(GET,    "/v1/events/{id}",              Organization, events::get),
        route(POST,   "/v1/escrows",                  Organization, escrows::create),
        route(GET,    "/v1/escrows",                  Any,          escrows::list),
        route(GET,    "/v1/escrows/{id}",             Any,          escrows::get),
        route(POST,   "/v1/escrows/{id}/transitions", Organization, escrows::transition),
        route(POST,   "/v1/exports",                  Organization, exports::create),
        route(GET,    "/v1/exports/{id}",             Organization, exports::get),
        route(GET,    "/v1/usage",                    Any,          usage::get),
    ]
}

/// The caller, or the answer to a key that is not accepted.
type WithKey = Result<Identified, Failure>;

/// One row of the table.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path; `{id}` is one segment.
    pub path: &'static str,
    /// The class of key that it accepts.
    pub key: Key,
    /// The path of the handler's function.
    pub name: &'static str,
    handler: MethodRouter<Arc<Api>>,
}

/// A row. Its handler runs once the request has passed the checks of the row.
fn route<H, T>(method: Method, path: &'static str, key: Key, handler: H) -> Route
where
    H: Handler<T, Arc<Api>>,
    T: 'static,
{
    let reads = method == Method::GET;
    let admitted = move |State(api): State<Arc<Api>>, caller: WithKey, mut request: Request| async move {
        // First, so that the log names the path of a request without a valid key too. The key's failure is answered first.
        let on_path = found(&request, path);
        let admitted = caller.and_then(|caller| {
            on_path?;
            gate::admit(&api, key, &caller)?;
            Ok(caller)
        });
        let caller = match admitted {
            Ok(caller) => caller,
            Err(failure) => return failure.into_response(),
        };
        let (environment, number) = (caller.caller.environment.id, caller.caller.key);
        request.extensions_mut().insert(caller);
        if !reads {
            return handler.call(request, api).await;
        }
        match api.begin_read(environment, number).await {
            Ok(read) => api.count_answer(&read, handler.call(request, Arc::clone(&api)).await),
            Err(failure) => failure.into_response(),
        }
    };
    let handler = match method {
        Method::POST => post(admitted),
        Method::DELETE => delete(admitted),
        _ => get(admitted),
    };
    Route { method, path, key, name: std::any::type_name::<H>(), handler }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({:?})", self.method, self.path, self.key)
    }
}

/// The router of the API: the table, and the redirect to the key set, which alone takes no key.
///
/// The key is checked before anything is said about path and method: a caller without a key does not learn which paths
/// exist. axum compares paths as they were sent: nothing is decoded, and no slash is added or removed.
pub(crate) fn router(api: Arc<Api>) -> Router {
    let mut paths: BTreeMap<&'static str, MethodRouter<Arc<Api>>> = BTreeMap::new();
    for Route { path, handler, .. } in table() {
        let handlers = paths.remove(path).unwrap_or_default();
        paths.insert(path, handlers.merge(handler));
    }
    let unknown = async |_: Identified| no_such_path().await;
    let location = [(header::LOCATION, api.key_set_location.clone())];
    let key_set = async move |request: Request| {
        found(&request, KEY_SET_PATH)?;
        Ok::<_, Failure>((StatusCode::PERMANENT_REDIRECT, location))
    };
    let mut router = Router::new().route(KEY_SET_PATH, get(key_set).fallback(unknown)).fallback(unknown);
    for (path, handlers) in paths {
        let other = async move |caller: WithKey, request: Request| {
            let on_path = found(&request, path);
            match caller.and(on_path) {
                Ok(()) => unsupported(request).await,
                Err(failure) => failure,
            }
        };
        // Without a handler of its own, axum answers HEAD like GET.
        router = router.route(path, handlers.head(other).fallback(other));
    }
    router.with_state(api)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    use crate::http::fallback::on_path;
    use axum::body::Body;
    use tower_service::Service as _;

    #[test]
    fn no_operation_is_listed_twice() {
        let mut seen = HashSet::new();
        assert!(table().iter().all(|row| seen.insert((row.method.clone(), row.path))));
    }

    /// The paths of the table, each with a handler that answers with the path's template.
    fn templates() -> Router {
        let paths: HashSet<_> = table().iter().map(|row| row.path).collect();
        paths.into_iter().fold(Router::new(), |router, path| router.route(path, on_path(path, get(path))))
    }

    #[tokio::test]
    async fn paths_are_compared_as_they_were_sent() {
        for (path, template) in [
            ("/v1/agents", Some("/v1/agents")),
            ("/v1/agents/agt_a", Some("/v1/agents/{id}")),
            ("/v1/agents/%61gt_a", Some("/v1/agents/{id}")),
            ("/v1/agents/%FF", Some("/v1/agents/{id}")),
            ("/v1/agents/..", Some("/v1/agents/{id}")),
            ("/v1/mandates/mnd_1/revoke", Some("/v1/mandates/{id}/revoke")),
            ("/v1/webhooks/whk_1/ping", Some("/v1/webhooks/{id}/ping")),
            ("/v1/agents/", None),
            ("/v1//agents", None),
            ("//v1/agents", None),
            ("/v1/agents/a/", None),
            ("/v1/agents/a/b", None),
            ("/v1/agents//", None),
            ("/v1/mandates//revoke", None),
            ("/v1/%61gents", None),
            ("/V1/agents", None),
            ("/v1/Agents", None),
            ("/v1", None),
            ("/", None),
            ("*", None),
            ("/v1/reviews", None),
            ("/v1/reviews/rev_1", None),
            ("/v1/policies", None),
            ("/v2/agents", None),
        ] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = templates().call(request).await.unwrap();
            let body = axum::body::to_bytes(response.into_body(), 1024).await.unwrap();
            assert_eq!(std::str::from_utf8(&body).unwrap(), template.unwrap_or_default(), "{path}");
        }
    }
}
