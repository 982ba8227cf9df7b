//! Several servers on one PostgreSQL, beside what the database itself commits: `pgbench`, which comes with it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

use serde::Serialize;
use serde_json::json;

use crate::contender::{Load, Running, binary};
use crate::figures::{Report, median};
use crate::output::{Measured, Series};
use crate::template::{AGENTS, REST, SETS, Template};
use crate::{Args, Failure};

/// How many servers there are in a run, and how many connections to all of them together.
const CASES: [(usize, usize); 4] = [(1, 64), (1, 256), (2, 64), (3, 64)];
/// How long each agent may take to ask once, beforehand. That it has an API key is looked up then, each by itself.
const WARM_UP_SECONDS: u64 = 30;
/// Of `pgbench`: three of the statements of TPC-B in a transaction, prepared, by so many clients.
const YARDSTICK: [&str; 8] = ["-N", "-M", "prepared", "-n", "-c", "32", "-j", "2"];
/// How much `pgbench` fills its tables with.
const SCALE: [&str; 4] = ["-i", "-q", "-s", "10"];

/// What was measured, round by round.
#[derive(Debug, Default)]
struct Rounds {
    /// Transactions a second.
    pgbench: Vec<f64>,
    /// Of each number of servers and of connections.
    cases: Vec<((usize, usize), Vec<Together>)>,
}

/// What servers did together.
#[derive(Debug, Clone, Copy, Serialize)]
struct Together {
    decisions_per_second: f64,
    p50_milliseconds: f64,
    p99_milliseconds: f64,
    /// Of the servers alone.
    cpu_microseconds: f64,
}

/// The agents, in as many parts as can rest.
struct Agents {
    /// Their keys, and when they asked last.
    rested: VecDeque<(Vec<String>, Option<Instant>)>,
    directory: PathBuf,
}

impl Agents {
    fn all(template: &Template) -> Result<Self, Failure> {
        let files = (0..SETS).map(|set| std::fs::read_to_string(template.keys(set)));
        let files = files.collect::<Result<Vec<_>, _>>()?;
        let keys: Vec<String> = files.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
        let rested = keys.chunks(AGENTS).map(|keys| (keys.to_vec(), None)).collect();
        let first = template.keys(0);
        let directory = first.parent().ok_or("keys without a directory")?;
        Ok(Self { rested, directory: directory.to_owned() })
    }

    /// Files with the keys of agents that have rested, in so many equal parts; `ask` has them ask.
    fn ask<T>(
        &mut self,
        parts: usize,
        ask: impl FnOnce(&[PathBuf]) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (keys, last) = self.rested.pop_front().ok_or("there are no agents")?;
        if let Some(last) = last {
            thread::sleep(REST.saturating_sub(last.elapsed()));
        }
        let mut files = Vec::new();
        for (number, keys) in keys.chunks(keys.len().div_ceil(parts)).enumerate() {
            let file = self.directory.join(format!("part.{number}"));
            std::fs::write(&file, keys.join("\n"))?;
            files.push(file);
        }
        let asked = ask(&files)?;
        self.rested.push_back((keys, Some(Instant::now())));
        Ok(asked)
    }
}

/// Measures them alternately on one database. It is empty before, and stays filled.
pub(crate) fn measure(args: &Args, template: &Template) -> Result<Measured, Failure> {
    let url = args
        .postgres
        .as_deref()
        .ok_or("name an empty database that may be filled: --postgres postgres://…")?;
    let mut transfer = Command::new(binary("mandate-server")?);
    transfer.env_clear().args(["transfer", "--from", &template.url(), "--to", url]);
    output_of(&mut transfer)?;
    output_of(Command::new("pgbench").args(SCALE).arg(url))?;
    let mut agents = Agents::all(template)?;
    // Ours have a warm-up in each round, since each starts a server.
    pgbench(args, url)?;
    let mut rounds = Rounds { pgbench: Vec::new(), cases: CASES.map(|case| (case, Vec::new())).into() };
    for round in 1..=args.rounds() {
        for ((count, connections), done) in &mut rounds.cases {
            // The yardstick runs before each round, since the load of the machine changes by the minute.
            let tps = pgbench(args, url)?;
            let run = |keys: &[PathBuf]| run(args.seconds(), keys, url, *connections);
            let together = agents.ask(*count, run)?;
            let name = case(*count, *connections);
            eprintln!("round {round}: {name}: {:.0}/s, pgbench {tps:.0}/s", together.decisions_per_second);
            rounds.pgbench.push(tps);
            done.push(together);
        }
    }
    Ok(Measured { text: render(args, &rounds)?, series: rounds.series()? })
}

