//! Spans that are lost on the way to the collector.

use std::net::TcpListener;

use tracing_subscriber::prelude::*;

use super::*;
use crate::logs::Gathered;
use crate::metrics::{Metrics, Reading};
use export::MAX_WAITING;

fn collector(endpoint: String) -> Collector {
    Collector { endpoint, sampling_ratio: 1.0 }
}

/// How many spans were lost.
fn lost(metrics: &Metrics) -> usize {
    let written = metrics.write(&Reading::default()).unwrap();
    let count = written.lines().find_map(|line| line.strip_prefix("mandate_trace_spans_lost_total "));
    count.unwrap().parse().unwrap()
}

fn traces_to(collector: &Collector, metrics: &Metrics) -> Result<Traces, Fault> {
    let metrics = metrics.clone();
    Traces::to(collector, move |spans| metrics.spans_lost(spans))
}

fn make(traces: &Traces, spans: usize) {
    for _ in 0..spans {
        drop(traces.attempt().unwrap());
    }
}

#[test]
fn without_a_collector_no_span_is_made() {
    let off = Traces::default();
    assert!(off.attempt().is_none());
    assert!(off.request(&Method::GET, &HeaderMap::new(), true).is_none());
    off.end();
}

#[test]
fn spans_are_lost_and_counted_when_the_collector_is_away() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let metrics = Metrics::new();
    let traces = traces_to(&collector(format!("http://{address}")), &metrics).unwrap();
    make(&traces, 3);
    traces.end();
    assert_eq!(lost(&metrics), 3);
}

#[test]
fn the_queue_is_bounded_and_a_collector_that_hangs_is_not_waited_for() {
    // It takes connections, as the operating system does for it, and answers none.
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let (metrics, logged) = (Metrics::new(), Gathered::default());
    let endpoint = format!("http://{}", hanging.local_addr().unwrap());
    let traces = traces_to(&collector(endpoint), &metrics).unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(logged.clone()), || {
        make(&traces, 2 * MAX_WAITING);
        assert!(lost(&metrics) >= MAX_WAITING / 2, "{}", lost(&metrics));
        assert_eq!(logged.lines().len(), 1, "{:?}", logged.lines());
        let began = std::time::Instant::now();
        traces.end();
        assert!(began.elapsed() < std::time::Duration::from_secs(30));
        let lines = logged.lines();
        assert!(lines.last().unwrap().starts_with("the last traces were not sent"), "{lines:?}");
    });
}
