//! The service's API: one POST with its key, its idempotency key, its retries, and errors told in full.

use std::thread;
use std::time::Duration;

use mandate_core::api_key::{ApiKey, KeyClass};
use mandate_core::json::Object;
use ureq::Agent;
use zeroize::Zeroizing;

use crate::credential;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::http::Address;
use crate::output::{Output, say};
use crate::service::Service;

/// What follows the host in a base URL.
const VERSION_PATH: &str = "/v1";
/// Pauses before the second, third and fourth attempt, unless the service asks for another one.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1)];
/// The longest pause that the service may ask for; a longer one is left to the caller.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
/// From here on a pause is told of.
const NOTICEABLE: Duration = Duration::from_secs(2);
/// The longest answer that is read, in bytes.
const MAX_ANSWER_BYTES: u64 = 1024 * 1024;

/// A connection to the service in the name of one key.
pub(crate) struct Client {
    agent: Agent,
    base: Address,
    key: ApiKey,
    idempotency_key: String,
}

/// An answer of any status.
struct Reply {
    status: u16,
    body: String,
    replayed: bool,
    retry_after: Option<Duration>,
}

impl Client {
    /// The client that `service` and the environment describe, with a key of `class`.
    pub(crate) fn new(service: &Service, class: KeyClass) -> Result<Self, Failure> {
        let base = base_url(service)?;
        let key = credential::find(service.key_file.as_ref(), class)?;
        let idempotency_key = match &service.idempotency_key {
            Some(key) => key.clone(),
            None => format!("{:032x}", u128::from_be_bytes(environment::random()?)),
        };
        Ok(Self { agent: base.agent(), base, key, idempotency_key })
    }

    /// Posts `body`, which is JSON, or nothing; the body of a 2xx comes back as it came. What may pass is tried again.
    pub(crate) fn post(&self, path: &str, body: Option<&str>) -> Result<String, Failure> {
        let mut pauses = PAUSES.iter();
        loop {
            let tried = self.send(path, body);
            let pause = worth_another(&tried).zip(pauses.next());
            let pause = pause.map(|(asked, usual)| asked.unwrap_or_else(|| jittered(*usual)));
            match (pause.filter(|pause| *pause <= MAX_RETRY_AFTER), tried) {
                (Some(pause), _) => wait(pause),
                (None, Ok(reply)) if (200..300).contains(&reply.status) => return Ok(self.accept(reply)),
                (None, Ok(reply)) => return Err(self.told(self.refused(path, &reply))),
                (None, Err(e)) => return Err(self.told(self.unreachable(&e))),
            }
        }
    }

    /// The failure with the key under which the request can be repeated.
    pub(crate) fn told(&self, failure: Failure) -> Failure {
        failure.note("idempotency key", &self.idempotency_key)
    }

    /// Notes how to have the answer again, in case it cannot be shown.
    pub(crate) fn note_if_lost(&self, output: &mut Output) {
        let key = &self.idempotency_key;
        output.note_if_lost("idempotency key", key);
        output.note_if_lost(
            "next",
            format_args!("repeat the command with --idempotency-key {key:?}: it gives the same answer again"),
        );
    }

    fn send(&self, path: &str, body: Option<&str>) -> Result<Reply, ureq::Error> {
        let bearer = Zeroizing::new(format!("Bearer {}", self.key.expose()));
        let request = self
            .agent
            .post(self.base.join(path).as_str())
            .header("authorization", bearer.as_str())
            .header("idempotency-key", &self.idempotency_key)
            .header("accept", "application/json");
        let mut response = match body {
            Some(body) => request.content_type("application/json").send(body)?,
            None => request.send_empty()?,
        };
        let header = |name| response.headers().get(name).and_then(|v| v.to_str().ok());
        let replayed = header("idempotency-replayed") == Some("true");
        let retry_after = header("retry-after").and_then(|v| v.parse().ok()).map(Duration::from_secs);
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string()?;
        Ok(Reply { status, body, replayed, retry_after })
    }

    fn accept(&self, reply: Reply) -> String {
        if reply.replayed {
            let key = &self.idempotency_key;
            say(&format!("note: this is the answer to an earlier request with the idempotency key {key}\n"));
        }
        reply.body
    }

