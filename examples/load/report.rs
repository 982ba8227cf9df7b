//! What is reported, for a person or as JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::args::Args;
use crate::drive::Run;

/// A run in figures.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    agents: usize,
    connections: usize,
    pub(crate) errors: usize,
    verdicts: BTreeMap<String, usize>,
    tokens_verified: usize,
    #[serde(flatten)]
    speed: Speed,
    #[serde(skip_serializing_if = "Option::is_none")]
    ceiling: Option<Speed>,
}

#[derive(Debug, Serialize)]
struct Speed {
    requests: usize,
    seconds: f64,
    requests_per_second: f64,
    p50_microseconds: u32,
    p99_microseconds: u32,
    max_microseconds: u32,
}

impl Report {
    pub(crate) fn new(args: &Args, run: &Run, ceiling: Option<&Run>, tokens_verified: usize) -> Self {
        Self {
            agents: args.agents,
            connections: args.connections,
            errors: run.errors + ceiling.map_or(0, |run| run.errors),
            verdicts: run.verdicts.clone(),
            tokens_verified,
            speed: Speed::of(run),
            ceiling: ceiling.map(Speed::of),
        }
    }

    pub(crate) fn print(&self, json: bool) -> serde_json::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        println!("{} agents, {} connections", self.agents, self.connections);
        self.speed.print("authorizations");
        if let Some(ceiling) = &self.ceiling {
            ceiling.print("ceiling");
            let ratio = self.speed.requests_per_second / ceiling.requests_per_second;
            println!("{:<16} {ratio:>10.2} of the ceiling", "ratio");
        }
        for (verdict, count) in &self.verdicts {
            println!("{verdict:<16} {count:>10}");
        }
        println!("{:<16} {:>10}", "tokens verified", self.tokens_verified);
        println!("{:<16} {:>10}", "errors", self.errors);
        Ok(())
    }
}

impl Speed {
    #[expect(clippy::cast_precision_loss, reason = "a count of requests, to be rounded")]
    fn of(run: &Run) -> Self {
        let mut sorted = run.latencies.clone();
        sorted.sort_unstable();
        let seconds = run.elapsed.as_secs_f64();
        Self {
            requests: sorted.len(),
            seconds,
            requests_per_second: sorted.len() as f64 / seconds,
            p50_microseconds: percentile(&sorted, 50),
            p99_microseconds: percentile(&sorted, 99),
            max_microseconds: percentile(&sorted, 100),
        }
    }

    fn print(&self, what: &str) {
        println!(
            "{what:<16} {:>10.0} requests/s   p50 {} us, p99 {} us, max {} us   ({} in {:.1} s)",
            self.requests_per_second,
            self.p50_microseconds,
            self.p99_microseconds,
            self.max_microseconds,
            self.requests,
            self.seconds
        );
    }
}

/// The smallest value that `percent` of the values don't exceed (nearest rank).
fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}
