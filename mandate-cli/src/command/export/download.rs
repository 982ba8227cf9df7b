//! `mandate export download`: waits until the export is ready, goes on where a download has stopped, and believes nothing unverified.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mandate_core::ExportId;
use mandate_core::api_key::KeyClass;
use mandate_core::json::Object;
use mandate_core::jwt::Unverified;
use sha2::{Digest as _, Sha256};

use super::EXPORTS;
use crate::args::Global;
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::key_set::Issuer;
use crate::output::{Output, warn};
use crate::service::Service;

/// Between two looks at an export that is being built.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Read at a time, in bytes.
const PIECE: usize = 64 * 1024;
/// The last line is not longer than this.
const MAX_TRAILER_BYTES: u64 = 16 * 1024;

/// Download an export once it is ready, and verify it
///
/// A download that has stopped goes on where it stopped. The content is compared with the hash in the export's record; with
/// --issuer, the signature of an NDJSON file's trailer, its hash and its count of rows are verified as well.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate export download exp_01hf7yat000000000000000007 --issuer https://verdicts.example.com
  mandate export download exp_01hf7yat000000000000000007 -o june.ndjson

Exit codes: 0 downloaded and verified    11 the trailer's signature is not the issuer's    14 another issuer
  17 the content is not what was exported    19 no key set")]
pub(crate) struct Download {
    /// The export's id, `exp_...`
    #[arg(value_parser = ExportId::parse)]
    id: ExportId,
    /// Where to write [default: the export's id, with .ndjson or .csv]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Whose signature the trailer must bear [env: MANDATE_ISSUER]
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// The issuer's key set [default: {issuer}/.well-known/jwks.json] [env: MANDATE_JWKS]
    #[arg(long, value_name = "FILE|URL")]
    jwks: Option<String>,
    #[command(flatten)]
    service: Service,
}

impl Download {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.service, global, Some(KeyClass::Organization))?;
        let issuer = self.issuer()?;
        let record = self.await_record(&client)?;
        let format = fields::text(&record, "format").unwrap_or_default();
        let file = self.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.{format}", self.id)));
        if file.exists() {
            return Err(Failure::new(Exit::Io, format!("{} is there already", file.display()))
                .next("choose another name with -o, or move it away"));
        }
        let part = file.with_extension(format!("{format}.part"));
        let accept = if format == "csv" { "text/csv" } else { "application/x-ndjson" };
        self.fetch(&client, accept, &part)?;
        let verified = verify(&part, &record, issuer.as_ref().filter(|_| format != "csv"));
        verified.map_err(|failure| failure.note("kept as", part.display()))?;
        if format != "csv" && issuer.is_none() {
            warn("the trailer's signature is not verified: no --issuer was given");
        }
        fs::rename(&part, &file).map_err(|e| unwritable(&file, &e))?;
        EXPORTS.show(&record, output)?;
        if !output.is_json() {
            output.line("file", file.display());
        }
        Ok(Exit::Success)
    }

    fn issuer(&self) -> Result<Option<Issuer>, Failure> {
        let named = self.issuer.is_some() || self.jwks.is_some();
        if named || crate::environment::variable("MANDATE_ISSUER")?.is_some() {
            return Issuer::find(self.issuer.as_deref(), self.jwks.as_deref()).map(Some);
        }
        Ok(None)
    }

    /// The record, once the export is ready.
    fn await_record(&self, client: &Client) -> Result<String, Failure> {
        let spinner = bar(ProgressBar::new_spinner(), "{spinner} the export is being built {elapsed}");
        loop {
            let record = client.get(&format!("{}/{}", EXPORTS.path, self.id), &[])?;
            match fields::text(&record, "status").as_deref() {
                Some("pending") => {
                    spinner.tick();
                    thread::sleep(LOOK_PAUSE);
                }
                Some("ready") => {
                    spinner.finish_and_clear();
                    return Ok(record);
                }
                _ => {
                    return Err(Failure::new(Exit::ServerError, "the export has failed")
                        .note("export", self.id)
                        .next("ask for another one: mandate export create")
                        .with_answer(&record));
                }
            }
        }
    }

    /// Reads what is not there yet.
    fn fetch(&self, client: &Client, accept: &str, part: &Path) -> Result<(), Failure> {
        // The last byte is fetched again: a range behind the last one is refused.
        let there = fs::metadata(part).map_or(0, |meta| meta.len()).saturating_sub(1);
        let path = format!("{}/{}", EXPORTS.path, self.id);
        let mut response = client.stream(&path, accept, there).map_err(|failure| match there {
            0 => failure,
            _ => failure.note("resumes", part.display()).next("remove that file to begin again"),
        })?;
        let begun = if response.status().as_u16() == 206 { there } else { 0 };
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(part)
            .and_then(|mut file| {
                file.set_len(begun).and_then(|()| file.seek(SeekFrom::Start(begun))).map(|_| file)
            })
            .map_err(|e| unwritable(part, &e))?;
        let length =
            response.headers().get("content-length").and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        let bar = match length {
            Some(left) => bar(
                ProgressBar::new(begun.saturating_add(left)),
                "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            ),
            None => bar(ProgressBar::new_spinner(), "{spinner} {bytes} {bytes_per_sec}"),
        };
        bar.set_position(begun);
        let mut reader = response.body_mut().with_config().limit(u64::MAX).reader();
        let mut piece = vec![0; PIECE];
        loop {
            let read = reader.read(&mut piece).map_err(|e| {
                Failure::new(Exit::Unreachable, format!("the download has stopped: {e}"))
                    .next("repeat the command: it goes on from there")
            })?;
            let Some(bytes) = piece.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
            file.write_all(bytes).map_err(|e| unwritable(part, &e))?;
            bar.inc(u64::try_from(read).unwrap_or_default());
        }
        bar.finish_and_clear();
        file.sync_all().map_err(|e| unwritable(part, &e))
    }
}

