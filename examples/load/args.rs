//! The command line. The key is read from the environment, never from an argument.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use mandate_core::api_key::{ApiKey, KeyClass};

use crate::Failure;
use crate::mix::Mix;
use crate::target::Target;

/// The variable that holds the organization's key.
const KEY_VARIABLE: &str = "MANDATE_ORGANIZATION_KEY";

/// Ask a mandate server on this machine for authorizations, and measure it
///
/// Reads an organization's key from MANDATE_ORGANIZATION_KEY, registers new agents, writes a mandate for each, and asks for
/// authorizations as those agents. With --keys it asks as existing agents. An agent may make 10 requests in 60 seconds; more
/// are answered with deny_velocity, which costs the server as much.
#[derive(Debug, Parser)]
#[command(name = "load")]
pub(crate) struct Args {
    /// The API, on a loopback address: http://127.0.0.1:PORT/v1
    #[arg(long, value_name = "URL", value_parser = Target::parse)]
    pub(crate) base_url: Target,

    /// Number of agents to register and to ask as
    #[arg(long, value_name = "N", default_value = "1000", value_parser = RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    pub(crate) agents: usize,

    /// Register no agents: ask as those whose keys are in this file, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "agents")]
    pub(crate) keys: Option<PathBuf>,

    /// Number of connections, each with one request at a time
    #[arg(long, value_name = "N", default_value = "64", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub(crate) connections: usize,

    /// Requests a second, whatever the answers take [default: each connection asks as soon as it has its answer]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rate: Option<u32>,

    /// Before measuring, ask once as each agent, for at most this long
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = clap::value_parser!(u64).range(0..=60))]
    warm_up: u64,

    /// Stop after this long
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,

    /// Stop after this many requests
    #[arg(long, value_name = "N", default_value = "2000000", value_parser = RangedU64ValueParser::<usize>::new().range(1..=20_000_000))]
    pub(crate) requests: usize,

    /// Expected verdicts of the requests, in shares
    #[arg(long, value_name = "MIX", default_value = "allow=85,review=5,deny_limit=5,deny_category=5", value_parser = Mix::parse)]
    pub(crate) mix: Mix,

    /// Percentage of requests with an Idempotency-Key, each a new one
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = RangedU64ValueParser::<usize>::new().range(0..=100))]
    pub(crate) idempotent: usize,

    /// Also measure processor time and memory of the process with this id
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// Print one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs(self.warm_up)
    }
}

/// The organization's key, from the environment.
#[expect(clippy::disallowed_methods, reason = "the home of the environment in this command")]
pub(crate) fn organization_key() -> Result<ApiKey, Failure> {
    let text = std::env::var(KEY_VARIABLE).map_err(|e| format!("{KEY_VARIABLE}: {e}"))?;
    let key = ApiKey::parse(&text).map_err(|e| format!("{KEY_VARIABLE}: {e}"))?;
    match key.class() {
        KeyClass::Organization => Ok(key),
        KeyClass::Agent => {
            Err(format!("{KEY_VARIABLE} must be an organization's key; it is an agent's").into())
        }
    }
}
