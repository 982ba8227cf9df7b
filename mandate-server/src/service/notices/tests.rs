//! What messages say, and what they do not.

use mandate_core::EventId;

use super::*;

fn notice(format: NoticeFormat, has_details: bool) -> NoticeRecord {
    NoticeRecord {
        organization: "acme".to_owned(),
        kind: EnvironmentKind::Production,
        webhook: WebhookId::from_bytes([1; 16]),
        sealed: Vec::new(),
        format,
        has_details,
    }
}

fn event(agent: &str) -> EventRecord {
    let request = json!({
        "agent": agent, "amount": 40.25, "currency": "USD", "recipient": "vendor:x<y>&z", "category": "c"
    });
    let data = json!({
        "jti": "dec_1", "request": request,
        "review": {
            "id": "rev_1", "status": "pending", "waits_for": "user:cfo", "expires_at": "2026-01-02T00:00:00.000Z"
        }
    });
    EventRecord {
        environment: 1,
        id: EventId::from_bytes([2; 16]),
        kind: EventKind::DecisionReviewPending,
        at: Timestamp::parse("2026-01-01T00:00:00.000Z").unwrap(),
        data: RawValue::from_string(data.to_string()).unwrap(),
    }
}

fn told(format: NoticeFormat, has_details: bool, console: Option<&str>, now: &str) -> Value {
    let now = Timestamp::parse(now).unwrap();
    let message = message(&notice(format, has_details), &event("agt_a"), console, now).unwrap();
    serde_json::from_str(&message).unwrap()
}

#[test]
fn a_message_names_no_amount_unless_it_is_wanted() {
    let plain = told(NoticeFormat::Slack, false, None, "2026-01-01T12:00:00.000Z");
    assert_eq!(plain, json!({"text": "A review waits: rev_1 (LIVE). 12 h left."}));
    let whole = told(NoticeFormat::Slack, true, None, "2026-01-01T23:59:59.000Z");
    let text = "A review waits: rev_1 (LIVE). Less than a minute is left. For user:cfo of acme: 40.25 USD from agt_a to \
                vendor:x&lt;y&gt;&amp;z, c.";
    assert_eq!(whole, json!({ "text": text }));
}

#[test]
fn a_message_links_to_the_console_and_answers_nothing() {
    let console = Some("https://console.example");
    let slack = told(NoticeFormat::Slack, false, console, "2026-01-01T23:00:00.000Z");
    let text = "A review waits: rev_1 (LIVE). 60 min left.\n\
                <https://console.example/production/acme/reviews/rev_1|Open the review>";
    assert_eq!(slack, json!({ "text": text }));
    let teams = told(NoticeFormat::Teams, true, console, "2026-01-03T00:00:00.000Z");
    let card = &teams["attachments"][0]["content"];
    let run = "A review waits: rev_1 (LIVE). Its time is over. For user:cfo of acme: 40.25 USD from agt_a to vendor:x<y>&z, c.";
    assert_eq!(card["body"][0]["inlines"][0], json!({"type": "TextRun", "text": run}));
    let open = json!({"type": "Action.OpenUrl", "title": "Open the review", "url": "https://console.example/production/acme/reviews/rev_1"});
    assert_eq!(card["actions"], json!([open]));
    let without = told(NoticeFormat::Teams, false, None, "2026-01-01T00:00:00.000Z");
    assert_eq!(without["attachments"][0]["content"]["actions"], json!([]));
}

#[test]
fn another_event_is_no_message() {
    let other = EventRecord { data: RawValue::from_string("{}".to_owned()).unwrap(), ..event("agt_a") };
    let refused = message(&notice(NoticeFormat::Slack, false), &other, None, other.at);
    assert_eq!(refused.unwrap_err().kind(), "corrupt");
}

#[test]
fn settings_show_no_secret() {
    let url = Url::parse("https://hooks.example.com/services/s3cret?token=s3cret").unwrap();
    assert_eq!(masked(&url), "https://hooks.example.com/…");
    let settings = Settings { url, format: NoticeFormat::Slack, has_details: false };
    assert!(!format!("{settings:?}").contains("s3cret"));
}
