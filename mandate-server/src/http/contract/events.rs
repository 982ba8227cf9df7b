//! What is said of `/v1/events`.

use serde_json::{Value, json};
use utoipa::openapi::schema::OneOfBuilder;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::decisions::Decision;
use super::mandates::Mandate;
use super::values::{DeliveryStatus, EscrowId, EscrowState, EventId, EventType, Timestamp, WebhookId};
use super::{Operation, with};

const TAG: &str = "Events";

/// An event.
#[derive(Debug, ToSchema)]
pub struct Event {
    pub event: EventId,
    pub r#type: EventType,
    /// When it happened.
    pub created_at: Timestamp,
    pub data: EventData,
    /// Its deliveries; where one event is read.
    #[schema(required = false)]
    pub deliveries: Vec<Delivery>,
}

/// What an event is about, as the API showed it then: a decision, a mandate, an escrow's state, or a webhook.
#[derive(Debug)]
pub struct EventData;

/// The state that an escrow has entered.
#[derive(Debug, ToSchema)]
pub struct EscrowEntered {
    pub escrow: EscrowId,
    pub state: EscrowState,
    /// Whether it was ever disputed.
    pub disputed: bool,
}

/// The webhook that was pinged.
#[derive(Debug, ToSchema)]
pub struct Pinged {
    pub webhook: WebhookId,
}

/// An event on its way to a webhook.
#[derive(Debug, ToSchema)]
pub struct Delivery {
    pub webhook: WebhookId,
    pub status: DeliveryStatus,
    /// Oldest first.
    pub attempts: Vec<Attempt>,
    /// When the next attempt is made; while it is pending.
    #[schema(required = false)]
    pub next_attempt_at: Timestamp,
}

/// One POST.
#[derive(Debug, ToSchema)]
pub struct Attempt {
    pub at: Timestamp,
    /// The status of the answer, if there was one.
    #[schema(required = false)]
    pub status: u16,
    /// Why there was none.
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

pub(crate) fn list(operation: Operation) -> Operation {
    operation
        .named("listEvents", TAG, "List events")
        .told("The events of the environment, whether or not a webhook has heard of them.")
        .filter::<EventType>("type", "Of this type.")
        .pages::<Event>(&example())
}

pub(crate) fn get(operation: Operation) -> Operation {
    let delivery = json!({
        "webhook": "whk_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "status": "delivered",
        "attempts": [{"at": "2026-06-15T12:00:01.000Z", "status": 204}],
    });
    operation
        .named("getEvent", TAG, "Get an event")
        .told("One event, with its deliveries and the attempts at each.")
        .id::<EventId>("The event's id.")
        .gives::<Event>(200, "The event.", with(example(), json!({"deliveries": [delivery]})))
}

pub(super) fn example() -> Value {
    json!({
        "event": "evt_01jxs6m2t0f3k9v8q4r7w5x1yz",
        "type": "escrow.disputed",
        "created_at": "2026-06-15T12:00:00.000Z",
        "data": {"escrow": "esc_01jxs6m2t0f3k9v8q4r7w5x1yz", "state": "disputed", "disputed": true},
    })
}
