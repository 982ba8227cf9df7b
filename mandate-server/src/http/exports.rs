//! `/v1/exports`.

use axum::response::{IntoResponse as _, Response};
use hyper::header::{self, HeaderValue};
use mandate_core::json::Object;
use mandate_core::{AgentId, ExportId, Invalid, Timestamp, Verdict};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::accept::preferred;
use super::extract::{Admitted, Post};
use super::file::{self, Entity};
use super::openapi::values::{self, with};
use super::respond::Failure;
use crate::error::Fault;
use crate::model::call::Answer;
use crate::service::exports::{self, Filter, Format, Sha256Hex};

const NDJSON: &str = "application/x-ndjson";
const CSV: &str = "text/csv";
/// The types that can be asked for. The first is the record.
const FORMS: [&str; 3] = ["application/json", NDJSON, CSV];

/// Ask for an export
///
/// Asks for the log, or a part of it, as a file. It is built in the background, from one consistent state. One with `until`
/// is built a minute after that instant, so that what was decided before it and committed late is in it. Periods that adjoin
/// hold each decision once, unless the clock was set back by more than a minute: then the record of the earlier export says
/// from when on it may lack decisions (`incomplete_since`). Decisions of months that the operator has closed are in none: the
/// export begins at the end of the newest of them, and its first line says so (`since`). An environment has at most 200 exports at
/// a time; beyond that, the oldest finished one is deleted.
#[utoipa::path(
    post, path = "/v1/exports", operation_id = "createExport", tag = "Exports",
    security(("organizationKey" = [])),
    request_body(
        content = NewExport,
        example = json!({"format": "ndjson", "agent": "agt_buyer", "since": "2026-06-01T00:00:00Z"}),
    ),
    responses((
        status = 202, description = "The record of the export.", body = Export,
        links(
            ("getExport" = (
                operation_id = "getExport", parameters(("id" = "$response.body#/export")),
                description = "The export.",
            )),
        ),
        example = json!(example()),
    )),
)]
pub(super) async fn create(post: Post) -> Result<Answer, Failure> {
    let (id, at) = (ExportId::from_bytes(post.new_id()), post.at());
    let waiting = std::sync::Arc::clone(&post.api.exports);
    let command = post.parse(body).map(|(format, filter)| exports::Create { format, filter, id, at });
    let answer = post.write(command, exports::create).await;
    waiting.wake();
    answer
}

fn body(mut body: Object<'_>) -> Result<(Format, Filter), Invalid> {
    let format = Format::parse(&body.require("format")?.string()?)?;
    let filter = Filter {
        verdict: optional(&mut body, "verdict", Verdict::parse)?,
        agent: optional(&mut body, "agent", AgentId::parse)?,
        since: optional(&mut body, "since", Timestamp::parse)?,
        until: optional(&mut body, "until", Timestamp::parse)?,
        ..Filter::default()
    };
    body.finish().map(|()| (format, filter))
}

fn optional<T>(
    body: &mut Object<'_>,
    name: &'static str,
    parse: impl FnOnce(&str) -> Result<T, Invalid>,
) -> Result<Option<T>, Invalid> {
    let Some(field) = body.take(name) else { return Ok(None) };
    parse(&field.string()?).map(Some).map_err(|e| e.at(name))
}

