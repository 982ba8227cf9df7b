//! What a running server exports, audited, simulated and reported on.

use serde_json::{Value, json};

use crate::harness::oracle::{export, run};
use crate::harness::{Agent, Client, Organization, TestServer, authorization, terms};

/// An organization's day: allowed, reviewed, approved, denied, too fast, over the month, revoked, replaced, and at once.
fn act(organization: &Client) -> Agent {
    let agent = Agent::register(organization, "buyer");
    let mandate = |terms: &Value| organization.post("/mandates", terms).text("/id");
    agent.ask(40);
    let first = mandate(&terms(&agent.id));
    for amount in [40, 150, 300, 900, 250] {
        agent.ask(amount);
    }
    let decisions = agent.client.decisions();
    let reviews: Vec<_> = decisions.iter().filter_map(|decision| decision["review"]["id"].as_str()).collect();
    for (review, how) in reviews.iter().zip(["approve", "deny"]) {
        assert!(organization.act(&format!("/reviews/{review}/{how}")).status < 300);
    }
    let mut travel = authorization(40);
    travel["category"] = json!("travel");
    agent.client.post("/authorizations", &travel);
    let waiting = agent.ask(210).text("/review/id");
    organization.act(&format!("/mandates/{first}/revoke"));
    agent.ask(40);
    // Approved too late: what comes of it is a denial.
    assert_eq!(organization.act(&format!("/reviews/{waiting}/approve")).text("/verdict"), "deny_revoked");
    let mut narrow = terms(&agent.id);
    narrow["limits"]["per_month"] = json!(1000);
    mandate(&narrow);
    std::thread::scope(|scope| {
        for amount in [60, 70, 80, 90, 100, 110, 120, 130] {
            let agent = &agent;
            scope.spawn(move || agent.client.apart().post("/authorizations", &authorization(amount)));
        }
    });
    agent
}

#[test]
fn a_real_export_holds_and_its_verdicts_come_again() {
    let server = TestServer::start();
    let Organization { client: organization, .. } = server.demo();
    act(&organization);
    let folder = tempfile::tempdir().unwrap();
    let export = export(&organization, folder.path());
    let (path, issuer) = (export.to_str().unwrap(), server.ready("verdicts_url"));

    let audited = run(&["audit", path, "--issuer", issuer]).code(0);
    assert!(audited.out.contains("NOTHING FOUND"), "{audited:?}");
    let simulated = run(&["simulate", "--decisions", path, "--fail-on", "any", "--json"]).code(0);
    let simulated: Value = serde_json::from_str(&simulated.out).unwrap();
    let text = std::fs::read_to_string(&export).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let decisions: Vec<_> = rows.iter().filter(|row| row["decision"].is_object()).collect();
    assert!(simulated["summary"]["inconsistent"].is_null(), "{simulated}");
    let counted = |name: &str| simulated["summary"][name].as_u64().unwrap();
    assert_eq!(counted("requests") + counted("approvals"), u64::try_from(decisions.len()).unwrap());
    let has = |verdict: &str| decisions.iter().any(|row| row["decision"]["verdict"] == verdict);
    for verdict in
        ["allow", "review", "deny_no_mandate", "deny_limit", "deny_category", "deny_revoked", "deny_velocity"]
    {
        assert!(has(verdict), "{verdict}");
    }

    // A narrower mandate denies what was allowed.
    let mut candidate = terms("agt_buyer");
    candidate["limits"]["per_transaction"] = json!(100);
    candidate["review_above"] = json!(50);
    let file = folder.path().join("candidate.json");
    std::fs::write(&file, candidate.to_string()).unwrap();
    let narrower =
        ["simulate", "--decisions", path, "--mandate", file.to_str().unwrap(), "--fail-on", "more-denials"];
    let changed = run(&narrower).code(24);
    assert!(changed.out.contains("\nfirst change ") && changed.out.contains(" -> deny_limit"), "{changed:?}");

    // Only the issuer can change a byte.
    std::fs::write(&export, text.replacen("\"amount\":40", "\"amount\":41", 1)).unwrap();
    let tampered = run(&["audit", path, "--issuer", issuer]).code(23);
    assert!(tampered.out.contains("claims: found amount 41; expected 40, as it is signed"), "{tampered:?}");
    assert!(tampered.out.contains("sha256: found "), "{tampered:?}");
}

#[test]
fn what_was_observed_is_reported() {
    let server = TestServer::start();
    let Organization { live: organization, .. } = server.demo();
    act(&organization);
    let folder = tempfile::tempdir().unwrap();
    let export = export(&organization, folder.path());
    let path = export.to_str().unwrap();
    run(&["audit", path, "--issuer", server.ready("verdicts_url")]).code(0);
    let report = run(&["report", path, "--json"]).code(0);
    let report: Value = serde_json::from_str(&report.out).unwrap();
    let rule = |name: &str| report["rows"].as_array().unwrap().iter().any(|row| row["rule"] == name);
    for name in ["no mandate", "revoked", "per_transaction", "category", "velocity", "review"] {
        assert!(rule(name), "{name}: {report}");
    }
}
