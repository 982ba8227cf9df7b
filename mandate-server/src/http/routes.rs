//! The table: every operation of the API.

use std::fmt;
use std::pin::Pin;

use hyper::Method;
use mandate_core::api_key::KeyClass;

use super::contract::{self, Operation};
use super::gate::Admitted;
use super::reply::{Failure, Reply};
use super::{
    agents, authorizations, decisions, enforcement, escrows, events, exports, mandates, reviews, usage,
    webhooks,
};
use crate::error::Fault;

use Key::{Agent, Any, Organization};

/// How many operations the contract has: the rows of the table, and the key set of the public listener.
pub const OPERATIONS: usize = 29;
/// On how many paths they stand.
pub const PATHS: usize = 23;

/// The table that a newcomer reads as the API: method, path, key class, handler, and what the contract says of it.
#[must_use]
#[rustfmt::skip]
pub fn table() -> Vec<Route> {
    const DELETE: Method = Method::DELETE;
    const GET: Method = Method::GET;
    const POST: Method = Method::POST;
    vec![
        route(POST,   "/v1/agents",                   Organization, agents::create,         contract::agents::create),
        route(GET,    "/v1/agents",                   Any,          agents::list,           contract::agents::list),
        route(GET,    "/v1/agents/{id}",              Any,          agents::get,            contract::agents::get),
        route(POST,   "/v1/mandates",                 Organization, mandates::create,       contract::mandates::create),
        route(GET,    "/v1/mandates",                 Any,          mandates::list,         contract::mandates::list),
        route(GET,    "/v1/mandates/{id}",            Any,          mandates::get,          contract::mandates::get),
        route(POST,   "/v1/mandates/{id}/revoke",     Organization, mandates::revoke,       contract::mandates::revoke),
        route(POST,   "/v1/authorizations",           Agent,        authorizations::create, contract::authorizations::create),
        route(POST,   "/v1/reviews/{id}/approve",     Organization, reviews::approve,       contract::reviews::approve),
        route(POST,   "/v1/reviews/{id}/deny",        Organization, reviews::deny,          contract::reviews::deny),
        route(POST,   "/v1/enforcement",              Organization, enforcement::set,       contract::enforcement::set),
        route(GET,    "/v1/enforcement",              Organization, enforcement::get,       contract::enforcement::get),
        route(GET,    "/v1/decisions",                Any,          decisions::list,        contract::decisions::list),
        route(GET,    "/v1/decisions/{id}",           Any,          decisions::get,         contract::decisions::get),
        route(POST,   "/v1/webhooks",                 Organization, webhooks::create,       contract::webhooks::create),
        route(GET,    "/v1/webhooks",                 Organization, webhooks::list,         contract::webhooks::list),
        route(GET,    "/v1/webhooks/{id}",            Organization, webhooks::get,          contract::webhooks::get),
        route(DELETE, "/v1/webhooks/{id}",            Organization, webhooks::delete,       contract::webhooks::delete),
        route(POST,   "/v1/webhooks/{id}/ping",       Organization, webhooks::ping,         contract::webhooks::ping),
        route(GET,    "/v1/events",                   Organization, events::list,           contract::events::list),
        route(GET,    "/v1/events/{id}",              Organization, events::get,            contract::events::get),
        route(POST,   "/v1/escrows",                  Organization, escrows::create,        contract::escrows::create),
        route(GET,    "/v1/escrows",                  Any,          escrows::list,          contract::escrows::list),
        route(GET,    "/v1/escrows/{id}",             Any,          escrows::get,           contract::escrows::get),
        route(POST,   "/v1/escrows/{id}/transitions", Organization, escrows::transition,    contract::escrows::transition),
        route(POST,   "/v1/exports",                  Organization, exports::create,        contract::exports::create),
        route(GET,    "/v1/exports/{id}",             Organization, exports::get,           contract::exports::get),
        route(GET,    "/v1/usage",                    Any,          usage::list,            contract::usage::list),
    ]
}

