//! What every page of the console has around its content, and how a page becomes an answer.

use askama::Template;
use axum::response::Response;
use hyper::StatusCode;
use hyper::header::{self, HeaderName, HeaderValue};
use mandate_core::Principal;

use super::Console;
use super::session::{Place, Visit};
use crate::error::Fault;
use crate::http::pages::{HTML, asset, policy};
use crate::http::respond::{Failure, response};
use crate::model::records::Mode;

/// A page with the console's script, which asks this host alone.
const POLICY: HeaderValue = policy!("script-src 'self'; connect-src 'self'; form-action 'self'; ");
/// No window of another site has a handle on a page, and none may load one.
const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

/// Where the pages lead to, and how that is called.
const PLACES: &[(&str, &str)] = &[
    (REVIEWS, "Reviews"),
    (DECISIONS, "Decisions"),
    (USAGE, "Usage"),
    (MANDATES, "Mandates"),
    (AGENTS, "Agents"),
    (WEBHOOKS, "Webhooks"),
    (EXPORTS, "Exports"),
    (PEOPLE, "People"),
];
pub(super) const REVIEWS: &str = "/";
pub(super) const DECISIONS: &str = "/decisions";
pub(super) const USAGE: &str = "/usage";
pub(super) const MANDATES: &str = "/mandates";
pub(super) const AGENTS: &str = "/agents";
pub(super) const WEBHOOKS: &str = "/webhooks";
pub(super) const EXPORTS: &str = "/exports";
pub(super) const PEOPLE: &str = "/people";

/// What every page has around its content.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) style: &'static str,
    pub(super) own_style: &'static str,
    pub(super) script: &'static str,
    pub(super) base: &'a str,
    pub(super) organization: &'a str,
    pub(super) is_live: bool,
    pub(super) is_observing: bool,
    /// Who has signed in.
    pub(super) person: Option<&'a str>,
    /// Their roles, with a space between two.
    pub(super) roles: String,
    pub(super) places: &'static [(&'static str, &'static str)],
    pub(super) here: &'static str,
}

impl<'a> Frame<'a> {
    /// Of a page that anyone may see.
    pub(super) fn open(place: &'a Place) -> Self {
        Self {
            style: &asset::STYLE.path,
            own_style: &asset::CONSOLE_STYLE.path,
            script: &asset::CONSOLE_SCRIPT.path,
            base: &place.base,
            organization: place.organization.as_str(),
            is_live: !place.kind.is_sandbox(),
            is_observing: false,
            person: None,
            roles: String::new(),
            places: PLACES,
            here: "",
        }
    }

    /// Of a page for a person who has signed in.
    pub(super) fn of(visit: &'a Visit, here: &'static str) -> Self {
        let person = &visit.viewer.person;
        let roles: Vec<_> = person.roles.iter().map(Principal::as_str).collect();
        Self {
            is_observing: visit.mode == Mode::Observe,
            person: Some(&person.name),
            roles: roles.join(" "),
            here,
            ..Self::open(&visit.place)
        }
    }
}

/// A page as it is answered. Nothing keeps it.
pub(super) fn html(template: &impl Template) -> Result<Response, Failure> {
    Ok(with_status(StatusCode::OK, template)?)
}

/// The same with another status.
pub(super) fn with_status(status: StatusCode, template: &impl Template) -> Result<Response, Fault> {
    let html = template.render().map_err(|e| Fault::new(e.to_string()))?;
    let content_type = (header::CONTENT_TYPE, HeaderValue::from_static(HTML));
    let policy = (header::CONTENT_SECURITY_POLICY, POLICY);
    let apart = [(OPENER, SAME_ORIGIN), (RESOURCE, SAME_ORIGIN)];
    let [opener, resource] = apart;
    Ok(response(status, [content_type, policy, opener, resource], html))
}

impl Console {
    /// The address of what the issuer publishes at `path`.
    pub(super) fn at_issuer(&self, path: &str) -> String {
        format!("{}{path}", self.issuer)
    }
}
