//! A webhook receiver on this machine, that answers as the test decides and remembers what it was sent.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use mandate_core::jwt::Unverified;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

/// How long a token is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a receiver answers.
#[derive(Debug, Clone)]
pub(crate) enum Answers {
    /// With this status.
    With(u16),
    /// With 200 once a permit is there: until then, it hangs.
    Once(Arc<Semaphore>),
}

/// A receiver on a free port.
pub(crate) struct Receiver {
    pub(crate) url: String,
    answers: Arc<Mutex<Answers>>,
    received: mpsc::UnboundedReceiver<String>,
}

impl Receiver {
    pub(crate) async fn start(answers: Answers) -> Self {
        Self::of("application/jwt", answers).await
    }

    /// One that wants this Content-Type.
    pub(crate) async fn of(form: &'static str, answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answers = Arc::new(Mutex::new(answers));
        let (sender, received) = mpsc::unbounded_channel();
        let shared = Arc::clone(&answers);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (shared, sender) = (Arc::clone(&shared), sender.clone());
                let service =
                    service_fn(move |request| take(request, form, Arc::clone(&shared), sender.clone()));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { url: format!("http://{address}/in"), answers, received }
    }

    pub(crate) fn answer(&self, answers: Answers) {
        *self.answers.lock().unwrap() = answers;
    }

    /// The next token, waited for.
    pub(crate) async fn next(&mut self) -> String {
        let Ok(next) = timeout(PATIENCE, self.received.recv()).await else { panic!("nothing was received") };
        next.unwrap()
    }

    /// The tokens that have come since this was last asked.
    pub(crate) fn received(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.received.try_recv().ok()).collect()
    }
}

async fn take(
    request: Request<Incoming>,
    form: &'static str,
    answers: Arc<Mutex<Answers>>,
    received: mpsc::UnboundedSender<String>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.headers()["content-type"], form);
    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/in"));
    let token = request.into_body().collect().await.unwrap().to_bytes();
    let _ = received.send(String::from_utf8(token.to_vec()).unwrap());
    let answers = answers.lock().unwrap().clone();
    let status = match answers {
        Answers::With(status) => status,
        Answers::Once(permits) => {
            permits.acquire().await.unwrap().forget();
            200
        }
    };
    // A client that followed it would fail the assertions above.
    let moved = if (300..400).contains(&status) { "/elsewhere" } else { "" };
    Ok(Response::builder().status(status).header("location", moved).body(Full::default()).unwrap())
}

/// What a token claims.
pub(crate) fn claims(token: &str) -> Value {
    serde_json::from_slice(Unverified::parse(token).unwrap().unverified_claims()).unwrap()
}
