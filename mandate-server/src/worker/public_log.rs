//! Keeps the public logs: appends what was committed, signs a checkpoint each second that has news, has it cosigned, and
//! publishes it.
//!
//! Of several servers on a database, the one that holds the lease on the scheduled jobs does it. The lease saves work and
//! guards nothing: each step holds the log's row, and is safe to run twice and on two servers.

mod witnesses;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mandate_core::EnvironmentKind;
use mandate_core::log::SignedCheckpoint;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{error, info};

use self::witnesses::{Contradiction, Cosigning, Witnesses};
use crate::clock::Clock;
use crate::error::{Fault, Repeated};
use crate::metrics::Metrics;
use crate::model::call::ScriptError;
use crate::service::public_log::{Remembered, append, publish};
use crate::service::signing::Keyring;
use crate::store::Store;
use crate::store::sql::public_log::{self, PublicLog};
use crate::store::tx::Tx;

/// How often the logs are looked after.
const EVERY: Duration = Duration::from_secs(1);

/// What keeps the public logs.
pub struct LogKeeper {
    store: Store,
    keyring: Keyring,
    remembered: Remembered,
    witnesses: Witnesses,
    repeated: Repeated,
    metrics: Metrics,
}

impl std::fmt::Debug for LogKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogKeeper")
    }
}

