//! Notices: messages in a chat, that a review waits. They are deliveries of events to a webhook that the API does not
//! show, so that they are kept, repeated and guarded like all others.

use std::collections::BTreeSet;

use mandate_core::{AgentName, EnvironmentKind, EventKind, Timestamp, WebhookId};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use url::Url;
use zeroize::Zeroizing;

use super::audit::{self, AuditEntry, Operator};
use super::organizations;
use super::signing::rotation::Maker;
use crate::error::{Code, Fault, Refusal};
use crate::model::call::ScriptError;
use crate::model::master_key::MasterKey;
use crate::model::records::{DeliveryState, EventRecord, NoticeFormat, NoticeRecord, WebhookRecord};
use crate::store::sql;
use crate::store::tx::Tx;

/// The settings of an environment's notices.
pub struct Settings {
    /// Where messages are sent. It holds a secret.
    pub url: Url,
    /// Their form.
    pub format: NoticeFormat,
    /// Whether they name agent, amount and recipient.
    pub has_details: bool,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url, format, has_details } = self;
        let host = url.host_str();
        f.debug_struct("Settings")
            .field("host", &host)
            .field("format", format)
            .field("details", has_details)
            .finish()
    }
}

/// The notices of an environment, as the operator sees them.
#[derive(Debug)]
pub struct Shown {
    /// What is stored.
    pub notice: NoticeRecord,
    /// Scheme and host of the URL.
    pub host: String,
    /// Messages that are still to be sent.
    pub pending: i64,
    /// Messages that failed for good.
    pub failed: i64,
}