/// Get an export
///
/// The record of an export; or, when Accept asks for `application/x-ndjson` or `text/csv`, its content, streamed.
/// Content that is not ready, or is of the other format, is 400. NDJSON holds the mandates concerned, then one
/// decision a line, then a signed trailer.
#[utoipa::path(
    get, path = "/v1/exports/{id}", operation_id = "getExport", tag = "Exports",
    security(("organizationKey" = [])),
    params(
        ("id" = values::ExportId, Path, description = "The export's id."),
        ("Range" = String, Header, description = "`bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-LENGTH`: a piece of the content."),
        ("If-Range" = String, Header, description = "The ETag of the content that the earlier pieces came from. If the content has another ETag, all of it is sent."),
    ),
    responses(
        (
            status = 200, description = "The record, or the content.",
            content(
                (Export = "application/json", example = json!(ready())),
                (String = "application/x-ndjson", example = json!(LINES)),
                (String = "text/csv", example = json!(TABLE)),
            ),
            headers(
                ("ETag" = String, description = "Names the content: its SHA-256."),
                ("Accept-Ranges" = String, description = "`bytes`: a piece can be asked for."),
                ("Content-Disposition" = String, description = "The name under which the content is kept."),
                ("Vary" = String, description = "`Accept`: record and content have one path."),
            ),
        ),
        (
            status = 206, description = "The bytes of the content that Range asks for.",
            content(
                (String = "application/x-ndjson", example = json!(LINES)),
                (String = "text/csv", example = json!(TABLE)),
            ),
            headers(
                ("Content-Range" = String, description = "Which bytes, of how many."),
                ("ETag" = String, description = "Names the content: its SHA-256."),
                ("Accept-Ranges" = String, description = "`bytes`: a piece can be asked for."),
                ("Content-Disposition" = String, description = "The name under which the content is kept."),
                ("Vary" = String, description = "`Accept`: record and content have one path."),
            ),
        ),
    ),
)]
pub(super) async fn get(request: Admitted) -> Result<Response, Failure> {
    request.no_query()?;
    let (id, now) = (request.id.clone(), request.at());
    let (form, format) = match preferred(&request.head.headers, &FORMS) {
        NDJSON => (NDJSON, Format::Ndjson),
        CSV => (CSV, Format::Csv),
        _ => {
            let answer = request.read(move |tx, call| exports::get(tx, call, &id, now)).await?;
            return Ok(answer.into_response());
        }
    };
    let Admitted { api, call, head, .. } = request;
    let environment = call.caller.environment.id;
    let (id, sha256) = api.store.read(move |tx| exports::content(tx, &call, &id, format, now)).await??;
    let download = api.begin_download(environment)?;
    let path = api.exports.content(&api.store, environment, id, sha256).await?;
    let name = format!("attachment; filename=\"{id}.{}\"", format.as_str());
    let header = |text: String| HeaderValue::try_from(text).map_err(|e| Fault::new(e.to_string()));
    let entity = Entity { path, download, etag: header(format!("\"{}\"", Sha256Hex(sha256)))? };
    let mut response = file::serve(entity, &head.headers).await?;
    response.headers_mut().extend([
        (header::CONTENT_TYPE, HeaderValue::from_static(form)),
        (header::CONTENT_DISPOSITION, header(name)?),
        (header::VARY, HeaderValue::from_name(header::ACCEPT)),
    ]);
    Ok(response)
}

/// An export to be built. Without filters it holds the whole log.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewExport {
    pub format: values::ExportFormat,
    /// Decisions of this verdict.
    #[schema(required = false)]
    pub verdict: values::Verdict,
    /// Decisions of this agent.
    #[schema(required = false)]
    pub agent: values::AgentId,
    /// Decisions made at this instant or later, by the time in their ids. After the clock was set back that is later than
    /// `decided_at`. In a month that the operator has closed, or before it, it is moved to the end of that month.
    #[schema(required = false)]
    pub since: values::Timestamp,
    /// Decisions made before this instant, by the time in their ids. After the clock was set back that is later than
    /// `decided_at`. It is after `since`, and not in the future. Without it the export holds what was committed when it was
    /// built, and its first line names the newest decision (`last`).
    #[schema(required = false)]
    pub until: values::Timestamp,
}

/// The record of an export.
#[derive(Debug, ToSchema)]
pub struct Export {
    pub export: values::ExportId,
    pub status: values::ExportStatus,
    pub format: values::ExportFormat,
    /// How many decisions it holds. Present once it is ready.
    #[schema(required = false, minimum = 0)]
    pub rows: i64,
    /// The hash of its content. Present once it is ready.
    #[schema(required = false)]
    pub sha256: values::Sha256,
    pub created_at: values::Timestamp,
    /// When it is deleted: 7 days later.
    pub expires_at: values::Timestamp,
    /// Present if the clock was set back to this instant, before `until`, after the export was built. Decisions made from
    /// then on may be missing: ask for the period again.
    #[schema(required = false)]
    pub incomplete_since: values::Timestamp,
}

/// The content, as examples show it.
const LINES: &str = "{\"export\":{…}}\n{\"mandate\":{…}}\n{\"decision\":{…}}\n{\"trailer\":\"…\"}\n";
const TABLE: &str = "decision,iat,sequence,decided_at,verdict,…\r\n";

fn example() -> Value {
    json!({
        "export": "exp_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "status": "pending",
        "format": "ndjson",
        "created_at": "2026-06-15T12:00:00.000Z",
        "expires_at": "2026-06-22T12:00:00.000Z",
    })
}

fn ready() -> Value {
    let ready = json!({
        "status": "ready",
        "rows": 1,
        "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    });
    with(example(), ready)
}
