//! The provider of settlement behind a URL.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use mandate_core::Timestamp;
use mandate_core::jwks::KeySet;
use mandate_core::jwt::Unverified;
use mandate_core::verify::{Expected, VerifyError, verify_event, verify_verdict};
use mandate_server::config::SettlementSetting;
use mandate_tests::wait::{DEADLINE, until_async};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::server::Server;

/// A provider on a free port. It answers `answer` and hands over what it was sent.
pub(crate) struct Provider {
    pub(crate) url: String,
    /// What it answers; with status 0 it takes its time.
    pub(crate) answer: Arc<Mutex<(u16, String)>>,
    pub(crate) sent: mpsc::UnboundedReceiver<(String, String)>,
}

impl Provider {
    pub(crate) async fn start(status: u16, body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/instructions", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new((status, body.to_owned())));
        let (sender, sent) = mpsc::unbounded_channel();
        let shared = Arc::clone(&answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (shared, sender) = (Arc::clone(&shared), sender.clone());
                let service = service_fn(move |request| take(request, Arc::clone(&shared), sender.clone()));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { url, answer, sent }
    }
}

async fn take(
    request: Request<Incoming>,
    answer: Arc<Mutex<(u16, String)>>,
    sender: mpsc::UnboundedSender<(String, String)>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let form = request.headers()["content-type"].to_str().unwrap().to_owned();
    let line = format!("{} {} {form}", request.method(), request.uri().path());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let (status, text) = answer.lock().unwrap().clone();
    let _ = sender.send((line, String::from_utf8(body.to_vec()).unwrap()));
    if status == 0 {
        std::future::pending::<()>().await;
    }
    let moved = if status == 307 { "/elsewhere" } else { "" };
    Ok(Response::builder().status(status).header("location", moved).body(Full::new(text.into())).unwrap())
}

pub(crate) async fn start(provider: &Provider) -> (Server, String, Value) {
    let url = provider.url.clone();
    let server = Server::start_with(|settings| settings.settlement = SettlementSetting::Http(url)).await;
    let key = server.live_key.clone();
    let agent = server.agent_of(&key, "a").await;
    let decision = server.ask(&agent, json!(40)).await["decision"].clone();
    let body = json!({"decision": decision, "condition": "c", "refund_after": "2026-07-01T00:00:00Z"});
    let escrow = server.post(&key, "/escrows", &body, 201).await;
    let path = format!("/escrows/{}", escrow["escrow"].as_str().unwrap());
    assert_eq!((&escrow["state"], &escrow["settlement"]["status"]), (&json!("opening"), &json!("pending")));
    (server, path, escrow)
}

/// An hour passes, and a request wakes the worker.
async fn again(server: &Server, path: &str) {
    server.advance(3_600);
    server.post(&server.live_key, &format!("{path}/transitions"), &json!({"to": "nowhere"}), 400).await;
}

/// Reads the escrow until its newest instruction has ended. Returns its state.
pub(crate) async fn ended(server: &Server, path: &str) -> Value {
    until_async(DEADLINE, "the instruction has ended", async || {
        let escrow = server.read(&server.live_key, path, 200).await;
        (escrow["settlement"]["status"] != "pending").then(|| escrow["state"].clone())
    })
    .await
}

#[tokio::test]
async fn a_provider_is_sent_a_signed_instruction_and_its_answer_is_taken() {
    let mut provider = Provider::start(200, r#"{"status":"settled","reference":"x-1"}"#).await;
    let (server, path, escrow) = start(&provider).await;
    let (line, token) = provider.sent.recv().await.unwrap();
    assert_eq!(line, "POST /instructions application/jwt");
    assert_eq!(ended(&server, &path).await, "funded");

    let issuer = &server.running.urls.verdicts;
    let key_set = server.http.get(format!("{issuer}/.well-known/jwks.json")).send().await.unwrap();
    let keys = KeySet::parse(&key_set.bytes().await.unwrap()).unwrap();
    let verified = Unverified::parse(&token).unwrap().verify(&keys).unwrap();
    assert!(!verified.kid().is_sandbox());
    let claims: Value = serde_json::from_slice(verified.claims()).unwrap();
    let wanted = json!({"iss": issuer, "jti": format!("{}.lock.1", escrow["escrow"].as_str().unwrap()),
        "iat": 1_781_524_800, "instruction": {"action": "lock", "escrow": escrow["escrow"],
        "contract": escrow["contract"], "amount": 40, "currency": "USD", "buyer": "agt_a", "seller": "vendor:v"}});
    assert_eq!(claims, wanted);
    let expected = Expected::new(issuer, Timestamp::parse("2026-06-15T12:00:00Z").unwrap());
    assert!(matches!(verify_verdict(&token, &keys, &expected), Err(VerifyError::Kind { .. })));
    assert!(matches!(verify_event(&token, &keys, &expected), Err(VerifyError::Kind { .. })));
}

#[tokio::test]
async fn only_the_providers_own_word_ends_an_instruction() {
    let mut provider = Provider::start(500, "").await;
    let (server, path, _) = start(&provider).await;
    let (_, first) = provider.sent.recv().await.unwrap();
    for (status, body) in [
        (200, "settled".to_owned()),
        (200, r#"{"status":"done"}"#.to_owned()),
        (200, format!(r#"{{"status":"settled","filler":"{}"}}"#, "x".repeat(64 * 1024))),
        (307, r#"{"status":"settled"}"#.to_owned()),
        (404, r#"{"status":"refused"}"#.to_owned()),
    ] {
        *provider.answer.lock().unwrap() = (status, body);
        again(&server, &path).await;
        let (line, again) = provider.sent.recv().await.unwrap();
        assert_eq!(line, "POST /instructions application/jwt", "no redirect is followed");
        let claims = |token: &str| Unverified::parse(token).unwrap().unverified_claims().to_owned();
        assert_eq!(claims(&first), claims(&again), "a retry is the same instruction");
        let read = server.read(&server.live_key, &path, 200).await;
        assert_eq!((&read["state"], &read["settlement"]["status"]), (&json!("opening"), &json!("pending")));
    }
    *provider.answer.lock().unwrap() = (201, r#"{"status":"refused"}"#.to_owned());
    again(&server, &path).await;
    assert_eq!(ended(&server, &path).await, "failed");
    let settlement = server.read(&server.live_key, &path, 200).await["settlement"].clone();
    assert_eq!((&settlement["status"], settlement.get("reason")), (&json!("refused"), None));
}

#[tokio::test]
async fn a_refusal_is_shown_with_its_reason_and_has_an_event_of_its_own() {
    let mut provider = Provider::start(200, r#"{"status":"settled"}"#).await;
    let (server, path, escrow) = start(&provider).await;
    let key = server.live_key.clone();
    assert_eq!(ended(&server, &path).await, "funded");
    provider.sent.recv().await.unwrap();
    *provider.answer.lock().unwrap() = (200, r#"{"status":"refused","reason":"closed\u0000\n"}"#.to_owned());
    let transitions = format!("{path}/transitions");
    let refund = json!({"to": "refunded"});
    let asked = server.post(&key, &transitions, &refund, 200).await;
    let id = format!("{}.refund.1", escrow["escrow"].as_str().unwrap());
    let pending = json!({"instruction": id, "action": "refund", "status": "pending"});
    assert_eq!((&asked["state"], &asked["settlement"]), (&json!("funded"), &pending));
    assert_eq!(ended(&server, &path).await, "funded");
    let read = server.read(&key, &path, 200).await;
    let refused = json!({"instruction": id, "action": "refund", "status": "refused", "reason": "closed\u{fffd}\u{fffd}"});
    assert_eq!((&read["settlement"], &read["history"]), (&refused, &asked["history"]));

    let events = server.read(&key, "/events?type=escrow.settlement_refused", 200).await;
    let data = json!({"escrow": escrow["escrow"], "state": "funded", "disputed": false,
        "instruction": id, "reason": "closed\u{fffd}\u{fffd}"});
    assert_eq!((events["data"].as_array().unwrap().len(), &events["data"][0]["data"]), (1, &data));
    let address = escrow["contract"].as_str().unwrap();
    let contract = server.http.get(format!("{}/contracts/{address}", server.running.urls.verdicts));
    let contract: Value = contract.send().await.unwrap().json().await.unwrap();
    assert_eq!((&contract["state"], contract.get("settlement")), (&json!("funded"), None));

    *provider.answer.lock().unwrap() = (200, r#"{"status":"settled"}"#.to_owned());
    server.post(&key, &transitions, &refund, 200).await;
    assert_eq!(ended(&server, &path).await, "refunded");
    let read = server.read(&key, &path, 200).await;
    assert_eq!(read["settlement"]["instruction"], id.replace(".1", ".2"));
}
