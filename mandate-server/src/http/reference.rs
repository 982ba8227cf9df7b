//! The API reference: a page that shows the OpenAPI document, with all files that it loads.
//!
//! Swagger UI is part of the binary. The page loads nothing from other hosts; its policy enforces that.

use std::sync::Arc;

use askama::Template;
use bytes::Bytes;
use hyper::header::HeaderValue;
use utoipa_swagger_ui::Config;

use super::document::Published;
use super::openapi::CONTRACT_PATH;
use super::pages::asset::Asset;
use super::pages::{self, Frame};
use crate::error::Fault;

/// The page.
pub(super) const REFERENCE_PATH: &str = "/reference";
/// What the page may load and do: nothing from other hosts (CSP level 3), and no text becomes a script.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types default dompurify 'allow-duplicates'",
);

#[derive(Debug, Template)]
#[template(path = "reference.html")]
struct Reference<'a> {
    frame: Frame<'a>,
    style: &'a str,
    library: &'a str,
    start: &'a str,
    contract: &'a str,
}

/// The page and its files.
pub(super) fn documents(issuer: &str) -> Result<Vec<Published>, Fault> {
    let own = Asset::embedded("css", include_bytes!("../../templates/reference.css"));
    let style = Asset::new("css", library("swagger-ui.css")?);
    let code = Asset::new("js", library("swagger-ui-bundle.js")?);
    let start = Asset::embedded("js", include_bytes!("../../templates/reference.js"));
    let page = Reference {
        frame: Frame { style: &own.path, ..Frame::public(issuer, REFERENCE_PATH) },
        style: &style.path,
        library: &code.path,
        start: &start.path,
        contract: CONTRACT_PATH,
    };
    let page = pages::page(&page, POLICY)?;
    let files = [own.published()?, style.published()?, code.published()?, start.published()?];
    Ok([(REFERENCE_PATH.to_owned(), REFERENCE_PATH, page)].into_iter().chain(files).collect())
}

/// A file of Swagger UI.
fn library(name: &str) -> Result<Bytes, Fault> {
    let file =
        utoipa_swagger_ui::serve(name, Arc::new(Config::default())).map_err(|e| Fault::new(e.to_string()))?;
    let file = file.ok_or_else(|| Fault::new(format!("Swagger UI has no {name}")))?;
    Ok(Bytes::from(file.bytes.into_owned()))
}
