//! Traces, exported over OTLP. They are off unless the operator names a collector.
//!
//! A request's span has what its log line has, and a delivery's span what its attempt has. It never has a key, a
//! token, a body, an amount, or a path as it was sent. While traces are off, or if a request is not sampled, no
//! span is made, and the only cost is a check of an `Option`.

mod export;

use std::fmt;
use std::sync::Arc;

use hyper::{HeaderMap, Method};
use opentelemetry::propagation::{Extractor, TextMapPropagator as _};
use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanKind, Status, TraceContextExt as _, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use crate::error::Fault;

/// The service name of the spans.
const SERVICE: &str = "mandate-server";
/// The most links of a batch's span: one for each request that a batch can hold.
const MAX_LINKS: u32 = 256;
/// The header that names the trace of a request (W3C Trace Context, section 3.2). Its companion `tracestate` is not
/// read: it has nothing for this server, and a caller may write anything there.
const TRACEPARENT: &str = "traceparent";

/// The collector of traces, and the share of requests that it gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Collector {
    /// Its address. It accepts spans at `/v1/traces`.
    pub endpoint: String,
    /// The share of requests without a trace that begin one, from 0 to 1.
    pub sampling_ratio: f64,
}

/// Counts spans that were lost.
type OnLoss = Box<dyn Fn(usize) + Send + Sync>;

/// Makes spans and sends them to a collector. Without a collector it does nothing. Clones share it.
#[derive(Clone, Default)]
pub struct Traces(Option<Making>);

#[derive(Clone)]
struct Making {
    tracer: SdkTracer,
    provider: SdkTracerProvider,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Traces").field(&self.0.is_some()).finish()
    }
}

impl Traces {
    /// Sends spans to `collector` as protobuf over HTTP (OTLP 1.x), in the background, and reports lost ones to
    /// `on_loss`. It starts threads: call it where blocking is allowed.
    ///
    /// # Errors
    /// The exporter cannot be made.
    pub fn to(collector: &Collector, on_loss: impl Fn(usize) + Send + Sync + 'static) -> Result<Self, Fault> {
        let provider = export::provider(collector, Box::new(on_loss))?;
        Ok(Self(Some(Making { tracer: provider.tracer(SERVICE), provider })))
    }

    /// Sends the remaining spans, within a time limit. Blocks.
    pub(crate) fn end(&self) {
        if let Self(Some(making)) = self {
            export::end(&making.provider);
        }
    }

    /// Begins the span of a request. With `joins`, the request may name the trace that it belongs to.
    pub(crate) fn request(&self, method: &Method, headers: &HeaderMap, joins: bool) -> Option<Span> {
        let tracer = &self.0.as_ref()?.tracer;
        let parent = if joins { parent(headers) } else { Context::new() };
        let method = known(method);
        let mut span = Span::begin(tracer, kind(method, SpanKind::Server), &parent)?;
        span.set("http.request.method", method);
        Some(span)
    }

    /// Begins the span of an attempt to deliver an event.
    pub(crate) fn attempt(&self) -> Option<Span> {
        Span::begin(&self.0.as_ref()?.tracer, kind("delivery attempt", SpanKind::Client), &Context::new())
    }
}

/// A running span that is sampled. It ends when it is dropped. It is boxed, so that its absence takes little room.
pub(crate) struct Span {
    span: Box<opentelemetry_sdk::trace::Span>,
    place: Traced,
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Span").field(&self.place).finish()
    }
}

impl Span {
    fn begin(tracer: &SdkTracer, what: SpanBuilder, parent: &Context) -> Option<Self> {
        let span = tracer.build_with_context(what, parent);
        span.is_recording().then(|| {
            let place = Traced(Arc::new((span.span_context().clone(), tracer.clone())));
            Self { span: Box::new(span), place }
        })
    }

    /// Sets an attribute. `name` is one of the semantic conventions, or begins with `mandate.`.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.span.set_attribute(KeyValue::new(name, value));
    }

    /// Notes the answer to a request: the path of its route, and the status.
    pub(crate) fn answered(&mut self, method: &Method, path: &'static str, status: u16) {
        if !path.is_empty() {
            self.span.update_name(format!("{} {path}", known(method)));
            self.set("http.route", path);
        }
        self.set("http.response.status_code", i64::from(status));
        if status >= 500 {
            self.fail();
        }
    }

    /// Marks the work as failed on this side. The log has the reason.
    pub(crate) fn fail(&mut self) {
        self.span.set_status(Status::error(""));
    }

    /// The place of this span in its trace.
    pub(crate) fn place(&self) -> Traced {
        self.place.clone()
    }
}

/// A place in a trace that is sampled, below which spans can be made.
#[derive(Clone)]
pub struct Traced(Arc<(SpanContext, SdkTracer)>);

impl fmt::Debug for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Traced").field(&self.0.0).finish()
    }
}

impl Traced {
    /// Begins a child span.
    pub(crate) fn begin(&self, what: &'static str) -> Option<Span> {
        self.below(kind(what, SpanKind::Internal))
    }

    fn below(&self, what: SpanBuilder) -> Option<Span> {
        let (context, tracer) = &*self.0;
        Span::begin(tracer, what, &Context::new().with_remote_span_context(context.clone()))
    }
}

/// Begins the span of one transaction for many requests. It is a child of the first that is sampled, and links to
/// the others.
pub(crate) fn batch<'a>(mut many: impl Iterator<Item = &'a Traced>, jobs: usize) -> Option<Span> {
    let first = many.next()?;
    let links = many.map(|traced| Link::with_context(traced.0.0.clone())).collect();
    let mut span = first.below(kind("batch", SpanKind::Internal).with_links(links))?;
    span.set("mandate.batch.jobs", i64::try_from(jobs).unwrap_or(i64::MAX));
    Some(span)
}

fn kind(name: &'static str, kind: SpanKind) -> SpanBuilder {
    SpanBuilder::from_name(name).with_kind(kind)
}

/// The methods of HTTP (RFC 9110, and PATCH).
const METHODS: [&str; 9] = ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"];
/// Any other method.
pub(crate) const OTHER_METHOD: &str = "_OTHER";

/// A method as a span and the log may name it: a caller can make one up (semantic conventions, `http.request.method`).
pub(crate) fn known(method: &Method) -> &'static str {
    METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or(OTHER_METHOD)
}

/// The parent that a request names. None if the header is repeated or invalid.
fn parent(headers: &HeaderMap) -> Context {
    TraceContextPropagator::new().extract_with_context(&Context::new(), &TraceHeaders(headers))
}

struct TraceHeaders<'a>(&'a HeaderMap);

impl Extractor for TraceHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let mut values = self.0.get_all(Some(key).filter(|key| *key == TRACEPARENT)?).iter();
        let value = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(value)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

#[cfg(test)]
mod tests;
