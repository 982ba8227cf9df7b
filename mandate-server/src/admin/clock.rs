//! `clock`: the clock and its mark, the latest instant decided by, at most a second more.

use clap::Subcommand;
use mandate_core::Timestamp;
use serde::Serialize;

use super::{Common, Failure, operator, terminal};
use crate::clock::SystemClock;
use crate::service::moments;
use crate::store::tx::Tx;

/// The clock by which decisions are made.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the clock and its mark: the latest instant decided by, at most a second more
    #[command(after_help = SHOW_HELP)]
    Show {
        #[command(flatten)]
        common: Common,
    },
    /// Decide by the clock as it is now, although decisions were made by later instants
    #[command(after_help = ACCEPT_HELP)]
    Accept {
        /// Do not ask
        #[arg(long)]
        yes: bool,

        #[command(flatten)]
        common: Common,
    },
}

const SHOW_HELP: &str = "\
Examples:
  mandate-server clock show
  mandate-server clock show --json

While the clock is more than 5 seconds behind its mark, servers refuse authorizations, approvals and new \
escrows with 503. \
With PostgreSQL the clock is the database's.";

const ACCEPT_HELP: &str = "\
Examples:
  mandate-server clock accept
  mandate-server clock accept --yes

Run it only when the clock is right, and was wrong before: ahead by minutes or days, and set back. Servers go on \
deciding at once. Without it they go on when the clock has reached the mark. The command writes an audit record. It is refused \
while the clock is not behind.";

/// What is shown.
#[derive(Serialize)]
struct View {
    now: Timestamp,
    mark: Timestamp,
    behind_seconds: f64,
    deciding: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exports_reopened: Option<usize>,
}

impl View {
    fn of((now, mark): (Timestamp, Timestamp)) -> Self {
        let behind_millis = mark.millis_since(now).max(0);
        #[expect(clippy::cast_precision_loss, reason = "a duration for a person")]
        let behind_seconds = behind_millis as f64 / 1_000.0;
        let deciding = moments::behind_millis(now, mark).is_none();
        Self { now, mark, behind_seconds, deciding, exports_reopened: None }
    }
}

impl Command {
    /// Does what the command says.
    ///
    /// # Errors
    /// The database does not answer, the clock is not behind, or it was not said that the mark is to be set back.
    pub fn run(self) -> Result<(), Failure> {
        let (common, view) = match self {
            Self::Show { common } => {
                let view = View::of(show(&common)?);
                (common, view)
            }
            Self::Accept { yes, common } => {
                let before = View::of(show(&common)?);
                if !before.deciding {
                    let View { now, mark, .. } = before;
                    let question = format!(
                        "Decisions were made by instants up to {mark}. They are to be made by the clock again, which shows {now}."
                    );
                    terminal::confirm(&question, yes)?;
                }
                let (settings, by) = (common.settings()?, operator::here());
                let accept = |tx: &mut Tx<'_>| moments::accept(tx, &SystemClock, &by);
                let (now, mark, reopened) = terminal::run(&settings.database, accept)?;
                (common, View { exports_reopened: Some(reopened), ..View::of((now, mark)) })
            }
        };
        terminal::print(common.json, &view, |out| {
            writeln!(out, "clock     {}", view.now)?;
            writeln!(out, "mark      {}", view.mark)?;
            writeln!(
                out,
                "deciding  {}",
                if view.deciding { "yes" } else { "no: the clock is behind its mark" }
            )?;
            if let Some(exports) = view.exports_reopened.filter(|exports| *exports > 0) {
                writeln!(
                    out,
                    "exports   {exports} may lack what is decided from now on: see their incomplete_since"
                )?;
            }
            Ok(())
        })
    }
}

fn show(common: &Common) -> Result<(Timestamp, Timestamp), Failure> {
    let settings = common.settings()?;
    terminal::run(&settings.database, |tx| Ok(moments::show(tx, &SystemClock)?))
}
