//! `mandate audit`: verifies an export line by line and as a whole, and computes every verdict again.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod answers;
mod auditor;
mod basis;
mod chain;
mod granted;
mod keys;
mod nonces;
mod parts;
mod ranges;
mod records;
mod row;
mod trailer;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use mandate_core::{AgentId, DecisionId, EnvironmentKind};
use serde::Serialize;

use self::answers::ByPerson;
use self::auditor::Auditor;
use self::chain::Chain;
use self::nonces::Nonces;
use self::parts::Part;
use self::records::{Answered, NotCompared};
use self::row::Audited;
use self::trailer::Trailer;
use crate::command::verify::SANDBOX;
use crate::exit::{Exit, Failure};
use crate::export::{Decision, Header, History, Mandates, People, Prologue, Raw, Reader};
use crate::global::Global;
use crate::input::Source;
use crate::lines::unreadable;
use crate::output::Output;
use crate::parallel;
use crate::style::{ERROR, GOOD, printable};
use crate::value::source;

/// Verify an export: every signature, every verdict, the order and the trailer
///
/// Reads the file once, on all cores; the memory it takes grows with the agents and mandates, with the answers to reviews, and
/// with the approvals whose decision is yet to come, not with the decisions. For each decision it verifies the token's signature, compares the row
/// with the token, checks that its mandate governed it and was revoked or not, and computes verdict, denials and reason
/// again from the mandate and the recorded basis. Across decisions it goes by each agent's `sequence`: it finds a gap, a
/// repetition, an id or a mandate out of order, an approval without the decision it supersedes, and a nonce that appears
/// twice within 65,536 decisions or does not hold its decision's `decided_at`. It computes the month's spending and the
/// recent requests again, and checks the trailer's count, hash and signature. Clocks that stepped cause no finding: there
/// is no tolerance, and no need of one.
///
/// Where a person has answered a review, or stopped an agent, it makes the signed statement again from the decision,
/// compares it with the one that was signed, and verifies the signature of the person's passkey, which must have been
/// enrolled before and not withdrawn; the statement must not have expired. What a row says of its review's answer is compared
/// with the governing record of it, in both directions: status, time, who answered and what was signed. Each mandate is
/// compared with its governing records: terms, sequences, replacement and revocation. The summary lists the answers of each
/// person, by the name under which their passkey was enrolled, and says what was not compared: an export of one agent or
/// verdict has no governing records of answers, and one of a period has records of decisions that are not in it. A passkey
/// shows no digits: its signature does not prove what a page displayed.
///
/// An export with a filter on the verdict has gaps; its sequences need only ascend. An export with `since` lacks what was
/// before: the first decision of each agent, and its recent requests for a minute, are taken as recorded. The summary says
/// how many decisions rest on such openings. What an export cannot show is a lost end: that decisions after an agent's last
/// one are missing. Pass it together with later exports, each of which begins (`since`) where the one before it ends
/// (`until`): then a decision that is in neither is a gap. The first line of an export without `until` names its last
/// decision, which must be there.
///
/// Each finding is one line: the place, the decision, its agent and sequence, the check, what was found and what was
/// expected. Retired keys are no longer published: pass their key sets with --jwks, as often as needed. Without --jwks, the
/// keys of --issuer are fetched. With --json, each finding is a JSON object on its own line, and the last line is the
/// summary.
#[derive(Debug, clap::Args)]
#[command(after_help = AUDIT_HELP)]
pub(crate) struct Audit {
    /// The export, or `-` for standard input; exports of adjoining periods, the oldest first, are audited as one
    #[arg(value_name = "EXPORT|-", value_parser = source, required = true)]
    exports: Vec<Source>,

    /// The issuer that signed; repeat it if the issuer has had several addresses [env: MANDATE_ISSUER; default: from the profile]
    #[arg(long, value_name = "URL")]
    issuer: Vec<String>,

    /// A key set; can be repeated [default: {issuer}/.well-known/jwks.json]
    #[arg(long, value_name = "FILE|URL")]
    jwks: Vec<String>,
}

