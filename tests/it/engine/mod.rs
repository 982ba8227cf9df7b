//! The policy engine beside an independent, naive model, over random mandates, histories and requests.

mod model;

use std::cell::RefCell;
use std::collections::HashMap;

use mandate_core::json::Object;
use mandate_core::{
    AgentId, Basis, Currency, Evaluation, Mandate, MandateId, Month, RecentRequests, Request, Terms,
    Timestamp, Total, Verdict, evaluate,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use self::model::{Answer, Ask, Kind, Model, Written};
use crate::harness::campaign;

const AGENT: &str = "agt_buyer";
const CURRENCIES: [&str; 2] = ["USD", "USDC"];
const CATEGORIES: [&str; 3] = ["software", "cloud", "cloud.compute"];
/// How many of the answers must have met each rule, or the campaign has not looked.
const SEEN_AT_LEAST: usize = 5;
/// Up to seven digits before the point and eight behind it: what an amount holds in any combination.
const MOST_UNITS: u128 = 999_999_999_999_999;

/// One thing that happens. Sizes that depend on the history are settled when it happens.
#[derive(Debug, Clone)]
enum Step {
    Wait(i64),
    Write(Written),
    Revoke,
    Ask { size: Size, currency: &'static str, category: &'static str, spelling: u8 },
    Approve(usize),
}

/// An amount: any, or within one unit of a limit.
#[derive(Debug, Clone)]
enum Size {
    Any(u128),
    PerTransaction(i128),
    LeftOfMonth(i128),
    Threshold(i128),
}

fn money() -> impl Strategy<Value = u128> {
    prop_oneof![
        1_u128..5,
        (1_u128..12).prop_map(|n| n * 25_000_000),
        (1_u128..12).prop_map(|n| n * 10_000_000_000),
        1..=MOST_UNITS,
    ]
}

/// Mostly the first, so that requests and mandates often agree.
fn currency() -> impl Strategy<Value = &'static str> {
    prop_oneof![7 => Just(CURRENCIES[0]), 1 => Just(CURRENCIES[1])]
}

fn near() -> impl Strategy<Value = i128> {
    -1_i128..=1
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        4 => money().prop_map(Size::Any),
        2 => near().prop_map(Size::PerTransaction),
        2 => near().prop_map(Size::LeftOfMonth),
        2 => near().prop_map(Size::Threshold),
    ]
}

