//! The schemas of values: what identifiers, names, amounts and instants look like.

use std::borrow::Cow;

use crate::http::free_text::PATTERN;
use crate::model::records::DeliveryState;
use crate::service::escrows::{MAX_ARBITER, MAX_CONDITION, MAX_NOTE, MAX_REFUSAL_REASON};
use crate::service::reviews::MAX_REASON;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::openapi::schema::{ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{KnownFormat, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// The largest amount: fifteen digits.
const MAX_AMOUNT: f64 = 999_999_999_999_999.0;

/// The smallest amount: eight fractional digits.
const MIN_AMOUNT: f64 = 0.000_000_01;

/// What instants and days begin with: time begins in 1970.
const SINCE_1970: &str = "^(19[7-9][0-9]|[2-9][0-9]{3})-";

macro_rules! values {
    ($($(#[doc = $doc:literal])+ $name:ident = $schema:expr;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Debug, Deserialize)]
        pub struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $schema.description(Some(concat!($($doc),+).trim())).into()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($name))
            }
        }
    )+};
}

values! {
    /// An agent's id: `agt_` and its name.
    AgentId = text("^agt_[a-z0-9][a-z0-9_-]{0,63}$", "agt_buyer");
    /// The name of an agent, unique within the environment.
    AgentName = text("^[a-z0-9][a-z0-9_-]{0,63}$", "buyer");
    /// An agent's API key. It is shown once, when the agent is registered.
    AgentKey = text("^ak_(sandbox|live)_[0-9A-Za-z]{49}$", "ak_sandbox_1fJjkkpe9PiTw9KSulA8Ghct30vZz4HpdQ5c5b9cPF1E96Pye");
    /// A mandate's id.
    MandateId = id(mandate_core::MandateId::PREFIX);
    /// A decision's id.
    DecisionId = id(mandate_core::DecisionId::PREFIX);
    /// A review's id.
    ReviewId = id(mandate_core::ReviewId::PREFIX);
    /// The id of a request, also in the header X-Request-Id.
    RequestId = id(mandate_core::RequestId::PREFIX);
    /// A webhook's id.
    WebhookId = id(mandate_core::WebhookId::PREFIX);
    /// An event's id; its `jti` when it is delivered.
    EventId = id(mandate_core::EventId::PREFIX);
    /// An escrow's id.
    EscrowId = id(mandate_core::EscrowId::PREFIX);
    /// An export's id.
    ExportId = id(mandate_core::ExportId::PREFIX);
    /// A SHA-256, in hexadecimal digits.
    Sha256 = text("^[0-9a-f]{64}$", ADDRESS);
    /// The address of an escrow's contract. Everyone who has it may read the contract, without a key.
    ContractAddress = text("^[0-9a-f]{64}$", ADDRESS);
    /// A single-use value.
    Nonce = id(mandate_core::Nonce::PREFIX);
    /// The accountable party, a role.
    Principal = text("^role:[a-z0-9][a-z0-9_.-]{0,63}$", "role:head-of-it");
    /// The payee.
    Recipient = text("^vendor:[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$", "vendor:acme");
    /// What the money is for. A mandate allows categories by exact match.
    Category = text("^[a-z0-9][a-z0-9_.-]{0,63}$", "software");
    /// An ISO 4217 code such as `USD`, or a token such as `USDC`.
    Currency = text("^[A-Z][A-Z0-9]{2,7}$", "USD");
    /// The organization's policy set, of the form `pol_<date>.<n>`. It does not show the rules.
    PolicyVersion = text("^pol_[0-9][0-9.-]{0,59}$", "pol_2026-06-01.1");
    /// An amount of money: greater than 0, exact, at most 15 digits of which at most 8 are fractional. More digits are
    /// refused, never rounded. A string is refused.
    Amount = number().minimum(Some(MIN_AMOUNT));
    /// An amount, or 0.
    AmountOrZero = number().minimum(Some(0));
    /// A sum of amounts. It can be larger than any single amount.
    Total = ObjectBuilder::new().schema_type(Type::Number).minimum(Some(0)).examples([json!(980.5)]);
    /// An instant, RFC 3339; answers give it in UTC.
    Timestamp = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(SINCE_1970))
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .examples([json!("2026-06-15T12:00:00.000Z")]);
    /// A calendar day, UTC.
    Day = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some(SINCE_1970))
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Date)))
        .examples([json!("2027-06-30")]);
    /// A calendar month, UTC.
    Month = text("^(19[7-9][0-9]|[2-9][0-9]{3})-(0[1-9]|1[0-2])$", "2026-06");
    /// Seconds since the Unix epoch.
    Seconds = ObjectBuilder::new().schema_type(Type::Integer).examples([json!(1_781_524_800)]);
    /// What was decided: `allow`, `review`, or one of six denials.
    Verdict = one_of(mandate_core::Verdict::ALL.map(mandate_core::Verdict::as_str));
    /// A denial.
    Denial = one_of(mandate_core::Verdict::ALL.into_iter().filter(|verdict| verdict.is_denial()).map(mandate_core::Verdict::as_str));
    /// Whether verdicts bind. In `observe` they are recorded and nothing blocks.
    Mode = one_of(["observe", "enforce"]);
    /// The status of a review.
    ReviewStatus = one_of(mandate_core::ReviewStatus::ALL.map(mandate_core::ReviewStatus::as_str));
    /// The status of a mandate.
    MandateStatus = one_of(mandate_core::MandateStatus::ALL.map(mandate_core::MandateStatus::as_str));
    /// The state of an escrow.
    EscrowState = one_of(mandate_core::EscrowState::ALL.map(mandate_core::EscrowState::as_str));
    /// The id of an instruction to move an escrow's funds: the escrow, the action, and which attempt at it. It stays the
    /// same however often the instruction is sent.
    InstructionId = text(
        "^esc_[0-7][0-9a-hjkmnp-tv-z]{25}\\.(lock|release|refund)\\.[1-9][0-9]*$",
        "esc_01jxs6m2t0f3k9v8q4r7w5x1yz.lock.1",
    );
    /// What an instruction does: lock the buyer's funds, release them to the seller, or refund them to the buyer.
    SettlementAction = one_of(["lock", "release", "refund"]);
    /// Whether funds have moved.
    SettlementStatus = one_of(["pending", "settled", "refused"]);
    /// How an export is written.
    ExportFormat = one_of(["ndjson", "csv"]);
    /// The status of an export.
    ExportStatus = one_of(["pending", "ready", "failed"]);
    /// What kind of event.
    EventType = one_of(mandate_core::EventKind::ALL.map(mandate_core::EventKind::as_str));
    /// The status of a delivery.
    DeliveryStatus = one_of(DeliveryState::ALL.map(DeliveryState::as_str));
    /// Why a person denies a review. Free text: no control characters but line feed, carriage return before it, and tab, and
    /// no bidirectional controls.
    Reason = free_text(0, MAX_REASON);
    /// The arbiter of a dispute. It is stored and returned. Free text, as in a reason.
    Arbiter = free_text(1, MAX_ARBITER);
    /// The condition for the release of the funds, in words. It is stored and shown. Free text, as in a reason.
    Condition = free_text(1, MAX_CONDITION);
    /// A note, which everyone who has the address of the contract can read. Free text, as in a reason.
    Note = free_text(1, MAX_NOTE);
    /// Why the provider of settlement refused. Free text, as in a reason.
    RefusalReason = free_text(1, MAX_REFUSAL_REASON);
    /// A token: a JWT, signed with ES256.
    Token = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+$"))
        .examples([json!(TOKEN)]);
}

