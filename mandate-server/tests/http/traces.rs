//! Traces as a collector on this machine gets them: what spans there are, how they hang together, and what is not in them.

use std::collections::BTreeMap;
use std::convert::Infallible;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use mandate_server::config::Collector;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Typed;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::receiver::{Answers, Receiver};
use crate::wire::exchange;
use crate::world::{World, spend};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A collector, and a server whose traces it gets.
struct Traced {
    world: World,
    received: mpsc::UnboundedReceiver<Bytes>,
}

/// All that a collector was sent, once the server has ended.
struct Collected {
    bodies: Vec<Bytes>,
    spans: Vec<Span>,
}

impl Traced {
    async fn start(sampling_ratio: f64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/otlp", listener.local_addr().unwrap());
        let (sender, received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                let service = service_fn(move |request| take(request, sender.clone()));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        let world = World::start_with(|settings| {
            settings.collector = Some(Collector { endpoint, sampling_ratio });
            settings.loopback_webhooks = true;
        });
        Self { world: world.await, received }
    }

    /// GETs, under the organization's key, with more headers.
    async fn get(&self, path: &str, headers: &str) {
        let key = self.world.organization_key.as_str();
        self.world.send("GET", path, key, headers, "").await;
    }

    async fn end(self) -> Collected {
        let Self { world, mut received } = self;
        world.running.stop().await;
        let mut collected = Collected { bodies: Vec::new(), spans: Vec::new() };
        while let Ok(body) = received.try_recv() {
            let request = ExportTraceServiceRequest::decode(body.as_ref()).unwrap();
            for of in request.resource_spans {
                let resource = values(&of.resource.unwrap().attributes);
                assert_eq!(resource["service.name"], "mandate-server");
                assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
                collected.spans.extend(of.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
            collected.bodies.push(body);
        }
        collected
    }
}

impl Collected {
    fn named(&self, name: &str) -> &Span {
        let mut named = self.spans.iter().filter(|span| span.name == name);
        let span = named.next().unwrap_or_else(|| panic!("no {name} in {:?}", self.names()));
        assert!(named.next().is_none(), "{name} is there twice");
        span
    }

    fn names(&self) -> Vec<&str> {
        self.spans.iter().map(|span| span.name.as_str()).collect()
    }

    fn hold(&self, text: &str) -> bool {
        let mut bodies = self.bodies.iter();
        bodies.any(|body| body.windows(text.len()).any(|window| window == text.as_bytes()))
    }
}

async fn take(
    request: Request<Incoming>,
    received: mpsc::UnboundedSender<Bytes>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/otlp/v1/traces"));
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let _ = received.send(request.into_body().collect().await.unwrap().to_bytes());
    Ok(Response::new(Full::default()))
}

/// Attributes by their names.
fn values(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let value = |pair: &KeyValue| match pair.value.clone().unwrap().value.unwrap() {
        Typed::StringValue(text) => text,
        Typed::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|pair| (pair.key.clone(), value(pair))).collect()
}

fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn traceparent(flags: &str) -> String {
    format!("traceparent: 00-{TRACE}-{PARENT}-{flags}\r\ntracestate: vendor=opaque\r\n")
}

#[tokio::test]
async fn a_decision_is_traced_from_its_caller_to_the_commit() {
    let traced = Traced::start(0.0).await;
    let agent_key = traced.world.agent("buyer").await;
    traced.world.mandate("agt_buyer").await;
    let body = spend(47).to_string();
    let answer =
        traced.world.post_text(&agent_key, "/v1/authorizations", &traceparent("01"), &body).await.json();
    assert_eq!(answer["verdict"], "allow");
    let keys = [agent_key, traced.world.organization_key.clone()];
    let collected = traced.end().await;

    assert_eq!(collected.spans.len(), 3, "{:?}", collected.names());
    let request = collected.named("POST /v1/authorizations");
    assert_eq!((hex(&request.trace_id), hex(&request.parent_span_id)), (TRACE.into(), PARENT.into()));
    assert_eq!((request.kind(), request.trace_state.as_str()), (SpanKind::Server, ""));
    let mut attributes = values(&request.attributes);
    assert!(attributes.remove("mandate.request_id").unwrap().starts_with("req_"));
    let wanted = [
        ("http.request.method", "POST"),
        ("http.response.status_code", "201"),
        ("http.route", "/v1/authorizations"),
        ("mandate.mode", "enforce"),
        ("mandate.verdict", "allow"),
    ];
    assert_eq!(attributes, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    let (decide, batch) = (collected.named("decide"), collected.named("batch"));
    assert_eq!((&decide.trace_id, &decide.parent_span_id), (&request.trace_id, &request.span_id));
    assert_eq!((&batch.trace_id, &batch.parent_span_id), (&request.trace_id, &decide.span_id));
    // What the server itself writes meanwhile can share its batch.
    assert!(values(&batch.attributes)["mandate.batch.jobs"].parse::<u32>().unwrap() >= 1);
    for span in [request, decide, batch] {
        assert!(span.start_time_unix_nano < span.end_time_unix_nano, "{span:?}");
    }
    let token = answer["verdict_token"].as_str().unwrap();
    for secret in [&keys[0], &keys[1], token, "vendor:acme", "software", "buyer", "opaque", "Bearer"] {
        assert!(!collected.hold(secret), "{secret}");
    }
}

#[tokio::test]
async fn requests_without_a_decision_are_traced_by_their_route() {
    let traced = Traced::start(1.0).await;
    let world = &traced.world;
    world.agent("buyer").await;
    let mandate = world.mandate("agt_buyer").await;
    let answered = world.get(&world.organization_key, &format!("/v1/mandates/{mandate}")).await;
    assert_eq!(answered.status, 200);
    world.get("sk_stolen", "/v1/whispered?secret=1").await;
    world.send("BREW", "/v1/agents", &world.organization_key, "", "").await;
    exchange(world.running.public, "GET", "/openapi.yaml", &traceparent("01"), b"").await;
    exchange(world.running.ops, "GET", "/metrics", "", b"").await;
    let id = answered.header("x-request-id").unwrap().to_owned();
    let collected = traced.end().await;

    let mut names = collected.names();
    names.sort_unstable();
    let routed = ["GET /v1/mandates/{id}", "POST /v1/agents", "POST /v1/mandates", "_OTHER /v1/agents"];
    let wanted = [&["GET", "GET /openapi.yaml"][..], &routed].concat();
    assert_eq!(names, wanted);
    let attributes_of = |name| values(&collected.named(name).attributes);
    assert_eq!(attributes_of("GET /v1/mandates/{id}")["mandate.request_id"], id);
    assert_eq!(attributes_of("GET")["http.response.status_code"], "401");
    assert_eq!(attributes_of("_OTHER /v1/agents")["http.request.method"], "_OTHER");
    let public = collected.named("GET /openapi.yaml");
    assert!(hex(&public.trace_id) != TRACE && public.parent_span_id.is_empty(), "{public:?}");
    for secret in [mandate.as_str(), "whispered", "secret", "BREW", "stolen"] {
        assert!(!collected.hold(secret), "{secret}");
    }
}

#[tokio::test]
async fn an_attempt_to_deliver_is_traced_without_its_receiver() {
    let traced = Traced::start(1.0).await;
    let mut receiver = Receiver::start(Answers::With(503)).await;
    let world = &traced.world;
    let webhook = json!({"url": receiver.url, "events": ["mandate.revoked"]});
    let webhook = world.post(&world.organization_key, "/v1/webhooks", &webhook).await.json();
    let path = format!("/v1/webhooks/{}/ping", webhook["webhook"].as_str().unwrap());
    let event = world.post(&world.organization_key, &path, &json!({})).await.json();
    let token = receiver.next().await;
    let (url, collected) = (receiver.url.clone(), traced.end().await);

    let attempt = collected.named("delivery attempt");
    assert_eq!(attempt.kind(), SpanKind::Client);
    let wanted = [
        ("http.response.status_code", "503"),
        ("mandate.delivery.attempt", "1"),
        ("mandate.delivery.state", "pending"),
        ("mandate.event", event["event"].as_str().unwrap()),
        ("mandate.event.type", "ping"),
    ];
    let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(values(&attempt.attributes), wanted.into());
    assert!(!collected.hold(&url) && !collected.hold(&token));
}

#[tokio::test]
async fn whether_a_request_is_traced_is_said_by_its_caller_or_by_the_ratio() {
    for (ratio, headers, spans) in [
        (0.0, String::new(), 0),
        (0.0, traceparent("01"), 1),
        (1.0, traceparent("00"), 0),
        (1.0, String::new(), 1),
        (1.0, "traceparent: no-such-thing\r\n".to_owned(), 1),
        (0.0, traceparent("01").repeat(2), 0),
    ] {
        let traced = Traced::start(ratio).await;
        traced.get("/v1/enforcement", &headers).await;
        let collected = traced.end().await;
        assert_eq!(collected.spans.len(), spans, "{ratio} {headers}");
    }
}
