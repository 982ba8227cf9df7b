//! `mandate version`: which version this is, and of which commit.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::output::Output;

/// The version, and the commit that it was built from with its date.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("MANDATE_COMMIT"), ")");

/// Print the version, and the commit that it was built from with its date
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate version
  mandate version --jq .version")]
pub(crate) struct Version {}

#[derive(Debug, Serialize)]
struct Built {
    version: &'static str,
    /// None if it was built without its repository.
    commit: Option<&'static str>,
    date: Option<&'static str>,
}

impl Version {
    pub(super) fn run(output: &mut Output) -> Result<Exit, Failure> {
        if output.is_json() {
            let (commit, date) = env!("MANDATE_COMMIT").split_once(" of ").unzip();
            output.json(&Built { version: env!("CARGO_PKG_VERSION"), commit, date })?;
        } else {
            output.text(&format!("mandate {VERSION}\n"));
        }
        Ok(Exit::Success)
    }
}
