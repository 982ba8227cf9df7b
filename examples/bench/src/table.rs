//! What was measured, as tables in Markdown: on the terminal, and in docs/performance.md between two marks.

use std::fmt::Write as _;
use std::path::Path;

use crate::decisions::{Row, Starts};
use crate::figures::{Report, median, over, ratio};
use crate::log::Length;
use crate::{Args, Failure};

const MIB: f64 = 1024.0 * 1024.0;

/// The tables of the part `decisions`.
pub(crate) fn decisions(args: &Args, rows: &[Row], starts: &Starts) -> Result<String, Failure> {
    let mut text = conditions(args, rows.iter().flat_map(|row| &row.rounds));
    loads(&mut text, rows)?;
    writeln!(text)?;
    start(&mut text, starts, "no decision")?;
    Ok(text)
}

/// The tables of the part `log`.
pub(crate) fn log(args: &Args, short: &Length, long: &Length) -> Result<String, Failure> {
    let mut text = conditions(args, short.rounds.iter().chain(&long.rounds));
    lengths(&mut text, short, long)?;
    Ok(text)
}

/// Puts `text` between the marks of `name` in a document.
pub(crate) fn write(document: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let old = std::fs::read_to_string(document)?;
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let marks = || format!("{} has no marks for {name}", document.display());
    let (before, rest) = old.split_once(&begin).ok_or_else(marks)?;
    let (_, after) = rest.split_once(&end).ok_or_else(marks)?;
    std::fs::write(document, format!("{before}{begin}\n{text}\n{end}{after}"))?;
    Ok(())
}

/// The conditions of the measurement, and the load of other processes.
fn conditions<'a>(args: &Args, reports: impl Iterator<Item = &'a Report>) -> String {
    let reports: Vec<&Report> = reports.collect();
    let elsewhere = median(reports.iter().map(|report| report.processors_busy_elsewhere));
    let client = median(reports.iter().map(|report| report.client_cpu_microseconds_per_request));
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "Medians of {} rounds of {} seconds, ratios round by round; {processors} processors, nothing pinned, the client beside\n\
         the server ({client:.0} µs of processor time a request); {elsewhere:.2} processors were busy with something else.\n\n",
        args.rounds(),
        args.seconds()
    )
}

fn loads(text: &mut String, rows: &[Row]) -> Result<(), Failure> {
    writeln!(
        text,
        "| Load | | Requests/s | of the ceiling | p50 ms | p99 ms | p99 of the ceiling's | CPU µs a request | of the ceiling's | Peak MiB |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|---|---|---|")?;
    for row in rows {
        let ceiling =
            rows.iter().find(|other| other.scenario == row.scenario && other.contender == "ceiling");
        let Some(ceiling) = ceiling else { continue };
        if !row.rounds.iter().all(Report::kept_pace) {
            writeln!(
                text,
                "| {} | {} | does not keep the pace | | | | | | | |",
                row.scenario, row.contender
            )?;
            continue;
        }
        let of_ceiling = |figure: fn(&Report) -> f64| ratio(&row.rounds, &ceiling.rounds, figure);
        writeln!(
            text,
            "| {} | {} | {:.0} | {:.2} | {:.1} | {:.1} | {:.1} | {:.0} | {:.1} | {:.0} |",
            row.scenario,
            row.contender,
            over(&row.rounds, |r| r.requests_per_second),
            of_ceiling(|r| r.requests_per_second),
            over(&row.rounds, |r| r.p50_microseconds) / 1e3,
            over(&row.rounds, |r| r.p99_microseconds) / 1e3,
            of_ceiling(|r| r.p99_microseconds),
            over(&row.rounds, |r| r.server_cpu_microseconds_per_request),
            of_ceiling(|r| r.server_cpu_microseconds_per_request),
            over(&row.rounds, |r| r.server_peak_bytes) / MIB,
        )?;
    }
    writeln!(text)?;
    for mandate in rows.iter().filter(|row| row.contender == "mandate") {
        let plain = rows.iter().find(|row| row.contender == "plain" && row.scenario == mandate.scenario);
        if let Some(plain) = plain {
            let times = ratio(&mandate.rounds, &plain.rounds, |r| r.requests_per_second);
            writeln!(
                text,
                "- {}: mandate makes {times:.1} times the decisions of *plain*.",
                mandate.scenario
            )?;
        }
    }
    Ok(())
}

fn start(text: &mut String, starts: &Starts, log: &str) -> Result<(), Failure> {
    writeln!(
        text,
        "- With {log} in the log: {:.0} ms from the start of the process to its first decision; {:.0} MiB held then.",
        starts.milliseconds(),
        starts.idle_bytes() / MIB
    )?;
    Ok(())
}

fn lengths(text: &mut String, short: &Length, long: &Length) -> Result<(), Failure> {
    writeln!(
        text,
        "| With the log at | {} decisions | {} decisions | speed kept |",
        short.decisions, long.decisions
    )?;
    writeln!(text, "|---|---|---|---|")?;
    let speed = |length: &Length| over(&length.rounds, |r| r.requests_per_second);
    let kept = ratio(&long.rounds, &short.rounds, |r| r.requests_per_second);
    writeln!(text, "| decisions/s, 64 connections | {:.0} | {:.0} | {kept:.2} |", speed(short), speed(long))?;
    let p99 = |length: &Length| over(&length.rounds, |r| r.p99_microseconds) / 1e3;
    let kept = ratio(&short.rounds, &long.rounds, |r| r.p99_microseconds);
    writeln!(text, "| p99 of these, ms | {:.1} | {:.1} | {kept:.2} |", p99(short), p99(long))?;
    for (one, other) in short.pages.iter().zip(&long.pages) {
        let (before, after) = (one.milliseconds(), other.milliseconds());
        let (list, which) = (one.list, one.which);
        let kept = one.of(other);
        writeln!(text, "| {which} page of `/{list}`, ms | {before:.2} | {after:.2} | {kept:.2} |")?;
    }
    let peak = |length: &Length| over(&length.rounds, |r| r.server_peak_bytes) / MIB;
    writeln!(text, "| memory under this load, MiB at most | {:.0} | {:.0} | |", peak(short), peak(long))?;
    writeln!(text)?;
    start(text, &long.starts, &format!("{} decisions", long.decisions))
}
