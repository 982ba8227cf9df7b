//! Keeps the public logs: appends what was committed, signs a checkpoint each second that has news, has it cosigned, and
//! publishes it.
//!
//! Of several servers on a database, the one that holds the lease on the scheduled jobs does it. Each transaction holds the
//! lease, so that a server that has lost it neither appends nor signs nor publishes. Each holds the log's row too.

mod witnesses;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mandate_core::EnvironmentKind;
use mandate_core::log::SignedCheckpoint;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tracing::{debug, error, info};

use self::witnesses::{Answers, Contradiction, Witnesses};
use crate::clock::Clock;
use crate::error::{Fault, Repeated};
use crate::metrics::Metrics;
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
    witnesses: Arc<Witnesses>,
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
        let (remembered, witnesses) = (Remembered::new(directory), Arc::new(Witnesses::new(clock)?));
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
        let Some(since) = self.store.jobs_since().await? else { return self.follow(kind).await };
        self.witnesses.keep_since(since);
        let has_news = move |tx: &mut Tx<'_>| -> Result<_, Fault> {
            Ok(append::waits(tx, kind)? || publish::due(tx, kind)?.is_some())
        };
        if !self.store.read(has_news).await?? {
            return self.ask_again(kind).await;
        }
        if !self.is_sound(kind).await? || !self.is_known_to_witnesses(kind).await? {
            return Ok(());
        }
        while self.store.read(move |tx| append::waits(tx, kind)).await?? {
            let keyring = self.keyring.clone();
            let append = move |tx: &mut Tx<'_>| append::append(tx, kind, keyring.log_secrets());
            if self.store.write_with_jobs(append).await?.is_none_or(|appended| appended == 0) {
                break;
            }
        }
        // What witnesses may cosign is in the database before they see it.
        let (keyring, remembered) = (self.keyring.clone(), self.remembered.clone());
        let sign = move |tx: &mut Tx<'_>| -> Result<_, Fault> {
            // The database may have fallen back since it was found sound: the next look stops the log.
            let log = public_log::newest(tx, kind)?;
            if remembered.forgotten(tx, &log)?.is_some() {
                return Ok(None);
            }
            publish::sign_due(tx, kind, keyring.master())
        };
        match self.store.write_with_jobs(sign).await?.flatten() {
            Some((log, signed)) => self.publish(&log, signed).await,
            None => Ok(()),
        }
    }

    /// Takes note of what another server has published: this one may go on with the log next, on a database that does not know it
    /// any more. What was signed and not published may be taken back.
    async fn follow(&self, kind: EnvironmentKind) -> Result<(), Fault> {
        let remembered = self.remembered.clone();
        let published = move |tx: &mut Tx<'_>| -> Result<_, Fault> {
            let log = public_log::newest(tx, kind)?;
            let is_sound = log.stopped.is_none() && remembered.forgotten(tx, &log)?.is_none();
            Ok(publish::published(&log)?.filter(|_| is_sound).map(|published| (log, published)))
        };
        match self.store.read(published).await?? {
            Some((log, published)) => self.remembered.remember(&log, &published),
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
        let stop = move |tx: &mut Tx<'_>| public_log::stop(tx, log, Some(&why));
        if self.store.write_with_jobs(stop).await?.is_some() {
            error!(%kind, "the public log is stopped; see `mandate-server log show`");
        }
        Ok(false)
    }

    /// Whether no witness has cosigned more than was signed according to the database, or other entries. Asked before a server
    /// signs for the first time: later it remembers itself what was signed. Of a database that was restored nothing is signed.
    async fn is_known_to_witnesses(&self, kind: EnvironmentKind) -> Result<bool, Fault> {
        let last = move |tx: &mut Tx<'_>| -> Result<_, Fault> {
            let log = public_log::newest(tx, kind)?;
            Ok((publish::last(&log)?, log))
        };
        let (last, log) = self.store.read(last).await??;
        let last = last.filter(|_| !self.witnesses.were_compared(log.id));
        let contradiction = match &last {
            Some(last) => self.witnesses.contradiction(&self.store, &log, last).await?,
            None => None,
        };
        let Some(what) = contradiction else {
            self.witnesses.compared(log.id);
            return Ok(true);
        };
        let witness = what.witness().to_owned();
        let stop = move |tx: &mut Tx<'_>| stop(tx, &log, &what);
        let is_stopped = self.store.write_with_jobs(stop).await?.unwrap_or(true);
        if is_stopped {
            error!(%kind, witness, "the public log is stopped; see `mandate-server log show`");
        }
        Ok(!is_stopped)
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
        self.have_cosigned(&log, signed).await.map(drop)
    }

    /// Writes down outside of the database what was signed, has it cosigned, and publishes it.
    async fn publish(&self, log: &PublicLog, signed: SignedCheckpoint) -> Result<(), Fault> {
        let before = self.remembered.in_file(log)?;
        self.remembered.remember(log, &signed)?;
        if self.have_cosigned(log, signed.clone()).await? {
            self.remembered.put_back(log, &signed, before.as_ref())?;
        }
        Ok(())
    }

    /// Has a checkpoint cosigned, and publishes it with the cosignatures that came in time, or stops the log. Says whether the
    /// checkpoint is taken back.
    async fn have_cosigned(&self, log: &PublicLog, signed: SignedCheckpoint) -> Result<bool, Fault> {
        let (kind, size) = (log.kind, signed.checkpoint().size());
        let answers = Arc::new(self.witnesses.cosign(&self.store, log, signed).await?);
        let (log, given) = (log.clone(), Arc::clone(&answers));
        let conclude = move |tx: &mut Tx<'_>| conclude(tx, &log, &given);
        let Some(is_stopped) = self.store.write_with_jobs(conclude).await? else { return Ok(false) };
        match &answers.contradiction {
            Some(what) if is_stopped => {
                error!(%kind, witness = what.witness(), "the public log is stopped; see `mandate-server log show`");
            }
            Some(_) => {}
            None => {
                let witnessed = answers.witnessed;
                debug!(%kind, size, witnessed, "a checkpoint of the public log is published");
            }
        }
        Ok(is_stopped && answers.refused)
    }
}

