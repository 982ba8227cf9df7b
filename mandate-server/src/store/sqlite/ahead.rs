//! Decides ahead of the writer: on what the batches before it leave, while these are being committed.
//!
//! What is decided here is a draft. It rests on what is known in memory, and on nothing being kept under its idempotency
//! key; the writer looks whether that holds, and decides itself where it does not. What was told to nobody is no decision.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use lru::LruCache;
use mandate_core::Timestamp;
use rusqlite::Connection;
use tokio::sync::mpsc;

use super::super::tail::Tail;
use super::super::tx::{Backend, Owing, Row, Session, Tx, Value};
use super::super::{Authorization, Decider, Drafted, Found};
use super::changes::Board;
use super::jobs::{Asked, Drafts, Job, MAX_BATCH, SETTLED, SETTLING};
use super::known::Known;
use super::signers::{Decided, Signers, Unsigned};
use super::{SqliteSession, gathered, whole};
use crate::error::Fault;
use crate::model::records::{KeptKey, UsageKey};

/// Drafts that may be on their way to the disk before no more are made: those that commit, and those that are next.
const MAX_UNDER_WAY: usize = 2 * MAX_BATCH;
/// How long it lets requests gather while the writer has something to do. To be woken for each of them would cost more than
/// to decide on it; and a COMMIT takes longer than this.
const GATHERING: Duration = Duration::from_micros(200);
/// Agents that are settled with a batch at most, because the tail of the log is too long. It grows by less.
const MAX_OVERDUE: usize = MAX_BATCH;
/// Idempotency keys that are remembered, to tell a retry. One takes about 150 bytes.
const MAX_NAMES: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// Whoever decides ahead.
pub(super) struct Ahead {
    pub(super) connection: Connection,
    pub(super) decider: Arc<dyn Decider>,
    pub(super) signers: Signers,
    pub(super) board: Arc<Board>,
    pub(super) tail: Arc<Tail>,
    pub(super) writer: mpsc::Sender<Job>,
    /// Says of how many more batches, in order, the transactions have ended.
    pub(super) ended: Receiver<usize>,
}

impl Ahead {
    /// Decides until nobody can ask any more, or the writer has ended.
    pub(super) fn serve(self, waiting: mpsc::Receiver<Asked>) {
        let progress = Progress { sent: 0, ended: 0, under_way: VecDeque::new(), ends: &self.ended };
        let (known, names) = (Known::new(), LruCache::sparse(MAX_NAMES));
        Thread { ahead: &self, known, names, newest: 0, confused: false, progress, tail: None }
            .serve(waiting);
        self.signers.end();
    }
}

/// How far the writer has come.
struct Progress<'a> {
    /// Batches that were sent to it, numbered from 1.
    sent: u64,
    /// Of these, those that are committed, or will never be.
    ended: u64,
    /// How many drafts are in each of the others, in order.
    under_way: VecDeque<usize>,
    ends: &'a Receiver<usize>,
}

impl Progress<'_> {
    /// A batch of so many drafts is on its way.
    fn send(&mut self, drafts: usize) {
        self.sent += 1;
        self.under_way.push_back(drafts);
    }

    /// So many more batches have ended.
    fn end(&mut self, batches: usize) {
        self.under_way.drain(..batches.min(self.under_way.len()));
        self.ended = self.sent - self.under_way.len() as u64;
    }

    /// Waits until at most `most` drafts are under way; false when the writer is no more.
    fn wait(&mut self, most: usize) -> bool {
        while let Ok(batches) = self.ends.try_recv() {
            self.end(batches);
        }
        while self.under_way.iter().sum::<usize>() > most {
            match self.ends.recv() {
                Ok(batches) => self.end(batches),
                Err(_) => return false,
            }
        }
        true
    }

    /// Waits a moment, unless the writer has nothing to do, or ends something before.
    fn pause(&mut self) {
        if !self.under_way.is_empty()
            && let Ok(batches) = self.ends.recv_timeout(GATHERING)
        {
            self.end(batches);
        }
    }
}

struct Thread<'a> {
    ahead: &'a Ahead,
    known: Known,
    /// Idempotency keys that were seen lately.
    names: LruCache<KeptKey, ()>,
    /// The newest change that `known` has heard of.
    newest: u64,
    /// Deciding has ended in a panic: `known` may hold anything.
    confused: bool,
    progress: Progress<'a>,
    /// The tail of the log, for the batch that is decided on.
    tail: Option<Arc<Tail>>,
}

