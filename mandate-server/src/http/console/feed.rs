//! The queue as it changes, for pages that wait: server-sent events, read once for all pages of an environment.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use mandate_core::ReviewId;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, interval, timeout_at};

use super::Console;
use super::session::{Place, Visit};
use super::words::parameter;
use crate::clock::Clock;
use crate::error::Fault;
use crate::http::respond::{Failure, response};
use crate::model::records::Mode;
use crate::service::console::queue::{self, Queue, Waiting};
use crate::service::people::Viewer;
use crate::store::Store;

/// How often the queue of a watched environment is read, in milliseconds.
const LOOK_MILLIS: u64 = 1_000;
/// How often a page hears that the connection holds, and its session is looked up where there is no news, in seconds.
const BEAT_SECONDS: u64 = 20;
/// What a page hears then: a comment.
const STILL: &str = ": still here\n\n";
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// What a page hears then whose queue cannot be read. It says that it is not up to date, until it hears the queue again.
const STALE: &str = "event: stale\ndata: {}\n\n";

/// What the looks at a queue have found.
#[derive(Debug, Clone, Default)]
struct News {
    /// The number of the last look.
    look: u64,
    /// That of the first look which has found the same.
    since: u64,
    /// None: the queue could not be read.
    queue: Option<Arc<Queue>>,
}

/// A queue that is watched.
struct Feed {
    /// How many looks have begun.
    looks: u64,
    news: watch::Sender<News>,
}

/// The queues that pages wait for.
pub(super) struct Feeds {
    store: Store,
    clock: Arc<dyn Clock>,
    stopping: watch::Receiver<bool>,
    watched: Mutex<HashMap<i64, Feed>>,
}

impl Feeds {
    pub(super) fn new(store: Store, clock: Arc<dyn Clock>, stopping: watch::Receiver<bool>) -> Self {
        Self { store, clock, stopping, watched: Mutex::default() }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<i64, Feed>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue of an environment from now on: the news, and how many looks have begun before. Those are older than the page.
    fn follow(self: &Arc<Self>, environment: i64) -> (watch::Receiver<News>, u64) {
        let mut watched = self.watched();
        if let Some(feed) = watched.get(&environment) {
            return (feed.news.subscribe(), feed.looks);
        }
        let (sender, news) = watch::channel(News::default());
        watched.insert(environment, Feed { looks: 0, news: sender.clone() });
        drop(watched);
        tokio::spawn(Arc::clone(self).run(environment, sender));
        (news, 0)
    }

    /// Reads a queue until no page waits for it.
    async fn run(self: Arc<Self>, environment: i64, sender: watch::Sender<News>) {
        let (mut due, mut stopping) = (interval(Duration::from_millis(LOOK_MILLIS)), self.stopping.clone());
        loop {
            tokio::select! {
                _ = due.tick() => {}
                _ = stopping.changed() => return drop(self.watched().remove(&environment)),
            }
            let Some(look) = self.begin(environment) else { return };
            // The fault has a line of log wherever else the database is asked.
            let queue = self.look(environment).await.ok();
            sender.send_modify(|news| {
                if news.since == 0 || news.queue.as_deref() != queue.as_ref() {
                    (news.since, news.queue) = (look, queue.map(Arc::new));
                }
                news.look = look;
            });
        }
    }

    /// Begins a look, and gives its number. None, and the queue is not watched any more: no page waits for it.
    fn begin(&self, environment: i64) -> Option<u64> {
        let mut watched = self.watched();
        let feed = watched.get_mut(&environment)?;
        if feed.news.receiver_count() == 0 {
            watched.remove(&environment);
            return None;
        }
        feed.looks += 1;
        Some(feed.looks)
    }

    async fn look(&self, environment: i64) -> Result<Queue, Fault> {
        let now = self.clock.now();
        self.store.read(move |tx| queue::queue(tx, environment, now)).await?
    }
}

/// What a page hears.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Told<'a> {
    /// The page of the queue: what its person is shown.
    Queue { waiting: Vec<&'a Waiting>, total: usize, is_cut: bool, mode: Mode },
    /// The page of a review.
    Review { is_gone: bool, mode: Mode },
}

impl<'a> Told<'a> {
    fn of(queue: &'a Queue, review: Option<ReviewId>, viewer: &Viewer) -> Self {
        match review {
            Some(review) => Self::Review { is_gone: queue.is_without(review), mode: queue.mode },
            None => Self::Queue {
                waiting: queue.shown_to(&viewer.person.roles),
                total: queue.total,
                is_cut: queue.is_cut,
                mode: queue.mode,
            },
        }
    }

