//! Load on several servers while something fails, and what must hold when it is over: whatever was acknowledged is there
//! once, as it was acknowledged, and nothing else is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use mandate_tests::campaign::Numbers;
use serde_json::{Value, json};

use super::client::admitted;
use super::replicas::Replicas;
use super::world::{Agent, authorization, terms};

/// Agents that ask at the same time, each on a thread of its own.
const AGENTS: usize = 8;
const PER_MONTH: u64 = 250;
/// Amounts above this wait for a person, who approves.
const REVIEW_ABOVE: u64 = 70;
/// How soon the service is there again by itself.
pub(crate) const RESUMES: Duration = Duration::from_secs(10);
/// How long answers that a test waits for may stay away.
const SILENCE: Duration = Duration::from_mins(1);

/// Who asks, and all that was asked.
pub(crate) struct Ledger<'a> {
    replicas: &'a Replicas,
    organization_key: String,
    agents: Vec<String>,
    seed: u64,
    asked: Vec<Asked>,
}

/// One request, until it was answered.
#[derive(Debug, Clone)]
struct Asked {
    agent: usize,
    /// Whose key was sent.
    api_key: String,
    /// The idempotency key.
    name: String,
    path: String,
    body: Value,
    answer: String,
    attempts: usize,
    took: Duration,
}

/// Receives each request as it is answered.
pub(crate) struct Progress(Receiver<Asked>, Vec<Asked>);

impl Progress {
    /// Waits until so many more requests are answered.
    pub(crate) fn answers(&mut self, count: usize) {
        for _ in 0..count {
            let asked = self.0.recv_timeout(SILENCE).expect("no request is answered any more");
            self.1.push(asked);
        }
    }
}

impl<'a> Ledger<'a> {
    /// An organization with agents that have limits.
    pub(crate) fn open(replicas: &'a Replicas, seed: u64) -> Self {
        let organization = replicas.organization("acme");
        let agents = (0..AGENTS).map(|number| {
            let agent = Agent::register(&organization.client, &format!("buyer-{number}"));
            let mut limited = terms(&agent.id);
            limited["limits"]["per_month"] = json!(PER_MONTH);
            limited["review_above"] = json!(REVIEW_ABOVE);
            organization.mandate(&limited);
            agent.client.key().to_owned()
        });
        let agents = agents.collect();
        Self {
            replicas,
            organization_key: organization.client.key().to_owned(),
            agents,
            seed,
            asked: Vec::new(),
        }
    }

    /// Puts load on all servers while `disturbance` goes on. No request may wait longer than that
    /// takes, plus the time that the service may take to resume.
    pub(crate) fn under_load(&mut self, disturbance: impl FnOnce(&mut Progress)) {
        let stop = AtomicBool::new(false);
        let (answers, answered) = mpsc::channel();
        let before = self.asked.len();
        let (asked, lasted) = thread::scope(|scope| {
            for agent in 0..AGENTS {
                let (answers, stop, ledger) = (answers.clone(), &stop, &*self);
                scope.spawn(move || ledger.ask_on(agent, before, stop, &answers));
            }
            drop(answers);
            let mut progress = Progress(answered, Vec::new());
            progress.answers(2 * AGENTS);
            let began = Instant::now();
            // When the disturbance is a failed assertion, the threads that ask must end all the same.
            let guard = Stop(&stop);
            disturbance(&mut progress);
            let lasted = began.elapsed();
            progress.answers(2 * AGENTS);
            drop(guard);
            let Progress(answered, mut asked) = progress;
            asked.extend(answered);
            (asked, lasted)
        });
        let slowest = asked.iter().max_by_key(|asked| asked.took).unwrap();
        println!("{} requests, disturbance for {lasted:?}, slowest {:?}", asked.len(), slowest.took);
        assert!(slowest.took <= lasted + RESUMES, "{slowest:?}");
        self.asked.extend(asked);
    }

