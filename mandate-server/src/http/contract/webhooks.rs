//! What is said of `/v1/webhooks`.

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::events::{self, Event};
use super::values::{EventType, Timestamp, WebhookId};
use super::{Operation, with};

const TAG: &str = "Webhooks";

/// A webhook to be registered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// Where events are sent: https, a host that is public, without credentials or fragment.
    #[schema(format = "uri", pattern = "^https://", max_length = 2048)]
    pub url: String,
    /// What it hears of, without duplicates. A `ping` goes without saying.
    #[schema(value_type = HashSet<EventType>, min_items = 1)]
    pub events: Vec<EventType>,
}

/// A webhook.
#[derive(Debug, ToSchema)]
pub struct Webhook {
    pub webhook: WebhookId,
    /// The URL, normalised.
    #[schema(format = "uri")]
    pub url: String,
    #[schema(value_type = HashSet<EventType>, min_items = 1)]
    pub events: Vec<EventType>,
    /// `active`.
    pub status: String,
    pub created_at: Timestamp,
}

pub(crate) fn create(operation: Operation) -> Operation {
    operation
        .named("createWebhook", TAG, "Register a webhook")
        .told(
            "Registers an endpoint, which hears of what happens from then on. Each event is an HTTP POST with a signed JWT as \
             its body; a 2xx acknowledges. An environment has at most 16 webhooks.",
        )
        .takes::<NewWebhook>(
            json!({"url": "https://hooks.example.com/mandate", "events": ["decision.review_pending", "mandate.revoked"]}),
        )
        .gives::<Webhook>(201, "The webhook.", example())
        .leads("getWebhook", "/webhook", "The webhook.")
        .leads("pingWebhook", "/webhook", "Sending it a ping.")
        .leads("deleteWebhook", "/webhook", "Deleting it.")
}

pub(crate) fn list(operation: Operation) -> Operation {
    operation
        .named("listWebhooks", TAG, "List webhooks")
        .told("The webhooks of the environment.")
        .pages::<Webhook>(&example())
}

pub(crate) fn get(operation: Operation) -> Operation {
    operation
        .named("getWebhook", TAG, "Get a webhook")
        .told("One webhook.")
        .id::<WebhookId>("The webhook's id.")
        .gives::<Webhook>(200, "The webhook.", example())
}

pub(crate) fn delete(operation: Operation) -> Operation {
    operation
        .named("deleteWebhook", TAG, "Delete a webhook")
        .told("Deletes a webhook, and ends the deliveries to it.")
        .id::<WebhookId>("The webhook's id.")
        .gives_nothing("It is deleted.")
}

pub(crate) fn ping(operation: Operation) -> Operation {
    let data = json!({"webhook": "whk_01jxs6m2t0f3k9v8q4r7w5x1yz"});
    operation
        .named("pingWebhook", TAG, "Ping a webhook")
        .told("Sends a `ping` event to this webhook, whatever it subscribes to, and to no other.")
        .id::<WebhookId>("The webhook's id.")
        .gives::<Event>(202, "The event.", with(events::example(), json!({"type": "ping", "data": data})))
        .leads("getEvent", "/event", "The event, with its deliveries.")
}

fn example() -> Value {
    json!({
        "webhook": "whk_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "url": "https://hooks.example.com/mandate",
        "events": ["decision.review_pending", "mandate.revoked"],
        "status": "active",
        "created_at": "2026-06-15T12:00:00.000Z",
    })
}
