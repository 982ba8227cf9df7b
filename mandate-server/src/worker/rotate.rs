//! Follows what is changed of the signing keys, and rotates them when their time has come.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{error, info};

use crate::clock::{Clock, Entropy};
use crate::error::Fault;
use crate::service::audit::Operator;
use crate::service::signing::Keyring;
use crate::service::signing::rotation::{self, Maker};
use crate::store::Store;

/// How often it is asked whether a signing key has changed, in milliseconds. Well within
/// [`HEAR_SECONDS`](rotation::HEAR_SECONDS).
const POLL_MILLIS: u64 = 500;
/// How often it is looked whether a rotation is due, in seconds.
const LOOK_SECONDS: u64 = 60;
/// Seconds in a day.
const DAY_SECONDS: i64 = 24 * 60 * 60;
/// What audit records call the server itself.
const SERVER: &str = "server, on schedule";

/// Reads the keys anew when any has changed, until `stop` changes.
pub(crate) async fn follow(store: Store, keyring: Keyring, mut stop: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(Duration::from_millis(POLL_MILLIS));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = stop.changed() => return,
        }
        let followed = keyring.clone();
        let read = store.read(move |tx| followed.refresh(tx)).await;
        if let Err(fault) = read.and_then(|read| read) {
            error!(reason = %fault, "the signing keys cannot be read as they are now");
        }
    }
}

/// When signing keys are rotated, and what new ones are made of.
pub(crate) struct Schedule {
    /// After how many days.
    pub(crate) days: u32,
    pub(crate) keyring: Keyring,
    pub(crate) entropy: Arc<dyn Entropy>,
}

/// Rotates the keys that have signed for as long as the schedule says, until `stop` changes.
pub(crate) async fn run(
    store: Store,
    schedule: Schedule,
    clock: Arc<dyn Clock>,
    mut stop: watch::Receiver<bool>,
) {
    let schedule = Arc::new(schedule);
    let mut look = tokio::time::interval(Duration::from_secs(LOOK_SECONDS));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = look.tick() => {}
            _ = stop.changed() => return,
        }
        let (schedule, by) = (Arc::clone(&schedule), Operator { name: SERVER.to_owned(), at: clock.now() });
        let rotated = store.write(move |tx| {
            let maker = Maker { master: schedule.keyring.master(), entropy: &*schedule.entropy };
            rotation::rotate_due(tx, maker, i64::from(schedule.days).saturating_mul(DAY_SECONDS), &by)
        });
        match rotated.await.and_then(|answer| answer.map_err(|refusal| Fault::new(refusal.message))) {
            Ok(keys) => {
                for key in keys {
                    info!(kid = key.kid, sign_from = %key.sign_from, "a signing key was rotated");
                }
            }
            Err(fault) => error!(reason = %fault, "the signing keys could not be rotated"),
        }
    }
}
