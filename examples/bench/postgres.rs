//! Several servers on one PostgreSQL, beside what the database itself commits: `pgbench`, which comes with it.

use std::fmt::Write as _;
use std::process::Command;
use std::thread;

use serde::Serialize;

use crate::contender::{Load, Running, binary};
use crate::figures::{Report, median};
use crate::template::Template;
use crate::{Args, Failure};

/// How many servers there are in a run.
const SERVERS: [usize; 3] = [1, 2, 3];
/// Connections to all of them together.
const CONNECTIONS: usize = 64;
/// Of `pgbench`: three of the statements of TPC-B in a transaction, prepared, by so many clients.
const YARDSTICK: [&str; 8] = ["-N", "-M", "prepared", "-n", "-c", "32", "-j", "2"];
/// How much `pgbench` fills its tables with.
const SCALE: [&str; 4] = ["-i", "-q", "-s", "10"];

/// What was measured, round by round.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Rounds {
    /// Transactions a second.
    pgbench: Vec<f64>,
    /// Of each number of servers.
    servers: Vec<(usize, Vec<Together>)>,
}

/// What servers did together.
#[derive(Debug, Clone, Copy, Serialize)]
struct Together {
    decisions_per_second: f64,
    p99_milliseconds: f64,
}

/// Measures them in turn on one database, which is empty, and stays filled.
pub(crate) fn measure(args: &Args, template: &Template) -> Result<Rounds, Failure> {
    let url = args
        .postgres
        .as_deref()
        .ok_or("name an empty database that may be filled: --postgres postgres://…")?;
    let mut transfer = Command::new(binary("mandate-server")?);
    transfer.env_clear().args(["transfer", "--from", &template.url(), "--to", url]);
    told(&mut transfer)?;
    told(Command::new("pgbench").args(SCALE).arg(url))?;
    let mut rounds = Rounds { pgbench: Vec::new(), servers: SERVERS.map(|count| (count, Vec::new())).into() };
    for round in 1..=args.rounds() {
        let tps = pgbench(args, url)?;
        eprintln!("round {round}: pgbench: {tps:.0}/s");
        rounds.pgbench.push(tps);
        for (count, done) in &mut rounds.servers {
            let together = run(args, template, url, *count)?;
            eprintln!("round {round}: {count} servers: {:.0}/s", together.decisions_per_second);
            done.push(together);
        }
    }
    Ok(rounds)
}

fn pgbench(args: &Args, url: &str) -> Result<f64, Failure> {
    let output =
        told(Command::new("pgbench").args(YARDSTICK).args(["-T", &args.seconds().to_string(), url]))?;
    let tps =
        output.lines().find_map(|line| line.strip_prefix("tps = ")?.split_whitespace().next()?.parse().ok());
    tps.ok_or_else(|| format!("pgbench tells no tps: {output}").into())
}

/// Puts a load on so many servers at once, each with agents of its own.
fn run(args: &Args, template: &Template, url: &str, count: usize) -> Result<Together, Failure> {
    let servers = (0..count).map(|_| Running::serve(url, &[])).collect::<Result<Vec<_>, _>>()?;
    let connections = (CONNECTIONS / count).to_string();
    let reports = thread::scope(|scope| {
        let loads: Vec<_> = servers
            .iter()
            .enumerate()
            .map(|(set, server)| {
                let (keys, args) = (template.keys(set), [args.seconds(), args.warm_up()]);
                let connections = &connections;
                scope.spawn(move || {
                    let [seconds, warm_up] = args;
                    let args = ["--connections", connections.as_str()];
                    server
                        .load(&Load { keys: &keys, seconds, warm_up, args: &args })
                        .map_err(|e| e.to_string())
                })
            })
            .collect();
        let ended =
            loads.into_iter().map(|load| load.join().unwrap_or_else(|_| Err("a load panicked".to_owned())));
        ended.collect::<Result<Vec<Report>, _>>()
    })?;
    if let Some(wrong) = reports.iter().find(|report| report.errors > 0) {
        return Err(format!("{count} servers: {} errors", wrong.errors).into());
    }
    if reports.iter().any(|report| report.verdicts.contains_key("deny_velocity")) {
        return Err("the agents were too fast for the velocity rule: measure for fewer seconds".into());
    }
    let slowest = reports.iter().map(|report| report.p99_microseconds).fold(0.0, f64::max);
    Ok(Together {
        decisions_per_second: reports.iter().map(|report| report.requests_per_second).sum(),
        p99_milliseconds: slowest / 1e3,
    })
}

/// Runs a command to its end, and gives what it wrote.
fn told(command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout)?);
    }
    Err(format!("{}: {}", command.get_program().display(), String::from_utf8_lossy(&output.stderr)).into())
}

/// The table.
pub(crate) fn render(args: &Args, rounds: &Rounds) -> Result<String, Failure> {
    let mut text = String::new();
    let processors = thread::available_parallelism().map_or(0, usize::from);
    writeln!(
        text,
        "Medians of {} rounds of {} seconds, ratios round by round; {processors} processors for the database, the servers and the \
         client together; {CONNECTIONS} connections in all.\n",
        args.rounds(),
        args.seconds()
    )?;
    writeln!(text, "| | a second | of `pgbench` | p99 ms |\n|---|---|---|---|")?;
    let all = median(rounds.pgbench.iter().copied());
    writeln!(text, "| `pgbench {}`, transactions | {all:.0} | 1 | |", YARDSTICK.join(" "))?;
    for (count, done) in &rounds.servers {
        let ratios = done.iter().zip(&rounds.pgbench).map(|(one, tps)| one.decisions_per_second / tps);
        writeln!(
            text,
            "| {count} server{}, authorizations | {:.0} | {:.1} | {:.1} |",
            if *count == 1 { "" } else { "s" },
            median(done.iter().map(|one| one.decisions_per_second)),
            median(ratios),
            median(done.iter().map(|one| one.p99_milliseconds))
        )?;
    }
    Ok(text)
}
