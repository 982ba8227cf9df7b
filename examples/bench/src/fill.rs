//! Fills the log by the store's own code: authorizations are put into its batches, decided, signed and written as those that come
//! over HTTP, only without HTTP. A clock goes with them, so that no agent is too fast for the velocity rule.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use mandate_core::api_key::ApiKey;
use mandate_core::json::Object;
use mandate_core::{Request, RequestId, Timestamp};
use mandate_server::clock::{Clock, Ids, Sleep, SystemClock, SystemEntropy};
use mandate_server::error::Fault;
use mandate_server::metrics::Metrics;
use mandate_server::model::call::{Call, Caller, ScriptError};
use mandate_server::model::master_key::MasterKey;
use mandate_server::service::decide::Engine;
use mandate_server::service::keys;
use mandate_server::service::moments::Moments;
use mandate_server::service::signing::rotation::Maker;
use mandate_server::service::signing::{self, Keyring};
use mandate_server::store::{self, Authorization, Decider, Owned, Store};

use crate::Failure;
use crate::template::{MASTER_KEY, SETS, Template};

/// Who signs what is filled in. The servers that are measured sign as themselves.
const ISSUER: &str = "http://127.0.0.1:1";
/// How long after the one before each is decided, by the clock that goes with them, in nanoseconds: each of all sets' agents
/// asks nine times a minute.
const STEP_NANOS: i64 = 74_074;
/// How many wait at a time.
const AT_A_TIME: usize = 512;
/// How long a review waits, in seconds.
const REVIEW_SECONDS: i64 = 24 * 60 * 60;
/// How many decisions the agent of whom pages are fetched has in a log, however long that is: they are spread over all of it.
const LISTED: usize = 200;
/// The sequence of requests: of twenty, 17 are to be allowed, one to be reviewed, one is over the limit, and one
/// has a wrong category.
const AMOUNTS: [(&str, &str); 4] =
    [("40", "software"), ("300.5", "software"), ("900", "software"), ("40", "travel")];

/// When a log of so many decisions must begin, so that it ends before now.
pub(crate) fn beginning(decisions: usize) -> Result<Timestamp, Failure> {
    let seconds = i64::try_from(decisions)?.saturating_mul(STEP_NANOS) / 1_000_000_000;
    Ok(SystemClock.now().plus_seconds(-seconds - 2 * 60))
}

/// A clock that goes on with each decision.
struct Steps {
    begin: Timestamp,
    taken: AtomicI64,
}

impl Clock for Steps {
    fn now(&self) -> Timestamp {
        let millis = self.taken.load(Ordering::Relaxed).saturating_mul(STEP_NANOS) / 1_000_000;
        Timestamp::from_millis(self.begin.millis() + millis)
    }

    fn sleep_until(&self, _: Timestamp) -> Sleep<'_> {
        Box::pin(std::future::pending())
    }

    fn uptime_millis(&self) -> i64 {
        self.now().millis_since(self.begin)
    }
}

/// Fills the template's own database with the decisions of these numbers, of so many in all; number 0 is made at `begin`. The first
/// agent makes two hundred of them, as far apart as they can be, and the others the rest in turn.
pub(crate) fn fill(
    template: &Template,
    begin: Timestamp,
    numbers: Range<usize>,
    all: usize,
) -> Result<(), Failure> {
    let url = template.url();
    let keyring = store::run_once(&url, |tx| {
        let master = MasterKey::parse(MASTER_KEY)?;
        let maker = Maker { master: &master, entropy: &SystemEntropy };
        signing::ensure(tx, maker, ISSUER, begin)?;
        Ok::<_, ScriptError>(Keyring::load(tx, &master, ISSUER)?)
    })?;
    let keyring = keyring.map_err(|refusal| refusal.message)?;
    let callers = Arc::new(callers(template, begin)?);
    let clock = Arc::new(Steps { begin, taken: AtomicI64::new(i64::try_from(numbers.start)?) });
    let ids = Arc::new(Ids::new(Arc::new(SystemEntropy)));
    let moments = Arc::new(Moments::new(Arc::clone(&clock) as Arc<dyn Clock>, ids));
    let engine = Engine::new(keyring, moments, REVIEW_SECONDS);
    let every = all.div_ceil(LISTED).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let store = Store::open(
            Owned::take(&url, Duration::ZERO)?,
            Arc::new(engine) as Arc<dyn Decider>,
            Metrics::new(),
        )?;
        let next = Arc::new(AtomicUsize::new(numbers.start));
        let mut tasks = tokio::task::JoinSet::<Result<(), Fault>>::new();
        for _ in 0..AT_A_TIME {
            let (store, callers) = (store.clone(), Arc::clone(&callers));
            let (clock, next) = (Arc::clone(&clock), Arc::clone(&next));
            tasks.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= numbers.end {
                        return Ok(());
                    }
                    clock.taken.fetch_add(1, Ordering::Relaxed);
                    decide(&store, &callers, (number, every), clock.now()).await?;
                    if number > 0 && number % 500_000 == 0 {
                        eprintln!("{number} decisions written");
                    }
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        tokio::task::spawn_blocking(move || store.close()).await?;
        Ok(())
    })
}

/// Decides on the one of that number; each of the numbers of `every` is the first agent's.
async fn decide(
    store: &Store,
    callers: &[Arc<Caller>],
    (number, every): (usize, usize),
    now: Timestamp,
) -> Result<(), Fault> {
    let lost = || Fault::new("there is no such agent");
    let place = if number % every == 0 { 0 } else { number % callers.len() };
    let caller = callers.get(place).ok_or_else(lost)?;
    // With each round of the agents the mix moves on, so that each agent asks for everything.
    let kind = ((number + number / callers.len()) % 20).saturating_sub(16);
    let (amount, category) = AMOUNTS.get(kind).ok_or_else(lost)?;
    let body = format!(
        r#"{{"amount":{amount},"currency":"USD","recipient":"vendor:acme","category":"{category}"}}"#
    );
    let read = Object::parse(body.as_bytes());
    let agent = caller.agent.clone().ok_or_else(lost)?;
    let request = read.and_then(|body| Request::read(agent, body)).map_err(|e| Fault::new(e.to_string()))?;
    let request_id = RequestId::new(now, u128::try_from(number).unwrap_or_default());
    let call = Call { caller: Arc::clone(caller), request_id, at: now, idempotency: None };
    let answer = store.decide(Authorization::new(call, Ok(request))).await?;
    if answer.status == 201 { Ok(()) } else { Err(Fault::new("an authorization was refused")) }
}

/// All agents of the template, as the gate knows them.
fn callers(template: &Template, now: Timestamp) -> Result<Vec<Arc<Caller>>, Failure> {
    let mut hashes = Vec::new();
    for set in 0..SETS {
        for line in std::fs::read_to_string(template.keys(set))?.lines() {
            hashes.push(ApiKey::parse(line)?.hash());
        }
    }
    let found = store::run_once(&template.url(), |tx| {
        let mut found = Vec::with_capacity(hashes.len());
        for hash in &hashes {
            let caller = keys::find(tx, hash, now)?;
            found.push(Arc::new(caller.ok_or_else(|| Fault::new("an agent's key is not there"))?));
        }
        Ok::<_, ScriptError>(found)
    })?;
    found.map_err(|refusal| refusal.message.into())
}
