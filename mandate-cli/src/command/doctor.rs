//! `mandate doctor`: checks this machine, its settings and the service, and suggests what to do.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use mandate_core::Timestamp;
use mandate_core::api_key::KeyClass;
use mandate_core::jwks::MAX_KEY_SET_BYTES;
use reqwest::header::HeaderMap;
use serde::Serialize;

use crate::client::Client;
use crate::credential::{Access, known_address};
use crate::environment::{self, variable};
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::http::{self, Address, REQUEST_TIMEOUT, Transport};
use crate::key_set::{in_use, max_age_seconds, parse, published_at};
use crate::output::Output;
use crate::service::Service;
use crate::style::{CAUTION, DIM, ERROR, GOOD, printable};

/// How far this clock may differ from the service's before there is a warning, in seconds.
const WARN_CLOCK_SECONDS: i64 = 5;
/// From this difference on, no leeway helps: a verdict seems expired, or not yet valid. In seconds.
const MAX_CLOCK_SECONDS: i64 = 30;
/// The longest answer that is read, in bytes.
const MAX_BODY_BYTES: u64 = 1024 * 1024;

/// Check clock, addresses, TLS, API key, mode and key set, and suggest what to do
///
/// Each check is one line: ok, warn or fail. A setting that is missing gives a warning, not a failure: verifying needs no
/// API key, and an API key alone needs no issuer.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate doctor
  mandate doctor --issuer https://verdicts.example.com \\
      --docs-url https://docs.example.com --json

Exit codes:
  0 nothing failed    25 a check failed    2 usage")]
pub(crate) struct Doctor {
    /// The issuer whose key set is checked [env: MANDATE_ISSUER; default: from the profile]
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,

    /// The docs host, which publishes the OpenAPI document [env: MANDATE_DOCS_URL]
    #[arg(long, value_name = "URL")]
    docs_url: Option<String>,

    #[command(flatten)]
    service: Service,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Warn,
    Fail,
}

/// A check and its result.
#[derive(Debug, Serialize)]
struct Line {
    check: &'static str,
    state: State,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The checks so far.
#[derive(Debug, Default, Serialize)]
struct Examined {
    healthy: bool,
    checks: Vec<Line>,
    /// Whether a host has answered with the time.
    #[serde(skip)]
    is_clock_known: bool,
}

/// A host's answer.
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl Doctor {
    pub(crate) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let mut examined = Examined::default();
        self.api(global, &mut examined);
        self.verdicts(global, &mut examined)?;
        self.docs(&mut examined)?;
        if !examined.is_clock_known {
            let next = "compare it with another clock; given --issuer or --base-url, doctor compares it";
            examined.warn("clock", "no server has answered with the time", next);
        }
        examined.healthy = examined.checks.iter().all(|line| line.state != State::Fail);
        if output.is_json() {
            output.json(&examined)?;
        } else {
            print(&examined.checks, output);
        }
        Ok(if examined.healthy { Exit::Success } else { Exit::Unhealthy })
    }

    /// Checks the service and the key, if they are known.
    fn api(&self, global: &Global, examined: &mut Examined) {
        let base = match known_address(&self.service, global) {
            Ok(Some(base)) => base,
            Ok(None) => {
                let next = "mandate login, or set MANDATE_BASE_URL; verifying needs neither";
                return examined.warn("api", "the service's address is not set", next);
            }
            Err(failure) => {
                let next = "correct the address in MANDATE_BASE_URL, --base-url or the profile";
                return examined.fail("api", failure.message(), failure.advice().unwrap_or(next));
            }
        };
        // Without a key first: it is known who answers before a key is sent.
        let answer = examined.ask("api", &base, "/agents");
        let is_there = match answer {
            Some(answer) if answer.status == 401 => true,
            Some(answer) => {
                let next = match answer.status {
                    429 | 500.. => "the service has an error: try again later; its operator can see why",
                    _ => "is this the service's address, and does it end in /v1?",
                };
                let found = format!("HTTP {}, where the API requires a key", answer.status);
                examined.fail("api answer", found, next);
                false
            }
            None => false,
        };
        match Access::at(base, &self.service, global, None) {
            Ok(Some(access)) => examined.key(access, is_there),
            Ok(None) => {
                let next = "mandate login, or set MANDATE_ORGANIZATION_KEY or MANDATE_AGENT_KEY";
                examined.warn("key", "there is none", next);
            }
            Err(failure) => {
                let next = failure.advice().unwrap_or("mandate login, with a key of the service");
                examined.fail("key", failure.message(), next);
            }
        }
    }

