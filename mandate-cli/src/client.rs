//! Requests to the service's API: with key, idempotency key and retries, and errors in full.

mod refusal;
mod stream;
mod walk;

use std::thread;
use std::time::Duration;

use mandate_core::api_key::KeyClass;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};

pub(crate) use self::stream::Resume;
pub(crate) use self::walk::{Paging, Walk};
use crate::credential::{Access, Class, Hidden, VERSION_PATH};
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::http::{self, REQUEST_TIMEOUT, Transport};
use crate::key_set::WELL_KNOWN;
use crate::output::{Output, note, say};
use crate::prompt;
use crate::service::{Change, Service};
use crate::style::{LIVE, printable};

/// The pauses before the second, third and fourth attempt, unless the service asks for another.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1)];
/// The longest pause that the service may ask for, unless the caller waits less.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
/// How long a person at a prompt waits for completions.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(2);
/// A pause of this length or more is announced.
const NOTICEABLE: Duration = Duration::from_secs(2);
/// The characters that are escaped in a query: all but the unreserved ones (RFC 3986, section 2.3).
const QUERY: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The longest answer that is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 1024 * 1024;

/// A client of the service, with one key.
#[derive(Debug)]
pub(crate) struct Client {
    transport: Transport,
    access: Access,
    idempotency_key: String,
    /// Changes are made without asking for confirmation.
    unasked: bool,
    /// The longest pause that the service may ask for. A longer one is left to the caller.
    longest_pause: Duration,
    /// How long one attempt may take.
    timeout: Duration,
}

/// A request to be sent.
pub(crate) struct Call<'a> {
    method: Method,
    path: &'a str,
    query: String,
    body: Option<&'a str>,
}

/// An answer with any status.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    retry_after: Option<Duration>,
    /// Whether the request was sent before, with unknown effect.
    is_repeated: bool,
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        method: Method,
        path: &'a str,
        query: &[(&str, String)],
        body: Option<&'a str>,
    ) -> Self {
        Self { method, path, query: encoded(path, query), body }
    }

    fn is_post(&self) -> bool {
        self.method == Method::POST
    }
}

impl Client {
    /// The client that options, environment and profiles describe, with a key of class `class`.
    pub(crate) fn new(service: &Service, global: &Global, class: Class) -> Result<Self, Failure> {
        Self::marked(Access::find(service, global, class)?, None, global)
    }

    /// The same, for a command that makes a change.
    pub(crate) fn for_change(change: &Change, global: &Global, class: Class) -> Result<Self, Failure> {
        Self::marked(Access::find(&change.service, global, class)?, change.idempotency_key.clone(), global)
    }

    /// Marks production on a terminal.
    fn marked(access: Access, idempotency_key: Option<String>, global: &Global) -> Result<Self, Failure> {
        if access.is_live() && prompt::is_seen() {
            say(&format!("{LIVE} LIVE {LIVE:#} {}\n", access.base));
        }
        let client = Self::with(access, idempotency_key, global.yes)?;
        client.say_what_is_hidden();
        Ok(client)
    }

    /// Says that a key is used in the place of a profile that would show something else.
    pub(crate) fn say_what_is_hidden(&self) {
        let Some(Hidden { place, profile, class }) = &self.access.hidden else { return };
        let own = self.access.key.class();
        let who = match own {
            KeyClass::Organization => "the organization".to_owned(),
            KeyClass::Agent => self.own_agent().unwrap_or_else(|| "an agent".to_owned()),
        };
        let sees_more = *class == KeyClass::Organization && own == KeyClass::Agent;
        let more = if sees_more { " for all" } else { "" };
        note(format_args!("as {}, from {place}; --profile {}{more}", printable(&who), printable(profile)));
    }

    /// The agent whose key this is. One attempt: the command works without the name.
    fn own_agent(&self) -> Option<String> {
        let query = [("limit", "1".to_owned())];
        let reply = self.send(&Call::new(Method::GET, "/agents", &query, None)).ok()?;
        let own = fields::items(&reply.body, "data")?;
        fields::text(own.first()?, "id")
    }

    /// The client for a known access.
    pub(crate) fn with(
        access: Access,
        idempotency_key: Option<String>,
        unasked: bool,
    ) -> Result<Self, Failure> {
        let idempotency_key = match idempotency_key {
            Some(key) => key,
            None => format!("{:032x}", u128::from_be_bytes(environment::random()?)),
        };
        let transport = access.base.transport()?;
        let (longest_pause, timeout) = (MAX_RETRY_AFTER, REQUEST_TIMEOUT);
        Ok(Self { transport, access, idempotency_key, unasked, longest_pause, timeout })
    }

