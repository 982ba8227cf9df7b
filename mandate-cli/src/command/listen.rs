//! `mandate listen`: receives webhook requests on this machine, verifies, shows and forwards them.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mandate_core::api_key::KeyClass;
use mandate_core::verify::{Expected, Leeway, VerifiedEvent, verify_event};
use mandate_core::{EnvironmentKind, EventId, EventKind};
use serde::Serialize;
use serde_json::json;

use crate::client::Client;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::forward::Forward;
use crate::global::Global;
use crate::http::Address;
use crate::key_set::Issuer;
use crate::output::{Output, say, warn};
use crate::receiver::{Answer, MAX_BODY_BYTES, receive};
use crate::recording::{Received, Recording};
use crate::service::Service;
use crate::style::{CAUTION, DIM, ERROR, GOOD, printable};
use crate::value::{event_kind, leeway};

/// How many requests may be queued for display. Other connections wait.
const WAITING: usize = 1;
/// How many events are remembered, so that none is shown twice. The oldest is dropped first.
const MAX_REMEMBERED: usize = 100_000;

/// Receive webhooks on this machine: verify, show, record and forward them
///
/// Each request is verified against the issuer's key set. A valid event is shown once, however often it is delivered; the
/// next deliveries, and what the receiver answers to them, are noted on standard error. It is answered with 200, or with
/// the answer of the --forward-to receiver. An invalid request is answered with 400 and a reason. Up to 8 events are
/// processed at a time, so that a slow receiver does not delay the others. Events that the --record file already contains
/// are not recorded again. Ctrl-C stops it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate listen --issuer https://verdicts.example.com --port 4000
  mandate listen --register --forward-to http://127.0.0.1:3000/hooks
  mandate listen --register --events mandate.revoked --record events.ndjson \\
      --json

--register needs a server in developer mode: other servers do not deliver to loopback addresses.
For those, open a tunnel to this port and register its public URL with mandate webhook create.")]
pub(crate) struct Listen {
    /// The port on 127.0.0.1; 0 chooses a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// The expected issuer [env: MANDATE_ISSUER; default: from the profile]
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// The issuer's key set [default: {issuer}/.well-known/jwks.json] [env: MANDATE_JWKS]
    #[arg(long, value_name = "FILE|URL")]
    jwks: Option<String>,
    /// The tolerated clock difference between issuer and receiver in seconds, 0 to 30
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = leeway)]
    leeway: Leeway,
    /// Also post each event to this URL, unchanged, and return its status
    #[arg(long, value_name = "URL")]
    forward_to: Option<Address>,
    /// Append each event to this file, for mandate replay
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Create a webhook for this address, and delete it on exit
    #[arg(long)]
    register: bool,
    /// The event types to register for, separated by commas [default: all]
    #[arg(long, value_name = "TYPE,...", value_delimiter = ',', requires = "register", value_parser = event_kind())]
    events: Vec<EventKind>,
    #[command(flatten)]
    service: Service,
}

/// A message to the loop that shows events.
enum Message {
    PendingRequest(PendingRequest),
    /// Ctrl-C was pressed.
    Stop,
}

/// A checked request, and the channel for its answer, which is sent once the event was shown.
struct PendingRequest {
    what: RequestContent,
    shown: SyncSender<()>,
}

/// What a request contained.
enum RequestContent {
    /// An event, and the status of its answer.
    Event(Box<Shown>, u16),
    /// Something else: why it was refused.
    Refused(String),
    /// A message to show.
    Note(String),
    /// The event could not be recorded.
    Failed(Failure),
}

/// The members of an event as it is shown.
pub(super) const MEMBERS: [&str; 8] =
    ["event", "type", "issued_at", "environment", "data", "token", "forwarded", "error"];

/// An event as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    received: Received,
    /// Why it could not be forwarded, if it should have been.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A webhook that exists as long as this command runs.
struct Registration {
    client: Client,
    id: String,
}

/// Handles each event, on any number of threads.
struct Listener {
    issuer: Issuer,
    leeway: Leeway,
    environment: Option<EnvironmentKind>,
    forward: Option<Forward>,
    kept: Mutex<Kept>,
}

/// The state of the events so far.
struct Kept {
    recording: Option<Recording>,
    /// The events that arrived. Ids sort by creation.
    seen: BTreeMap<EventId, Stage>,
}

/// How far an event was handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// An earlier run has recorded it. Whether the receiver accepted it is unknown.
    Recorded,
    /// It was shown, but the receiver did not accept it: it will arrive again.
    Open,
    /// It is being forwarded.
    UnderWay,
    /// It is done.
    Done,
}

