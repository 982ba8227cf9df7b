//! What a person needs to know before an answer: the request, its month, its mandate, and what its agent paid lately.

use mandate_core::{Amount, MandateStatus, Timestamp, Total};

use super::worker::LATELY;
use crate::fields;
use crate::table::{Field, NO_LIMIT, NONE, recipient as recipient_of, seconds, text};
use crate::when::{relative, span};

/// The columns of a label.
pub(super) const LABEL_WIDTH: usize = 11;
const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// The rows about the request.
const REQUEST: [Field; 4] = [
    text("amount", "request.amount request.currency"),
    text("recipient", "request.recipient"),
    text("category", "request.category"),
    text("agent", "request.agent"),
];
/// The rows about the mandate.
const MANDATE: [Field; 8] = [
    text("limit", "limits.per_transaction limits.currency"),
    text("per month", "limits.per_month limits.currency").or(NO_LIMIT),
    text("reviewed >", "review_above limits.currency").or(NONE),
    text("for", "categories"),
    text("expires", "expires"),
    text("principal", "principal"),
    text("status", "status"),
    text("mandate", "id"),
];
/// What is said of a mandate that is not the one of the request.
const CHANGED: &str = "since the request; an approval decides under this mandate";
/// What is shown of a payment.
const PAYMENT: [Field; 3] = [
    text("", "request.amount request.currency"),
    recipient_of("", "request.recipient"),
    text("", "request.category"),
];

/// The lines about a request. `month` is the mandate that governs its agent now, and the agent's month, once both were read.
pub(super) fn request(decision: &str, month: Option<(&str, &str)>, now: Timestamp) -> Vec<String> {
    let mut lines = labelled(&REQUEST, decision);
    let mut line = |label: &str, value: Option<String>| {
        lines.extend(value.map(|value| format!("{label:<LABEL_WIDTH$}{value}")));
    };
    line("left", left(decision, now).map(time_left));
    line("month", month.and_then(|(mandate, usage)| month_after(decision, mandate, usage)));
    let asked = seconds("", "iat").value(decision);
    line("asked", asked.and_then(|at| Timestamp::parse(&at).ok()).map(|at| relative(at, now)));
    line("review", text("", "review.id").value(decision));
    lines
}

/// The lines about the mandate that governs now, the first of which says so if the request was made under another one.
pub(super) fn mandate(mandate: &str, decision: &str) -> Vec<String> {
    let is_other = fields::text(mandate, "id") != fields::text(decision, "mandate");
    let changed = is_other.then(|| format!("{:<LABEL_WIDTH$}{CHANGED}", "changed"));
    changed.into_iter().chain(labelled(&MANDATE, mandate)).collect()
}

fn labelled(fields: &[Field], json: &str) -> Vec<String> {
    let line = |field: &Field| Some(format!("{:<LABEL_WIDTH$}{}", field.label, field.value(json)?));
    fields.iter().filter_map(line).collect()
}

/// The seconds that are left to answer a request.
pub(super) fn left(decision: &str, now: Timestamp) -> Option<i64> {
    let expiry = Timestamp::parse(&fields::text(decision, "review.expires_at")?).ok()?;
    Some(expiry.millis_since(now).max(0) / 1_000)
}

fn time_left(seconds: i64) -> String {
    match seconds {
        HOUR.. => format!("{} h {} min", seconds / HOUR, seconds % HOUR / MINUTE),
        MINUTE.. => format!("{} min {} s", seconds / MINUTE, seconds % MINUTE),
        _ => span(seconds),
    }
}

/// What is left of the month after the payment: "540.50 left of 2,000 USD after this". None without a limit in its
/// currency, or if the mandate is not active.
fn month_after(decision: &str, mandate: &str, usage: &str) -> Option<String> {
    let currency = fields::text(decision, "request.currency")?;
    let is = |path: &str, value: &str| fields::text(mandate, path).as_deref() == Some(value);
    if !is("status", MandateStatus::Active.as_str()) || !is("limits.currency", &currency) {
        return None;
    }
    let limit = Amount::parse(&fields::text(mandate, "limits.per_month")?).ok()?;
    let rows = fields::items(usage, "data")?;
    let row = rows.into_iter().find(|row| fields::text(row, "currency").as_ref() == Some(&currency));
    // In a new month nothing is spent so far.
    let spent = match row {
        Some(row) => Total::parse(&fields::text(row, "spent")?).ok()?,
        None => Total::ZERO,
    };
    let amount = Amount::parse(&fields::text(decision, "request.amount")?).ok()?;
    let (after, limit_text) = (spent.plus(amount), grouped(&limit.to_string()));
    Some(if after.exceeds(limit) {
        let left = grouped(&spent.remaining(limit).to_string());
        format!("too little is left: {left} of {limit_text} {currency}")
    } else {
        let left = grouped(&after.remaining(limit).to_string());
        format!("{left} left of {limit_text} {currency} after this")
    })
}

