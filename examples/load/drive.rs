//! The measured part: every connection sends its next request as soon as it has the answer to the last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Uri;
use hyper::header::HeaderValue;
use mandate_core::Timestamp;
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Failure;
use crate::args::Args;
use crate::http::{Connection, Response, Target};
use crate::mix::Asked;
use crate::tokens;

/// How long after its time a run may still wait for answers.
const GRACE: Duration = Duration::from_secs(10);
/// How many errors a connection reports and survives, with a new connection each time.
const MAX_ERRORS: usize = 5;
/// One allow in so many is verified.
const VERIFIED_ONE_IN: usize = 100;
/// How many tokens a connection keeps at most to have them verified.
const MAX_TOKENS: usize = 50;

/// What a run came to.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) elapsed: Duration,
    /// Of each answered request, in microseconds.
    pub(crate) latencies: Vec<u32>,
    pub(crate) verdicts: BTreeMap<String, usize>,
    pub(crate) errors: usize,
    /// A sample of the tokens, and when they arrived.
    pub(crate) tokens: Vec<(String, Timestamp)>,
}

#[derive(Deserialize)]
struct Authorization<'a> {
    verdict: &'a str,
    verdict_token: Option<&'a str>,
    reason: Option<&'a str>,
    review: Option<Review<'a>>,
}

#[derive(Deserialize)]
struct Review<'a> {
    id: &'a str,
    status: &'a str,
}

/// What one connection does, again and again.
trait Work: Send + 'static {
    /// Makes the n-th request.
    fn send(
        &mut self,
        connection: &mut Connection,
        n: usize,
    ) -> impl Future<Output = Result<Response, Failure>> + Send;

    /// Checks its answer.
    fn check(&mut self, n: usize, response: &Response, run: &mut Run) -> Result<(), Failure>;
}

/// Asks for authorizations.
pub(crate) async fn authorize(agents: &Arc<[HeaderValue]>, args: &Args) -> Result<Run, Failure> {
    let path: Uri = format!("{}/authorizations", args.base_url.path()).parse()?;
    let work = |first| Authorize {
        path: path.clone(),
        agents: Arc::clone(agents),
        mix: args.mix.clone(),
        first,
        step: args.connections,
    };
    drive(&args.base_url, args, work).await
}

/// Gets one URL.
pub(crate) async fn get(url: &Target, args: &Args) -> Result<Run, Failure> {
    drive(url, args, |_| Get { path: url.path().to_owned() }).await
}

async fn drive<W: Work>(target: &Target, args: &Args, work: impl Fn(usize) -> W) -> Result<Run, Failure> {
    let mut connections = Vec::new();
    for _ in 0..args.connections {
        connections.push(target.connect().await?);
    }
    let start = Instant::now();
    let deadline = start + args.duration();
    let share = args.requests.div_ceil(args.connections);
    let mut tasks = JoinSet::new();
    for (first, connection) in connections.into_iter().enumerate() {
        let one = keep_asking(target.clone(), connection, work(first), deadline, share);
        tasks.spawn(timeout(args.duration() + GRACE, one));
    }
    let mut whole = Run::default();
    while let Some(done) = tasks.join_next().await {
        match done? {
            Ok(run) => whole.add(run),
            Err(_) => whole.fail("a connection got no answer in time"),
        }
    }
    whole.elapsed = start.elapsed();
    Ok(whole)
}

async fn keep_asking<W: Work>(
    target: Target,
    mut connection: Connection,
    mut work: W,
    deadline: Instant,
    requests: usize,
) -> Run {
    let mut run = Run::default();
    for n in 0..requests {
        let start = Instant::now();
        if start >= deadline {
            break;
        }
        let problem = match work.send(&mut connection, n).await {
            Ok(response) => {
                run.latencies.push(u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX));
                work.check(n, &response, &mut run).err()
            }
            Err(failure) => {
                if let Ok(again) = target.connect().await {
                    connection = again;
                }
                Some(failure)
            }
        };
        if let Some(problem) = problem {
            run.fail(&problem.to_string());
            if run.errors >= MAX_ERRORS {
                break;
            }
        }
    }
    run
}

struct Authorize {
    path: Uri,
    agents: Arc<[HeaderValue]>,
    mix: crate::mix::Mix,
    /// The connections take the agents in turn: this one begins here ...
    first: usize,
    /// ... and goes on by so many.
    step: usize,
}

impl Authorize {
    /// Each connection begins elsewhere in the mix.
    fn asked(&self, n: usize) -> Asked {
        self.mix.nth(n.wrapping_add(self.first))
    }
}

impl Work for Authorize {
    async fn send(&mut self, connection: &mut Connection, n: usize) -> Result<Response, Failure> {
        let place = self.first.wrapping_add(n.wrapping_mul(self.step)) % self.agents.len();
        let agent = self.agents.get(place).ok_or("there are no agents")?;
        connection.post(&self.path, agent, self.asked(n).body()).await
    }

    fn check(&mut self, n: usize, response: &Response, run: &mut Run) -> Result<(), Failure> {
        let asked = self.asked(n);
        let wrong = || {
            let (status, body) = (response.status, String::from_utf8_lossy(&response.body));
            Failure::from(format!("asked for {}, was answered {status}: {body}", asked.verdict()))
        };
        let answer: Authorization<'_> = serde_json::from_slice(&response.body).map_err(|_| wrong())?;
        let Authorization { verdict, verdict_token, reason, review } = answer;
        let whole = match (verdict, verdict_token, reason, review) {
            ("allow", Some(_), None, None) | (_, None, Some(_), None) => true,
            ("review", None, None, Some(review)) => {
                review.id.starts_with("rev_") && review.status == "pending"
            }
            _ => false,
        };
        if response.status != 201 || !whole || !asked.accepts(verdict) {
            return Err(wrong());
        }
        let count = run.verdicts.entry(verdict.to_owned()).or_default();
        *count += 1;
        if let Some(token) = verdict_token
            && *count % VERIFIED_ONE_IN == 1
            && run.tokens.len() < MAX_TOKENS
        {
            run.tokens.push((token.to_owned(), tokens::now()));
        }
        Ok(())
    }
}

struct Get {
    path: String,
}

impl Work for Get {
    async fn send(&mut self, connection: &mut Connection, _: usize) -> Result<Response, Failure> {
        connection.get(&self.path).await
    }

    fn check(&mut self, _: usize, response: &Response, _: &mut Run) -> Result<(), Failure> {
        if response.status == 200 { Ok(()) } else { Err(format!("answered {}", response.status).into()) }
    }
}

impl Run {
    fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.errors += other.errors;
        self.tokens.extend(other.tokens);
        for (verdict, count) in other.verdicts {
            *self.verdicts.entry(verdict).or_default() += count;
        }
    }

    fn fail(&mut self, problem: &str) {
        eprintln!("load: {problem}");
        self.errors += 1;
    }
}