    /// The address and the key.
    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// Asks a person at a terminal to confirm `change` in a live environment. Without a terminal, only `--yes`
    /// confirms it. An agent's own change is what the program is for: its script is not asked.
    pub(crate) fn confirm(&self, change: &str) -> Result<(), Failure> {
        if !self.access.is_live() || self.unasked {
            return Ok(());
        }
        if !prompt::can_ask() {
            return match self.access.key.class() {
                KeyClass::Agent => Ok(()),
                KeyClass::Organization => {
                    let why = format!("a change in a live environment is not confirmed: {change}");
                    Err(Failure::new(Exit::Declined, why)
                        .note("sent", "nothing")
                        .next("there is no terminal to ask at: confirm with --yes"))
                }
            };
        }
        if prompt::confirm(&format!("LIVE: {change}?"))? {
            return Ok(());
        }
        Err(Failure::new(Exit::Declined, format!("not confirmed: {change}")).note("sent", "nothing"))
    }

    /// Gets the object or list at `path`.
    pub(crate) fn get(&self, path: &str, query: &[(&str, String)]) -> Result<String, Failure> {
        self.call(&Call::new(Method::GET, path, query, None))
    }

    /// Gets a list in one short attempt, for a person who waits at a prompt. None if that fails.
    pub(crate) fn look(&self, path: &str, query: &[(&str, String)]) -> Option<String> {
        let url = format!("{}{}", self.access.base.join(path), encoded(path, query));
        let request = self.request(Method::GET, &url, "application/json").ok()?;
        let response = http::send(request, PROMPT_TIMEOUT).ok()?;
        let found = response.status() == 200;
        response.text(MAX_ANSWER_BYTES).ok().filter(|_| found)
    }

    /// Deletes the object at `path`. If an earlier attempt may have deleted it, a 404 is a success.
    pub(crate) fn delete(&self, path: &str) -> Result<(), Failure> {
        let call = Call::new(Method::DELETE, path, &[], None);
        let reply = self.exchange(&call)?;
        match reply.status {
            200..300 => Ok(()),
            404 if reply.is_repeated => Ok(()),
            _ => Err(self.failed(&call, &reply)),
        }
    }

    /// Posts `body`, which is JSON, or nothing. Returns the body of a 2xx unchanged.
    pub(crate) fn post(&self, path: &str, body: Option<&str>) -> Result<String, Failure> {
        self.call(&Call::new(Method::POST, path, &[], body))
    }

    /// Another client of the same access, for another change.
    pub(crate) fn afresh(&self) -> Result<Self, Failure> {
        Ok(self.keyed(format!("{:032x}", u128::from_be_bytes(environment::random()?))))
    }

    /// The same, for a change with this idempotency key.
    pub(crate) fn keyed(&self, idempotency_key: String) -> Self {
        Self { transport: self.transport.clone(), access: self.access.clone(), idempotency_key, ..*self }
    }

    /// The same client, which waits no longer than `longest_pause` when the service asks it to wait, and no longer than
    /// `timeout` for each answer.
    pub(crate) fn with_patience(self, longest_pause: Duration, timeout: Duration) -> Self {
        Self { longest_pause, timeout, ..self }
    }

    fn call(&self, call: &Call<'_>) -> Result<String, Failure> {
        let reply = self.exchange(call)?;
        if (200..300).contains(&reply.status) {
            return Ok(reply.body);
        }
        Err(self.failed(call, &reply))
    }

    /// The failure for an answer other than 2xx.
    pub(crate) fn failed(&self, call: &Call<'_>, reply: &Reply) -> Failure {
        let refused = self.refused(call, reply);
        self.repeatable(call, refused, reply.is_repeated)
    }

    /// The issuer that the service names: the address to which it redirects a request for the key set. None
    /// if it names none.
    pub(crate) fn issuer(&self) -> Option<String> {
        let host = self.access.base.without(VERSION_PATH)?;
        let request = self.transport.get(host.join(WELL_KNOWN).as_str()).ok()?;
        let response = http::send(request, REQUEST_TIMEOUT).ok()?;
        let location = response.header("location").filter(|_| (300..400).contains(&response.status()))?;
        Some(location.strip_suffix(WELL_KNOWN)?.to_owned())
    }

    /// Sends the request, and again if that may help. Returns the last answer, whatever its status.
    pub(crate) fn exchange(&self, call: &Call<'_>) -> Result<Reply, Failure> {
        let mut is_repeated = false;
        let tried = self.patiently(
            || self.send(call),
            |tried| {
                let pause = worth_another(tried, |reply| (reply.status, reply.retry_after));
                is_repeated |= pause.is_some() && tried.as_ref().map_or(true, |reply| reply.status >= 500);
                pause
            },
        );
        match tried {
            Ok(reply) => {
                self.note_if_replayed(&reply);
                Ok(Reply { is_repeated, ..reply })
            }
            Err(e) => {
                let is_final = e.is_no_tls() || e.is_untrusted() || e.is_unknown_host();
                let failure = self.unreachable(call, &e);
                Err(if is_final && !is_repeated {
                    failure
                } else {
                    self.repeatable(call, failure, is_repeated)
                })
            }
        }
    }