const AUDIT_HELP: &str = "\
Examples:
  mandate audit export.ndjson --issuer https://verdicts.example.com
  mandate audit export.ndjson --issuer https://verdicts.example.com \\
      --jwks jwks.json --jwks retired.json
  mandate audit may.ndjson june.ndjson --issuer https://verdicts.example.com
  mandate audit - --issuer https://verdicts.example.com --json < export.ndjson

Exit codes:
  0 nothing found    23 findings, or no export    19 no key set    2 usage    3 cannot be read";

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Which of several exports.
    #[serde(skip_serializing_if = "Option::is_none")]
    export: Option<String>,
    line: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<AgentId>,
    /// Which of the agent's decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    check: &'static str,
    found: String,
    expected: String,
}

impl Finding {
    #[expect(clippy::needless_pass_by_value, reason = "so that texts are formatted where they are needed")]
    fn new(
        line: u64,
        id: Option<&dyn ToString>,
        check: &'static str,
        found: impl ToString,
        expected: impl ToString,
    ) -> Self {
        let id = id.map(ToString::to_string);
        let (found, expected) = (found.to_string(), expected.to_string());
        Self { export: None, line, id, agent: None, sequence: None, check, found, expected }
    }

    /// Names the agent, and which of its decisions.
    fn of(self, agent: &AgentId, sequence: u64) -> Self {
        Self { agent: Some(agent.clone()), sequence: Some(sequence), ..self }
    }
}

/// A decision, its line, and the findings about it.
struct Step<'a> {
    line: u64,
    decision: &'a Decision,
    /// What one export of all periods would have.
    header: Option<&'a Header>,
    /// The header of the export that it is in.
    part: Option<&'a Header>,
    /// The governing records, and the number of the newest one that this export has.
    people: &'a People,
    newest: u64,
    findings: &'a mut Vec<Finding>,
}

impl Step<'_> {
    /// Whether all exports have the decision `fresh`, which this one names, if its id is in their periods. A later export
    /// without an end may have been written before: then its last decision is an earlier one.
    fn is_bounded_behind(&self, fresh: DecisionId) -> bool {
        let ends = |header: Option<&Header>| header.is_none_or(|header| header.until.is_some());
        ends(self.header)
            || !ends(self.part)
            || self.part.is_some_and(|part| part.covers(fresh.created_at()))
            || self.header.and_then(|header| header.last) >= Some(fresh)
    }

    /// Whether its export has the governing record of the approval of `original` that led to it, if it has such records.
    fn is_approved_by_record(&self, original: DecisionId) -> bool {
        !self.part.is_none_or(Header::has_all_records)
            || self.people.has_approved(original, self.decision.claims.jti, self.newest)
    }

    /// Adds a finding about the decision.
    fn found(&mut self, check: &'static str, found: impl ToString, expected: impl ToString) {
        let claims = &self.decision.claims;
        let finding = Finding::new(self.line, Some(&claims.jti), check, found, expected);
        self.findings.push(finding.of(&claims.request.agent, self.decision.sequence));
    }
}