impl Rounds {
    /// A case is compared with the `pgbench` runs before it.
    fn series(&self) -> Result<Vec<Series>, Failure> {
        let mut series = Vec::new();
        for (place, ((count, connections), done)) in self.cases.iter().enumerate() {
            let case = case(*count, *connections);
            let before = self.before(place).map(|tps| json!({ "transactions_per_second": tps }));
            series.push(Series::of(&case, "pgbench", before)?);
            series.push(Series::of(&case, "mandate", done)?);
        }
        Ok(series)
    }

    /// The results of `pgbench` before each round of the case at that place.
    fn before(&self, place: usize) -> impl Iterator<Item = f64> {
        self.pgbench.iter().copied().skip(place).step_by(CASES.len())
    }
}

fn pgbench(args: &Args, url: &str) -> Result<f64, Failure> {
    let output =
        output_of(Command::new("pgbench").args(YARDSTICK).args(["-T", &args.seconds().to_string(), url]))?;
    let tps =
        output.lines().find_map(|line| line.strip_prefix("tps = ")?.split_whitespace().next()?.parse().ok());
    tps.ok_or_else(|| format!("pgbench prints no tps: {output}").into())
}

/// Puts a load on as many servers at once as there are files of keys.
fn run(seconds: u64, keys: &[PathBuf], url: &str, connections: usize) -> Result<Together, Failure> {
    let count = keys.len();
    let servers = keys.iter().map(|_| Running::serve(url, &[])).collect::<Result<Vec<_>, _>>()?;
    let connections = (connections / count).to_string();
    let reports = thread::scope(|scope| {
        let loads = servers.iter().zip(keys).map(|(server, keys): (&Running, &PathBuf)| {
            let connections = &connections;
            scope.spawn(move || {
                let args = ["--connections", connections.as_str()];
                let keys: &Path = keys;
                server
                    .load(&Load { keys, seconds, warm_up: WARM_UP_SECONDS, args: &args })
                    .map_err(|e| e.to_string())
            })
        });
        let loads: Vec<_> = loads.collect();
        let ended =
            loads.into_iter().map(|load| load.join().unwrap_or_else(|_| Err("a load panicked".to_owned())));
        ended.collect::<Result<Vec<Report>, _>>()
    })?;
    if let Some(wrong) = reports.iter().find(|report| report.errors > 0) {
        return Err(format!("{count} servers: {} errors", wrong.errors).into());
    }
    let reports = reports.into_iter().map(Report::keeps_to_velocity).collect::<Result<Vec<_>, _>>()?;
    let slowest = |figure: fn(&Report) -> f64| reports.iter().map(figure).fold(0.0, f64::max) / 1e3;
    let rate = |report: &Report| report.requests_per_second;
    let all: f64 = reports.iter().map(rate).sum();
    let spent: f64 = reports.iter().map(|one| one.server_cpu_microseconds_per_request * rate(one)).sum();
    Ok(Together {
        decisions_per_second: all,
        p50_milliseconds: slowest(|report| report.p50_microseconds),
        p99_milliseconds: slowest(|report| report.p99_microseconds),
        cpu_microseconds: spent / all,
    })
}

fn case(servers: usize, connections: usize) -> String {
    let s = if servers == 1 { "" } else { "s" };
    format!("{servers} server{s}, {connections} connections")
}

/// Runs a command to its end. Returns its output.
fn output_of(command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    Err(format!("{}: {}", command.get_program().display(), String::from_utf8_lossy(&output.stderr)).into())
}

/// The table.
fn render(args: &Args, rounds: &Rounds) -> Result<String, Failure> {
    let mut text = String::new();
    let processors = thread::available_parallelism().map_or(0, usize::from);
    writeln!(
        text,
        "Medians of {} rounds of {} seconds, each beside the `pgbench` just before it;\n\
         {processors} processors for the database, the servers and the client together.\n",
        args.rounds(),
        args.seconds()
    )?;
    writeln!(
        text,
        "| | a second | of `pgbench` | p50 ms | p99 ms | CPU µs of the servers |\n|---|---|---|---|---|---|"
    )?;
    let all = median(rounds.pgbench.iter().copied());
    writeln!(text, "| `pgbench {}`, transactions | {all:.0} | 1 | | | |", YARDSTICK.join(" "))?;
    for (place, ((count, connections), done)) in rounds.cases.iter().enumerate() {
        let ratios = done.iter().zip(rounds.before(place)).map(|(one, tps)| one.decisions_per_second / tps);
        let middle = |figure: fn(&Together) -> f64| median(done.iter().map(figure));
        writeln!(
            text,
            "| {}, authorizations | {:.0} | {:.2} | {:.1} | {:.1} | {:.0} |",
            case(*count, *connections),
            middle(|one| one.decisions_per_second),
            median(ratios),
            middle(|one| one.p50_milliseconds),
            middle(|one| one.p99_milliseconds),
            middle(|one| one.cpu_microseconds),
        )?;
    }
    Ok(text)
}
