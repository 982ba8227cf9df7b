//! An HTTP client, and what it was answered.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use regex::{Captures, Regex};
use serde_json::Value;
use ureq::http::{HeaderMap, Request};

use super::server::DEADLINE;

/// The longest answer that is read, in bytes: exports are the longest.
const MAX_ANSWER: u64 = 1 << 30;

/// A sender of requests, with a key or without.
#[derive(Clone)]
pub(crate) struct Client {
    agent: ureq::Agent,
    url: String,
    key: Option<String>,
    /// The servers that do the same, if there are several.
    alike: Arc<[String]>,
}

/// One answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn new(url: &str, key: Option<&str>) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(DEADLINE))
            .allow_non_standard_methods(true)
            .proxy(None);
        Self {
            agent: config.build().new_agent(),
            url: url.to_owned(),
            key: key.map(str::to_owned),
            alike: Arc::new([]),
        }
    }

    /// A client of several servers that do the same: it talks to one of them, and [`Self::apart`] to the next.
    pub(crate) fn of_all(urls: &[String], key: &str) -> Self {
        Self { alike: urls.into(), ..Self::new(&urls[0], Some(key)) }
    }

    /// The same, over connections of its own, and to the next of several servers.
    pub(crate) fn apart(&self) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed).checked_rem(self.alike.len());
        let url = next.map_or(&self.url, |next| &self.alike[next]);
        Self { alike: Arc::clone(&self.alike), ..Self::new(url, self.key.as_deref()) }
    }

    /// The same with another key.
    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self { alike: Arc::clone(&self.alike), ..Self::new(&self.url, Some(key)) }
    }

    pub(crate) fn key(&self) -> &str {
        self.key.as_deref().unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").unwrap()
    }

    /// All decisions of the caller, newest first, page by page. It waits where its rate is used up.
    pub(crate) fn decisions(&self) -> Vec<Value> {
        let mut path = "/decisions?limit=100".to_owned();
        let mut found = Vec::new();
        loop {
            let mut page = admitted(|| self.send("GET", &path, &[], "")).unwrap().json();
            found.append(page["data"].as_array_mut().unwrap());
            let Some(cursor) = page["next_cursor"].as_str() else { return found };
            path = format!("/decisions?limit=100&cursor={cursor}");
        }
    }

    /// Posts JSON.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_text(path, &body.to_string())
    }

    /// Posts a text as JSON.
    pub(crate) fn post_text(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], body).unwrap()
    }

    /// Posts without a body.
    pub(crate) fn act(&self, path: &str) -> Answer {
        self.send("POST", path, &[], "").unwrap()
    }

    /// Posts JSON, or nothing for null, under an Idempotency-Key; an error when no answer came.
    pub(crate) fn post_once(&self, key: &str, path: &str, body: &Value) -> Result<Answer, ureq::Error> {
        if body.is_null() {
            return self.send("POST", path, &[("idempotency-key", key)], "");
        }
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        self.send("POST", path, &headers, &body.to_string())
    }

    /// Sends a request.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<Answer, ureq::Error> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = if body.is_empty() {
            self.agent.run(request.body(()).unwrap())
        } else {
            self.agent.run(request.body(body).unwrap())
        };
        let (head, mut body) = answer?.into_parts();
        let body = body.with_config().limit(MAX_ANSWER).read_to_string()?;
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }
}

/// The answer to what is asked, once the rate of its key admits it.
pub(crate) fn admitted<E>(ask: impl Fn() -> Result<Answer, E>) -> Result<Answer, E> {
    loop {
        let answer = ask()?;
        if answer.status != 429 {
            return Ok(answer);
        }
        thread::sleep(Duration::from_secs(answer.header("retry-after").unwrap().parse().unwrap()));
    }
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The text at a JSON pointer.
    #[track_caller]
    pub(crate) fn text(&self, pointer: &str) -> String {
        let text = self.json().pointer(pointer).and_then(|value| value.as_str().map(str::to_owned));
        text.unwrap_or_else(|| panic!("{pointer} is not a text in {self:?}"))
    }

    /// The header, which must be there exactly once.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().map(|value| value.to_str().unwrap());
        assert!(values.next().is_none(), "{name} is there twice in {self:?}");
        value
    }

    /// Asserts the status, the headers of every JSON answer, and the body byte for byte, what differs from run to run masked.
    #[track_caller]
    pub(crate) fn is(self, status: u16, body: &str) -> Self {
        assert_eq!((self.status, masked(&self.body).as_str()), (status, body));
        self.checked()
    }

    /// Asserts a refusal, whole.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str, message: &str) -> Self {
        let error = serde_json::json!({ "code": code, "message": message, "request_id": self.header("x-request-id") });
        assert_eq!((self.status, self.json()), (status, serde_json::json!({ "error": error })));
        self.checked()
    }

    #[track_caller]
    fn checked(self) -> Self {
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert_eq!(masked(self.header("x-request-id").unwrap()), "req_*");
        self
    }
}

/// The text with a mask over what differs from run to run: tokens, ids, keys, times.
pub(crate) fn masked(text: &str) -> String {
    const MASKS: &str = concat!(
        r"(?<token>eyJ[\w-]+\.[\w-]+\.[\w-]+)",
        r"|(?<id>(?:dec|mnd|rev|req|evt|whk|esc|exp|n)_)[0-9a-hjkmnp-tv-z]{26}",
        r"|(?<key>[sa]k_(?:sandbox|live)_)[0-9A-Za-z]{49}",
        r"|(?<by>key_)[0-9a-f]{12}\b",
        r"|(?<cursor>cur_)[\w.-]+",
        r"|(?<policy>pol_)\d{4}-\d\d-\d\d",
        r"|(?<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)",
        r#"|(?<seconds>"(?:iat|exp)":)\d{10}"#,
        r"|(?<host>http://(?:127.0.0.1|localhost):)\d+",
        r"|(?<link>/enrol#)[\w-]{43}",
    );
    static REGEX: LazyLock<Regex> = LazyLock::new(|| Regex::new(MASKS).unwrap());
    let mask = |found: &Captures<'_>| {
        let kept = ["id", "key", "by", "cursor", "policy", "seconds", "host", "link"]
            .into_iter()
            .find_map(|name| found.name(name));
        let token = found.name("token").map(|_| "JWT");
        token
            .or(found.name("time").map(|_| "TIME"))
            .map_or_else(|| format!("{}*", kept.unwrap().as_str()), str::to_owned)
    };
    REGEX.replace_all(text, mask).into_owned()
}
