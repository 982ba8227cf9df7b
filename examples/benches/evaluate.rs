//! The policy engine, beside Cedar deciding the same rule.
//!
//! Cedar answers allow or deny and has no sums, calendars or reasons of its own; it is given the rule in its fastest form, one
//! `permit` over integers, and everything it would have to look up stands in the request. Both are asked all the requests of
//! [`REQUESTS`] once before anything is measured, and must agree.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark that cannot run should stop")]

mod side_by_side;

use cedar_policy::{Authorizer, Context, Decision, Entities, EntityUid, PolicySet};
use criterion::Criterion;
use mandate_core::json::Object;
use mandate_core::{
    AgentId, Basis, Evaluation, Mandate, MandateId, Request, Terms, Timestamp, Total, Verdict, evaluate,
};
use serde_json::json;

use self::side_by_side::{contender, contest};

const POLICY: &str = r#"
permit(principal is Agent, action == Action::"authorize", resource is Vendor) when {
    !principal.revoked &&
    context.today <= principal.expires &&
    context.currency == principal.currency &&
    context.amount <= principal.per_transaction &&
    context.spent + context.amount <= principal.per_month &&
    principal.categories.contains(context.category) &&
    context.recent_requests < 10 &&
    context.amount <= principal.review_above
};"#;

const TERMS: &str = r#"{
    "principal": "role:head-of-it", "agent": "agt_buyer", "categories": ["cloud", "office", "software", "travel"],
    "limits": {"per_transaction": 500, "per_month": 2000, "currency": "USD"}, "review_above": 200, "expires": "2026-12-31"
}"#;

/// Amount, currency, category; the first is the one that is measured.
const REQUESTS: [(u32, &str, &str); 6] = [
    (40, "USD", "software"),
    (200, "USD", "travel"),
    (201, "USD", "software"),
    (501, "USD", "software"),
    (40, "EUR", "software"),
    (40, "USD", "gambling"),
];

const SPENT: u32 = 1_500;
const RECENT_REQUESTS: u32 = 3;

/// Our side: a mandate, and what the agent did before.
struct Core {
    mandate: Mandate,
    basis: Basis,
    now: Timestamp,
}

impl Core {
    fn new() -> Self {
        let now = Timestamp::parse("2026-06-01T12:00:00Z").unwrap();
        let terms = Terms::read(Object::parse(TERMS.as_bytes()).unwrap()).unwrap();
        let mandate = Mandate {
            id: MandateId::new(now, 1),
            terms,
            created_at: now,
            revoked_at: None,
            replaced_by: None,
        };
        let basis =
            Basis { spent: Total::parse(&SPENT.to_string()).unwrap(), recent_requests: RECENT_REQUESTS };
        Self { mandate, basis, now }
    }

    fn request(body: &str) -> Request {
        Request::read(AgentId::parse("agt_buyer").unwrap(), Object::parse(body.as_bytes()).unwrap()).unwrap()
    }

    fn decide(&self, request: &Request) -> Verdict {
        evaluate(Some(&self.mandate), &self.basis, request, self.now, Evaluation::Request).verdict
    }
}

/// Cedar's side: the same mandate as attributes of the agent.
struct Cedar {
    policies: PolicySet,
    entities: Entities,
    authorizer: Authorizer,
    uids: [EntityUid; 3],
}

impl Cedar {
    fn new() -> Self {
        let agent = json!([{
            "uid": {"type": "Agent", "id": "agt_buyer"},
            "attrs": {
                "revoked": false, "expires": 20_818, "currency": "USD", "per_transaction": 500, "per_month": 2000,
                "categories": ["cloud", "office", "software", "travel"], "review_above": 200
            },
            "parents": []
        }]);
        Self {
            policies: POLICY.parse().unwrap(),
            entities: Entities::from_json_value(agent, None).unwrap(),
            authorizer: Authorizer::new(),
            uids: [r#"Agent::"agt_buyer""#, r#"Action::"authorize""#, r#"Vendor::"acme""#]
                .map(|uid| uid.parse().unwrap()),
        }
    }

    fn request(&self, (amount, currency, category): (u32, &str, &str)) -> cedar_policy::Request {
        let context = json!({
            "today": 20_605, "amount": amount, "currency": currency, "category": category,
            "spent": SPENT, "recent_requests": RECENT_REQUESTS
        });
        let context = Context::from_json_value(context, None).unwrap();
        let [agent, action, vendor] = self.uids.clone();
        cedar_policy::Request::new(agent, action, vendor, context, None).unwrap()
    }

    fn decide(&self, request: &cedar_policy::Request) -> Decision {
        self.authorizer.is_authorized(request, &self.policies, &self.entities).decision()
    }
}

fn body((amount, currency, category): (u32, &str, &str)) -> String {
    format!(
        r#"{{"amount":{amount},"currency":"{currency}","recipient":"vendor:acme","category":"{category}"}}"#
    )
}

fn main() {
    let (core, cedar) = (Core::new(), Cedar::new());
    for asked in REQUESTS {
        let verdict = core.decide(&Core::request(&body(asked)));
        let decision = cedar.decide(&cedar.request(asked));
        assert_eq!(
            verdict == Verdict::Allow,
            decision == Decision::Allow,
            "{asked:?}: {verdict}, {decision:?}"
        );
    }

    let body = body(REQUESTS[0]);
    let (request, cedar_request) = (Core::request(&body), cedar.request(REQUESTS[0]));
    let criterion = &mut Criterion::default().configure_from_args();
    contest(
        criterion,
        "evaluate",
        &[
            contender("mandate-core", || core.decide(&request)),
            contender("cedar-policy", || cedar.decide(&cedar_request)),
        ],
    );
    contest(
        criterion,
        "read and evaluate",
        &[
            contender("mandate-core, from the body on", || core.decide(&Core::request(&body))),
            contender("cedar-policy, from the context on", || cedar.decide(&cedar.request(REQUESTS[0]))),
        ],
    );
    criterion.final_summary();
}
