//! What is reported, for a person or as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

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
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<u32>,
    requests: usize,
    seconds: f64,
    requests_per_second: f64,
    p50_microseconds: u32,
    p99_microseconds: u32,
    max_microseconds: u32,
    #[serde(flatten)]
    used: Option<Used>,
}

/// What was used of the machine.
#[derive(Debug, Serialize)]
struct Used {
    server_cpu_microseconds_per_request: f64,
    client_cpu_microseconds_per_request: f64,
    /// Processors that were busy with something else, on average.
    processors_busy_elsewhere: f64,
    server_peak_bytes: u64,
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "counts and times, to be rounded")]
    pub(crate) fn new(
        args: &Args,
        agents: usize,
        run: &Run,
        tokens_verified: usize,
        peak_bytes: u64,
    ) -> Self {
        let mut sorted = run.latencies.clone();
        sorted.sort_unstable();
        let (requests, seconds) = (sorted.len(), run.elapsed.as_secs_f64());
        let per_request = |time: Duration| time.as_secs_f64() * 1e6 / requests.max(1) as f64;
        Self {
            agents,
            connections: args.connections,
            errors: run.tally.errors,
            verdicts: run.tally.verdicts.clone(),
            tokens_verified,
            rate: args.rate,
            requests,
            seconds,
            requests_per_second: requests as f64 / seconds,
            p50_microseconds: percentile(&sorted, 50),
            p99_microseconds: percentile(&sorted, 99),
            max_microseconds: percentile(&sorted, 100),
            used: run.used.map(|used| Used {
                server_cpu_microseconds_per_request: per_request(used.server),
                client_cpu_microseconds_per_request: per_request(used.client),
                processors_busy_elsewhere: used.others.as_secs_f64() / seconds,
                server_peak_bytes: peak_bytes,
            }),
        }
    }

    pub(crate) fn print(&self, json: bool) -> serde_json::Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        println!("{} agents, {} connections", self.agents, self.connections);
        println!(
            "{:<16} {:>10.0} requests/s   p50 {} us, p99 {} us, max {} us   ({} in {:.1} s)",
            "authorizations",
            self.requests_per_second,
            self.p50_microseconds,
            self.p99_microseconds,
            self.max_microseconds,
            self.requests,
            self.seconds
        );
        if let Some(used) = &self.used {
            println!(
                "{:<16} {:>10.1} us a request by the server, {:.1} by this client; {:.2} processors busy elsewhere",
                "processor time",
                used.server_cpu_microseconds_per_request,
                used.client_cpu_microseconds_per_request,
                used.processors_busy_elsewhere
            );
            println!("{:<16} {:>10} MiB at most", "server's memory", used.server_peak_bytes / 1024 / 1024);
        }
        for (verdict, count) in &self.verdicts {
            println!("{verdict:<16} {count:>10}");
        }
        println!("{:<16} {:>10}", "tokens verified", self.tokens_verified);
        println!("{:<16} {:>10}", "errors", self.errors);
        Ok(())
    }
}

/// The smallest value that `percent` of the values don't exceed (nearest rank).
fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}