    fn refused(&self, path: &str, reply: &Reply) -> Failure {
        let Some((code, message, request_id)) = envelope(&reply.body) else {
            return self.foreign(reply);
        };
        let exit = exit_of(reply.status).unwrap_or(Exit::UnknownAnswer);
        let failure = Failure::new(exit, message)
            .note("code", format_args!("{code} (HTTP {})", reply.status))
            .note("request id", request_id)
            .with_answer(&reply.body);
        match exit {
            Exit::InvalidRequest => {
                failure.next("mend what the message names; a changed request needs a new idempotency key")
            }
            Exit::Unauthorized => failure.next(
                "check that the key belongs to this service and is not revoked; its operator issues keys",
            ),
            Exit::Forbidden => {
                failure.next("use a key of the other class: agents ask, organizations do everything else")
            }
            Exit::NotFound if is_collection(path) => failure.next(format_args!(
                "is {} the API's address? there is no {path}; set --base-url or MANDATE_BASE_URL",
                self.base
            )),
            Exit::NotFound => {
                failure.next("check the id; objects of other organizations and environments are not visible")
            }
            Exit::Conflict if code == "idempotency_conflict" => failure
                .next("that idempotency key stands for another request: leave it out, or take a new one"),
            Exit::Conflict => failure.next("choose another name"),
            Exit::RateLimited => match reply.retry_after {
                Some(wait) => failure.next(format_args!("wait {} s, then {}", wait.as_secs(), self.again())),
                None => failure.next(format_args!("wait, then {}", self.again())),
            },
            Exit::ServerError => failure.next(self.again()),
            _ => failure,
        }
    }

    /// An error that is not the service's own, but that of a proxy, or of another server altogether.
    fn foreign(&self, reply: &Reply) -> Failure {
        let what = format!("{} answered HTTP {}, and not as the service does", self.base, reply.status);
        match exit_of(reply.status) {
            Some(exit @ (Exit::RateLimited | Exit::ServerError)) => {
                Failure::new(exit, what).next(self.again())
            }
            _ => Failure::new(Exit::UnknownAnswer, what).next(
                "check that --base-url (or MANDATE_BASE_URL) is the service's address; redirects are not followed",
            ),
        }
    }

    /// What to do when it is not known whether the request took effect.
    fn again(&self) -> String {
        format!("repeat the command with --idempotency-key {:?}: it takes effect once", self.idempotency_key)
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        Failure::new(Exit::Unreachable, format!("{} cannot be reached: {error}", self.base))
            .next(self.again())
    }
}

/// Whether `path` names no object, so that the API always has it.
fn is_collection(path: &str) -> bool {
    path.rfind('/') == Some(0)
}

/// Whether another attempt may do better, and the pause that the service asks for.
#[expect(clippy::option_option, reason = "whether, and if so how long if that is known")]
fn worth_another(tried: &Result<Reply, ureq::Error>) -> Option<Option<Duration>> {
    match tried {
        Ok(reply) if reply.status == 429 || reply.status >= 500 => Some(reply.retry_after),
        // What is not TLS, or has a certificate that is refused, is refused again.
        Err(ureq::Error::Io(e)) if e.kind() == std::io::ErrorKind::InvalidData => None,
        Err(
            ureq::Error::Io(_)
            | ureq::Error::Timeout(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed,
        ) => Some(None),
        _ => None,
    }
}

/// Sleeps, and tells of it when a person would wonder.
fn wait(pause: Duration) {
    if pause >= NOTICEABLE {
        say(&format!("note: the service asks for patience; next attempt in {} s\n", pause.as_secs()));
    }
    thread::sleep(pause);
}

/// `pause`, longer by a random part of itself, so that many clients don't come back together.
fn jittered(pause: Duration) -> Duration {
    let [part] = environment::random::<1>().unwrap_or_default();
    pause.saturating_add(pause.saturating_mul(u32::from(part)) / 256)
}

fn base_url(service: &Service) -> Result<Address, Failure> {
    let (text, name) = match (&service.base_url, environment::variable("MANDATE_BASE_URL")?) {
        (Some(text), _) => (text.clone(), "--base-url"),
        (None, Some(text)) => (text.to_string(), "MANDATE_BASE_URL"),
        (None, None) => {
            let failure = Failure::new(Exit::Usage, "the service's address is not known");
            return Err(failure.next("set MANDATE_BASE_URL, or pass --base-url https://api.example.com/v1"));
        }
    };
    let refused = |why: &str| Failure::new(Exit::Usage, format!("{name} `{text}` is refused: {why}"));
    let address: Address = text.parse().map_err(|why: String| refused(&why))?;
    if !address.as_str().ends_with(VERSION_PATH) {
        return Err(refused("it must end in /v1"));
    }
    Ok(address)
}

/// Code, message and request id out of an error's body.
fn envelope(body: &str) -> Option<(String, String, String)> {
    let mut error = Object::parse(body.as_bytes()).ok()?.take("error")?.object().ok()?;
    let mut text = |name| error.take(name)?.string().ok().map(std::borrow::Cow::into_owned);
    Some((text("code")?, text("message")?, text("request_id")?))
}

fn exit_of(status: u16) -> Option<Exit> {
    Some(match status {
        400 => Exit::InvalidRequest,
        401 => Exit::Unauthorized,
        403 => Exit::Forbidden,
        404 => Exit::NotFound,
        409 => Exit::Conflict,
        429 => Exit::RateLimited,
        500..=599 => Exit::ServerError,
        _ => return None,
    })
}
