//! Rows and sentences that several pages show.

use form_urlencoded::Serializer;
use mandate_core::{Mandate, MandateStatus, ReviewStatus, Timestamp, Verdict};

use crate::http::pages::Time;
use crate::model::records::Mode;
use crate::service::console::decisions::Whole;

/// A decision as a row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) at: Time,
    pub(super) amount: String,
    pub(super) currency: String,
    pub(super) agent: String,
    pub(super) recipient: String,
    pub(super) category: String,
    pub(super) verdict: &'static str,
    pub(super) tone: &'static str,
    /// It was made in observe mode.
    pub(super) is_observed: bool,
    /// What a person answered, and who.
    pub(super) answer: Option<String>,
}

/// A mandate as a row.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) id: String,
    pub(super) agent: String,
    pub(super) at: Time,
    pub(super) status: &'static str,
    pub(super) tone: &'static str,
    pub(super) words: String,
    /// How it ended, if it did.
    pub(super) end: Option<String>,
}

impl Row {
    pub(super) fn of(whole: &Whole, now: Timestamp) -> Self {
        let (decision, request) = (&whole.decision, &whole.decision.request);
        let answer = whole.review.as_ref().map(|review| {
            let status = review.status.at(review.expires_at, now);
            match &review.resolved_by {
                Some(by) => format!("{status} by {by}"),
                None if status == ReviewStatus::Pending => format!("waits for {}", review.waits_for),
                None => status.to_string(),
            }
        });
        Self {
            id: decision.id.to_string(),
            at: decision.decided_at.into(),
            amount: request.amount.to_string(),
            currency: request.currency.to_string(),
            agent: request.agent.to_string(),
            recipient: request.recipient.to_string(),
            category: request.category.to_string(),
            verdict: decision.verdict.as_str(),
            tone: tone(decision.verdict),
            is_observed: decision.mode == Mode::Observe,
            answer,
        }
    }
}

impl Written {
    pub(super) fn of(mandate: &Mandate, now: Timestamp) -> Self {
        let status = mandate.status(now);
        let end = match (mandate.revoked_at, mandate.replaced_by) {
            (Some(at), _) => Some(format!("Revoked: {}", Time::from(at).shown)),
            (None, Some(by)) => Some(format!("Replaced by {by}")),
            (None, None) if status == MandateStatus::Expired => Some("Its last day is over".to_owned()),
            (None, None) => None,
        };
        Self {
            id: mandate.id.to_string(),
            agent: mandate.terms.agent.to_string(),
            at: mandate.created_at.into(),
            status: status.as_str(),
            tone: if status == MandateStatus::Active { "good" } else { "care" },
            words: words(mandate),
            end,
        }
    }
}

/// How a verdict looks.
pub(super) fn tone(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "good",
        Verdict::Review => "care",
        _ => "bad",
    }
}

/// A mandate as sentences.
pub(super) fn words(mandate: &Mandate) -> String {
    let terms = &mandate.terms;
    let (limits, currency) = (&terms.limits, &terms.limits.currency);
    let categories: Vec<_> = terms.categories.iter().map(ToString::to_string).collect();
    let month = limits.per_month.map(|limit| format!(" and {limit} {currency} in a calendar month"));
    let review = terms
        .review_above
        .map(|above| format!(" Above {above} {currency}, {} answers first.", terms.principal))
        .unwrap_or_default();
    format!(
        "{} may spend up to {} {currency} for a payment{}, on {}.{review} {} is accountable. The last day is {} (UTC).",
        terms.agent,
        limits.per_transaction,
        month.unwrap_or_default(),
        categories.join(", "),
        terms.principal,
        terms.expires,
    )
}

/// How long something still waits.
pub(super) fn left(end: Timestamp, now: Timestamp) -> String {
    const MINUTE: i64 = 60_000;
    match end.millis_since(now).div_euclid(MINUTE) {
        ..0 => "over".to_owned(),
        0 => "under 1 min".to_owned(),
        minutes @ 1..120 => format!("{minutes} min"),
        minutes => format!("{} h", minutes / 60),
    }
}

/// The address of a page with these parameters, without the empty ones.
pub(super) fn address(path: &str, parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let query = Serializer::new(String::new()).extend_pairs(given).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// The value of a parameter; empty where it is absent.
pub(super) fn parameter(query: &str, name: &str) -> String {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs.find(|(given, _)| given == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_core::json::Object;
    use mandate_core::{MandateId, Terms};

    #[test]
    fn a_mandate_is_read_as_sentences() {
        let terms =
            br#"{"principal": "role:head-of-it", "agent": "agt_buyer", "categories": ["software", "cloud"],
            "limits": {"per_transaction": 500, "per_month": 2000, "currency": "USD"}, "review_above": 200,
            "expires": "2026-12-31"}"#;
        let terms = Terms::read(Object::parse(terms).unwrap()).unwrap();
        let at = Timestamp::from_seconds(0);
        assert_eq!(
            words(&Mandate::new(MandateId::new(at, 1), terms, at)),
            "agt_buyer may spend up to 500 USD for a payment and 2000 USD in a calendar month, on software, cloud. Above 200 \
             USD, role:head-of-it answers first. role:head-of-it is accountable. The last day is 2026-12-31 (UTC)."
        );
    }

    #[test]
    fn what_is_left_has_one_unit() {
        let at = Timestamp::from_seconds(1_000_000);
        for (seconds, shown) in [
            (-1, "over"),
            (0, "under 1 min"),
            (60, "1 min"),
            (7_199, "119 min"),
            (7_200, "2 h"),
            (86_400, "24 h"),
        ] {
            assert_eq!(left(at.plus_seconds(seconds), at), shown);
        }
    }

    #[test]
    fn parameters_are_encoded() {
        assert_eq!(address("/x", &[("a", ""), ("b", "c&d")]), "/x?b=c%26d");
        assert_eq!((parameter("a=b%26c&d", "a"), parameter("a=b", "d")), ("b&c".to_owned(), String::new()));
    }
}
