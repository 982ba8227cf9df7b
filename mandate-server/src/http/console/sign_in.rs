//! How people come in: a passkey is registered by the operator's link, and signs in.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use form_urlencoded::parse;
use hyper::header;
use hyper::{StatusCode, Uri};
use mandate_core::people::{Assertion, CredentialId, Registration};
use serde::Serialize;

use super::Console;
use super::frame::{Frame, html};
use super::post::{Post, answered, base64url, challenge};
use super::session::{Place, session_over};
use crate::error::{Code, Refusal};
use crate::http::respond::{Failure, response};
use crate::model::call::{Environment, ScriptError};
use crate::service::people::challenges::Purpose;
use crate::service::people::enrolment::{self, Finished};
use crate::service::people::{Secret, sessions, sign_in};
use crate::store::tx::Tx;
use crate::worker::sweep::keep_hold;

/// How many passkeys a client may be asked for, and how many checked, in any 60 seconds: it cannot keep others out. Where
/// the listener sees a proxy and no client, that limits.
const PER_CLIENT: u32 = 120;

#[derive(Debug, Template)]
#[template(path = "console/sign_in.html")]
struct SignIn<'a> {
    frame: Frame<'a>,
    /// Where to go afterwards, below the place.
    to: &'a str,
}

#[derive(Debug, Template)]
#[template(path = "console/enrol.html")]
struct Enrol<'a> {
    frame: Frame<'a>,
}

/// What a browser needs to sign in.
#[derive(Serialize)]
struct Begun<'a> {
    challenge: String,
    rp: &'a str,
}

/// What a browser needs to make a passkey.
#[derive(Serialize)]
struct Registering<'a> {
    challenge: String,
    rp: &'a str,
    user: User,
    exclude: Vec<CredentialId>,
}

#[derive(Serialize)]
struct User {
    id: String,
    name: String,
}

/// The page that signs in.
pub(super) async fn sign_in_page(uri: Uri) -> Result<Response, Failure> {
    let place = Place::of(uri.path())?;
    let query = uri.query().unwrap_or_default();
    let to = parse(query.as_bytes()).find(|(name, _)| name == "to").map(|(_, to)| to.into_owned());
    let to = to.filter(|to| leads_on(to)).unwrap_or_default();
    html(&SignIn { frame: Frame::open(&place), to: &to })
}

/// Whether a text is the path of a page below a place, with or without a query, and nothing else.
fn leads_on(to: &str) -> bool {
    let (path, query) = to.split_once('?').unwrap_or((to, ""));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_path = path.split('/').all(|segment| !segment.is_empty() && segment.chars().all(plain));
    is_path && query.chars().all(|c| plain(c) || "=&%+.*".contains(c))
}

/// The page that registers a passkey. The secret is in the fragment, which no server sees.
pub(super) async fn enrol_page(uri: Uri) -> Result<Response, Failure> {
    let place = Place::of(uri.path())?;
    html(&Enrol { frame: Frame::open(&place) })
}

impl Post {
    /// Counts a sign-in or a registration of the client, where the listener sees who that is.
    fn admit(&self) -> Result<(), Refusal> {
        let (console, Some(client)) = (&self.console, self.client) else { return Ok(()) };
        let key = console.hasher.hash_one(client).cast_signed();
        console.rates.admit(key, PER_CLIENT, console.clock.now()).map_err(|exceeded| {
            let seconds = exceeded.retry_after_seconds;
            let message = format!("too many sign-ins from your network; try again after {seconds} seconds");
            Refusal::new(Code::RateLimited, message)
        })
    }

    /// The environment that the address names, if there is one, once the client is counted.
    async fn environment(&self) -> Result<Option<Environment>, Failure> {
        self.admit()?;
        self.console.environment(&self.place).await
    }

    /// Runs `script` in one transaction.
    pub(super) async fn write<T, S>(&self, script: S) -> Result<T, Failure>
    where
        T: Send + 'static,
        S: Fn(&mut Tx<'_>) -> Result<T, ScriptError> + Send + 'static,
    {
        keep_hold(&self.console.store, &self.console.moments).await?;
        Ok(self.console.store.write(script).await??)
    }

    /// The answer that begins a session.
    fn begun(&self, secret: &Secret) -> Result<Response, Failure> {
        let cookie = self.place.set_cookie(self.console.has_tls(), Some(secret))?;
        Ok(response(StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)], ""))
    }
}

/// Gives a challenge to be signed. It is kept nowhere, and no answer says which organizations exist.
pub(super) async fn begin_sign_in(post: Post) -> Result<Response, Failure> {
    post.nothing()?;
    post.admit()?;
    let (console, place) = (&post.console, &post.place);
    let (of, random) = ((&place.organization, place.kind), console.moments.ids().random());
    let challenge = console.challenges.make(of, Purpose::SignIn, console.clock.now(), &random);
    answered(&Begun { challenge: base64url(&challenge), rp: console.party.id() })
}