impl Thread<'_> {
    fn serve(mut self, mut waiting: mpsc::Receiver<Asked>) {
        let mut asked = Vec::with_capacity(MAX_BATCH);
        // Whoever waits is decided on at once, so that it is done when the writer comes for the next transaction.
        while self.progress.wait(MAX_UNDER_WAY - MAX_BATCH)
            && waiting.blocking_recv_many(&mut asked, MAX_BATCH) > 0
        {
            if !self.hear() {
                return;
            }
            let drafts = self.drafts(&mut asked);
            self.progress.send(drafts.all.len());
            if self.ahead.writer.blocking_send(Job::Drafts(drafts)).is_err() {
                return;
            }
            self.progress.pause();
        }
        self.settle();
    }

    /// At the end, has the rows of all agents written that are known: what they hold need not be read again. It ends in time.
    fn settle(&mut self) {
        if !self.ahead.tail.is_whole() || !self.hear() {
            return;
        }
        let began = Instant::now();
        for agents in self.known.owing().chunks(SETTLED) {
            if began.elapsed() >= SETTLING {
                return;
            }
            let batch = self.progress.sent + 1;
            let counted = agents.iter().filter_map(|agent| self.known.count(agent, batch)).collect();
            let drafts = Drafts { known: self.newest, all: Vec::new(), counted, overdue: Vec::new() };
            self.progress.send(agents.len());
            let sent = self.ahead.writer.blocking_send(Job::Drafts(drafts));
            // One is written while the next is put together.
            if sent.is_err() || !self.progress.wait(SETTLED) {
                return;
            }
        }
    }

    /// Forgets what does not hold any more. Where batches under way were decided on that, it waits until they have ended:
    /// what they leave is to be read then. False when the writer is no more.
    fn hear(&mut self) -> bool {
        loop {
            let mut news = self.ahead.board.news();
            self.newest = news.newest;
            news.everything |= std::mem::take(&mut self.confused);
            if !self.known.forget(&news, self.progress.ended) {
                return true;
            }
            if !self.progress.wait(0) {
                return false;
            }
        }
    }

    fn drafts(&mut self, asked: &mut Vec<Asked>) -> Drafts {
        let ahead = self.ahead;
        let visit = ahead.tail.visit();
        self.tail = whole(&ahead.tail);
        let now = catch_unwind(AssertUnwindSafe(|| self.ahead.decider.now()));
        self.confused |= now.is_err() || !self.ahead.connection.is_autocommit();
        let mut unsigned = Vec::with_capacity(asked.len());
        for asked in asked.drain(..) {
            let decided = if let (Ok(now), false) = (&now, self.confused) {
                let decided = catch_unwind(AssertUnwindSafe(|| self.decide(&asked.authorization, *now)));
                decided.unwrap_or_else(|_| {
                    self.confused = true;
                    None
                })
            } else {
                None
            };
            let at = now.as_ref().map_or(asked.authorization.call.at, |now| *now);
            unsigned.push(Unsigned { asked, decided, at });
        }
        if !self.ahead.connection.is_autocommit()
            && let Err(e) = self.ahead.connection.execute_batch("COMMIT")
        {
            tracing::debug!(error = %e, "a snapshot could not be ended");
            // What is read from it further on could be out of date.
            self.confused = true;
            let _ = self.ahead.connection.execute_batch("ROLLBACK");
        }
        self.tail = None;
        drop(visit);
        let (mut counted, mut overdue) = (Vec::new(), Vec::new());
        for key in ahead.tail.overdue(MAX_OVERDUE, |key| self.known.has_counted(key)) {
            if self.known.has(&key) {
                counted.extend(self.known.count(&key, self.progress.sent + 1));
            } else {
                overdue.push(key);
            }
        }
        let (all, whole) = ahead.signers.sign(unsigned);
        if !whole {
            // What is lost may be counted in these.
            counted.clear();
            self.confused = true;
        }
        Drafts { known: self.newest, all, counted, overdue }
    }

    /// Decides on one; nothing when the writer is to do that, as after a panic, which has told why.
    fn decide(&mut self, authorization: &Authorization, now: Timestamp) -> Option<Decided> {
        if let Some(claim) = &authorization.call.idempotency
            && self.names.put(claim.key(&authorization.call.caller), ()).is_some()
        {
            // A retry: something is kept under its key, and would bring the draft down.
            return None;
        }
        let environment = authorization.call.caller.environment.id;
        let key = authorization.request.as_ref().ok().map(|request| UsageKey::of(environment, request, now));
        let mut found = Found::default();
        let put_off = self.ahead.tail.is_whole();
        let mut snapshot = Snapshot { connection: &self.ahead.connection, tail: &mut self.tail };
        match self.known.mark(&mut Tx::new(&mut snapshot)) {
            Ok(mark) => found.mark = Some(mark),
            Err(fault) => {
                tracing::debug!(reason = %fault, "the mark of the clock could not be read ahead");
                return None;
            }
        }
        if let Some(key) = &key {
            match self.known.find(key, self.progress.ended, &mut Tx::new(&mut snapshot)) {
                Ok(standing) => found.standing = Some(standing?),
                Err(fault) => {
                    tracing::debug!(reason = %fault, "what decides could not be read ahead");
                    return None;
                }
            }
        }
        let drafted = self.ahead.decider.draft(authorization, now, &found).ok()?;
        let counted = match (&drafted, &key) {
            (Drafted::Unsigned(made), Some(key)) => {
                self.known.keep(key, &made.ruling.decision, now, self.progress.sent + 1, put_off).ok()?
            }
            _ => None,
        };
        Some(Decided { drafted, counted })
    }
}

/// A snapshot of what is committed, taken when something is read for the first time, and held until the batch is decided.
struct Snapshot<'a> {
    connection: &'a Connection,
    tail: &'a mut Option<Arc<Tail>>,
}

impl Session for Snapshot<'_> {
    fn backend(&self) -> Backend {
        Backend::Sqlite
    }

    fn hold(&mut self, _: &'static str, _: &[Value]) -> Result<(), Fault> {
        Ok(())
    }

    fn owing(&self) -> Owing {
        Owing::Reading
    }

    fn tail(&mut self) -> Result<Arc<Tail>, Fault> {
        if self.tail.is_none() {
            *self.tail = Some(gathered(self)?);
        }
        Ok(self.tail.clone().unwrap_or_default())
    }

    fn query(&mut self, sql: &'static str, parameters: &[Value]) -> Result<Vec<Row>, Fault> {
        if self.connection.is_autocommit() {
            self.connection.execute_batch("BEGIN")?;
        }
        SqliteSession::reading(self.connection, None).query(sql, parameters)
    }

    fn execute(&mut self, _: &'static str, _: &[Value]) -> Result<usize, Fault> {
        Err(Fault::new("what is decided ahead is written by the writer"))
    }
}
