//! What `mandate mcp` tells a model to do by a decision.

use serde_json::json;

use super::{CREATED, DECISION, FAR, OK, REPLAYED, USAGE, allow, answer, purchase, result, text};
use crate::harness::Service;

#[test]
fn a_denial_says_why_and_in_observe_mode_that_it_is_advice() {
    let reason = json!({"reason": "amount 900 exceeds per_transaction limit 500"});
    for (verdict, mode, says) in [
        ("deny_limit", "enforce", "Denied: do not pay."),
        (
            "deny_limit",
            "observe",
            "The environment is in observe mode: the verdict is advice and blocks nothing",
        ),
    ] {
        let service = Service::new(&[(CREATED, &answer(verdict, mode, &reason)), (OK, USAGE)]);
        let result = result(&mut service.agent(&["mcp"]), "authorize_spend", &purchase());
        assert!(text(&result).starts_with(says), "{}", text(&result));
        assert_eq!(result["structuredContent"]["reason"], reason["reason"]);
        assert_eq!(result["structuredContent"]["is_advice"], mode == "observe");
        assert!(result["structuredContent"].get("token").is_none());
        service.requests();
    }
}

#[test]
fn a_replay_does_not_call_what_was_advice_advice_for_ever() {
    let body = answer("deny_limit", "observe", &json!({}));
    for (service, tool, arguments) in [
        (Service::new(&[(REPLAYED, &body), (OK, USAGE)]), "authorize_spend", purchase()),
        (Service::new(&[(OK, &body)]), "get_decision", json!({ "decision": DECISION })),
    ] {
        let result = result(&mut service.agent(&["mcp"]), tool, &arguments);
        assert!(text(&result).starts_with("This was decided in observe mode"), "{}", text(&result));
        assert!(text(&result).contains("The environment may enforce by now"), "{}", text(&result));
        service.requests();
    }
}

#[test]
fn a_denial_for_too_many_requests_says_to_wait_and_a_look_at_an_allow_not_to_pay_twice() {
    let service = Service::new(&[(CREATED, &answer("deny_velocity", "enforce", &json!({}))), (OK, USAGE)]);
    let denied = result(&mut service.agent(&["mcp"]), "authorize_spend", &purchase());
    assert!(text(&denied).contains("Wait a minute and ask under another purchase id"), "{}", text(&denied));
    service.requests();

    let (body, _) = allow(FAR);
    let service = Service::new(&[(OK, &body)]);
    let looked = result(&mut service.agent(&["mcp"]), "get_decision", &json!({ "decision": DECISION }));
    assert_eq!(looked["structuredContent"]["is_replayed"], true);
    assert!(text(&looked).contains("If you have paid for it, do not pay again."), "{}", text(&looked));
    service.requests();
}
