//! A connection as HTTP sees it: watched for whose turn it is to speak.
//!
//! What is not HTTP, or has too large a head, hyper turns away by itself, with a bare status. No site is asked then, so
//! that whatever is written while no request is under way is such a status: here it becomes an answer like any other,
//! with an id and the envelope. And what hyper takes away from a request, the length beside a transfer coding, is kept
//! until it has been looked at. The time that a head may take runs here too, since hyper would end the connection without
//! a word.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::reply::Body;
use crate::metrics::Held;

/// The largest head of a request, in bytes.
pub(super) const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The headers that a request may have: as many as hyper takes.
pub(super) const MAX_HEADERS: usize = 100;

/// What hyper would write, but for the date, if it said by itself that a head has not come in time (RFC 9110, section
/// 15.5.9).
pub(super) const TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Puts a bare status, as hyper writes it, into the form that every answer has.
type Amend = Box<dyn Fn(&[u8]) -> Vec<u8> + Send>;

/// Whose turn it is on one connection. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Turn(Arc<Mutex<Talk>>);

#[derive(Default)]
struct Talk {
    phase: Phase,
    /// What was read while the phase was [`Phase::Asking`], up to the largest head.
    head: Vec<u8>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The peer asks: no request is under way.
    #[default]
    Asking,
    /// A request is being answered.
    Answering,
    /// The answer is complete, and may still be on its way out.
    Answered,
}

impl Turn {
    fn talk(&self) -> MutexGuard<'_, Talk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no request is under way: the peer is silent, or in the middle of a head.
    pub(super) fn is_with_peer(&self) -> bool {
        self.talk().phase == Phase::Asking
    }

    /// A request is there, and will be answered.
    pub(super) fn answer(&self) {
        self.talk().phase = Phase::Answering;
    }

    /// Whether the head of the request under way may have a Content-Length, which hyper takes away where there is a
    /// Transfer-Encoding too. Of a request that came before the last one was answered the head is not known here.
    pub(super) fn may_have_length(&self) -> bool {
        let talk = self.talk();
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let whole = request.parse(&talk.head).is_ok_and(|read| read.is_complete());
        !whole || request.headers.iter().any(|header| header.name.eq_ignore_ascii_case("content-length"))
    }
}

/// The stream of a connection.
pub(super) struct Wire<S> {
    stream: S,
    turn: Turn,
    amend: Amend,
    /// How long a head may take, from the beginning of its turn.
    head_time: Duration,
    /// When it has taken too long.
    deadline: Pin<Box<Sleep>>,
    /// What is said in the place of hyper's bare status, and how much of it is out.
    own: Vec<u8>,
    sent: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(
        stream: S,
        turn: Turn,
        head_time: Duration,
        amend: impl Fn(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> Self {
        let deadline = Box::pin(sleep(head_time));
        Self { stream, turn, amend: Box::new(amend), head_time, deadline, own: Vec::new(), sent: 0 }
    }

    /// Ends what the peer has to say when its time is over: with an answer if it has begun, or else without a word.
    fn poll_too_late(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.own.is_empty() && !self.turn.talk().head.is_empty() {
            self.own = (self.amend)(TIMEOUT);
        }
        ready!(self.poll_own(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Whether nobody but hyper itself can have written what comes now.
    fn unasked(&self) -> bool {
        self.turn.talk().phase == Phase::Asking
    }

    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(left) = self.own.get(self.sent..).filter(|left| !left.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.sent += written,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.unasked() && self.deadline.as_mut().poll(cx).is_ready() {
            // Nothing read: to hyper the peer has gone.
            return self.poll_too_late(cx);
        }
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let mut talk = self.turn.talk();
        if talk.phase == Phase::Asking {
            let room = MAX_HEAD_BYTES.saturating_sub(talk.head.len());
            let read = buffer.filled().get(before..).unwrap_or_default();
            talk.head.extend(read.iter().take(room));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.unasked() {
            let own = (self.amend)(bytes);
            self.own.extend(own);
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        let mut talk = self.turn.talk();
        if talk.phase == Phase::Answered {
            talk.phase = Phase::Asking;
            talk.head.clear();
            drop(talk);
            let late = Instant::now() + self.head_time;
            self.deadline.as_mut().reset(late);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The body of an answer: when it is dropped, all of it has been handed on.
pub(super) struct Answer {
    body: Body,
    turn: Turn,
    _under_way: Held,
}

impl Answer {
    pub(super) fn new(body: Body, turn: Turn, under_way: Held) -> Self {
        Self { body, turn, _under_way: under_way }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.turn.talk().phase = Phase::Answered;
    }
}

impl hyper::body::Body for Answer {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
