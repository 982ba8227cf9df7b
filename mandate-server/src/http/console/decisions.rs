//! The pages of decisions: the log with filters, one decision, and downloads.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use mandate_core::log::token_hash;
use mandate_core::{AgentId, Day, DecisionId, Invalid, Timestamp, Verdict};

use super::Console;
use super::frame::{DECISIONS, Frame, html};
use super::session::{Place, Visit};
use super::words::{Row, address, parameter};
use crate::error::{Fault, Refusal};
use crate::http::respond::{Failure, response};
use crate::model::call::Environment;
use crate::service::console::decisions::{self, Format, One, Search, Verdicts};
use crate::service::console::rules::{Outcome, Rule};
use crate::service::public_log::shown;
use crate::store::tx::Tx;

/// The value of the filter for all denials.
const DENIALS: &str = "denials";
/// A day, in seconds.
const DAY: i64 = 24 * 60 * 60;

#[derive(Debug, Template)]
#[template(path = "console/decisions.html")]
struct Decisions<'a> {
    frame: Frame<'a>,
    agent: String,
    verdict: String,
    since: String,
    until: String,
    verdicts: Vec<(&'static str, &'static str)>,
    rows: Vec<Row>,
    newest: String,
    older: Option<String>,
    is_older: bool,
}

#[derive(Debug, Template)]
#[template(path = "console/decision.html")]
struct Decision<'a> {
    frame: Frame<'a>,
    row: Row,
    reason: Option<String>,
    rules: Vec<Applied>,
    sequence: i64,
    mandate: Option<String>,
    spent: String,
    recent: u32,
    policy: String,
    supersedes: Option<String>,
    review: Option<String>,
    place: Option<shown::Place>,
    token: String,
    log: String,
    verify: String,
}

/// A rule as it is shown.
#[derive(Debug)]
struct Applied {
    name: &'static str,
    outcome: &'static str,
    tone: &'static str,
    text: String,
}

/// The filters as they were given.
#[derive(Debug, Clone)]
struct Filters {
    agent: String,
    verdict: String,
    since: String,
    until: String,
}

impl Filters {
    fn of(query: &str) -> Self {
        let [agent, verdict, since, until] =
            ["agent", "verdict", "since", "until"].map(|name| parameter(query, name).trim().to_owned());
        Self { agent, verdict, since, until }
    }

    fn search(&self) -> Result<Search, Invalid> {
        let day = |name: &'static str, text: &str| {
            let day = if text.is_empty() { None } else { Some(Day::parse(text).map_err(|e| e.at(name))?) };
            Ok::<_, Invalid>(day.map(Day::start))
        };
        let verdicts = match self.verdict.as_str() {
            "" => Verdicts::All,
            DENIALS => Verdicts::Denials,
            text => Verdicts::One(Verdict::parse(text)?),
        };
        Ok(Search {
            agent: if self.agent.is_empty() { None } else { Some(AgentId::parse(&self.agent)?) },
            verdicts,
            since: day("since", &self.since)?,
            // The day is part of what is asked for.
            until: day("until", &self.until)?.map(|start| start.plus_seconds(DAY)),
        })
    }

    fn address(&self, base: &str, before: &str) -> String {
        let Self { agent, verdict, since, until } = self;
        let parameters = [
            ("agent", agent.as_str()),
            ("verdict", verdict),
            ("since", since),
            ("until", until),
            ("before", before),
        ];
        address(&format!("{base}{DECISIONS}"), &parameters)
    }
}

/// The log of decisions.
pub(super) async fn list(State(console): State<Arc<Console>>, visit: Visit) -> Result<Response, Failure> {
    let filters = Filters::of(&visit.query);
    let search = filters.search()?;
    let before = parameter(&visit.query, "before");
    let before = if before.is_empty() { None } else { Some(DecisionId::parse(&before)?) };
    let (environment, now) = (visit.viewer.environment.id, visit.at);
    let page = console.read(move |tx| decisions::search(tx, environment, &search, before, now)).await?;
    let base = &visit.place.base;
    let verdicts = [("", "all"), (DENIALS, "all denials")];
    let each = Verdict::ALL.into_iter().map(|verdict| (verdict.as_str(), verdict.as_str()));
    html(&Decisions {
        frame: Frame::of(&visit, DECISIONS),
        newest: filters.address(base, ""),
        older: page.older.map(|older| filters.address(base, &older.to_string())),
        is_older: before.is_some(),
        verdicts: verdicts.into_iter().chain(each).collect(),
        rows: page.rows.iter().map(|whole| Row::of(whole, now)).collect(),
        agent: filters.agent,
        verdict: filters.verdict,
        since: filters.since,
        until: filters.until,
    })
}