    /// Adds the idempotency key of a change that may do better the next time, or that may have taken effect.
    fn repeatable(&self, call: &Call<'_>, failure: Failure, is_repeated: bool) -> Failure {
        let makes_sense = failure.can_pass() || is_repeated;
        if call.is_post() && makes_sense { self.with_idempotency_key(failure) } else { failure }
    }

    /// Adds the key with which the request can be repeated.
    pub(crate) fn with_idempotency_key(&self, failure: Failure) -> Failure {
        failure.note("idempotency key", &self.idempotency_key)
    }

    /// A failure after the change was made: says that it was made, and how to get the answer again.
    pub(crate) fn made(&self, failure: Failure) -> Failure {
        let key = &self.idempotency_key;
        self.with_idempotency_key(failure).note("done", "the change was made").next(format_args!(
            "repeat the command with --idempotency-key {key:?}: it gives the same answer again"
        ))
    }

    /// Notes how to get the answer again, in case it cannot be printed.
    pub(crate) fn note_if_lost(&self, output: &mut Output) {
        let key = &self.idempotency_key;
        output.note_if_lost("idempotency key", key);
        output.note_if_lost(
            "next",
            format_args!("repeat the command with --idempotency-key {key:?}: it gives the same answer again"),
        );
    }

    fn send(&self, call: &Call<'_>) -> Result<Reply, http::Error> {
        let url = format!("{}{}", self.access.base.join(call.path), call.query);
        let mut request = self.request(call.method.clone(), &url, "application/json")?;
        if call.is_post() {
            request = request.header("idempotency-key", &self.idempotency_key);
        }
        if let Some(body) = call.body {
            request = request.header("content-type", "application/json").body(body.to_owned());
        }
        let response = http::send(request, self.timeout)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.text(MAX_ANSWER_BYTES)?;
        let retry_after = retry_after(&headers);
        Ok(Reply { status, headers, body, retry_after, is_repeated: false })
    }

    /// Tries once, and again while `worth_another` returns a pause that is short enough. Returns the last
    /// outcome.
    fn patiently<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, http::Error>,
        mut worth_another: impl FnMut(&Result<T, http::Error>) -> Option<Option<Duration>>,
    ) -> Result<T, http::Error> {
        for usual in PAUSES {
            let tried = attempt();
            let pause = worth_another(&tried).map(|asked| asked.unwrap_or_else(|| jittered(usual)));
            match pause.filter(|pause| *pause <= self.longest_pause) {
                Some(pause) => wait(pause),
                None => return tried,
            }
        }
        attempt()
    }

    /// A request with the key, marked so that no log of headers shows it.
    fn request(&self, method: Method, url: &str, accept: &str) -> Result<RequestBuilder, http::Error> {
        let request = self.transport.request(method, url)?;
        Ok(request.bearer_auth(self.access.key.expose()).header("accept", accept))
    }

    fn note_if_replayed(&self, reply: &Reply) {
        if reply.headers.get("idempotency-replayed").is_some_and(|value| value == "true") {
            let key = &self.idempotency_key;
            note(format_args!("this is the answer to an earlier request with the idempotency key {key}"));
        }
    }
}

/// The query with these fields, to be appended to `path`. Empty if there are none.
fn encoded(path: &str, query: &[(&str, String)]) -> String {
    query.iter().enumerate().fold(String::new(), |mut text, (at, (name, value))| {
        text.push(if at == 0 && !path.contains('?') { '?' } else { '&' });
        text.extend([name, "="]);
        text.extend(utf8_percent_encode(value, &QUERY));
        text
    })
}

/// Whether another attempt may succeed, and the pause that the service asks for. `facts` returns an answer's
/// status and pause.
#[expect(clippy::option_option, reason = "whether, and if so how long if that is known")]
fn worth_another<T>(
    tried: &Result<T, http::Error>,
    facts: impl Fn(&T) -> (u16, Option<Duration>),
) -> Option<Option<Duration>> {
    match tried {
        Ok(answer) => {
            let (status, asked) = facts(answer);
            (status == 429 || status >= 500).then_some(asked)
        }
        Err(e) => e.is_passing().then_some(None),
    }
}

/// The pause that an answer asks for.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    http::pause(headers.get("retry-after")?.to_str().ok()?, environment::now())
}

/// Sleeps, and announces a pause that a person would notice.
fn wait(pause: Duration) {
    if pause >= NOTICEABLE {
        note(format_args!("the service asked to wait; next attempt in {} s", pause.as_secs()));
    }
    thread::sleep(pause);
}

/// `pause`, extended by a random part of itself, so that many clients do not return together.
fn jittered(pause: Duration) -> Duration {
    let [part] = environment::random::<1>().unwrap_or_default();
    pause.saturating_add(pause.saturating_mul(u32::from(part)) / 256)
}
