//! The one command that measures the service, beside its yardsticks, on the machine that it is run on: see `tests/bench`.
//!
//! Every contender is a process of its own, started anew for each run on a directory of its own; they are measured in turn
//! (A B C A B C …), and what is compared is what was measured one after the other. No figure is ever a failure; a wrong answer is.

mod contender;
mod decisions;
mod deliveries;
mod figures;
mod fill;
mod log;
mod postgres;
mod profile;
mod receiver;
mod table;
mod template;
mod tokens;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use mandate_server::clock::{Clock as _, SystemClock};
use serde::Serialize;

use self::figures::{Report, median};
use self::template::Template;

/// What went wrong, for a person.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measure the service beside its yardsticks, on this machine
///
/// What is measured: `decisions`, beside the ceiling and the plain design; the same with a long `log` beside a short one;
/// `deliveries` of events beside decisions; how verdicts are `verify`-ed beside other libraries, and by the command line
/// (`tokens`); one server and several on `postgres`, beside its own `pgbench`; and the `profile` of one authorization, in
/// instructions, which needs valgrind.
#[derive(Debug, Parser)]
#[command(name = "tests/bench")]
struct Args {
    /// What is measured [default: all but the profile; postgres where --postgres says on what]
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,

    /// How long each run is measured [default: 6, or 2 with --quick]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: Option<u64>,

    /// How often each contender has its turn [default: 5, or 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=50))]
    rounds: Option<u16>,

    /// How many decisions the long log has [default: 5000000, or 200000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10_000..=50_000_000))]
    log: Option<u32>,

    /// An empty database for the part `postgres`, of a role that may make tables in it; it stays filled
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,

    /// Short runs, to see that all is well
    #[arg(long)]
    quick: bool,

    /// Also write every run's report to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Put the tables into docs/performance.md
    #[arg(long)]
    write: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Decisions,
    Log,
    Deliveries,
    Verify,
    Tokens,
    Profile,
    Postgres,
}

impl Args {
    fn wants(&self, part: Part) -> bool {
        match part {
            _ if !self.parts.is_empty() => self.parts.contains(&part),
            Part::Postgres => self.postgres.is_some(),
            Part::Profile => false,
            Part::Decisions | Part::Log | Part::Deliveries | Part::Verify | Part::Tokens => true,
        }
    }

    fn seconds(&self) -> u64 {
        self.seconds.unwrap_or(if self.quick { 2 } else { 6 })
    }

    /// How long each agent may take to ask once, beforehand.
    fn warm_up(&self) -> u64 {
        self.seconds().max(4)
    }

    fn rounds(&self) -> usize {
        self.rounds.map_or(if self.quick { 2 } else { 5 }, usize::from)
    }

    fn log(&self) -> usize {
        self.log.map_or(if self.quick { 200_000 } else { 5_000_000 }, |log| log as usize)
    }
}

/// All that a run has measured.
#[derive(Debug, Default, Serialize)]
struct Measured {
    /// How it was measured.
    told: String,
    decisions: Option<(Vec<decisions::Row>, decisions::Starts)>,
    log: Option<(log::Length, log::Length)>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Failure> {
    // Below the target directory: on the disk that the work is done on, and never in memory.
    let release = std::env::current_exe()?;
    let target = release.ancestors().nth(2).ok_or("the binary is not in a target directory")?;
    let directory = tempfile::Builder::new().prefix("bench-").tempdir_in(target)?;
    let directory = directory.path();
    let wanted = |part| args.wants(part);
    if wanted(Part::Verify) {
        publish(args, "verify", &verify::render(args, &verify::measure(args, target, directory)?)?)?;
    }
    if wanted(Part::Tokens) {
        publish(args, "tokens", &tokens::render(args, &tokens::measure(args, directory)?)?)?;
    }
    if Part::value_variants().iter().all(|part| !wanted(*part) || matches!(part, Part::Verify | Part::Tokens))
    {
        return Ok(());
    }
    let template = Template::make(&directory.join("template"), SystemClock.now())?;
    if wanted(Part::Profile) {
        publish(args, "profile", &profile::measure(&template, directory)?)?;
    }
    if wanted(Part::Postgres) {
        let text = postgres::render(args, &postgres::measure(args, &template)?)?;
        println!("{text}");
        if args.write {
            table::write(Path::new("docs/scaling.md"), "bench", &text)?;
        }
    }
    if wanted(Part::Deliveries) {
        publish(
            args,
            "deliveries",
            &deliveries::render(args, &deliveries::measure(args, &template, directory)?)?,
        )?;
    }
    let mut measured = Measured::default();
    if wanted(Part::Decisions) {
        measured.decisions = Some(decisions::measure(args, &template, directory)?);
        measured.told = tell(args, &measured);
        publish(args, "bench", &table::render(&measured)?)?;
    }
    if wanted(Part::Log) {
        let log = Some(log::measure(args, &template, target, directory)?);
        let mut alone = Measured { log, ..Measured::default() };
        alone.told = tell(args, &alone);
        publish(args, "log", &table::render(&alone)?)?;
        measured.log = alone.log;
        measured.told = tell(args, &measured);
    }
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_string_pretty(&measured)?)?;
    }
    Ok(())
}

fn publish(args: &Args, name: &str, text: &str) -> Result<(), Failure> {
    println!("{text}");
    if args.write { table::write(Path::new("docs/performance.md"), name, text) } else { Ok(()) }
}

/// Says how it was measured, and how much else went on.
fn tell(args: &Args, measured: &Measured) -> String {
    let rows = measured.decisions.iter().flat_map(|(rows, _)| rows.iter().flat_map(|row| &row.rounds));
    let logs = measured.log.iter().flat_map(|(short, long)| short.rounds.iter().chain(&long.rounds));
    let reports: Vec<&Report> = rows.chain(logs).collect();
    let elsewhere = median(reports.iter().map(|report| report.processors_busy_elsewhere));
    let client = median(reports.iter().map(|report| report.client_cpu_microseconds_per_request));
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "Medians of {} rounds of {} seconds, ratios round by round; {processors} processors, nothing pinned, the client beside the \
         server ({client:.0} µs of processor time a request); {elsewhere:.2} processors were busy with something else.",
        args.rounds(),
        args.seconds()
    )
}