/// One decision.
pub(super) async fn one(State(console): State<Arc<Console>>, visit: Visit) -> Result<Response, Failure> {
    let id = DecisionId::parse(&visit.place.id).map_err(|_| Refusal::not_found())?;
    let environment = visit.viewer.environment.clone();
    let found = console.read(move |tx| decisions::one(tx, &environment, id)).await?;
    let One { whole, rules, token, place, .. } = found.ok_or_else(Refusal::not_found)?;
    let decision = &whole.decision;
    let hash = token_hash(&token)
        .map(|hash| hash.as_bytes().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}")));
    html(&Decision {
        frame: Frame::of(&visit, DECISIONS),
        row: Row::of(&whole, visit.at),
        reason: decision.reason.clone(),
        rules: rules.into_iter().map(Applied::from).collect(),
        sequence: decision.sequence,
        mandate: decision.mandate.map(|id| id.to_string()),
        spent: decision.basis.spent.to_string(),
        recent: decision.basis.recent_requests,
        policy: visit.viewer.environment.policy_version.to_string(),
        supersedes: decision.supersedes.map(|id| id.to_string()),
        review: decision.review.map(|id| id.to_string()),
        place,
        log: console.at_issuer(&format!("/log?hash={}", hash.unwrap_or_default())),
        verify: console.at_issuer(&format!("/verify#token={token}")),
        token,
    })
}

impl From<Rule> for Applied {
    fn from(rule: Rule) -> Self {
        let (outcome, tone) = match rule.outcome {
            Outcome::Holds => ("holds", "good"),
            Outcome::Asks => ("asks a person", "care"),
            Outcome::Denies => ("denies", "bad"),
            Outcome::NotReached => ("not reached", "dim"),
            Outcome::Waived => ("waived: a person approved", "dim"),
        };
        Self { name: rule.name, outcome, tone, text: rule.text }
    }
}

/// The decisions as CSV.
pub(super) async fn csv(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    visit: Visit,
) -> Result<Response, Failure> {
    download(&console, (&visit, headers), Format::Csv).await
}

/// The decisions as NDJSON.
pub(super) async fn ndjson(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    visit: Visit,
) -> Result<Response, Failure> {
    download(&console, (&visit, headers), Format::Ndjson).await
}

/// How far a download has come.
struct Downloading {
    console: Arc<Console>,
    place: Place,
    headers: HeaderMap,
    environment: Environment,
    search: Search,
    format: Format,
    now: Timestamp,
    after: Option<DecisionId>,
    /// The newest decision when it was asked for.
    newest: Option<DecisionId>,
    is_over: bool,
}

/// A download of what was decided until it was asked for, a piece at a time: only one is in memory.
async fn download(
    console: &Arc<Console>,
    (visit, headers): (&Visit, HeaderMap),
    format: Format,
) -> Result<Response, Failure> {
    let search = Filters::of(&visit.query).search()?;
    let (environment, now) = (visit.viewer.environment.id, visit.at);
    let newest = console.read(move |tx| decisions::newest(tx, environment, now)).await?;
    let downloading = Downloading {
        console: Arc::clone(console),
        place: visit.place.clone(),
        headers,
        environment: visit.viewer.environment.clone(),
        search,
        format,
        now,
        after: None,
        newest,
        is_over: false,
    };
    let pieces = stream::try_unfold(downloading, |mut downloading| async move {
        if downloading.is_over {
            return Ok::<_, Fault>(None);
        }
        let bytes = downloading.piece().await?;
        Ok(Some((Bytes::from(bytes), downloading)))
    });
    let (content_type, extension) = match format {
        Format::Csv => ("text/csv; charset=utf-8", "csv"),
        Format::Ndjson => ("application/x-ndjson", "ndjson"),
    };
    let name = format!(
        "attachment; filename=\"decisions-{}-{}-{}.{extension}\"",
        visit.viewer.organization,
        visit.place.kind,
        visit.at.day()
    );
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CONTENT_DISPOSITION, HeaderValue::try_from(name).map_err(|e| Fault::new(e.to_string()))?),
    ];
    Ok(response(StatusCode::OK, headers, Body::from_stream(pieces)))
}

impl Downloading {
    /// The next piece, as long as the session lasts.
    async fn piece(&mut self) -> Result<Vec<u8>, Fault> {
        if self.console.session(&self.place, &self.headers).await.map_err(broken_off)?.is_none() {
            return Err(Fault::new("a download is broken off: its session is over"));
        }
        let (environment, search) = (self.environment.clone(), self.search.clone());
        let (format, bounds, now) = (self.format, (self.after, self.newest), self.now);
        let read = move |tx: &mut Tx<'_>| decisions::download(tx, &environment, &search, format, bounds, now);
        let piece = self.console.read(read).await.map_err(broken_off)?;
        (self.after, self.is_over) = (piece.last, piece.last.is_none());
        Ok(piece.bytes)
    }
}

/// Why a download ends before its end.
fn broken_off(failure: Failure) -> Fault {
    match failure {
        Failure::Fault(fault) => fault,
        _ => Fault::new("a download is broken off: its next piece is refused"),
    }
}
