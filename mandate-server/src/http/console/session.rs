//! Who asks: the environment that an address names, and the session of the cookie.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse as _, Response};
use form_urlencoded::Serializer;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{StatusCode, Uri};
use mandate_core::{AgentName, EnvironmentKind, Timestamp};
use tracing::warn;

use super::Console;
use crate::error::{Fault, Refusal};
use crate::http::respond::{Failure, response};
use crate::model::call::Environment;
use crate::model::records::Mode;
use crate::service::console;
use crate::service::people::sessions::{self, LONGEST_SECONDS};
use crate::service::people::{self, Secret, Viewer};

/// Which segment of a path is the kind, the organization, the page, and the id on the page.
const SEGMENTS: usize = 5;
/// The path of the pages' news, which a script asks for.
const EVENTS: &str = "events";

/// What an address names.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) kind: EnvironmentKind,
    pub(super) organization: AgentName,
    /// What the paths of its pages begin with.
    pub(super) base: String,
    /// What is behind that, without a slash before it.
    pub(super) rest: String,
    /// The id in the path, as it was sent; empty where the path has none.
    pub(super) id: String,
}

/// A page that a person asks for who has signed in.
#[derive(Debug)]
pub(super) struct Visit {
    pub(super) place: Place,
    pub(super) viewer: Viewer,
    /// The mode in force.
    pub(super) mode: Mode,
    /// The query as it was sent.
    pub(super) query: String,
    /// When.
    pub(super) at: Timestamp,
}

impl Place {
    /// Reads a path.
    pub(super) fn of(path: &str) -> Result<Self, Refusal> {
        let mut segments = path.splitn(SEGMENTS, '/').skip(1);
        let mut next = || segments.next().unwrap_or_default();
        let kind = EnvironmentKind::parse(next()).ok_or_else(Refusal::not_found)?;
        let organization = AgentName::parse(next()).map_err(|_| Refusal::not_found())?;
        let (page, id) = (next(), next());
        let base = format!("/{kind}/{organization}");
        let rest = if id.is_empty() { page.to_owned() } else { format!("{page}/{id}") };
        Ok(Self { kind, organization, base, rest, id: id.to_owned() })
    }

    /// Whether a script asks for it, and not a person.
    pub(super) fn is_news(&self) -> bool {
        self.rest == EVENTS
    }

    /// The name of the cookie. With TLS no other host, and no page without TLS, can set one of this name.
    fn cookie(&self, has_tls: bool) -> String {
        let prefix = if has_tls { "__Host-" } else { "" };
        format!("{prefix}mandate-{}-{}", self.kind, self.organization)
    }

