//! Reloads signing keys when they change, and rotates them when they are due.

use std::sync::Arc;
use std::time::Duration;

use mandate_core::Timestamp;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{error, info};

use crate::clock::Entropy;
use crate::error::{Fault, Repeated};
use crate::service::audit::Operator;
use crate::service::signing::Keyring;
use crate::service::signing::rotation::{self, Maker};
use crate::store::Store;
use crate::store::tx::Tx;

/// How often changes of signing keys are looked for, in milliseconds. Well within
/// [`PROPAGATION_SECONDS`](rotation::PROPAGATION_SECONDS).
const POLL_MILLIS: u64 = 500;
/// Seconds in a day.
const DAY_SECONDS: i64 = 24 * 60 * 60;
/// The actor in audit records of the server's own changes.
const SERVER: &str = "server, on schedule";

/// Reloads the keys when any has changed, until `stop` changes.
pub(crate) async fn follow(store: Store, keyring: Keyring, mut stop: watch::Receiver<bool>) {
    let repeated = Repeated::in_background();
    let mut tick = tokio::time::interval(Duration::from_millis(POLL_MILLIS));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = stop.changed() => return,
        }
        let followed = keyring.clone();
        let read = store.read(move |tx| followed.refresh(tx)).await;
        if let Err(fault) = read.and_then(|read| read)
            && let Some(others) = repeated.due(fault.kind())
        {
            error!(kind = fault.kind(), reason = %fault, others, "the signing keys cannot be read from the database; those read before stay in use");
        }
    }
}

/// When signing keys are rotated, and where new ones come from.
pub struct Rotation {
    /// After how many days of signing a key is replaced.
    pub days: u32,
    /// The keys in use, and the master key.
    pub keyring: Keyring,
    /// Where new keys are drawn from.
    pub entropy: Arc<dyn Entropy>,
}

impl std::fmt::Debug for Rotation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rotation").field("days", &self.days).finish_non_exhaustive()
    }
}

impl Rotation {
    /// Rotates the keys that have signed for that many days at `now`. Returns when the next ones are due.
    pub(super) async fn rotate_due(
        self: Arc<Self>,
        store: &Store,
        now: Timestamp,
    ) -> Result<Timestamp, Fault> {
        let seconds = i64::from(self.days).saturating_mul(DAY_SECONDS);
        let due = move |tx: &mut Tx<'_>| rotation::next_due(tx, seconds);
        let next = store.read(due).await??;
        if next > now {
            return Ok(next);
        }
        let by = Operator { name: SERVER.to_owned(), at: now };
        let rotated = store.write(move |tx| {
            let maker = Maker { master: self.keyring.master(), entropy: &*self.entropy };
            rotation::rotate_due(tx, maker, seconds, &by)
        });
        for key in rotated.await?.map_err(|refusal| Fault::new(refusal.message))? {
            info!(kid = key.kid, sign_from = %key.sign_from, "a signing key was rotated");
        }
        store.read(due).await?
    }
}