/// Stops a log of which less is signed than a witness has cosigned, or other entries. Says whether it did. Another server may have
/// signed since the witness was asked: so the log is read again.
fn stop(tx: &mut Tx<'_>, log: &PublicLog, what: &Contradiction) -> Result<bool, Fault> {
    public_log::hold(tx, log.id)?;
    let newest = public_log::newest(tx, log.kind)?;
    let signed = publish::last(&newest)?.map_or(0, |last| last.checkpoint().size());
    let goes_on = newest.id == log.id && newest.stopped.is_none();
    let Some(why) = what.stops(signed).filter(|_| goes_on) else { return Ok(false) };
    public_log::stop(tx, log.id, Some(&why))?;
    Ok(true)
}

/// Publishes a checkpoint with the answers of the witnesses. Stops a log that does not have what one of them has cosigned, and says
/// whether it did. Another server may have appended since the witness was asked: so the log is read again.
fn conclude(tx: &mut Tx<'_>, log: &PublicLog, answers: &Answers) -> Result<bool, Fault> {
    let publication = (&answers.checkpoint, answers.witnessed);
    let Some(what) = &answers.contradiction else {
        return publish::publish(tx, log, publication).map(|()| false);
    };
    public_log::hold(tx, log.id)?;
    let newest = public_log::newest(tx, log.kind)?;
    let goes_on = newest.id == log.id && newest.stopped.is_none();
    let why = what.stops(newest.tree.size()).filter(|_| goes_on);
    if let Some(why) = &why {
        public_log::stop(tx, log.id, Some(why))?;
    }
    // What one witness has cosigned binds the log, whatever another says. Of a log that is stopped no more is shown than was.
    match (answers.is_cosigned, &why) {
        (true, Some(_)) => publish::keep_cosignatures(tx, log, &answers.checkpoint)?,
        (true, None) => publish::publish(tx, log, publication)?,
        (false, Some(_)) if answers.refused => publish::take_back(tx, log, &answers.checkpoint)?,
        (false, _) => {}
    }
    Ok(why.is_some())
}

/// Logs that a witness has answered wrongly or not at all.
fn unwilling(name: &str, why: &dyn std::fmt::Display) {
    info!(witness = name, reason = %why, "a witness has not cosigned the checkpoint of the public log");
}