impl LogKeeper {
    /// Keeps the logs in `store`. The last signed checkpoints are kept in `directory` too, if there is one.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(
        store: Store,
        keyring: Keyring,
        clock: Arc<dyn Clock>,
        directory: Option<std::path::PathBuf>,
    ) -> Result<Self, Fault> {
        let (remembered, witnesses) = (Remembered::new(directory), Witnesses::new(clock)?);
        let (repeated, metrics) = (Repeated::in_background(), Metrics::new());
        Ok(Self { store, keyring, remembered, witnesses, repeated, metrics })
    }

    /// Notes in these metrics whether the logs can be kept.
    #[must_use]
    pub fn measured(self, metrics: Metrics) -> Self {
        Self { metrics, ..self }
    }

    /// Looks after each log each second, until `stop` changes. A log does not wait for another one's witnesses.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let work = EnvironmentKind::ALL.map(|kind| self.look_on(kind));
        tokio::select! {
            _ = join_all(work) => {}
            _ = stop.changed() => {}
        }
    }

    async fn look_on(&self, kind: EnvironmentKind) {
        let mut tick = tokio::time::interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.look_at(kind).await;
        }
    }

    /// Appends what waits and publishes a checkpoint, of each kind of log.
    pub async fn look(&self) {
        join_all(EnvironmentKind::ALL.map(|kind| self.look_at(kind))).await;
    }

    async fn look_at(&self, kind: EnvironmentKind) {
        let kept = self.keep(kind).await;
        self.metrics.log_kept(kind, kept.is_ok());
        if let Err(fault) = kept
            && let Some(others) = self.repeated.due(fault.kind())
        {
            error!(%kind, kind_of_fault = fault.kind(), reason = %fault, others, "the public log cannot be kept; what was committed waits");
        }
    }

    /// The same for one kind.
    ///
    /// # Errors
    /// The database fails, or the last checkpoint cannot be written down.
    pub async fn keep(&self, kind: EnvironmentKind) -> Result<(), Fault> {
        if let Some(leases) = self.store.leases()
            && !leases.hold_jobs().await?
        {
            return Ok(());
        }
        let has_news = move |tx: &mut Tx<'_>| -> Result<_, Fault> {
            Ok(append::waits(tx, kind)? || publish::due(tx, kind)?.is_some())
        };
        if !self.store.read(has_news).await?? {
            return self.ask_again(kind).await;
        }
        if !self.is_sound(kind).await? {
            return Ok(());
        }
        while self.store.read(move |tx| append::waits(tx, kind)).await?? {
            let keyring = self.keyring.clone();
            let append = move |tx: &mut Tx<'_>| -> Result<_, ScriptError> {
                Ok(append::append(tx, kind, keyring.log_secrets())?)
            };
            if self.write(append).await? == 0 {
                break;
            }
        }
        let due = self.store.read(move |tx| publish::due(tx, kind)).await??;
        match due {
            Some(log) => self.publish(&log).await,
            None => Ok(()),
        }
    }

    /// Whether the log may grow. It is stopped where it is behind a checkpoint that was signed before, since it would get another
    /// root for a size; and where another log has begun in its place.
    async fn is_sound(&self, kind: EnvironmentKind) -> Result<bool, Fault> {
        let remembered = self.remembered.clone();
        let why = move |tx: &mut Tx<'_>| -> Result<_, Fault> {
            let log = public_log::newest(tx, kind)?;
            let why = if log.stopped.is_none() { remembered.contradicts(tx, &log)? } else { None };
            Ok(why.map(|why| (log.id, why)))
        };
        let Some((log, why)) = self.store.read(why).await?? else { return Ok(true) };
        self.write(move |tx| Ok(public_log::stop(tx, log, Some(&why))?)).await?;
        error!(%kind, "the public log is stopped; see `mandate-server log show`");
        Ok(false)
    }

    /// Stops a log that does not have what a witness has cosigned. Another server may have appended and published since the
    /// witness was asked: so the log is read again, and stopped only if it does not have it then either. Says whether it is.
    async fn stop(&self, log: &PublicLog, what: Contradiction) -> Result<bool, Fault> {
        let (id, kind, witness) = (log.id, log.kind, what.witness().to_owned());
        let stop = move |tx: &mut Tx<'_>| -> Result<_, ScriptError> {
            public_log::hold(tx, id)?;
            let log = public_log::newest(tx, kind)?;
            let Some(why) = what.stops(log.tree.size()).filter(|_| log.id == id && log.stopped.is_none())
            else {
                return Ok(false);
            };
            public_log::stop(tx, id, Some(&why))?;
            Ok(true)
        };
        let is_stopped = self.write(stop).await?;
        if is_stopped {
            error!(%kind, witness, "the public log is stopped; see `mandate-server log show`");
        }
        Ok(is_stopped)
    }

    /// Asks the witnesses that have not cosigned the newest checkpoint yet, where the log is quiet: one that was away comes back.
    async fn ask_again(&self, kind: EnvironmentKind) -> Result<(), Fault> {
        let uncosigned = self.store.read(move |tx| publish::uncosigned(tx, kind)).await??;
        let Some((log, signed)) = uncosigned.filter(|_| self.witnesses.may_ask_again(kind)) else {
            return Ok(());
        };
        if !self.is_sound(kind).await? {
            return Ok(());
        }
        match self.witnesses.cosign(&self.store, &log, signed).await? {
            Cosigning::Done { checkpoint, witnessed } => self.put(&log, checkpoint, witnessed).await,
            Cosigning::Contradicted { what, .. } => self.stop(&log, what).await.map(drop),
        }
    }

    /// Signs a log as it is, writes that down outside of the database, has it cosigned, and publishes it.
    async fn publish(&self, log: &PublicLog) -> Result<(), Fault> {
        let signed = publish::sign(log, self.keyring.master())?;
        let before = self.remembered.last(log)?;
        self.remembered.remember(log, &signed)?;
        match self.witnesses.cosign(&self.store, log, signed.clone()).await? {
            Cosigning::Done { checkpoint, witnessed } => self.put(log, checkpoint, witnessed).await,
            Cosigning::Contradicted { what, refused } => {
                // What one may have cosigned is published, whatever another says.
                if self.stop(log, what).await? && refused {
                    self.remembered.put_back(log, &signed, before.as_ref())?;
                }
                Ok(())
            }
        }
    }

    async fn put(&self, log: &PublicLog, checkpoint: SignedCheckpoint, witnessed: bool) -> Result<(), Fault> {
        let (id, kind) = (log.id, log.kind);
        let size = checkpoint.checkpoint().size();
        self.write(move |tx| Ok(publish::publish(tx, id, kind, (&checkpoint, witnessed))?)).await?;
        tracing::debug!(%kind, size, witnessed, "a checkpoint of the public log is published");
        Ok(())
    }

    async fn write<T: Send + 'static>(
        &self,
        script: impl Fn(&mut Tx<'_>) -> Result<T, ScriptError> + Send + 'static,
    ) -> Result<T, Fault> {
        self.store.write(script).await?.map_err(|refusal| Fault::new(refusal.message))
    }
}

/// Logs that a witness has answered wrongly or not at all.
fn unwilling(name: &str, why: &dyn std::fmt::Display) {
    info!(witness = name, reason = %why, "a witness has not cosigned the checkpoint of the public log");
}
