//! Values that are read at each scrape, and not counted as they change.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use mandate_core::{EnvironmentKind, Timestamp};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::labels::OfKind;
use super::{PREFIX, process};
use crate::model::gauges::{Cluster, DiskUsage, Stored};

/// An instant in seconds, with a fraction.
type Seconds = Gauge<f64, AtomicU64>;

/// A gauge that is absent until it has a value, since not every database has one.
type Optional = Family<Vec<(String, String)>, Gauge>;

/// The values read for one scrape. A value that could not be read stays as it was.
#[derive(Debug, Default)]
pub struct Reading {
    /// The time of the server's clock.
    pub now: Option<Timestamp>,
    /// By how many milliseconds it is ahead of the database's clock. Negative if it is behind.
    pub clock_ahead_millis: i64,
    /// Whether the server accepts requests and its store answers.
    pub ready: bool,
    /// Whether there is a key of each kind that this server can sign with.
    pub signing_ready: Vec<(EnvironmentKind, bool)>,
    /// Jobs that wait for a thread of the store.
    pub queue_jobs: usize,
    /// The counts from the database.
    pub stored: Option<Stored>,
    /// The database's disk usage.
    pub disk_usage: Option<DiskUsage>,
    /// What a shared database shows of itself.
    pub cluster: Option<Cluster>,
    /// Open connections to it, by what they are for.
    pub connections: Vec<(&'static str, usize)>,
}

/// The metrics that are set before each scrape is answered.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    ready: Gauge,
    clock: Seconds,
    clock_ahead: Seconds,
    clock_behind: Seconds,
    queue_jobs: Gauge,
    deliveries_pending: Gauge,
    delivery_lag: Seconds,
    log_delay: Seconds,
    logs_stopped: Family<OfKind, Gauge>,
    reviews_pending: Gauge,
    exports_pending: Gauge,
    signing_keys: Family<OfKind, Seconds>,
    signing_ready: Family<OfKind, Gauge>,
    pub(super) certificate_expiry: Seconds,
    database: Optional,
    log: Optional,
    free: Optional,
    pub(super) batch_age: Seconds,
    connections: Family<OfKind, Gauge>,
    receivers: Optional,
    lag: Optional,
    partitions: Optional,
    memory: Gauge,
    files: Gauge,
    pub(super) started: Seconds,
}

