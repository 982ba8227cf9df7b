//! The policy engine, beside Cedar deciding the same rule.
//!
//! Both are asked what is known once before anything is measured, and must agree: see `src/rule.rs`.
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run should stop")]

#[path = "../src/rule.rs"]
mod rule;
mod side_by_side;

use criterion::Criterion;

use self::rule::{Cedar, Core, MEASURED, body};
use self::side_by_side::{contender, contest};

fn main() {
    let (core, cedar) = (Core::new().unwrap(), Cedar::new().unwrap());
    rule::check(&core, &cedar).unwrap();

    let body = body(MEASURED);
    let (request, cedar_request) = (Core::request(&body).unwrap(), cedar.request(MEASURED).unwrap());
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
            contender("mandate-core, from the body on", || core.decide(&Core::request(&body).unwrap())),
            contender("cedar-policy, from the context on", || {
                cedar.decide(&cedar.request(MEASURED).unwrap())
            }),
        ],
    );
    criterion.final_summary();
}
