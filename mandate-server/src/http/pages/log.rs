//! The page of the public logs.

use askama::Template;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::header::HeaderValue;
use mandate_core::{EnvironmentKind, Timestamp};
use sha2::{Digest as _, Sha256};

use super::{Frame, LOG_PATH, Time, VERIFY_PATH, asset, page, policy};
use crate::error::Fault;
use crate::http::document::Document;
use crate::service::public_log::keys;
use crate::service::public_log::shown::{Cosigner, Place, Shown};

/// A page whose form is answered by this host.
const POLICY: HeaderValue = policy!("script-src 'self'; form-action 'self'; ");

#[derive(Debug, Template)]
#[template(path = "log.html")]
struct Page<'a> {
    frame: Frame<'a>,
    issuer: &'a str,
    script: &'a str,
    verify: &'a str,
    /// The hash that was looked up.
    asked: &'a str,
    found: Found,
    logs: Vec<Log>,
}

/// What came of looking a hash up.
#[derive(Debug)]
enum Found {
    NotAsked,
    Malformed,
    Absent,
    Entry { kind: &'static str, index: u64, size: u64, path: String },
}

/// One log.
#[derive(Debug)]
struct Log {
    title: String,
    origin: String,
    key: String,
    fingerprint: String,
    is_newest: bool,
    is_stopped: bool,
    size: Option<u64>,
    root: Option<String>,
    checkpoint: Option<String>,
    checkpoint_path: String,
    witnesses: Vec<Witness>,
}

/// One witness, and what it has cosigned last.
#[derive(Debug)]
struct Witness {
    name: String,
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    size: u64,
    at: Time,
    age: String,
}

/// What a request for the page looks up.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) enum Lookup<'a> {
    Nothing,
    /// It is no hash.
    Malformed,
    /// This hash, and where it is.
    Hash(&'a str, Option<Place>),
}

/// The page as it is `now`.
pub(in crate::http) fn log(
    issuer: &str,
    logs: &[Shown],
    lookup: Lookup<'_>,
    now: Timestamp,
) -> Result<Document, Fault> {
    let (asked, found) = match lookup {
        Lookup::Nothing => ("", Found::NotAsked),
        Lookup::Malformed => ("", Found::Malformed),
        Lookup::Hash(hash, None) => (hash, Found::Absent),
        Lookup::Hash(hash, Some(Place { kind, index, size })) => {
            let path = format!("{LOG_PATH}/{kind}/proof/{hash}");
            (hash, Found::Entry { kind: whose(kind), index, size, path })
        }
    };
    let page_of = Page {
        frame: Frame::public(issuer, LOG_PATH),
        issuer,
        script: &asset::LOG.path,
        verify: VERIFY_PATH,
        asked,
        found,
        logs: logs.iter().map(|log| Log::of(log, now)).collect(),
    };
    page(&page_of, POLICY)
}

impl Log {
    fn of(log: &Shown, now: Timestamp) -> Self {
        let checkpoint = log.checkpoint.as_ref();
        // The first log of a kind has none in its address.
        let number = match keys::number(&log.origin) {
            1 => String::new(),
            number => format!("/{number}"),
        };
        let earlier = if log.is_newest { "" } else { ", which has ended" };
        Self {
            title: format!("The log of {}{earlier}", whose(log.kind)),
            origin: log.origin.clone(),
            key: log.key.clone(),
            fingerprint: URL_SAFE_NO_PAD.encode(Sha256::digest(&log.key)),
            is_newest: log.is_newest,
            is_stopped: log.is_newest && log.is_stopped,
            size: checkpoint.map(|signed| signed.checkpoint().size()),
            root: checkpoint.map(|signed| signed.checkpoint().root().to_string()),
            checkpoint: checkpoint.map(ToString::to_string),
            checkpoint_path: format!("{LOG_PATH}/{}{number}/checkpoint", log.kind),
            witnesses: log.witnesses.iter().map(|witness| Witness::of(witness, now)).collect(),
        }
    }
}

impl Witness {
    fn of(Cosigner { name, last }: &Cosigner, now: Timestamp) -> Self {
        let last = last.map(|(size, at)| Last { size, at: at.into(), age: age(now, at) });
        Self { name: name.clone(), last }
    }
}

fn whose(kind: EnvironmentKind) -> &'static str {
    match kind {
        EnvironmentKind::Production => "production",
        EnvironmentKind::Sandbox => "sandboxes, where no money is real",
    }
}

/// How long ago something was.
fn age(now: Timestamp, at: Timestamp) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    let seconds = now.seconds().saturating_sub(at.seconds()).max(0);
    let (count, unit) = match seconds {
        ..MINUTE => (seconds, "second"),
        MINUTE..HOUR => (seconds / MINUTE, "minute"),
        HOUR..DAY => (seconds / HOUR, "hour"),
        _ => (seconds / DAY, "day"),
    };
    format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_checkpoint_is_where_its_log_is_served() {
        let mut shown = Shown {
            kind: EnvironmentKind::Sandbox,
            origin: "verdicts.example/log/sandbox".to_owned(),
            key: String::new(),
            is_newest: true,
            is_stopped: false,
            checkpoint: None,
            witnesses: Vec::new(),
        };
        let path = |shown: &Shown| Log::of(shown, Timestamp::from_seconds(0)).checkpoint_path;
        assert_eq!(path(&shown), "/log/sandbox/checkpoint");
        shown.origin += "/2";
        assert_eq!(path(&shown), "/log/sandbox/2/checkpoint");
    }

    #[test]
    fn an_age_has_one_unit() {
        let at = Timestamp::from_seconds(1_000_000);
        for (seconds, shown) in [
            (-5, "0 seconds ago"),
            (1, "1 second ago"),
            (59, "59 seconds ago"),
            (60, "1 minute ago"),
            (3_599, "59 minutes ago"),
            (7_200, "2 hours ago"),
            (86_400, "1 day ago"),
        ] {
            assert_eq!(age(at.plus_seconds(seconds), at), shown);
        }
    }
}
