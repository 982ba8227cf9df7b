//! Drives POST /v1/authorizations on this machine and reports requests per second, latencies, errors and verdicts.
//!
//! ```sh
//! MANDATE_ORGANIZATION_KEY=sk_sandbox_… \
//!     cargo run --release -p mandate-examples --bin load -- --base-url http://127.0.0.1:8080/v1 --agents 1000 --seconds 10
//! ```
//!
//! It registers the agents and writes their mandates first, which is not measured. One thread does it all, so that a server on
//! the same machine keeps the other cores. An answer that is not what was asked for is an error, and a run with errors fails;
//! no figure is ever a failure.

mod agents;
mod args;
mod ask;
mod connection;
mod drive;
mod mix;
mod pace;
mod process;
mod report;
mod target;
mod tokens;

use std::process::ExitCode;

use clap::Parser as _;

use self::args::Args;
use self::ask::Asking;
use self::report::Report;

/// What went wrong, for a person.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(report) if report.errors == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("load: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<Report, Failure> {
    let keys = match &args.keys {
        Some(path) => agents::read(path)?,
        None => agents::register(&args.base_url, &args::organization_key()?, args.agents).await?,
    };
    let agents = keys.len();
    let run = drive::run(Asking::new(&args, keys), &args).await?;
    let verified = tokens::verify(&args.base_url, &run.tally.tokens).await?;
    let peak_bytes = args.pid.map(process::peak_bytes).transpose()?.unwrap_or(0);
    let report = Report::new(&args, agents, &run, verified, peak_bytes);
    report.print(args.json)?;
    Ok(report)
}
