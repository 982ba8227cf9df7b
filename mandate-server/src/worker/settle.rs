//! Carries out the instructions that were recorded, and writes down what became of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use mandate_core::Timestamp;
use tokio::sync::watch;
use tracing::{error, warn};

use crate::clock::Clock;
use crate::error::Fault;
use crate::metrics::{Metrics, Settling};
use crate::service::{Stop, escrows};
use crate::settlement::{Instruction, Settlement};
use crate::store::Store;
use crate::store::sql::escrows::{EntryKey, Escrow, SettlementStatus};

/// How often it is looked for instructions whose time has come, in seconds. New ones are taken up at once.
const LOOK_SECONDS: u64 = 5;
/// How many instructions are looked at in one go.
const MAX_AT_ONCE: i64 = 100;
/// How many are under way at a time.
const MAX_UNDER_WAY: usize = 8;
/// How long one server has an instruction to itself where there are several, in seconds: longer than an attempt takes.
const CLAIM_SECONDS: i64 = 60;
/// How long after the first attempt the second is made, in seconds; after that, twice as long each time.
const FIRST_RETRY_SECONDS: i64 = 5;
/// The longest time between two attempts, in seconds.
const LAST_RETRY_SECONDS: i64 = escrows::LONGEST_WAIT_SECONDS;

/// Carries out what is due, until `stop` changes. An attempt that is cut short is made again at the next start.
pub(crate) async fn run(
    store: Store,
    settlement: Arc<Settlement>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    mut stop: watch::Receiver<bool>,
) {
    let mut look = tokio::time::interval(Duration::from_secs(LOOK_SECONDS));
    let work = async {
        loop {
            tokio::select! {
                _ = look.tick() => {}
                () = settlement.woken() => {}
            }
            if let Err(fault) = carry_out_due(&store, &settlement, &metrics, clock.now()).await {
                error!(reason = %fault, "instructions to settle cannot be read");
            }
        }
    };
    tokio::select! {
        () = work => {}
        _ = stop.changed() => {}
    }
}

/// Carries out the instructions that are due at `now`, each once. Says how many there were.
///
/// # Errors
/// They cannot be read.
pub async fn carry_out_due(
    store: &Store,
    settlement: &Settlement,
    metrics: &Metrics,
    now: Timestamp,
) -> Result<usize, Fault> {
    let due = store.read(move |tx| escrows::due(tx, now, MAX_AT_ONCE)).await??;
    let (count, began) = (due.len(), Instant::now());
    let attempts = stream::iter(due).for_each_concurrent(MAX_UNDER_WAY, |(key, escrow, attempts)| async move {
        let passed = i64::try_from(began.elapsed().as_secs()).unwrap_or_default();
        let attempted = async {
            if store.is_shared() && !claim(store, key, now.plus_seconds(passed)).await? {
                return Ok(());
            }
            attempt(store, settlement, metrics, key, &escrow, attempts, now).await
        };
        if let Err(fault) = attempted.await {
            error!(escrow = %key.escrow, reason = %fault, "the outcome of an instruction was not written down");
        }
    });
    attempts.await;
    Ok(count)
}

/// Takes an instruction. False when another server has.
async fn claim(store: &Store, key: EntryKey, now: Timestamp) -> Result<bool, Fault> {
    let until = now.plus_seconds(CLAIM_SECONDS);
    let claimed = store.write(move |tx| escrows::claim(tx, &key, now, until).map_err(Stop::Fault)).await?;
    claimed.map_err(|refusal| Fault::new(refusal.message))
}

async fn attempt(
    store: &Store,
    settlement: &Settlement,
    metrics: &Metrics,
    key: EntryKey,
    escrow: &Escrow,
    attempts: i64,
    now: Timestamp,
) -> Result<(), Fault> {
    let instruction = Instruction::of(escrow, key.number);
    let instruction =
        instruction.ok_or_else(|| Fault::new("database: an instruction that moves no funds"))?;
    let outcome = settlement.adapter(escrow.kind).carry_out(&instruction).await;
    let status = match outcome {
        Ok(SettlementStatus::Refused) => {
            error!(instruction = instruction.id, "an instruction was refused: its funds have not moved");
            SettlementStatus::Refused
        }
        Ok(status) => status,
        Err(fault) => {
            warn!(instruction = instruction.id, reason = %fault, "an instruction is sent again later");
            SettlementStatus::Pending
        }
    };
    metrics.settled(match status {
        SettlementStatus::Settled => Settling::Settled,
        SettlementStatus::Refused => Settling::Refused,
        SettlementStatus::Pending => Settling::Retried,
    });
    let next_at = now.plus_seconds(retry_seconds(attempts));
    let written =
        store.write(move |tx| escrows::settle(tx, &key, status, next_at).map_err(Stop::Fault)).await?;
    written.map_err(|refusal| Fault::new(refusal.message))
}

/// How long to wait after so many attempts and one more.
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
