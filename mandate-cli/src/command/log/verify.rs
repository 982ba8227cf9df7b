//! `mandate log verify`: checks evidence, whatever the time.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use mandate_core::Timestamp;
use serde_json::json;

use crate::command::verify::SANDBOX;
use crate::exit::{Exit, Failure};
use crate::input::Source;
use crate::output::Output;
use crate::public_log::evidence::{Evidence, MAX_BYTES, Shown};
use crate::public_log::place::Place;
use crate::public_log::proof::{Unproved, witnesses};
use crate::public_log::trust::TrustArgs;
use crate::style::{CAUTION, ERROR, GOOD, printable};
use crate::value::source;

/// Check evidence that `mandate log evidence` has kept, however long ago
///
/// No clock and no network is used. The signing key is taken from its own entry of the log, whose proof is in the file; the
/// log's key and the witnesses' are yours. It shows that the issuer signed this verdict and that the log has it. It does not
/// say that the verdict is still good: a verdict is good for five minutes, and only `mandate verify` says so.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate log verify order-7.evidence --log-key @log.key
  mandate log verify order-7.evidence --log-key @log.key \\
      --policy witnesses.policy --json

Exit codes:
  0 proved    51 not proved; the line says which check failed    50 the checkpoint is older than the entry
  2 usage    3 file cannot be read")]
pub(crate) struct VerifyEvidence {
    /// The evidence, or `-` for standard input
    #[arg(value_name = "FILE|-", value_parser = source)]
    file: Source,
    /// The issuer that the token must name [default: the one whose log it is]
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    #[command(flatten)]
    trust: TrustArgs,
}

impl VerifyEvidence {
    pub(super) fn run(&self, output: &mut Output) -> Result<Exit, Failure> {
        let text = self.file.read("the evidence", MAX_BYTES, Exit::NotProved)?;
        let evidence = Evidence::read(&text)
            .map_err(|e| Failure::new(Exit::NotProved, format!("{} is no evidence: {e}", self.file)))?;
        let trust = self.trust.known(&Place::Folder(".".into()))?.ok_or_else(|| {
            Failure::new(Exit::Usage, "the log's key is not known")
                .next("pass --log-key KEY, the key that you have kept apart from the evidence")
        })?;
        match evidence.check(self.issuer.as_deref(), &trust) {
            Ok(shown) => proved(&shown, output).map(|()| Exit::Success),
            Err(unproved) => refused(&unproved, output),
        }
    }
}

fn proved(shown: &Shown, output: &mut Output) -> Result<(), Failure> {
    let Shown { verdict, key, published, logged } = shown;
    let claims = verdict.claims();
    let (iat, checkpoint) = (Timestamp::from_seconds(claims.iat), &logged.accepted.checkpoint);
    if output.is_json() {
        let cosigned = logged.accepted.cosigned.iter();
        let cosigned = cosigned.map(|(name, cosigned)| json!({"witness": name, "at": Timestamp::from_seconds(cosigned.seconds).to_string()}));
        return output.json(&json!({
            "proved": true, "claims": serde_json::value::RawValue::from_string(claims.to_json()).ok(),
            "log": checkpoint.origin(), "index": logged.index, "size": checkpoint.size(),
            "cosigned": cosigned.collect::<Vec<_>>(),
            "key": {"kid": key.kid.as_str(), "change": key.change.as_str(), "at": key.at.to_string(), "index": published.index},
        }));
    }
    output.line("issuer", printable(&claims.iss));
    if key.kid.is_sandbox() {
        output.line("environment", format_args!("{CAUTION}{SANDBOX}{CAUTION:#}"));
    } else {
        output.line("environment", "production");
    }
    output.line("decision", claims.jti);
    output.line("issued_at", iat);
    output.field("verdict", claims.verdict.as_str(), true);
    let request = &claims.request;
    output.line("amount", format_args!("{} {}", request.amount, request.currency));
    output.line("recipient", printable(&request.recipient.to_string()));
    output.line("agent", &request.agent);
    output.line(
        "key",
        format_args!("{}, {} {}, entry {}", key.kid, key.change.as_str(), key.at, published.index),
    );
    output.line("log", printable(checkpoint.origin()));
    output.line("entry", format_args!("{} of {}", logged.index, checkpoint.size()));
    output.line("witnesses", printable(&witnesses(&logged.accepted)));
    output.text(&format!(
        "{GOOD}PROVED{GOOD:#}: the issuer signed this verdict, and the log has it; it is no answer to whether the verdict is still good\n"
    ));
    Ok(())
}

fn refused(unproved: &Unproved, output: &mut Output) -> Result<Exit, Failure> {
    let (refused, exit) = (unproved.refused(), unproved.exit());
    if output.is_json() {
        output.json(&json!({
            "proved": false,
            "error": {"check": refused.check, "message": refused.to_string(), "exit_code": exit as u8},
        }))?;
    } else {
        output.line(refused.check, format_args!("{ERROR}{}{ERROR:#}", printable(&refused.to_string())));
        output.text(&format!("{ERROR}NOT PROVED{ERROR:#} ({})\n", refused.check));
    }
    Ok(exit)
}
