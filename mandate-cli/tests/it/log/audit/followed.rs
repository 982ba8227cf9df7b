//! `mandate log audit` where logs have followed one another.

use super::*;

/// All logs are read, beside one another, and a row that is in none of them is named.
#[test]
fn a_row_must_be_in_one_of_the_logs_that_follow_one_another() {
    let mut audited = Audited::new();
    let whole = audited.log.clone();
    let cuts = [0, 1, 2, 3].map(|part| whole.entries.len() * part / 3);
    let mut logs: Vec<TestLog> = Vec::new();
    for (number, cut) in (1..).zip(cuts.windows(2)) {
        let origin = "verdicts.example/log/sandbox";
        let origin = if number == 1 { origin.to_owned() } else { format!("{origin}/{number}") };
        let mut log = TestLog::new(&origin);
        log.entries = whole.entries[cut[0]..cut[1]].to_vec();
        logs.push(log);
    }
    let below = audited.folder.path().join("log");
    // Writes the logs, each of which names the end of the one before. Audits the last.
    let audit = |logs: &[TestLog], audited: &mut Audited, json: &[&str]| {
        let _ = std::fs::remove_dir_all(&below);
        let mut place = below.clone();
        let mut last: Option<TestLog> = None;
        for (number, log) in (1..).zip(logs) {
            let mut log = log.clone();
            if let Some(before) = &last {
                log.entries.insert(0, Entry::OlderLog(before.checkpoint()).to_bytes());
                place = below.join(number.to_string());
            }
            log.write(&place);
            last = Some(log);
        }
        audited.log = last.unwrap();
        let key = write(audited.folder.path(), "watch.key", watch_key().reveal());
        let export = write(audited.folder.path(), "export.ndjson", sealed(&audited.lines));
        let key_of_log = audited.log.verifier();
        let args = ["audit", &export, "--log", place.to_str().unwrap(), "--log-key", &key_of_log];
        ran(log(audited.folder.path(), &[&args[..], &["--watch-key", &key], json].concat()))
    };
    audit(&logs, &mut audited, &[])
        .code(0)
        .shows("older log    verdicts.example/log/sandbox/2\n")
        .shows("NOTHING FOUND");
    // A row that is in no log, and one that is in two.
    let row = audited.lines.iter().position(|line| line.starts_with(r#"{"decision""#)).unwrap();
    let (entry, _) = entry_of(&audited.lines[row]);
    let without = |log: &TestLog| {
        let mut log = log.clone();
        log.entries.retain(|bytes| *bytes != entry.to_bytes());
        log
    };
    let lacking: Vec<_> = logs.iter().map(without).collect();
    let said = audit(&lacking, &mut audited, &["--json"]).code(23);
    assert!(
        said.out.contains(&format!(r#"{{"finding":{{"line":{},"check":"not_logged""#, row + 1)),
        "{said:?}"
    );
    let mut double = logs.clone();
    double[2].push(&entry);
    audit(&double, &mut audited, &[]).code(23).shows("twice");
    // One that an older log has and the export lacks.
    let lines = audited.lines.clone();
    audited.lines.remove(row);
    audit(&logs, &mut audited, &[]).code(23).shows("of verdicts.example/log/sandbox  ").shows("missing");
    audited.lines = lines;
    // An older log that is not whole is compared with nothing, and its rows are named.
    audit(&logs, &mut audited, &[]).code(0);
    let mut short = logs[0].clone();
    short.entries.truncate(9);
    std::fs::write(below.join("checkpoint"), short.checkpoint().to_string()).unwrap();
    let key = audited.log.verifier();
    let export = audited.folder.path().join("export.ndjson");
    let at = below.join("3");
    let args = ["audit", export.to_str().unwrap(), "--log", at.to_str().unwrap(), "--log-key", &key];
    let said = ran(log(audited.folder.path(), &args)).code(26);
    said.shows("not compared: the older log verdicts.example/log/sandbox cannot be read")
        .shows("has 9 of its");
}
