//! What the writer does: scripts and authorizations.

use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::super::Authorization;
use super::super::tx::Tally;
use crate::error::Fault;
use crate::model::call::Answer;

/// How many jobs one transaction may hold.
pub(super) const MAX_BATCH: usize = 256;
/// How many agents' rows are written in one transaction at the end.
pub(super) const AGENTS_AT_ONCE: usize = 1000;
/// How long agents' rows are written at the end: within what a server has to stop.
pub(super) const COUNTING_TIME: Duration = Duration::from_secs(5);

/// Answers a waiter once its transaction has ended: with the fault, if it did not commit.
pub(super) type Reply = Box<dyn FnOnce(Result<(), &Fault>) + Send>;
/// What a script has of its transaction: the connection, and the tally to which it adds what it did; or why there is none.
pub(super) type Begun<'a> = Result<(&'a Connection, &'a mut Tally), Fault>;
/// A script, run inside the transaction.
pub(super) type Script = Box<dyn FnOnce(Begun<'_>) -> Reply + Send>;

/// What the writer does.
pub(super) enum Job {
    Script(Script),
    Authorization(Box<PendingAuthorization>),
}

/// Where the answer to an authorization goes.
pub(super) type Waiter = oneshot::Sender<Result<Answer, Fault>>;

/// An authorization, and where its answer goes.
pub(super) struct PendingAuthorization {
    pub(super) authorization: Authorization,
    pub(super) waiter: Waiter,
}
