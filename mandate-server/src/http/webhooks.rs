//! `/v1/webhooks`.

use mandate_core::{EventId, WebhookId};

use super::extract::{Admitted, Post};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::webhooks::{self, Subscription};

/// POST /v1/webhooks
pub(super) async fn create(post: Post) -> Result<Answer, Failure> {
    let (id, at) = (WebhookId::from_bytes(post.new_id()), post.at());
    let subscription = post.parse(|body| Subscription::read(body, &post.api.webhook_egress));
    let command = subscription.map(|subscription| webhooks::Create { subscription, id, at });
    post.write(command, webhooks::create).await
}

/// GET /v1/webhooks
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, cursors) = (request.page()?, request.cursors());
    request.read(move |tx, call| webhooks::list(tx, call, &page, &cursors)).await
}

/// GET /v1/webhooks/{id}
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let id = request.id.clone();
    request.read(move |tx, call| webhooks::get(tx, call, &id)).await
}

/// DELETE /v1/webhooks/{id}
pub(super) async fn delete(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let id = request.id.clone();
    request.delete(move |tx, call| webhooks::delete(tx, call, &id)).await
}

/// POST /v1/webhooks/{id}/ping
pub(super) async fn ping(post: Post) -> Result<Answer, Failure> {
    let (event, at) = (EventId::from_bytes(post.new_id()), post.at());
    let command = post.no_body().map(|()| webhooks::Ping { id: post.id.clone(), event, at });
    post.write(command, webhooks::ping).await
}
