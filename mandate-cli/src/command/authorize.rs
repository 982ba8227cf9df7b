//! `mandate authorize`: requests an authorization to spend.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::borrow::Cow;
use std::thread;
use std::time::{Duration, Instant};

use mandate_core::api_key::KeyClass;
use mandate_core::{Category, Currency, Recipient, Verdict};
use serde::Serialize;
use serde_json::value::RawValue;

use super::decision::DECISIONS;
use super::{Answer, unknown};
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::output::{Output, note, warn};
use crate::service::Change;
use crate::style::{CAUTION, ERROR, GOOD, printable};
use crate::value::amount_text;

/// Request authorization for a payment; an `allow` verdict includes a token for the counterparty
#[derive(Debug, clap::Args)]
#[command(after_help = AUTHORIZE_HELP)]
pub(crate) struct Authorize {
    /// The amount, an exact decimal
    #[arg(value_parser = amount_text, allow_negative_numbers = true)]
    pub(crate) amount: String,

    /// The currency, for example USD
    #[arg(value_parser = Currency::parse)]
    pub(crate) currency: Currency,

    /// The recipient, `vendor:<name>`
    #[arg(long, value_name = "VENDOR", value_parser = Recipient::parse)]
    pub(crate) to: Recipient,

    /// The spending category, such as software
    #[arg(long, value_name = "CATEGORY", value_parser = Category::parse)]
    pub(crate) category: Category,

    /// In observe mode, too, exit with 20 or 21 unless the verdict is `allow`
    #[arg(long)]
    pub(crate) strict: bool,

    /// If the verdict is `review`, wait until it is resolved, and show the new verdict and its token
    #[arg(long)]
    pub(crate) wait: bool,

    /// How long --wait waits, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, requires = "wait")]
    pub(crate) timeout: u64,

    #[command(flatten)]
    pub(crate) change: Change,
}

const AUTHORIZE_HELP: &str = "\
Examples:
  mandate authorize 40 USD --to vendor:acme --category software
  mandate authorize 40.50 USD --to vendor:acme --category software \\
      --jq .verdict_token
  mandate authorize 400 USD --to vendor:acme --category software --wait \\
      --timeout 600

Needs an agent key: a profile's, MANDATE_AGENT_KEY, MANDATE_AGENT_KEY_FILE or --key-file.

Exit codes:
  0 allow (in observe mode any verdict, unless --strict)    20 denied    21 review, or not resolved in time
  2 usage    30 to 38 no verdict; see docs/cli.md";

/// The pause between two requests for a review.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// The mode in which a verdict is only advice.
const OBSERVE: &str = "observe";

#[derive(Serialize)]
struct Body<'a> {
    amount: &'a RawValue,
    currency: &'a Currency,
    recipient: &'a Recipient,
    category: &'a Category,
}

impl Authorize {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let client = Client::for_change(&self.change, global, Some(KeyClass::Agent))?;
        client.confirm(&format!("spend {} {} at {}", self.amount, self.currency, self.to))?;
        let answer = client.post("/authorizations", Some(&body(self)?))?;
        let waits =
            self.wait && fields::text(&answer, "verdict").as_deref() == Some(Verdict::Review.as_str());
        if waits {
            let id = fields::text(&answer, "decision").ok_or_else(|| unknown("decision is required"));
            let id = id.map_err(|failure| client.with_idempotency_key(failure))?;
            if !output.is_json() {
                print(&answer, output).map_err(|failure| client.made(failure))?;
                note(format_args!("waiting for a person, for at most {} s", self.timeout));
            }
            let resolved = self.resolved(&client, &id, output);
            if let Some(exit) = resolved.map_err(|failure| decided(failure, &client, &id, &answer))? {
                return Ok(exit);
            }
        }
        if !waits || output.is_json() {
            print(&answer, output).map_err(|failure| client.made(failure))?;
        }
        client.note_if_lost(output);
        self.exit(&answer)
    }

    /// Waits until the review of the decision `id` is resolved, and shows the result. None if it was not
    /// resolved in time.
    fn resolved(&self, client: &Client, id: &str, output: &mut Output) -> Result<Option<Exit>, Failure> {
        let Some(resolved) = self.follow(client, id)? else { return Ok(None) };
        output.note_if_lost("next", made(id));
        DECISIONS.show(&resolved, output)?;
        self.exit(&resolved).map(Some)
    }

    /// Requests the decision `id` until its review is resolved. Returns the fresh decision, or the first one
    /// if there is none. None if it was not resolved in time. A failed request is repeated if that may help.
    fn follow(&self, client: &Client, id: &str) -> Result<Option<String>, Failure> {
        let deadline = Instant::now().checked_add(Duration::from_secs(self.timeout));
        let mut is_reported = false;
        loop {
            let looked = look(client, id);
            let is_over = deadline.is_none_or(|deadline| Instant::now() >= deadline);
            match looked {
                Ok(Some(resolved)) => return Ok(Some(resolved)),
                Ok(None) if is_over => {
                    warn("the review was not resolved in time; it stays pending, see mandate decision show");
                    return Ok(None);
                }
                Ok(None) => is_reported = false,
                Err(failure) if failure.can_pass() && !is_over => {
                    if !is_reported {
                        note(format_args!("{}; going on", failure.message()));
                    }
                    is_reported = true;
                }
                Err(failure) => return Err(failure),
            }
            thread::sleep(LOOK_PAUSE);
        }
    }

    /// The exit code for an authorization, or for the decision that followed its review.
    fn exit(&self, answer: &str) -> Result<Exit, Failure> {
        let verdict = fields::text(answer, "verdict").unwrap_or_default();
        let verdict = Verdict::parse(&verdict).map_err(|e| unknown(&e.to_string()))?;
        // If a review was denied or has expired, its decision keeps the verdict.
        let exit = match fields::text(answer, "review.status").as_deref() {
            Some("denied" | "expired") => Exit::Denied,
            _ => exit_of(verdict),
        };
        let observed = fields::text(answer, "mode").as_deref() == Some(OBSERVE);
        if exit != Exit::Success && observed && !self.strict {
            warn(format_args!(
                "{verdict}, but in observe mode nothing blocks; with --strict this would be exit code {}",
                exit as u8
            ));
            return Ok(Exit::Success);
        }
        Ok(exit)
    }
}

