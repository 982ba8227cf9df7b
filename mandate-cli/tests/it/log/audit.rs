//! `mandate log audit`: an export beside its log, in both directions.

mod followed;
mod period;

use super::*;
use crate::export::{Plan, lines, sealed};
use mandate_core::log::{BlindSecret, decision_record, record_hash};
use mandate_core::{AgentId, DecisionId};
use serde_json::Value;
use serde_json::value::RawValue;

fn base64url(hash: &Hash) -> String {
    base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, hash.as_bytes())
}

fn blinds() -> BlindSecret {
    BlindSecret::new([6; 32])
}

/// The row of a decision's line, with its agent and sequence.
fn row(line: &str) -> (String, AgentId, u64) {
    #[derive(serde::Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        decision: &'a RawValue,
    }
    let row = serde_json::from_str::<Line<'_>>(line).unwrap().decision.get().to_owned();
    let value: Value = serde_json::from_str(&row).unwrap();
    let agent = AgentId::parse(value["request"]["agent"].as_str().unwrap()).unwrap();
    (row, agent, value["sequence"].as_u64().unwrap())
}

/// What the log has of a decision.
fn entry_of(line: &str) -> (Entry, Hash) {
    let (row, agent, sequence) = row(line);
    let value: Value = serde_json::from_str(&row).unwrap();
    let blind = blinds().decision(DecisionId::parse(value["jti"].as_str().unwrap()).unwrap());
    let record = record_hash(&blind, decision_record(&row).unwrap().as_bytes());
    let token = token_hash(value["verdict_token"].as_str().unwrap()).unwrap();
    (Entry::Decision { tag: watch_key().decision(&agent, sequence), token, record }, blind)
}

