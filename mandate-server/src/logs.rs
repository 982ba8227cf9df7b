//! The log: where it goes and how it is written. It never holds a key, a token or a body.

use std::io::{IsTerminal as _, stderr};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::config::LogFormat;

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
