//! `/v1/mandates`.

use mandate_core::{EventId, MandateId, Terms};

use super::extract::{Admitted, Post};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::mandates;

/// POST /v1/mandates
pub(super) async fn create(post: Post) -> Result<Answer, Failure> {
    let (id, event) = (MandateId::from_bytes(post.new_id()), EventId::from_bytes(post.new_id()));
    let at = post.at();
    let command = post.parse(Terms::read).map(|terms| mandates::Create { terms, id, event, at });
    post.write(command, mandates::create).await
}

/// GET /v1/mandates
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, cursors) = (request.page()?, request.cursors());
    request.read(move |tx, call| mandates::list(tx, call, &page, &cursors)).await
}

/// GET /v1/mandates/{id}
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let (id, now) = (request.id.clone(), request.at());
    request.read(move |tx, call| mandates::get(tx, call, &id, now)).await
}

/// POST /v1/mandates/{id}/revoke
pub(super) async fn revoke(post: Post) -> Result<Answer, Failure> {
    let (event, at) = (EventId::from_bytes(post.new_id()), post.at());
    let command = post.no_body().map(|()| mandates::Revoke { id: post.id.clone(), event, at });
    post.write(command, mandates::revoke).await
}
