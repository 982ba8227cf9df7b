//! `mandate open`: the pages of a service, in the browser.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::ffi::OsStr;
use std::io::{IsTerminal as _, stdout};
use std::process::{Command, Stdio};

use clap_complete::engine::CompletionCandidate;
use mandate_core::EscrowId;
use serde::Serialize;

use crate::client::Client;
use crate::environment::variable;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::http::Address;
use crate::key_set::in_use;
use crate::named::{Given, completed_beside, given, to_read};
use crate::output::{Output, note};
use crate::service::Service;

/// What opens an address on this system, where BROWSER names nothing.
#[cfg(target_os = "macos")]
const BROWSER: &str = "open";
/// What opens an address on this system, where BROWSER names nothing.
#[cfg(not(target_os = "macos"))]
const BROWSER: &str = "xdg-open";
/// The pages of the issuer's host that have a name here.
const PAGES: [(&str, &str); 5] = [
    ("home", "/"),
    ("reference", "/reference"),
    ("contract", "/openapi.yaml"),
    ("verify", "/verify"),
    ("console", "/console"),
];
const LOG: &str = "log";

/// Open a page of the service in the browser: its API reference, its contract, an escrow's contract
///
/// On a terminal the browser is started: the one that BROWSER names, or the system's. The address is printed, too;
/// elsewhere only that.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate open
  mandate open verify --issuer https://verdicts.example.com
  mandate open esc_01hf7yat000000000000000007
  curl -sS \"$(mandate open contract --print)\"

Pages: home, reference (of the API), contract (OpenAPI), verify (a page that verifies tokens), console \
(where people answer reviews), log (the public log); or an escrow, by its id, whose public contract is opened.")]
pub(crate) struct Open {
    /// The page, or an escrow's id
    #[arg(default_value = "reference", value_parser = page, value_name = "PAGE|ESCROW", add = completed_beside::<EscrowId>(pages))]
    page: Page,
    /// Print the address, and start no browser
    #[arg(long)]
    print: bool,
    /// The issuer, whose host has the pages [env: MANDATE_ISSUER; default: from the profile]
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    #[command(flatten)]
    service: Service,
}

/// What is opened.
#[derive(Debug, Clone)]
enum Page {
    At(&'static str),
    Log,
    Escrow(Given<EscrowId>),
}

/// The names of the pages.
fn names() -> impl Iterator<Item = &'static str> {
    PAGES.iter().map(|(name, _)| *name).chain([LOG])
}

/// What a shell offers, but for escrows.
fn pages(word: &OsStr) -> Vec<CompletionCandidate> {
    let word = word.to_string_lossy();
    names().filter(|name| name.starts_with(&*word)).map(CompletionCandidate::new).collect()
}

fn page(text: &str) -> Result<Page, String> {
    if let Some((_, path)) = PAGES.iter().find(|(name, _)| *name == text) {
        return Ok(Page::At(path));
    }
    if text == LOG {
        return Ok(Page::Log);
    }
    given(text).map(Page::Escrow).map_err(|_| {
        format!("must be {}, or an escrow's id, esc_...", names().collect::<Vec<_>>().join(", "))
    })
}

#[derive(Debug, Serialize)]
struct Opened {
    url: String,
}

impl Open {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let issuer = in_use(self.issuer.as_deref(), global)?.ok_or_else(|| {
            Failure::new(Exit::Usage, "the issuer, whose host has the pages, is not known")
                .next("mandate login; or pass --issuer URL, or set MANDATE_ISSUER")
        })?;
        let issuer: Address = issuer
            .parse()
            .map_err(|why| Failure::new(Exit::Usage, format!("the issuer `{issuer}` is refused: {why}")))?;
        let path = match &self.page {
            Page::At(path) => (*path).to_owned(),
            Page::Log => "/log".to_owned(),
            Page::Escrow(escrow) => self.contract(escrow, global)?,
        };
        let url = issuer.join(&path).to_string();
        let starts = !self.print && stdout().is_terminal() && !output.is_json();
        if output.is_json() {
            output.json(&Opened { url })?;
            return Ok(Exit::Success);
        }
        output.text(&format!("{url}\n"));
        if starts && !start(&url) {
            note("no browser could be started; set BROWSER to one, or open the address yourself");
        }
        Ok(Exit::Success)
    }

    /// The path of an escrow's public contract.
    fn contract(&self, escrow: &Given<EscrowId>, global: &Global) -> Result<String, Failure> {
        let client = Client::new(&self.service, global, None)?;
        let id = to_read(Some(escrow), &client)?;
        let shown = client.get(&format!("/escrows/{id}"), &[])?;
        let address =
            fields::text(&shown, "contract").filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        let address = address.ok_or_else(|| {
            Failure::new(Exit::UnknownAnswer, "the service's answer is not understood: contract is required")
        })?;
        Ok(format!("/contracts/{address}"))
    }
}

/// Starts the browser, and does not wait for it. False if it cannot be started.
fn start(url: &str) -> bool {
    let named = variable("BROWSER").ok().flatten().map(|name| name.to_string());
    let command = named.unwrap_or_else(|| BROWSER.to_owned());
    let mut words = command.split_ascii_whitespace();
    let Some(program) = words.next() else { return false };
    let mut browser = Command::new(program);
    browser.args(words).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // What ends this terminal's programs does not end the browser.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut browser, 0);
    browser.spawn().is_ok()
}
