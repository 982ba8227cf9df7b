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
    /// The listeners.
    pub enum Listener {
        /// The API.
        Api = "api",
        /// The public listener: the key set and the contracts.
        Public = "public",
        /// Liveness, readiness and metrics.
        Ops = "ops",
        /// The console, for people.
        Console = "console",
    }
}

closed! {
    /// How an attempt to deliver an event ended.
    pub enum Attempted {
        /// The receiver acknowledged the event.
        Delivered = "delivered",
        /// There will be another attempt.
        Retried = "retried",
        /// It was the last attempt.
        Failed = "failed",
    }
}

closed! {
    /// The result of an instruction to move funds.
    pub enum Settling {
        /// The funds were moved.
        Settled = "settled",
        /// The provider refused.
        Refused = "refused",
        /// The instruction will be sent again.
        Retried = "retried",
    }
}

closed! {
    /// Where the caller behind a key was found.
    pub enum Lookup {
        /// In memory.
        Hit = "hit",
        /// In the store, or not at all.
        Miss = "miss",
    }
}

closed! {
    /// Why a connection was closed before its first request.
    pub enum NoConnection {
        /// The TLS handshake failed.
        Handshake = "handshake",
        /// The handshake took too long.
        HandshakeTimeout = "handshake_timeout",
        /// Its address has too many connections.
        PeerLimit = "peer_limit",
    }
}

closed! {
    /// The methods of the API's routes. All others share one value, since a caller can make one up.
    pub(super) enum Method {
        Delete = "DELETE",
        Get = "GET",
        Head = "HEAD",
        Post = "POST",
        Other = "other",
    }
}

/// The verdict and the mode of a decision.
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

/// The route of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Routed {
    listener: Listener,
    method: Method,
    /// The template of the path. Empty if there is no such path, or if the request was refused before routing.
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

/// The route of a request, and the class of its answer's status.
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

/// The result of an attempt to deliver.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfAttempt {
    pub(super) outcome: Attempted,
}

/// The result of a settlement.
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