    /// The header that begins a session in the browser, or ends it.
    pub(super) fn set_cookie(&self, has_tls: bool, secret: Option<&Secret>) -> Result<HeaderValue, Fault> {
        let (name, secure) = (self.cookie(has_tls), if has_tls { "; Secure" } else { "" });
        let (text, seconds) = match secret {
            Some(secret) => (secret.to_text(), LONGEST_SECONDS),
            None => (zeroize::Zeroizing::default(), 0),
        };
        let cookie =
            format!("{name}={}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}", text.as_str());
        let mut value =
            HeaderValue::try_from(cookie).map_err(|_| Fault::new("a cookie cannot be written"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// The secret in the request's cookie, if there is exactly one of that name.
    fn secret(&self, headers: &HeaderMap, has_tls: bool) -> Option<Secret> {
        let name = self.cookie(has_tls);
        let cookies = headers.get_all(header::COOKIE).iter();
        let cookies = cookies.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(';'));
        let mut named =
            cookies.filter_map(|cookie| cookie.trim().split_once('=')).filter(|(n, _)| *n == name);
        let (_, text) = named.next()?;
        if named.next().is_some() { None } else { Secret::parse(text) }
    }
}

impl Console {
    /// The environment of a place, if there is such an organization.
    pub(super) async fn environment(&self, place: &Place) -> Result<Option<Environment>, Failure> {
        let (organization, kind) = (place.organization.clone(), place.kind);
        self.read(move |tx| people::environment(tx, &organization, kind)).await
    }

    /// The session of a request. None if it has none that lasts. Unless it only waits for news, it counts as used.
    pub(super) async fn session(
        &self,
        place: &Place,
        headers: &HeaderMap,
    ) -> Result<Option<(Viewer, Mode)>, Failure> {
        let Some(secret) = place.secret(headers, self.has_tls()) else { return Ok(None) };
        let (organization, kind, moments) =
            (place.organization.clone(), place.kind, Arc::clone(&self.moments));
        let found = self.read(move |tx| {
            let Some(environment) = people::environment(tx, &organization, kind)? else { return Ok(None) };
            let now = moments.now(tx)?;
            let found = sessions::find(tx, now, &environment, &organization, &secret)?;
            let Some((viewer, is_due)) = found else { return Ok(None) };
            Ok::<_, Fault>(Some((viewer, is_due.then_some(now), console::mode(tx, environment.id)?)))
        });
        let Some((viewer, due, mode)) = found.await? else { return Ok(None) };
        if let Some(now) = due.filter(|_| !place.is_news()) {
            self.touch(viewer.session, now).await;
        }
        Ok(Some((viewer, mode)))
    }

    /// Writes that a session is used. Where nothing can be written, as on a full disk, its pages are shown until it is over.
    async fn touch(&self, session: i64, now: Timestamp) {
        let written = self.store.write(move |tx| Ok(sessions::touch(tx, now, session)?)).await;
        let Err(fault) = written else { return };
        if let Some(others) = self.repeated.due("touch") {
            warn!(kind = fault.kind(), reason = %fault, others, "it is not written that a session is used");
        }
    }
}

impl FromRequestParts<Arc<Console>> for Visit {
    type Rejection = Response;

    /// Who has not signed in is led there, and back afterwards.
    async fn from_request_parts(head: &mut Parts, console: &Arc<Console>) -> Result<Self, Response> {
        let place = Place::of(head.uri.path()).map_err(|refusal| Failure::from(refusal).into_response())?;
        let session = console.session(&place, &head.headers).await.map_err(Failure::into_response)?;
        let query = head.uri.query().unwrap_or_default().to_owned();
        let Some((viewer, mode)) = session else {
            return Err(if place.is_news() {
                session_over().into_response()
            } else {
                sign_in_first(&place, &query)
            });
        };
        Ok(Self { place, viewer, mode, query, at: console.clock.now() })
    }
}

/// The refusal of what a script asks for without a session.
pub(super) fn session_over() -> Failure {
    Refusal::new(crate::error::Code::Unauthorized, "there is no session, or it is over; sign in").into()
}

fn sign_in_first(place: &Place, query: &str) -> Response {
    let to = if query.is_empty() { place.rest.clone() } else { format!("{}?{query}", place.rest) };
    let to = Serializer::new(String::new()).append_pair("to", &to).finish();
    lead_to(&format!("{}/sign-in?{to}", place.base))
}

/// Leads a browser to the queue, where the address of another page has lost its end.
pub(super) async fn to_queue(uri: Uri) -> Result<Response, Failure> {
    Ok(lead_to(&format!("{}/", Place::of(uri.path())?.base)))
}

fn lead_to(address: &str) -> Response {
    match HeaderValue::try_from(address) {
        Ok(location) => response(StatusCode::SEE_OTHER, [(header::LOCATION, location)], ""),
        Err(_) => Failure::from(Refusal::not_found()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::new(zeroize::Zeroizing::new([7; 32]))
    }

    #[test]
    fn a_path_names_an_environment_and_what_is_behind_it() {
        for (path, rest, id) in [
            ("/sandbox/acme/", "", ""),
            ("/sandbox/acme/decisions", "decisions", ""),
            ("/sandbox/acme/reviews/rev_1", "reviews/rev_1", "rev_1"),
            ("/sandbox/acme/reviews/rev_1/x", "reviews/rev_1/x", "rev_1/x"),
        ] {
            let place = Place::of(path).unwrap();
            assert_eq!((&*place.base, &*place.rest, &*place.id), ("/sandbox/acme", rest, id), "{path}");
        }
        for path in ["/", "/sandbox", "/Sandbox/acme/", "/live/acme/", "/sandbox/Acme/", "/sandbox//"] {
            assert!(Place::of(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_cookie_is_of_one_environment_and_for_no_script() {
        let place = Place::of("/production/acme/").unwrap();
        let set = place.set_cookie(true, Some(&secret())).unwrap();
        let text = secret().to_text();
        assert_eq!(
            set.to_str().unwrap(),
            format!(
                "__Host-mandate-production-acme={}; Path=/; Max-Age=28800; HttpOnly; SameSite=Lax; Secure",
                text.as_str()
            )
        );
        assert!(set.is_sensitive());
        let plain = place.set_cookie(false, None).unwrap();
        let ended = "mandate-production-acme=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax";
        assert_eq!(plain.to_str().unwrap(), ended);
    }

    #[test]
    fn a_secret_is_taken_from_the_one_cookie_of_its_name() {
        let place = Place::of("/sandbox/acme/").unwrap();
        let text = secret().to_text();
        let named = format!("__Host-mandate-sandbox-acme={}", text.as_str());
        for (found, cookie) in [
            (true, named.clone()),
            (true, format!("a=b; {named}; c=d")),
            (false, format!("{named}; {named}")),
            (false, named.replace("__Host-", "")),
            (false, named.replace("sandbox", "production")),
            (false, named.replace("acme", "acme2")),
            (false, format!("{named}A")),
        ] {
            let headers = HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(&cookie).unwrap())]);
            assert_eq!(place.secret(&headers, true).is_some(), found, "{cookie}");
        }
    }
}
