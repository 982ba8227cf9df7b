//! Sends recorded instructions to the settlement provider, and stores the results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use mandate_core::Timestamp;
use tokio::sync::watch;
use tracing::{error, warn};

use crate::error::Fault;
use crate::metrics::{Metrics, Settling};
use crate::model::call::ScriptError;
use crate::service::escrows::{self, DueInstruction, Reply};
use crate::service::moments::Moments;
use crate::settlement::{Instruction, Settlement};
use crate::store::Store;
use crate::store::sql::escrows::Escrow;
use crate::store::sql::instructions::InstructionKey;
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
    moments: Arc<Moments>,
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
            if let Err(fault) = carry_out(&store, &settlement, &moments, &metrics, &stop).await {
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

/// Sends the instructions that are due, each once. Returns how many there were.
///
/// # Errors
/// They cannot be read.
pub async fn carry_out_due(
    store: &Store,
    settlement: &Settlement,
    moments: &Arc<Moments>,
    metrics: &Metrics,
) -> Result<usize, Fault> {
    let never = watch::Sender::new(false);
    carry_out(store, settlement, moments, metrics, &never.subscribe()).await
}

/// The same, until `stop` becomes true: then none is begun, and those under way are given back.
async fn carry_out(
    store: &Store,
    settlement: &Settlement,
    moments: &Arc<Moments>,
    metrics: &Metrics,
    stop: &watch::Receiver<bool>,
) -> Result<usize, Fault> {
    let now = moments.clock().now();
    let due = store.read(move |tx| escrows::due(tx, now, MAX_AT_ONCE)).await??;
    let (count, began) = (due.len(), Instant::now());
    let round = &Round { store, settlement, moments, metrics, now, began, stop };
    let attempts = stream::iter(due).for_each_concurrent(MAX_UNDER_WAY, |due| async move {
        let DueInstruction { key, escrow, sent } = due;
        if *stop.borrow() {
            return;
        }
        let escrow = match escrow {
            Ok(escrow) => escrow,
            Err(fault) => {
                error!(escrow = %key.escrow, kind = fault.kind(), reason = %fault, "an instruction is not sent: its escrow is damaged");
                return;
            }
        };
        if let Err(fault) = round.take_and_attempt(key, &escrow, sent).await {
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
    moments: &'a Arc<Moments>,
    metrics: &'a Metrics,
    now: Timestamp,
    began: Instant,
    stop: &'a watch::Receiver<bool>,
}

impl Round<'_> {
    async fn take_and_attempt(&self, key: InstructionKey, escrow: &Escrow, sent: i64) -> Result<(), Fault> {
        let Some(leases) = self.store.leases() else {
            return self.attempt(key, escrow, sent).await.map(|_| ());
        };
        let passed = i64::try_from(self.began.elapsed().as_secs()).unwrap_or_default();
        let at = self.now.plus_seconds(passed);
        let until = at.plus_seconds(CLAIM_SECONDS);
        // Another server may have taken it.
        if leases.write(move |tx| escrows::claim(tx, &key, at, until)).await?
            && self.attempt(key, escrow, sent).await? == Attempt::CutShort
        {
            leases.write(move |tx| escrows::give_back(tx, &key, until, at)).await?;
        }
        Ok(())
    }

    /// Makes one attempt. The provider may have received one that is cut short: repeating the same
    /// instruction has no further effect.
    async fn attempt(&self, key: InstructionKey, escrow: &Escrow, sent: i64) -> Result<Attempt, Fault> {
        let instruction = Instruction::of(escrow, key.number);
        let instruction = instruction
            .ok_or_else(|| Fault::corrupt("database: a pending instruction that is not the newest"))?;
        let outcome = tokio::select! {
            outcome = self.settlement.adapter(escrow.kind).carry_out(&instruction) => outcome,
            () = stopped(self.stop.clone()) => return Ok(Attempt::CutShort),
        };
        let reply = outcome.unwrap_or_else(|fault| {
            warn!(instruction = instruction.id, kind = fault.kind(), reason = %fault, "an instruction is sent again later");
            Reply::Pending
        });
        let (said, moments) = (reply.clone(), Arc::clone(self.moments));
        let next_at = self.now.plus_seconds(retry_seconds(sent));
        let settle = move |tx: &mut Tx<'_>| {
            escrows::settle(tx, &key, &said, next_at, &moments).map_err(ScriptError::Fault)
        };
        let counts = self.store.write(settle).await?.map_err(|refusal| Fault::new(refusal.message))?;
        if counts {
            self.counted(&instruction.id, &reply);
        } else {
            let status = reply.status().as_str();
            warn!(
                instruction = instruction.id,
                status, "an instruction had ended: what was said of it then holds"
            );
        }
        Ok(Attempt::WrittenDown)
    }

    fn counted(&self, instruction: &str, reply: &Reply) {
        self.metrics.settled(match reply {
            Reply::Settled => Settling::Settled,
            Reply::Refused { .. } => Settling::Refused,
            Reply::Pending => Settling::Retried,
        });
        if matches!(reply, Reply::Refused { .. }) {
            error!(instruction, "an instruction was refused: its funds have not moved");
        }
    }
}

/// How long to wait after an instruction was sent `sent` times and once more.
fn retry_seconds(sent: i64) -> i64 {
    let doublings = u32::try_from(sent).unwrap_or(u32::MAX);
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
