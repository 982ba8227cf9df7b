//! An organization's day: each command once, its text and its JSON held.

use insta::assert_snapshot;

use super::{Shell, shown};
use crate::harness::TestServer;

const MANDATE: &str = r#"{"principal": "role:finance_lead", "agent": "agt_buyer",
 "limits": {"per_transaction": 500, "per_month": 2000, "currency": "USD"},
 "categories": ["software", "cloud.compute"], "review_above": 200, "expires": "2999-12-31"}"#;

#[test]
fn agents_mandates_decisions_and_reviews() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    let (old, new) = (folder.path().join("old.json"), folder.path().join("new.json"));
    std::fs::write(&old, MANDATE).unwrap();
    std::fs::write(&new, MANDATE.replace("500", "800").replace("\"software\", ", "")).unwrap();
    let (old, new) = (old.to_str().unwrap(), new.to_str().unwrap());

    let key = shell.get(&["agent", "create", "buyer", "--jq", ".agent_key"]);
    let agent = shell.with_key(&key);
    assert_snapshot!("agent-create", shell.transcript(&["agent", "create", "other"]));
    assert_snapshot!("agent-list", shell.transcript(&["agent", "list"]));
    assert_snapshot!("agent-list-of-an-agent", agent.transcript(&["agent", "list", "--json=id,name"]));
    assert_snapshot!("agent-show", shell.transcript(&["agent", "show", "buyer"]));

    let hidden = |text: String| text.replace(old, "old.json").replace(new, "new.json");
    assert_snapshot!("mandate-lint", hidden(shell.transcript(&["mandate", "lint", old, "--json"])));
    assert_snapshot!("mandate-create", hidden(shell.transcript(&["mandate", "create", "-f", old])));
    let mandate = shell.get(&["mandate", "list", "--jq", ".[0].id"]);
    assert_snapshot!("mandate-list", shell.transcript(&["mandate", "list"]));
    assert_snapshot!("mandate-show", shell.transcript(&["mandate", "show", &mandate, "--json"]));
    assert_snapshot!("mandate-diff", hidden(shell.transcript(&["mandate", "diff", &mandate, new])));
    assert_snapshot!(
        "mandate-diff-of-nothing",
        hidden(shell.transcript(&["mandate", "diff", &mandate, old]))
    );

    let authorize = |amount, more: &[&str]| {
        let args =
            [&["authorize", amount, "USD", "--to", "vendor:acme", "--category", "software"], more].concat();
        agent.transcript(&args)
    };
    assert_snapshot!("authorize-allow", authorize("40.50", &[]));
    assert_snapshot!("authorize-deny", authorize("900", &["--json=verdict,reason"]));
    assert_snapshot!("authorize-review", authorize("400", &[]));
    assert_snapshot!("authorize-wait-in-vain", authorize("401", &["--wait", "--timeout", "0"]));

    assert_snapshot!("decision-list", shell.transcript(&["decision", "list", "--verdict", "allow"]));
    let decision = shell.get(&["decision", "list", "--verdict", "deny_limit", "--jq", ".[0].jti"]);
    assert_snapshot!("decision-show", shell.transcript(&["decision", "show", &decision]));
    assert_snapshot!(
        "decision-tail",
        shell.transcript(&["decision", "tail", "-n", "1", "--json=verdict,request.amount"])
    );
    assert_snapshot!("review-list", shell.transcript(&["review", "list"]));
    let reviews = shell.get(&["review", "list", "--jq", ".[].review.id"]);
    let [first, second] = reviews.lines().collect::<Vec<_>>()[..] else { panic!("{reviews}") };
    assert_snapshot!("review-approve", shell.transcript(&["review", "approve", first]));
    assert_snapshot!("review-deny", shell.transcript(&["review", "deny", second, "--reason", "too dear"]));
    assert_snapshot!("review-denied-twice", shell.transcript(&["review", "deny", second]));
    assert_snapshot!("usage", shell.transcript(&["usage"]));

    assert_snapshot!("enforcement-get", shell.transcript(&["enforcement", "get"]));
    assert_snapshot!("enforcement-set", shell.transcript(&["enforcement", "set", "observe", "--json"]));
    assert_snapshot!("authorize-observed", authorize("900", &[]));
    assert_snapshot!("mandate-revoke", shell.transcript(&["mandate", "revoke", &mandate]));
}