    /// Checks the issuer's key set.
    fn verdicts(&self, global: &Global, examined: &mut Examined) -> Result<(), Failure> {
        let Some(issuer) = in_use(self.issuer.as_deref(), global)? else {
            let next = "mandate login, pass --issuer URL, or set MANDATE_ISSUER";
            examined.warn("verdicts", "no issuer is named", next);
            return Ok(());
        };
        let place = match published_at(&issuer) {
            Ok(place) => place,
            Err(failure) => {
                examined.fail("verdicts", failure.message(), "pass the issuer's https address");
                return Ok(());
            }
        };
        if let Some(answer) = examined.ask("verdicts", &place, "") {
            examined.key_set(&place, &answer);
        }
        Ok(())
    }

    /// Checks the docs host.
    fn docs(&self, examined: &mut Examined) -> Result<(), Failure> {
        let Some(url) = given(self.docs_url.as_deref(), "MANDATE_DOCS_URL")? else {
            examined.warn("docs", "no docs host is named", "pass --docs-url URL, or set MANDATE_DOCS_URL");
            return Ok(());
        };
        match url.parse::<Address>() {
            Ok(address) => {
                let answer = examined.ask("docs", &address, "/openapi.yaml");
                if let Some(status) = answer.map(|answer| answer.status).filter(|status| *status != 200) {
                    let next = "is this the docs host? the contract is at /openapi.yaml there";
                    examined.fail("docs", format!("HTTP {status}, where the contract is expected"), next);
                }
            }
            Err(why) => examined.fail("docs", format!("`{url}` is refused: {why}"), "correct the address"),
        }
        Ok(())
    }
}

impl Examined {
    fn line(&mut self, check: &'static str, state: State, found: impl Into<String>, next: Option<String>) {
        self.checks.push(Line { check, state, found: found.into(), next });
    }

    fn ok(&mut self, check: &'static str, found: impl Into<String>) {
        self.line(check, State::Ok, found, None);
    }

    fn warn(&mut self, check: &'static str, found: impl Into<String>, next: impl Into<String>) {
        self.line(check, State::Warn, found, Some(next.into()));
    }

    fn fail(&mut self, check: &'static str, found: impl Into<String>, next: impl Into<String>) {
        self.line(check, State::Fail, found, Some(next.into()));
    }

    /// Sends a request to a host. Checks that it answers, whether it uses TLS, and its clock.
    fn ask(&mut self, check: &'static str, address: &Address, path: &str) -> Option<Answer> {
        let before = environment::now();
        let transport = match address.transport() {
            Ok(transport) => transport,
            Err(failure) => {
                let next = failure.advice().unwrap_or("correct the variable that names the proxy");
                self.fail(check, failure.message(), next);
                return None;
            }
        };
        match get(&transport, &address.join(path), None) {
            Ok(answer) => {
                let over = if address.is_plain() {
                    "plain HTTP on this machine"
                } else {
                    "TLS, with a certificate that is trusted"
                };
                self.ok(check, format!("{address} answers, over {over}"));
                self.clock(&answer, before, environment::now());
                Some(answer)
            }
            Err(e) => {
                let found = format!("{address} cannot be reached{}", address.why(&e));
                let next = address.advice(&e).unwrap_or_else(|| advice(&e).to_owned());
                self.fail(check, found, next);
                None
            }
        }
    }

    /// Compares this clock with the answer's `Date`, which is exact to a second and was written between two
    /// instants. The answer of a cache is older, and is ignored.
    fn clock(&mut self, answer: &Answer, before: Timestamp, after: Timestamp) {
        let date = answer.header("date").filter(|_| answer.header("age").is_none()).and_then(http::date);
        let Some(date) = date.filter(|_| !self.is_clock_known) else { return };
        self.is_clock_known = true;
        let ahead = before.millis_since(date.plus_seconds(1)) / 1000;
        let behind = date.millis_since(after) / 1000;
        let found = if ahead > 0 {
            format!("{ahead} s ahead of the service's")
        } else if behind > 0 {
            format!("{behind} s behind the service's")
        } else {
            "the same as the service's".to_owned()
        };
        match ahead.max(behind) {
            MAX_CLOCK_SECONDS.. => {
                let next =
                    "set this machine's clock, by NTP for example: tokens seem expired, or not yet valid";
                self.fail("clock", found, next);
            }
            WARN_CLOCK_SECONDS.. => {
                let next = "set this machine's clock; until then, verify with --leeway, up to 30 s";
                self.warn("clock", found, next);
            }
            _ => self.ok("clock", found),
        }
    }

