//! Decisions at full load without webhooks, and beside the deliveries of their events to a local receiver.
//!
//! Each decision to be reviewed is an event. Enough webhooks subscribe to make about [`WANTED`] deliveries a
//! second. Each is signed, posted, answered and recorded. All deliveries are verified, and each webhook must get
//! each event.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mandate_core::jwks::KeySet;
use mandate_core::verify::{Expected, verify_event};
use mandate_server::clock::{Clock as _, SystemClock};
use serde::Serialize;
use serde_json::json;

use crate::contender::{Load, Running};
use crate::figures::{Report, median, over, ratio};
use crate::output::{Measured, Series};
use crate::receiver::{Came, Receiver};
use crate::template::{Template, developer_database};
use crate::{Args, Failure};

/// How many deliveries a second there are to be.
const WANTED: f64 = 2_000.0;
/// A margin on the number of events, since decisions become slower beside the deliveries.
const MARGIN: f64 = 1.15;
/// The share of decisions to be reviewed in the default mix of `load`.
const REVIEWED: f64 = 0.05;
/// How many webhooks an environment can have.
const MAX_WEBHOOKS: usize = 16;
/// How long the receiver waits for the remaining deliveries after the decisions have ended.
const PATIENCE: Duration = Duration::from_mins(1);
/// When no delivery has come for so long, all have.
const QUIET: Duration = Duration::from_secs(2);
/// How often the received deliveries are counted.
const LOOK: Duration = Duration::from_millis(20);

/// One side, round by round.
#[derive(Debug, Default)]
struct Side {
    webhooks: usize,
    rounds: Vec<Report>,
    /// Deliveries a second that the receiver got while the decisions were measured.
    deliveries: Vec<f64>,
    /// How many came after the decisions had ended.
    behind: Vec<f64>,
}

/// Measures decisions alternately without webhooks, with enough of them, and with one fewer. The wanted number of
/// deliveries lies between the last two.
pub(crate) fn measure(args: &Args, template: &Template, directory: &Path) -> Result<Measured, Failure> {
    let receiver = Receiver::start()?;
    let [mut without, mut fewer, mut beside] = <[Side; 3]>::default();
    for _ in 0..args.rounds() {
        run(args, template, directory, &receiver, &mut without)?;
        if beside.webhooks == 0 {
            beside.webhooks = needed(over(&without.rounds, |r| r.requests_per_second));
            fewer.webhooks = beside.webhooks - 1;
        }
        if fewer.webhooks > 0 {
            run(args, template, directory, &receiver, &mut fewer)?;
        }
        run(args, template, directory, &receiver, &mut beside)?;
    }
    let sides: Vec<_> = [without, fewer, beside].into_iter().filter(|side| !side.rounds.is_empty()).collect();
    let series = sides.iter().map(Side::series).collect::<Result<_, _>>()?;
    Ok(Measured { text: render(args, &sides)?, series })
}

/// What a round of a side has come to.
#[derive(Serialize)]
struct Round<'a> {
    #[serde(flatten)]
    report: &'a Report,
    deliveries_per_second: f64,
    deliveries_still_to_come: f64,
}

impl Side {
    fn series(&self) -> Result<Series, Failure> {
        let rounds = self.rounds.iter().zip(&self.deliveries).zip(&self.behind);
        let rounds = rounds.map(|((report, deliveries), behind)| Round {
            report,
            deliveries_per_second: *deliveries,
            deliveries_still_to_come: *behind,
        });
        Series::of("64 connections", &format!("mandate, {} webhooks", self.webhooks), rounds)
    }
}

/// How many webhooks it takes for as many deliveries as are wanted.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number, above nothing")]
fn needed(decisions_per_second: f64) -> usize {
    let webhooks = (WANTED * MARGIN / (REVIEWED * decisions_per_second)).ceil();
    (webhooks as usize).clamp(1, MAX_WEBHOOKS)
}

#[expect(clippy::cast_precision_loss, reason = "counts, to be rounded")]
fn run(
    args: &Args,
    template: &Template,
    directory: &Path,
    receiver: &Receiver,
    side: &mut Side,
) -> Result<(), Failure> {
    let own = directory.join("deliveries");
    let server = Running::developer(template, &own)?;
    for number in 0..side.webhooks {
        let webhook =
            json!({ "url": receiver.url(&number.to_string()), "events": ["decision.review_pending"] });
        let key = format!("Bearer {}", template.organization_key.expose());
        ureq::post(format!("{}/webhooks", server.base_url))
            .header("authorization", key)
            .header("content-type", "application/json")
            .send(webhook.to_string())?;
    }
    let keys = template.keys(0);
    let load = Load {
        keys: &keys,
        seconds: args.seconds(),
        warm_up: args.warm_up(),
        args: &["--connections", "64"],
    };
    let (report, counts) = std::thread::scope(|scope| {
        let load = scope.spawn(|| server.load(&load).map_err(|e| e.to_string()));
        let mut counts = Vec::new();
        while !load.is_finished() {
            counts.push((Instant::now(), receiver.count()));
            sleep(LOOK);
        }
        (load.join().unwrap_or_else(|_| Err("a load panicked".to_owned())), counts)
    });
    let report = report?;
    if report.errors > 0 {
        return Err(format!("{} webhooks: {} errors", side.webhooks, report.errors).into());
    }
    let report = report.keeps_to_velocity()?;
    let before = receiver.count();
    let all = wait(receiver);
    side.deliveries.push(rate(&counts, args.seconds()));
    side.behind.push((all - before) as f64);
    let events = if side.webhooks > 0 { reviewed(&own)? } else { 0 };
    check(&server, (events, side.webhooks), &receiver.take())?;
    eprintln!(
        "round {}: {} webhooks: {:.0} decisions/s, {:.0} deliveries/s, {} still to come at the end",
        side.rounds.len() + 1,
        side.webhooks,
        report.requests_per_second,
        side.deliveries.last().unwrap_or(&0.0),
        all - before
    );
    side.rounds.push(report);
    drop(server);
    std::fs::remove_dir_all(&own)?;
    Ok(())
}

