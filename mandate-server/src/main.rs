//! The command line of the server, and its exit codes.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory as _, Parser, Subcommand};
use mandate_core::api_key::masked;
use mandate_server::admin::{self, Failure};
use mandate_server::app::{App, Hangup, StopSignal};
use mandate_server::clock::{SystemClock, SystemEntropy};
use mandate_server::config::{self, Config, Flags, Settings};
use mandate_server::http::openapi::{self, Hosts};
use mandate_server::{dev, logs};
use tracing::info;
use tracing::level_filters::LevelFilter;

/// Decides whether an autonomous agent may spend money, and records and signs each decision.
#[derive(Debug, Parser)]
#[command(name = "mandate-server", version, arg_required_else_help = true, after_help = ROOT_HELP)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

const ROOT_HELP: &str = "\
Examples:
  mandate-server dev                         Try everything on this machine
  mandate-server serve --config server.toml  Run a server
  mandate-server organization create acme    Create an organization; a server may be running
  mandate-server backup create today.db      Take a backup; a server may be running

Exit codes:
  0 done    1 refused or failed    2 the command line or the configuration cannot be used
  3 check: the database could not be read";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API, the public keys and the ops endpoints
    #[command(after_help = SERVE_HELP)]
    Serve(Box<Flags>),
    /// Set up, demonstrate and serve the whole service on this machine
    #[command(after_help = DEV_HELP)]
    Dev(dev::Options),
    #[command(flatten)]
    Admin(admin::Command),
    #[command(flatten)]
    Manual(admin::manual::Command),
    /// Print the OpenAPI 3.1 document of the API
    #[command(after_help = OPENAPI_HELP)]
    Openapi,
}

const SERVE_HELP: &str = "\
Examples:
  # once; keep it apart from the database
  (umask 077; openssl rand -hex 32 > mandate-master.key)
  MANDATE_MASTER_KEY_FILE=mandate-master.key mandate-server serve

  # server.toml, for: mandate-server serve --config server.toml
  database = \"sqlite:///var/lib/mandate/mandate.db\"
  api_address = \"127.0.0.1:8080\"
  base_url = \"https://api.example.com/v1\"
  verdicts_url = \"https://verdicts.example.com\"

A flag overrides a MANDATE_* variable, a variable the file, the file the default.
The master key encrypts the signing keys; it comes from MANDATE_MASTER_KEY or MANDATE_MASTER_KEY_FILE. \
On SIGTERM or Ctrl-C the server finishes the requests in progress and exits.";

const OPENAPI_HELP: &str = "\
Examples:
  mandate-server openapi > docs/openapi.yaml

A running server serves it with its own addresses, at /openapi.yaml on the public listener.";

const DEV_HELP: &str = "\
Examples:
  mandate-server dev
  mandate-server dev --data /tmp/demo --fresh --port 9000
  mandate-server dev --json --port 0 | jq -r .base_url

The database is mandate-dev.db; its keys are in mandate-dev.json beside it.";

/// What a request allocates in one thread is freed in another, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    take_small_pages();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(e) if e.use_stderr() => return refused(&e),
        Err(help) => help.exit(),
    };
    let ended = match args.command {
        Command::Serve(flags) => serve(&flags),
        Command::Dev(options) => {
            logs::start(config::LogFormat::Text, LevelFilter::WARN);
            run(dev::run(options)).map_err(Failure::failed)
        }
        Command::Admin(command) => command.run(),
        Command::Manual(command) => command.run(Args::command()),
        Command::Openapi => print_contract(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(anstream::stderr(), "error: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

/// Has Linux give memory in pages of 4 KiB. The allocator asks for pages of 2 MiB: 25 MiB more of an idle server, and requests
/// wait while they are cleared.
fn take_small_pages() {
    // Where that is refused, it takes more memory.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Says what is wrong with the command line, which may hold an API key.
fn refused(error: &clap::Error) -> ExitCode {
    let _ = write!(anstream::stderr(), "{}", masked(&error.render().ansi().to_string()));
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn serve(flags: &Flags) -> Result<(), Failure> {
    let settings = Settings::load(flags).map_err(Failure::unusable)?;
    let master_key = config::master_key().map_err(Failure::unusable)?;
    logs::start(settings.log_format, settings.log_level);
    info!(version = env!("CARGO_PKG_VERSION"), ?settings, "starting");
    logs::warn_of_environment();
    run(async {
        let (mut stop, mut hangup) = (StopSignal::listen()?, Hangup::listen()?);
        let config = Config { settings, master_key };
        let starting = App::start(config, Arc::new(SystemClock), Arc::new(SystemEntropy));
        let Some(running) = stop.unless_received(starting).await.transpose()? else {
            info!("stopped before it served");
            return Ok(());
        };
        let urls = &running.urls;
        info!(api = %running.api, public = %running.public, ops = %running.ops, "listening");
        if let (Some(console), Some(console_url)) = (running.console, &urls.console) {
            info!(%console, console_url, "the console is open");
        }
        info!(base_url = urls.base, verdicts_url = urls.verdicts, docs_url = urls.docs, "serving");
        loop {
            tokio::select! {
                () = stop.received() => break,
                () = hangup.received() => running.renew_certificates(),
            }
        }
        info!("stopping");
        running.stop_or_abort(&mut stop).await
    })
    .map_err(Failure::failed)
}

fn print_contract() -> Result<(), Failure> {
    let yaml = openapi::yaml(Hosts::EXAMPLE).map_err(Failure::failed)?;
    std::io::stdout().write_all(yaml.as_bytes()).map_err(Failure::failed)
}

fn run<T>(
    work: impl Future<Output = Result<T, mandate_server::error::Fault>>,
) -> Result<T, mandate_server::error::Fault> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| mandate_server::error::Fault::new(format!("no threads: {e}")))?;
    let ended = runtime.block_on(work);
    // What was cut off is not waited for.
    runtime.shutdown_background();
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_tree_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_teaches_with_an_example() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:\n"), "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&Args::command());
    }
}