/// Whose key an operation takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// An organization's.
    Organization,
    /// An agent's.
    Agent,
    /// Either; an agent's reaches the agent's own objects.
    Any,
}

impl Key {
    /// Whether a key of `class` will do.
    #[must_use]
    pub fn takes(self, class: KeyClass) -> bool {
        match self {
            Self::Organization => class == KeyClass::Organization,
            Self::Agent => class == KeyClass::Agent,
            Self::Any => true,
        }
    }
}

/// One row of the table.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path; `{id}` stands for one segment.
    pub path: &'static str,
    /// Whose key it takes.
    pub key: Key,
    handler: Handler,
    document: Document,
}

pub(super) type Answering = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;
/// Adds to what follows from the row what is particular to the operation.
type Document = fn(Operation) -> Operation;
type Handler = Box<dyn Fn(Admitted) -> Answering + Send + Sync>;

fn route<H, F, R>(method: Method, path: &'static str, key: Key, handler: H, document: Document) -> Route
where
    H: Fn(Admitted) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, Failure>> + Send + 'static,
    R: Into<Reply>,
{
    let handler = move |request| -> Answering {
        let answering = handler(request);
        Box::pin(async move { answering.await.map(Into::into) })
    };
    Route { method, path, key, handler: Box::new(handler), document }
}

impl Route {
    /// What the contract says of the operation.
    pub(super) fn documented(&self) -> Operation {
        (self.document)(Operation::of(&self.method, self.path, self.key))
    }

    /// Runs the handler.
    pub(super) fn run(&self, request: Admitted) -> Answering {
        (self.handler)(request)
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({:?})", self.method, self.path, self.key)
    }
}

/// The table, arranged for finding a path. Paths are compared as they were sent: nothing is decoded, no slash is
/// added or taken away.
pub(crate) struct Routes(matchit::Router<Vec<Route>>);

impl Routes {
    /// The table of the API.
    pub(crate) fn new() -> Result<Self, Fault> {
        let mut paths: Vec<Vec<Route>> = Vec::new();
        for route in table() {
            match paths.iter_mut().find(|rows| rows.iter().any(|row| row.path == route.path)) {
                Some(rows) => rows.push(route),
                None => paths.push(vec![route]),
            }
        }
        let mut router = matchit::Router::new();
        for rows in paths {
            let Some(path) = rows.first().map(|row| row.path) else { continue };
            router.insert(path, rows).map_err(|e| Fault::new(format!("the route {path}: {e}")))?;
        }
        Ok(Self(router))
    }

    /// The operations on `path`, and what stands in the place of `{id}`; nothing when there is no such path.
    pub(super) fn find<'p>(&self, path: &'p str) -> Option<(&[Route], &'p str)> {
        let found = self.0.at(path).ok()?;
        Some((found.value, found.params.get("id").unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_operation_stands_twice() {
        let mut seen = HashSet::new();
        assert!(table().iter().all(|row| seen.insert((row.method.clone(), row.path))));
    }

    #[test]
    fn paths_are_compared_as_they_were_sent() {
        let routes = Routes::new().unwrap();
        for (path, id) in [
            ("/v1/agents", Some("")),
            ("/v1/agents/agt_a", Some("agt_a")),
            ("/v1/agents/%61gt_a", Some("%61gt_a")),
            ("/v1/agents/..", Some("..")),
            ("/v1/mandates/mnd_1/revoke", Some("mnd_1")),
            ("/v1/webhooks/whk_1/ping", Some("whk_1")),
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
            ("", None),
            ("*", None),
            ("/v1/reviews", None),
            ("/v1/reviews/rev_1", None),
            ("/v1/policies", None),
            ("/v2/agents", None),
        ] {
            assert_eq!(routes.find(path).map(|(_, id)| id), id, "{path}");
        }
        assert_eq!(routes.find("/v1/agents").unwrap().0.len(), 2);
    }
}
