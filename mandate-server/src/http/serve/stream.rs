//! The stream between hyper and the socket, which knows the phase of the connection.
//!
//! hyper itself refuses anything that is not HTTP or has too large a head, with a bare status, and no handler
//! runs. So anything that hyper writes while no request is being answered is such a status. Here it becomes an
//! answer like any other, with an id and the error envelope. hyper also drops the Content-Length of a request
//! with a Transfer-Encoding, so the head is kept here until that has been checked. The time limit for a head
//! is here too, since hyper would close the connection without an answer.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::metrics::Permit;

/// The largest head of a request, in bytes.
pub(in crate::http) const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The most headers that a request may have: hyper's own limit.
pub(in crate::http) const MAX_HEADERS: usize = 100;

/// What hyper would write, except for the date, to refuse a late head (RFC 9110, section 15.5.9).
pub(in crate::http) const TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// How hyper begins its refusal of a head with too many bytes or headers (RFC 6585, section 5).
pub(in crate::http) const TOO_LARGE: &[u8] = b"HTTP/1.1 431 ";

/// Turns a bare status, as hyper writes it, into a complete answer.
type Amend = Box<dyn Fn(&[u8]) -> Vec<u8> + Send>;

/// The state of one connection. Clones share it.
#[derive(Clone, Default)]
pub(in crate::http) struct ConnectionState(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    phase: Phase,
    /// The bytes read in [`Phase::ReadingHead`], up to the largest head.
    head: Vec<u8>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No request is under way: the peer is silent, or has sent a part of a head.
    #[default]
    ReadingHead,
    /// A request is being answered.
    Answering,
    /// The answer is complete, and may still be on its way out.
    Answered,
}

impl ConnectionState {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no request is under way.
    pub(super) fn is_reading_head(&self) -> bool {
        self.lock().phase == Phase::ReadingHead
    }

    /// A request has arrived, and will be answered.
    pub(in crate::http) fn begin_answer(&self) {
        self.lock().phase = Phase::Answering;
    }

    /// Whether the head of the current request may have a Content-Length, which hyper drops if there is a
    /// Transfer-Encoding too. The head of a pipelined request is not known here, so it may.
    pub(in crate::http) fn may_have_length(&self) -> bool {
        let state = self.lock();
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let whole = request.parse(&state.head).is_ok_and(|read| read.is_complete());
        !whole || request.headers.iter().any(|header| header.name.eq_ignore_ascii_case("content-length"))
    }
}

/// The stream that hyper reads and writes instead of the socket.
pub(super) struct ConnectionStream<S> {
    stream: S,
    state: ConnectionState,
    amend: Amend,
    /// How long a head may take, from the end of the answer before it.
    head_time: Duration,
    /// When that time is over.
    deadline: Pin<Box<Sleep>>,
    /// The answer that replaces hyper's bare status, and how much of it has been sent.
    own: Vec<u8>,
    sent: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionStream<S> {
    pub(super) fn new(
        stream: S,
        state: ConnectionState,
        head_time: Duration,
        amend: impl Fn(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> Self {
        let deadline = Box::pin(sleep(head_time));
        Self { stream, state, amend: Box::new(amend), head_time, deadline, own: Vec::new(), sent: 0 }
    }

    /// Closes the connection because the time for a head is over. Answers first if a head has begun.
    fn poll_too_late(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.own.is_empty() && !self.state.lock().head.is_empty() {
            self.own = (self.amend)(TIMEOUT);
        }
        ready!(self.poll_own(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    /// Whether what is written now can only come from hyper itself.
    fn is_written_by_hyper(&self) -> bool {
        self.state.is_reading_head()
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ConnectionStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.is_written_by_hyper() && self.deadline.as_mut().poll(cx).is_ready() {
            // Zero bytes read: hyper assumes that the peer is gone.
            return self.poll_too_late(cx);
        }
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let mut state = self.state.lock();
        if state.phase == Phase::ReadingHead {
            let room = MAX_HEAD_BYTES.saturating_sub(state.head.len());
            let read = buffer.filled().get(before..).unwrap_or_default();
            state.head.extend(read.iter().take(room));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ConnectionStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_written_by_hyper() {
            let own = (self.amend)(bytes);
            self.own.extend(own);
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        let mut state = self.state.lock();
        if state.phase == Phase::Answered {
            state.phase = Phase::ReadingHead;
            state.head.clear();
            drop(state);
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

/// The body of an answer. hyper drops it when it has taken all of it.
pub(in crate::http) struct AnswerBody {
    body: Body,
    state: ConnectionState,
    _under_way: Permit,
}

impl AnswerBody {
    pub(in crate::http) fn new(body: Body, state: ConnectionState, under_way: Permit) -> Self {
        Self { body, state, _under_way: under_way }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.state.lock().phase = Phase::Answered;
    }
}

impl hyper::body::Body for AnswerBody {
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