/// Compares the file with the record, and with its own trailer if there is an issuer to believe.
fn verify(path: &Path, record: &str, issuer: Option<&Issuer>) -> Result<(), Failure> {
    let unreadable = |e: io::Error| Failure::new(Exit::Io, format!("{} cannot be read: {e}", path.display()));
    let differs = |what: &str| {
        Failure::new(Exit::Mismatch, format!("the file is not what was exported: {what}"))
            .next("remove it, and download it again")
    };
    let length = fs::metadata(path).map_err(unreadable)?.len();
    let mut file = BufReader::new(File::open(path).map_err(unreadable)?);
    // The trailer is the last line; the hash that it signs is that of everything before it.
    let from = length.saturating_sub(MAX_TRAILER_BYTES);
    file.seek(SeekFrom::Start(from)).map_err(unreadable)?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).map_err(unreadable)?;
    let lines = tail.strip_suffix(b"\n").unwrap_or(&tail);
    let start = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at.saturating_add(1));
    let last = String::from_utf8_lossy(lines.get(start..).unwrap_or_default()).into_owned();
    let body = from.saturating_add(u64::try_from(start).unwrap_or_default());
    file.rewind().map_err(unreadable)?;
    let (mut hash, mut decisions, mut read, mut before) = (Sha256::new(), 0_u64, 0_u64, None);
    let mut line = Vec::with_capacity(PIECE);
    loop {
        if read == body {
            before = Some(hex(hash.clone()));
        }
        line.clear();
        let got = file.read_until(b'\n', &mut line).map_err(unreadable)?;
        if got == 0 {
            break;
        }
        hash.update(&line);
        read = read.saturating_add(u64::try_from(got).unwrap_or_default());
        decisions = decisions.saturating_add(u64::from(line.starts_with(b"{\"decision\"")));
    }
    if fields::text(record, "sha256").is_none_or(|sha256| sha256 != hex(hash)) {
        return Err(differs("its SHA-256 is not that of the export's record"));
    }
    let Some(issuer) = issuer else { return Ok(()) };
    let token = fields::text(&last, "trailer").ok_or_else(|| differs("it has no trailer"))?;
    let refused = |e: &dyn std::fmt::Display| {
        Failure::new(Exit::Signature, format!("the trailer is not the issuer's: {e}"))
            .next("do not rely on the file; ask the issuer")
    };
    let keys = issuer.keys()?;
    let trailer = Unverified::parse(&token).and_then(|token| token.verify(&keys));
    let trailer = trailer.map_err(|e| refused(&e))?;
    let mut claims = Object::parse(trailer.claims()).map_err(|e| refused(&e))?;
    let mut text = |name| -> Option<String> { Some(claims.take(name)?.string().ok()?.into_owned()) };
    if text("iss").as_deref() != Some(issuer.name.as_str()) {
        return Err(Failure::new(Exit::Issuer, "the trailer is another issuer's"));
    }
    if text("export") != fields::text(record, "export") {
        return Err(differs("its trailer is that of another export"));
    }
    if text("sha256") != before {
        return Err(differs("its SHA-256 is not the one that its trailer signs"));
    }
    let rows = claims.take("rows").and_then(|rows| rows.integer().ok());
    if rows.and_then(|rows| u64::try_from(rows).ok()) != Some(decisions) {
        return Err(differs("it has more or fewer decisions than its trailer says"));
    }
    Ok(())
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unwritable(path: &Path, why: &io::Error) -> Failure {
    Failure::new(Exit::Io, format!("{} cannot be written: {why}", path.display()))
}

/// Progress on standard error, seen on terminals only.
fn bar(bar: ProgressBar, template: &str) -> ProgressBar {
    bar.set_draw_target(ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
