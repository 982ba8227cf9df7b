//! `dev`: the whole service on this machine, set up, demonstrated and served by one command.

mod client;
mod person;
mod play;
mod state;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use mandate_core::AgentName;
use serde::Serialize;

use crate::app::{App, Running, StopSignal};
use crate::clock::{Clock, Entropy, SystemClock, SystemEntropy};
use crate::config::{Config, Settings, started_by_cargo};
use crate::error::Fault;
use crate::model::master_key::MasterKey;
use crate::service::{keys, organizations};
use crate::store;
use client::Client;
use play::Scene;
use state::Data;

/// The port of the API; the others follow it.
const DEFAULT_PORT: u16 = 8080;
/// The last port that leaves room for the others.
const LAST_PORT: u16 = u16::MAX - 3;
/// The name of the demonstration organization.
const ORGANIZATION: &str = "demo";

/// What can be typed behind `dev`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Keep the database and the keys in this directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,

    /// Start over: delete what an earlier start has left there
    #[arg(long)]
    fresh: bool,

    /// The API's port; the public listener, ops and the console take the next ones. 0 takes free ones
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(..=i64::from(LAST_PORT)))]
    port: u16,

    /// Demonstrate nothing; print one line of JSON when ready
    #[arg(long)]
    json: bool,
}

/// The one line of `--json`.
#[derive(Serialize)]
struct Ready<'a> {
    base_url: &'a str,
    verdicts_url: &'a str,
    docs_url: &'a str,
    ops_url: &'a str,
    console_url: &'a str,
    console_link: &'a str,
    organization_key: &'a str,
    live_organization_key: &'a str,
    database: &'a str,
}

/// Sets the service up, demonstrates it, and serves until it is stopped.
///
/// # Errors
/// The directory cannot be used, a port is taken, or the demonstration does not go as it must.
pub async fn run(options: Options) -> Result<(), Fault> {
    let mut stop = StopSignal::listen()?;
    let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
    // Before anything is deleted: another service may be at work on it.
    let _lock = state::lock(&options.data)?;
    let data = Data::open(&options.data, options.fresh, entropy.as_ref())?;
    set_up(&data, clock.now()).map_err(|fault| Fault::new(format!("{fault}; --fresh starts over")))?;
    let config = Config {
        settings: Settings { database: data.database(), ..listening(options.port) },
        master_key: MasterKey::parse(&data.keys.master_key)?,
    };
    let starting = App::start(config, clock.clone(), entropy as Arc<dyn Entropy>);
    let Some(started) = stop.unless_received(starting).await else { return Ok(()) };
    let running = started.map_err(with_a_hint)?;
    let serving = async {
        show(&options, data, &running, clock.as_ref()).await?;
        std::future::pending().await
    };
    let ended = tokio::select! {
        failed = serving => failed,
        () = stop.received() => Ok(()),
    };
    running.stop_or_abort(&mut stop).await.and(ended)
}

async fn show(options: &Options, data: Data, running: &Running, clock: &dyn Clock) -> Result<(), Fault> {
    let mut out = anstream::stdout();
    let console_url = running.urls.console.as_deref().unwrap_or_default();
    let console_link = person::invite(&data.database(), &AgentName::parse(ORGANIZATION)?, console_url)?;
    if options.json {
        let line = serde_json::to_string(&Ready {
            base_url: &running.urls.base,
            verdicts_url: &running.urls.verdicts,
            docs_url: &running.urls.docs,
            ops_url: &running.urls.ops,
            console_url,
            console_link: &console_link,
            organization_key: &data.keys.organization_key,
            live_organization_key: &data.keys.live_organization_key,
            database: &data.database(),
        });
        let line = line.map_err(|e| Fault::new(e.to_string()))?;
        return writeln!(out, "{line}").and_then(|()| out.flush()).map_err(unprintable);
    }
    let client = Client::new(running.urls.clone())?;
    Scene { out: &mut out, client, data, clock, console_link }.play().await
}

/// Makes the demonstration organization, unless it is there.
fn set_up(data: &Data, now: mandate_core::Timestamp) -> Result<(), Fault> {
    let database = data.database();
    let (sandbox_key, live_key) = (data.organization_key()?, data.live_organization_key()?);
    let name = AgentName::parse(ORGANIZATION)?;
    store::migrate(&database)?;
    let created = store::run_once(&database, |tx| {
        if keys::find(tx, &sandbox_key.hash(), now)?.is_some() {
            return Ok(());
        }
        let command = organizations::Create { name, sandbox_key, live_key, at: now };
        organizations::create(tx, &command)
    })?;
    created.map_err(|refusal| Fault::new(refusal.message))
}

fn listening(port: u16) -> Settings {
    let address = |offset| SocketAddr::from(([127, 0, 0, 1], if port == 0 { 0 } else { port + offset }));
    Settings {
        api_address: address(0),
        public_address: address(1),
        ops_address: address(2),
        console_address: Some(address(3)),
        loopback_webhooks: true,
        ..Settings::default()
    }
}

/// How the `mandate` command is run from where the service was started.
fn command() -> String {
    let beside =
        std::env::current_exe().map(|path| path.with_file_name("mandate")).ok().filter(|path| path.exists());
    let here = std::env::current_dir().unwrap_or_default();
    match beside {
        Some(path) => quoted(&path.strip_prefix(&here).unwrap_or(&path).to_string_lossy()),
        None if started_by_cargo() && cfg!(debug_assertions) => "cargo run -q --bin mandate --".to_owned(),
        None if started_by_cargo() => "cargo run -q --release --bin mandate --".to_owned(),
        None => "mandate".to_owned(),
    }
}

/// `text` as one word of a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn with_a_hint(fault: Fault) -> Fault {
    match fault {
        Fault::Listen(why) => Fault::Listen(format!("{why}; --port 0 takes free ports")),
        other => other,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn unprintable(error: std::io::Error) -> Fault {
    Fault::new(format!("standard output cannot be written: {error}"))
}