    /// One agent's requests, one after another, each until it is answered.
    fn ask_on(&self, agent: usize, round: usize, stop: &AtomicBool, answers: &Sender<Asked>) {
        let mut numbers = Numbers::from_seed(self.seed ^ (agent * 1_000_003 + round) as u64);
        for number in 0.. {
            if stop.load(Ordering::SeqCst) {
                return;
            }
            let amount = u32::try_from(10 + numbers.below(80)).unwrap();
            let name = format!("{round}-{agent}-{number}");
            let key = &self.agents[agent];
            let asked = self.insist(agent, key, &name, "/authorizations", authorization(amount));
            let review = serde_json::from_str::<Value>(&asked.answer).unwrap()["review"]["id"].clone();
            let _ = answers.send(asked);
            if let Some(review) = review.as_str() {
                let path = format!("/reviews/{review}/approve");
                let _ = answers.send(self.insist(agent, &self.organization_key, &name, &path, Value::Null));
            }
        }
    }

    /// Sends one request until it is answered, to one server after another.
    fn insist(&self, agent: usize, api_key: &str, name: &str, path: &str, body: Value) -> Asked {
        let began = Instant::now();
        for attempts in 1.. {
            let client = self.replicas.client(agent + attempts, api_key);
            let answer = admitted(|| client.post_once(name, path, &body));
            if let Ok(answer) = answer
                .as_ref()
                .map_err(|_| ())
                .and_then(|answer| if answer.status < 500 { Ok(answer) } else { Err(()) })
            {
                assert_eq!(answer.status, 201, "{answer:?}");
                let (api_key, name, path) = (api_key.to_owned(), name.to_owned(), path.to_owned());
                let (answer, took) = (answer.body.clone(), began.elapsed());
                return Asked { agent, api_key, name, path, body, answer, attempts, took };
            }
            assert!(began.elapsed() < SILENCE, "{path} is not answered: {answer:?}");
            thread::yield_now();
        }
        unreachable!("it was asked for ever")
    }

    /// Everything that holds when all is quiet again. Each server is asked.
    pub(crate) fn check(&self) {
        let mut effects: HashMap<String, &Asked> = HashMap::new();
        for (at, asked) in self.asked.iter().enumerate() {
            let client = self.replicas.client(at, &asked.api_key);
            let retried = admitted(|| client.post_once(&asked.name, &asked.path, &asked.body)).unwrap();
            assert_eq!((retried.status, &retried.body), (201, &asked.answer), "{asked:?}");
            assert_eq!(retried.header("idempotency-replayed"), Some("true"), "{asked:?}");
            let id = retried.text("/decision");
            let before = effects.insert(id, asked);
            assert!(before.is_none(), "two requests have one effect: {asked:?}, {before:?}");
        }
        let mut kept = 0;
        for (agent, key) in self.agents.iter().enumerate() {
            let client = self.replicas.client(agent, key);
            let mut spent = 0;
            for decision in client.decisions() {
                let asked = effects.get(decision["jti"].as_str().unwrap());
                let asked = asked.unwrap_or_else(|| panic!("an effect without an answer: {decision}"));
                let answer: Value = serde_json::from_str(&asked.answer).unwrap();
                assert_eq!((asked.agent, &decision["verdict"]), (agent, &answer["verdict"]));
                if decision["verdict"] == "allow" {
                    assert_eq!(decision["verdict_token"], answer["verdict_token"]);
                    spent += decision["request"]["amount"].as_u64().unwrap();
                }
                kept += 1;
            }
            assert!(spent <= PER_MONTH, "{spent} is more than {PER_MONTH}");
            let usage = admitted(|| client.send("GET", "/usage", &[], "")).unwrap().json();
            assert_eq!(usage["data"][0]["spent"], json!(spent), "{usage}");
        }
        assert_eq!(kept, effects.len(), "what was acknowledged is in the log");
        let retried = self.asked.iter().filter(|asked| asked.attempts > 1).count();
        println!("{kept} decisions, {retried} of them asked for more than once");
        let log = self.replicas.logged();
        for committed in ["true", "false"] {
            let field = format!(r#""committed":{committed}"#);
            println!(
                "transactions cut off in their commit, that had committed: {committed}: {}",
                log.matches(&field).count()
            );
        }
        self.replicas.hold(&self.replicas.client(0, &self.organization_key));
    }
}

/// Stops the threads that ask, when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
