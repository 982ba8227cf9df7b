//! A file as an answer: streamed, and from where the last attempt broke off (RFC 9110, section 14).

use std::io::{self, SeekFrom};
use std::path::PathBuf;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tracing::error;

use super::limit::downloads::Download;
use super::respond::{Failure, response};
use crate::error::{Fault, Refusal};

/// How much of a file is in memory at a time, in bytes.
const CHUNK_BYTES: usize = 64 * 1024;

/// A file that does not change.
#[derive(Debug)]
pub(super) struct Entity {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Its place among those that are downloaded.
    pub(super) download: Download,
    /// A strong one.
    pub(super) etag: HeaderValue,
}

/// The file, or the piece of it that is asked for.
pub(super) async fn serve(entity: Entity, headers: &HeaderMap) -> Result<Response, Failure> {
    let unreadable = |e| Fault::new(format!("the file {} cannot be read: {e}", entity.path.display()));
    let mut file = File::open(&entity.path).await.map_err(unreadable)?;
    let size = file.metadata().await.map_err(unreadable)?.len();
    // A part of another version would not fit.
    let same = headers.get(header::IF_RANGE).is_none_or(|etag| *etag == entity.etag);
    let range = headers.get(header::RANGE).filter(|_| same).and_then(|value| value.to_str().ok());
    let (first, length, status) = match range.map_or(Range::Whole, |text| Range::read(text, size)) {
        Range::Whole => (0, size, StatusCode::OK),
        Range::Part { first, last } => (first, last - first + 1, StatusCode::PARTIAL_CONTENT),
        Range::Outside => {
            let message = format!("Range must lie in the content, which has {size} bytes");
            return Err(Refusal::invalid(message).into());
        }
    };
    if first > 0 {
        file.seek(SeekFrom::Start(first)).await.map_err(unreadable)?;
    }
    let headers = [
        (header::CONTENT_LENGTH, HeaderValue::from(length)),
        (header::ACCEPT_RANGES, HeaderValue::from_static("bytes")),
        (header::ETAG, entity.etag),
    ];
    let mut response = response(status, headers, Body::from_stream(chunks(file, length, entity.download)));
    if status == StatusCode::PARTIAL_CONTENT {
        let range = HeaderValue::try_from(format!("bytes {first}-{}/{size}", first + length - 1));
        let range = range.map_err(|e| Fault::new(e.to_string()))?;
        response.headers_mut().insert(header::CONTENT_RANGE, range);
    }
    Ok(response)
}

/// What a Range header asks for.
#[derive(Debug, PartialEq, Eq)]
enum Range {
    /// Everything, also where the header is malformed: then it is ignored.
    Whole,
    /// These bytes, both included.
    Part { first: u64, last: u64 },
    /// Only bytes that the content does not have.
    Outside,
}

impl Range {
    fn read(text: &str, size: u64) -> Self {
        let number =
            |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        let Some((first, last)) = text.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
            return Self::Whole;
        };
        let (first, last): (Option<u64>, Option<u64>) = match (first, last) {
            ("", count) => (number(count).map(|count| size - size.min(count)), Some(u64::MAX)),
            (first, "") => (number(first), Some(u64::MAX)),
            (first, last) => (number(first), number(last)),
        };
        match first.zip(last) {
            Some((first, last)) if first <= last && first < size => {
                Self::Part { first, last: last.min(size - 1) }
            }
            Some((first, last)) if first <= last => Self::Outside,
            _ => Self::Whole,
        }
    }
}

/// The next `length` bytes of a file, which keep its place among the downloads until they are sent. When reading fails,
/// the connection ends before Content-Length is reached.
fn chunks(
    file: File,
    length: u64,
    download: Download,
) -> impl stream::Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold((file, length, download), |(mut file, left, download)| async move {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        if most == 0 {
            return None;
        }
        let mut chunk = BytesMut::zeroed(most);
        match file.read(&mut chunk).await {
            Ok(0) => None,
            Ok(read) => {
                chunk.truncate(read);
                let left = left - u64::try_from(read).unwrap_or(left);
                Some((Ok(chunk.freeze()), (file, left, download)))
            }
            Err(e) => {
                error!(error = %e, "a file could not be read to its end while it was sent");
                None
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_piece_of_bytes() {
        let part = |first, last| Range::Part { first, last };
        for (text, range) in [
            ("bytes=0-", part(0, 9)),
            ("bytes=4-", part(4, 9)),
            ("bytes=4-6", part(4, 6)),
            ("bytes=4-60", part(4, 9)),
            ("bytes=-3", part(7, 9)),
            ("bytes=-30", part(0, 9)),
            ("bytes=10-", Range::Outside),
            ("bytes=-0", Range::Outside),
            ("bytes=6-4", Range::Whole),
            ("bytes=0-1,4-5", Range::Whole),
            ("bytes=+1-2", Range::Whole),
            ("lines=0-", Range::Whole),
            ("bytes=-", Range::Whole),
            ("bytes", Range::Whole),
        ] {
            assert_eq!(Range::read(text, 10), range, "{text}");
        }
        assert_eq!(Range::read("bytes=0-", 0), Range::Outside);
    }
}
