//! Sends recorded instructions to the settlement provider, and stores the results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use mandate_core::Timestamp;
use tokio::sync::watch;
use tracing::{error, warn};

use crate::clock::Clock;
use crate::error::Fault;
use crate::metrics::{Metrics, Settling};
use crate::model::call::ScriptError;
use crate::service::escrows;
use crate::settlement::{Instruction, Settlement};
use crate::store::Store;
use crate::store::sql::escrows::{EntryKey, Escrow, SettlementStatus};
use crate::store::tx::Tx;

/// How often due instructions are looked for, in seconds. New ones are taken up at once.
const LOOK_SECONDS: u64 = 5;
/// How many instructions are read at a time.
const MAX_AT_ONCE: i64 = 100;
/// How many are being sent at a time.
const MAX_UNDER_WAY: usize = 8;
/// How long one of several servers claims an instruction, in seconds: longer than an attempt takes.
const CLAIM_SECONDS: i64 = 60;
/// The delay before the second attempt, in seconds. It doubles for each attempt that follows.
const FIRST_RETRY_SECONDS: i64 = 5;
/// The longest time between two attempts, in seconds.
const LAST_RETRY_SECONDS: i64 = escrows::LONGEST_WAIT_SECONDS;

/// How long the server waits at its end for running attempts to be stored or given back.
const STOP: Duration = Duration::from_secs(5);

/// The result of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Attempt {
    WrittenDown,
    /// The server stops.
    CutShort,
}

/// Sends what is due, until `stop` changes. An attempt that is cut short is given back, for the next server
/// that looks.
pub(crate) async fn run(
    store: Store,
    settlement: Arc<Settlement>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    stop: watch::Receiver<bool>,
) {
    let mut look = tokio::time::interval(Duration::from_secs(LOOK_SECONDS));
    let work = async {
        while !*stop.borrow() {
            tokio::select! {
                _ = look.tick() => {}
                () = settlement.woken() => {}
                () = stopped(stop.clone()) => return,
            }
            if let Err(fault) = carry_out(&store, &settlement, &metrics, clock.now(), &stop).await {
                error!(kind = fault.kind(), reason = %fault, "instructions to settle cannot be read");
            }
        }
    };
    let late = async {
        stopped(stop.clone()).await;
        tokio::time::sleep(STOP).await;
    };
    tokio::select! {
        () = work => {}
        () = late => warn!("leased settlement instructions were not released in time"),
    }
}

/// Waits for the signal to stop.
async fn stopped(mut stop: watch::Receiver<bool>) {
    // If the sender is gone, it has stopped too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Sends the instructions that are due at `now`, each once. Returns how many there were.
///
/// # Errors
/// They cannot be read.
pub async fn carry_out_due(
    store: &Store,
    settlement: &Settlement,
    metrics: &Metrics,
    now: Timestamp,
) -> Result<usize, Fault> {
    let never = watch::Sender::new(false);
    carry_out(store, settlement, metrics, now, &never.subscribe()).await
}

/// The same, until `stop` becomes true: then none is begun, and those under way are given back.
async fn carry_out(
    store: &Store,
    settlement: &Settlement,
    metrics: &Metrics,
    now: Timestamp,
    stop: &watch::Receiver<bool>,
) -> Result<usize, Fault> {
    let due = store.read(move |tx| escrows::due(tx, now, MAX_AT_ONCE)).await??;
    let (count, began) = (due.len(), Instant::now());
    let round = &Round { store, settlement, metrics, now, began, stop };
    let attempts = stream::iter(due).for_each_concurrent(MAX_UNDER_WAY, |(key, escrow, attempts)| async move {
        if *stop.borrow() {
            return;
        }
        if let Err(fault) = round.take_and_attempt(key, &escrow, attempts).await {
            error!(escrow = %key.escrow, kind = fault.kind(), reason = %fault, "the outcome of an instruction was not written down");
        }
    });
    attempts.await;
    Ok(count)
}

/// The instructions that are due at one time.
struct Round<'a> {
    store: &'a Store,
    settlement: &'a Settlement,
    metrics: &'a Metrics,
    now: Timestamp,
    began: Instant,
    stop: &'a watch::Receiver<bool>,
}

impl Round<'_> {
    async fn take_and_attempt(&self, key: EntryKey, escrow: &Escrow, attempts: i64) -> Result<(), Fault> {
        if !self.store.is_shared() {
            return self.attempt(key, escrow, attempts).await.map(|_| ());
        }
        let passed = i64::try_from(self.began.elapsed().as_secs()).unwrap_or_default();
        let at = self.now.plus_seconds(passed);
        let until = at.plus_seconds(CLAIM_SECONDS);
        let claimed =
            self.store.write(move |tx| escrows::claim(tx, &key, at, until).map_err(ScriptError::Fault));
        // Another server may have taken it.
        if claimed.await?.map_err(|refusal| Fault::new(refusal.message))?
            && self.attempt(key, escrow, attempts).await? == Attempt::CutShort
        {
            let given = self
                .store
                .write(move |tx| escrows::give_back(tx, &key, until, at).map_err(ScriptError::Fault));
            given.await?.map_err(|refusal| Fault::new(refusal.message))?;
        }
        Ok(())
    }

    /// Makes one attempt. The provider may have received one that is cut short: repeating the same
    /// instruction has no further effect.
    async fn attempt(&self, key: EntryKey, escrow: &Escrow, attempts: i64) -> Result<Attempt, Fault> {
        let instruction = Instruction::of(escrow, key.number);
        let instruction =
            instruction.ok_or_else(|| Fault::new("database: an instruction that moves no funds"))?;
        let outcome = tokio::select! {
            outcome = self.settlement.adapter(escrow.kind).carry_out(&instruction) => outcome,
            () = stopped(self.stop.clone()) => return Ok(Attempt::CutShort),
        };
        let status = match outcome {
            Ok(SettlementStatus::Refused) => {
                error!(instruction = instruction.id, "an instruction was refused: its funds have not moved");
                SettlementStatus::Refused
            }
            Ok(status) => status,
            Err(fault) => {
                warn!(instruction = instruction.id, kind = fault.kind(), reason = %fault, "an instruction is sent again later");
                SettlementStatus::Pending
            }
        };
        self.metrics.settled(match status {
            SettlementStatus::Settled => Settling::Settled,
            SettlementStatus::Refused => Settling::Refused,
            SettlementStatus::Pending => Settling::Retried,
        });
        let next_at = self.now.plus_seconds(retry_seconds(attempts));
        let settle =
            move |tx: &mut Tx<'_>| escrows::settle(tx, &key, status, next_at).map_err(ScriptError::Fault);
        let written = self.store.write(settle).await?;
        written.map(|()| Attempt::WrittenDown).map_err(|refusal| Fault::new(refusal.message))
    }
}

/// How long to wait after `attempts` attempts and one more.
fn retry_seconds(attempts: i64) -> i64 {
    let doublings = u32::try_from(attempts).unwrap_or(u32::MAX);
    let seconds = 2_i64.checked_pow(doublings).and_then(|factor| factor.checked_mul(FIRST_RETRY_SECONDS));
    seconds.map_or(LAST_RETRY_SECONDS, |seconds| seconds.min(LAST_RETRY_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_grow_apart_up_to_an_hour() {
        let waits = [0, 1, 2, 9, 10, 62, i64::MAX].map(retry_seconds);
        assert_eq!(waits, [5, 10, 20, 2560, 3600, 3600, 3600]);
    }
}
