//! `/v1/exports`.

use axum::response::{IntoResponse as _, Response};
use hyper::header::{self, HeaderValue};
use mandate_core::json::Object;
use mandate_core::{AgentId, ExportId, Invalid, Timestamp, Verdict};

use super::accept::preferred;
use super::extract::{Admitted, Post};
use super::file::{self, Entity};
use super::respond::Failure;
use crate::error::Fault;
use crate::model::call::Answer;
use crate::service::exports::{self, Filter, Format, Sha256Hex};

const NDJSON: &str = "application/x-ndjson";
const CSV: &str = "text/csv";
/// What can be asked for; the first is the record.
const FORMS: [&str; 3] = ["application/json", NDJSON, CSV];

/// POST /v1/exports
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

/// GET /v1/exports/{id}
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
    let path = api.exports.content(&api.store, environment, id, sha256).await?;
    let name = format!("attachment; filename=\"{id}.{}\"", format.as_str());
    let header = |text: String| HeaderValue::try_from(text).map_err(|e| Fault::new(e.to_string()));
    let entity = Entity { path, etag: header(format!("\"{}\"", Sha256Hex(sha256)))? };
    let mut response = file::serve(entity, &head.headers).await?;
    response.headers_mut().extend([
        (header::CONTENT_TYPE, HeaderValue::from_static(form)),
        (header::CONTENT_DISPOSITION, header(name)?),
        (header::VARY, HeaderValue::from_name(header::ACCEPT)),
    ]);
    Ok(response)
}
