//! Pages for people on the public listener.
//!
//! A page is a template below `templates/`, checked at compile time, in one layout ([`Frame`]) and one style. It loads files of its
//! own ([`asset`]) and nothing from other hosts; its policy enforces that. All of it can be read without scripts.

pub(super) mod asset;
pub(super) mod contract;
pub(super) mod log;

use askama::Template;
use bytes::Bytes;
use hyper::header::HeaderValue;
use mandate_core::Timestamp;

use super::KEY_SET_PATH;
use super::document::{Document, Published};
use super::openapi::CONTRACT_PATH;
use super::reference::REFERENCE_PATH;
use crate::error::Fault;

pub(super) const LOG_PATH: &str = "/log";
const ROOT_PATH: &str = "/";
const VERIFY_PATH: &str = "/verify";
/// Where the pages of the public listener lead to, and how that is called.
const PLACES: &[(&str, &str)] = &[
    (VERIFY_PATH, "Verify"),
    (LOG_PATH, "Public log"),
    (REFERENCE_PATH, "API reference"),
    (KEY_SET_PATH, "Key set"),
];
pub(super) const HTML: &str = "text/html; charset=utf-8";

/// What a page may load and do (CSP level 3): its style, and what is named here.
macro_rules! policy {
    ($allowed:literal) => {
        ::hyper::header::HeaderValue::from_static(concat!(
            "default-src 'none'; style-src 'self'; img-src data:; ",
            $allowed,
            "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        ))
    };
}
pub(super) use policy;

/// A page without scripts.
const READ_ONLY: HeaderValue = policy!("form-action 'none'; ");
/// A page that runs the core, which it fetches from this host, and the key set too.
const VERIFIER: HeaderValue =
    policy!("script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; form-action 'none'; ");

/// What every page has around its content.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// The address of its style.
    pub(super) style: &'a str,
    /// What the site is called.
    pub(super) name: &'a str,
    /// Where it leads to, and how that is called.
    pub(super) places: &'static [(&'static str, &'static str)],
    /// The place that the page is itself.
    pub(super) here: &'static str,
}

/// A time: exactly, and for people.
#[derive(Debug)]
pub(super) struct Time {
    pub(super) exact: String,
    pub(super) shown: String,
}

/// What this host is.
#[derive(Debug, Template)]
#[template(path = "index.html")]
struct Index<'a> {
    frame: Frame<'a>,
    issuer: &'a str,
    key_set: &'a str,
    verify: &'a str,
    log: &'a str,
    reference: &'a str,
    contract: &'a str,
}

/// The page that verifies.
#[derive(Debug, Template)]
#[template(path = "verify.html")]
struct Verify<'a> {
    frame: Frame<'a>,
    issuer: &'a str,
    core: &'a str,
    script: &'a str,
}

impl<'a> Frame<'a> {
    /// A page of the public listener.
    pub(super) fn public(issuer: &'a str, here: &'static str) -> Self {
        let name = issuer.split_once("://").map_or(issuer, |(_, host)| host);
        Self { style: &asset::STYLE.path, name, places: PLACES, here }
    }
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        let exact = at.to_string();
        let shown = exact.get(..19).unwrap_or(&exact).replace('T', " ") + " UTC";
        Self { exact, shown }
    }
}

/// A page under a policy. A cache must ask before each use: the files that it names may be others.
pub(super) fn page(template: &impl Template, policy: HeaderValue) -> Result<Document, Fault> {
    let html = template.render().map_err(|e| Fault::new(e.to_string()))?;
    Ok(Document::new(HTML, Bytes::from(html))?.no_cache().with_policy(policy))
}

/// The pages of the issuer that never change, and the files of all.
pub(super) fn documents(issuer: &str) -> Result<Vec<Published>, Fault> {
    let index = Index {
        frame: Frame::public(issuer, ROOT_PATH),
        issuer,
        key_set: KEY_SET_PATH,
        verify: VERIFY_PATH,
        log: LOG_PATH,
        reference: REFERENCE_PATH,
        contract: CONTRACT_PATH,
    };
    let verify = Verify {
        frame: Frame::public(issuer, VERIFY_PATH),
        issuer,
        core: &asset::CORE.path,
        script: &asset::VERIFY.path,
    };
    let mut documents = vec![
        (ROOT_PATH.to_owned(), ROOT_PATH, page(&index, READ_ONLY)?),
        (VERIFY_PATH.to_owned(), VERIFY_PATH, page(&verify, VERIFIER)?),
    ];
    for asset in [&asset::STYLE, &asset::CORE, &asset::VERIFY, &asset::CONTRACT, &asset::LOG] {
        documents.push(asset.published()?);
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_to_the_second() {
        let time = Time::from(Timestamp::parse("2026-06-15T12:00:07.250Z").unwrap());
        assert_eq!((&*time.exact, &*time.shown), ("2026-06-15T12:00:07.250Z", "2026-06-15 12:00:07 UTC"));
    }
}
