//! `mandate log audit` of an export whose header says that it is not of everything: the operator writes the header.

use super::*;

const SINCE: &str = r#""since":"2000-01-01T00:00:00.000Z","#;
const UNTIL: &str = r#""until":"2100-01-01T00:00:00.000Z","#;

/// What a header says, which lines are kept, and what is named.
type Case<'a> = (&'a str, &'a dyn Fn(usize) -> bool, &'a [&'a str]);

impl Audited {
    /// The lines that are kept, under a header that says this too.
    fn said(&self, header: &str, keep: impl Fn(usize, &str) -> bool) -> Vec<String> {
        let kept = self.lines.iter().enumerate().filter(|(n, line)| keep(*n, line));
        let mut kept: Vec<_> = kept.map(|(_, line)| line.clone()).collect();
        kept[0] = kept[0].replacen(r#"{"export":{"#, &format!(r#"{{"export":{{{header}"#), 1);
        kept
    }

    /// The agent of the last row, and the places of its rows.
    fn last_agent(&self) -> (AgentId, Vec<usize>) {
        let (_, agent, _) = row(&self.lines[self.last()]);
        let is_its = |line: &str| line.starts_with(r#"{"decision""#) && row(line).1 == agent;
        let places = (0..self.lines.len()).filter(|n| is_its(&self.lines[*n])).collect();
        (agent, places)
    }
}

/// A header that says so hides the end of an agent, its beginning, or all of it: it is not said that nothing is missing.
#[test]
fn what_a_header_keeps_from_being_looked_for_is_named() {
    let audited = Audited::new();
    let (_, its) = audited.last_agent();
    let end = "decisions behind the last row of an agent: the export has until";
    let beginning = "decisions before the first row of an agent: the export has since";
    let hidden = "decisions of agents without a row: the export has since or until";
    let others = "decisions of other agents: the export has the filter agent";
    let changes = "missing governing changes: the export has a filter";
    let decisions = "missing decisions: the export has the filter verdict";
    let (both, agent) = (format!("{SINCE}{UNTIL}"), r#""agent":"agt_1","#);
    let (first, last) = (its[0], audited.last());
    let all = |_: usize| true;
    let (no_end, no_beginning) = (|n: usize| n != last, |n: usize| n != first);
    let no_agent = |n: usize| !its.contains(&n);
    let cases: [Case<'_>; 8] = [
        (UNTIL, &all, &[end, hidden]),
        (UNTIL, &no_end, &[end, hidden]),
        (UNTIL, &no_agent, &[end, hidden]),
        (SINCE, &no_beginning, &[beginning, hidden]),
        (SINCE, &no_agent, &[beginning, hidden]),
        (&both, &no_agent, &[beginning, end, hidden]),
        (agent, &no_agent, &[others, changes]),
        (r#""verdict":"allow","#, &no_agent, &[decisions, changes]),
    ];
    for (header, keep, names) in cases {
        let lines = audited.said(header, |n, _| keep(n));
        let ran = audited.watched(&lines, &["--json"]).code(26);
        assert_eq!(summary(&ran)["not_looked_for"], json!(names), "{header}");
        let ran = audited.watched(&lines, &[]).code(26);
        assert!(!ran.out.contains("nothing under your tags is missing"), "{header}: {ran:?}");
        let said = names.iter().fold(ran, |ran, name| ran.shows(&format!("not looked for: {name}\n")));
        said.shows("NOT ALL COMPARED: each row is its entry; what the export leaves out");
        // Without the watch key nothing of this was asked for.
        audited.audit(&lines, &[]).code(0).shows("without --watch-key nothing can be found missing");
    }
}

/// Between its first row and its last an agent has no gap, and governing changes are in an export of any period.
#[test]
fn what_is_missing_within_a_period_is_a_finding() {
    let audited = Audited::new();
    let (agent, its) = audited.last_agent();
    let middle = its[its.len() / 2];
    let changes = audited.lines.iter().filter(|line| line.starts_with(r#"{"governing""#)).count();
    let both = format!("{SINCE}{UNTIL}");
    for header in [SINCE, UNTIL, &both] {
        let found = audited.finds(&audited.said(header, |n, _| n != middle), &[("missing", 1)]);
        let (_, _, sequence) = row(&audited.lines[middle]);
        assert_eq!(found[0]["of"], format!("{agent} sequence {sequence}"), "{header}");
        for number in [1, 4, changes] {
            let (this, of) = (format!(r#","number":{number},"#), format!("change {number}"));
            let found =
                audited.finds(&audited.said(header, |_, line| !line.contains(&this)), &[("missing", 1)]);
            assert_eq!(found[0]["of"], of, "{header}");
        }
    }
    // At its open end an export of a period has everything.
    let found = audited.finds(&audited.said(SINCE, |n, _| n != audited.last()), &[("missing", 1)]);
    assert_eq!(found[0]["index"], json!(audited.log.size() - 1));
    let found = audited.finds(&audited.said(UNTIL, |n, _| n != its[0]), &[("missing", 1)]);
    assert_eq!(found[0]["of"], format!("{agent} sequence 1"));
}