    /// Checks the key with the service, and shows its owner.
    fn key(&mut self, access: Access, is_there: bool) {
        let class = access.key.class();
        let environment = if access.is_live() { "LIVE, where money moves" } else { "sandbox" };
        let profile = access.profile.as_ref().map(|name| format!(", of the profile {name}"));
        let found = format!("of an {class}, {environment}{}", profile.unwrap_or_default());
        if !is_there {
            let next = "nothing was sent; correct the address first";
            return self.warn("key", format!("{found}; not sent to the service"), next);
        }
        let path = match class {
            KeyClass::Organization => "/enforcement",
            KeyClass::Agent => "/agents",
        };
        let asked = Client::with(access, None, true).and_then(|client| {
            client.say_what_is_hidden();
            client.get(path, &[])
        });
        let body = match asked {
            Ok(body) => body,
            Err(failure) => {
                let next = failure.advice().unwrap_or("mandate login, with a key of the service");
                return self.fail("key", format!("{found}: {}", failure.message()), next);
            }
        };
        self.ok("key", format!("{found}; the service accepts it"));
        if class == KeyClass::Agent {
            return;
        }
        match fields::text(&body, "mode").as_deref() {
            Some("enforce") => self.ok("mode", "enforce: verdicts block"),
            Some("observe") => {
                let next = "mandate report shows what enforce mode would block; mandate enforcement set enforce turns it on";
                self.warn("mode", "observe: verdicts are recorded, and nothing blocks", next);
            }
            _ => {
                let next = "is this the service's address, and is this program not older than it?";
                self.fail("mode", "the service's answer has no mode", next);
            }
        }
    }

    /// Checks the keys published at `place`, and how long they may be cached.
    fn key_set(&mut self, place: &Address, answer: &Answer) {
        let next = "is this the issuer's address? the service's operator knows it";
        if answer.status != 200 {
            return self.fail("key set", format!("HTTP {}", answer.status), next);
        }
        if answer.body.len() > MAX_KEY_SET_BYTES {
            let found = format!("longer than {MAX_KEY_SET_BYTES} bytes");
            return self.fail("key set", found, next);
        }
        match parse(&answer.body, place.as_str()) {
            Err(failure) => return self.fail("key set", failure.message(), next),
            Ok(keys) if keys.is_empty() => return self.fail("key set", "no ES256 key", next),
            Ok(keys) => {
                let production = keys.iter().filter(|key| !key.kid().is_sandbox()).count();
                let sandbox = keys.len().saturating_sub(production);
                self.ok("key set", format!("{production} for production, {sandbox} for a sandbox"));
            }
        }
        let seconds = answer.header("cache-control").map_or(0, max_age_seconds);
        if seconds == 0 {
            let next = "tell the issuer: without Cache-Control, each verification fetches the keys again";
            self.warn("max-age", "the key set may not be cached", next);
        } else {
            self.ok("max-age", format!("the key set may be cached for {seconds} s"));
        }
        let next = "tell the issuer: a request for changed keys returns all keys again";
        match answer.header("etag") {
            None => self.warn("etag", "the key set has no ETag", next),
            Some(etag) => match place.transport().ok().map(|transport| get(&transport, place, Some(etag))) {
                Some(Ok(Answer { status: 304, .. })) => self.ok("etag", "unchanged keys are not sent again"),
                _ => self.warn("etag", "unchanged keys are sent again", next),
            },
        }
    }
}

/// The value of an option, or of a variable.
fn given(option: Option<&str>, name: &'static str) -> Result<Option<String>, Failure> {
    match option {
        Some(text) => Ok(Some(text.to_owned())),
        None => Ok(variable(name)?.map(|text| text.to_string())),
    }
}

/// One request without a key. With `etag`, it asks only for changed content.
fn get(transport: &Transport, address: &Address, etag: Option<&str>) -> Result<Answer, http::Error> {
    let request = transport.get(address.as_str())?;
    let request = etag.into_iter().fold(request, |request, etag| request.header("if-none-match", etag));
    let response = http::send(request, REQUEST_TIMEOUT)?;
    let (status, headers) = (response.status(), response.headers().clone());
    Ok(Answer { status, headers, body: response.bytes(MAX_BODY_BYTES)? })
}

/// What to do about a host that does not answer.
fn advice(error: &http::Error) -> &'static str {
    match error {
        e if e.is_unknown_host() => "check the name, and this machine's name resolution",
        e if e.is_timeout() => {
            "check firewalls, and whether a proxy is needed (HTTPS_PROXY): the host or its network does not answer"
        }
        e if e.is_untrusted() => {
            "check the certificate: to trust a root certificate of your own, set SSL_CERT_FILE to its file; is it TLS at all?"
        }
        _ => "check the address and the port, and that the service runs",
    }
}

fn print(lines: &[Line], output: &mut Output) {
    for Line { check, state, found, next } in lines {
        let (style, word) = match state {
            State::Ok => (GOOD, "ok"),
            State::Warn => (CAUTION, "warn"),
            State::Fail => (ERROR, "fail"),
        };
        output.line(check, format_args!("{style}{word:<6}{style:#}{}", printable(found)));
        if let Some(next) = next {
            output.line("", format_args!("      {DIM}{next}{DIM:#}"));
        }
    }
}
