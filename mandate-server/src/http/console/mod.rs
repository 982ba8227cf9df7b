//! The console: pages on which people answer reviews with their own passkeys.
//!
//! It has a listener of its own, and nothing of the API: no key opens it, and no session opens the API. The pages of an
//! organization are below `/{kind}/{organization}`, where its environment is looked up for each request.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::routing::get;
use hyper::header::{HeaderMap, HeaderValue};

use super::fallback::{no_such_path, on_path};
use super::pages::{asset, page, policy};
use crate::error::Fault;

/// The page without an organization.
const ROOT: &str = "/";
/// A page without scripts.
const READ_ONLY: HeaderValue = policy!("form-action 'none'; ");

/// What the console works with.
pub(crate) struct Console {
    /// Its origin, as people see it.
    pub(crate) origin: String,
}

#[derive(Debug, Template)]
#[template(path = "console/root.html")]
struct Root<'a> {
    style: &'a str,
    origin: &'a str,
}

/// The router of the console.
pub(crate) fn router(console: &Arc<Console>) -> Result<Router, Fault> {
    let root = Arc::new(page(&Root { style: &asset::STYLE.path, origin: &console.origin }, READ_ONLY)?);
    let root = get(async move |headers: HeaderMap| root.respond(&headers));
    let mut router = Router::new().route(ROOT, on_path(ROOT, root)).fallback(no_such_path);
    for asset in [&asset::STYLE, &asset::CONSOLE_STYLE, &asset::CONSOLE_SCRIPT] {
        let (path, recorded, document) = asset.published()?;
        let document = Arc::new(document);
        let file = get(async move |headers: HeaderMap| document.respond(&headers));
        router = router.route(&path, on_path(recorded, file));
    }
    Ok(router)
}