fn governing_line(number: u64, record: &str) -> (String, Entry) {
    let (random, blind) = (Hash::sha256(format!("random {number}").as_bytes()), blinds().governing(number));
    let hash = record_hash(&blind, record.as_bytes());
    let (text, hidden) = (base64url(&random), base64url(&blind));
    let line = format!(r#"{{"governing":{record},"number":{number},"random":"{text}","blind":"{hidden}"}}"#);
    (line, Entry::Governing { tag: watch_key().governing(number), random, record: hash })
}

/// The record of a governing line.
fn record_of(line: &str) -> String {
    serde_json::from_str::<Value>(line).unwrap()["governing"].to_string()
}

/// An export with its log.
struct Audited {
    folder: tempfile::TempDir,
    lines: Vec<String>,
    log: TestLog,
}

impl Audited {
    fn new() -> Self {
        let written = lines(&Plan::new(400, 3));
        let mut log = TestLog::new("verdicts.example/log/sandbox");
        log.push(&key_event(KeyChange::Published));
        let mut export = Vec::new();
        let mut agents = 0;
        let is_governing = |line: &&String| line.starts_with(r#"{"governing""#);
        let answers: Vec<_> = written.iter().filter(is_governing).map(|line| record_of(line)).collect();
        for line in written.into_iter().filter(|line| !is_governing(&line)) {
            if line.starts_with(r#"{"decision""#) {
                if agents == 0 {
                    // Each agent, one that has decided nothing, and types of a later version.
                    let records = (0..6)
                        .map(|n| format!(r#"{{"type":"agent.created","at":"2026-01-01T00:00:00.000Z","agent":"agt_{n}"}}"#))
                        .chain([r#"{"type":"later","more":{"amount":40.50},"at":"2026-01-01T00:00:00.000Z"}"#.to_owned()])
                        .chain([r#"{"type":"agent.created","at":"2026-01-01T00:00:00.000Z","agent":"agt_idle"}"#.to_owned()])
                        .chain(answers.iter().cloned());
                    for record in records {
                        agents += 1;
                        let (line, entry) = governing_line(agents, &record);
                        export.push(line);
                        log.push(&entry);
                    }
                }
                let (entry, blind) = entry_of(&line);
                log.push(&strange(log.size()));
                log.push(&entry);
                let open = line.strip_suffix('}').unwrap();
                export.push(format!(r#"{open},"blind":"{}"}}"#, base64url(&blind)));
            } else {
                export.push(line);
            }
        }
        Self { folder: tempfile::tempdir().unwrap(), lines: export, log }
    }

    fn audit(&self, lines: &[String], more: &[&str]) -> Ran {
        let path = self.folder.path();
        let _ = std::fs::remove_dir_all(path.join("log"));
        self.log.write(&path.join("log"));
        self.again(lines, more)
    }

    /// Compares with the files that are there.
    fn again(&self, lines: &[String], more: &[&str]) -> Ran {
        let path = self.folder.path();
        let export = write(path, "export.ndjson", sealed(lines));
        let (at, key) = (path.join("log"), self.log.verifier());
        let args = ["audit", &export, "--log", at.to_str().unwrap(), "--log-key", &key];
        ran(log(path, &[&args[..], more].concat()))
    }

    fn watched(&self, lines: &[String], more: &[&str]) -> Ran {
        let key = write(self.folder.path(), "watch.key", watch_key().reveal());
        self.audit(lines, &[&["--watch-key", &key], more].concat())
    }

    /// The checks that find something, each as often as it does.
    #[track_caller]
    fn finds(&self, lines: &[String], expected: &[(&str, u64)]) -> Vec<Value> {
        let ran = self.watched(lines, &["--json"]).code(23);
        let mut said: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let summary = said.pop().unwrap();
        let expected: Value =
            expected.iter().map(|(check, count)| ((*check).to_owned(), json!(count))).collect();
        assert_eq!(summary["summary"]["by_check"], expected, "{said:#?}");
        said.into_iter().map(|mut line| line["finding"].take()).collect()
    }

    fn last(&self) -> usize {
        self.lines.len() - 2
    }
}

#[test]
fn an_export_that_is_its_log_has_no_finding() {
    let audited = Audited::new();
    let of = |kind: &str| audited.lines.iter().filter(|line| line.starts_with(kind)).count();
    let (count, records) = (of(r#"{"decision""#), of(r#"{"governing""#));
    assert!(records > 8, "{records}");
    audited
        .watched(&audited.lines, &[])
        .code(0)
        .shows(&format!("decisions    {count}\ngoverning    {records}\nlogged       {}\n", count + records))
        .shows("nothing under your tags is missing");
    audited.audit(&audited.lines, &[]).code(0).shows("without --watch-key nothing can be found missing");
    // The other readers of exports take the same lines.
    let jwks = write(audited.folder.path(), "jwks.json", crate::export::jwks());
    let export = write(audited.folder.path(), "export.ndjson", sealed(&audited.lines));
    let issuer = crate::export::ISSUER;
    crate::harness::run(&["audit", &export, "--issuer", issuer, "--jwks", &jwks])
        .code(0)
        .shows("NOTHING FOUND");
    crate::harness::run(&["report", &export]).code(0);
    let mut reversed = audited.lines.clone();
    reversed.reverse();
    let reversed = write(audited.folder.path(), "reversed", reversed.join("\n") + "\n");
    for (file, sort) in [(&export, &[][..]), (&reversed, &["--sort"])] {
        crate::harness::run(&[&["simulate", "--decisions", file, "--fail-on", "any"], sort].concat()).code(0);
    }
    let mut misplaced = audited.lines.clone();
    let (line, _) = governing_line(9, r#"{"type":"later"}"#);
    misplaced.insert(audited.last(), line);
    let misplaced = write(audited.folder.path(), "misplaced", sealed(&misplaced));
    crate::harness::run(&["audit", &misplaced, "--issuer", issuer, "--jwks", &jwks])
        .code(23)
        .shows("a governing record among the decisions");
    crate::harness::run(&["simulate", "--decisions", &misplaced]).code(23).says("between decisions");
}

#[test]
fn a_row_that_was_changed_is_not_its_entry() {
    let audited = Audited::new();
    let mut lines = audited.lines.clone();
    let at = audited.last();
    lines[at] = lines[at].replace(r#""recent_requests":"#, r#""recent_requests":1"#);
    let found = audited.finds(&lines, &[("entry", 1)]);
    assert_eq!(found[0]["line"], json!(at + 1));
    assert_eq!(found[0]["found"], "the log has another record of it: the row was changed");
    audited.audit(&lines, &[]).code(23).shows("entry");
    // An answer to a review that came later is no change.
    let mut lines = audited.lines.clone();
    let place = lines.iter().position(|line| line.contains(r#""status":"approved""#)).unwrap();
    lines[place] = lines[place].replace(r#""status":"approved""#, r#""status":"pending""#);
    audited.watched(&lines, &[]).code(0);
    let mut lines = audited.lines.clone();
    let change = lines.iter().position(|line| line.starts_with(r#"{"governing""#)).unwrap();
    lines[change] = lines[change].replace("agt_0", "agt_7");
    audited.finds(&lines, &[("entry", 1)]);
    let mut lines = audited.lines.clone();
    let start = lines[at].find(r#","blind""#).unwrap();
    lines[at] = format!("{}}}", &lines[at][..start]);
    audited.finds(&lines, &[("blind", 1)]);
    lines[at] = lines[at].replace(r#""decision":{"#, r#""decision":{"iss":"twice","#);
    audited.finds(&lines, &[("line", 1), ("missing", 1)]);
}

#[test]
fn nothing_of_the_tenant_is_missing_at_the_end_neither() {
    let audited = Audited::new();
    let last = audited.last();
    let (_, agent, sequence) = row(&audited.lines[last]);
    // In the middle, at the end, all of an agent, and a governing change.
    let without = |keep: &dyn Fn(usize, &str) -> bool| {
        let kept = audited.lines.iter().enumerate().filter(|(n, line)| keep(*n, line));
        kept.map(|(_, line)| line.clone()).collect::<Vec<_>>()
    };
    let found = audited.finds(&without(&|n, _| n != last), &[("missing", 1)]);
    assert_eq!(found[0]["of"], format!("{agent} sequence {sequence}"));
    assert_eq!(found[0]["index"], json!(audited.log.size() - 1));
    let middle = (0..last).rev().find(|n| row(&audited.lines[*n]).1 == agent).unwrap();
    audited.finds(&without(&|n, _| n != middle), &[("missing", 1)]);
    let hidden = without(&|_, line| !line.starts_with(r#"{"decision""#) || row(line).1 != agent);
    let found = audited.finds(&hidden, &[("missing", 1)]);
    assert_eq!(found[0]["of"], format!("{agent} sequence 1"));
    let change = audited.lines.iter().position(|line| line.contains("agt_idle")).unwrap();
    let found = audited.finds(&without(&|n, _| n != change), &[("missing", 1)]);
    assert_eq!(found[0]["of"], "change 8");
    audited.finds(&without(&|n, _| n != change - 1), &[("missing", 1)]);
    // Without the watch key all that is left is its entry.
    audited.audit(&without(&|n, _| n != last), &[]).code(0);
}

#[test]
fn what_the_log_lacks_is_younger_or_a_finding() {
    let mut audited = Audited::new();
    let whole = audited.log.clone();
    // The last entry is missing: it was decided long ago.
    audited.log.entries.pop();
    let last = audited.lines[audited.last()].clone();
    let found = audited.finds(&audited.lines, &[("not_logged", 1)]);
    assert_eq!(found[0]["found"], "the log lacks it, a day after it was decided");
    // As of a checkpoint that no witness has cosigned, nothing says how old it is.
    let checkpoint = write(audited.folder.path(), "cp", audited.log.checkpoint().to_string());
    let asked = ["--checkpoint", &checkpoint, "--json"];
    let said = summary(&audited.watched(&audited.lines, &asked).code(26));
    assert_eq!(said["younger"], 1);
    audited.log = whole.clone();
    // One that was cosigned soon after is from before the day was over, one cosigned later convicts.
    let (_, agent, _) = row(&last);
    let decided: Value = serde_json::from_str(&last).unwrap();
    let decided = decided["decision"]["iat"].as_u64().unwrap();
    let policy = write(audited.folder.path(), "policy", policy_of(&[witness(1)]));
    for (after, code) in [(3_600, 26), (25 * 3_600, 23)] {
        let mut kept = whole.clone();
        kept.entries.pop();
        (kept.witnesses, kept.cosigned) = (vec![witness(1)], decided + after);
        let checkpoint = write(audited.folder.path(), "cp", kept.checkpoint().to_string());
        audited.watched(&audited.lines, &["--checkpoint", &checkpoint, "--policy", &policy]).code(code);
    }
    // A hole is a finding whatever the time.
    let hole = audited
        .lines
        .iter()
        .rposition(|line| line.starts_with(r#"{"decision""#) && *line != last && row(line).1 == agent);
    let (entry, _) = entry_of(&audited.lines[hole.unwrap()]);
    audited.log.entries.retain(|bytes| *bytes != entry.to_bytes());
    let found = audited.finds(&audited.lines, &[("not_logged", 1)]);
    assert_eq!(found[0]["found"], "the log lacks it, although it has later ones");
    // And so is a second entry.
    audited.log = whole;
    audited.log.push(&entry);
    audited.finds(&audited.lines, &[("twice", 1)]);
}

#[test]
fn a_log_that_continues_another_has_the_rest_of_the_rows() {
    let mut audited = Audited::new();
    let whole = audited.log.clone();
    let cut = usize::try_from(whole.size() / 2).unwrap();
    let rows = |ran: Ran| {
        let ran = ran.code(26);
        let named = ran.out.lines().filter(|line| line.starts_with(r#"{"not_compared":{"line":"#)).count();
        let said = ["logged", "younger", "older"].map(|name| summary(&ran)[name].as_u64().unwrap());
        assert_eq!(u64::try_from(named).unwrap(), said[1] + said[2], "each row is named");
        said
    };
    audited.log.entries.truncate(cut);
    let checkpoint = write(audited.folder.path(), "cp", audited.log.checkpoint().to_string());
    let [logged, younger, none] =
        rows(audited.watched(&audited.lines, &["--checkpoint", &checkpoint, "--json"]));
    let mut second = TestLog::new("verdicts.example/log/sandbox/2");
    second.push(&Entry::OlderLog(audited.log.checkpoint()));
    second.entries.extend_from_slice(&whole.entries[cut..]);
    audited.log = second;
    assert_eq!(rows(audited.watched(&audited.lines, &["--json"])), [younger, none, logged]);
    audited
        .watched(&audited.lines, &[])
        .code(26)
        .shows("not compared: the older log verdicts.example/log/sandbox cannot be read: nothing says where it is")
        .shows("NOT ALL COMPARED");
    // A log that has ended has nothing of what came later, which is no finding.
    let second = std::mem::replace(&mut audited.log, whole);
    audited.log.entries.truncate(cut);
    audited.audit(&audited.lines, &[]).code(23);
    let key = SigningKey::new("verdicts.example/log/sandbox/2", KeyKind::Note, &[7; 32]).unwrap();
    write(&audited.folder.path().join("log"), "next", format!("{}\n", key.verifier()));
    let ended = audited.again(&audited.lines, &[]).code(26);
    ended.shows("not compared: the log has ended: compare with verdicts.example/log/sandbox/2");
    audited.log = second;
    // A hole behind its beginning is one all the same.
    audited.log.entries.remove(cut / 2);
    audited.log.entries.remove(cut / 2);
    audited.finds(&audited.lines, &[("not_logged", 1)]);
}

/// The last line that an audit says.
fn summary(ran: &Ran) -> Value {
    let last = ran.out.lines().last().unwrap();
    serde_json::from_str::<Value>(last).unwrap()["summary"].take()
}

/// Of another environment, or with none of the rows: nothing was found because nothing was compared.
#[test]
fn an_audit_that_has_compared_nothing_says_so() {
    let mut audited = Audited::new();
    // Long before the export, by a checkpoint that says no time: the rows are younger for ever.
    let whole = audited.log.clone();
    audited.log.entries.truncate(1);
    let checkpoint = write(audited.folder.path(), "cp", audited.log.checkpoint().to_string());
    let asked = ["--checkpoint", &checkpoint];
    audited
        .watched(&audited.lines, &asked)
        .code(26)
        .shows("nothing found in 0 of")
        .shows("not compared: it is not in the log as far as that was read");
    // As long as the log has them, whatever the checkpoint, they are compared; and once it goes on without them, they are due.
    audited.log = whole.clone();
    audited.log.entries.retain(|bytes| !matches!(Entry::parse(bytes), Ok(Entry::Governing { .. })));
    audited.log.entries.truncate(10);
    audited.watched(&audited.lines, &asked).code(23).shows("a day after it was decided");
    // The watch key of another environment finds nothing missing.
    audited.log = whole;
    let other = write(audited.folder.path(), "other.key", WatchKey::new([6; 32]).reveal());
    audited
        .audit(&audited.lines, &["--watch-key", &other])
        .code(2)
        .says("is not that of the export's environment");
    let asked = ["--watch-key", &other, "--checkpoint", &checkpoint];
    audited.audit(&audited.lines, &asked).code(2).says("is not that of the export's environment");
    // So does the log of another kind of environment.
    audited.log.key = SigningKey::new("verdicts.example/log/production/2", KeyKind::Note, &[7; 32]).unwrap();
    audited
        .watched(&audited.lines, &[])
        .code(2)
        .says("the export is of the environment sandbox")
        .says("--sandbox");
    // An export of nothing is compared with nothing.
    let audited = Audited::new();
    let header_and_trailer = [audited.lines[0].clone(), audited.lines[audited.last() + 1].clone()];
    audited.audit(&header_and_trailer, &[]).code(26).shows("NOTHING COMPARED");
}

/// In a log that is in use rows come between the checkpoint and the export.
#[test]
fn rows_are_looked_for_up_to_the_newest_checkpoint() {
    let mut audited = Audited::new();
    let whole = audited.log.clone();
    let mut early = whole.clone();
    early.entries.truncate(usize::try_from(whole.size() / 2).unwrap());
    let checkpoint = write(audited.folder.path(), "cp", early.checkpoint().to_string());
    let asked = ["--checkpoint", &checkpoint];
    let compared = audited.watched(&audited.lines, &asked).code(0);
    compared.shows(&format!("entries      {}\n", whole.size())).shows("younger      0\n");
    // The export need not have what came after the checkpoint, but must have what was there.
    let last = audited.last();
    let without = |at: usize| {
        let mut lines = audited.lines.clone();
        lines.remove(at);
        lines
    };
    audited.watched(&without(last), &asked).code(0);
    audited.finds(&without(last), &[("missing", 1)]);
    let first = audited.lines.iter().position(|line| line.starts_with(r#"{"decision""#)).unwrap();
    audited.watched(&without(first), &asked).code(23).shows("missing");
    // One that was slipped in behind later ones is a finding, as is a log that does not continue the checkpoint.
    let mut slipped = whole.clone();
    let (entry, _) = entry_of(&audited.lines[first]);
    slipped.entries.retain(|bytes| *bytes != entry.to_bytes());
    let early = slipped.clone();
    slipped.push(&entry);
    let slipped_to = write(audited.folder.path(), "early", early.checkpoint().to_string());
    audited.log = slipped;
    let asked = ["--checkpoint", &slipped_to];
    audited.watched(&audited.lines, &asked).code(23).shows("although it has later ones");
    // The entries are those of the checkpoint, and the newest checkpoint is that of others.
    let mut kept = whole.clone();
    kept.entries.truncate(512);
    let checkpoint = write(audited.folder.path(), "cp", kept.checkpoint().to_string());
    audited.log = whole.clone();
    audited.log.entries[3] = strange(77_777).to_bytes();
    audited.log.write(&audited.folder.path().join("log"));
    for (path, bytes) in kept.files().into_iter().filter(|(path, _)| path.starts_with("tile/entries/")) {
        std::fs::write(audited.folder.path().join("log").join(path), bytes).unwrap();
    }
    let forked = audited.again(&audited.lines, &["--checkpoint", &checkpoint]).code(52);
    forked.says("do not begin with the 512 of the checkpoint");
}

/// The row's agent or number was changed, and its token was not.
#[test]
fn a_row_under_another_tag_is_a_finding() {
    let mut audited = Audited::new();
    let last = audited.lines[audited.last()].clone();
    let (entry, _) = entry_of(&last);
    let place = audited.log.entries.iter().position(|bytes| *bytes == entry.to_bytes()).unwrap();
    let Entry::Decision { token, record, .. } = entry else { panic!() };
    audited.log.entries[place] = Entry::Decision { tag: Hash::sha256(b"other"), token, record }.to_bytes();
    let found = audited.finds(&audited.lines, &[("tag", 1)]);
    assert_eq!(found[0]["index"], json!(place));
}

#[test]
fn a_log_that_is_not_what_it_has_signed_is_compared_with_nothing() {
    let audited = Audited::new();
    let mut other = audited.log.clone();
    other.entries[3] = strange(77_777).to_bytes();
    let checkpoint = write(audited.folder.path(), "cp", other.checkpoint().to_string());
    audited.watched(&audited.lines, &["--checkpoint", &checkpoint]).code(51).says("(root)");
    let text = audited.log.checkpoint().to_string();
    let checkpoint = write(audited.folder.path(), "cp", text.replacen("verdicts", "others", 1));
    audited.watched(&audited.lines, &["--checkpoint", &checkpoint]).code(51).says("(origin)");
    audited.watched(&audited.lines[1..], &[]).code(23).says("is no export");
    let empty = write(audited.folder.path(), "empty", "");
    let at = audited.folder.path().join("log");
    let key = audited.log.verifier();
    let args = ["audit", &empty, "--log", at.to_str().unwrap(), "--log-key", &key];
    ran(log(audited.folder.path(), &args)).code(23).says("it is empty");
}

/// A number that was made up is a finding, and takes no more memory than any other.
#[test]
fn a_gap_without_an_end_is_a_finding() {
    let audited = Audited::new();
    let mut lines = audited.lines.clone();
    let text = r#"{"type":"agent.created","at":"2026-01-01T00:00:00.000Z","agent":"agt_far"}"#;
    lines.insert(audited.last(), governing_line(9_000_000_000_000, text).0);
    let ran = audited.watched(&lines, &["--json"]).code(23);
    let gap = ran.out.lines().find(|line| line.contains(r#""check":"gap""#)).unwrap();
    let there = audited.lines.iter().filter(|line| line.starts_with(r#"{"governing""#)).count();
    let absent = 8_999_998_999_999 - there;
    assert!(gap.contains(&format!("{absent} more numbers are absent")), "{gap}");
}
