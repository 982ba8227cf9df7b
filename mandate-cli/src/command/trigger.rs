//! `mandate trigger`: causes an event in a sandbox, by making the change that it reports.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::thread;
use std::time::{Duration, Instant};

use mandate_core::api_key::{ApiKey, KeyClass};
use mandate_core::{EscrowState, EventKind, WebhookId};
use serde::Serialize;
use serde_json::{Value, json};

use super::unknown;
use crate::client::Client;
use crate::credential::Access;
use crate::directory::hex;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::named::{Given, completed, given, to_change};
use crate::output::Output;
use crate::resource::Resource;
use crate::service::Service;
use crate::table::{text, whole};
use crate::value::event_kind;

/// The limit of the mandate. Its review threshold is lower.
const LIMIT: u32 = 100;
const REVIEW_ABOVE: u32 = 50;
/// A payment that is allowed, and one that needs a review.
const SMALL: u32 = 10;
const LARGE: u32 = 60;
const SECONDS_A_DAY: i64 = 24 * 60 * 60;
/// How long the mandate lasts; one that expires soon; and the refund time of an escrow. In days.
const DAYS: i64 = 365;
const EXPIRING_DAYS: i64 = 3;
/// How long the event may take to appear, and the pause between two requests.
const TIMEOUT: Duration = Duration::from_mins(1);
const LOOK_PAUSE: Duration = Duration::from_millis(250);
/// How many of the newest events are searched.
const NEWEST: u32 = 100;

const TRIGGERED: Resource = Resource {
    path: "",
    class: None,
    id: None,
    columns: &[],
    lines: &[
        text("type", "type"),
        whole("event", "event"),
        whole("agent", "agent"),
        whole("mandate", "mandate"),
        whole("decision", "decision"),
        whole("review", "review"),
        whole("escrow", "escrow"),
        whole("webhook", "webhook"),
    ],
    tables: &[],
};

/// Cause an event in a sandbox by making real changes
///
/// Registers an agent named trigger- and random letters, creates its mandate, and makes the change that the event reports:
/// it requests a payment that needs a review, revokes the mandate, or creates an escrow. When the event exists, it prints
/// the ids of everything that it created. The agents remain. A live key is refused. escrow.settlement_refused cannot be
/// caused: in a sandbox escrows settle without a provider.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate trigger decision.review_pending
  mandate trigger escrow.released --json
  mandate trigger ping --webhook whk_01hf7yat000000000000000007")]
pub(crate) struct Trigger {
    /// The event's type
    #[arg(value_name = "EVENT", value_parser = event_kind())]
    event: EventKind,
    /// The webhook to ping [default: the newest]
    #[arg(long, value_name = "ID", value_parser = given::<WebhookId>, add = completed::<WebhookId>())]
    webhook: Option<Given<WebhookId>>,
    #[command(flatten)]
    service: Service,
}

/// The members of what was created.
pub(super) const MEMBERS: [&str; 8] =
    ["type", "event", "agent", "mandate", "decision", "review", "escrow", "webhook"];

/// What was created.
#[derive(Debug, Default, Serialize)]
struct Made {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<EventKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mandate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    review: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    escrow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<String>,
}

/// The organization's client in the sandbox.
struct SandboxClient {
    client: Client,
    made: Made,
}

impl Trigger {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let access = Access::find(&self.service, global, Some(KeyClass::Organization))?;
        if access.is_live() {
            return Err(Failure::new(
                Exit::Forbidden,
                "this is a live key: the changes that trigger makes would be real",
            )
            .note("sent", "nothing")
            .next("use a sandbox's key; mandate profile list shows yours"));
        }
        let client = Client::with(access, None, true)?;
        client.say_what_is_hidden();
        let mut sandbox = SandboxClient { client, made: Made { kind: Some(self.event), ..Made::default() } };
        let event = self.make(&mut sandbox).map_err(|failure| sandbox.made.added_to(failure))?;
        sandbox.made.event = Some(event);
        let body = serde_json::to_string(&sandbox.made).map_err(|e| unknown(&e.to_string()))?;
        TRIGGERED.show(&body, output)
    }

    /// Makes the change that the event reports. Returns the event's id.
    fn make(&self, sandbox: &mut SandboxClient) -> Result<String, Failure> {
        match self.event {
            EventKind::Ping => sandbox.ping(self.webhook.as_ref()),
            EventKind::MandateRevoked => {
                let mandate = sandbox.mandate(DAYS)?.0;
                sandbox.act(&format!("/mandates/{mandate}/revoke"), None)?;
                sandbox.seen("id", &mandate)
            }
            EventKind::MandateExpiring => {
                let mandate = sandbox.mandate(EXPIRING_DAYS)?.0;
                sandbox.seen("id", &mandate)
            }
            EventKind::DecisionReviewPending | EventKind::DecisionResolved => sandbox.review(self.event),
            EventKind::EscrowFunded => sandbox.escrow(&[]),
            EventKind::EscrowDelivered => sandbox.escrow(&[EscrowState::Delivered]),
            EventKind::EscrowReleased => sandbox.escrow(&[EscrowState::Delivered, EscrowState::Released]),
            EventKind::EscrowRefunded => sandbox.escrow(&[EscrowState::Refunded]),
            EventKind::EscrowDisputed => sandbox.escrow(&[EscrowState::Disputed]),
            EventKind::EscrowSettlementRefused => Err(Failure::new(
                Exit::Usage,
                "no settlement is refused in a sandbox: its escrows settle without a provider",
            )
            .note("sent", "nothing")),
        }
    }
}

