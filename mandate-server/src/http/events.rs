//! `/v1/events`.

use mandate_core::EventKind;

use super::extract::{Admitted, parameter};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::events;

/// GET /v1/events
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, [kind]) = request.filtered(["type"])?;
    let kind = parameter("type", kind, EventKind::parse)?;
    let cursors = request.cursors();
    request.read(move |tx, call| events::list(tx, call, kind, &page, &cursors)).await
}

/// GET /v1/events/{id}
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let id = request.id.clone();
    request.read(move |tx, call| events::get(tx, call, &id)).await
}
