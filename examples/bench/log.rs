//! The service with a long log beside itself with a short one: decisions, and the first and last pages of lists.

use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::contender::{Load, Running};
use crate::decisions::Starts;
use crate::figures::{Report, median};
use crate::template::Template;
use crate::{Args, Failure};

/// How many decisions stand in the short log: enough to fill pages.
const SHORT: usize = 5_000;
/// How often each page is fetched in a round.
const FETCHES: usize = 50;
/// The lists that grow with the log.
const LISTS: [&str; 4] = ["decisions", "decisions?verdict=allow", "decisions?verdict=review", "events"];
/// The longest page.
const LIMIT: usize = 100;

/// A log of one length.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Length {
    pub(crate) decisions: usize,
    pub(crate) rounds: Vec<Report>,
    pub(crate) starts: Starts,
    pub(crate) pages: Vec<PageTimes>,
}

/// One page of one list.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PageTimes {
    pub(crate) list: &'static str,
    pub(crate) which: &'static str,
    #[serde(skip)]
    path: String,
    /// The median of each round.
    milliseconds: Vec<f64>,
}

impl PageTimes {
    pub(crate) fn milliseconds(&self) -> f64 {
        median(self.milliseconds.iter().copied())
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

/// Measures the two in turn.
pub(crate) fn measure(
    args: &Args,
    template: &Template,
    directory: &Path,
) -> Result<(Length, Length), Failure> {
    let (short, long) = (directory.join("short"), directory.join("long"));
    for own in [&short, &long] {
        template.copy_to(own)?;
    }
    fill(template, &short, SHORT)?;
    let short_pages = pages(template, &short)?;
    fill(template, &long, SHORT)?;
    let long_pages = pages(template, &long)?;
    fill(template, &long, args.log().saturating_sub(SHORT))?;
    let mut lengths = [(SHORT, short_pages), (args.log(), long_pages)].map(|(decisions, pages)| Length {
        decisions,
        pages,
        ..Length::default()
    });
    for round in 0..args.rounds() {
        for (own, length) in [&short, &long].into_iter().zip(&mut lengths) {
            let report = run(args, template, own, round, length)?;
            eprintln!(
                "round {}: {} decisions in the log: {:.0}/s",
                round + 1,
                length.decisions,
                report.requests_per_second
            );
            length.rounds.push(report);
        }
    }
    let [short, long] = lengths;
    Ok((short, long))
}

fn run(
    args: &Args,
    template: &Template,
    directory: &Path,
    round: usize,
    length: &mut Length,
) -> Result<Report, Failure> {
    let server = Running::mandate(directory, &[])?;
    let took = server.first_decision(template.agent.1.expose())?;
    length.starts.note(took.as_secs_f64() * 1e3, server.resident_bytes()?);
    for page in &mut length.pages {
        page.milliseconds.push(time(&server, template, &page.path)?);
    }
    let keys = template.keys(round);
    let load = Load {
        keys: &keys,
        seconds: args.seconds(),
        warm_up: args.warm_up(),
        args: &["--connections", "64"],
    };
    let report = server.load(&load)?;
    if report.errors > 0 { Err("some answers were wrong".into()) } else { Ok(report) }
}

/// Fills the log with so many decisions, over the API: as every log is filled.
fn fill(template: &Template, directory: &Path, decisions: usize) -> Result<(), Failure> {
    let (mut made, mut set) = (0, 0);
    while made < decisions {
        let server = Running::mandate(directory, &[])?;
        let keys = template.keys(set);
        let requests = (decisions - made).to_string();
        let args = ["--connections", "256", "--requests", &requests];
        let report = server.load(&Load { keys: &keys, seconds: 15, warm_up: 0, args: &args })?;
        if report.requests == 0 || report.errors > 0 {
            return Err("the log could not be filled".into());
        }
        made += report.requests;
        set += 1;
        eprintln!("{made} of {decisions} decisions written");
    }
    Ok(())
}

/// The first page of each list, and the one that begins behind the last row of the page that is the first now: with all
/// that will be written it comes to stand at the far end.
fn pages(template: &Template, directory: &Path) -> Result<Vec<PageTimes>, Failure> {
    let server = Running::mandate(directory, &[])?;
    let mut pages = Vec::new();
    for list in LISTS {
        let separator = if list.contains('?') { '&' } else { '?' };
        let first = format!("{list}{separator}limit={LIMIT}");
        let page: Page = serde_json::from_str(&get(&server, template, &first)?)?;
        let last = page.data.last().filter(|_| page.data.len() == LIMIT);
        let last = last.ok_or_else(|| format!("{list} does not fill a page"))?;
        let behind = format!("{first}&starting_after={}", last.id);
        for (which, path) in [("first", first), ("last", behind)] {
            pages.push(PageTimes { list, which, path, milliseconds: Vec::new() });
        }
    }
    Ok(pages)
}

/// The median of the times that a page takes.
fn time(server: &Running, template: &Template, path: &str) -> Result<f64, Failure> {
    let mut times = Vec::new();
    for _ in 0..FETCHES {
        let start = Instant::now();
        get(server, template, path)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times))
}

fn get(server: &Running, template: &Template, path: &str) -> Result<String, Failure> {
    let key = format!("Bearer {}", template.organization_key.expose());
    let request = ureq::get(format!("{}/{path}", server.base_url)).header("authorization", key);
    Ok(request.call()?.body_mut().read_to_string()?)
}
