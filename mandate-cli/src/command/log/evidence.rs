//! `mandate log evidence`: a token, the key that signed it, and the proofs of both, in one file.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::path::PathBuf;

use mandate_core::jwks::Kid;
use mandate_core::jwt::Unverified;
use mandate_core::log::{Checkpoint, Entry, KeyChange, LogProof, SignedCheckpoint};
use serde_json::json;

use super::proof::{fetch, trust};
use crate::command::token;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::output::Output;
use crate::public_log::entries::Entries;
use crate::public_log::evidence::Evidence;
use crate::public_log::place::LogArgs;
use crate::public_log::proof;
use crate::public_log::source::Source;
use crate::public_log::trust::{Trust, TrustArgs};
use crate::style::printable;

/// Keep a token as evidence: with its proof, its signing key and the key's proof, in one file
///
/// Key sets change, and an issuer may be gone in ten years. The file holds all that `mandate log verify` needs but the log's
/// key and the witnesses', which you keep apart from it. The entry of the signing key is looked up in the log's list of key
/// entries, or, where the log has none, by reading the log from its beginning.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate log evidence \"$TOKEN\" --issuer https://verdicts.example.com \\
      -o order-7.evidence
  mandate log verify order-7.evidence --log-key @log.key

Exit codes:
  0 written    10 malformed token    50 not in the log yet    51 a proof does not hold    2 usage
  36, 37 log not reachable    3 file cannot be written")]
pub(crate) struct MakeEvidence {
    /// The token, `@FILE` to read it from a file, or `-` for standard input
    #[arg(value_name = "TOKEN|@FILE|-")]
    token: String,
    /// Write the evidence to this file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    trust: TrustArgs,
}

impl MakeEvidence {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let token = token(&self.token)?;
        let unverified = Unverified::parse(&token)
            .map_err(|e| Failure::new(Exit::MalformedToken, format!("the token is refused: {e}")))?;
        let source = Source::new(self.log.place(Some(proof::kind(&token)?), global)?)?;
        let trust = trust(&self.trust, &source)?;
        let (bytes, proved) = fetch(&token, &source, &trust)?;
        // The token may be in an older log, which stays where it was.
        let source = Source::new(source.place().of_origin(proved.accepted.checkpoint.origin())?)?;
        let (index, entry, key_proof) =
            key_entry(unverified.kid(), &bytes, &proved.accepted.checkpoint, &source, &trust)?;
        let evidence = Evidence::new(&token, &bytes, &entry, &key_proof);
        // What is written is what `log verify` accepts.
        let issuer = self.log.issuer.as_deref();
        if let Err(unproved) = evidence.check(issuer, &trust) {
            return Err(unproved.refused().of("the evidence").of_kind(unproved.exit()));
        }
        super::write(&self.output, evidence.text().as_bytes())?;
        if output.is_json() {
            output.json(&json!({
                "evidence": self.output.display().to_string(), "log": proved.accepted.checkpoint.origin(),
                "index": proved.index, "key_index": index,
            }))?;
        } else {
            output.line("log", printable(proved.accepted.checkpoint.origin()));
            output.line("entry", proved.index);
            output.line("key", format_args!("{}, entry {index}", unverified.kid()));
            output.line("evidence", self.output.display());
        }
        Ok(Exit::Success)
    }
}

/// The entry that published the key, with its proof: under the checkpoint of the token's proof, or the newest one if the key's
/// entry came behind it.
fn key_entry(
    kid: &Kid,
    proof: &[u8],
    checkpoint: &Checkpoint,
    source: &Source,
    trust: &Trust,
) -> Result<(u64, Vec<u8>, LogProof), Failure> {
    let proof = LogProof::parse(proof).map_err(|e| Failure::new(Exit::NotProved, e.to_string()))?;
    let entries = Entries { source, checkpoint };
    if let Some(found) = find(kid, entries, &proof.checkpoint)? {
        return Ok(found);
    }
    let (signed, accepted) = trust.read(&source.checkpoint()?).map_err(|e| e.of("the log's checkpoint"))?;
    let newest = Entries { source, checkpoint: &accepted.checkpoint };
    find(kid, newest, &signed)?.ok_or_else(|| {
        Failure::new(Exit::NotProved, format!("the log has no entry that publishes the signing key {kid}"))
            .next("keep the issuer's key set instead, and ask the operator why the key is not in the log")
    })
}

fn find(
    kid: &Kid,
    entries: Entries<'_>,
    signed: &SignedCheckpoint,
) -> Result<Option<(u64, Vec<u8>, LogProof)>, Failure> {
    let publishes = |bytes: &[u8]| match Entry::parse(bytes) {
        Ok(Entry::Key(event)) => event.kid == *kid && event.change == KeyChange::Published,
        _ => false,
    };
    let listed = entries.source.key_list()?;
    let mut places = listed.map(|list| listed_places(&list, kid)).unwrap_or_default();
    if places.is_empty() {
        entries.scan(0, |index, bytes| {
            if publishes(bytes) {
                places.push(index);
            }
            Ok(())
        })?;
    }
    for index in places.into_iter().filter(|index| *index < entries.checkpoint.size()) {
        let (bytes, hashes) = entries.entry(index)?;
        if publishes(&bytes) {
            let proof = LogProof { extra: None, index, hashes, checkpoint: signed.clone() };
            return Ok(Some((index, bytes, proof)));
        }
    }
    Ok(None)
}

/// Where the list says that entries of this key are. It is a hint: each entry is proved.
fn listed_places(list: &[u8], kid: &Kid) -> Vec<u64> {
    let lines = String::from_utf8_lossy(list).into_owned();
    let of = |line: &str| line.split_once(' ').filter(|(_, name)| *name == kid.as_str())?.0.parse().ok();
    lines.lines().filter_map(of).collect()
}
