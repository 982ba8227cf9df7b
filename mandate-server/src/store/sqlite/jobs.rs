//! What goes to the writer's threads: scripts, authorizations, and what was decided on these ahead of the writer.

use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::super::sql::owed::Counted;
use super::super::tx::Tally;
use super::super::{Authorization, Signed};
use crate::error::Fault;
use crate::model::call::Answer;
use crate::model::records::AgentKey;

/// How many jobs one transaction may hold, and how many authorizations a batch.
pub(super) const MAX_BATCH: usize = 256;
/// How many agents are settled at a time at the end.
pub(super) const SETTLED: usize = 1000;
/// How long counters are settled at the end, those that are known in memory, and then the others: within what a server has to
/// stop.
pub(super) const SETTLING: Duration = Duration::from_secs(5);

/// Tells a waiter how its transaction ended: with the fault, if it did not commit.
pub(super) type Tell = Box<dyn FnOnce(Result<(), &Fault>) + Send>;
/// A script, run inside the batch; it says what it did, and brings its own ending.
pub(super) type Script = Box<dyn FnOnce(&Connection, &mut Tally) -> Tell + Send>;

/// What the writer does.
pub(super) enum Job {
    Script(Script),
    Drafts(Drafts),
}

/// Who waits for the answer to an authorization.
pub(super) type Waiter = oneshot::Sender<Result<Answer, Fault>>;
/// The answers of a transaction, each with the one who waits for it.
pub(super) type Answers = Vec<(Waiter, Result<Answer, Fault>)>;

/// An authorization, and who waits for its answer.
pub(super) struct Asked {
    pub(super) authorization: Authorization,
    pub(super) waiter: Waiter,
}

/// An authorization, and what was decided on it.
pub(super) struct Draft {
    pub(super) asked: Asked,
    /// None: the writer is to decide.
    pub(super) outcome: Option<Outcome>,
}

/// What was decided on an authorization.
pub(super) struct Outcome {
    /// The answer, and what was made.
    pub(super) signed: Signed,
    /// The rows of its agent, when they are to be written with it.
    pub(super) counted: Option<Counted>,
}

/// A batch of drafts. The writer commits whatever batches are there together.
pub(super) struct Drafts {
    /// The newest of the writer's changes that was known.
    pub(super) known: u64,
    /// Those who ask, and what was decided on that.
    pub(super) all: Vec<Draft>,
    /// Rows of other agents, which are to be written by now.
    pub(super) counted: Vec<Counted>,
    /// Agents that are not known, and whose rows are to be written by now.
    pub(super) overdue: Vec<AgentKey>,
}
