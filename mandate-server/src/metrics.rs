//! The server's metrics, and the form in which Prometheus reads them.
//!
//! Each server has a registry of its own. Labels take values from closed sets only, so that no metric can name a
//! tenant, an agent, a key or a URL. `gauges` reads the values of the store and the operating system at each
//! scrape.

mod gauges;
mod labels;
mod process;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mandate_core::{EnvironmentKind, Timestamp, Verdict};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::error::Fault;
use crate::model::records::Mode;
use gauges::Gauges;
use labels::{Decided, Listening, OfAttempt, OfLookup, OfSettlement, Refused, Requested, Routed};

pub use gauges::Reading;
pub use labels::{Attempted, Listener, Lookup, NoConnection, Settling};

/// The prefix of this project's metrics.
const PREFIX: &str = "mandate";
/// The form in which metrics are written: `OpenMetrics` 1.0, which Prometheus has read since version 2.5.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Histogram buckets for requests, decisions and commits, in seconds, from a tenth of a millisecond up.
const FAST_SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
/// Histogram buckets for attempts at a delivery, in seconds. An attempt ends after 10.
const SLOW_SECONDS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Histogram buckets for the jobs in one transaction. The writer takes at most 256.
const BATCH_JOBS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of one server. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Registered>);

struct Registered {
    registry: Registry,
    gauges: Gauges,
    verdicts: Family<Decided, Counter>,
    requests: Family<Requested, Counter>,
    request_seconds: Histograms<Routed>,
    under_way: Family<Listening, Gauge>,
    connections: Family<Listening, Gauge>,
    no_connections: Family<Refused, Counter>,
    authorization_seconds: Histogram,
    /// When the server started, and how many milliseconds later an authorization was last committed.
    began: Instant,
    last_authorized: AtomicU64,
    lock_waits: Counter,
    commit_seconds: Histogram,
    batch_jobs: Histogram,
    attempts: Family<OfAttempt, Counter>,
    attempt_seconds: Histogram,
    settlements: Family<OfSettlement, Counter>,
    lookups: Family<OfLookup, Counter>,
    /// The counter of `lookups` in memory. It is kept here because each request uses it.
    hits: Counter,
    rate_limited: Counter,
    overloaded: Counter,
    faults: Counter,
    reloads_failed: Counter,
    spans_lost: Counter,
    /// Since when a public log of a kind cannot be kept.
    unkept: Mutex<Vec<(EnvironmentKind, Instant)>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics of a server that has done nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let fast: fn() -> Histogram = || Histogram::new(FAST_SECONDS);
        let mut registry = Registry::default();
        let gauges = Gauges::register(&mut registry);
        let lookups: Family<OfLookup, Counter> = Family::default();
        let mut registered = Registered {
            hits: lookups.get_or_create_owned(&OfLookup { outcome: Lookup::Hit }),
            lookups,
            gauges,
            registry,
            verdicts: Family::default(),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(fast),
            under_way: Family::default(),
            connections: Family::default(),
            no_connections: Family::default(),
            authorization_seconds: fast(),
            began: Instant::now(),
            last_authorized: AtomicU64::default(),
            lock_waits: Counter::default(),
            commit_seconds: fast(),
            batch_jobs: Histogram::new(BATCH_JOBS),
            attempts: Family::default(),
            attempt_seconds: Histogram::new(SLOW_SECONDS),
            settlements: Family::default(),
            rate_limited: Counter::default(),
            overloaded: Counter::default(),
            faults: Counter::default(),
            reloads_failed: Counter::default(),
            spans_lost: Counter::default(),
            unkept: Mutex::default(),
        };
        registered.register();
        registered.begin_at_zero();
        Self(Arc::new(registered))
    }

    /// All metrics in the form [`CONTENT_TYPE`]. `reading` has the gauges read for this scrape.
    ///
    /// # Errors
    /// The metrics cannot be encoded.
    pub fn write(&self, reading: &Reading) -> Result<String, Fault> {
        self.0.gauges.set(reading);
        let last = Duration::from_millis(self.0.last_authorized.load(Ordering::Relaxed));
        self.0.gauges.batch_age.set(self.0.began.elapsed().saturating_sub(last).as_secs_f64());
        let unkept = self.unkept().iter().map(|(_, since)| since.elapsed()).max().unwrap_or_default();
        self.0.gauges.log_waits_at_least(unkept);
        let mut written = String::new();
        text::encode(&mut written, &self.0.registry).map_err(|e| Fault::new(format!("metrics: {e}")))?;
        Ok(written)
    }

    /// Notes the start of the server.
    pub fn started(&self, now: Timestamp) {
        self.0.gauges.started.set(gauges::seconds(now));
    }

    /// Notes when the first of the certificates in use expires.
    pub fn certificates_end(&self, at: Timestamp) {
        self.0.gauges.certificate_expiry.set(gauges::seconds(at));
    }

    /// Counts a decision, after its transaction has been committed.
    pub fn decided(&self, verdict: Verdict, mode: Mode) {
        self.0.verdicts.get_or_create(&Decided::new(verdict, mode)).inc();
    }

    /// Counts an answered request. `path` is the template of its path, or empty. A request without a method could
    /// not be read.
    pub fn answered(
        &self,
        listener: Listener,
        method: Option<&hyper::Method>,
        path: &'static str,
        status: u16,
        duration: Duration,
    ) {
        let routed = Routed::new(listener, method, path);
        self.0.request_seconds.get_or_create(&routed).observe(duration.as_secs_f64());
        self.0.requests.get_or_create(&routed.answered(status)).inc();
    }

    /// Counts a request as in progress on `listener` until the returned permit is dropped.
    #[must_use]
    pub fn under_way(&self, listener: Listener) -> Permit {
        Permit::new(&self.0.under_way.get_or_create(&Listening { listener }))
    }

    /// Counts a connection as open on `listener` until the returned permit is dropped.
    #[must_use]
    pub fn connection(&self, listener: Listener) -> Permit {
        Permit::new(&self.0.connections.get_or_create(&Listening { listener }))
    }

    /// Counts a connection that was closed before its first request could be read.
    pub fn no_connection(&self, listener: Listener, reason: NoConnection) {
        self.0.no_connections.get_or_create(&Refused { listener, reason }).inc();
    }

    /// Records how long an authorization took, from the queue to the commit.
    pub fn authorized(&self, duration: Duration) {
        self.0.authorization_seconds.observe(duration.as_secs_f64());
        let since = u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_authorized.store(since, Ordering::Relaxed);
    }

    /// Counts authorizations that were set aside because another transaction holds a lock.
    pub fn held(&self, count: usize) {
        self.0.lock_waits.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Records the end of a transaction with this number of jobs. `duration` is that of COMMIT and the statements sent
    /// with it.
    pub fn committed(&self, jobs: usize, duration: Duration) {
        self.0.commit_seconds.observe(duration.as_secs_f64());
        self.0.batch_jobs.observe(u32::try_from(jobs).map_or(f64::INFINITY, f64::from));
    }

    /// Records how an attempt to deliver an event ended.
    pub fn attempted(&self, outcome: Attempted, duration: Duration) {
        self.0.attempts.get_or_create(&OfAttempt { outcome }).inc();
        self.0.attempt_seconds.observe(duration.as_secs_f64());
    }

    /// Counts a sent instruction to move funds by its result.
    pub fn settled(&self, outcome: Settling) {
        self.0.settlements.get_or_create(&OfSettlement { outcome }).inc();
    }

    /// Counts a lookup of the caller behind a key.
    pub fn looked_up(&self, outcome: Lookup) {
        match outcome {
            Lookup::Hit => self.0.hits.inc(),
            Lookup::Miss => self.0.lookups.get_or_create(&OfLookup { outcome }).inc(),
        };
    }

    /// Counts a request that was refused because its key has exceeded its rate.
    pub fn rate_limited(&self) {
        self.0.rate_limited.inc();
    }

    /// Counts a request that was refused because too many were in progress.
    pub fn overloaded(&self) {
        self.0.overloaded.inc();
    }

    /// Counts a request that was answered with a server error.
    pub fn fault(&self) {
        self.0.faults.inc();
    }

    /// Counts a changed certificate that cannot be used.
    pub fn reload_failed(&self) {
        self.0.reloads_failed.inc();
    }

    /// Notes whether the public log of a kind could be appended to and published.
    pub fn log_kept(&self, kind: EnvironmentKind, is_kept: bool) {
        let mut unkept = self.unkept();
        if is_kept {
            unkept.retain(|(of, _)| *of != kind);
        } else if unkept.iter().all(|(of, _)| *of != kind) {
            unkept.push((kind, Instant::now()));
        }
    }

    fn unkept(&self) -> MutexGuard<'_, Vec<(EnvironmentKind, Instant)>> {
        self.0.unkept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts spans that will not reach the trace collector.
    pub fn spans_lost(&self, spans: usize) {
        self.0.spans_lost.inc_by(u64::try_from(spans).unwrap_or(u64::MAX));
    }
}

