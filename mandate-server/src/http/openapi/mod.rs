//! The OpenAPI 3.1 document of the API, made from the attributes above the handlers.
//!
//! To add an operation: write its handler, with its `#[utoipa::path]` and the shapes of its bodies, in the file of its
//! resource; add its row to the table in [`super::router`] and its handler to the list below; run
//! `cargo run --bin mandate-server -- openapi > docs/openapi.yaml`; and raise the two numbers beside the table. The tests
//! compare each attribute with its row, the document with `docs/openapi.yaml`, and the answers of the server with the
//! document.

pub mod common;
pub mod errors;
pub mod page;
pub mod values;

use utoipa::OpenApi as _;
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{ContactBuilder, InfoBuilder, LicenseBuilder, OpenApi, Server};

use self::common::Common;
use super::KEY_SET_PATH;
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

/// Who answers for a service: every operator runs their own.
const CONTACT: &str = "The operator who has issued your keys";
/// The SPDX expression of the licence that the contract and its server come under.
const LICENCE: &str = "MIT OR Apache-2.0";

/// What operations are grouped by, in the order of the table.
const TAGS: [(&str, &str); 12] = [
    ("Agents", "Who may ask to spend."),
    ("Mandates", "What an agent may spend, and until when."),
    ("Authorizations", "Asking to spend."),
    ("Reviews", "A person's answer to a payment that waits for one."),
    ("Enforcement", "Whether verdicts bind in an environment."),
    ("Decisions", "The log of what was decided."),
    ("Webhooks", "Where events are delivered."),
    ("Events", "What has changed, and what became of its deliveries."),
    ("Escrows", "Money that is locked for a deal."),
    ("Exports", "The log as a file, to be kept and verified offline."),
    ("Usage", "Requests, verdicts and spending of a month."),
    ("Key set", "The public keys that tokens verify under."),
];

/// The addresses of a server.
#[derive(Debug, Clone, Copy)]
pub struct Hosts<'a> {
    /// The API's address, which ends in `/v1`.
    pub base: &'a str,
    /// Where the key set is published.
    pub verdicts: &'a str,
}

impl Hosts<'static> {
    /// The addresses in `docs/openapi.yaml`.
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

/// Quotes dates: a reader of YAML 1.1 would not take a bare one for text.
fn dates_as_text(yaml: &str) -> String {
    let quoted = |line: &str| match line.split_once(": ") {
        Some((name, value)) if value.starts_with("20") && value.chars().nth(4) == Some('-') => {
            format!("{name}: '{value}'\n")
        }
        // Nor would it take this for a number.
        Some((name, "1e-8")) => format!("{name}: 0.00000001\n"),
        _ => match line.split_once("- 20") {
            Some((indent, value)) if value.chars().nth(2) == Some('-') => format!("{indent}- '20{value}'\n"),
            _ => format!("{line}\n"),
        },
    };
    yaml.lines().map(quoted).collect()
}

/// Every operation, in the order of the table.
#[derive(utoipa::OpenApi)]
#[openapi(
    paths(
        super::agents::create,
        super::agents::list,
        super::agents::get,
        super::mandates::create,
        super::mandates::list,
        super::mandates::get,
        super::mandates::revoke,
        super::authorizations::create,
        super::reviews::approve,
        super::reviews::deny,
        super::enforcement::set,
        super::enforcement::get,
        super::decisions::list,
        super::decisions::get,
        super::webhooks::create,
        super::webhooks::list,
        super::webhooks::get,
        super::webhooks::delete,
        super::webhooks::ping,
        super::events::list,
        super::events::get,
        super::escrows::create,
        super::escrows::list,
        super::escrows::get,
        super::escrows::transition,
        super::exports::create,
        super::exports::get,
        super::usage::get,
        super::key_set::get,
    ),
    modifiers(&Common)
)]
struct Operations;

/// The document of a server with these addresses.
#[must_use]
pub fn document(hosts: Hosts<'_>) -> OpenApi {
    let mut document = Operations::openapi();
    let contact = ContactBuilder::new().name(Some(CONTACT)).build();
    let licence = LicenseBuilder::new().name(LICENCE).identifier(Some(LICENCE)).build();
    let info = InfoBuilder::new().title("Mandate API").version(VERSION).description(Some(ABOUT));
    document.info = info.contact(Some(contact)).license(Some(licence)).build();
    let tag = |(name, about): (&str, &str)| TagBuilder::new().name(name).description(Some(about)).build();
    document.tags = Some(TAGS.map(tag).to_vec());
    let host = hosts.base.strip_suffix(VERSION_PATH).unwrap_or(hosts.base);
    document.servers = Some(vec![Server::new(host)]);
    let key_set = document.paths.paths.get_mut(KEY_SET_PATH).and_then(|path| path.get.as_mut());
    if let Some(operation) = key_set {
        operation.security = Some(Vec::new());
        operation.servers = Some(vec![Server::new(hosts.verdicts)]);
    }
    document
}
