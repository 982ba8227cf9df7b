//! Sends spans to the collector: a bounded queue, batches in the background, and a log line when spans are lost.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, Span, SpanData, SpanExporter,
    SpanProcessor,
};
use tokio::runtime::{self, Runtime};
use tracing::warn;

use super::{Collector, MAX_LINKS, OnLoss, SERVICE};
use crate::error::Fault;
use crate::outgoing::{Client, SystemNames};

/// The path at which a collector accepts traces (OTLP 1.x, "OTLP/HTTP Request").
const PATH: &str = "/v1/traces";
/// The most spans that wait. More are lost.
pub(super) const MAX_WAITING: usize = 4096;
/// The most spans in one batch.
const MAX_SENT: usize = 512;
/// How long a batch is filled, in seconds.
const LINGER_SECONDS: u64 = 2;
/// How long a collector may take to answer, and how long the last spans may take when the server ends, in seconds.
const EXPORT_SECONDS: u64 = 5;
/// How many connections to the collector are kept between batches, which are sent one by one.
const MAX_IDLE: usize = 1;
/// How often the loss of spans is logged, in seconds.
const LOG_INTERVAL_SECONDS: u64 = 60;

/// A provider that makes spans and sends them to `collector`.
pub(super) fn provider(collector: &Collector, on_loss: OnLoss) -> Result<SdkTracerProvider, Fault> {
    let unusable = |e: &dyn fmt::Display| Fault::new(format!("traces cannot be sent: {e}"));
    let client = Posting::new().map_err(|e| unusable(&e))?;
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{}{PATH}", collector.endpoint))
        .with_timeout(Duration::from_secs(EXPORT_SECONDS))
        .with_http_client(client)
        .build()
        .map_err(|e| unusable(&e))?;
    let lost = Arc::new(Lost { on_loss, waiting: AtomicUsize::new(0), logged: Mutex::new(None) });
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(MAX_WAITING)
        .with_max_export_batch_size(MAX_SENT)
        .with_scheduled_delay(Duration::from_secs(LINGER_SECONDS))
        .build();
    let sending = BatchSpanProcessor::new(Sending { exporter, lost: Arc::clone(&lost) }, batches);
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_service_name(SERVICE).with_attribute(version).build();
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(collector.sampling_ratio)));
    Ok(SdkTracerProvider::builder()
        .with_resource(resource)
        .with_sampler(sampler)
        .with_max_links_per_span(MAX_LINKS)
        .with_span_processor(Queue { sending, lost })
        .build())
}

/// The HTTP client of the exporter. The exporter's thread has no runtime, so the client brings one.
#[derive(Debug)]
struct Posting {
    client: Client,
    /// It is made and dropped on the exporter's thread.
    runtime: Mutex<Option<Runtime>>,
}

impl Posting {
    fn new() -> Result<Self, Fault> {
        let client = Client::new(Arc::new(SystemNames), Duration::from_secs(EXPORT_SECONDS), MAX_IDLE)?;
        Ok(Self { client, runtime: Mutex::default() })
    }

    fn post(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = match &mut *runtime {
            Some(runtime) => runtime,
            none => none.insert(runtime::Builder::new_current_thread().enable_all().build()?),
        };
        let answered = runtime.block_on(self.client.send(request))?;
        let mut response = Response::new(answered.body?);
        *response.status_mut() = answered.status;
        Ok(response)
    }
}

impl HttpClient for Posting {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> BoxFuture<'b, Result<Response<Bytes>, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { self.post(request) })
    }
}

/// Sends the waiting spans, within a time limit.
pub(super) fn end(provider: &SdkTracerProvider) {
    if let Err(e) = provider.shutdown_with_timeout(Duration::from_secs(EXPORT_SECONDS)) {
        warn!(error = %e, "the last traces were not sent to the collector");
    }
}

/// Counts waiting and lost spans.
struct Lost {
    on_loss: OnLoss,
    waiting: AtomicUsize,
    /// When the loss was last logged.
    logged: Mutex<Option<Instant>>,
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Lost {
    fn lose(&self, spans: usize, why: &dyn fmt::Display) {
        (self.on_loss)(spans);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|logged| logged.elapsed() >= Duration::from_secs(LOG_INTERVAL_SECONDS)) {
            *logged = Some(Instant::now());
            warn!(reason = %why, spans, quiet_seconds = LOG_INTERVAL_SECONDS, "traces are lost");
        }
    }
}

/// The entry of the queue. It counts the spans itself, because the queue behind it drops spans silently.
#[derive(Debug)]
struct Queue {
    sending: BatchSpanProcessor,
    lost: Arc<Lost>,
}

impl SpanProcessor for Queue {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.sending.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if self.lost.waiting.fetch_add(1, Ordering::AcqRel) < MAX_WAITING {
            self.sending.on_end(span);
        } else {
            self.lost.waiting.fetch_sub(1, Ordering::AcqRel);
            self.lost.lose(1, &"more wait to be sent than there is room for");
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.sending.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.sending.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.sending.set_resource(resource);
    }
}

/// The exit of the queue, on a thread of its own.
#[derive(Debug)]
struct Sending {
    exporter: opentelemetry_otlp::SpanExporter,
    lost: Arc<Lost>,
}

impl SpanExporter for Sending {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        let count = spans.len();
        self.lost.waiting.fetch_sub(count, Ordering::AcqRel);
        let sent = self.exporter.export(spans).await;
        if let Err(e) = &sent {
            self.lost.lose(count, e);
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
