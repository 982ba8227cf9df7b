//! The API reference: a page that shows the OpenAPI document, with all files that it loads.
//!
//! Swagger UI is part of the binary. The page loads nothing from other hosts; its policy enforces that.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::HeaderValue;
use utoipa_swagger_ui::Config;

use crate::error::Fault;

/// The page.
pub(super) const REFERENCE_PATH: &str = "/reference";
/// What a document of this listener may load and do: nothing from other hosts (CSP level 3).
pub(super) const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

const PAGE: &str = include_str!("reference/page.html");
const START: &str = include_str!("reference/start.js");
/// The files of Swagger UI that the page loads.
const LIBRARY: [(&str, &str, &str); 2] = [
    ("/reference/swagger-ui.css", "text/css; charset=utf-8", "swagger-ui.css"),
    ("/reference/swagger-ui-bundle.js", "text/javascript; charset=utf-8", "swagger-ui-bundle.js"),
];

/// All files: path, Content-Type, bytes.
pub(super) fn files() -> Result<Vec<(&'static str, &'static str, Bytes)>, Fault> {
    let mut files = vec![
        (REFERENCE_PATH, "text/html; charset=utf-8", Bytes::from_static(PAGE.as_bytes())),
        ("/reference/start.js", "text/javascript; charset=utf-8", Bytes::from_static(START.as_bytes())),
    ];
    let config = Arc::new(Config::default());
    for (path, content_type, name) in LIBRARY {
        let file =
            utoipa_swagger_ui::serve(name, Arc::clone(&config)).map_err(|e| Fault::new(e.to_string()))?;
        let file = file.ok_or_else(|| Fault::new(format!("Swagger UI has no {name}")))?;
        files.push((path, content_type, Bytes::from(file.bytes.into_owned())));
    }
    Ok(files)
}
