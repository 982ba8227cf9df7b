//! The main job beside its yardsticks: decisions a second, latencies, processor time.

use std::path::Path;

use serde_json::json;

use crate::contender::{Contender, Load};
use crate::figures::{Report, median};
use crate::output::{Measured, Series};
use crate::template::Template;
use crate::{Args, Failure, table};

use Contender::{Ceiling, Mandate, Plain};

/// A load, and who bears it.
struct Scenario {
    name: &'static str,
    args: &'static [&'static str],
    contenders: &'static [Contender],
}

const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "64 connections",
        args: &["--connections", "64"],
        contenders: &[Ceiling, Mandate, Plain],
    },
    Scenario {
        name: "256 connections",
        args: &["--connections", "256"],
        contenders: &[Ceiling, Mandate, Plain],
    },
    Scenario {
        name: "64 connections, each request with an Idempotency-Key",
        args: &["--connections", "64", "--idempotent", "100"],
        contenders: &[Ceiling, Mandate],
    },
    Scenario {
        name: "paced at 9,000 a second, 256 connections",
        args: &["--connections", "256", "--rate", "9000"],
        contenders: &[Ceiling, Mandate],
    },
];

/// What a contender did in a scenario, round by round.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) scenario: &'static str,
    pub(crate) contender: &'static str,
    pub(crate) rounds: Vec<Report>,
}

/// Starting and being idle.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    milliseconds: Vec<f64>,
    idle_bytes: Vec<f64>,
}

impl Starts {
    pub(crate) fn milliseconds(&self) -> f64 {
        median(self.milliseconds.iter().copied())
    }

    pub(crate) fn idle_bytes(&self) -> f64 {
        median(self.idle_bytes.iter().copied())
    }

    pub(crate) fn note(&mut self, milliseconds: f64, idle_bytes: f64) {
        self.milliseconds.push(milliseconds);
        self.idle_bytes.push(idle_bytes);
    }

    /// Of all starts.
    pub(crate) fn series(&self, contender: &str) -> Result<Series, Failure> {
        let starts = self.milliseconds.iter().zip(&self.idle_bytes);
        let starts = starts.map(|(milliseconds, bytes)| {
            json!({ "first_decision_milliseconds": milliseconds, "idle_bytes": bytes })
        });
        Series::of("start", contender, starts)
    }
}

/// Measures them all alternately, with a server of its own for each run.
pub(crate) fn measure(args: &Args, template: &Template, directory: &Path) -> Result<Measured, Failure> {
    let mut rows = Vec::new();
    let mut starts = Starts::default();
    for scenario in &SCENARIOS {
        rows.extend(scenario.contenders.iter().map(|contender| Row {
            scenario: scenario.name,
            contender: contender.name(),
            rounds: Vec::new(),
        }));
    }
    for round in 1..=args.rounds() {
        let mut places = rows.iter_mut();
        for scenario in &SCENARIOS {
            for (contender, row) in scenario.contenders.iter().zip(&mut places) {
                let report = run(args, scenario, *contender, template, directory, &mut starts)?;
                eprintln!(
                    "round {round}: {}, {}: {:.0}/s, {:.2} processors busy elsewhere",
                    scenario.name,
                    contender.name(),
                    report.requests_per_second,
                    report.processors_busy_elsewhere
                );
                row.rounds.push(report);
            }
        }
    }
    let series = rows.iter().map(|row| Series::of(row.scenario, row.contender, &row.rounds));
    let mut series = series.collect::<Result<Vec<_>, _>>()?;
    series.push(starts.series(Mandate.name())?);
    Ok(Measured { text: table::decisions(args, &rows, &starts)?, series })
}

fn run(
    args: &Args,
    scenario: &Scenario,
    contender: Contender,
    template: &Template,
    directory: &Path,
    starts: &mut Starts,
) -> Result<Report, Failure> {
    let own = directory.join(contender.name());
    let server = contender.start(template, &own)?;
    if contender == Mandate {
        let took = server.first_decision(template.agent_key.expose())?;
        starts.note(took.as_secs_f64() * 1e3, server.resident_bytes()?);
    }
    let keys = template.keys(0);
    let load = Load { keys: &keys, seconds: args.seconds(), warm_up: args.warm_up(), args: scenario.args };
    let report = server.load(&load)?;
    drop(server);
    if own.exists() {
        std::fs::remove_dir_all(&own)?;
    }
    if report.errors > 0 {
        return Err(format!("{}, {}: {} errors", scenario.name, contender.name(), report.errors).into());
    }
    report.keeps_to_velocity()
}
