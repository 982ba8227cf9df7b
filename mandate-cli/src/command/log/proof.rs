//! `mandate log proof`: fetches the proof that a token's decision is in the log.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::path::PathBuf;

use mandate_core::log::token_hash;
use serde_json::json;

use crate::command::token;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::output::{Output, warn};
use crate::public_log::place::{LogArgs, Place};
use crate::public_log::proof::{self, Proved};
use crate::public_log::source::Source;
use crate::public_log::trust::{Trust, TrustArgs};
use crate::style::printable;

/// For how many seconds a token may be missing from the log before the service has broken its promise.
pub(crate) const PROMISED_SECONDS: i64 = 24 * 3600;

/// Fetch the proof that a token's decision is in the public log
///
/// The proof is a C2SP `tlog-proof`: anyone can check it, with the log's key and nothing else, as often and as late as they
/// like. It is checked before it is written. What the log is asked for is the hash of the token without its signature; the
/// token stays here. An entry is appended within seconds: a token that is younger is not in the log yet.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate log proof \"$TOKEN\" --issuer https://verdicts.example.com \\
      -o order-7.tlog-proof
  mandate verify \"$TOKEN\" --issuer https://verdicts.example.com --amount 40 \\
      --currency USD --recipient vendor:acme --nonce-store nonces.db \\
      --proof order-7.tlog-proof

Exit codes:
  0 proved    10 malformed token    50 not in the log yet    51 the proof does not hold    2 usage
  36, 37 log not reachable    3 file cannot be written")]
pub(crate) struct Proof {
    /// The token, `@FILE` to read it from a file, or `-` for standard input
    #[arg(value_name = "TOKEN|@FILE|-")]
    token: String,
    /// Write the proof to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    trust: TrustArgs,
}

impl Proof {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let token = token(&self.token)?;
        let place = self.log.place(Some(proof::kind(&token)?), global)?;
        let source = Source::new(place)?;
        let trust = trust(&self.trust, &source)?;
        let (bytes, Proved { index, accepted }) = fetch(&token, &source, &trust)?;
        let text = String::from_utf8_lossy(&bytes);
        if let Some(path) = &self.output {
            super::write(path, &bytes)?;
        }
        let checkpoint = &accepted.checkpoint;
        if output.is_json() {
            output.json(&json!({
                "log": checkpoint.origin(), "index": index, "size": checkpoint.size(), "proof": text,
                "witnesses": accepted.cosigned.keys().collect::<Vec<_>>(),
            }))?;
        } else if let Some(path) = &self.output {
            output.line("log", printable(checkpoint.origin()));
            output.line("entry", format_args!("{index} of {}", checkpoint.size()));
            output.line("witnesses", printable(&proof::witnesses(&accepted)));
            output.line("proof", path.display());
        } else {
            output.text(&text);
        }
        Ok(Exit::Success)
    }
}

/// By which key the log is trusted: a pinned or named one, or, with a warning, the one that it publishes.
pub(super) fn trust(args: &TrustArgs, source: &Source) -> Result<Trust, Failure> {
    if let Some(trust) = args.known(source.place())? {
        return Ok(trust);
    }
    let key = source.key()?;
    warn(format_args!(
        "the log's key is not pinned: the proof is checked under the key that the log shows now; mandate log key pin --log {} keeps it",
        source.place()
    ));
    Ok(Trust { key: Some(key), policy: args.policy()? })
}

/// Fetches and checks the proof of a token.
pub(super) fn fetch(token: &str, source: &Source, trust: &Trust) -> Result<(Vec<u8>, Proved), Failure> {
    let hash = token_hash(token).ok_or_else(|| {
        Failure::new(Exit::MalformedToken, "the token must have three parts with full stops between them")
    })?;
    if let Place::Folder(folder) = source.place() {
        return Err(Failure::new(
            Exit::Usage,
            format!("{} has no proofs: it is a copy of tiles", folder.display()),
        )
        .next("pass the log's address with --log URL"));
    }
    let Some(bytes) = source.proof(&hash)? else { return Err(missing(token)) };
    match proof::check(token, &bytes, trust) {
        Ok(proved) => Ok((bytes, proved)),
        Err(unproved) => {
            let failure = unproved.refused().of("the log's proof").of_kind(unproved.exit());
            Err(match unproved.refused().check {
                "quorum" => {
                    failure.next("witnesses that have not cosigned yet may do so in a few seconds: ask again")
                }
                _ => failure,
            })
        }
    }
}

fn missing(token: &str) -> Failure {
    let issued = proof::issued_at(token);
    let age = issued.map(|issued| environment::now().seconds().saturating_sub(issued.seconds()));
    let failure = Failure::new(Exit::NotLogged, "the token is not in the log yet");
    match age.filter(|age| *age > PROMISED_SECONDS) {
        Some(_) => failure.next(
            "it is older than a day, within which the service promises the entry: the token, and a checkpoint that a witness cosigned more than a day after it, show that the promise is broken",
        ),
        None => failure.next("ask again in a few seconds"),
    }
}
