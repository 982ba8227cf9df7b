//! The body of a request: read up to a limit and within a time, and JSON by its Content-Type.

use std::borrow::Cow;
use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use hyper::header::{self, HeaderMap};
use tokio::time::timeout;

use crate::error::Refusal;

/// The largest body, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024;
/// How long a body may take to arrive, in seconds.
const BODY_READ_SECONDS: u64 = 15;
/// After this time a body counts as slow, in milliseconds. Nearly every body is there when its head has been
/// read.
const PROMPT_MILLIS: u64 = 100;
const JSON: &str = "application/json";

/// A body as it arrived: whole, or its beginning when it is too large.
pub(super) enum Content {
    Whole(Bytes),
    /// As much of it as the limit allows, however it was split. An idempotency key is bound to that.
    TooLarge(Bytes),
    /// Nothing of it was read, since its Content-Length is beyond the limit. An idempotency key is bound to that length.
    Announced(u64),
}

impl Content {
    /// The bytes that an idempotency key is bound to. Those of a too large body are longer than any other
    /// body, and not JSON.
    pub(super) fn claimed(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Whole(bytes) => Cow::Borrowed(bytes),
            Self::TooLarge(bytes) => Cow::Owned([b"beyond the limit: ", bytes.as_ref()].concat()),
            Self::Announced(length) => Cow::Owned(format!("beyond the limit: {length} bytes").into_bytes()),
        }
    }

    /// The body, if it is whole, and either empty or JSON by its Content-Type.
    pub(super) fn checked(self, headers: &HeaderMap) -> Result<Bytes, Refusal> {
        match self {
            Self::TooLarge(_) | Self::Announced(_) => {
                Err(Refusal::invalid(format!("body must be at most {MAX_BODY_BYTES} bytes long")))
            }
            Self::Whole(bytes) if !bytes.is_empty() => is_plain_json(headers).map(|()| bytes),
            Self::Whole(bytes) => Ok(bytes),
        }
    }
}

/// Reads a body within the limits of size and time. If it is not there at once, the guard that `wait` returns
/// is held until it is. Of a body that is announced as too large nothing is read, so that a client that expects
/// `100 Continue` never sends it.
pub(super) async fn read<W, E: From<Refusal>>(
    body: impl Body<Data = Bytes> + Unpin,
    wait: impl FnOnce() -> Result<W, E>,
) -> Result<Content, E> {
    let announced = body.size_hint().lower();
    if announced > MAX_BODY_BYTES as u64 {
        return Ok(Content::Announced(announced));
    }
    let (prompt, all) = (Duration::from_millis(PROMPT_MILLIS), Duration::from_secs(BODY_READ_SECONDS));
    let mut collecting = pin!(collect(body));
    let mut collected = timeout(prompt, &mut collecting).await;
    if collected.is_err() {
        let _waiting = wait()?;
        collected = timeout(all.saturating_sub(prompt), collecting).await;
    }
    let collected = collected
        .map_err(|_| Refusal::invalid(format!("body must arrive within {BODY_READ_SECONDS} seconds")))?;
    Ok(collected.map_err(|_| Refusal::invalid("body ended before it was complete"))?)
}

async fn collect<B: Body<Data = Bytes> + Unpin>(mut body: B) -> Result<Content, B::Error> {
    let first = next_chunk(&mut body).await?.unwrap_or_default();
    if first.len() > MAX_BODY_BYTES {
        return Ok(limited(first));
    }
    // Nearly every body arrives in one piece.
    let Some(second) = next_chunk(&mut body).await? else { return Ok(Content::Whole(first)) };
    let mut whole = BytesMut::from(first);
    whole.extend_from_slice(&second);
    while whole.len() <= MAX_BODY_BYTES {
        let Some(chunk) = next_chunk(&mut body).await? else { break };
        whole.extend_from_slice(&chunk);
    }
    Ok(limited(whole.freeze()))
}

/// The next piece of the body that holds data.
async fn next_chunk<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Result<Option<Bytes>, B::Error> {
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) if !data.is_empty() => return Ok(Some(data)),
            _ => {}
        }
    }
    Ok(None)
}

fn limited(mut bytes: Bytes) -> Content {
    if bytes.len() <= MAX_BODY_BYTES {
        return Content::Whole(bytes);
    }
    bytes.truncate(MAX_BODY_BYTES);
    Content::TooLarge(bytes)
}

/// Checks that a body is JSON by its Content-Type, and not encoded.
fn is_plain_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let value = values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok());
    let mut parts = value.unwrap_or_default().split(';').map(str::trim);
    if !parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case(JSON)) {
        return Err(Refusal::invalid(format!("Content-Type must be {JSON}")));
    }
    if !parts.all(is_utf8) {
        return Err(Refusal::invalid("Content-Type must have no parameter but charset=utf-8"));
    }
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Refusal::invalid("Content-Encoding must be absent: a body must not be compressed"));
    }
    Ok(())
}