/// Begins the session of the person whose passkey has signed.
pub(super) async fn finish_sign_in(post: Post) -> Result<Response, Failure> {
    let (challenge, assertion) = post.parse(|mut body| {
        let challenge = challenge(&mut body)?;
        let assertion = Assertion::read(body.require("assertion")?.object()?)?;
        body.finish()?;
        Ok((challenge, assertion))
    })?;
    let (organization, kind) = (post.place.organization.clone(), post.place.kind);
    let of = (&organization, kind);
    let unknown = || sign_in::not_enrolled(&assertion.credential, of);
    let environment = post.environment().await?.ok_or_else(unknown)?;
    let console = Arc::clone(&post.console);
    let finished = post.write(move |tx| {
        let Console { moments, challenges, party, .. } = &*console;
        let of = (&environment, &organization);
        sign_in::finish(tx, moments, challenges, party, of, challenge, &assertion)
    });
    let (_, secret) = finished.await?;
    post.begun(&secret)
}

/// Begins a registration.
pub(super) async fn begin_enrol(post: Post) -> Result<Response, Failure> {
    let secret = post.parse(|mut body| {
        let secret = body.require("secret")?.string()?.into_owned();
        body.finish()?;
        Ok(secret)
    })?;
    let environment = post.environment().await?.ok_or_else(enrolment::unknown)?;
    let secret = Secret::parse(&secret).ok_or_else(enrolment::unknown)?;
    let (console, organization) = (Arc::clone(&post.console), post.place.organization.clone());
    let begun = post.write(move |tx| {
        let of = (&environment, &organization);
        let Console { moments, challenges, party, .. } = &*console;
        enrolment::begin(tx, moments, challenges, party, of, &secret)
    });
    let begun = begun.await?;
    answered(&Registering {
        challenge: base64url(&begun.challenge),
        rp: post.console.party.id(),
        user: User { id: base64url(&begun.user_handle), name: user_name(&begun.person.name, &post.place) },
        exclude: begun.excluded,
    })
}

/// How a device lists the passkey: each environment of a person has one of its own.
fn user_name(person: &str, place: &Place) -> String {
    format!("{person} ({}, {})", place.organization, place.kind)
}

/// Enrols the passkey, and begins its first session.
pub(super) async fn finish_enrol(post: Post) -> Result<Response, Failure> {
    let (secret, finished) = post.parse(|mut body| {
        let secret = body.require("secret")?.string()?.into_owned();
        let label = body.require("label")?.string()?.into_owned();
        let challenge = challenge(&mut body)?;
        let registration = Registration::read(body.require("registration")?.object()?)?;
        body.finish()?;
        Ok((secret, Finished { challenge, registration, label }))
    })?;
    let environment = post.environment().await?.ok_or_else(enrolment::unknown)?;
    let secret = Secret::parse(&secret).ok_or_else(enrolment::unknown)?;
    let (console, organization) = (Arc::clone(&post.console), post.place.organization.clone());
    let finished = post.write(move |tx| {
        let Console { moments, challenges, party, .. } = &*console;
        enrolment::finish(tx, moments, challenges, party, (&environment, &organization), &secret, &finished)
    });
    let (_, secret) = finished.await?;
    post.begun(&secret)
}

/// Ends the session.
pub(super) async fn sign_out(post: Post) -> Result<Response, Failure> {
    let session = post.console.session(&post.place, &post.headers).await?;
    let (viewer, _) = session.ok_or_else(session_over)?;
    let moments = Arc::clone(&post.console.moments);
    post.write(move |tx| Ok(sessions::end(tx, &moments, &viewer)?)).await?;
    let cookie = post.place.set_cookie(post.console.has_tls(), None)?;
    Ok(response(StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)], ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_off_the_place() {
        for (is_path, to) in [
            (true, "decisions"),
            (true, "reviews/rev_01hf7yat000000000000000007"),
            (true, "decisions?agent=agt_buyer&since=2026-11-01&verdict=denied&q=%2F+.*"),
            (false, "?agent=agt_buyer"),
            (false, "decisions?to=https://evil.example"),
            (false, "decisions?a#b"),
            (false, "decisions?<b>"),
            (false, ""),
            (false, "/"),
            (false, "//evil.example"),
            (false, "../../sandbox"),
            (false, "reviews/../x"),
            (false, "https://evil.example"),
            (false, "\\evil"),
            (false, "reviews/%2e%2e"),
        ] {
            assert_eq!(leads_on(to), is_path, "{to}");
        }
    }
}