#[test]
fn webhooks_and_events() {
    let server = TestServer::start();
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);

    let url = "http://127.0.0.1:9/hooks";
    assert_snapshot!(
        "webhook-create",
        shell.transcript(&["webhook", "create", url, "--events", "ping,mandate.revoked"])
    );
    let webhook = shell.get(&["webhook", "list", "--jq", ".[0].webhook"]);
    assert_snapshot!("webhook-list", shell.transcript(&["webhook", "list"]));
    assert_snapshot!("webhook-show", shell.transcript(&["webhook", "show", &webhook]));
    assert_snapshot!("webhook-ping", shell.transcript(&["webhook", "ping", &webhook]));
    assert_snapshot!("webhook-ping-json", shell.transcript(&["webhook", "ping", &webhook, "--json"]));
    let event = shell.get(&["webhook", "ping", &webhook, "--jq", ".event"]);
    assert_snapshot!("event-list", shell.transcript(&["event", "list", "--type", "ping"]));
    assert_snapshot!("event-show", shell.transcript(&["event", "show", &event, "--json=event,type,data"]));
    assert_snapshot!("event-tail", shell.transcript(&["event", "tail", "--json=event,type"]));
    assert_snapshot!("webhook-delete", shell.transcript(&["webhook", "delete", &webhook]));
}

#[test]
fn escrows_and_their_contracts() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    let decision = organization.buyer("buyer").ask(40).text("/decision");

    let open = [
        "escrow",
        "create",
        &decision,
        "--condition",
        "goods received",
        "--refund-after",
        "2999-01-01T00:00:00Z",
    ];
    assert_snapshot!("escrow-create", masked_contract(&shell.transcript(&open)));
    let escrow = shell.get(&["escrow", "list", "--jq", ".[0].escrow"]);
    assert_snapshot!("escrow-list", shell.transcript(&["escrow", "list"]));
    let on = ["escrow", "transition", &escrow, "delivered", "--note", "signed for"];
    assert_snapshot!("escrow-transition", masked_contract(&shell.transcript(&on)));
    assert_snapshot!("escrow-refused", shell.transcript(&["escrow", "transition", &escrow, "funded"]));
    assert_snapshot!(
        "escrow-show",
        shell.transcript(&["escrow", "show", &escrow, "--json=state,amount,buyer"])
    );
    // The address alone is enough, without a key.
    let address = shell.get(&["escrow", "show", &escrow, "--jq", ".contract"]);
    let contract = |address: &str, issuer: &str, more: &[&str]| {
        let args = [&["escrow", "contract", address, "--allow-sandbox", "--issuer", issuer], more].concat();
        crate::harness::Ran::from(crate::harness::mandate(&args).output().unwrap())
    };
    let issuer = server.ready("verdicts_url");
    assert_snapshot!(
        "escrow-contract",
        masked_contract(&shown(&contract(&address, issuer, &[]).code(0).out))
    );
    assert_eq!(contract(&address, issuer, &["--jq", ".state"]).code(0).out, "delivered\n");
    contract(&"0".repeat(64), issuer, &[]).code(33);
    contract("0", issuer, &[]).code(2);
    let careful = crate::harness::mandate(&["escrow", "contract", &address, "--issuer", issuer]).output();
    assert!(crate::harness::Ran::from(careful.unwrap()).code(22).out.is_empty());
    assert!(contract(&address, issuer, &[]).err.contains("not real money"));
    let (other, keys) = (TestServer::start(), folder.path().join("jwks.json"));
    let published = other.stranger("verdicts_url").get("/.well-known/jwks.json").body;
    std::fs::write(&keys, published).unwrap();
    contract(&address, issuer, &["--jwks", keys.to_str().unwrap()]).code(11);
}

