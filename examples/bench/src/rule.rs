//! One rule, as our policy engine decides it and as Cedar does: what `tests/bench core` and `benches/evaluate.rs` measure.
//!
//! Cedar answers allow or deny and has no sums, calendars or reasons of its own; it is given the rule in its fastest form, one
//! `permit` over integers, and everything it would have to look up is in the request.

use std::error::Error;

use cedar_policy::{Authorizer, Context, Decision, Entities, EntityUid, PolicySet};
use mandate_core::json::Object;
use mandate_core::{
    AgentId, Basis, Evaluation, Mandate, MandateId, Request, Terms, Timestamp, Total, Verdict, evaluate,
};
use serde_json::json;

/// What went wrong, for a person.
type Failure = Box<dyn Error + Send + Sync>;

/// Amount, currency and category of a request.
pub(crate) type Asked = (u32, &'static str, &'static str);

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

/// The one that is measured.
pub(crate) const MEASURED: Asked = (40, "USD", "software");

/// What both are asked before anything is measured, and what is to come of it.
const KNOWN: [(Asked, Verdict); 6] = [
    (MEASURED, Verdict::Allow),
    ((200, "USD", "travel"), Verdict::Allow),
    ((201, "USD", "software"), Verdict::Review),
    ((501, "USD", "software"), Verdict::DenyLimit),
    ((40, "EUR", "software"), Verdict::DenyLimit),
    ((40, "USD", "gambling"), Verdict::DenyCategory),
];

const SPENT: u32 = 1_500;
const RECENT_REQUESTS: u32 = 3;

/// Our side: a mandate, and what the agent did before.
pub(crate) struct Core {
    mandate: Mandate,
    basis: Basis,
    now: Timestamp,
}

impl Core {
    pub(crate) fn new() -> Result<Self, Failure> {
        let now = Timestamp::parse("2026-06-01T12:00:00Z")?;
        let terms = Terms::read(Object::parse(TERMS.as_bytes())?)?;
        let mandate = Mandate::new(MandateId::new(now, 1), terms, now);
        let basis = Basis { spent: Total::parse(&SPENT.to_string())?, recent_requests: RECENT_REQUESTS };
        Ok(Self { mandate, basis, now })
    }

    /// Reads a request from the body that it came in.
    pub(crate) fn request(body: &str) -> Result<Request, Failure> {
        Ok(Request::read(AgentId::parse("agt_buyer")?, Object::parse(body.as_bytes())?)?)
    }

    pub(crate) fn decide(&self, request: &Request) -> Verdict {
        evaluate(Some(&self.mandate), &self.basis, request, self.now, Evaluation::Request).verdict
    }
}

/// Cedar's side: the same mandate as attributes of the agent.
pub(crate) struct Cedar {
    policies: PolicySet,
    entities: Entities,
    authorizer: Authorizer,
    uids: [EntityUid; 3],
}

impl Cedar {
    pub(crate) fn new() -> Result<Self, Failure> {
        let agent = json!([{
            "uid": {"type": "Agent", "id": "agt_buyer"},
            "attrs": {
                "revoked": false, "expires": 20_818, "currency": "USD", "per_transaction": 500, "per_month": 2000,
                "categories": ["cloud", "office", "software", "travel"], "review_above": 200
            },
            "parents": []
        }]);
        Ok(Self {
            policies: POLICY.parse()?,
            entities: Entities::from_json_value(agent, None)?,
            authorizer: Authorizer::new(),
            uids: [
                r#"Agent::"agt_buyer""#.parse()?,
                r#"Action::"authorize""#.parse()?,
                r#"Vendor::"acme""#.parse()?,
            ],
        })
    }

    /// Makes a request from the JSON of its context.
    pub(crate) fn request(
        &self,
        (amount, currency, category): Asked,
    ) -> Result<cedar_policy::Request, Failure> {
        let context = json!({
            "today": 20_605, "amount": amount, "currency": currency, "category": category,
            "spent": SPENT, "recent_requests": RECENT_REQUESTS
        });
        let context = Context::from_json_value(context, None)?;
        let [agent, action, vendor] = self.uids.clone();
        Ok(cedar_policy::Request::new(agent, action, vendor, context, None)?)
    }

    pub(crate) fn decide(&self, request: &cedar_policy::Request) -> Decision {
        self.authorizer.is_authorized(request, &self.policies, &self.entities).decision()
    }
}

/// The body of a request to our API.
pub(crate) fn body((amount, currency, category): Asked) -> String {
    format!(
        r#"{{"amount":{amount},"currency":"{currency}","recipient":"vendor:acme","category":"{category}"}}"#
    )
}

/// Asks both what is known. They must agree, and be right.
pub(crate) fn check(core: &Core, cedar: &Cedar) -> Result<(), Failure> {
    for (asked, wanted) in KNOWN {
        let verdict = core.decide(&Core::request(&body(asked))?);
        let decision = cedar.decide(&cedar.request(asked)?);
        let is_allowed = decision == Decision::Allow;
        if verdict != wanted || is_allowed != (wanted == Verdict::Allow) {
            return Err(format!("{asked:?} is to be {wanted}: {verdict}, and of Cedar {decision:?}").into());
        }
    }
    Ok(())
}