fn written() -> impl Strategy<Value = Written> {
    let limits = (money(), proptest::option::of(money()), currency());
    let categories = subsequence(&CATEGORIES[..], 1..=CATEGORIES.len());
    // A threshold is at most the limit: a share of it, in eighths.
    (limits, categories, proptest::option::of(0_u128..=8), 0_i64..45).prop_map(
        |((per_transaction, per_month, currency), categories, eighths, days)| Written {
            per_transaction,
            per_month,
            currency,
            categories,
            review_above: eighths.map(|eighths| per_transaction / 8 * eighths),
            days,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let second = 1_000_i64;
    let day = 86_400 * second;
    let wait = prop_oneof![
        12 => 0..6 * second,
        4 => select(&[0, 1, 59_999, 60_000, 60_001][..]),
        1 => 0..20 * day,
    ];
    let ask = (size(), currency(), select(&CATEGORIES[..]), any::<u8>());
    prop_oneof![
        20 => ask.prop_map(|(size, currency, category, spelling)| Step::Ask { size, currency, category, spelling }),
        10 => wait.prop_map(Step::Wait),
        4 => written().prop_map(Step::Write),
        1 => Just(Step::Revoke),
        6 => (0_usize..2).prop_map(Step::Approve),
    ]
}

/// A service of an embedder's own: what it must keep for the engine, and no more.
struct Service {
    now: Timestamp,
    mandate: Option<Mandate>,
    recent: RecentRequests,
    spent: HashMap<(Month, Currency), Total>,
}

impl Service {
    fn write(&mut self, body: &str, id: MandateId) {
        let terms = Object::parse(body.as_bytes()).and_then(Terms::read).expect(body);
        self.mandate = Some(Mandate::new(id, terms, self.now));
    }

    fn decide(&mut self, body: &str, evaluation: Evaluation) -> Answer {
        let agent = AgentId::parse(AGENT).unwrap();
        let request = Object::parse(body.as_bytes()).and_then(|body| Request::read(agent, body)).expect(body);
        let spent = self.spent.entry((self.now.month(), request.currency.clone())).or_default();
        let basis = Basis { spent: *spent, recent_requests: self.recent.count_at(self.now) };
        let outcome = evaluate(self.mandate.as_ref(), &basis, &request, self.now, evaluation);
        if outcome.verdict == Verdict::Allow {
            *spent = spent.plus(request.amount);
        }
        if evaluation == Evaluation::Request {
            self.recent.record(self.now);
        }
        Answer {
            verdict: outcome.verdict.to_string(),
            denials: outcome.denials.iter().map(|denial| denial.to_string()).collect(),
            reason: outcome.reason.map(|reason| reason.to_string()),
            spent: basis.spent.to_string(),
            recent_requests: basis.recent_requests,
        }
    }
}

/// Plays the steps to both, and compares each answer. Returns the answers.
fn play(start: i64, steps: Vec<Step>) -> Result<Vec<(Kind, Answer)>, TestCaseError> {
    let mut model = Model::new(AGENT, start);
    let mut service = Service {
        now: Timestamp::from_millis(start),
        mandate: None,
        recent: RecentRequests::default(),
        spent: HashMap::new(),
    };
    let mut pending: Vec<(Ask, String)> = Vec::new();
    let mut answers = Vec::new();
    for (place, step) in (0_u128..).zip(steps) {
        let (ask, body, kind) = match step {
            Step::Wait(millis) => {
                model.now += millis;
                service.now = Timestamp::from_millis(model.now);
                continue;
            }
            Step::Write(written) => {
                let id = MandateId::new(service.now, place);
                service.write(&model.write(written, id.to_string()), id);
                continue;
            }
            Step::Revoke => {
                model.revoke();
                if let Some(mandate) = &mut service.mandate {
                    mandate.revoked_at = Some(service.now);
                }
                continue;
            }
            Step::Ask { size, currency, category, spelling } => {
                let ask = Ask { amount: settle(&size, &model, currency), currency, category };
                let body = ask.body(spelling);
                (ask, body, Kind::Request)
            }
            Step::Approve(which) if which < pending.len() => {
                let (ask, body) = pending.remove(which);
                (ask, body, Kind::Approval)
            }
            Step::Approve(_) => continue,
        };
        let expected = model.decide(&ask, kind);
        let evaluation = if kind == Kind::Request { Evaluation::Request } else { Evaluation::Approval };
        prop_assert_eq!(&service.decide(&body, evaluation), &expected, "{} at {}", body, service.now);
        if expected.verdict == "review" {
            pending.push((ask, body));
        }
        answers.push((kind, expected));
    }
    Ok(answers)
}

fn settle(size: &Size, model: &Model, currency: &str) -> u128 {
    let (limit, near) = match size {
        Size::Any(units) => (Some(*units), 0),
        Size::PerTransaction(near) => (model.governing().map(|m| m.terms.per_transaction), *near),
        Size::LeftOfMonth(near) => (model.left_of_month(currency), *near),
        Size::Threshold(near) => (model.governing().and_then(|m| m.terms.review_above), *near),
    };
    limit.unwrap_or(1).saturating_add_signed(near).clamp(1, MOST_UNITS)
}

#[test]
fn core_and_model_decide_alike() {
    let seen = RefCell::new(Vec::new());
    // From 1970 to 2110: 2100 is no leap year.
    let sequences = (0_i64..4_400_000_000_000, vec(step(), 1..120));
    campaign::runner("engine", 1000)
        .run(&sequences, |(start, steps)| {
            seen.borrow_mut().extend(play(start, steps)?);
            Ok(())
        })
        .unwrap();

    let seen = seen.into_inner();
    for (kind, verdict, word) in [
        (Kind::Request, "allow", ""),
        (Kind::Request, "review", ""),
        (Kind::Request, "deny_no_mandate", "has no mandate"),
        (Kind::Request, "deny_revoked", "is revoked"),
        (Kind::Request, "deny_expired", "expired"),
        (Kind::Request, "deny_limit", "currency"),
        (Kind::Request, "deny_limit", "per_transaction"),
        (Kind::Request, "deny_limit", "per_month"),
        (Kind::Request, "deny_category", "category"),
        (Kind::Request, "deny_velocity", "10 requests"),
        (Kind::Approval, "allow", ""),
        (Kind::Approval, "deny_limit", "per_month"),
    ] {
        let met =
            |answer: &Answer| answer.verdict == verdict && answer.reason.iter().all(|why| why.contains(word));
        let count = seen.iter().filter(|(of, answer)| *of == kind && met(answer)).count();
        println!("{kind:?} {verdict} {word}: {count}");
        assert!(count >= SEEN_AT_LEAST, "{kind:?} {verdict} {word} came {count} times only");
    }
}
