//! What holds of every honest log, whatever happened to machines and clocks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use mandate_core::{Timestamp, Total};
use serde_json::{Value, json};

use super::client::Client;
use super::command::{Ran, mandate};

/// How long an export may take to be built.
const PATIENCE_SECONDS: u64 = 60;

/// Holds a database and the log of an environment against all that can be computed again: `check` is sound, the export
/// audits without a finding, `simulate` under the recorded mandates changes nothing, each agent's sequence has no gap, and
/// each recorded basis is the sum of what was before. It was signed as `issuers`, and `keys` is where their keys
/// are. Gives how many decisions there are.
pub(crate) fn holds(
    operate: impl Fn(&[&str]) -> Ran,
    organization: &Client,
    (issuers, keys): (&[String], &str),
) -> usize {
    let checked = operate(&["check"]);
    assert_eq!(checked.code(0).out, "sound\n");
    let folder = tempfile::tempdir().unwrap();
    let export = export(organization, folder.path());
    let path = export.to_str().unwrap();
    let issuers = issuers.iter().flat_map(|issuer| ["--issuer", issuer.as_str()]);
    let audited =
        run(&["audit", path, "--jwks", keys].into_iter().chain(issuers).collect::<Vec<_>>()).code(0);
    assert!(audited.out.contains("NOTHING FOUND"), "{audited:?}");
    let simulated = run(&["simulate", "--decisions", path, "--fail-on", "any", "--json"]).code(0);
    let summary: Value = serde_json::from_str(&simulated.out).unwrap();
    assert!(summary["summary"]["inconsistent"].is_null(), "{summary}");
    in_order(&std::fs::read_to_string(&export).unwrap())
}

/// Has all decisions exported, and downloads them.
pub(crate) fn export(organization: &Client, folder: &Path) -> PathBuf {
    let id = organization.post("/exports", &json!({"format": "ndjson"})).text("/export");
    let path = format!("/exports/{id}");
    let start = Instant::now();
    while organization.get(&path).text("/status") != "ready" {
        assert!(start.elapsed().as_secs() < PATIENCE_SECONDS);
        std::thread::yield_now();
    }
    let answer = organization.send("GET", &path, &[("accept", "application/x-ndjson")], "").unwrap();
    let file = folder.join("export.ndjson");
    std::fs::write(&file, answer.body).unwrap();
    file
}

/// Runs `mandate` by itself.
pub(crate) fn run(args: &[&str]) -> Ran {
    mandate(args).output().unwrap().into()
}

/// Sequences without a gap, and each basis the sum of what was before.
fn in_order(text: &str) -> usize {
    let (mut sequences, mut spent) = (BTreeMap::<String, u64>::new(), BTreeMap::<_, Total>::new());
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let decisions: Vec<_> = rows.filter(|row| row["decision"].is_object()).collect();
    for row in &decisions {
        let decision = &row["decision"];
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let (agent, currency) = (word(&decision["request"]["agent"]), word(&decision["request"]["currency"]));
        let sequence = sequences.entry(agent.clone()).or_default();
        *sequence += 1;
        assert_eq!(decision["sequence"], *sequence, "{decision}");
        let at = Timestamp::parse(&word(&decision["decided_at"])).unwrap();
        assert_eq!(decision["iat"], at.seconds());
        let spent = spent.entry((agent, currency, at.month())).or_default();
        assert_eq!(Total::parse(&decision["basis"]["spent"].to_string()).unwrap(), *spent, "{decision}");
        if decision["verdict"] == "allow" {
            *spent =
                spent.plus(mandate_core::Amount::parse(&decision["request"]["amount"].to_string()).unwrap());
        }
    }
    decisions.len()
}
