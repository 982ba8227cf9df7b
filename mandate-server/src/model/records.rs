//! The stored rows as the rest of the server sees them: one record for each row.

use mandate_core::{
    AgentId, Amount, Basis, Currency, DecisionId, Denials, EnvironmentKind, EventId, EventKind, Invalid,
    Mandate, MandateId, Month, Nonce, Principal, RecentRequests, Request, ReviewId, ReviewStatus, Timestamp,
    Total, Verdict, WebhookId,
};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::people::Actor;

/// A row's place in its list: 128 bits that sort by creation.
pub type Position = [u8; 16];

/// Which way a list is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From newer rows to older ones.
    Older,
    /// From older rows to newer ones.
    Newer,
}

/// A slice of a list.
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    /// The direction.
    pub direction: Direction,
    /// Where it begins. The row at this position is not part of it.
    pub from: Position,
    /// The most rows.
    pub limit: i64,
}

impl Slice {
    /// Whether a row at `position` lies after the beginning.
    #[must_use]
    pub fn contains(&self, position: Position) -> bool {
        match self.direction {
            Direction::Older => position < self.from,
            Direction::Newer => position > self.from,
        }
    }
}

/// Whether verdicts are advice or binding in an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Verdicts are recorded and nothing blocks.
    Observe,
    /// Verdicts bind.
    Enforce,
}

impl Mode {
    /// The word, as bodies carry it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }

    /// Reads the word.
    ///
    /// # Errors
    /// The text is neither.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        match text {
            "observe" => Ok(Self::Observe),
            "enforce" => Ok(Self::Enforce),
            _ => Err(Invalid::value("mode", "must be observe or enforce", text)),
        }
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A decision: its claims, what the engine knew, and the signature over the claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRecord {
    /// The tenant.
    pub environment: i64,
    /// The decision's id.
    pub id: DecisionId,
    /// Its number among its agent's decisions, from 1 on.
    pub sequence: i64,
    /// When it was made. The claim `iat` is its whole second.
    pub decided_at: Timestamp,
    /// The verdict.
    pub verdict: Verdict,
    /// The mandate that governed.
    pub mandate: Option<MandateId>,
    /// The single-use value.
    pub nonce: Nonce,
    /// What was asked.
    pub request: Request,
    /// The mode in force.
    pub mode: Mode,
    /// Why it was denied.
    pub reason: Option<String>,
    /// Every denial that held.
    pub denials: Denials,
    /// The engine's other inputs.
    pub basis: Basis,
    /// The decision whose review was approved by this one.
    pub supersedes: Option<DecisionId>,
    /// The review that it waits for.
    pub review: Option<ReviewId>,
    /// The number of the issuer named in the token.
    pub issuer: i64,
    /// The number of the key that signed.
    pub signing_key: i64,
    /// r and s, 32 bytes each.
    pub signature: [u8; 64],
}

/// A review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewRecord {
    /// The review's id.
    pub id: ReviewId,
    /// The decision that waits for it.
    pub decision: DecisionId,
    /// Its stored status; see [`ReviewStatus::at`].
    pub status: ReviewStatus,
    /// The mandate's principal.
    pub waits_for: Principal,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When it was resolved.
    pub resolved_at: Option<Timestamp>,
    /// The newest decision of its agent when a person resolved it.
    pub resolved_after: Option<i64>,
    /// The decision that its approval made.
    pub fresh: Option<DecisionId>,
    /// The reason of the person who denied it.
    pub reason: Option<String>,
    /// Who approved or denied it.
    pub resolved_by: Option<Actor>,
}

/// The metering of one agent in one currency and month.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsageRecord {
    /// The sum of the amounts allowed.
    pub spent: Total,
    /// How many requests of the agent reached the engine.
    pub requests: i64,
    /// Decisions by verdict, in the order of [`Verdict::ALL`].
    pub verdicts: [i64; 8],
    /// The sum and the number of requests as they were read from the database. None if there was no row.
    pub stored: Option<(Total, i64)>,
}

impl UsageRecord {
    /// Counts a decision.
    pub fn count(&mut self, verdict: Verdict, request: &Request) {
        self.add(verdict, request.amount);
    }

    /// Counts a decision with this verdict on this amount.
    pub fn add(&mut self, verdict: Verdict, amount: Amount) {
        for (place, counted) in Verdict::ALL.iter().zip(&mut self.verdicts) {
            *counted += i64::from(*place == verdict);
        }
        if verdict == Verdict::Allow {
            self.spent = self.spent.plus(amount);
        }
    }
}

/// The key of an agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentKey {
    /// The tenant.
    pub environment: i64,
    /// The agent.
    pub agent: AgentId,
}

/// The key of a row of the metering.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageKey {
    /// The agent.
    pub agent: AgentKey,
    /// The calendar month, UTC.
    pub month: Month,
    /// The currency.
    pub currency: Currency,
}

impl UsageKey {
    /// Where a request made at `now` is metered.
    #[must_use]
    pub fn of(environment: i64, request: &Request, now: Timestamp) -> Self {
        let agent = AgentKey { environment, agent: request.agent.clone() };
        Self { agent, month: now.month(), currency: request.currency.clone() }
    }
}

