//! The log: where it goes and how it is written. It never holds a key, a token or a body.

use std::io::{IsTerminal as _, stderr};

use tracing::level_filters::LevelFilter;
use tracing::warn;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::config::{self, LogFormat};

/// Writes the log to standard error from now on; of libraries, only warnings. A second call changes nothing.
pub fn start(format: LogFormat, level: LevelFilter) {
    let libraries = level.min(LevelFilter::WARN);
    let wanted = Targets::new().with_default(libraries).with_target(env!("CARGO_CRATE_NAME"), level);
    let lines = fmt::layer().with_writer(stderr).with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let _ = tracing_subscriber::registry().with(lines.with_filter(wanted)).try_init();
}

/// Warns of variables that look like settings and are none, and of a master key that others can read.
pub fn warn_of_environment() {
    for config::Unread { name, nearest } in config::unread_variables() {
        warn!(name, nearest, "nobody reads this variable; is the nearest one meant?");
    }
    if let Some(exposed) = config::master_key_exposed() {
        warn!(file = exposed, "the master key is not kept to itself");
    }
}