/// Has an environment's notices sent to another place, or for the first time. What waits for the former place is not sent.
///
/// # Errors
/// There is no such organization.
pub fn set(
    tx: &mut Tx<'_>,
    (organization, kind): (&AgentName, EnvironmentKind),
    settings: &Settings,
    (maker, webhook): (Maker<'_>, WebhookId),
    by: &Operator,
) -> Result<(), ScriptError> {
    let environment = environment(tx, organization, kind)?;
    sql::environments::lock(tx, environment)?;
    if let Some(former) = sql::notices::find(tx, environment)? {
        delete(tx, environment, &former)?;
    }
    let Settings { url, format, has_details } = settings;
    let url_shown = masked(url);
    let events = BTreeSet::from([EventKind::DecisionReviewPending]);
    let row = WebhookRecord { id: webhook, url: url_shown.clone(), events, created_at: by.at };
    sql::webhooks::insert(tx, environment, &row)?;
    let notice = NoticeRecord {
        organization: organization.to_string(),
        kind,
        webhook,
        sealed: maker.seal(url.as_str().as_bytes(), &name(webhook))?,
        format: *format,
        has_details: *has_details,
    };
    sql::notices::insert(tx, environment, &notice)?;
    let details = json!({ "url": url_shown, "format": format.as_str(), "details": has_details });
    record(tx, by, "notice.set", &notice, details)
}

/// Ends an environment's notices.
///
/// # Errors
/// There is no such organization, or it has none there.
pub fn remove(
    tx: &mut Tx<'_>,
    (organization, kind): (&AgentName, EnvironmentKind),
    by: &Operator,
) -> Result<(), ScriptError> {
    let environment = environment(tx, organization, kind)?;
    sql::environments::lock(tx, environment)?;
    let absent = || {
        let message = format!("{organization} has no notices in {kind}; `notice set` sets them");
        Refusal::new(Code::NotFound, message)
    };
    let notice = sql::notices::find(tx, environment)?.ok_or_else(absent)?;
    delete(tx, environment, &notice)?;
    record(tx, by, "notice.remove", &notice, json!({}))
}

/// The notices of an organization.
///
/// # Errors
/// There is no such organization.
pub fn show(tx: &mut Tx<'_>, organization: &AgentName) -> Result<Vec<Shown>, ScriptError> {
    let mut shown = Vec::new();
    for environment in organizations::list(tx, Some(organization))? {
        let environment = environment.environment;
        let Some(notice) = sql::notices::find(tx, environment)? else { continue };
        let counts = sql::deliveries::count(tx, environment, notice.webhook)?;
        let of = |state| counts.iter().filter(|(at, _)| *at == state).map(|(_, count)| count).sum();
        let (pending, failed) = (of(DeliveryState::Pending), of(DeliveryState::Failed));
        let host = sql::webhooks::url(tx, environment, notice.webhook)?;
        shown.push(Shown { notice, host, pending, failed });
    }
    Ok(shown)
}

/// Encrypts the URLs of all notices again, under `new`.
///
/// # Errors
/// One is not encrypted under `old`.
pub fn reseal(tx: &mut Tx<'_>, old: &MasterKey, new: Maker<'_>) -> Result<(), Fault> {
    for environment in sql::environments::all(tx)? {
        let environment = environment.environment;
        let Some(notice) = sql::notices::find(tx, environment)? else { continue };
        let sealed = new.seal(open(&notice, old)?.as_bytes(), &name(notice.webhook))?;
        sql::notices::seal(tx, environment, sealed)?;
    }
    Ok(())
}

/// Where messages are sent.
///
/// # Errors
/// The URL does not open under this master key.
pub fn open(notice: &NoticeRecord, master: &MasterKey) -> Result<Zeroizing<String>, Fault> {
    let what = format!("the URL of the notices of {}", notice.organization);
    let url = master.open_any(&notice.sealed, &name(notice.webhook), &what)?;
    let url = std::str::from_utf8(&url).map_err(|_| Fault::corrupt(format!("{what} is not text")))?;
    Ok(Zeroizing::new(url.to_owned()))
}

/// The name under which the URL is encrypted.
fn name(webhook: WebhookId) -> String {
    format!("notice {webhook}")
}

/// A URL without what may be secret in it.
fn masked(url: &Url) -> String {
    format!("{}/…", url.origin().ascii_serialization())
}

fn environment(tx: &mut Tx<'_>, organization: &AgentName, kind: EnvironmentKind) -> Result<i64, ScriptError> {
    let number = sql::environments::find_organization(tx, organization.as_str())?;
    Ok(sql::environments::find(tx, number.ok_or_else(|| organizations::unknown(organization))?, kind)?)
}

fn delete(tx: &mut Tx<'_>, environment: i64, notice: &NoticeRecord) -> Result<(), Fault> {
    sql::webhooks::hold(tx, environment, notice.webhook)?;
    sql::notices::delete(tx, environment)?;
    sql::webhooks::delete(tx, environment, notice.webhook)
}

fn record(
    tx: &mut Tx<'_>,
    by: &Operator,
    action: &'static str,
    notice: &NoticeRecord,
    details: Value,
) -> Result<(), ScriptError> {
    let entry = AuditEntry {
        action,
        organization: Some(&notice.organization),
        environment: Some(notice.kind),
        subject: &notice.webhook.to_string(),
        details,
    };
    Ok(audit::write(tx, by, &entry)?)
}

/// What a message needs of a decision that waits for a review.
#[derive(Deserialize)]
struct Waiting {
    request: Asked,
    review: WaitingReview,
}

#[derive(Deserialize)]
struct Asked {
    agent: String,
    amount: Box<RawValue>,
    currency: String,
    recipient: String,
    category: String,
}

#[derive(Deserialize)]
struct WaitingReview {
    id: String,
    waits_for: String,
    expires_at: String,
}

/// The body of a message: that a review waits, its id, the time left at `now`, and a link into the console, if there is one.
/// Names, amount and category only where the operator has turned them on. Nothing in it answers a review.
///
/// # Errors
/// The event is not that of a decision that waits.
pub fn message(
    notice: &NoticeRecord,
    event: &EventRecord,
    console: Option<&str>,
    now: Timestamp,
) -> Result<String, Fault> {
    let waiting: Waiting = serde_json::from_str(event.data.get())
        .map_err(|e| Fault::corrupt(format!("database: the event {} is no waiting review: {e}", event.id)))?;
    let text = text(notice, &waiting, now);
    let link = console.map(|console| {
        format!("{console}/{}/{}/reviews/{}", notice.kind, notice.organization, waiting.review.id)
    });
    let body = match notice.format {
        NoticeFormat::Slack => slack(&text, link.as_deref()),
        NoticeFormat::Teams => teams(&text, link.as_deref()),
    };
    Ok(body.to_string())
}

fn text(notice: &NoticeRecord, waiting: &Waiting, now: Timestamp) -> String {
    let Waiting { request, review } = waiting;
    let live = match notice.kind {
        EnvironmentKind::Production => "LIVE",
        EnvironmentKind::Sandbox => "sandbox",
    };
    let left = Timestamp::parse(&review.expires_at).ok().map(|end| left(end.millis() - now.millis()));
    let left = left.map(|left| format!(" {left}")).unwrap_or_default();
    let details = notice.has_details.then(|| {
        let Asked { agent, amount, currency, recipient, category } = request;
        let (who, of) = (&review.waits_for, &notice.organization);
        format!(" For {who} of {of}: {amount} {currency} from {agent} to {recipient}, {category}.")
    });
    format!("A review waits: {} ({live}).{left}{}", review.id, details.unwrap_or_default())
}

/// How long a review still waits.
fn left(millis: i64) -> String {
    const MINUTE: i64 = 60_000;
    match millis.div_euclid(MINUTE) {
        ..0 => "Its time is over.".to_owned(),
        0 => "Less than a minute is left.".to_owned(),
        minutes @ 1..120 => format!("{minutes} min left."),
        minutes => format!("{} h left.", minutes / 60),
    }
}

/// For Slack. It reads `&`, `<` and `>` as its own.
fn slack(text: &str, link: Option<&str>) -> Value {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    json!({ "text": link.map_or(text.clone(), |link| format!("{text}\n<{link}|Open the review>")) })
}

/// For a workflow of Teams. A run of text is shown as it is; a block of text would be read as Markdown.
fn teams(text: &str, link: Option<&str>) -> Value {
    let inlines = json!([{ "type": "TextRun", "text": text }]);
    let open = link.map(|link| json!({ "type": "Action.OpenUrl", "title": "Open the review", "url": link }));
    let card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{ "type": "RichTextBlock", "inlines": inlines }],
        "actions": open.into_iter().collect::<Vec<_>>(),
    });
    let attachment = json!({ "contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": null, "content": card });
    json!({ "type": "message", "attachments": [attachment] })
}

#[cfg(test)]
mod tests;
