//! The measured part: every connection sends its next request as soon as it has the answer to the last, or at its time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Failure;
use crate::args::Args;
use crate::ask::{Asking, Tally};
use crate::connection::Connection;
use crate::pace::Pace;
use crate::process::Usage;
use crate::target::Target;

/// How long after its time a run may still wait for answers.
const GRACE: Duration = Duration::from_secs(10);
/// How many errors a connection reports and survives, with a new connection each time.
const MAX_ERRORS: usize = 5;

/// What a run came to.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) elapsed: Duration,
    /// Of each answered request, in microseconds.
    pub(crate) latencies: Vec<u32>,
    pub(crate) tally: Tally,
    /// With `--pid`.
    pub(crate) used: Option<Usage>,
}

/// How long, and how fast.
#[derive(Clone)]
struct Bounds {
    /// The number of the first request.
    first: usize,
    requests: usize,
    deadline: Instant,
    pace: Option<Pace>,
}

/// Warms the server up, and measures it.
pub(crate) async fn run(asking: Asking, args: &Args) -> Result<Run, Failure> {
    let asking = Arc::new(asking);
    let mut connections = Vec::new();
    for _ in 0..args.connections {
        connections.push(Connection::open(&args.base_url).await?);
    }
    let warm_up =
        Bounds { first: 0, requests: asking.agents(), deadline: Instant::now() + args.warm_up(), pace: None };
    let (warm, mut connections) = drive(&asking, &args.base_url, connections, &warm_up).await;
    connections.truncate(args.connections);

    let usage = || args.pid.map(Usage::now).transpose();
    let (before, start) = (usage()?, Instant::now());
    let requests = args.rate.map_or(args.requests, |rate| {
        let seconds = usize::try_from(args.duration().as_secs()).unwrap_or(usize::MAX);
        args.requests.min(seconds.saturating_mul(rate as usize))
    });
    let bounds = Bounds {
        // Each connection has asked for a number that it did not use.
        first: asking.begun(),
        requests,
        deadline: start + args.duration(),
        pace: args.rate.map(|rate| Pace::start(rate, requests, args.connections)),
    };
    let (mut run, _) = drive(&asking, &args.base_url, connections, &bounds).await;
    run.elapsed = start.elapsed();
    if let (Some(before), Some(after)) = (before, usage()?) {
        run.used = Some(after.since(&before));
    }
    run.tally.errors += warm.tally.errors;
    Ok(run)
}

async fn drive(
    asking: &Arc<Asking>,
    target: &Target,
    connections: Vec<Connection>,
    bounds: &Bounds,
) -> (Run, Vec<Connection>) {
    let patience = bounds.deadline.saturating_duration_since(Instant::now()) + GRACE;
    let mut tasks = JoinSet::new();
    for connection in connections {
        let one = keep_asking(Arc::clone(asking), target.clone(), connection, bounds.clone());
        tasks.spawn(timeout(patience, one));
    }
    let (mut whole, mut connections, mut unanswered) = (Run::default(), Vec::new(), 0);
    while let Some(done) = tasks.join_next().await {
        match done {
            Ok(Ok((run, connection))) => {
                whole.latencies.extend(run.latencies);
                whole.tally.add(run.tally);
                connections.push(connection);
            }
            Ok(Err(_)) => unanswered += 1,
            Err(e) => whole.tally.fail(&e.to_string()),
        }
    }
    if unanswered > 0 {
        whole
            .tally
            .fail(&format!("{unanswered} connections got no answers in time, or the pace was too fast"));
    }
    (whole, connections)
}

async fn keep_asking(
    asking: Arc<Asking>,
    target: Target,
    mut connection: Connection,
    bounds: Bounds,
) -> (Run, Connection) {
    let (mut run, mut request) = (Run::default(), Vec::new());
    while run.tally.errors < MAX_ERRORS {
        if let Some(pace) = &bounds.pace {
            pace.wait().await;
        } else if Instant::now() >= bounds.deadline {
            break;
        }
        let n = asking.next();
        if n - bounds.first >= bounds.requests {
            break;
        }
        let start = match &bounds.pace {
            Some(pace) => pace.time_of(n - bounds.first),
            None => Instant::now(),
        };
        asking.render(n, &mut request);
        let problem = match connection.exchange(&request).await {
            Ok(response) => {
                run.latencies.push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
                asking.check(n, &response, &mut run.tally).err()
            }
            Err(failure) => {
                if let Ok(again) = Connection::open(&target).await {
                    connection = again;
                }
                Some(failure)
            }
        };
        if let Some(problem) = problem {
            run.tally.fail(&problem.to_string());
        }
    }
    (run, connection)
}