    fn event(&self) -> Result<String, serde_json::Error> {
        let name = if matches!(self, Self::Queue { .. }) { "queue" } else { "review" };
        Ok(format!("event: {name}\ndata: {}\n\n", serde_json::to_string(self)?))
    }
}

/// A page that waits.
struct Waiter {
    console: Arc<Console>,
    place: Place,
    headers: HeaderMap,
    /// The review whose page it is. None: it is that of the queue.
    review: Option<ReviewId>,
    news: watch::Receiver<News>,
    /// How many looks have begun before the page was asked for.
    before: u64,
    /// What it has heard last, by [`News::since`].
    heard: u64,
    beat: Instant,
    is_over: bool,
}

impl Waiter {
    /// What the page hears next. None: it has heard all.
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        loop {
            let mut stopping = self.console.feeds.stopping.clone();
            let changed = timeout_at(self.beat, self.news.changed());
            let changed = tokio::select! {
                changed = changed => changed,
                _ = stopping.changed() => return None,
            };
            match changed {
                Ok(Ok(())) => {
                    let news = self.news.borrow_and_update().clone();
                    if news.look > self.before && news.since != self.heard {
                        return Some(self.told(news).await);
                    }
                }
                Ok(Err(_)) => return None,
                Err(_) => return Some(self.still().await),
            }
        }
    }

    /// Says what is new, or that the session is over. Where that cannot be known now, the next look finds the same news again.
    async fn told(&mut self, News { since, queue, .. }: News) -> String {
        let Some(queue) = queue else {
            self.heard = since;
            return STALE.to_owned();
        };
        match self.console.session(&self.place, &self.headers).await {
            Ok(Some((viewer, _))) => match Told::of(&queue, self.review, &viewer).event() {
                Ok(event) => {
                    self.heard = since;
                    event
                }
                Err(_) => STALE.to_owned(),
            },
            Ok(None) => self.ended(),
            Err(_) => STALE.to_owned(),
        }
    }

    /// Says that the connection holds, or that the session is over.
    async fn still(&mut self) -> String {
        self.beat = Instant::now() + Duration::from_secs(BEAT_SECONDS);
        match self.console.session(&self.place, &self.headers).await {
            Ok(Some(_)) => STILL.to_owned(),
            Ok(None) => self.ended(),
            Err(_) => {
                self.heard = 0;
                STALE.to_owned()
            }
        }
    }

    fn ended(&mut self) -> String {
        self.is_over = true;
        "event: ended\ndata: {}\n\n".to_owned()
    }
}

/// The news of the queue, or of the review that the query names. They do not keep a session from its end.
pub(super) async fn events(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    visit: Visit,
) -> Result<Response, Failure> {
    let review = parameter(&visit.query, "review");
    let review = if review.is_empty() { None } else { Some(ReviewId::parse(&review)?) };
    let (news, before) = console.feeds.follow(visit.viewer.environment.id);
    let beat = Instant::now() + Duration::from_secs(BEAT_SECONDS);
    let place = visit.place;
    let waiter = Waiter { console, place, headers, review, news, before, heard: 0, beat, is_over: false };
    let pieces = stream::unfold(waiter, |mut waiter| async move {
        let piece = waiter.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(piece)), waiter))
    });
    Ok(response(StatusCode::OK, [(header::CONTENT_TYPE, EVENT_STREAM)], Body::from_stream(pieces)))
}
