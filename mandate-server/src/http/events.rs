//! `/v1/events`.

use mandate_core::EventKind;
use serde_json::{Value, json};
use utoipa::openapi::schema::OneOfBuilder;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::decisions::Decision;
use super::extract::{Admitted, parameter};
use super::mandates::Mandate;
use super::openapi::page::{Page, PageParameters};
use super::openapi::values::{self, with};
use super::respond::Failure;
use crate::model::call::Answer;
use crate::service::events;

/// List events
///
/// The events of the environment, whether or not they were sent to a webhook.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "listEvents", tag = "Events",
    security(("organizationKey" = [])),
    params(
        ("type" = values::EventType, Query, description = "Only events of this type."),
        PageParameters,
    ),
    responses((
        status = 200, description = "A page, newest first.", body = EventPage,
        example = json!({"data": [example()], "has_more": false}),
    )),
)]
pub(super) async fn list(request: Admitted) -> Result<Answer, Failure> {
    let (page, [kind]) = request.filtered(["type"])?;
    let kind = parameter("type", kind, EventKind::parse)?;
    let cursors = request.cursors();
    request.read(move |tx, call| events::list(tx, call, kind, &page, &cursors)).await
}

/// Get an event
///
/// One event, with its deliveries and the attempts at each.
#[utoipa::path(
    get, path = "/v1/events/{id}", operation_id = "getEvent", tag = "Events",
    security(("organizationKey" = [])),
    params(("id" = values::EventId, Path, description = "The event's id.")),
    responses((
        status = 200, description = "The event.", body = Event,
        example = json!(delivered()),
    )),
)]
pub(super) async fn get(request: Admitted) -> Result<Answer, Failure> {
    request.no_query()?;
    let id = request.id.clone();
    request.read(move |tx, call| events::get(tx, call, &id)).await
}

/// An event.
#[derive(Debug, ToSchema)]
pub struct Event {
    pub event: values::EventId,
    pub r#type: values::EventType,
    /// When it happened.
    pub created_at: values::Timestamp,
    pub data: EventData,
    /// Its deliveries to webhooks. Present where one event is read.
    #[schema(required = false)]
    pub deliveries: Vec<Delivery>,
}

/// What an event is about, as the API showed it then: a decision, a mandate, an escrow's state, or a webhook.
#[derive(Debug)]
pub struct EventData;

/// The state of an escrow: the one that it has entered, or the one that it is in after a dispute or a refusal.
#[derive(Debug, ToSchema)]
pub struct EscrowEntered {
    pub escrow: values::EscrowId,
    pub state: values::EscrowState,
    /// Whether it was ever disputed.
    pub disputed: bool,
    /// The instruction that was refused. Present in `escrow.settlement_refused`, and only there.
    #[schema(required = false)]
    pub instruction: values::InstructionId,
    /// Why it was refused. Present if the provider gave a reason.
    #[schema(required = false)]
    pub reason: values::RefusalReason,
}

/// The webhook that was pinged.
#[derive(Debug, ToSchema)]
pub struct Pinged {
    pub webhook: values::WebhookId,
}

/// An event on its way to a webhook.
#[derive(Debug, ToSchema)]
pub struct Delivery {
    pub webhook: values::WebhookId,
    pub status: values::DeliveryStatus,
    /// The attempts so far, oldest first.
    pub attempts: Vec<Attempt>,
    /// When the next attempt is made. Present while the delivery is pending.
    #[schema(required = false)]
    pub next_attempt_at: values::Timestamp,
}

/// One attempt to deliver an event: a POST to the webhook's URL.
#[derive(Debug, ToSchema)]
pub struct Attempt {
    pub at: values::Timestamp,
    /// The HTTP status of the webhook's answer. Absent if there was no answer.
    #[schema(required = false)]
    pub status: u16,
    /// Why there was no answer. Absent if there was one.
    #[schema(required = false)]
    pub error: String,
}

impl PartialSchema for EventData {
    fn schema() -> RefOr<Schema> {
        let names = [Decision::name(), Mandate::name(), EscrowEntered::name(), Pinged::name()];
        let one_of =
            names.iter().fold(OneOfBuilder::new(), |all, name| all.item(Ref::from_schema_name(&**name)));
        one_of
            .description(Some("What an event is about, as the API showed it then: a decision, a mandate, an escrow's state, or a webhook."))
            .into()
    }
}

impl ToSchema for EventData {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Decision::schemas(schemas);
        Mandate::schemas(schemas);
        EscrowEntered::schemas(schemas);
        Pinged::schemas(schemas);
        schemas.extend([
            (Decision::name().into(), Decision::schema()),
            (Mandate::name().into(), Mandate::schema()),
            (EscrowEntered::name().into(), EscrowEntered::schema()),
            (Pinged::name().into(), Pinged::schema()),
        ]);
    }
}

type EventPage = Page<Event>;

pub(super) fn example() -> Value {
    json!({
        "event": "evt_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "type": "escrow.disputed",
        "created_at": "2026-06-15T12:00:00.000Z",
        "data": {"escrow": "esc_01jxs6m2t0f3k9v8q4r7w5x1yz", "state": "disputed", "disputed": true},
    })
}

fn delivered() -> Value {
    let delivery = json!({
        "webhook": "whk_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "status": "delivered",
        "attempts": [{"at": "2026-06-15T12:00:01.000Z", "status": 204}],
    });
    with(example(), json!({"deliveries": [delivery]}))
}
