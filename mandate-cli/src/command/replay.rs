//! `mandate replay`: sends recorded events again.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::forward::Forward;
use crate::http::Address;
use crate::input::Source;
use crate::lines::Lines;
use crate::output::{Output, note};
use crate::recording::Recorded;
use crate::style::{CAUTION, GOOD, printable};
use crate::value::source;

/// Send events again that `mandate listen` has recorded, in their order
///
/// The tokens are sent unchanged, so that a receiver verifies them as before. A receiver that accepts only events of the
/// last 24 hours refuses older ones.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate replay events.ndjson --forward-to http://127.0.0.1:3000/hooks
  mandate replay events.ndjson --forward-to http://127.0.0.1:3000/hooks \\
      --jq 'select(.status >= 300).event'

Exit codes:
  0 all were answered with 2xx    23 some were not    37 receiver unreachable, the rest was not sent")]
pub(crate) struct Replay {
    /// The file that `mandate listen` has recorded, or its JSON output
    #[arg(value_name = "FILE|-", value_parser = source)]
    file: Source,
    /// The URL to post to
    #[arg(long, value_name = "URL")]
    forward_to: Address,
}

/// The members of what is printed of an event.
pub(super) const MEMBERS: [&str; 3] = ["event", "type", "status"];

impl Replay {
    pub(super) fn run(&self, output: &mut Output) -> Result<Exit, Failure> {
        let forward = Forward::new(self.forward_to.clone())?;
        let mut lines = Lines::open(&self.file, "the recording")?;
        let (mut exit, mut is_empty) = (Exit::Success, true);
        output.stream();
        loop {
            let line = lines.next(|_| {}).map_err(|e| {
                Failure::new(Exit::Io, format!("the recording cannot be read from {}: {e}", self.file))
            })?;
            // A reader that closes the pipe early does not stop the sending.
            let Some(line) = line else {
                if is_empty {
                    note(format_args!("{} is empty: nothing was sent", self.file));
                }
                return Ok(exit);
            };
            is_empty = false;
            let refused = |why: &dyn std::fmt::Display| {
                let what = format!("line {} of {} is not a recorded event: {why}", line.number, self.file);
                Failure::new(Exit::InvalidRequest, what).next("the lines before it were sent")
            };
            if line.too_long {
                return Err(refused(&"it is too long"));
            }
            let Recorded { event, kind, token } =
                serde_json::from_slice(&line.bytes).map_err(|e| refused(&e))?;
            let status = forward.send(&token).map_err(|why| {
                Failure::new(Exit::Unreachable, why)
                    .note("not sent", format_args!("line {} and what follows", line.number))
            })?;
            let is_taken = (200..300).contains(&status);
            if !is_taken {
                exit = Exit::Findings;
            }
            if output.is_json() {
                output.json(&json!({"event": event, "type": kind, "status": status}))?;
            } else {
                let style = if is_taken { GOOD } else { CAUTION };
                let (event, kind) = (printable(&event), printable(&kind));
                output.text(&format!("{kind:<25}  {event}  {style}{status}{style:#}\n"));
            }
        }
    }
}
