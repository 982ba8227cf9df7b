//! Lists for finance: CSV that every reader takes alike, all denials, and months.

use serde_json::json;

use super::Shell;
use crate::harness::{TestServer, masked};

#[test]
fn csv_is_read_alike_by_everyone() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    assert_eq!(organization.client.post("/enforcement", &json!({"mode": "observe"})).status, 200);
    let agent = organization.buyer("buyer");
    for (amount, verdict) in [(40, "allow"), (501, "deny_limit")] {
        assert_eq!(agent.ask(amount).text("/verdict"), verdict);
    }
    let csv = shell.run(&["decision", "list", "--format", "csv"]).code(0).out;
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!(
        lines[0],
        "decision,iat,sequence,decided_at,verdict,mode,agent,amount,currency,recipient,category,mandate,policy_version,reason,denials,spent,recent_requests,supersedes,review,review_status,nonce"
    );
    let cells: Vec<&str> = lines[1].split(',').collect();
    assert_eq!(
        (cells[4], cells[7], cells[14], cells[15], lines.len()),
        ("deny_limit", "501.0", "deny_limit", "40.0", 4)
    );
    for instant in [cells[1], cells[3]] {
        assert!(instant.len() == 24 && instant.ends_with('Z') && &instant[10..11] == "T", "{instant}");
    }
    assert!(!csv.contains("eyJ"), "a token is no matter for a spreadsheet");
    let with_token = shell.run(&["decision", "list", "--format", "csv", "--with-token"]).code(0).out;
    assert!(
        with_token.lines().next().unwrap().ends_with(",nonce,verdict_token") && with_token.contains(",eyJ")
    );
    shell.run(&["decision", "list", "--with-token"]).code(2).says("--format csv");

    // The service's own CSV has the same rows, with the token, from the oldest on.
    let export = shell.get(&["export", "create", "--as", "csv", "--jq", ".export"]);
    let file = folder.path().join("all.csv");
    shell.run(&["export", "download", &export, "-o", file.to_str().unwrap()]).code(0);
    let exported = std::fs::read_to_string(file).unwrap();
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&exported), sorted(&with_token));

    let usage = shell.run(&["usage", "--format", "csv"]).code(0).out;
    let lines: Vec<&str> = usage.split("\r\n").collect();
    assert!(lines[0].starts_with("month,agent,currency,requests,allow,review,deny_no_mandate,"), "{usage}");
    let month = &lines[1][..7];
    assert_eq!(lines[1], format!("{month},agt_buyer,USD,2,1,0,0,0,0,1,0,0,40.0,2000.0,1960.0"));

    let export = shell.get(&["export", "create", "--jq", ".export"]);
    let file = folder.path().join("all.ndjson");
    let file = file.to_str().unwrap();
    shell.run(&["export", "download", &export, "-o", file]).code(0);
    let report = shell.run(&["report", file, "--by", "month", "--format", "csv"]).code(0).out;
    let row = format!("{month},agt_buyer,software,per_transaction,1,501.0,USD");
    assert_eq!(report, format!("month,agent,category,rule,requests,amount,currency\r\n{row}\r\n"));
    let json = shell.run(&["report", file, "--by", "month", "--json"]).code(0).json();
    assert_eq!(json["rows"][0]["month"], month);
    assert!(
        shell.run(&["report", file, "--by", "month"]).code(0).out.contains(&format!("{month}  agt_buyer"))
    );
    assert!(!shell.run(&["report", file]).code(0).out.contains(month));
    for args in [&["agent", "list"][..], &["whoami"], &["decision", "show", "dec_01hf7yat000000000000000007"]]
    {
        shell.run(&[args, &["--format", "csv"]].concat()).code(2).says("there is no CSV for this command");
    }
    let export = shell.run(&["export", "create", "--format", "csv"]).code(2);
    assert!(export.err.contains("--as csv is the form of the export"), "{export:?}");
    shell.run(&["usage", "--format", "csv", "--json"]).code(2).says("--format csv is not JSON");
}

#[test]
fn all_denials_are_one_list() {
    let server = TestServer::start();
    let organization = server.demo();
    let shell = Shell::new(&server, &organization);
    let (agent, bare) = (organization.buyer("buyer"), organization.agent("bare"));
    for (asking, amount) in [(&agent, 40), (&agent, 501), (&bare, 7), (&agent, 300), (&agent, 502)] {
        asking.ask(amount);
    }
    let amounts = |args: &[&str]| {
        let args =
            [&["decision", "list", "--jq", "[.[].request.amount] | @json", "--verdict"], args].concat();
        shell.run(&args).code(0).out.trim().to_owned()
    };
    assert_eq!(amounts(&["deny"]), "[502,7,501]");
    assert_eq!(amounts(&["deny", "--agent", "buyer"]), "[502,501]");
    assert_eq!(amounts(&["deny", "--limit", "2"]), "[502,7]");
    assert_eq!(amounts(&["deny", "--since", "24h", "--all"]), "[502,7,501]");
    assert_eq!(amounts(&["deny", "--since", "yesterday", "--until", "today"]), "[]");
    assert_eq!(amounts(&["deny_limit"]), "[502,501]");
    shell
        .run(&["decision", "list", "--verdict", "deny", "--limit", "1"])
        .code(0)
        .says("these are the newest 1;");
    shell.run(&["decision", "list", "--verdict", "denied"]).code(2).says("deny stands for every denial");
    shell.run(&["decision", "list", "--verdict", "deny", "--agent", "nosuch"]).code(33);
    shell.run(&["decision", "list", "--since", "tomorrow"]).code(2).says("such as 24h");
    let tail =
        shell.run(&["decision", "tail", "--verdict", "deny", "-n", "2", "--json=request.amount"]).code(0);
    assert_eq!(masked(&tail.out), "{\"request.amount\":7}\n{\"request.amount\":502}\n");
}
