//! `mandate doctor`: what it finds where all is well, and where it is not.

use insta::assert_snapshot;
use serde_json::Value;

use super::{Shell, shown};
use crate::harness::{Ran, TestServer, mandate};

/// The text with a mask over the addresses of this run.
fn hidden(server: &TestServer, text: &str) -> String {
    let hosts = [("base_url", "{base_url}"), ("verdicts_url", "{verdicts_url}"), ("ops_url", "{ops_url}")];
    let text =
        hosts.iter().fold(text.to_owned(), |text, (name, mask)| text.replace(server.ready(name), mask));
    shown(&text)
}

/// The check called `name` in what `--json` printed.
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("{name} is not in {report}"))
}

#[test]
fn a_service_that_is_well_and_one_that_only_observes() {
    let server = TestServer::start();
    let organization = server.demo();
    let hosts = ["--issuer", server.ready("verdicts_url"), "--docs-url", server.ready("docs_url")];
    let doctor = |shell: &Shell<'_>, more: &[&str]| shell.run(&[&["doctor"], &hosts[..], more].concat());

    let shell = Shell::new(&server, &organization);
    let text = doctor(&shell, &[]).code(0).out;
    assert_snapshot!("doctor", hidden(&server, &text));
    let live = doctor(&shell.with_key(organization.live.key()), &["--json"]).code(0).json();
    assert_eq!((&check(&live, "mode")["state"], &live["healthy"]), (&"warn".into(), &true.into()), "{live}");
    assert!(check(&live, "key")["found"].as_str().unwrap().contains("LIVE"), "{live}");
    let agent = organization.agent("buyer");
    let report = doctor(&shell.with_key(agent.client.key()), &["--json"]).code(0).json();
    assert_eq!(check(&report, "key")["state"], "ok", "{report}");
    assert!(!report.to_string().contains(agent.client.key()));
}

#[test]
fn what_is_not_set_is_passed_over_and_what_is_wrong_fails() {
    let server = TestServer::start();
    let organization = server.demo();
    let nothing = Ran::from(mandate(&["doctor"]).output().unwrap()).code(0);
    assert_snapshot!("doctor-of-nothing", shown(&nothing.out));

    let shell = Shell::new(&server, &organization);
    let fails = |shell: &Shell<'_>, args: &[&str], name: &str| {
        let report = shell.run(&[&["doctor", "--json"], args].concat()).code(25).json();
        assert_eq!(
            (&check(&report, name)["state"], &report["healthy"]),
            (&"fail".into(), &false.into()),
            "{report}"
        );
        assert!(check(&report, name)["next"].is_string(), "{report}");
    };
    // Nothing listens there; another host of the service; a key of another service.
    fails(&shell, &["--base-url", "http://127.0.0.1:9/v1"], "api");
    fails(&shell, &["--issuer", server.ready("base_url")], "key set");
    fails(&shell, &["--issuer", "http://example.com"], "verdicts");
    fails(&shell, &["--docs-url", "http://127.0.0.1:9"], "docs");
    let other = TestServer::start();
    fails(&shell.with_key(other.demo().client.key()), &[], "key");
    let mistyped = format!("{}x", organization.client.key());
    fails(&shell.with_key(&mistyped), &[], "key");
}
