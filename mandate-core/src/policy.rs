//! The policy engine: one pure and total function, to be read from top to bottom.

use std::fmt;

use crate::amount::{Amount, Total};
use crate::id::MandateId;
use crate::mandate::Mandate;
use crate::name::{AgentId, Category, Currency};
use crate::request::Request;
use crate::time::{Day, Timestamp};
use crate::usage::{Basis, VELOCITY_REQUESTS, VELOCITY_WINDOW_SECONDS};
use crate::verdict::{Denials, Verdict};

/// Which rules apply.
///
/// ```
/// use mandate_core::{Basis, Evaluation, Timestamp, Total, Verdict, evaluate};
/// # use mandate_core::{AgentId, Mandate, MandateId, Request, Terms, json::Object};
/// # let now = Timestamp::parse("2026-06-01T12:00:00Z")?;
/// # let terms = Terms::read(Object::parse(br#"{"principal": "role:head-of-it", "agent": "agt_buyer",
/// #     "limits": {"per_transaction": 500, "currency": "USD"}, "categories": ["cloud"], "review_above": 200,
/// #     "expires": "2026-12-31"}"#)?)?;
/// # let id = MandateId::new(now, 1);
/// # let mandate = Mandate::new(id, terms, now);
/// # let body = br#"{"amount": 300, "currency": "USD", "recipient": "vendor:acme", "category": "cloud"}"#;
/// # let request = Request::read(AgentId::parse("agt_buyer")?, Object::parse(body)?)?;
/// let basis = Basis { spent: Total::ZERO, recent_requests: 0 };
/// let decide = |evaluation| evaluate(Some(&mandate), &basis, &request, now, evaluation).verdict;
/// assert_eq!(decide(Evaluation::Request), Verdict::Review);
/// assert_eq!(decide(Evaluation::Approval), Verdict::Allow);
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Evaluation {
    /// A request of the agent: all rules apply.
    Request,
    /// A person has approved the request: velocity and review threshold are waived.
    Approval,
}

/// What the engine returns.
///
/// ```
/// use mandate_core::{Basis, Evaluation, Timestamp, Total, evaluate};
/// # use mandate_core::{AgentId, Request, json::Object};
/// # let body = br#"{"amount": 300, "currency": "USD", "recipient": "vendor:acme", "category": "cloud"}"#;
/// # let request = Request::read(AgentId::parse("agt_buyer")?, Object::parse(body)?)?;
/// # let now = Timestamp::from_seconds(0);
/// let basis = Basis { spent: Total::ZERO, recent_requests: 10 };
/// let outcome = evaluate(None, &basis, &request, now, Evaluation::Request);
/// assert_eq!(outcome.verdict.as_str(), "deny_no_mandate");
/// assert_eq!(outcome.denials.to_string(), "deny_no_mandate deny_velocity");
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// The verdict.
    pub verdict: Verdict,
    /// Every denial that held, the winning one first.
    pub denials: Denials,
    /// Why the winning denial held. Absent on `allow` and `review`.
    pub reason: Option<Reason<'a>>,
}

