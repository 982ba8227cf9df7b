//! Why a decision came out as it did, rule by rule.

use mandate_core::{Denials, Mandate, VELOCITY_REQUESTS, VELOCITY_WINDOW_SECONDS, Verdict};

use crate::model::records::DecisionRecord;

/// One rule of the engine, as it was at a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What it is about.
    pub name: &'static str,
    /// What it came to.
    pub outcome: Outcome,
    /// The numbers that it compared.
    pub text: String,
}

/// What a rule came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing against it.
    Holds,
    /// A person had to answer.
    Asks,
    /// It denied.
    Denies,
    /// It was not applied.
    Waived,
    /// One before it had decided.
    NotReached,
}

/// The rules in the order in which the engine applies them.
#[must_use]
pub fn rules(decision: &DecisionRecord, mandate: Option<&Mandate>) -> Vec<Rule> {
    let denials = decision.denials;
    let Some(mandate) = mandate else {
        let text = format!("agent {} had none", decision.request.agent);
        let missing = Rule { name: "Mandate", outcome: denied(denials, Verdict::DenyNoMandate), text };
        return vec![missing, velocity(decision)];
    };
    let terms = &mandate.terms;
    let categories: Vec<_> = terms.categories.iter().map(ToString::to_string).collect();
    let mut rules = vec![
        Rule {
            name: "Mandate",
            outcome: denied(denials, Verdict::DenyRevoked),
            text: if denials.iter().any(|denial| denial == Verdict::DenyRevoked) {
                format!("{} was revoked", mandate.id)
            } else {
                format!("{} governed, and was not revoked", mandate.id)
            },
        },
        Rule {
            name: "Last day",
            outcome: denied(denials, Verdict::DenyExpired),
            text: format!("{} (UTC)", terms.expires),
        },
    ];
    rules.extend(limits(decision, mandate));
    rules.push(Rule {
        name: "Category",
        outcome: denied(denials, Verdict::DenyCategory),
        text: format!("{} among {}", decision.request.category, categories.join(", ")),
    });
    rules.push(velocity(decision));
    rules.extend(terms.review_above.map(|above| Rule {
        name: "Review",
        outcome: match decision.verdict {
            Verdict::Review => Outcome::Asks,
            _ if decision.supersedes.is_some() => Outcome::Waived,
            _ if !denials.is_empty() => Outcome::NotReached,
            _ => Outcome::Holds,
        },
        text: format!(
            "{} {} against a person from above {above}",
            decision.request.amount, decision.request.currency
        ),
    }));
    rules
}

/// The limits. The first that is exceeded denies: those behind it are not looked at.
fn limits(decision: &DecisionRecord, mandate: &Mandate) -> Vec<Rule> {
    let (limits, request) = (&mandate.terms.limits, &decision.request);
    let mut rules = Vec::new();
    let is_other = request.currency != limits.currency;
    if is_other {
        let text = format!("{}; the mandate is in {}", request.currency, limits.currency);
        rules.push(Rule { name: "Currency", outcome: Outcome::Denies, text });
    }
    let is_large = request.amount > limits.per_transaction;
    rules.push(Rule {
        name: "Limit of a payment",
        outcome: limit(is_other, is_large),
        text: format!(
            "{} {} of at most {} {}",
            request.amount, request.currency, limits.per_transaction, limits.currency
        ),
    });
    rules.extend(limits.per_month.map(|most| {
        let spent = decision.basis.spent;
        let after = spent.plus(request.amount);
        Rule {
            name: "Limit of the month",
            outcome: limit(is_other || is_large, after.exceeds(most)),
            text: format!(
                "{spent} spent before, {after} {} of at most {most} {}",
                request.currency, limits.currency
            ),
        }
    }));
    rules
}

/// What a limit came to.
fn limit(is_decided: bool, is_over: bool) -> Outcome {
    match (is_decided, is_over) {
        (true, _) => Outcome::NotReached,
        (false, true) => Outcome::Denies,
        (false, false) => Outcome::Holds,
    }
}

fn velocity(decision: &DecisionRecord) -> Rule {
    let recent = decision.basis.recent_requests;
    let outcome = match decision.supersedes {
        Some(_) => Outcome::Waived,
        None => denied(decision.denials, Verdict::DenyVelocity),
    };
    let text = format!(
        "{recent} requests in the {VELOCITY_WINDOW_SECONDS} seconds before, of at most {VELOCITY_REQUESTS}"
    );
    Rule { name: "Velocity", outcome, text }
}

fn denied(denials: Denials, verdict: Verdict) -> Outcome {
    if denials.iter().any(|denial| denial == verdict) { Outcome::Denies } else { Outcome::Holds }
}
