//! The stream between hyper and the socket, which knows the phase of the connection.
//!
//! hyper itself refuses anything that is not HTTP or has too large a head, with a bare status, and no handler
//! runs. So anything that hyper writes while no request is being answered is such a status. It is kept here, and
//! [`refusal`](ConnectionStream::refusal) says with which status the connection ends. hyper says nothing to a
//! client that speaks HTTP/2, or that stops within a head; what hyper has read and not used shows it. hyper also
//! drops the Content-Length of a request with a Transfer-Encoding, so the head is kept here until that has been
//! checked. The time limit for a head is here too.
//!
//! A socket that is closed with unread input resets the connection, and the reset can overtake the answer. So where a
//! request was answered before all of it was read, the rest is read and dropped for a while.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, Sleep, sleep, timeout};

use crate::http::limit::unread::UnreadAnswer;
use crate::metrics::Permit;

/// The largest head of a request, in bytes.
pub(in crate::http) const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The most headers that a request may have: hyper's own limit.
pub(in crate::http) const MAX_HEADERS: usize = 100;

/// What hyper would write, except for the date, to refuse a late head (RFC 9110, section 15.5.9).
pub(in crate::http) const TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// What hyper would write, except for the date, to refuse what is no request.
pub(in crate::http) const UNREADABLE: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// How long unread input is read and dropped after the last answer, in seconds.
const LINGER_SECONDS: u64 = 2;
/// How hyper begins its refusal of a head with too many bytes or headers (RFC 6585, section 5).
pub(in crate::http) const TOO_LARGE: &[u8] = b"HTTP/1.1 431 ";

/// The state of one connection. Clones share it.
#[derive(Clone, Default)]
pub(in crate::http) struct ConnectionState(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    phase: Phase,
    /// The bytes read in [`Phase::ReadingHead`], up to the largest head.
    head: Vec<u8>,
    /// Whether some of the last request was not read.
    unread: bool,
    /// Answers that the peer has not read yet, oldest first.
    answers: Vec<Arc<UnreadAnswer>>,
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

    /// A request has arrived, and will be answered. Gives its body, whose end is noticed.
    pub(in crate::http) fn begin_answer<B: hyper::body::Body>(&self, body: B) -> RequestBody<B> {
        let mut state = self.lock();
        state.phase = Phase::Answering;
        state.unread = !body.is_end_stream();
        drop(state);
        RequestBody { body, state: self.clone() }
    }

    /// Holds an answer until all of it has been written.
    pub(in crate::http) fn hold(&self, answer: Arc<UnreadAnswer>) {
        self.lock().answers.push(answer);
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
    /// How long a head may take, from the end of the answer before it.
    head_time: Duration,
    /// When that time is over.
    deadline: Pin<Box<Sleep>>,
    /// Whether it is over. Zero bytes are read then: hyper assumes that the peer is gone.
    is_late: bool,
    /// The bare status that hyper has written.
    bare: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionStream<S> {
    pub(super) fn new(stream: S, state: ConnectionState, head_time: Duration) -> Self {
        let deadline = Box::pin(sleep(head_time));
        Self { stream, state, head_time, deadline, is_late: false, bare: Vec::new() }
    }

    /// The bare status with which the connection ends, if it ends with one. `unused` is what hyper has read and not used, and
    /// `within_head` whether it ended where it expected a head. Line breaks before a head do not begin it (RFC 9112, section
    /// 2.2).
    pub(super) fn refusal(&mut self, within_head: bool, unused: &[u8]) -> Option<Vec<u8>> {
        let has_begun = unused.iter().any(|byte| !matches!(byte, b'\r' | b'\n'));
        let refusal = if !self.bare.is_empty() {
            Some(std::mem::take(&mut self.bare))
        } else if within_head && has_begun {
            Some(if self.is_late { TIMEOUT } else { UNREADABLE }.to_vec())
        } else {
            None
        };
        self.state.lock().unread |= refusal.is_some() || !unused.is_empty();
        refusal
    }

    /// Ends the connection behind this last answer, which may be empty. Reads and drops what the peer still sends, until it has
    /// ended or the time is over.
    pub(super) async fn end(mut self, answer: &[u8]) -> io::Result<()> {
        self.stream.write_all(answer).await?;
        self.stream.flush().await?;
        self.stream.shutdown().await?;
        if !self.state.lock().unread {
            return Ok(());
        }
        let mut dropped = [0; 4096];
        let rest = async { while matches!(self.stream.read(&mut dropped).await, Ok(1..)) {} };
        let _ = timeout(Duration::from_secs(LINGER_SECONDS), rest).await;
        Ok(())
    }

    /// Whether what is written now can only come from hyper itself.
    fn is_written_by_hyper(&self) -> bool {
        self.state.is_reading_head()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ConnectionStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.is_written_by_hyper() && !self.is_late && self.deadline.as_mut().poll(cx).is_ready() {
            self.is_late = true;
        }
        if self.is_late {
            return Poll::Ready(Ok(()));
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
            self.bare.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    /// Where this is offered, hyper keeps a body as it is. Otherwise it copies it into a buffer, which keeps its size for as
    /// long as the connection is open.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_written_by_hyper() {
            for part in parts {
                self.bare.extend_from_slice(part);
            }
            return Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()));
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        let mut state = self.state.lock();
        // Of an answer that is not complete, a part may still be behind what was written.
        let left = usize::from(state.phase != Phase::Answered);
        let written = state.answers.len().saturating_sub(left);
        state.answers.drain(..written);
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
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The body of a request, whose end is noticed.
pub(in crate::http) struct RequestBody<B> {
    body: B,
    state: ConnectionState,
}

impl<B: hyper::body::Body + Unpin> hyper::body::Body for RequestBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.state.lock().unread = false;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