/// The part of an agent's row that decisions depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentState {
    /// The governing mandate.
    pub mandate: Option<std::sync::Arc<Mandate>>,
    /// The newest requests.
    pub recent: RecentRequests,
    /// The number of decisions, which is the sequence of the newest.
    pub sequence: i64,
    /// The newest decision.
    pub last: Option<DecisionId>,
}

/// An answer kept under an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRecord {
    /// SHA-256 of the request that was answered.
    pub fingerprint: [u8; 32],
    /// The status of the answer.
    pub status: u16,
    /// The body of the answer, encrypted if `sealed`.
    pub body: Vec<u8>,
    /// Whether the body is encrypted under the caller's API key.
    pub sealed: bool,
    /// When.
    pub created_at: Timestamp,
}

/// An idempotency key and its scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeptKey {
    /// The tenant.
    pub environment: i64,
    /// The number of the API key that was presented.
    pub api_key: i64,
    /// The text of the header.
    pub name: String,
}

/// An event.
#[derive(Debug, Clone)]
pub struct EventRecord {
    /// The tenant.
    pub environment: i64,
    /// The event's id, the same in every attempt to deliver it.
    pub id: EventId,
    /// Its type.
    pub kind: EventKind,
    /// When.
    pub at: Timestamp,
    /// The object that the event is about, as the API showed it then.
    pub data: Box<RawValue>,
}

/// A webhook: where an organization receives events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRecord {
    /// The webhook's id.
    pub id: WebhookId,
    /// Where events are sent.
    pub url: String,
    /// The types of these events.
    pub events: std::collections::BTreeSet<EventKind>,
    /// When it was registered.
    pub created_at: Timestamp,
}

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryState {
    /// There will be another attempt.
    Pending,
    /// The receiver has acknowledged.
    Delivered,
    /// The time for attempts is over.
    Failed,
    /// The webhook was deleted before.
    Ended,
}

impl DeliveryState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Delivered, Self::Failed, Self::Ended];

    /// The word, as bodies carry it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Ended => "ended",
        }
    }

    /// Reads the word.
    ///
    /// # Errors
    /// The text is none of the four.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::ALL
            .into_iter()
            .find(|s| s.as_str() == text)
            .ok_or_else(|| Invalid::new("status", "must be pending, delivered, failed or ended"))
    }
}

impl Serialize for DeliveryState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// An event on its way to a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRecord {
    /// The webhook.
    pub webhook: WebhookId,
    /// Its state.
    pub state: DeliveryState,
    /// When the next attempt is due, while it is pending.
    pub due_at: Timestamp,
    /// What was tried, in order.
    pub attempts: Vec<AttemptRecord>,
}

/// One POST to a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    /// When.
    pub at: Timestamp,
    /// The HTTP status that was answered.
    pub status: Option<i64>,
    /// Why there was no answer.
    pub error: Option<String>,
}

/// A lease: for a while one server alone delivers to this webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The tenant.
    pub environment: i64,
    /// The kind of its environment.
    pub kind: EnvironmentKind,
    /// The webhook.
    pub webhook: WebhookId,
    /// Where its events are sent. For notices, the host alone.
    pub url: String,
    /// How its events are told to people, if it is for notices.
    pub notice: Option<NoticeRecord>,
    /// Until when.
    pub until: Timestamp,
}

/// The form of the messages that a chat takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoticeFormat {
    /// Slack's incoming webhooks: an object with `text`.
    Slack,
    /// Workflows of Microsoft Teams: a message with an Adaptive Card.
    Teams,
}

impl NoticeFormat {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Slack => "slack",
            Self::Teams => "teams",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Slack, Self::Teams].into_iter().find(|format| format.as_str() == text)
    }
}

/// The webhook of an environment that says in a chat that a review waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeRecord {
    /// The name of the organization.
    pub organization: String,
    /// The kind of its environment.
    pub kind: EnvironmentKind,
    /// The webhook.
    pub webhook: WebhookId,
    /// Its URL, encrypted.
    pub sealed: Vec<u8>,
    /// The form of its messages.
    pub format: NoticeFormat,
    /// Whether messages name agent, amount and recipient.
    pub has_details: bool,
}

/// A delivery whose next attempt is due.
#[derive(Debug, Clone)]
pub struct DueRecord {
    /// What is to be delivered.
    pub event: EventRecord,
    /// How many attempts were made.
    pub attempts: i64,
    /// When its time began: with the event, or with the operator's retry.
    pub since: Timestamp,
}

/// The result of a due delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriedRecord {
    /// The tenant.
    pub environment: i64,
    /// The event.
    pub event: EventId,
    /// The webhook.
    pub webhook: WebhookId,
    /// The attempt. None if the time for attempts was over before.
    pub attempt: Option<AttemptRecord>,
    /// Its state now.
    pub state: DeliveryState,
    /// When the next attempt is due if it is pending, else when it ended.
    pub due_at: Timestamp,
    /// The new beginning of its time, if the old one lay in the future because a clock was ahead.
    pub begins_anew: Option<Timestamp>,
}
