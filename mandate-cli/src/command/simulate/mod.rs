//! `mandate simulate`: decides recorded requests again under another mandate.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod replay;

use clap::ValueEnum;
use mandate_core::json::Object;
use mandate_core::{AgentId, Mandate};

use self::replay::Change;
pub(super) use self::replay::{Money, Pair, Replay, Simulated};
use crate::exit::{Exit, Failure};
use crate::export::{Reader, read_mandate, walk};
use crate::input::Source;
use crate::mistake;
use crate::named::completed;
use crate::output::Output;
use crate::style::{BOLD, CAUTION, GOOD};
use crate::value::{agent, source};

/// The longest mandate that is read, in bytes: the service's limit.
const MAX_MANDATE_BYTES: usize = 64 * 1024;

/// Replay recorded requests under another mandate, and show which verdicts change
///
/// Each request in the export is evaluated again, in its agent's order of `sequence` and by its own `decided_at`, as if the
/// candidate mandate had governed its agent since the first decision. A month's spending follows from the simulated
/// verdicts; it starts from the recorded spending at the month's first decision. The request rate follows from earlier
/// requests in the export; where requests before the export count too, the recorded rate is used. If the record does not
/// follow from the decisions before it, a warning says that decisions are missing or were changed, and names the first that
/// does not follow. Agents without a candidate are left out. Without any candidate, the recorded mandates are replayed,
/// each for the sequences that it governed, which changes nothing.
///
/// Exports are written in the order of ids, which is each agent's order of `sequence`. Decisions in another order are
/// refused, unless --sort is given: it keeps each decision's position in memory (48 bytes each), and copies standard input
/// to a temporary file.
///
/// --reviews decides what happens to a request that needs a review in the simulation: `as-recorded` approves it if it was
/// approved in the record, at the same time; `approve` approves every one at once; `deny` approves none. An approval waives
/// threshold and velocity, as in production.
///
/// --fail-on exits with code 24: `more-denials` if a request is denied that was not denied before, `more-allows` and
/// `more-reviews` likewise, `more-spent` and `less-spent` if the sum in a currency changes, `any` if anything differs.
#[derive(Debug, clap::Args)]
#[command(after_help = SIMULATE_HELP)]
pub(crate) struct Simulate {
    /// A candidate mandate, as JSON; repeat it for several agents
    #[arg(long, value_name = "FILE|-", value_parser = source)]
    mandate: Vec<Source>,

    /// The export, or `-` for standard input
    #[arg(long, value_name = "EXPORT|-", value_parser = source)]
    decisions: Source,

    /// Simulate only this agent; can be repeated
    #[arg(long, value_name = "AGENT", value_parser = agent, add = completed::<AgentId>())]
    agent: Vec<AgentId>,

    /// What happens to requests that need a review
    #[arg(long, value_enum, default_value = "as-recorded")]
    reviews: Reviews,

    /// Exit with code 24 if this happens; can be repeated
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    fail_on: Vec<FailOn>,

    /// Show every change, not only the first
    #[arg(long)]
    all: bool,

    /// Accept decisions in any order, and sort them by id
    #[arg(long)]
    sort: bool,
}

const SIMULATE_HELP: &str = "\
Examples:
  mandate simulate --mandate candidate.json --decisions export.ndjson
  mandate simulate --mandate candidate.json --decisions export.ndjson \\
      --reviews approve --all
  mandate simulate --mandate candidate.json --decisions export.ndjson \\
      --fail-on more-denials,more-spent
  mandate simulate --decisions export.ndjson --fail-on any
  tac export.ndjson | mandate simulate --mandate candidate.json --decisions - \\
      --sort

Exit codes:
  0 simulated    24 a condition of --fail-on is met    23 the export is refused    30 a candidate is refused";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Reviews {
    Approve,
    Deny,
    AsRecorded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum FailOn {
    Any,
    MoreDenials,
    MoreAllows,
    MoreReviews,
    MoreSpent,
    LessSpent,
}

pub(crate) fn run(args: &Simulate, output: &mut Output) -> Result<Exit, Failure> {
    let candidates = args.mandate.iter().map(candidate).collect::<Result<Vec<_>, _>>()?;
    let mut replay = Replay::new(candidates, &args.agent, args.reviews)?;
    let all = args.all;
    walk(
        Reader::open_in_order(&args.decisions, args.sort)?,
        &args.decisions,
        |prologue| match &prologue.header {
            Some(header) if !header.is_complete() => {
                Err(Failure::new(Exit::Usage, "the export holds the decisions of one verdict only")
                    .next("export the decisions without a filter on the verdict"))
            }
            _ => Ok(()),
        },
        |prologue, line, decision| {
            let change = replay.take(prologue, line, decision)?;
            if let Some(change) = change.filter(|_| all) {
                print_change(&change, output)?;
            }
            Ok(())
        },
    )?;
    let result = replay.conclude();
    if let Some(odd) = &result.inconsistent {
        odd.warn();
    }
    let met = args.fail_on.iter().filter(|what| result.is(**what)).filter_map(ValueEnum::to_possible_value);
    let met: Vec<_> = met.map(|value| value.get_name().to_owned()).collect();
    print(&result, output)?;
    if met.is_empty() {
        return Ok(Exit::Success);
    }
    if !output.is_json() {
        output.text(&format!("{CAUTION}FAILED{CAUTION:#}: {} (--fail-on)\n", met.join(", ")));
    }
    Ok(Exit::Changed)
}

fn candidate(source: &Source) -> Result<Mandate, Failure> {
    let text = source.read("the candidate", MAX_MANDATE_BYTES, Exit::InvalidRequest)?;
    Object::parse_as("mandate", text.as_bytes())
        .and_then(|mandate| read_mandate(mandate, false))
        .map(|mandate| Mandate::new(mandate.id, mandate.terms, mandate.created_at))
        .map_err(|e| mistake::refused("the candidate", source, &text, &e, Exit::InvalidRequest))
}

fn print_change(change: &Change, output: &mut Output) -> Result<(), Failure> {
    if output.is_json() {
        output.json(&serde_json::json!({ "change": change }))?;
    } else {
        output.text(&format!("{change}\n"));
    }
    Ok(())
}

fn print(result: &Simulated, output: &mut Output) -> Result<(), Failure> {
    if output.is_json() {
        output.json(&serde_json::json!({ "summary": result }))?;
        return Ok(());
    }
    output.line("requests", result.requests);
    output.line("approvals", result.approvals);
    if result.without_approval > 0 {
        output.line("", format_args!("{} recorded approvals were not needed", result.without_approval));
    }
    if result.waiting > 0 {
        output.line("waiting", format_args!("{} requests without a resolved review", result.waiting));
    }
    for count in &result.verdicts {
        let style = if count.recorded == count.simulated { anstyle::Style::new() } else { CAUTION };
        output.line(
            "verdicts",
            format_args!(
                "{style}{:<16} -> {:<16} {:>9}{style:#}",
                count.recorded.as_str(),
                count.simulated.as_str(),
                count.count
            ),
        );
    }
    for money in &result.money {
        output.line("money", format_args!("{} {} -> {}", money.currency, money.recorded, money.simulated));
    }
    match &result.first {
        Some(first) => {
            output.line("first change", first);
            output.text(&format!("{BOLD}{} VERDICTS CHANGE{BOLD:#}\n", result.changed));
        }
        None => output.text(&format!("{GOOD}NO VERDICT CHANGES{GOOD:#}\n")),
    }
    Ok(())
}