/// Why a request was denied. Its text names the value and the rule.
///
/// ```
/// use mandate_core::{AgentId, Reason};
/// let agent = AgentId::parse("agt_buyer")?;
/// assert_eq!(Reason::NoMandate { agent: &agent }.to_string(), "agent agt_buyer has no mandate");
/// assert_eq!(Reason::Velocity.to_string(), "more than 10 requests in 60 seconds");
/// # Ok::<(), mandate_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is what its variant's text names")]
pub enum Reason<'a> {
    /// `agent <agent> has no mandate`
    NoMandate { agent: &'a AgentId },
    /// `mandate <mandate> is revoked`
    Revoked { mandate: MandateId },
    /// `mandate <mandate> expired at the end of <day>`
    Expired { mandate: MandateId, last_day: Day },
    /// `currency <currency> is not the mandate's currency <limit>`
    OtherCurrency { currency: &'a Currency, limit: &'a Currency },
    /// `amount <amount> exceeds per_transaction limit <limit>`
    PerTransaction { amount: Amount, limit: Amount },
    /// `amount <amount> exceeds per_month limit <limit> (<spent> spent)`
    PerMonth { amount: Amount, limit: Amount, spent: Total },
    /// `category <category> is not among the mandate's categories`
    OtherCategory { category: &'a Category },
    /// `more than 10 requests in 60 seconds`
    Velocity,
}

/// Decides on one request.
///
/// `mandate` is the one that governs the agent, that is, the newest. `basis` is what the agent did before.
/// The rules are evaluated in order: the first that holds gives the verdict, and every denial that holds is
/// listed. The same inputs always give the same outcome.
///
/// ```
/// use mandate_core::{evaluate, AgentId, Basis, Evaluation, Mandate, MandateId, Request, Terms, Timestamp, Total, Verdict};
/// use mandate_core::json::Object;
/// # fn main() -> Result<(), mandate_core::Invalid> {
/// let now = Timestamp::parse("2026-06-01T12:00:00Z")?;
/// let terms = Terms::read(Object::parse(br#"{
///     "principal": "role:head-of-it", "agent": "agt_buyer", "categories": ["software"], "expires": "2026-12-31",
///     "limits": {"per_transaction": 500, "per_month": 1000, "currency": "USD"}, "review_above": 200
/// }"#)?)?;
/// let mandate = Mandate::new(MandateId::new(now, 1), terms, now);
/// let ask = |amount: &str| {
///     let body = format!(r#"{{"amount":{amount},"currency":"USD","recipient":"vendor:acme","category":"software"}}"#);
///     Request::read(AgentId::parse("agt_buyer")?, Object::parse(body.as_bytes())?)
/// };
/// let basis = Basis { spent: Total::parse("700")?, recent_requests: 0 };
///
/// assert_eq!(evaluate(Some(&mandate), &basis, &ask("40")?, now, Evaluation::Request).verdict, Verdict::Allow);
/// assert_eq!(evaluate(Some(&mandate), &basis, &ask("201")?, now, Evaluation::Request).verdict, Verdict::Review);
/// let request = ask("301")?;
/// let denied = evaluate(Some(&mandate), &basis, &request, now, Evaluation::Request);
/// assert_eq!(denied.verdict, Verdict::DenyLimit);
/// assert_eq!(denied.reason.unwrap().to_string(), "amount 301 exceeds per_month limit 1000 (700 spent)");
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn evaluate<'a>(
    mandate: Option<&'a Mandate>,
    basis: &Basis,
    request: &'a Request,
    now: Timestamp,
    evaluation: Evaluation,
) -> Outcome<'a> {
    let mut denials = Denials::default();
    let mut reason = None;
    let mut deny = |verdict, why| {
        denials.add(verdict);
        reason.get_or_insert(why);
    };

    match mandate {
        None => deny(Verdict::DenyNoMandate, Reason::NoMandate { agent: &request.agent }),
        Some(mandate) => {
            let terms = &mandate.terms;
            if mandate.revoked_at.is_some() {
                deny(Verdict::DenyRevoked, Reason::Revoked { mandate: mandate.id });
            }
            if !terms.expires.contains_or_follows(now) {
                deny(Verdict::DenyExpired, Reason::Expired { mandate: mandate.id, last_day: terms.expires });
            }
            if let Some(why) = over_limit(mandate, basis, request) {
                deny(Verdict::DenyLimit, why);
            }
            if !terms.categories.contains(&request.category) {
                deny(Verdict::DenyCategory, Reason::OtherCategory { category: &request.category });
            }
        }
    }
    if evaluation == Evaluation::Request && basis.recent_requests >= VELOCITY_REQUESTS {
        deny(Verdict::DenyVelocity, Reason::Velocity);
    }

    let verdict = match denials.first() {
        Some(denial) => denial,
        None if evaluation == Evaluation::Request && wants_review(mandate, request.amount) => Verdict::Review,
        None => Verdict::Allow,
    };
    Outcome { verdict, denials, reason }
}

