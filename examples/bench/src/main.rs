//! The one command that measures the service, beside its yardsticks, on the machine that it is run on: see `tests/bench`.
//!
//! Every contender is a process of its own, started anew for each run on a directory of its own; they are measured in turn
//! (A B C A B C …), and what is compared is what was measured one after the other. No figure is ever a failure; a wrong answer is.

mod contender;
mod contests;
mod decisions;
mod deliveries;
mod figures;
mod fill;
mod log;
mod output;
mod pace;
mod plot;
mod postgres;
mod profile;
mod receiver;
mod rule;
mod table;
mod template;
mod tokens;
mod verdicts;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use mandate_server::clock::{Clock as _, SystemClock};
use serde::Serialize;

use self::output::{Measured, Output};
use self::template::Template;

/// What went wrong, for a person.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measure the service and its core beside their yardsticks, on this machine
///
/// The parts: `core`, signing and deciding beside other libraries; `verify`, verifying beside other libraries; `tokens`, the same
/// with the command line; `postgres`, one server and several beside `pgbench`; `deliveries` of events beside decisions;
/// `decisions`, beside the ceiling and the plain design; `log`, a long log beside a short one; `profile`, the instructions of an
/// authorization, which needs valgrind.
#[derive(Debug, Parser)]
#[command(name = "tests/bench")]
struct Args {
    /// The parts to measure [default: all but the profile; postgres only with --postgres]
    #[arg(value_enum, value_name = "PART")]
    parts: Vec<Part>,

    /// Length of each run [default: 6, or 2 with --quick]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: Option<u64>,

    /// Rounds, in which each contender runs once [default: 5, or 2 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=50))]
    rounds: Option<u16>,

    /// Decisions in the long log [default: 5000000, or 200000 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10_000..=50_000_000))]
    log: Option<u32>,

    /// An empty database for the part `postgres`; its role must be able to create tables. It stays filled
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,

    /// Short runs, to see that everything works
    #[arg(long)]
    quick: bool,

    /// Also write the figures of every round to this file, as JSON
    ///
    /// {"began", "processors", "seconds", "rounds", "results": [{"part", "case", "contender", "rounds": [{…}]}]}: an object for
    /// each round of each part, case and contender. Names of figures end in their units, except counts. The file is written
    /// again after each part.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Put the tables into docs/performance.md, docs/performance-notes.md and docs/scaling.md, and draw the plots of them
    #[arg(long)]
    write: bool,
}

/// What can be measured, in the order in which it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    Core,
    Verify,
    Tokens,
    Postgres,
    Deliveries,
    Decisions,
    Log,
    Profile,
}

impl Part {
    /// The document that its tables belong into, and the name of the marks there.
    fn place(self) -> (&'static str, &'static str) {
        const PERFORMANCE: &str = "docs/performance.md";
        const NOTES: &str = "docs/performance-notes.md";
        match self {
            Self::Core => (PERFORMANCE, "core"),
            Self::Verify => (PERFORMANCE, "verify"),
            Self::Tokens => (NOTES, "tokens"),
            Self::Deliveries => (NOTES, "deliveries"),
            Self::Decisions => (PERFORMANCE, "bench"),
            Self::Log => (PERFORMANCE, "log"),
            Self::Postgres => ("docs/scaling.md", "bench"),
            Self::Profile => (NOTES, "profile"),
        }
    }
}

impl Args {
    fn wants(&self, part: Part) -> bool {
        match part {
            _ if !self.parts.is_empty() => self.parts.contains(&part),
            Part::Postgres => self.postgres.is_some(),
            Part::Profile => false,
            Part::Core | Part::Verify | Part::Tokens | Part::Deliveries | Part::Decisions | Part::Log => true,
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
    let mut bench = Bench { args, target, directory: directory.path(), template: None };
    let mut output = Output::begin(args)?;
    for part in Part::value_variants().iter().filter(|part| args.wants(**part)) {
        output.publish(*part, bench.measure(*part)?)?;
    }
    Ok(())
}

/// What the parts need.
struct Bench<'a> {
    args: &'a Args,
    target: &'a Path,
    directory: &'a Path,
    /// Made for the first part that starts servers.
    template: Option<Template>,
}

impl Bench<'_> {
    fn measure(&mut self, part: Part) -> Result<Measured, Failure> {
        let (args, target, directory) = (self.args, self.target, self.directory);
        match part {
            Part::Core => contests::measure(args),
            Part::Verify => verify::measure(args, target, directory),
            Part::Tokens => tokens::measure(args, directory),
            Part::Deliveries => deliveries::measure(args, self.template()?, directory),
            Part::Decisions => decisions::measure(args, self.template()?, directory),
            Part::Log => log::measure(args, self.template()?, target, directory),
            Part::Postgres => postgres::measure(args, self.template()?),
            Part::Profile => profile::measure(self.template()?, directory),
        }
    }

    fn template(&mut self) -> Result<&Template, Failure> {
        let template = match self.template.take() {
            Some(template) => template,
            None => Template::make(&self.directory.join("template"), SystemClock.now())?,
        };
        Ok(self.template.insert(template))
    }
}