impl Listen {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let client = self
            .register
            .then(|| Client::new(&self.service, global, Some(KeyClass::Organization)))
            .transpose()?;
        let listener = Listener {
            issuer: Issuer::find(self.issuer.as_deref(), self.jwks.as_deref(), global)?,
            leeway: self.leeway,
            environment: client.as_ref().map(|client| client.access().key.kind()),
            forward: self.forward_to.clone().map(Forward::new).transpose()?,
            kept: Mutex::new(self.kept()?),
        };
        output.stream();
        let (send, messages) = sync_channel(WAITING);
        let stopped = stop_on_interrupt(send.clone())?;
        let listener = Arc::new(listener);
        let address = receive((Ipv4Addr::LOCALHOST, self.port).into(), MAX_BODY_BYTES, move |request| {
            listener.answer(request.body, &send)
        });
        let address = address.map_err(|e| {
            Failure::new(Exit::Io, format!("cannot listen on port {} of 127.0.0.1: {e}", self.port))
                .next("--port 0 chooses a free one")
        })?;
        let url = format!("http://{address}/");
        let registration = client.map(|client| Registration::new(client, &url, &self.events)).transpose()?;
        say(&format!("listening on {url}; Ctrl-C ends\n"));
        let ended = show_all(&messages, &stopped, output);
        if let Some(registration) = registration {
            registration.end();
        }
        ended
    }

    /// The events that an earlier run has recorded: they are not recorded again. Whether a receiver accepted
    /// them is unknown, so they are forwarded if they arrive again.
    fn kept(&self) -> Result<Kept, Failure> {
        let mut kept = Kept { recording: None, seen: BTreeMap::new() };
        let stage = if self.forward_to.is_some() { Stage::Recorded } else { Stage::Done };
        if let Some(path) = &self.record {
            kept.recording = Some(Recording::open(path, |id| kept.remember(id, stage))?);
        }
        Ok(kept)
    }
}

/// Lets Ctrl-C, and a request to terminate, end the loop rather than the process.
fn stop_on_interrupt(send: SyncSender<Message>) -> Result<Arc<AtomicBool>, Failure> {
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stopped);
    let handler = move || {
        flag.store(true, Ordering::Release);
        // If the queue is full, the loop is busy and will check the flag next.
        let _ = send.try_send(Message::Stop);
    };
    ctrlc::set_handler(handler)
        .map_err(|e| Failure::new(Exit::Io, format!("Ctrl-C cannot be handled: {e}")))?;
    Ok(stopped)
}

impl Registration {
    fn new(client: Client, url: &str, events: &[EventKind]) -> Result<Self, Failure> {
        client.confirm(&format!("send events to {url}"))?;
        let events = if events.is_empty() { &EventKind::ALL[..] } else { events };
        let body = client.post("/webhooks", Some(&json!({"url": url, "events": events}).to_string()));
        let body = body.map_err(|failure| match failure.exit {
            Exit::InvalidRequest => failure.only_next(
                "only a server in developer mode delivers to this machine; elsewhere, register a public address",
            ),
            _ => failure.only_next("run the command again, or without --register; mandate webhook list shows what is there"),
        })?;
        let id = fields::text(&body, "webhook").ok_or_else(|| super::unknown("webhook is required"))?;
        Ok(Self { client, id })
    }

    fn end(&self) {
        if let Err(failure) = self.client.delete(&format!("/webhooks/{}", self.id)) {
            let id = printable(&self.id);
            warn(format_args!(
                "{id} is still registered: {}; mandate webhook delete {id}",
                failure.message()
            ));
        }
    }
}

/// Shows the requests until it is interrupted or standard output is closed.
fn show_all(
    messages: &Receiver<Message>,
    stopped: &AtomicBool,
    output: &mut Output,
) -> Result<Exit, Failure> {
    while let Ok(Message::PendingRequest(PendingRequest { what, shown })) = messages.recv() {
        if stopped.load(Ordering::Acquire) {
            break;
        }
        match what {
            RequestContent::Event(shown, status) => show(&shown, status, output)?,
            RequestContent::Refused(why) => say(&format!("{ERROR}refused{ERROR:#} {}\n", printable(&why))),
            RequestContent::Note(note) => say(&format!("{DIM}{}{DIM:#}\n", printable(&note))),
            RequestContent::Failed(failure) => {
                // If there is time, its sender learns that it was not recorded.
                let _ = shown.send(());
                return Err(failure);
            }
        }
        let _ = shown.send(());
        if output.is_over() {
            return Ok(Exit::Success);
        }
    }
    Ok(Exit::Interrupted)
}