impl Gauges {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let gauges = Self::default();
        let ours = registry.sub_registry_with_prefix(PREFIX);
        for (name, help, gauge) in [
            (
                "ready",
                "1 while requests are taken, the store answers and writes, the clock is right, and every kind can be signed for",
                &gauges.ready,
            ),
            ("store_queue_jobs", "Jobs that wait for a thread of the store", &gauges.queue_jobs),
            ("deliveries_pending", "Deliveries that are pending", &gauges.deliveries_pending),
            ("reviews_pending", "Reviews that wait for a person", &gauges.reviews_pending),
            ("exports_pending", "Exports that are not built yet", &gauges.exports_pending),
        ] {
            ours.register(name, help, gauge.clone());
        }
        for (name, help, gauge) in [
            ("database", "Size of the database", &gauges.database),
            ("database_wal", "Size of the write-ahead log, with SQLite", &gauges.log),
            ("database_free", "Free disk space for the database, where it is known", &gauges.free),
        ] {
            ours.register_with_unit(name, help, Unit::Bytes, gauge.clone());
        }
        gauges.register_cluster(ours);
        for (name, help, gauge) in [
            (
                "batch_age",
                "Time since an authorization was last committed; before the first, since the start",
                &gauges.batch_age,
            ),
            ("clock_timestamp", "Time of the server's clock", &gauges.clock),
            (
                "clock_ahead",
                "How far the server's clock is ahead of the database's, where that has one of its own",
                &gauges.clock_ahead,
            ),
            (
                "clock_behind",
                "How far the clock is behind its mark: the latest instant decided by, at most a second more",
                &gauges.clock_behind,
            ),
            ("delivery_lag", "Age of the oldest delivery that is due", &gauges.delivery_lag),
            ("public_log_delay", "How long a public log has been behind", &gauges.log_delay),
            (
                "tls_certificate_expiry_timestamp",
                "When the first of the certificates ends; 0 without TLS",
                &gauges.certificate_expiry,
            ),
        ] {
            ours.register_with_unit(name, help, Unit::Seconds, gauge.clone());
        }
        let help = "Time when the newest signing key was made";
        ours.register_with_unit(
            "signing_key_created_timestamp",
            help,
            Unit::Seconds,
            gauges.signing_keys.clone(),
        );
        let help = "1 while the public log of this kind of environment is stopped";
        ours.register("public_log_stopped", help, gauges.logs_stopped.clone());
        let help = "1 while this server can sign for this kind of environment";
        ours.register("signing_ready", help, gauges.signing_ready.clone());
        let process = registry.sub_registry_with_prefix("process");
        process.register("open_fds", "Open file descriptors", gauges.files.clone());
        let help = "Resident memory size";
        process.register_with_unit("resident_memory", help, Unit::Bytes, gauges.memory.clone());
        let help = "Time when the server started";
        process.register_with_unit("start_time", help, Unit::Seconds, gauges.started.clone());
        gauges
    }

    /// What only PostgreSQL has.
    fn register_cluster(&self, ours: &mut Registry) {
        let help = "Open connections to PostgreSQL, by what they are for";
        ours.register("database_connections", help, self.connections.clone());
        let help = "Standbys and others that receive PostgreSQL's log";
        ours.register("database_receivers", help, self.receivers.clone());
        let help = "How far the last standby is behind, where the server's role may know it";
        ours.register_with_unit("database_replication_lag", help, Unit::Bytes, self.lag.clone());
        let help = "Until when decisions and events have partitions, with PostgreSQL";
        ours.register_with_unit(
            "database_partitions_timestamp",
            help,
            Unit::Seconds,
            self.partitions.clone(),
        );
    }

    fn set_cluster(&self, cluster: &Cluster) {
        set(&self.receivers.get_or_create(&Vec::new()), Some(cluster.receivers));
        if cluster.lag_bytes.is_some() {
            set(&self.lag.get_or_create(&Vec::new()), cluster.lag_bytes);
        } else {
            // No standby is there any more, or the role may not know it.
            self.lag.clear();
        }
        set(&self.partitions.get_or_create(&Vec::new()), Some(cluster.partitions_end.seconds()));
    }

    /// A public log that cannot be published has nothing in the store that says since when.
    pub(super) fn log_waits_at_least(&self, delay: Duration) {
        self.log_delay.set(self.log_delay.get().max(delay.as_secs_f64()));
    }

    pub(super) fn set(&self, reading: &Reading) {
        for (kind, open) in &reading.connections {
            set(&self.connections.get_or_create(&OfKind { kind }), Some(*open));
        }
        if let Some(cluster) = &reading.cluster {
            self.set_cluster(cluster);
        }
        self.ready.set(reading.ready.into());
        for (kind, ready) in &reading.signing_ready {
            let kind = OfKind { kind: kind.as_str() };
            self.signing_ready.get_or_create(&kind).set((*ready).into());
        }
        set(&self.queue_jobs, Some(reading.queue_jobs));
        if let Some(now) = reading.now {
            self.clock.set(seconds(now));
        }
        self.clock_ahead.set(in_seconds(reading.clock_ahead_millis));
        if let Some(stored) = &reading.stored {
            self.deliveries_pending.set(stored.deliveries_pending);
            self.reviews_pending.set(stored.reviews_pending);
            self.exports_pending.set(stored.exports_pending);
            let lag = reading.now.zip(stored.delivery_due_at).map(|(now, due)| seconds(now) - seconds(due));
            let behind = reading.now.map(|now| seconds(stored.clock_mark) - seconds(now));
            self.clock_behind.set(behind.unwrap_or_default().max(0.0));
            self.delivery_lag.set(lag.unwrap_or_default().max(0.0));
            let waits = stored.log_waits_since.zip(reading.now);
            let delay = waits.map(|(since, now)| seconds(now) - seconds(since));
            self.log_delay.set(delay.unwrap_or_default().max(0.0));
            for (kind, stopped) in &stored.logs_stopped {
                let kind = OfKind { kind: kind.as_str() };
                self.logs_stopped.get_or_create(&kind).set((*stopped).into());
            }
            for (kind, created_at) in &stored.signing_keys {
                let kind = OfKind { kind: kind.as_str() };
                self.signing_keys.get_or_create(&kind).set(seconds(*created_at));
            }
        }
        if let Some(disk_usage) = &reading.disk_usage {
            for (gauge, bytes) in [
                (&self.database, Some(disk_usage.database_bytes)),
                (&self.log, disk_usage.log_bytes),
                (&self.free, disk_usage.free_bytes),
            ] {
                if bytes.is_some() {
                    set(&gauge.get_or_create(&Vec::new()), bytes);
                }
            }
        }
        set(&self.memory, process::resident_bytes());
        set(&self.files, process::open_files());
    }
}

fn set<N: TryInto<i64>>(gauge: &Gauge, value: Option<N>) {
    if let Some(value) = value {
        gauge.set(value.try_into().unwrap_or(i64::MAX));
    }
}

/// An instant as Prometheus writes it.
pub(super) fn seconds(at: Timestamp) -> f64 {
    in_seconds(at.millis())
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds stay below 2^53 for 285,000 years")]
fn in_seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}
