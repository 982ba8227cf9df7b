//! `/v1/webhooks`.

use std::sync::Arc;

use mandate_core::WebhookId;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::events::{self, Event};
use super::extract::{Admitted, Post};
use super::openapi::page::{Page, PageParameters};
use super::openapi::values::{self, with};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::webhooks::{self, Subscription};

/// Register a webhook
///
/// Registers an endpoint for the events that happen from then on. Each event is an HTTP POST with a signed JWT as
/// its body; a 2xx acknowledges. An environment has at most 16 webhooks.
#[utoipa::path(
    post, path = "/v1/webhooks", operation_id = "createWebhook", tag = "Webhooks",
    security(("organizationKey" = [])),
    request_body(
        content = NewWebhook,
        example = json!({"url": "https://hooks.example.com/mandate", "events": ["decision.review_pending", "mandate.revoked"]}),
    ),
    responses((
        status = 201, description = "The webhook.", body = Webhook,
        links(
            ("getWebhook" = (
                operation_id = "getWebhook", parameters(("id" = "$response.body#/webhook")),
                description = "The webhook.",
            )),
            ("pingWebhook" = (
                operation_id = "pingWebhook", parameters(("id" = "$response.body#/webhook")),
                description = "Sending it a ping.",
            )),
            ("deleteWebhook" = (
                operation_id = "deleteWebhook", parameters(("id" = "$response.body#/webhook")),
                description = "Deleting it.",
            )),
        ),
        example = json!(example()),
    )),
)]
pub(super) async fn create(post: Post) -> Result<Answer, Failure> {
    let (id, at) = (WebhookId::from_bytes(post.new_id()), post.at());
    let subscription = post.parse(|body| Subscription::read(body, &post.api.webhook_egress));
    let command = subscription.map(|subscription| webhooks::Create { subscription, id, at });
    post.write(command, webhooks::create).await
}

/// List webhooks
///
/// The webhooks of the environment.
#[utoipa::path(
    get, path = "/v1/webhooks", operation_id = "listWebhooks", tag = "Webhooks",
    security(("organizationKey" = [])),
    params(PageParameters),
    responses((
        status = 200, description = "A page, newest first.", body = WebhookPage,
        example = json!({"data": [example()], "has_more": false}),
    )),
)]
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, cursors) = (request.page()?, request.cursors());
    request.read(move |tx, call| webhooks::list(tx, call, &page, &cursors)).await
}

/// Get a webhook
///
/// One webhook.
#[utoipa::path(
    get, path = "/v1/webhooks/{id}", operation_id = "getWebhook", tag = "Webhooks",
    security(("organizationKey" = [])),
    params(("id" = values::WebhookId, Path, description = "The webhook's id.")),
    responses((
        status = 200, description = "The webhook.", body = Webhook,
        example = json!(example()),
    )),
)]
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let id = request.id.clone();
    request.read(move |tx, call| webhooks::get(tx, call, &id)).await
}

/// Delete a webhook
///
/// Deletes a webhook, and ends the deliveries to it.
#[utoipa::path(
    delete, path = "/v1/webhooks/{id}", operation_id = "deleteWebhook", tag = "Webhooks",
    security(("organizationKey" = [])),
    params(("id" = values::WebhookId, Path, description = "The webhook's id.")),
    responses((
        status = 204, description = "It is deleted.",
    )),
)]
pub(super) async fn delete(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let id = request.id.clone();
    request.delete(move |tx, call| webhooks::delete(tx, call, &id)).await
}

/// Ping a webhook
///
/// Sends a `ping` event to this webhook only, even if it does not subscribe to it.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/ping", operation_id = "pingWebhook", tag = "Webhooks",
    security(("organizationKey" = [])),
    params(("id" = values::WebhookId, Path, description = "The webhook's id.")),
    responses((
        status = 202, description = "The event.", body = Event,
        links(
            ("getEvent" = (
                operation_id = "getEvent", parameters(("id" = "$response.body#/event")),
                description = "The event, with its deliveries.",
            )),
        ),
        example = json!(pinged()),
    )),
)]
pub(super) async fn ping(post: Post) -> Result<Answer, Failure> {
    let moments = Arc::clone(&post.api.moments);
    let command = post.no_body().map(|()| webhooks::Ping { id: post.id.clone(), moments });
    post.write(command, webhooks::ping).await
}

/// A webhook to be registered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// Where events are sent: https, a host that is public, without credentials or fragment.
    #[schema(format = "uri", pattern = "^[Hh][Tt][Tt][Pp][Ss]://", max_length = 2048)]
    pub url: String,
    /// The types of events that it gets, without duplicates. It always gets `ping`.
    #[schema(value_type = HashSet<values::EventType>, min_items = 1)]
    pub events: Vec<values::EventType>,
}

/// A webhook.
#[derive(Debug, ToSchema)]
pub struct Webhook {
    pub webhook: values::WebhookId,
    /// The URL, normalised.
    #[schema(format = "uri")]
    pub url: String,
    #[schema(value_type = HashSet<values::EventType>, min_items = 1)]
    pub events: Vec<values::EventType>,
    /// `active`.
    pub status: String,
    pub created_at: values::Timestamp,
}

type WebhookPage = Page<Webhook>;

fn example() -> Value {
    json!({
        "webhook": "whk_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "url": "https://hooks.example.com/mandate",
        "events": ["decision.review_pending", "mandate.revoked"],
        "status": "active",
        "created_at": "2026-06-15T12:00:00.000Z",
    })
}

fn pinged() -> Value {
    let data = json!({"webhook": "whk_01jxs6m2t0f3k9v8q4r7w5x1yz"});
    with(events::example(), json!({"type": "ping", "data": data}))
}
