//! The labels of metrics: each takes its values from a closed set.

use std::fmt::Write as _;

use mandate_core::Verdict;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

use crate::model::records::Mode;

/// An enum that is the closed set of a label's values.
macro_rules! closed {
    ($(#[$about:meta])* $visible:vis enum $name:ident { $($(#[$each:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        $visible enum $name { $($(#[$each])* $variant,)+ }

        impl $name {
            #[allow(dead_code, reason = "of methods, nothing is counted in advance")]
            pub(super) const ALL: &[Self] = &[$(Self::$variant),+];
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
                encoder.write_str(match self { $(Self::$variant => $text,)+ })
            }
        }
    };
}

closed! {
    /// The three listeners.
    pub enum Listener {
        /// The API.
        Api = "api",
        /// What strangers may see.
        Public = "public",
        /// Liveness, readiness and metrics.
        Ops = "ops",
    }
}

closed! {
    /// How an attempt to deliver an event ended.
    pub enum Attempted {
        /// The receiver acknowledged it.
        Delivered = "delivered",
        /// It will be made again.
        Retried = "retried",
        /// It was the last one.
        Failed = "failed",
    }
}

closed! {
    /// How the sending of an instruction to move funds ended.
    pub enum Settling {
        /// The funds have moved.
        Settled = "settled",
        /// The provider will not move them.
        Refused = "refused",
        /// It will be sent again.
        Retried = "retried",
    }
}

closed! {
    /// Where the caller behind a key was found.
    pub enum Lookup {
        /// In memory.
        Hit = "hit",
        /// In the store, or nowhere.
        Miss = "miss",
    }
}

closed! {
    /// Why a connection was closed before its first request.
    pub enum NoConnection {
        /// The peer does not speak TLS as this server does.
        Handshake = "handshake",
        /// The handshake took too long.
        HandshakeTimeout = "handshake_timeout",
        /// Its address has as many connections as one may have.
        PeerLimit = "peer_limit",
    }
}

closed! {
    /// The methods that a row of the API's table can have, and one for all others: a caller can make one up.
    pub(super) enum Method {
        Delete = "DELETE",
        Get = "GET",
        Head = "HEAD",
        Post = "POST",
        Other = "other",
    }
}

/// A decision: what was decided, and in which mode.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Decided {
    verdict: &'static str,
    mode: &'static str,
}

impl Decided {
    pub(super) fn new(verdict: Verdict, mode: Mode) -> Self {
        Self { verdict: verdict.as_str(), mode: mode.as_str() }
    }

    pub(super) fn all() -> impl Iterator<Item = (Verdict, Mode)> {
        Verdict::ALL.into_iter().flat_map(|verdict| [(verdict, Mode::Observe), (verdict, Mode::Enforce)])
    }
}

/// Where a request went.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Routed {
    listener: Listener,
    method: Method,
    /// The template of the path; empty where there is no such path, or the gate did not come to look at it.
    path: &'static str,
}

impl Routed {
    pub(super) fn new(listener: Listener, method: Option<&hyper::Method>, path: &'static str) -> Self {
        let method = match method.map_or("", hyper::Method::as_str) {
            "DELETE" => Method::Delete,
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            _ => Method::Other,
        };
        Self { listener, method, path }
    }

    pub(super) fn answered(&self, status: u16) -> Requested {
        let status = match status / 100 {
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        let Self { listener, method, path } = *self;
        Requested { listener, method, path, status }
    }
}

/// Where a request went, and the class of the status it was answered with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Requested {
    listener: Listener,
    method: Method,
    path: &'static str,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Listening {
    pub(super) listener: Listener,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Refused {
    pub(super) listener: Listener,
    pub(super) reason: NoConnection,
}

/// How an attempt to deliver ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfAttempt {
    pub(super) outcome: Attempted,
}

/// How a settlement ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfSettlement {
    pub(super) outcome: Settling,
}

/// Where a caller was found.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfLookup {
    pub(super) outcome: Lookup,
}

/// The kind of an environment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfKind {
    pub(super) kind: &'static str,
}
