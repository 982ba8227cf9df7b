//! What one request is, and whether its answer is the right one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use mandate_core::Timestamp;
use serde::Deserialize;

use crate::Failure;
use crate::args::Args;
use crate::connection::Response;
use crate::mix::{Asked, Mix};
use crate::tokens;

/// One allow in so many is verified.
const VERIFIED_ONE_IN: usize = 100;
/// How many tokens a connection keeps at most to have them verified.
const MAX_TOKENS: usize = 50;

/// All requests of a run: one agent after another, with the kinds of requests in their shares.
pub(crate) struct Asking {
    /// The request up to the agent's key.
    head: String,
    keys: Vec<String>,
    mix: Mix,
    idempotent: usize,
    /// Makes this run's idempotency keys differ from those of other runs.
    run: i64,
    next: AtomicUsize,
}

/// What was asked and answered.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) verdicts: BTreeMap<String, usize>,
    pub(crate) errors: usize,
    pub(crate) tokens: Vec<Sample>,
}

/// One of the tokens that are verified.
pub(crate) struct Sample {
    pub(crate) token: String,
    /// To whom the request was to pay that it answers: no other request names them.
    pub(crate) recipient: String,
    pub(crate) arrived: Timestamp,
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

impl Asking {
    pub(crate) fn new(args: &Args, keys: Vec<String>) -> Self {
        let target = &args.base_url;
        let head = format!(
            "POST {}/authorizations HTTP/1.1\r\nhost: {}\r\nuser-agent: mandate-load\r\naccept: application/json\r\n\
             content-type: application/json\r\nauthorization: Bearer ",
            target.path, target.authority
        );
        let run = tokens::now().millis();
        let (mix, idempotent) = (args.mix.clone(), args.idempotent);
        Self { head, keys, mix, idempotent, run, next: AtomicUsize::new(0) }
    }

    pub(crate) fn agents(&self) -> usize {
        self.keys.len()
    }

    /// The number of the next request.
    pub(crate) fn next(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// How many numbers were given.
    pub(crate) fn begun(&self) -> usize {
        self.next.load(Ordering::Relaxed)
    }

    /// What the n-th request asks. With each round of the agents the mix moves on, so that each agent asks for everything.
    fn asked(&self, n: usize) -> Asked {
        self.mix.nth(n + n / self.keys.len())
    }

    /// Writes the n-th request into `buffer`.
    pub(crate) fn render(&self, n: usize, buffer: &mut Vec<u8>) {
        use std::io::Write as _;
        let body = self.asked(n).body(&recipient(n));
        buffer.clear();
        buffer.extend_from_slice(self.head.as_bytes());
        buffer.extend(self.keys.get(n % self.keys.len()).iter().flat_map(|key| key.as_bytes()));
        if n % 100 < self.idempotent {
            let _ = write!(buffer, "\r\nidempotency-key: {:016x}-{n:019}", self.run);
        }
        let _ = write!(buffer, "\r\ncontent-length: {}\r\n\r\n", body.len());
        buffer.extend_from_slice(body.as_bytes());
    }

    /// Checks the answer to the n-th request, and counts it.
    pub(crate) fn check(&self, n: usize, response: &Response<'_>, tally: &mut Tally) -> Result<(), Failure> {
        let asked = self.asked(n);
        let wrong = || {
            let (status, body) = (response.status, response.text());
            Failure::from(format!("asked for {}, was answered {status}: {body}", asked.verdict()))
        };
        let answer: Authorization<'_> = serde_json::from_slice(response.body).map_err(|_| wrong())?;
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
        tally.count(n, verdict, verdict_token);
        Ok(())
    }
}

/// To whom the n-th request is to pay.
fn recipient(n: usize) -> String {
    format!("vendor:{n:09}")
}

impl Tally {
    fn count(&mut self, n: usize, verdict: &str, token: Option<&str>) {
        let count = match self.verdicts.get_mut(verdict) {
            Some(count) => count,
            None => self.verdicts.entry(verdict.to_owned()).or_default(),
        };
        *count += 1;
        if let Some(token) = token
            && *count % VERIFIED_ONE_IN == 1
            && self.tokens.len() < MAX_TOKENS
        {
            let (token, recipient) = (token.to_owned(), recipient(n));
            self.tokens.push(Sample { token, recipient, arrived: tokens::now() });
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.errors += other.errors;
        self.tokens.extend(other.tokens);
        for (verdict, count) in other.verdicts {
            *self.verdicts.entry(verdict).or_default() += count;
        }
    }

    pub(crate) fn fail(&mut self, problem: &str) {
        eprintln!("load: {problem}");
        self.errors += 1;
    }
}
