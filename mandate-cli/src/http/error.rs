//! Why an HTTP request got no answer, or only a part of one.

use std::error::Error as StdError;
use std::{fmt, io};

/// Why an HTTP request got no answer, or only a part of one. It never shows the URL, a header or a body.
#[derive(Debug)]
pub(crate) enum Error {
    /// The client could not be set up, or the connection, the request or the answer failed.
    Failed(reqwest::Error),
    /// The answer took too long.
    Timeout,
    /// The body is longer than this many bytes.
    TooLong(u64),
    /// The body is not UTF-8.
    NotUtf8,
    /// The system provides no event loop.
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
            // The innermost cause is more helpful than what reqwest and hyper add around it.
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
    /// Whether the same request may succeed a moment later. Failed TLS and a refusing proxy fail again.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Timeout => true,
            Self::Failed(error) => !error.is_builder() && !self.is_untrusted() && !is_refused_by_proxy(error),
            Self::TooLong(_) | Self::NotUtf8 | Self::NoRuntime(_) => false,
        }
    }

    /// Whether the answer took too long.
    pub(crate) fn is_timeout(&self) -> bool {
        match self {
            Self::Timeout => true,
            Self::Failed(error) => error.is_timeout(),
            _ => false,
        }
    }

    /// Whether the host name has no address. The resolver reports that only in words.
    pub(crate) fn is_unknown_host(&self) -> bool {
        self.io().is_some_and(|e| e.to_string().starts_with("failed to lookup address information"))
    }

    /// Whether nothing listens at the address.
    pub(crate) fn is_refused(&self) -> bool {
        self.io().is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Whether TLS failed: the server is not trusted, or does not use TLS.
    pub(crate) fn is_untrusted(&self) -> bool {
        self.tls().is_some()
    }

    /// Whether the server does not use TLS.
    pub(crate) fn is_no_tls(&self) -> bool {
        matches!(self.tls(), Some(rustls::Error::InvalidMessage(_)))
    }

    /// Whether no root certificate was found.
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

/// Whether a proxy answered without connecting. This error has no public type, so its words are compared.
fn is_refused_by_proxy(error: &reqwest::Error) -> bool {
    const REFUSALS: [&str; 2] = ["tunnel error: unsuccessful", "tunnel error: proxy authorization required"];
    causes(error).any(|cause| REFUSALS.contains(&cause.to_string().as_str()))
}

/// The causes of `error`, the nearest first. What an `io::Error` wraps counts as its cause.
fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(error.source(), |cause: &&'a (dyn StdError + 'static)| {
        let cause: &'a (dyn StdError + 'static) = *cause;
        match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(wrapped) => Some(wrapped as &'a (dyn StdError + 'static)),
            None => cause.source(),
        }
    })
}
