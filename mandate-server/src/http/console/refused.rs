//! Why a page cannot be shown, as a page: in words, and marked as the environment of its address.

use std::sync::Arc;

use askama::Template;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use hyper::Method;
use hyper::header;
use mandate_core::RequestId;

use super::frame::{Frame, with_status};
use super::session::Place;
use crate::error::{Code, Fault};
use crate::http::log::RequestLog;
use crate::http::pages::asset;
use crate::http::respond::{Failure, Rendered};

#[derive(Debug, Template)]
#[template(path = "console/refused.html")]
struct Refused<'a> {
    style: &'a str,
    own_style: &'a str,
    /// That of the environment, if the address names one.
    frame: Option<Frame<'a>>,
    title: &'static str,
    message: &'a str,
}

/// Answers what a person asks for, and cannot be shown, with a page. What a script asks for has its answer as JSON.
pub(super) async fn in_words(request: Request, next: Next) -> Response {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let place = Place::of(request.uri().path()).ok();
    let log = request.extensions().get::<Arc<RequestLog>>().cloned();
    let mut response = next.run(request).await;
    let (Some(failure), Some(log)) = (Failure::of(&response), log) else { return response };
    if !is_read || place.as_ref().is_some_and(Place::is_news) {
        return response;
    }
    // A page that cannot be written leaves the failure to be answered as JSON.
    let Ok(mut page) = page(failure, place.as_ref(), log.id) else { return response };
    std::mem::swap(page.extensions_mut(), response.extensions_mut());
    page.extensions_mut().insert(Rendered);
    page
}

fn page(failure: &Failure, place: Option<&Place>, id: RequestId) -> Result<Response, Fault> {
    let (title, message) = match failure {
        Failure::Refused(refusal) if refusal.code == Code::NotFound => (
            "There is no such page",
            "The address is not complete, or what it leads to is not here.".to_owned(),
        ),
        Failure::Refused(refusal) => ("This cannot be shown", refusal.message.clone()),
        Failure::Fault(_) => {
            let what = "Load the page again in a moment. If that does not help, tell the operator of this service the number of this request:";
            ("Something went wrong on this side", format!("{what} {id}"))
        }
        _ => ("The console is busy", "Load the page again in a moment.".to_owned()),
    };
    let frame = place.map(Frame::open);
    let (style, own_style) = (&asset::STYLE.path, &asset::CONSOLE_STYLE.path);
    let bare = failure.render(id);
    let mut page =
        with_status(bare.status(), &Refused { style, own_style, frame, title, message: &message })?;
    if let Some(after) = bare.headers().get(header::RETRY_AFTER) {
        page.headers_mut().insert(header::RETRY_AFTER, after.clone());
    }
    Ok(page)
}
