//! `mandate authorize`: ask whether money may be spent.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::borrow::Cow;

use mandate_core::api_key::KeyClass;
use mandate_core::{Category, Currency, Recipient, Verdict};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Answer, unknown};
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::output::{CAUTION, ERROR, GOOD, Output, printable, warn};
use crate::service::Service;
use crate::value::amount_text;

/// Ask whether money may be spent; a verdict of `allow` comes with a token for the counterparty
#[derive(Debug, clap::Args)]
#[command(after_help = AUTHORIZE_HELP)]
pub(crate) struct Authorize {
    /// How much, an exact decimal
    #[arg(value_parser = amount_text, allow_negative_numbers = true)]
    pub(crate) amount: String,

    /// The currency, for example USD
    #[arg(value_parser = Currency::parse)]
    pub(crate) currency: Currency,

    /// Who is to be paid, `vendor:<name>`
    #[arg(long, value_name = "VENDOR", value_parser = Recipient::parse)]
    pub(crate) to: Recipient,

    /// What the money is for
    #[arg(long, value_name = "CATEGORY", value_parser = Category::parse)]
    pub(crate) category: Category,

    /// In observe mode, too, let a verdict other than `allow` decide the exit code
    #[arg(long)]
    pub(crate) strict: bool,

    #[command(flatten)]
    pub(crate) service: Service,
}

const AUTHORIZE_HELP: &str = "\
Examples:
  mandate authorize 40 USD --to vendor:acme --category software
  mandate authorize 40.50 USD --to vendor:acme --category software --json | jq -r .verdict_token

Needs an agent key: MANDATE_AGENT_KEY, MANDATE_AGENT_KEY_FILE or --key-file.

Exit codes:
  0 allow (in observe mode any verdict, unless --strict)    20 denied    21 review
  2 usage    30 to 38 no verdict; see docs/cli.md";

/// The mode in which a verdict is advice.
const OBSERVE: &str = "observe";

#[derive(Serialize)]
struct Body<'a> {
    amount: &'a RawValue,
    currency: &'a Currency,
    recipient: &'a Recipient,
    category: &'a Category,
}

pub(super) fn run(args: &Authorize, output: &mut Output) -> Result<Exit, Failure> {
    let client = Client::new(&args.service, KeyClass::Agent)?;
    let answer = client.post("/authorizations", Some(&body(args)?))?;
    let (verdict, mode) = tell(&answer, output).map_err(|failure| client.told(failure))?;
    client.note_if_lost(output);
    let exit = match verdict {
        Verdict::Allow => Exit::Success,
        Verdict::Review => Exit::Review,
        _ => Exit::Denied,
    };
    if exit != Exit::Success && mode == OBSERVE && !args.strict {
        warn(format_args!(
            "{verdict}, but in observe mode nothing blocks; with --strict this would be exit code {}",
            exit as u8
        ));
        return Ok(Exit::Success);
    }
    Ok(exit)
}

/// The request. The amount goes out as the text that was typed.
fn body(args: &Authorize) -> Result<String, Failure> {
    let unsendable = |e: serde_json::Error| Failure::new(Exit::Usage, e.to_string());
    let amount = RawValue::from_string(args.amount.clone()).map_err(unsendable)?;
    let Authorize { currency, to: recipient, category, .. } = args;
    serde_json::to_string(&Body { amount: &amount, currency, recipient, category }).map_err(unsendable)
}

/// Says what the service answered; gives verdict and mode.
fn tell<'a>(answer: &'a str, output: &mut Output) -> Result<(Verdict, Cow<'a, str>), Failure> {
    let mut authorization = Answer::read(answer)?;
    let verdict = Verdict::parse(&authorization.text("verdict")?).map_err(|e| unknown(&e.to_string()))?;
    let mode = authorization.text("mode")?;
    let decision = authorization.optional("decision")?;
    if let Some(decision) = &decision {
        output.note_if_lost("decision", decision);
    }
    if output.is_json() {
        output.body(answer);
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
