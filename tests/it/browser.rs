//! A real browser, with a page of another origin.

use std::process::Command;

use serde_json::json;

use crate::harness::TestServer;
use crate::strangers::{installed, run_with};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/strangers/browser.mjs");

#[test]
fn a_page_of_another_origin_reads_keys_and_verifies() {
    let server = TestServer::start();
    let token = server.demo().buyer("buyer").ask(40).text("/verdict_token");
    let playwright = installed("node_modules/playwright-core/index.mjs");
    let mut command = Command::new("node");
    command.arg(SCRIPT).arg(playwright).args([server.ready("verdicts_url"), server.ready("base_url")]);
    let found = run_with(&mut command, &token).code(0).json();
    assert_eq!(
        found,
        json!({
            "valid": true,
            "again": 304,
            "contract": true,
            "unknown": [404, "not_found"],
            // The wildcard allows none, and a page has no business with the API or its keys.
            "credentials": "TypeError",
            "post": "TypeError",
            "api": "TypeError",
            "key": "TypeError",
        })
    );
}