/// An address as examples show it.
pub(in crate::http) const ADDRESS: &str = "3f1d8a5c0e7b92461f8d3ca5b7094e6213d8fa5c7be09264f1380dca5b7e9246";
/// A token as examples show it, cut short.
pub(in crate::http) const TOKEN: &str = "eyJhbGciOiJFUzI1NiJ9.eyJ2ZXJkaWN0IjoiYWxsb3cifQ.c2lnbmF0dXJl";

fn text(pattern: &str, example: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern)).examples([json!(example)])
}

fn free_text(least: usize, most: usize) -> ObjectBuilder {
    let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some(PATTERN)).max_length(Some(most));
    if least == 0 { text } else { text.min_length(Some(least)) }
}

/// An id behind `prefix`: 128 bits in 26 characters, so that the first is one of eight.
fn id(prefix: &str) -> ObjectBuilder {
    text(&format!("^{prefix}[0-7][0-9a-hjkmnp-tv-z]{{25}}$"), &format!("{prefix}01jxs6m2t0f3k9v8q4r7w5x1yz"))
}

fn number() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Number).maximum(Some(MAX_AMOUNT)).examples([json!(40.5)])
}

pub(super) fn one_of(values: impl IntoIterator<Item = &'static str>) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(values))
}

/// An example with more members, or other values.
pub(in crate::http) fn with(mut example: Value, more: Value) -> Value {
    if let (Value::Object(example), Value::Object(more)) = (&mut example, more) {
        example.extend(more);
    }
    example
}
