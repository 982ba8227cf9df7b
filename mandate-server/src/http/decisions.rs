//! `/v1/decisions`.

use super::gate::Admitted;
use super::reply::Failure;
use crate::service::{Answer, decisions};

/// GET /v1/decisions
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, cursors) = (request.page()?, request.cursors());
    request.read(move |tx, call| decisions::list(tx, call, &page, &cursors)).await
}

/// GET /v1/decisions/{id}
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let (id, now) = (request.id.clone(), request.at());
    request.read(move |tx, call| decisions::get(tx, call, &id, now)).await
}
