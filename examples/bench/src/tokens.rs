//! `mandate verify` over a file of tokens: with one worker, pinned to one processor, and with as many as there are processors.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::contender::binary;
use crate::figures::median;
use crate::output::{Measured, Series};
use crate::{Args, Failure};

/// How many tokens there are.
const TOKENS: usize = 100_000;
/// The arguments of `mandate verify` for the tokens that the example writes.
const EXPECTED: [&str; 6] = [
    "--issuer",
    "https://verdicts.example",
    "--allow-sandbox",
    "--signature-only",
    "--at",
    "2026-01-20T00:00:10Z",
];
/// How often it is looked what the threads have used.
const LOOK: Duration = Duration::from_millis(5);

/// On what it is run.
const SIDES: [&str; 2] = ["on one processor", "on all"];

/// One run.
#[derive(Debug, Clone, Copy, Serialize)]
struct Took {
    seconds: f64,
    /// Processor time, of all threads.
    cpu_seconds: f64,
    /// That of the busiest.
    busiest_thread_cpu_seconds: f64,
}

impl Took {
    /// What it would take were there nothing else on two processors: half of all the work, or that of the busiest thread.
    fn undisturbed(self) -> f64 {
        (self.cpu_seconds / 2.0).max(self.busiest_thread_cpu_seconds)
    }
}

/// Both sides, round by round.
#[derive(Debug, Default)]
struct Rounds {
    one: Vec<Took>,
    all: Vec<Took>,
}

/// Measures both alternately.
pub(crate) fn measure(args: &Args, directory: &Path) -> Result<Measured, Failure> {
    let (tokens, keys) = (directory.join("tokens.txt"), directory.join("token-keys.json"));
    let export = binary("mandate")?.with_file_name("examples").join("export");
    let written =
        Command::new(export).args(["tokens", &TOKENS.to_string()]).arg(&tokens).arg(&keys).status()?;
    if !written.success() {
        return Err("the tokens were not written".into());
    }
    let mut rounds = Rounds::default();
    for round in 1..=args.rounds() {
        let verify = |before: &[&str]| -> Result<Took, Failure> {
            let mut words = before.to_vec();
            let mandate = binary("mandate")?;
            let mandate = mandate.to_str().ok_or("the path of the binary is not text")?;
            words.extend([mandate, "verify"]);
            let (program, rest) = words.split_first().ok_or("nothing is run")?;
            let mut command = Command::new(program);
            command.args(rest).args(EXPECTED).arg("--tokens").arg(&tokens).arg("--jwks").arg(&keys);
            run(&mut command)
        };
        let (one, all) = (verify(&["taskset", "-c", "0"])?, verify(&[])?);
        eprintln!("round {round}: {:.2} s on one processor, {:.2} s on all", one.seconds, all.seconds);
        rounds.one.push(one);
        rounds.all.push(all);
    }
    let series = SIDES.iter().zip([&rounds.one, &rounds.all]);
    let series = series.map(|(name, side)| Series::of("mandate verify --tokens", name, side));
    Ok(Measured { text: render(args, &rounds)?, series: series.collect::<Result<_, _>>()? })
}

/// Runs it to its end. All tokens must be valid.
fn run(command: &mut Command) -> Result<Took, Failure> {
    let began = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn()?;
    let mut threads = BTreeMap::new();
    let status = loop {
        look(&child, &mut threads);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        sleep(LOOK);
    };
    let seconds = began.elapsed().as_secs_f64();
    if !status.success() {
        return Err("some tokens were not valid".into());
    }
    let busiest = threads.values().copied().fold(0.0, f64::max);
    Ok(Took { seconds, cpu_seconds: threads.values().sum(), busiest_thread_cpu_seconds: busiest })
}

/// Notes what each thread has used, in seconds, until it is over: what it uses after the last look is lost.
#[expect(clippy::cast_precision_loss, reason = "a time, to be rounded")]
fn look(child: &Child, threads: &mut BTreeMap<String, f64>) {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", child.id())) else { return };
    for task in tasks.flatten() {
        let Ok(text) = std::fs::read_to_string(task.path().join("schedstat")) else { continue };
        if let Some(used) = text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok()) {
            threads.insert(task.file_name().to_string_lossy().into_owned(), used as f64 / 1e9);
        }
    }
}

/// The table.
#[expect(clippy::cast_precision_loss, reason = "a count, to be rounded")]
fn render(args: &Args, rounds: &Rounds) -> Result<String, Failure> {
    let mut text = String::new();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    writeln!(
        text,
        "Medians of {} rounds, ratios round by round; {TOKENS} tokens in a file, {processors} processors.\n",
        args.rounds()
    )?;
    writeln!(
        text,
        "| `mandate verify --tokens` | Seconds | Tokens/s | Processor time, s |\n|---|---|---|---|"
    )?;
    for (name, side) in SIDES.iter().zip([&rounds.one, &rounds.all]) {
        let seconds = median(side.iter().map(|took| took.seconds));
        let cpu = median(side.iter().map(|took| took.cpu_seconds));
        writeln!(text, "| {name} | {seconds:.2} | {:.0} | {cpu:.2} |", TOKENS as f64 / seconds)?;
    }
    let both = || rounds.one.iter().zip(&rounds.all);
    let wall = median(both().map(|(one, all)| one.seconds / all.seconds));
    let free = median(both().map(|(one, all)| one.cpu_seconds / all.undisturbed()));
    writeln!(
        text,
        "\nOn all it goes {wall:.2} times as fast by the clock, and {free:.2} times by processor time\n\
         (half of that of all threads, or that of the busiest thread if it is longer)."
    )?;
    Ok(text)
}
