//! The machine-readable contract, an OpenAPI 3.1 document made from the table of routes.
//!
//! Each row of the table carries what is said of it: a function that is handed an `Operation` on which everything
//! stands that follows from the row (method, path, key class, the error answers, `Idempotency-Key`), and adds the
//! rest. To add an operation: write that function and the shapes of its bodies in the file of its resource here, name
//! it in the row, run `cargo run --bin mandate-server -- openapi > docs/openapi.yaml`, and raise the two numbers
//! beside the table. The tests say what is missing: they compare the document with `docs/openapi.yaml`, and what the
//! server answers with the document.

pub mod agents;
pub mod authorizations;
pub mod decisions;
pub mod enforcement;
pub mod errors;
pub mod escrows;
pub mod events;
pub mod exports;
pub(super) mod key_set;
pub mod mandates;
mod operation;
pub mod reviews;
pub mod usage;
pub mod values;
pub mod webhooks;

use std::collections::BTreeMap;

use utoipa::openapi::path::PathsBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder, PathItem, Server};

pub(super) use operation::Operation;
use operation::with;

use super::{KEY_SET_PATH, router};
use crate::config::VERSION_PATH;
use crate::error::Fault;

/// Where the contract is published, on the docs host.
pub const CONTRACT_PATH: &str = "/openapi.yaml";
/// The version of the API; its major number is the one in the path.
const VERSION: &str = "1.0.0";

const ABOUT: &str = "Decides whether an autonomous agent may spend money, and records and signs each decision.\n\n\
    Every request carries an API key as `Authorization: Bearer <API_KEY>`; keys are issued at onboarding. Bodies are \
    JSON, read strictly: unknown and duplicate fields are refused. Requests are checked in this order: key (401), path \
    (404), method (400), key class (403), rate (429), body and parameters (400), object (404). An unsupported method \
    is 400 `invalid_request`, and a denial is no error: it is a 201 that carries the verdict. Amounts are exact \
    decimals of at most 15 digits, of which at most 8 are fractional.";

/// Who answers under which address.
#[derive(Debug, Clone, Copy)]
pub struct Hosts<'a> {
    /// The API's address, which ends in `/v1`.
    pub base: &'a str,
    /// Where the key set is published.
    pub verdicts: &'a str,
}

impl Hosts<'static> {
    /// The addresses in the copy that is kept beside the code.
    pub const EXAMPLE: Self =
        Self { base: "https://api.example.com/v1", verdicts: "https://verdicts.example.com" };
}

/// The contract of a server with these addresses, as YAML.
///
/// # Errors
/// It cannot be written.
pub fn yaml(hosts: Hosts<'_>) -> Result<String, Fault> {
    let yaml = document(hosts).to_yaml();
    yaml.map(|yaml| dates_as_text(&yaml))
        .map_err(|e| Fault::new(format!("the contract cannot be written: {e}")))
}

/// Quotes the dates among the values: a reader of YAML 1.1 takes a bare one for something else than text.
fn dates_as_text(yaml: &str) -> String {
    let quoted = |line: &str| match line.split_once(": ") {
        Some((name, value)) if value.starts_with("20") && value.chars().nth(4) == Some('-') => {
            format!("{name}: '{value}'\n")
        }
        _ => match line.split_once("- 20") {
            Some((indent, value)) if value.chars().nth(2) == Some('-') => format!("{indent}- '20{value}'\n"),
            _ => format!("{line}\n"),
        },
    };
    yaml.lines().map(quoted).collect()
}

/// The contract of a server with these addresses.
#[must_use]
pub fn document(hosts: Hosts<'_>) -> OpenApi {
    let mut schemas = BTreeMap::new();
    let mut paths = PathsBuilder::new();
    for route in router::table() {
        let (method, operation) = route.documented().end(&mut schemas);
        paths = paths.path(route.path, PathItem::new(method, operation));
    }
    let (method, mut operation) = key_set::document().end(&mut schemas);
    operation.servers = Some(vec![Server::new(hosts.verdicts)]);
    paths = paths.path(KEY_SET_PATH, PathItem::new(method, operation));

    let mut components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(ORGANIZATION_KEY, key("An organization's API key, `sk_sandbox_` or `sk_live_`."))
        .security_scheme(
            AGENT_KEY,
            key("An agent's API key, `ak_sandbox_` or `ak_live_`. It reaches the agent's own objects."),
        );
    for (name, response) in errors::responses() {
        components = components.response(name, response);
    }
    for (name, parameter) in operation::parameters() {
        components = components.parameter(name, parameter);
    }
    for (name, header) in operation::headers() {
        components = components.header(name, header);
    }
    let host = hosts.base.strip_suffix(VERSION_PATH).unwrap_or(hosts.base);
    OpenApiBuilder::new()
        .info(InfoBuilder::new().title("Mandate API").version(VERSION).description(Some(ABOUT)).build())
        .servers(Some([Server::new(host)]))
        .paths(paths)
        .components(Some(components.build()))
        .build()
}

/// The security scheme of organization keys.
const ORGANIZATION_KEY: &str = "organizationKey";
/// The security scheme of agent keys.
const AGENT_KEY: &str = "agentKey";

fn key(description: &str) -> SecurityScheme {
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description));
    SecurityScheme::Http(bearer.build())
}