#[derive(Debug, Default, Serialize)]
struct Summary {
    /// `sandbox` or `production`, from the export's header.
    #[serde(skip_serializing_if = "Option::is_none")]
    environment: Option<String>,
    decisions: u64,
    mandates: usize,
    /// Approvals of decisions that their export does not hold.
    outside: u64,
    /// Decisions whose basis was taken as recorded, since it rests on decisions before the export.
    openings: u64,
    #[serde(flatten)]
    not_compared: NotCompared,
    /// The answers of each person.
    #[serde(skip_serializing_if = "ByPerson::is_empty")]
    people: ByPerson,
    findings: u64,
    by_check: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum OutputLine<'a> {
    Finding(&'a Finding),
    Summary(&'a Summary),
}

/// The state of all exports as one, updated line by line.
struct Whole<'a> {
    /// What one export of all periods would have.
    header: Option<&'a Header>,
    people: &'a People,
    /// The header of the export that is being read, the number of its newest governing record, its name where there are
    /// several, and how many decisions were before it.
    part: Option<&'a Header>,
    newest: u64,
    export: Option<String>,
    before: u64,
    answered: Answered,
    history: History,
    chain: Chain,
    nonces: Nonces,
    trailer: Trailer,
    summary: Summary,
}

pub(crate) fn run(args: &Audit, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
    let (issuers, keys) = keys::of(args, global)?;
    let parts = Part::open_all(&args.exports)?;
    let header = parts::spanning(&parts);
    let names: Vec<_> = parts.iter().map(|part| part.source.to_string()).collect();
    let names = if names.len() > 1 { names } else { Vec::new() };
    let (mut headers, mut read, mut of_parts, mut sequences) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut records = Vec::new();
    for Part { source, reader, prologue: Prologue { header, mandates, people, newest } } in parts {
        records.extend(people);
        sequences.extend(ranges::named(&mandates, header.as_ref()));
        headers.push((header, newest));
        of_parts.push(mandates);
        read.push((source, reader));
    }
    let people = People::of_records(records);
    let unlike = granted::of_parts(&of_parts, &headers, &people);
    let (mandates, contradictions) = Mandates::join(of_parts);
    let mut whole = Whole::new(header.as_ref(), &people);
    whole.summary.mandates = mandates.len();
    let in_parts = ranges::check(&mandates, &contradictions, &names);
    for (part, finding) in in_parts.into_iter().chain(unlike) {
        whole.export = names.get(part).cloned();
        whole.print(vec![finding], output)?;
    }
    whole.summary.people.stops(&people);
    whole.export = None;
    whole.print(records::contradictions(&people), output)?;
    whole.print(answers::of_stops(&people, &issuers, header.as_ref()), output)?;
    for (number, ((source, reader), (header, newest))) in read.into_iter().zip(&headers).enumerate() {
        whole.begin(header.as_ref(), *newest, names.get(number).cloned());
        if header.is_none() {
            let expected = "a header line with the filters of the export";
            whole.print(vec![Finding::new(1, None, "export", "no header", expected)], output)?;
        }
        let (header, mandates, people, newest) = (header.as_ref(), &mandates, &people, *newest);
        let auditor = Auditor { issuers: &issuers, keys: &keys, header, mandates, people, newest };
        audit(reader, source, &auditor, &mut whole, output)?;
        let rest = whole.end_part();
        whole.print(rest, output)?;
    }
    let rest = ranges::beyond(&sequences, &whole.history);
    whole.print(rest, output)?;
    whole.export = None;
    let rest = whole.end();
    whole.print(rest, output)?;
    whole.conclude(output)
}

/// Audits the decisions of an export.
fn audit(
    reader: Reader,
    source: &Source,
    auditor: &Auditor<'_>,
    whole: &mut Whole<'_>,
    output: &mut Output,
) -> Result<(), Failure> {
    let progress = reader.progress();
    let mut ended = Ok(());
    let work = |block: std::io::Result<Vec<Raw>>| {
        block.map(|rows| rows.iter().map(|raw| auditor.audit(raw)).collect::<Vec<_>>())
    };
    parallel::ordered(reader.blocks(), work, |block| match block {
        Ok(rows) => {
            for row in rows {
                let findings = whole.take(row);
                if !findings.is_empty()
                    && let Err(failure) = progress.suspend(|| whole.print(findings, output))
                {
                    ended = Err(failure);
                    return ControlFlow::Break(());
                }
            }
            if output.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        Err(e) => {
            ended = Err(unreadable("the export", source, &e));
            ControlFlow::Break(())
        }
    });
    progress.finish_and_clear();
    ended
}

impl<'a> Whole<'a> {
    fn new(header: Option<&'a Header>, people: &'a People) -> Self {
        Self {
            header,
            people,
            part: None,
            newest: 0,
            answered: Answered::default(),
            export: None,
            before: 0,
            history: History::new(header),
            chain: Chain::default(),
            nonces: Nonces::default(),
            trailer: Trailer::default(),
            summary: Summary {
                environment: header.map(|header| header.environment.clone()),
                ..Summary::default()
            },
        }
    }

    /// Goes on with the next export; its name is printed where there are several.
    fn begin(&mut self, header: Option<&'a Header>, newest: u64, export: Option<String>) {
        (self.part, self.newest, self.export) = (header, newest, export);
        self.before = self.summary.decisions;
        self.answered.begin(newest);
        self.trailer = Trailer::default();
    }

    /// The findings for one more line.
    fn take(&mut self, row: Audited) -> Vec<Finding> {
        let Audited { line, decision, trailer, mut findings } = row;
        self.trailer.passed(line, trailer.is_some(), &mut findings);
        if let Some(decision) = decision {
            self.summary.decisions = self.summary.decisions.saturating_add(1);
            let (header, part) = (self.header, self.part);
            let (people, newest) = (self.people, self.newest);
            let mut step =
                Step { line, decision: &decision, header, part, people, newest, findings: &mut findings };
            self.summary.people.take(&decision, self.people, self.newest);
            self.answered.take(&decision, self.part, &mut self.summary.not_compared);
            let follows = self.history.take(&decision);
            if self.chain.take(&mut step, &follows) {
                self.nonces.take(&mut step);
                basis::compare(&mut step, &follows);
                let rests = u64::from(follows.rests_on_openings());
                self.summary.openings = self.summary.openings.saturating_add(rests);
            }
        }
        if let Some(sealed) = trailer {
            let decisions = self.summary.decisions.saturating_sub(self.before);
            sealed.compare(line, self.part, decisions, &mut findings);
        }
        findings
    }

    /// At the end of an export.
    fn end_part(&mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.trailer.end(&mut findings);
        findings
    }

    /// At the end of all.
    fn end(&mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.chain.end(self.header, &self.history, &mut findings);
        self.summary.outside = self.chain.outside();
        findings.extend(self.answered.end(self.people, self.header, &mut self.summary.not_compared));
        findings
    }

    fn print(&mut self, findings: Vec<Finding>, output: &mut Output) -> Result<(), Failure> {
        for finding in findings {
            let finding = Finding { export: self.export.clone(), ..finding };
            self.summary.findings = self.summary.findings.saturating_add(1);
            let count = self.summary.by_check.entry(finding.check).or_default();
            *count = count.saturating_add(1);
            if output.is_json() {
                output.json(&OutputLine::Finding(&finding))?;
                continue;
            }
            let Finding { export, line, id, agent, sequence, check, found, expected } = &finding;
            let export =
                export.as_deref().map(|export| format!("{}  ", printable(export))).unwrap_or_default();
            let id = id.as_deref().map(|id| format!("{}  ", printable(id))).unwrap_or_default();
            let of = agent.as_ref().zip(*sequence);
            let of = of.map(|(agent, sequence)| format!("{agent} sequence {sequence}  ")).unwrap_or_default();
            output.text(&format!(
                "{export}line {line}  {id}{of}{ERROR}{check}{ERROR:#}: found {}; expected {}\n",
                printable(found),
                printable(expected)
            ));
        }
        Ok(())
    }

    fn conclude(&self, output: &mut Output) -> Result<Exit, Failure> {
        let Summary { environment, decisions, mandates, outside, openings, findings, by_check, .. } =
            &self.summary;
        if output.is_json() {
            output.json(&OutputLine::Summary(&self.summary))?;
        } else {
            if let Some(environment) = environment {
                let sandbox = environment == EnvironmentKind::Sandbox.as_str();
                output.line("environment", if sandbox { SANDBOX.into() } else { printable(environment) });
            }
            output.line("decisions", decisions);
            output.line("mandates", mandates);
            if *outside > 0 {
                output.line(
                    "outside",
                    format_args!("{outside} approvals of decisions that their export does not hold"),
                );
            }
            if *openings > 0 {
                output.line(
                    "openings",
                    format_args!("{openings} decisions rest on what was before the export"),
                );
            }
            self.summary.not_compared.print(output);
            self.summary.people.print(output);
            if *findings == 0 {
                output
                    .text(&format!("{GOOD}NOTHING FOUND{GOOD:#}: every signature and every verdict holds\n"));
            } else {
                let checks: Vec<_> =
                    by_check.iter().map(|(check, count)| format!("{check} {count}")).collect();
                output.text(&format!("{ERROR}{findings} FINDINGS{ERROR:#}: {}\n", checks.join(", ")));
            }
        }
        Ok(if *findings == 0 { Exit::Success } else { Exit::Findings })
    }
}
