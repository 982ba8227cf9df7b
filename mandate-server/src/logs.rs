//! The log, written to standard error as text or JSON. It never holds a key, a token or a body.

use std::fmt::{Debug, Write as _};
use std::io::{IsTerminal as _, stderr};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber, warn};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::prelude::*;

use crate::config::{self, LogFormat};

/// Writes the log to standard error from now on; of libraries, only warnings. A second call changes nothing.
pub fn start(format: LogFormat, level: LevelFilter) {
    start_gathering(format, level, None);
}

/// The same, but the lines are gathered too.
pub fn start_gathering(format: LogFormat, level: LevelFilter, gathered: Option<Gathered>) {
    let libraries = level.min(LevelFilter::WARN);
    let wanted = Targets::new().with_default(libraries).with_target(env!("CARGO_CRATE_NAME"), level);
    let lines = fmt::layer().with_writer(stderr).with_target(false);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let gathered = gathered.map(|gathered| gathered.with_filter(wanted.clone()));
    let _ = tracing_subscriber::registry().with(lines.with_filter(wanted)).with(gathered).try_init();
}

/// The lines of a short log, for a command that shows them in another form. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Gathered(Arc<Mutex<Vec<String>>>);

impl Gathered {
    /// The lines so far, oldest first: each message, followed by its fields.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<S: Subscriber> Layer<S> for Gathered {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let line = line.message + &line.fields;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing into a text does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// Warns of variables that look like settings and are none, and of a master key that others can read.
pub fn warn_of_environment() {
    for config::Unread { name, nearest } in config::unread_variables() {
        warn!(name, nearest, "this variable is not read; is the nearest one meant?");
    }
    if let Some(exposed) = config::master_key_exposed() {
        warn!(file = exposed, "other users can read the master key's file");
    }
}