/// The decision `id` once its review is resolved, or the fresh decision. None while the review is pending.
fn look(client: &Client, id: &str) -> Result<Option<String>, Failure> {
    let decision = client.get(&format!("/decisions/{id}"), &[])?;
    match fields::text(&decision, "review.status").as_deref() {
        Some("pending") => Ok(None),
        Some("approved") => {
            let fresh = fields::text(&decision, "review.decision");
            let fresh = fresh.ok_or_else(|| unknown("review.decision is required"))?;
            client.get(&format!("/decisions/{fresh}"), &[]).map(Some)
        }
        _ => Ok(Some(decision)),
    }
}

/// A failure after the decision was made: adds its id and how to see it. Another request would be another
/// decision.
fn decided(failure: Failure, client: &Client, id: &str, answer: &str) -> Failure {
    let mut failure = failure.unadvised().note("decision", id);
    if let Some(review) = fields::text(answer, "review.id") {
        failure = failure.note("review", review);
    }
    client.with_idempotency_key(failure).next(made(id))
}

fn made(id: &str) -> String {
    format!("the decision is made: mandate decision show {id}")
}

/// The exit code of a verdict.
pub(super) fn exit_of(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Allow => Exit::Success,
        Verdict::Review => Exit::Review,
        _ => Exit::Denied,
    }
}

/// The body of the request. The amount is sent as it was typed.
fn body(args: &Authorize) -> Result<String, Failure> {
    let unsendable = |e: serde_json::Error| Failure::new(Exit::Usage, e.to_string());
    let amount = RawValue::from_string(args.amount.clone()).map_err(unsendable)?;
    let Authorize { currency, to: recipient, category, .. } = args;
    serde_json::to_string(&Body { amount: &amount, currency, recipient, category }).map_err(unsendable)
}

/// Prints the service's answer. Returns verdict and mode.
pub(super) fn print<'a>(answer: &'a str, output: &mut Output) -> Result<(Verdict, Cow<'a, str>), Failure> {
    let mut authorization = Answer::read(answer)?;
    let verdict = Verdict::parse(&authorization.text("verdict")?).map_err(|e| unknown(&e.to_string()))?;
    let mode = authorization.text("mode")?;
    let decision = authorization.optional("decision")?;
    if let Some(decision) = &decision {
        output.note_if_lost("decision", decision);
    }
    if output.is_json() {
        output.body(answer)?;
        return Ok((verdict, mode));
    }
    let style = match verdict {
        Verdict::Allow => GOOD,
        Verdict::Review => CAUTION,
        _ => ERROR,
    };
    output.line("verdict", format_args!("{style}{verdict}{style:#}"));
    authorization.show("reason", "reason", output)?;
    if let Some(decision) = decision {
        output.line("decision", printable(&decision));
    }
    output.line("mode", printable(&mode));
    if let Some(mut review) = authorization.object("review")? {
        for (label, name) in [("review", "id"), ("waits for", "waits_for"), ("expires", "expires_at")] {
            review.show(label, name, output)?;
        }
    }
    authorization.show("token", "verdict_token", output)?;
    Ok((verdict, mode))
}
