//! Why an HTTP request brought no answer, or only a part of one.

use std::error::Error as StdError;
use std::{fmt, io};

/// Why an HTTP request brought no answer, or only a part of one. It never shows the URL, a header or a body.
#[derive(Debug)]
pub(crate) enum Error {
    /// The client could not be set up, or the connection, the request or the answer failed.
    Failed(reqwest::Error),
    /// The answer took longer than it may.
    Timeout,
    /// The body is longer than this many bytes.
    TooLong(u64),
    /// The body is not UTF-8.
    NotUtf8,
    /// The system gives no event loop to wait on.
    NoRuntime(String),
}

impl From<reqwest::Error> for Error {
    fn from(error: reqwest::Error) -> Self {
        Self::Failed(error.without_url())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // What reqwest and hyper put around the cause says less than the cause does.
            Self::Failed(error) => match causes(error).last() {
                Some(cause) => write!(f, "{cause}"),
                None => write!(f, "{error}"),
            },
            Self::Timeout => f.write_str("timed out"),
            Self::TooLong(limit) => write!(f, "the answer is longer than {limit} bytes"),
            Self::NotUtf8 => f.write_str("the answer is not UTF-8"),
            Self::NoRuntime(why) => write!(f, "the event loop cannot be started: {why}"),
        }
    }
}

impl Error {
    /// Whether the same request may succeed a moment later. TLS that failed fails again, and a proxy that refuses to connect
    /// refuses again.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Timeout => true,
            Self::Failed(error) => !error.is_builder() && !self.is_untrusted() && !is_refused_by_proxy(error),
            Self::TooLong(_) | Self::NotUtf8 | Self::NoRuntime(_) => false,
        }
    }

    /// Whether the answer took longer than it may.
    pub(crate) fn is_timeout(&self) -> bool {
        match self {
            Self::Timeout => true,
            Self::Failed(error) => error.is_timeout(),
            _ => false,
        }
    }

    /// Whether the host's name has no address. Name resolution says so in words alone.
    pub(crate) fn is_unknown_host(&self) -> bool {
        self.io().is_some_and(|e| e.to_string().starts_with("failed to lookup address information"))
    }

    /// Whether nothing listens at the address.
    pub(crate) fn is_refused(&self) -> bool {
        self.io().is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Whether TLS failed: something answered that is not trusted, or does not speak TLS.
    pub(crate) fn is_untrusted(&self) -> bool {
        self.tls().is_some()
    }

    /// Whether what answered the TLS handshake does not speak TLS.
    pub(crate) fn is_no_tls(&self) -> bool {
        matches!(self.tls(), Some(rustls::Error::InvalidMessage(_)))
    }

    /// Whether no root certificate was found to trust.
    pub(crate) fn is_without_roots(&self) -> bool {
        matches!(self, Self::Failed(e) if e.is_builder())
            && matches!(self.tls(), Some(rustls::Error::General(_)))
    }

    fn tls(&self) -> Option<&rustls::Error> {
        let Self::Failed(error) = self else { return None };
        causes(error).find_map(|cause| cause.downcast_ref())
    }

    fn io(&self) -> Option<&io::Error> {
        let Self::Failed(error) = self else { return None };
        causes(error).filter_map(|cause| cause.downcast_ref()).last()
    }
}

/// Whether a proxy answered and did not connect. The type of this error is not public, but its words are.
fn is_refused_by_proxy(error: &reqwest::Error) -> bool {
    const REFUSALS: [&str; 2] = ["tunnel error: unsuccessful", "tunnel error: proxy authorization required"];
    causes(error).any(|cause| REFUSALS.contains(&cause.to_string().as_str()))
}

/// The causes below `error`, the nearest first. What an `io::Error` wraps counts as its cause.
fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(error.source(), |cause: &&'a (dyn StdError + 'static)| {
        let cause: &'a (dyn StdError + 'static) = *cause;
        match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped as &'a (dyn StdError + 'static)),
            None => cause.source(),
        }
    })
}
