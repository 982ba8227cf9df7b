//! `mandate mcp` against a real server, through the clients from npm, in both revisions of the protocol.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Ran, TestServer, binary, mandate};
use crate::strangers::{installed, run_with};
use crate::tidy::root;

const CLIENTS: &str = include_str!("../mcp/clients.mjs");

/// Everything a host does with the tools, as an agent of its own.
fn through(which: &str, revision: &str) {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer(which);
    let modules = installed("node_modules/@modelcontextprotocol/client");
    let folder = modules.ancestors().nth(3).map(Path::to_owned).unwrap();
    let mut command = Command::new("node");
    command.current_dir(folder).args(["--input-type=module", "-", which]).arg(binary("mandate"));
    command.args([server.ready("base_url"), &agent.id, agent.client.key(), organization.client.key()]);
    let found = run_with(&mut command, CLIENTS).code(0).json();
    assert_eq!(
        found,
        json!({
            "revision": revision,
            "tools": ["authorize_spend", "get_decision", "list_my_mandates", "my_usage"],
            "first": ["allow", false, 3],
            "month": "1959.5",
            "again": [true, true, true],
            "waiting": ["review", "pending", null],
            "answered": ["allow", true, 3],
            "looked": ["review", "approved", true],
            "race": [1, 1],
            "apart": [2, ["allow", "allow"]],
            "afterwards": "allow",
            "malformed": ["invalid_arguments", "invalid_arguments", "invalid_arguments", "invalid_arguments"],
            "conflict": "other_arguments",
            "unknown": "refused",
            "denied": ["deny_limit", "amount 501 exceeds per_transaction limit 500", null],
            "mandate": [["active", "500", "200"]],
            "usage": [["USD", "380.5", "1619.5"]],
            "decisions": 8,
            "unreachable": "unavailable",
        })
    );
}

#[test]
fn npm_sdk() {
    through("sdk", "2025-11-25");
}

#[test]
fn npm_client() {
    through("client", "2026-07-28");
}

#[test]
fn npm_client_in_an_older_revision() {
    through("legacy", "2025-11-25");
}

/// The blocks of a language in a page.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let fence = format!("```{language}\n");
    let parts = text.split(fence.as_str()).skip(1);
    parts.map(|part| part.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_configuration_of_each_host_starts_a_command_that_is_there() {
    let json = [blocks("README.md", "json"), blocks("docs/agents.md", "json")].concat();
    let toml = blocks("docs/agents.md", "toml");
    let read = json.iter().map(|text| serde_json::from_str::<Value>(text).unwrap());
    let read = read.chain(toml.iter().map(|text| toml::from_str::<Value>(text).unwrap()));
    let mut count = 0;
    for configuration in read {
        let lists = ["mcpServers", "servers", "mcp_servers"].iter().find_map(|name| configuration.get(name));
        let server = &lists.unwrap()["mandate"];
        assert!(server["command"].as_str().unwrap().ends_with("mandate"), "{server}");
        let args: Vec<&str> =
            server["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
        Ran::from(mandate(&args).arg("--help").output().unwrap()).code(0).shows("authorize_spend");
        let names = server.get("env").and_then(Value::as_object).into_iter().flat_map(|env| env.keys());
        let given = names.map(String::as_str).chain(args.iter().copied()).collect::<Vec<_>>().join(" ");
        for wanted in [["MANDATE_BASE_URL", "--base-url"], ["MANDATE_AGENT_KEY_FILE", "--key-file"]] {
            assert!(wanted.iter().any(|name| given.contains(name)), "{given}");
        }
        count += 1;
    }
    assert_eq!(count, 4);
}
