//! The log: where it goes and how it is written. It never holds a key, a token or a body.

use tracing::level_filters::LevelFilter;

use crate::config::LogFormat;

/// Writes the log to standard error from now on. A second call changes nothing.
pub fn start(format: LogFormat, level: LevelFilter) {
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}