#[test]
fn exports_and_direct_requests() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    organization.buyer("buyer").ask(40);
    let issuer = server.ready("verdicts_url");

    let export = shell.get(&["export", "create", "--jq", ".export"]);
    let download = |name: &str, more: &[&str]| {
        let mut command = shell.command(&[&["export", "download", &export, "-o", name], more].concat());
        command.current_dir(folder.path());
        crate::harness::Ran::from(command.output().unwrap())
    };
    let whole = download("all.ndjson", &["--issuer", issuer, "--json=export,rows,status"]).code(0);
    assert_snapshot!("export-download", shown(&whole.out));
    let content = std::fs::read(folder.path().join("all.ndjson")).unwrap();
    // A download that has stopped goes on, and one that is damaged is not believed.
    std::fs::write(folder.path().join("rest.ndjson.part"), &content[..content.len() / 2]).unwrap();
    assert!(download("rest.ndjson", &["--issuer", issuer]).code(0).err.is_empty());
    assert_eq!(std::fs::read(folder.path().join("rest.ndjson")).unwrap(), content);
    std::fs::write(folder.path().join("bad.ndjson.part"), vec![b'x'; content.len() / 2]).unwrap();
    download("bad.ndjson", &["--issuer", issuer]).code(17);
    // Without a word of the issuer, the service says who it is.
    let unnamed = download("unnamed.ndjson", &[]).code(0);
    assert!(
        unnamed.out.contains(&format!("signed by    {issuer}\n")) && unnamed.err.is_empty(),
        "{unnamed:?}"
    );
    download(
        "other.ndjson",
        &["--issuer", "https://other.example", "--jwks", &format!("{issuer}/.well-known/jwks.json")],
    )
    .code(14);
    assert!(!folder.path().join("bad.ndjson").exists() && !folder.path().join("other.ndjson").exists());

    assert_snapshot!("api-get", shell.transcript(&["api", "get", "/agents", "-f", "limit=1"]));
    assert_snapshot!(
        "api-post",
        shell.transcript(&["api", "post", "/enforcement", "-f", "mode=enforce", "--jq", ".mode"])
    );
    assert_snapshot!("api-refused", shell.transcript(&["api", "post", "/enforcement", "-f", "mode=off"]));
}

#[test]
fn waiting_for_a_review_returns_the_fresh_token() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    let (shell, asker) = (Shell::new(&server, &organization), agent.client.key());
    let ask = |resolve: &[&str]| {
        let args =
            ["authorize", "300", "USD", "--to", "vendor:acme", "--category", "software", "--wait", "--json"];
        let asker = shell.with_key(asker);
        let waiting = asker.command(&args).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let review = loop {
            let review = shell.get(&["review", "list", "--jq", ".[].review.id"]);
            if !review.is_empty() {
                break review;
            }
            assert!(std::time::Instant::now() < deadline);
        };
        shell.run(&[&["review"], resolve, &[&review]].concat()).code(0);
        crate::harness::Ran::from(waiting.wait_with_output().unwrap())
    };
    let approved: serde_json::Value = serde_json::from_str(&ask(&["approve"]).code(0).out).unwrap();
    assert_eq!(approved["verdict"], "allow");
    assert!(approved["supersedes"].is_string() && approved["verdict_token"].is_string());
    let denied: serde_json::Value = serde_json::from_str(&ask(&["deny"]).code(20).out).unwrap();
    assert_eq!(denied["review"]["status"], "denied");
}

#[test]
fn trigger_prints_what_it_has_made() {
    let server = TestServer::start();
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    let trigger = |args: &[&str]| {
        let text = shell.transcript(&[&["trigger"], args].concat());
        let (before, after) = text.split_once("agt_trigger-").unwrap();
        format!("{before}agt_trigger-*{}", &after[8..])
    };
    assert_snapshot!("trigger", trigger(&["decision.resolved"]));
    assert_snapshot!("trigger-json", trigger(&["escrow.funded", "--json"]));
    assert_snapshot!(
        "trigger-fields",
        shell.transcript(&["trigger", "mandate.revoked", "--json=type,event"])
    );
    assert_snapshot!("trigger-without-a-webhook", shell.transcript(&["trigger", "ping"]));
    let live = shell.with_key(organization.live.key());
    assert_snapshot!("trigger-live", live.transcript(&["trigger", "mandate.revoked"]));
}

/// A contract's address is random.
fn masked_contract(text: &str) -> String {
    let masked: Vec<String> = text
        .lines()
        .map(|line| if line.starts_with("contract ") { "contract     *".to_owned() } else { line.to_owned() })
        .collect();
    masked.join("\n")
}