/// How many came a second in the middle of the time that was measured, which ends about where the load does.
#[expect(clippy::cast_precision_loss, reason = "counts, to be rounded")]
fn rate(counts: &[(Instant, usize)], seconds: u64) -> f64 {
    let Some((end, _)) = counts.last() else { return 0.0 };
    let measured = Duration::from_secs(seconds);
    let ago = |parts: u32| counts.iter().find(|(at, _)| end.duration_since(*at) <= measured * parts / 10);
    match (ago(9), ago(1)) {
        (Some((from, before)), Some((to, after))) => {
            (after - before) as f64 / to.duration_since(*from).as_secs_f64()
        }
        _ => 0.0,
    }
}

/// Waits until nothing comes any more. Returns how many have come.
fn wait(receiver: &Receiver) -> usize {
    let (mut count, mut at, began) = (receiver.count(), Instant::now(), Instant::now());
    while at.elapsed() < QUIET && began.elapsed() < PATIENCE {
        sleep(LOOK);
        let now = receiver.count();
        if now > count {
            (count, at) = (now, Instant::now());
        }
    }
    count
}

/// How many events have been made for the webhooks.
fn reviewed(directory: &Path) -> Result<usize, Failure> {
    let connection = rusqlite::Connection::open(developer_database(directory))?;
    let sql = "SELECT count(*) FROM events WHERE type = 'decision.review_pending'";
    let count: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(usize::try_from(count)?)
}

/// Verifies all that has come. Each event must have come to each webhook, and to each once: no attempt of these failed.
fn check(server: &Running, (made, webhooks): (usize, usize), came: &[Came]) -> Result<(), Failure> {
    let issuer = server.verdicts_url.as_str();
    let document =
        ureq::get(format!("{issuer}/.well-known/jwks.json")).call()?.body_mut().read_to_string()?;
    let keys = KeySet::parse(document.as_bytes())?;
    let expected = Expected { environment: None, ..Expected::new(issuer, SystemClock.now()) };
    let mut events = BTreeMap::new();
    for (path, token) in came {
        let event = verify_event(std::str::from_utf8(token)?, &keys, &expected)?;
        *events.entry((event.claims().jti, path)).or_insert(0_usize) += 1;
    }
    if let Some(((event, path), times)) = events.iter().find(|(_, times)| **times > 1) {
        return Err(format!("{event} came to {path} {times} times").into());
    }
    let mut whole = BTreeMap::new();
    for (event, _) in events.keys() {
        *whole.entry(event).or_insert(0_usize) += 1;
    }
    if whole.len() != made {
        return Err(format!("{} of {made} events came", whole.len()).into());
    }
    match whole.iter().find(|(_, came)| **came != webhooks) {
        Some((event, came)) => Err(format!("{event} came to {came} of {webhooks} webhooks").into()),
        None => Ok(()),
    }
}

/// The table.
fn render(args: &Args, sides: &[Side]) -> Result<String, Failure> {
    let mut text = String::new();
    let [without, .., beside] = sides else { return Err("nothing was measured".into()) };
    let elsewhere = over(&beside.rounds, |report| report.processors_busy_elsewhere);
    writeln!(
        text,
        "Medians of {} rounds of {} seconds, ratios round by round; 64 connections, {} processors for the server,\n\
         the client and the receiver together; {elsewhere:.2} processors were busy with something else, the receiver included.\n",
        args.rounds(),
        args.seconds(),
        std::thread::available_parallelism().map_or(0, usize::from)
    )?;
    writeln!(
        text,
        "| Webhooks | Decisions/s | of those without | p99 ms | of that without | Deliveries/s | Still to come at the end | \
         CPU µs a decision, with its deliveries | CPU µs a delivery |\n|---|---|---|---|---|---|---|---|---|"
    )?;
    for side in sides {
        let of = |figure: fn(&Report) -> f64| ratio(&side.rounds, &without.rounds, figure);
        writeln!(
            text,
            "| {} | {:.0} | {:.2} | {:.1} | {:.1} | {:.0} | {:.0} | {:.0} | {} |",
            side.webhooks,
            over(&side.rounds, |r| r.requests_per_second),
            of(|r| r.requests_per_second),
            over(&side.rounds, |r| r.p99_microseconds) / 1e3,
            of(|r| r.p99_microseconds),
            median(side.deliveries.iter().copied()),
            median(side.behind.iter().copied()),
            over(&side.rounds, |r| r.server_cpu_microseconds_per_request),
            cost(side, without).map_or_else(String::new, |microseconds| format!("{microseconds:.0}")),
        )?;
    }
    Ok(text)
}

/// What the server spends on a delivery: what the decisions cost more beside them than without.
fn cost(side: &Side, without: &Side) -> Option<f64> {
    let rounds = side.rounds.iter().zip(&without.rounds).zip(&side.deliveries);
    let more = |(one, other): (&Report, &Report)| {
        let each = one.server_cpu_microseconds_per_request - other.server_cpu_microseconds_per_request;
        each * one.requests_per_second
    };
    (side.webhooks > 0).then(|| median(rounds.map(|(both, deliveries)| more(both) / deliveries)))
}
