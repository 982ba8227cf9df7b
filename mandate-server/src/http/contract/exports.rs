//! What is said of `/v1/exports`.

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{Content, RefOr, ResponseBuilder, Schema};

use super::operation::{Operation, X_REQUEST_ID, header, text_header, with};
use super::values::{AgentId, ExportFormat, ExportId, ExportStatus, Sha256, Timestamp, Verdict};

const TAG: &str = "Exports";

/// An export to be built. Without filters it holds the whole log.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewExport {
    pub format: ExportFormat,
    /// Decisions of this verdict.
    #[schema(required = false)]
    pub verdict: Verdict,
    /// Decisions of this agent.
    #[schema(required = false)]
    pub agent: AgentId,
    /// Decisions made at this instant or later.
    #[schema(required = false)]
    pub since: Timestamp,
    /// Decisions made before this instant, which is after `since`.
    #[schema(required = false)]
    pub until: Timestamp,
}

/// The record of an export.
#[derive(Debug, ToSchema)]
pub struct Export {
    pub export: ExportId,
    pub status: ExportStatus,
    pub format: ExportFormat,
    /// How many decisions it holds; when it is ready.
    #[schema(required = false, minimum = 0)]
    pub rows: i64,
    /// The hash of its content; when it is ready.
    #[schema(required = false)]
    pub sha256: Sha256,
    pub created_at: Timestamp,
    /// When it is deleted: 7 days later.
    pub expires_at: Timestamp,
}

pub(crate) fn create(operation: Operation) -> Operation {
    operation
        .named("createExport", TAG, "Ask for an export")
        .told(
            "Asks for the log, or a part of it, as a file. It is built in the background, from one consistent state. An \
             environment has at most 100 exports at a time.",
        )
        .takes::<NewExport>(json!({"format": "ndjson", "agent": "agt_buyer", "since": "2026-06-01T00:00:00Z"}))
        .gives::<Export>(202, "The record of the export.", example())
        .leads("getExport", "/export", "The export.")
}

pub(crate) fn get(operation: Operation) -> Operation {
    let ready = json!({
        "status": "ready",
        "rows": 1,
        "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    });
    let piece = ResponseBuilder::new()
        .description("The bytes of the content that Range asks for.")
        .header_ref(X_REQUEST_ID, header(X_REQUEST_ID))
        .header("Content-Range", text_header("Which bytes, of how many."))
        .header("ETag", text_header("Names the content: its SHA-256."))
        .header("Accept-Ranges", text_header("`bytes`: a piece can be asked for."))
        .header("Content-Disposition", text_header("The name under which the content is kept."))
        .header("Vary", text_header("`Accept`: record and content have one path."));
    operation
        .named("getExport", TAG, "Get an export")
        .told(
            "The record of an export; or, when Accept asks for `application/x-ndjson` or `text/csv`, its content, streamed. \
             Content that is not ready, or is of the other format, is 400. NDJSON holds the mandates concerned, then one \
             decision a line, then a signed trailer.",
        )
        .id::<ExportId>("The export's id.")
        .header_of_request("Range", "`bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-LENGTH`: a piece of the content.")
        .header_of_request("If-Range", "The ETag of the content that a piece belongs to; of another, all is sent.")
        .gives::<Export>(200, "The record, or the content.", with(example(), ready))
        .or_content(NDJSON, file(LINES))
        .or_content(CSV, file(TABLE))
        .with_header("ETag", "Names the content: its SHA-256.")
        .with_header("Accept-Ranges", "`bytes`: a piece can be asked for.")
        .with_header("Content-Disposition", "The name under which the content is kept.")
        .with_header("Vary", "`Accept`: record and content have one path.")
        .answers(206, piece.content(NDJSON, file(LINES)).content(CSV, file(TABLE)))
}

const NDJSON: &str = "application/x-ndjson";
const CSV: &str = "text/csv";
/// The content, as examples show it.
const LINES: &str = "{\"export\":{…}}\n{\"mandate\":{…}}\n{\"decision\":{…}}\n{\"trailer\":\"…\"}\n";
const TABLE: &str = "decision,iat,verdict,…\r\n";

fn file(example: &str) -> Content {
    let lines: RefOr<Schema> = ObjectBuilder::new().schema_type(Type::String).into();
    let mut content = Content::new(Some(lines));
    content.example = Some(json!(example));
    content
}

fn example() -> Value {
    json!({
        "export": "exp_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "status": "pending",
        "format": "ndjson",
        "created_at": "2026-06-15T12:00:00.000Z",
        "expires_at": "2026-06-22T12:00:00.000Z",
    })
}
