//! The service with a long log beside itself with a short one: decisions, and the first and last pages of lists.
//!
//! The long log is filled once and kept below the target directory; each run adds to it what it decides.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mandate_core::api_key::ApiKey;
use mandate_server::clock::{Clock as _, SystemClock};
use mandate_server::store::upkeep;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::contender::{Load, Running};
use crate::decisions::Starts;
use crate::figures::{Report, median};
use crate::fill::{beginning, fill};
use crate::output::{Measured, Series};
use crate::template::{REST, SETS, Template, database};
use crate::{Args, Failure, table};

/// Decisions in the short log: enough to fill pages.
const SHORT: usize = 5_000;
/// How often each page is fetched in a round.
const FETCHES: usize = 50;
/// The lists that grow with the log.
const LISTS: [&str; 4] = ["decisions", "decisions?verdict=allow", "decisions?verdict=review", "events"];
/// The list of one agent's decisions: two pages, spread over the log.
const LISTS_OF_AGENT: [&str; 1] = ["decisions?agent=agt_bench-00000"];
/// How often it is looked whether the public log has all.
const LOOK: Duration = Duration::from_millis(200);
/// The longest page.
const LIMIT: usize = 100;

/// A log of one length.
#[derive(Debug, Default)]
pub(crate) struct Length {
    pub(crate) decisions: usize,
    pub(crate) rounds: Vec<Report>,
    pub(crate) starts: Starts,
    pub(crate) pages: Vec<PageTimes>,
}

/// One page of one list.
#[derive(Debug, Clone)]
pub(crate) struct PageTimes {
    pub(crate) list: &'static str,
    pub(crate) which: &'static str,
    path: String,
    /// The median of each round.
    milliseconds: Vec<f64>,
}

impl PageTimes {
    pub(crate) fn milliseconds(&self) -> f64 {
        median(self.milliseconds.iter().copied())
    }

    /// Which part of another page's time it takes, round by round.
    pub(crate) fn of(&self, other: &Self) -> f64 {
        median(self.milliseconds.iter().zip(&other.milliseconds).map(|(own, other)| own / other))
    }
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    #[serde(alias = "jti", alias = "event")]
    id: String,
}

/// A long log as it is kept: the keys of its agents, and the pages that began it.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    organization_key: String,
    agent_key: String,
    pages: Vec<(String, String)>,
}

/// The file with the keys and pages of a kept log, written last, once the log is complete. Change the name when such a log is to
/// hold something else: old logs are then filled again.
const KEPT: &str = "kept-2.json";

/// Measures the two alternately; `target` is the target directory.
pub(crate) fn measure(
    args: &Args,
    template: &Template,
    target: &Path,
    directory: &Path,
) -> Result<Measured, Failure> {
    let own = directory.join("short");
    template.copy_to(&own)?;
    let short = Template::at(&own, template.organization_key.clone(), template.agent_key.clone());
    for set in 0..SETS {
        std::fs::copy(template.keys(set), short.keys(set))?;
    }
    fill(&short, SystemClock.now(), 0..SHORT, SHORT)?;
    append(&short)?;
    let mut short_pages = pages(&short, &LISTS)?;
    short_pages.extend(pages(&short, &LISTS_OF_AGENT)?);
    let (long, long_pages) = long(&target.join(format!("bench-log-{}", args.log())), args.log())?;
    let count = held(&long)?;
    let mut lengths = [(SHORT, short_pages), (count, long_pages)].map(|(decisions, pages)| Length {
        decisions,
        pages,
        ..Length::default()
    });
    // When the agents of each round have asked in the long log.
    let mut asked: Vec<Instant> = Vec::new();
    for round in 0..args.rounds() {
        if let Some(last) = round.checked_sub(SETS).and_then(|last| asked.get(last)) {
            thread::sleep(REST.saturating_sub(last.elapsed()));
        }
        // The long log is too large to be copied, and what a run adds to it is little. The short one would soon be longer.
        let own = directory.join(format!("short-{round}"));
        short.copy_to(&own)?;
        let fresh = Template::at(&own, short.organization_key.clone(), short.agent_key.clone());
        fetch([&fresh, &long], &mut lengths)?;
        let logs = [(&fresh, short.keys(round)), (&long, long.keys(round))];
        for ((log, keys), length) in logs.into_iter().zip(&mut lengths) {
            let report = run(args, log, &keys, length)?;
            eprintln!(
                "round {}: {} decisions in the log: {:.0}/s",
                round + 1,
                length.decisions,
                report.requests_per_second
            );
            length.rounds.push(report);
        }
        asked.push(Instant::now());
        std::fs::remove_dir_all(&own)?;
    }
    let [short, long] = &lengths;
    let text = table::log(args, short, long)?;
    let series = lengths.iter().map(Length::series).collect::<Result<Vec<_>, _>>()?;
    Ok(Measured { text, series: series.into_iter().flatten().collect() })
}

impl Length {
    fn series(&self) -> Result<Vec<Series>, Failure> {
        let contender = format!("mandate, {} decisions", self.decisions);
        let mut series =
            vec![Series::of("64 connections", &contender, &self.rounds)?, self.starts.series(&contender)?];
        for PageTimes { list, which, milliseconds, .. } in &self.pages {
            let rounds = milliseconds.iter().map(|milliseconds| json!({ "milliseconds": milliseconds }));
            series.push(Series::of(&format!("{which} page of /{list}"), &contender, rounds)?);
        }
        Ok(series)
    }
}

