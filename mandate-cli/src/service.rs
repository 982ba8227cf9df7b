//! How the service is reached: the options of every command that talks to it.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use crate::input::Source;
use crate::value::{idempotency_key, source};

/// How the service is reached.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct Service {
    /// The service's address, which ends in /v1 [env: MANDATE_BASE_URL]
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,

    /// Read the API key from this file, or from standard input with `-`
    #[arg(long, value_name = "FILE|-", value_parser = source)]
    pub(crate) key_file: Option<Source>,

    /// Send this idempotency key: requests that carry the same one take effect once [default: random]
    #[arg(long, value_name = "KEY", value_parser = idempotency_key)]
    pub(crate) idempotency_key: Option<String>,
}
