//! The files that pages load: part of the binary, at paths that name their hash, so that none is ever an old one.

use std::sync::LazyLock;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::error::Fault;
use crate::http::document::{Document, Published};

/// The path of all files, as it is named in the request log.
const FILES: &str = "/pages/{file}";
/// How much of its hash is in the name of a file, in bytes.
const NAMED_BYTES: usize = 8;

/// The style of all pages.
pub(in crate::http) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::embedded("css", include_bytes!("../../../templates/pages.css")));
/// The console's own style and script.
pub(in crate::http) static CONSOLE_STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::embedded("css", include_bytes!("../../../templates/console.css")));
pub(in crate::http) static CONSOLE_SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::embedded("js", include_bytes!("../../../templates/console.js")));
/// The core, as WebAssembly.
pub(super) static CORE: LazyLock<Asset> =
    LazyLock::new(|| Asset::embedded("wasm", include_bytes!("../../../templates/built/core.wasm")));
/// The scripts of pages. Those below `built` are made by `mandate-core/js/page/build.mjs`; a test compares them.
pub(super) static VERIFY: LazyLock<Asset> =
    LazyLock::new(|| Asset::embedded("js", include_bytes!("../../../templates/built/verify.js")));
pub(super) static CONTRACT: LazyLock<Asset> =
    LazyLock::new(|| Asset::embedded("js", include_bytes!("../../../templates/built/contract.js")));
pub(super) static LOG: LazyLock<Asset> =
    LazyLock::new(|| Asset::embedded("js", include_bytes!("../../../templates/log.js")));

/// A file.
pub(in crate::http) struct Asset {
    /// Where it is.
    pub(in crate::http) path: String,
    content_type: &'static str,
    body: Bytes,
}

impl Asset {
    /// A file of this kind: `css`, `js` or `wasm`.
    pub(in crate::http) fn new(extension: &str, body: Bytes) -> Self {
        let mut hash = Sha256::digest(&body).to_vec();
        hash.truncate(NAMED_BYTES);
        let content_type = match extension {
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            _ => "application/wasm",
        };
        Self { path: format!("/pages/{:x}.{extension}", Bytes::from(hash)), content_type, body }
    }

    pub(in crate::http) fn embedded(extension: &str, body: &'static [u8]) -> Self {
        Self::new(extension, Bytes::from_static(body))
    }

    /// The file as it is published.
    pub(in crate::http) fn published(&self) -> Result<Published, Fault> {
        let document = Document::new(self.content_type, self.body.clone())?.immutable();
        Ok((self.path.clone(), FILES, document))
    }
}
