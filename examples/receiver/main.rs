//! Receives events of a mandate service: verifies each, keeps it once, and only then acknowledges it.
//!
//! ```sh
//! cargo run -p mandate-examples --bin receiver -- --issuer http://127.0.0.1:8081 --listen 127.0.0.1:9000 \
//!     --keep events.jsonl --allow-sandbox
//! ```
//!
//! The service delivers at least once: an event comes again until it is acknowledged with 2xx, and when the acknowledgement was
//! lost. Hence the order here: verify, check whether the id is known, keep, acknowledge.

mod keys;
mod log;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

use bytes::Bytes;
use clap::Parser;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use mandate_core::jwt::MAX_TOKEN_BYTES;
use mandate_core::verify::VerifiedEvent;
use tokio::net::TcpListener;

use self::keys::Keys;
use self::log::{Kept, Log};

/// What went wrong, for a person.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Receives events, verifies them, and keeps each once.
#[derive(Debug, Parser)]
struct Args {
    /// The issuer: the address under which the key set is published
    #[arg(long, value_name = "URL")]
    issuer: String,

    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9000")]
    listen: SocketAddr,

    /// Where events are kept, a line of JSON each
    #[arg(long, value_name = "FILE", default_value = "events.jsonl")]
    keep: PathBuf,

    /// Accept events of the sandbox, where no money is real
    #[arg(long)]
    allow_sandbox: bool,
}

struct Receiver {
    keys: Keys,
    log: Log,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match tokio::task::LocalSet::new().run_until(run(Args::parse())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("receiver: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<(), Failure> {
    let keys = Keys::fetch(&args.issuer, args.allow_sandbox).await?;
    let receiver = Rc::new(Receiver { keys, log: Log::open(&args.keep)? });
    let listener = TcpListener::bind(args.listen).await?;
    println!("http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let receiver = Rc::clone(&receiver);
        let service = service_fn(move |request| {
            let receiver = Rc::clone(&receiver);
            async move { Ok::<_, Failure>(answer(receiver.receive(request).await)) }
        });
        tokio::task::spawn_local(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

fn answer((status, text): (StatusCode, String)) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{text}\n")));
    *response.status_mut() = status;
    response
}

impl Receiver {
    /// Any status but 2xx has the service send the event again.
    async fn receive(&self, request: Request<Incoming>) -> (StatusCode, String) {
        if request.method() != Method::POST {
            return (StatusCode::METHOD_NOT_ALLOWED, "events are posted".to_owned());
        }
        let body = Limited::new(request.into_body(), MAX_TOKEN_BYTES).collect().await;
        let token = body.ok().and_then(|body| String::from_utf8(body.to_bytes().to_vec()).ok());
        let Some(token) = token else {
            return (StatusCode::BAD_REQUEST, "the body is not a token".to_owned());
        };
        let event = match self.keys.verify(&token).await {
            Ok(event) => event,
            Err(refused) => return (StatusCode::BAD_REQUEST, refused.to_string()),
        };
        match self.log.keep(event.claims()) {
            Ok(Kept::First) => {
                act_on(&event);
                (StatusCode::OK, "kept".to_owned())
            }
            Ok(Kept::Before) => (StatusCode::OK, "known".to_owned()),
            Err(failure) => {
                eprintln!("receiver: an event was not kept: {failure}");
                (StatusCode::INTERNAL_SERVER_ERROR, "not kept".to_owned())
            }
        }
    }
}

/// Here an application would begin its own work, from what it has kept.
fn act_on(event: &VerifiedEvent) {
    println!("{} {}", event.claims().jti, event.claims().kind);
}
