//! `healthcheck`: asks whether a server is ready, for containers and scripts without an HTTP client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;

use super::{Failure, terminal};
use crate::config::{Flags, Settings};

/// How long the server may take to answer, in seconds. The server gives its database one second.
const ANSWER_SECONDS: u64 = 3;
/// The path on the ops listener that reports readiness.
const READY_PATH: &str = "/readyz";

/// Whether a server is ready.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// The URL of the ops listener [default: from the settings]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Box<Flags>,
}

pub(super) const HELP: &str = "\
Examples:
  mandate-server healthcheck
  mandate-server healthcheck --url http://127.0.0.1:9090
  HEALTHCHECK CMD [\"mandate-server\", \"healthcheck\"]   # in a Containerfile

Requests /readyz on the ops listener. Exits with 0 and no output if the server is ready, with 1 otherwise. \
With --json it prints {\"ready\":true,\"url\":…}, or false and the problem.";

#[derive(Serialize)]
struct View<'a> {
    ready: bool,
    url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

impl Options {
    /// Asks the server.
    ///
    /// # Errors
    /// The server is not ready, or does not answer.
    pub fn run(self) -> Result<(), Failure> {
        let url = match self.url {
            Some(url) => url,
            None => of_listener(Settings::load(&self.flags).map_err(Failure::unusable)?.ops_address),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let asked = runtime.map_err(Failure::failed)?.block_on(ask(&url));
        if self.json {
            let problem = asked.as_ref().err().map(String::as_str);
            terminal::print(true, &View { ready: asked.is_ok(), url: &url, problem }, |_| Ok(()))?;
        }
        asked.map_err(Failure::failed)
    }
}

/// The URL of a listener on this machine. One that listens on all addresses is reached over loopback.
fn of_listener(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("http://{address}")
}

async fn ask(url: &str) -> Result<(), String> {
    let limit = Duration::from_secs(ANSWER_SECONDS);
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let client = client.timeout(limit).build().map_err(|e| e.to_string())?;
    let url = format!("{}{READY_PATH}", url.trim_end_matches('/'));
    let silent = |e: reqwest::Error| format!("{url} does not answer: {}", cause(&e));
    let answer = client.get(&url).send().await.map_err(silent)?;
    match answer.status() {
        reqwest::StatusCode::OK => Ok(()),
        status => Err(format!("{url} answers {status}")),
    }
}

/// The innermost error: the one that helps a person.
fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_address_is_asked_over_loopback() {
        for (listener, url) in [
            ("0.0.0.0:9090", "http://127.0.0.1:9090"),
            ("[::]:9090", "http://[::1]:9090"),
            ("10.1.2.3:80", "http://10.1.2.3:80"),
        ] {
            assert_eq!(of_listener(listener.parse().unwrap()), url);
        }
    }
}
