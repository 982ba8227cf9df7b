//! The queue as it changes, for pages that wait: server-sent events, read once for all pages of an environment.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use tokio::sync::watch;
use tokio::time::{Instant, interval, sleep, timeout_at};

use super::Console;
use super::session::{Place, Visit};
use crate::clock::Clock;
use crate::error::Fault;
use crate::http::respond::{Failure, response};
use crate::service::console::queue;
use crate::store::Store;

/// How often the queue of a watched environment is read, in milliseconds.
const LOOK_MILLIS: u64 = 1_000;
/// How often a page hears that the connection holds, and its session is looked up where there is no news, in seconds.
const BEAT_SECONDS: u64 = 20;
/// What a page hears then: a comment.
const STILL: &str = ": still here\n\n";
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// A queue as JSON; empty before it was read.
type News = Arc<str>;

/// The queues that pages wait for.
pub(super) struct Feeds {
    store: Store,
    clock: Arc<dyn Clock>,
    stopping: watch::Receiver<bool>,
    watched: Mutex<HashMap<i64, watch::Sender<News>>>,
}

impl Feeds {
    pub(super) fn new(store: Store, clock: Arc<dyn Clock>, stopping: watch::Receiver<bool>) -> Self {
        Self { store, clock, stopping, watched: Mutex::default() }
    }

    /// The queue of an environment from now on.
    fn follow(self: &Arc<Self>, environment: i64) -> watch::Receiver<News> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(feed) = watched.get(&environment) {
            return feed.subscribe();
        }
        let (sender, news) = watch::channel(News::from(""));
        watched.insert(environment, sender.clone());
        drop(watched);
        tokio::spawn(Arc::clone(self).run(environment, sender));
        news
    }

    /// Reads a queue until no page waits for it.
    async fn run(self: Arc<Self>, environment: i64, feed: watch::Sender<News>) {
        let (mut look, mut stopping) = (interval(Duration::from_millis(LOOK_MILLIS)), self.stopping.clone());
        loop {
            tokio::select! {
                _ = look.tick() => {}
                _ = stopping.changed() => return self.forget(environment),
            }
            // A fault shows wherever else the database is asked. The pages keep what they have.
            if let Ok(news) = self.look(environment).await {
                feed.send_if_modified(|last| {
                    let is_new = **last != *news;
                    *last = news;
                    is_new
                });
            }
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            if feed.receiver_count() == 0 {
                watched.remove(&environment);
                return;
            }
        }
    }

    fn forget(&self, environment: i64) {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(&environment);
    }

    async fn look(&self, environment: i64) -> Result<News, Fault> {
        let now = self.clock.now();
        let queue = self.store.read(move |tx| queue::queue(tx, environment, now)).await??;
        serde_json::to_string(&queue).map(News::from).map_err(|e| Fault::new(e.to_string()))
    }
}

/// A page that waits.
struct Waiter {
    console: Arc<Console>,
    place: Place,
    headers: HeaderMap,
    news: watch::Receiver<News>,
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
                    if !news.is_empty() {
                        return Some(self.told(&news).await);
                    }
                }
                Ok(Err(_)) => return None,
                Err(_) => return Some(self.still().await),
            }
        }
    }

    /// Says what is new, or that the session is over. Where that cannot be known now, the news wait.
    async fn told(&mut self, news: &str) -> String {
        match self.console.session(&self.place, &self.headers).await {
            Ok(Some(_)) => format!("event: queue\ndata: {news}\n\n"),
            Ok(None) => self.ended(),
            Err(_) => {
                sleep(Duration::from_millis(LOOK_MILLIS)).await;
                self.news.mark_changed();
                STILL.to_owned()
            }
        }
    }

    /// Says that the connection holds, or that the session is over.
    async fn still(&mut self) -> String {
        self.beat = Instant::now() + Duration::from_secs(BEAT_SECONDS);
        match self.console.session(&self.place, &self.headers).await {
            Ok(None) => self.ended(),
            Ok(Some(_)) | Err(_) => STILL.to_owned(),
        }
    }

    fn ended(&mut self) -> String {
        self.is_over = true;
        "event: ended\ndata: {}\n\n".to_owned()
    }
}

/// The news of the queue. They do not keep a session from its end.
pub(super) async fn events(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    visit: Visit,
) -> Result<Response, Failure> {
    let mut news = console.feeds.follow(visit.viewer.environment.id);
    // What is known already is news to this page.
    news.mark_changed();
    let beat = Instant::now() + Duration::from_secs(BEAT_SECONDS);
    let waiter = Waiter { console, place: visit.place, headers, news, beat, is_over: false };
    let pieces = stream::unfold(waiter, |mut waiter| async move {
        let piece = waiter.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(piece)), waiter))
    });
    Ok(response(StatusCode::OK, [(header::CONTENT_TYPE, EVENT_STREAM)], Body::from_stream(pieces)))
}
