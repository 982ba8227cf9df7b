//! docs/data.md: an export in `DuckDB`, pandas and polars, each as the page says.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Agent, DEADLINE, Ran, TestServer};
use crate::strangers::installed;
use crate::tidy::root;

/// So many rows with whole amounts come first. `DuckDB` guesses types from 20,480.
const WHOLE: usize = 25_000;
const AMOUNT: usize = 7;
const SEQUENCE: usize = 2;

/// The export as CSV of a server on which 40 and 40.5 were allowed: its lines.
fn export(server: &TestServer) -> Vec<String> {
    let organization = server.demo();
    let buyer: Agent = organization.buyer("buyer");
    buyer.ask(40);
    let half = json!({"amount": 40.5, "currency": "USD", "recipient": "vendor:acme", "category": "software"});
    assert_eq!(buyer.client.post("/authorizations", &half).text("/verdict"), "allow");
    let asked = organization.client.post("/exports", &json!({"format": "csv", "agent": "agt_buyer"}));
    let path = format!("/exports/{}", asked.text("/export"));
    let end = Instant::now() + DEADLINE;
    while organization.client.get(&path).text("/status") != "ready" {
        assert!(Instant::now() < end, "the export is not built");
        sleep(Duration::from_millis(50));
    }
    let content = organization.client.send("GET", &path, &[("accept", "text/csv")], "").unwrap();
    assert_eq!(content.status, 200);
    content.body.lines().map(str::to_owned).collect()
}

/// A row with another amount and sequence. None of its cells before these is quoted.
fn row(line: &str, amount: &str, sequence: usize) -> String {
    let mut cells: Vec<_> = line.split(',').map(str::to_owned).collect();
    amount.clone_into(&mut cells[AMOUNT]);
    cells[SEQUENCE] = sequence.to_string();
    cells.join(",")
}

#[test]
fn data_tools_read_an_export_with_exact_money_and_instants() {
    let lines = export(&TestServer::start());
    let header: Vec<_> = lines[0].split(',').collect();
    assert_eq!((header[AMOUNT], header[SEQUENCE], lines.len()), ("amount", "sequence", 3));
    assert!(lines[1].contains(",40.0,USD,") && lines[2].contains(",40.5,USD,"));

    let whole = (1..=WHOLE).map(|sequence| row(&lines[1], "40", sequence));
    let late = ["40.5", "0.00000001", "999999999999999"].iter().zip(WHOLE + 1..);
    let late = late.map(|(amount, sequence)| row(&lines[2], amount, sequence));
    let rows: Vec<_> = [lines[0].clone()].into_iter().chain(whole).chain(late).collect();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("export.csv"), rows.join("\r\n") + "\r\n").unwrap();

    let instant = |line: &str| line.split(',').nth(3).unwrap().replace('Z', "+00:00");
    let wanted = json!([
        WHOLE + 3,
        "1000000001000039.50000001",
        "999999999999999",
        "120",
        "40",
        instant(&lines[1]),
        instant(&lines[2]),
    ]);
    let mut python = Command::new(installed("venv/bin/python"));
    python.arg(root().join("tests/recipes/data.py")).arg(root().join("docs/data.md"));
    let ran = Ran::from(python.current_dir(folder.path()).output().unwrap()).code(0);
    let found: Value = ran.json();
    assert_eq!(found, json!({"DuckDB": wanted, "pandas": wanted, "polars": wanted}));
    assert!(ran.err.is_empty(), "{}", ran.err);
}