/// The first limit that the request exceeds: currency, transaction, month.
fn over_limit<'a>(mandate: &'a Mandate, basis: &Basis, request: &'a Request) -> Option<Reason<'a>> {
    let limits = &mandate.terms.limits;
    let amount = request.amount;
    if request.currency != limits.currency {
        return Some(Reason::OtherCurrency { currency: &request.currency, limit: &limits.currency });
    }
    if amount > limits.per_transaction {
        return Some(Reason::PerTransaction { amount, limit: limits.per_transaction });
    }
    let limit = limits.per_month?;
    let over = basis.spent.plus(amount).exceeds(limit);
    over.then_some(Reason::PerMonth { amount, limit, spent: basis.spent })
}

fn wants_review(mandate: Option<&Mandate>, amount: Amount) -> bool {
    let threshold = mandate.and_then(|m| m.terms.review_above);
    threshold.is_some_and(|threshold| Total::from(amount) > threshold)
}

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMandate { agent } => write!(f, "agent {agent} has no mandate"),
            Self::Revoked { mandate } => write!(f, "mandate {mandate} is revoked"),
            Self::Expired { mandate, last_day } => {
                write!(f, "mandate {mandate} expired at the end of {last_day}")
            }
            Self::OtherCurrency { currency, limit } => {
                write!(f, "currency {currency} is not the mandate's currency {limit}")
            }
            Self::PerTransaction { amount, limit } => {
                write!(f, "amount {amount} exceeds per_transaction limit {limit}")
            }
            Self::PerMonth { amount, limit, spent } => {
                write!(f, "amount {amount} exceeds per_month limit {limit} ({spent} spent)")
            }
            Self::OtherCategory { category } => {
                write!(f, "category {category} is not among the mandate's categories")
            }
            Self::Velocity => {
                write!(f, "more than {VELOCITY_REQUESTS} requests in {VELOCITY_WINDOW_SECONDS} seconds")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Object;
    use crate::mandate::Terms;

    struct Case {
        mandate: Option<Mandate>,
        basis: Basis,
        request: Request,
        now: Timestamp,
    }

    /// A case in which everything is allowed. Tests break one rule at a time.
    fn allowed() -> Case {
        let now = Timestamp::parse("2026-06-15T12:00:00Z").unwrap();
        let terms =
            br#"{"principal":"role:cfo","agent":"agt_a","categories":["c","d"],"expires":"2026-06-15",
            "limits":{"per_transaction":500,"per_month":1000,"currency":"USD"},"review_above":200}"#;
        let terms = Terms::read(Object::parse(terms).unwrap()).unwrap();
        let body = br#"{"amount":40,"currency":"USD","recipient":"vendor:v","category":"c"}"#;
        Case {
            mandate: Some(Mandate::new(MandateId::from_bytes([0; 16]), terms, now)),
            basis: Basis { spent: Total::ZERO, recent_requests: 0 },
            request: Request::read(AgentId::parse("agt_a").unwrap(), Object::parse(body).unwrap()).unwrap(),
            now,
        }
    }

    fn amount(text: &str) -> Amount {
        Amount::parse(text).unwrap()
    }

    fn check(case: &Case, verdict: Verdict, reason: &str, denials: &str) {
        let found =
            evaluate(case.mandate.as_ref(), &case.basis, &case.request, case.now, Evaluation::Request);
        let why = found.reason.as_ref().map(ToString::to_string).unwrap_or_default();
        assert_eq!(
            (found.verdict, why.as_str(), found.denials.to_string().as_str()),
            (verdict, reason, denials)
        );
    }

    type Spoil = fn(&mut Case);

    fn rules() -> Vec<(Verdict, &'static str, Spoil)> {
        vec![
            (Verdict::DenyRevoked, "mandate mnd_00000000000000000000000000 is revoked", |c| {
                c.mandate.as_mut().unwrap().revoked_at = Some(c.now);
            }),
            (
                Verdict::DenyExpired,
                "mandate mnd_00000000000000000000000000 expired at the end of 2026-06-15",
                |c| c.now = Timestamp::parse("2026-06-16T00:00:00Z").unwrap(),
            ),
            (Verdict::DenyLimit, "currency EUR is not the mandate's currency USD", |c| {
                c.request.currency = Currency::parse("EUR").unwrap();
            }),
            (Verdict::DenyLimit, "amount 900 exceeds per_transaction limit 500", |c| {
                c.request.amount = amount("900");
            }),
            (Verdict::DenyLimit, "amount 40 exceeds per_month limit 1000 (980 spent)", |c| {
                c.basis.spent = Total::parse("980").unwrap();
            }),
            (Verdict::DenyCategory, "category x is not among the mandate's categories", |c| {
                c.request.category = Category::parse("x").unwrap();
            }),
            (Verdict::DenyVelocity, "more than 10 requests in 60 seconds", |c| c.basis.recent_requests = 10),
            (Verdict::Review, "", |c| {
                if c.request.amount == amount("40") {
                    c.request.amount = amount("200.00000001");
                }
            }),
        ]
    }

    #[test]
    fn each_rule_alone() {
        check(&allowed(), Verdict::Allow, "", "");
        for (verdict, reason, spoil) in rules() {
            let mut case = allowed();
            spoil(&mut case);
            check(&case, verdict, reason, if verdict.is_denial() { verdict.as_str() } else { "" });
        }
        let mut case = allowed();
        case.mandate = None;
        check(&case, Verdict::DenyNoMandate, "agent agt_a has no mandate", "deny_no_mandate");
        case.basis.recent_requests = 10;
        check(&case, Verdict::DenyNoMandate, "agent agt_a has no mandate", "deny_no_mandate deny_velocity");
    }

    #[test]
    fn of_two_rules_the_earlier_wins_and_both_are_listed() {
        let rules = rules();
        for (i, (first, reason, spoil_first)) in rules.iter().enumerate() {
            for (second, _, spoil_second) in rules.iter().skip(i + 1) {
                let mut case = allowed();
                spoil_second(&mut case);
                spoil_first(&mut case);
                let found = evaluate(
                    case.mandate.as_ref(),
                    &case.basis,
                    &case.request,
                    case.now,
                    Evaluation::Request,
                );
                assert_eq!(found.verdict, *first, "{first} before {second}");
                let listed: Vec<_> = found.denials.iter().collect();
                let mut wanted = vec![*first];
                wanted.extend((second != first && second.is_denial()).then_some(*second));
                assert_eq!(listed, wanted, "{first} before {second}");
                // The month's reason names the amount, which the second rule may have changed.
                if !reason.starts_with("amount 40 ") && *first != Verdict::Review {
                    assert_eq!(found.reason.unwrap().to_string(), *reason);
                }
            }
        }
    }

    #[test]
    fn limits_are_reached_before_they_are_passed() {
        let mut case = allowed();
        case.request.amount = amount("200");
        check(&case, Verdict::Allow, "", "");
        case.mandate.as_mut().unwrap().terms.review_above = None;
        case.request.amount = amount("500");
        check(&case, Verdict::Allow, "", "");
        case.basis.spent = Total::parse("500").unwrap();
        check(&case, Verdict::Allow, "", "");
        case.basis.spent = Total::parse("500.00000001").unwrap();
        check(
            &case,
            Verdict::DenyLimit,
            "amount 500 exceeds per_month limit 1000 (500.00000001 spent)",
            "deny_limit",
        );
        case.mandate.as_mut().unwrap().terms.limits.per_month = None;
        case.basis.recent_requests = 9;
        check(&case, Verdict::Allow, "", "");
    }

    #[test]
    fn every_category_of_the_mandate_is_allowed() {
        for (category, verdict) in
            [("c", Verdict::Allow), ("d", Verdict::Allow), ("e", Verdict::DenyCategory)]
        {
            let mut case = allowed();
            case.request.category = Category::parse(category).unwrap();
            let found =
                evaluate(case.mandate.as_ref(), &case.basis, &case.request, case.now, Evaluation::Request);
            assert_eq!(found.verdict, verdict, "{category}");
        }
    }

    #[test]
    fn an_approval_waives_velocity_and_review_and_nothing_else() {
        for (verdict, _, spoil) in rules() {
            let mut case = allowed();
            spoil(&mut case);
            let found =
                evaluate(case.mandate.as_ref(), &case.basis, &case.request, case.now, Evaluation::Approval);
            let waived = matches!(verdict, Verdict::DenyVelocity | Verdict::Review);
            assert_eq!(found.verdict, if waived { Verdict::Allow } else { verdict });
        }
    }
}
