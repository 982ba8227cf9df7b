//! How the service is reached: the options of every command that talks to it.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use crate::input::Source;
use crate::value::{idempotency_key, source};

/// How the service is reached.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct Service {
    /// The API's base URL, which ends in /v1 [env: MANDATE_BASE_URL; default: from the profile]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// Read the API key from this file, or from standard input with `-`
    #[arg(long, value_name = "FILE|-", value_parser = source)]
    pub(crate) key_file: Option<Source>,
}

/// How the service is reached for a change.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct Change {
    #[command(flatten)]
    pub(crate) service: Service,

    /// The idempotency key: requests with the same key take effect once [default: random]
    #[arg(long, value_name = "KEY", value_parser = idempotency_key)]
    pub(crate) idempotency_key: Option<String>,
}