impl Registered {
    fn register(&mut self) {
        self.registry.sub_registry_with_prefix(PREFIX).register(
            "build",
            "The version that runs",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        let registry = self.registry.sub_registry_with_prefix(PREFIX);
        let counters = [
            ("rate_limited", "Requests refused because their key exceeded its rate", &self.rate_limited),
            ("overloaded", "Requests refused because too many were in progress", &self.overloaded),
            ("faults", "Requests that failed with a server error", &self.faults),
            (
                "tls_reload_failures",
                "Certificates that were changed and cannot be used",
                &self.reloads_failed,
            ),
            (
                "store_lock_waits",
                "Authorizations that waited because another transaction held a lock",
                &self.lock_waits,
            ),
            ("trace_spans_lost", "Spans that did not reach the trace collector", &self.spans_lost),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        registry.register("verdicts", "Decisions recorded", self.verdicts.clone());
        registry.register("http_requests", "HTTP requests answered", self.requests.clone());
        registry.register("http_requests_under_way", "HTTP requests in progress", self.under_way.clone());
        registry.register("http_connections_open", "Open connections", self.connections.clone());
        let help = "Connections closed before their first request could be read";
        registry.register("http_connections_refused", help, self.no_connections.clone());
        registry.register("store_batch_jobs", "Jobs in one transaction", self.batch_jobs.clone());
        registry.register("delivery_attempts", "Attempts to deliver an event", self.attempts.clone());
        registry.register(
            "settlements",
            "Instructions to move funds that were sent",
            self.settlements.clone(),
        );
        registry.register("caller_lookups", "Lookups of a caller by its API key", self.lookups.clone());
        let help = "Time from the head of a request to the head of its response";
        registry.register_with_unit(
            "http_request_duration",
            help,
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        for (name, help, histogram) in [
            (
                "authorization_duration",
                "Time of an authorization from the queue to the commit",
                &self.authorization_seconds,
            ),
            ("store_commit_duration", "Duration of COMMIT", &self.commit_seconds),
            (
                "delivery_attempt_duration",
                "Duration of an attempt to deliver an event",
                &self.attempt_seconds,
            ),
        ] {
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        }
    }

    /// Creates all counters with 0. `rate()` does not see the first event of a counter that appears with 1.
    fn begin_at_zero(&self) {
        for (verdict, mode) in Decided::all() {
            drop(self.verdicts.get_or_create(&Decided::new(verdict, mode)));
        }
        for &listener in Listener::ALL {
            drop(self.under_way.get_or_create(&Listening { listener }));
            drop(self.connections.get_or_create(&Listening { listener }));
            for &reason in NoConnection::ALL {
                drop(self.no_connections.get_or_create(&Refused { listener, reason }));
            }
        }
        for &outcome in Attempted::ALL {
            drop(self.attempts.get_or_create(&OfAttempt { outcome }));
        }
        for &outcome in Settling::ALL {
            drop(self.settlements.get_or_create(&OfSettlement { outcome }));
        }
        for &outcome in Lookup::ALL {
            drop(self.lookups.get_or_create(&OfLookup { outcome }));
        }
    }
}

/// Counts one in a gauge until it is dropped.
#[derive(Debug)]
pub struct Permit(Gauge);

impl Permit {
    fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.dec();
    }
}