/// Whether a parameter of a Content-Type is `charset=utf-8`. JSON is always UTF-8 (RFC 8259, section 8.1).
fn is_utf8(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    name.trim().eq_ignore_ascii_case("charset")
        && value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use futures_util::{FutureExt as _, StreamExt as _, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use hyper::header::HeaderValue;

    type Piece = Result<Frame<Bytes>, &'static str>;

    #[expect(clippy::unnecessary_wraps, reason = "the shape of a stream's items")]
    fn piece(bytes: usize) -> Piece {
        Ok(Frame::data(Bytes::from(vec![b' '; bytes])))
    }

    fn at_once() -> Result<(), Refusal> {
        unreachable!("the body is there")
    }

    /// How many bytes of a body in these pieces are kept, and whether that is all of it.
    async fn kept(pieces: Vec<Piece>) -> Result<(usize, bool), String> {
        let body = StreamBody::new(stream::iter(pieces));
        let content = read(body, at_once).await.map_err(|refused| refused.message)?;
        Ok(match content {
            Content::Whole(bytes) => (bytes.len(), true),
            Content::TooLarge(bytes) => (bytes.len(), false),
            Content::Announced(length) => unreachable!("a stream of pieces has no length; {length}"),
        })
    }

    #[tokio::test]
    async fn a_body_is_kept_up_to_its_limit_whatever_its_pieces() {
        let trailers = || Ok(Frame::trailers(HeaderMap::new()));
        for (whole, bytes, pieces) in [
            (true, 0, vec![]),
            (true, 0, vec![piece(0), piece(0)]),
            (true, 7, vec![piece(7)]),
            (true, 9, vec![piece(0), piece(7), piece(0), piece(2), trailers()]),
            (true, MAX_BODY_BYTES, vec![piece(MAX_BODY_BYTES)]),
            (true, MAX_BODY_BYTES, vec![piece(1), piece(MAX_BODY_BYTES - 1)]),
            (false, MAX_BODY_BYTES, vec![piece(MAX_BODY_BYTES + 1)]),
            (false, MAX_BODY_BYTES, vec![piece(MAX_BODY_BYTES), piece(1)]),
            (false, MAX_BODY_BYTES, vec![piece(1), piece(1), piece(5 * MAX_BODY_BYTES)]),
        ] {
            assert_eq!(kept(pieces).await, Ok((bytes, whole)));
        }
        let cut = kept(vec![piece(7), Err("gone")]).await;
        assert_eq!(cut, Err("body ended before it was complete".to_owned()));
    }

    #[tokio::test]
    async fn a_body_that_is_announced_as_too_large_is_not_read() {
        let body = |bytes: usize| http_body_util::Full::new(Bytes::from(vec![b' '; bytes]));
        assert!(matches!(read(body(MAX_BODY_BYTES), at_once).await, Ok(Content::Whole(_))));
        let Ok(content) = read(body(MAX_BODY_BYTES + 1), at_once).await else { panic!() };
        assert!(matches!(content, Content::Announced(65_537)));
        assert_ne!(content.claimed(), Content::Announced(65_538).claimed());
        assert_eq!(
            content.checked(&HeaderMap::new()).unwrap_err().message,
            "body must be at most 65536 bytes long"
        );
    }

    #[tokio::test]
    async fn an_endless_body_is_not_read_to_its_end() {
        let endless = StreamBody::new(stream::repeat_with(|| piece(1000)));
        assert!(matches!(read(endless, at_once).await, Ok(Content::TooLarge(_))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_not_waited_for() {
        let slow = StreamBody::new(stream::iter([piece(7)]).chain(stream::pending()));
        let began = tokio::time::Instant::now();
        let refused = read(slow, || Ok::<(), Refusal>(())).await.err().unwrap();
        assert_eq!(refused.message, "body must arrive within 15 seconds");
        assert_eq!(began.elapsed().as_secs(), 15);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_late_is_waited_for_under_what_bounds_that() {
        let late = |millis| {
            let later = tokio::time::sleep(Duration::from_millis(millis));
            StreamBody::new(stream::once(later.map(|()| piece(7))).boxed())
        };
        let held = Arc::new(());
        let waited = || Ok::<_, Refusal>(Arc::clone(&held));
        let mut reading = pin!(read(late(PROMPT_MILLIS + 100), waited));
        assert!(timeout(Duration::from_millis(PROMPT_MILLIS + 50), &mut reading).await.is_err());
        assert_eq!(Arc::strong_count(&held), 2, "held while it is waited for");
        assert!(matches!(reading.await, Ok(Content::Whole(_))));
        assert_eq!(Arc::strong_count(&held), 1);
        assert!(read(late(PROMPT_MILLIS - 1), at_once).await.is_ok());
        let full = read(late(PROMPT_MILLIS + 1), || Err::<(), _>(Refusal::invalid("no more"))).await;
        assert_eq!(full.err().unwrap().message, "no more");
    }

    #[test]
    fn a_body_is_json_by_its_content_type() {
        for (json, values) in [
            (true, &["application/json"][..]),
            (true, &["application/json; charset=utf-8"]),
            (true, &["Application/JSON ; Charset=\"UTF-8\""]),
            (false, &["application/json; charset=latin-1"]),
            (false, &["application/json;;"]),
            (false, &["application/json; x=y"]),
            (false, &[]),
            (false, &[""]),
            (false, &["text/plain"]),
            (false, &["application/json5"]),
            (false, &["application/x-www-form-urlencoded; application/json"]),
            (false, &["application/json", "application/json"]),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_TYPE, HeaderValue::from_static(value));
            }
            assert_eq!(is_plain_json(&headers).is_ok(), json, "{values:?}");
        }
    }
}