/// The long log: that of an earlier run, or a new one.
fn long(directory: &Path, decisions: usize) -> Result<(Template, Vec<PageTimes>), Failure> {
    // One with another schema is no use to this server.
    if let Some(kept) = std::fs::read(directory.join(KEPT)).ok().filter(|_| is_current(directory)) {
        let kept: Kept = serde_json::from_slice(&kept)?;
        let key = |text: &str| ApiKey::parse(text).map_err(|e| e.to_string());
        let template = Template::at(directory, key(&kept.organization_key)?, key(&kept.agent_key)?);
        let mut pages = Vec::new();
        for (list, (first, last)) in LISTS.into_iter().chain(LISTS_OF_AGENT).zip(kept.pages) {
            pages.extend(both(list, first, last));
        }
        return Ok((template, pages));
    }
    if directory.exists() {
        // One that was not finished, or has another schema.
        std::fs::remove_dir_all(directory)?;
    }
    let begin = beginning(decisions)?;
    let template = Template::make(directory, begin)?;
    fill(&template, begin, 0..SHORT, decisions)?;
    let mut all = pages(&template, &LISTS)?;
    fill(&template, begin, SHORT..decisions, decisions)?;
    append(&template)?;
    all.extend(pages(&template, &LISTS_OF_AGENT)?);
    let kept = Kept {
        organization_key: template.organization_key.expose().to_owned(),
        agent_key: template.agent_key.expose().to_owned(),
        pages: all.chunks_exact(2).filter_map(paths).collect(),
    };
    std::fs::write(directory.join(KEPT), serde_json::to_vec(&kept)?)?;
    Ok((template, all))
}

/// Whether the database in a directory has the schema of this server.
fn is_current(directory: &Path) -> bool {
    let url = format!("sqlite://{}", database(directory).display());
    upkeep::schema(&url).is_ok_and(|schema| schema.is_newest())
}

/// The paths of the first and the last page of a list.
fn paths(pages: &[PageTimes]) -> Option<(String, String)> {
    let [first, last] = pages else { return None };
    Some((first.path.clone(), last.path.clone()))
}

fn both(list: &'static str, first: String, behind: String) -> [PageTimes; 2] {
    let page = |which, path| PageTimes { list, which, path, milliseconds: Vec::new() };
    [page("first", first), page("last", behind)]
}

/// How many decisions a log holds.
fn held(template: &Template) -> Result<usize, Failure> {
    let connection = rusqlite::Connection::open(database(template.directory()))?;
    let count: i64 = connection.query_row("SELECT count(*) FROM decisions", [], |row| row.get(0))?;
    Ok(usize::try_from(count)?)
}

/// Lets a server append to the public log what was filled in, and says how long that took.
fn append(template: &Template) -> Result<(), Failure> {
    let start = Instant::now();
    let server = Running::mandate(template.directory(), &[])?;
    let database = rusqlite::Connection::open(database(template.directory()))?;
    let waits = || database.query_row("SELECT EXISTS (SELECT 1 FROM log_pending)", [], |row| row.get(0));
    while waits()? {
        thread::sleep(LOOK);
    }
    drop(server);
    let count = held(template)?;
    eprintln!("{count} decisions are in the public log {:.1} s later", start.elapsed().as_secs_f64());
    Ok(())
}

fn run(args: &Args, template: &Template, keys: &Path, length: &mut Length) -> Result<Report, Failure> {
    let server = Running::mandate(template.directory(), &[])?;
    let took = server.first_decision(template.agent_key.expose())?;
    length.starts.note(took.as_secs_f64() * 1e3, server.resident_bytes()?);
    let load =
        Load { keys, seconds: args.seconds(), warm_up: args.warm_up(), args: &["--connections", "64"] };
    let report = server.load(&load)?;
    if report.errors > 0 {
        return Err("some answers were wrong".into());
    }
    report.keeps_to_velocity()
}

/// The first page of each list, and the page behind the last row of the current first page. In a list that grows with the log
/// the latter ends up at the far end.
fn pages(template: &Template, lists: &[&'static str]) -> Result<Vec<PageTimes>, Failure> {
    let server = Running::mandate(template.directory(), &[])?;
    let mut pages = Vec::new();
    for list in lists {
        let separator = if list.contains('?') { '&' } else { '?' };
        let first = format!("{list}{separator}limit={LIMIT}");
        let page: Page = serde_json::from_str(&get(&server, template, &first)?)?;
        let last = page.data.last().filter(|_| page.data.len() == LIMIT);
        let last = last.ok_or_else(|| format!("{list} does not fill a page"))?;
        let behind = format!("{first}&starting_after={}", last.id);
        pages.extend(both(list, first, behind));
    }
    Ok(pages)
}

/// Fetches each page of the two logs in turn, from a server on each, and notes the median of the times that it takes. They are at
/// work at the same time, so that what else goes on meets both.
fn fetch(logs: [&Template; 2], lengths: &mut [Length; 2]) -> Result<(), Failure> {
    let [short, long] = lengths;
    let mut servers = Vec::new();
    for log in logs {
        servers.push((Running::mandate(log.directory(), &[])?, log));
    }
    for pages in short.pages.iter_mut().zip(&mut long.pages) {
        let pages: [&mut PageTimes; 2] = pages.into();
        let mut times = [const { Vec::new() }; 2];
        for _ in 0..FETCHES {
            for (((server, log), page), times) in servers.iter().zip(&pages).zip(&mut times) {
                let start = Instant::now();
                get(server, log, &page.path)?;
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
        for (page, times) in pages.into_iter().zip(times) {
            page.milliseconds.push(median(times));
        }
    }
    Ok(())
}

fn get(server: &Running, template: &Template, path: &str) -> Result<String, Failure> {
    let key = format!("Bearer {}", template.organization_key.expose());
    let request = ureq::get(format!("{}/{path}", server.base_url)).header("authorization", key);
    Ok(request.call()?.body_mut().read_to_string()?)
}