/// An amount for eyes: thousands apart, and no single digit after the point.
fn grouped(amount: &str) -> String {
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    let length = whole.chars().count();
    let mut text = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && length.saturating_sub(at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    match fraction.len() {
        0 => text,
        1 => format!("{text}.{fraction}0"),
        _ => format!("{text}.{fraction}"),
    }
}

/// What an agent paid among its last decisions: those to the recipient of `decision` first. The title, and the lines.
pub(super) fn paid(decision: &str, paid: &[String], now: Timestamp) -> (String, Vec<String>) {
    let recipient = |decision: &str| fields::text(decision, "request.recipient");
    let (to_it, others): (Vec<&String>, Vec<&String>) =
        paid.iter().partition(|payment| recipient(payment) == recipient(decision));
    let name = text("", "request.recipient").value(decision).unwrap_or_default();
    let title = format!("Paid among its last {LATELY} decisions: {}, {} to {name}", paid.len(), to_it.len());
    let line = |payment: &String| {
        let [amount, recipient, category] = PAYMENT.map(|field| field.name(payment).unwrap_or_default());
        let at = fields::text(payment, "iat").and_then(|at| at.parse().ok()).map(Timestamp::from_seconds);
        let when = at.map(|at| relative(at, now)).unwrap_or_default();
        format!("{amount:>14}  {when:<10}  {recipient}  {category}")
    };
    let none = to_it.is_empty().then(|| format!("nothing to {name}"));
    (title, none.into_iter().chain(to_it.into_iter().chain(others).map(line)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECISION: &str = r#"{"iat":1000,"mandate":"mnd_1","request":{"amount":300,"currency":"USD","agent":"agt_a","recipient":"v:a",
        "category":"c"},"review":{"id":"rev_1","expires_at":"1970-01-01T02:00:00.000Z"}}"#;

    fn governing(currency: &str, limit: &str) -> String {
        format!(
            r#"{{"id":"mnd_2","status":"active","limits":{{"per_transaction":500,"currency":"{currency}"{limit}}}}}"#
        )
    }

    fn month(spent: &str, limit: &str) -> Option<String> {
        // The month's own limit is not looked at.
        let usage = format!(
            r#"{{"data":[{{"currency":"EUR"}},{{"currency":"USD","spent":{spent},"per_month":1}}]}}"#
        );
        month_after(DECISION, &governing("USD", limit), &usage)
    }

    #[test]
    fn the_month_is_told_as_it_is_after_the_payment() {
        let limit = r#","per_month":2000"#;
        assert_eq!(month("1159.5", limit).unwrap(), "540.50 left of 2,000 USD after this");
        assert_eq!(month("1700", limit).unwrap(), "0 left of 2,000 USD after this");
        assert_eq!(month("1700.01", limit).unwrap(), "too little is left: 299.99 of 2,000 USD");
        assert_eq!(month("1700", ""), None);
        let after = |mandate: &str| month_after(DECISION, mandate, r#"{"data":[]}"#);
        assert_eq!(after(&governing("USD", limit)).unwrap(), "1,700 left of 2,000 USD after this");
        assert_eq!(after(&governing("EUR", limit)), None);
        assert_eq!(after(&governing("USD", limit).replace("active", "revoked")), None);
        for (amount, text) in [("0", "0"), ("999", "999"), ("1000", "1,000"), ("1234567.5", "1,234,567.50")] {
            assert_eq!(grouped(amount), text);
        }
    }

    #[test]
    fn a_mandate_that_is_not_the_one_of_the_request_says_so() {
        let other = mandate(&governing("USD", ""), DECISION);
        assert_eq!(other[0], "changed    since the request; an approval decides under this mandate");
        assert_eq!(other[1], "limit      500 USD");
        let same = mandate(&governing("USD", "").replace("mnd_2", "mnd_1"), DECISION);
        assert_eq!(same[0], "limit      500 USD");
    }

    #[test]
    fn the_time_that_is_left_is_told() {
        let at = |seconds| Timestamp::from_seconds(seconds);
        let shown = |now| request(DECISION, None, at(now)).join("\n");
        assert!(shown(60).contains("left       1 h 59 min"), "{}", shown(60));
        assert!(shown(7_100).contains("left       1 min 40 s"), "{}", shown(7_100));
        assert!(shown(8_000).contains("left       0 s"), "{}", shown(8_000));
    }

    #[test]
    fn payments_to_the_same_recipient_come_first() {
        let payment = |amount: u32, to: &str| {
            format!(
                r#"{{"iat":940,"request":{{"amount":{amount},"currency":"USD","recipient":"{to}","category":"c"}}}}"#
            )
        };
        let now = Timestamp::from_seconds(1_000);
        let (title, lines) = paid(DECISION, &[payment(1, "v:b"), payment(2, "v:a"), payment(3, "v:a")], now);
        assert_eq!(title, "Paid among its last 200 decisions: 3, 2 to v:a");
        let order: Vec<&str> =
            lines.iter().map(|line| line.trim_start().split(' ').next().unwrap()).collect();
        assert_eq!(order, ["2", "3", "1"]);
        assert!(lines[0].contains("2 USD  1 min ago   v:a  c"), "{lines:?}");
        let (_, lines) = paid(DECISION, &[payment(1, "v:b")], now);
        assert_eq!(lines[0], "nothing to v:a");
    }
}