impl Listener {
    /// The answer to a request with this body, once the request was shown.
    fn answer(&self, body: &[u8], to: &SyncSender<Message>) -> Answer {
        let (what, answer) = self.take(body);
        let (shown, wait) = sync_channel(1);
        let is_taken =
            to.send(Message::PendingRequest(PendingRequest { what, shown })).is_ok() && wait.recv().is_ok();
        if is_taken { answer } else { Answer::new(503, "this receiver is ending") }
    }

    /// Handles a request: verifies, records, forwards.
    fn take(&self, body: &[u8]) -> (RequestContent, Answer) {
        let (token, event) = match self.verify(body) {
            Ok(verified) => verified,
            Err(answer) => return (RequestContent::Refused(answer.text.clone()), answer),
        };
        let id = event.claims().jti;
        let mut shown = Shown { received: Received::new(&event, &token), error: None };
        let begun = self.kept().begin(&shown.received);
        let is_shown = matches!(begun, Ok(Some(Stage::Open)));
        match begun {
            Ok(None | Some(Stage::Recorded | Stage::Open)) => {}
            Ok(Some(Stage::Done)) => {
                return (
                    RequestContent::Note(format!("{id} came again")),
                    Answer::new(200, "this event was received before"),
                );
            }
            Ok(Some(Stage::UnderWay)) => {
                let text = "this event is being forwarded";
                return (
                    RequestContent::Note(format!("{id} was delivered again while it was being forwarded")),
                    Answer::new(503, text),
                );
            }
            Err(failure) => {
                return (RequestContent::Failed(failure), Answer::new(500, "the event cannot be kept"));
            }
        }
        let answer = match self.forward.as_ref().map(|forward| forward.send(&token)) {
            None => Answer::new(200, ""),
            Some(Ok(status)) => {
                shown.received.forwarded = Some(status);
                Answer::new(status, "")
            }
            Some(Err(why)) => {
                warn(printable(&why));
                shown.error = Some(why.clone());
                Answer::new(502, why)
            }
        };
        let is_done = (200..300).contains(&answer.status);
        self.kept().remember(id, if is_done { Stage::Done } else { Stage::Open });
        let content = if is_shown {
            RequestContent::Note(format!("{id} was delivered again: {}", answer.status))
        } else {
            RequestContent::Event(Box::new(shown), answer.status)
        };
        (content, answer)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token, if it is an event of the issuer.
    fn verify(&self, body: &[u8]) -> Result<(String, VerifiedEvent), Answer> {
        let refused = |why: String| Answer::new(400, why);
        let token = std::str::from_utf8(body).map_err(|_| refused("the body is not a token".to_owned()))?;
        let keys = self.issuer.keys_for(token).map_err(|failure| Answer::new(503, failure.message()))?;
        let expected = Expected {
            leeway: self.leeway,
            environment: self.environment,
            ..Expected::new(&self.issuer.name, environment::now())
        };
        let event = verify_event(token, &keys, &expected).map_err(|e| refused(e.to_string()))?;
        Ok((token.to_owned(), event))
    }
}

impl Kept {
    /// Starts on an event, and records it if it is new. Returns its previous stage.
    fn begin(&mut self, received: &Received) -> Result<Option<Stage>, Failure> {
        let before = self.seen.get(&received.event).copied();
        if let Some(recording) = self.recording.as_mut().filter(|_| before.is_none()) {
            recording.append(received)?;
        }
        if before.is_none_or(|stage| matches!(stage, Stage::Recorded | Stage::Open)) {
            self.remember(received.event, Stage::UnderWay);
        }
        Ok(before)
    }

    fn remember(&mut self, id: EventId, stage: Stage) {
        self.seen.insert(id, stage);
        if self.seen.len() > MAX_REMEMBERED {
            self.seen.pop_first();
        }
    }
}

/// Shows an event in a line.
fn show(shown: &Shown, status: u16, output: &mut Output) -> Result<(), Failure> {
    if output.is_json() {
        return output.json(shown);
    }
    let Received { event, kind, issued_at, environment, .. } = &shown.received;
    let style = if (200..300).contains(&status) { GOOD } else { CAUTION };
    let kind = printable(kind);
    output.text(&format!("{issued_at}  {kind:<25}  {event}  {environment}  {style}{status}{style:#}\n"));
    Ok(())
}
