//! The console in a real browser with a virtual authenticator, and what gets through to it without one: nothing.

use serde_json::json;

use crate::harness::TestServer;
use crate::pages::{documented, screenshots, script};
use crate::strangers::run_with;

#[test]
fn people_answer_in_the_console_with_their_own_passkeys() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.agent("buyer");
    let terms = json!({
        "principal": "role:head-of-it",
        "agent": agent.id,
        "limits": { "per_transaction": 500, "per_month": 2000, "currency": "USD" },
        "categories": ["software", "cloud"],
        "review_above": 200,
        "expires": "2099-12-31"
    });
    let mandate = organization.mandate(&terms);
    let mut command = script("console.mjs");
    let pictures = screenshots("console");
    command.arg(format!("{}/sandbox/demo", server.ready("console_url"))).arg(&pictures);
    let given = json!({
        "link": server.ready("console_link"),
        "api": server.ready("base_url"),
        "agent": agent.client.key(),
        "organization": server.ready("organization_key"),
        "mandate": mandate,
    });
    let found = run_with(&mut command, &given.to_string()).code(0).json();
    assert_eq!(found["screenshots"], 56);
    documented(&pictures.join("console.png"), "docs/images/console.png");
    documented(&pictures.join("review.png"), "docs/images/review.png");
}