impl Made {
    /// Adds to a failure what was created before it, and remains.
    fn added_to(&self, failure: Failure) -> Failure {
        let Self { kind: _, event: _, agent, mandate, decision, review, escrow, webhook: _ } = self;
        [
            ("agent", agent),
            ("mandate", mandate),
            ("decision", decision),
            ("review", review),
            ("escrow", escrow),
        ]
        .into_iter()
        .filter_map(|(label, id)| Some((label, id.as_ref()?)))
        .fold(failure, |failure, (label, id)| failure.note(label, id))
    }
}

impl SandboxClient {
    /// One change, with its own idempotency key.
    fn act(&self, path: &str, body: Option<&Value>) -> Result<String, Failure> {
        again(self.client.afresh()?.post(path, body.map(Value::to_string).as_deref()))
    }

    /// Creates an agent with a mandate for `days` days. Returns the mandate and the agent's key.
    fn mandate(&mut self, days: i64) -> Result<(String, ApiKey), Failure> {
        let name = format!("trigger-{}", hex(&environment::random::<4>()?));
        let created = self.act("/agents", Some(&json!({ "name": name })))?;
        let agent = member(&created, "id")?;
        let key = ApiKey::parse(&member(&created, "agent_key")?).map_err(|e| unknown(&e.to_string()))?;
        let mandate = json!({
            "principal": "role:trigger",
            "agent": agent,
            "limits": {"per_transaction": LIMIT, "per_month": LIMIT, "currency": "USD"},
            "categories": ["trigger"],
            "review_above": REVIEW_ABOVE,
            "expires": in_days(days).day().to_string(),
        });
        self.made.agent = Some(agent);
        let mandate = member(&self.act("/mandates", Some(&mandate))?, "id")?;
        self.made.mandate = Some(mandate.clone());
        Ok((mandate, key))
    }

    /// Lets a new agent request `amount`. Returns the answer.
    fn authorize(&mut self, amount: u32) -> Result<String, Failure> {
        let (_, key) = self.mandate(DAYS)?;
        let access = Access { key, profile: None, hidden: None, ..self.client.access().clone() };
        let request = json!({"amount": amount, "currency": "USD", "recipient": "vendor:trigger", "category": "trigger"});
        let asked = Client::with(access, None, true)?.post("/authorizations", Some(&request.to_string()));
        let answer = again(asked)?;
        self.made.decision = Some(member(&answer, "decision")?);
        Ok(answer)
    }

    /// A payment that needs a review, which is approved if the event requires it.
    fn review(&mut self, kind: EventKind) -> Result<String, Failure> {
        let answer = self.authorize(LARGE)?;
        let (decision, review) = (member(&answer, "decision")?, member(&answer, "review.id")?);
        self.made.review = Some(review.clone());
        if kind == EventKind::DecisionResolved {
            self.act(&format!("/reviews/{review}/approve"), None)?;
        }
        self.seen("jti", &decision)
    }

    /// An escrow that goes through these states.
    fn escrow(&mut self, states: &[EscrowState]) -> Result<String, Failure> {
        let decision = member(&self.authorize(SMALL)?, "decision")?;
        let opened = self.act(
            "/escrows",
            Some(&json!({"decision": decision, "condition": "triggered", "refund_after": in_days(DAYS).to_string()})),
        )?;
        let escrow = member(&opened, "escrow")?;
        self.made.escrow = Some(escrow.clone());
        for to in states {
            self.act(&format!("/escrows/{escrow}/transitions"), Some(&json!({"to": to.to_string()})))?;
        }
        self.seen("escrow", &escrow)
    }

    fn ping(&mut self, webhook: Option<&Given<WebhookId>>) -> Result<String, Failure> {
        let webhook = if webhook.is_some() {
            to_change::<WebhookId>(webhook, &self.client)?.to_string()
        } else {
            let newest = self.client.get("/webhooks", &[("limit", "1".to_owned())])?;
            let newest = fields::items(&newest, "data").and_then(|items| items.first().copied());
            newest.and_then(|webhook| fields::text(webhook, "webhook")).ok_or_else(|| {
                Failure::new(Exit::NotFound, "there is no webhook to ping")
                    .next("mandate listen --register, or mandate webhook create")
            })?
        };
        let event = member(&self.act(&format!("/webhooks/{webhook}/ping"), None)?, "event")?;
        self.made.webhook = Some(webhook);
        Ok(event)
    }

    /// Waits for the event about the object whose `name` is `id`.
    fn seen(&self, name: &str, id: &str) -> Result<String, Failure> {
        let kind = self.made.kind.map(|kind| kind.to_string()).unwrap_or_default();
        let query = [("type", kind.clone()), ("limit", NEWEST.to_string())];
        let deadline = Instant::now().checked_add(TIMEOUT);
        loop {
            let events = self.client.get("/events", &query)?;
            let about = |event: &&str| fields::text(event, &format!("data.{name}")).as_deref() == Some(id);
            if let Some(event) = fields::items(&events, "data").unwrap_or_default().into_iter().find(about) {
                return member(event, "event");
            }
            if deadline.is_none_or(|deadline| Instant::now() >= deadline) {
                let what = format!("{id} has changed, and its {kind} has not appeared within a minute");
                return Err(Failure::new(Exit::ServerError, what).next("mandate event list"));
            }
            thread::sleep(LOOK_PAUSE);
        }
    }
}

/// Adds how to go on after a change that failed.
fn again(answer: Result<String, Failure>) -> Result<String, Failure> {
    answer.map_err(|failure| failure.only_next("run the command again; what it has made so far may stay"))
}

/// The text of a member that an answer must have.
fn member(answer: &str, path: &str) -> Result<String, Failure> {
    fields::text(answer, path).ok_or_else(|| unknown(&format!("{path} is required")))
}

fn in_days(days: i64) -> mandate_core::Timestamp {
    environment::now().plus_seconds(days.saturating_mul(SECONDS_A_DAY))
}
