//! What holds of every honest log, whatever happened to machines and clocks.

use std::collections::BTreeMap;
use std::path::Path;

use mandate_core::{Amount, Timestamp, Total};
use serde_json::Value;

use crate::command::{Ran, binary, command};

/// Holds an export of all decisions of an environment (NDJSON) against all that can be computed again: it audits without a
/// finding, `simulate` under the recorded mandates changes nothing, each agent's sequence has no gap, and each recorded
/// basis is the sum of what was before. It was signed as `issuers`, and `keys` is a key set of theirs, a file or a URL.
/// Gives how many decisions there are.
pub fn holds(export: &Path, issuers: &[String], keys: &str) -> usize {
    let path = export.to_str().unwrap();
    let issuers = issuers.iter().flat_map(|issuer| ["--issuer", issuer.as_str()]);
    let audited =
        run(&["audit", path, "--jwks", keys].into_iter().chain(issuers).collect::<Vec<_>>()).code(0);
    assert!(audited.out.contains("NOTHING FOUND"), "{audited:?}");
    let simulated = run(&["simulate", "--decisions", path, "--fail-on", "any", "--json"]).code(0);
    let summary = simulated.json();
    assert!(summary["summary"]["inconsistent"].is_null(), "{summary}");
    in_order(&std::fs::read_to_string(export).unwrap())
}

/// Runs `mandate` by itself.
pub fn run(args: &[&str]) -> Ran {
    command(&binary("mandate"), args).output().unwrap().into()
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
            *spent = spent.plus(Amount::parse(&decision["request"]["amount"].to_string()).unwrap());
        }
    }
    decisions.len()
}
