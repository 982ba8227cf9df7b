//! `mandate export download`: waits until the export is ready, resumes interrupted downloads, and verifies
//! the file.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mandate_core::api_key::KeyClass;
use mandate_core::export::{Content, Trailer, TrailerRefused};
use mandate_core::jwt::TokenRefused;
use mandate_core::{EnvironmentKind, ExportId};

use super::EXPORTS;
use crate::client::{Client, Resume};
use crate::directory::{is_at, private};
use crate::environment::variable;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::http::Response;
use crate::key_set::{Issuer, in_use};
use crate::output::{Output, warn};
use crate::service::Service;
use crate::style::printable;

/// The pause between two requests for an export that is being built.
const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// How many bytes are read at a time.
const PIECE: usize = 64 * 1024;

/// Download an export once it is ready, and verify it
///
/// An interrupted download continues where it stopped. The file is hashed as it arrives, and compared with the hash in the
/// export's record. For NDJSON, the count and the hash in the signed trailer are compared too, and the trailer's signature
/// is verified against the issuer: the one given by --issuer, or the one that the service names. If the issuer was not
/// given and its keys cannot be fetched, a warning says that the signature is not verified. Until the file is verified, its
/// name ends in .part.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate export download exp_01hf7yat000000000000000007 \\
      --issuer https://verdicts.example.com
  mandate export download exp_01hf7yat000000000000000007 -o june.ndjson \\
      --jwks retired.json

Exit codes: 0 downloaded and verified    11 the trailer's signature is wrong    14 another issuer
  17 the content differs from the export    19 no key set")]
pub(crate) struct Download {
    /// The export's id, `exp_...`
    #[arg(value_parser = ExportId::parse)]
    id: ExportId,
    /// The output file [default: the export's id, with .ndjson or .csv]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The issuer that must have signed the trailer [default: the service's issuer] [env: MANDATE_ISSUER; default: from the profile]
    #[arg(long, value_name = "URL")]
    issuer: Option<String>,
    /// The issuer's key set [default: {issuer}/.well-known/jwks.json] [env: MANDATE_JWKS]
    #[arg(long, value_name = "FILE|URL")]
    jwks: Option<String>,
    #[command(flatten)]
    service: Service,
}

/// Whose signature is accepted.
struct Trusted {
    issuer: Issuer,
    /// The kind of environment that was exported.
    kind: EnvironmentKind,
    /// Whether a person has named the issuer, rather than the service.
    is_named: bool,
}

impl Download {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        if self.output.as_deref() == Some(Path::new("-")) {
            return Err(Failure::new(Exit::Usage, "an export is written to a file: it is verified at its end, and standard output cannot be taken back")
                .next("name a file with -o, and then read that"));
        }
        let client = Client::new(&self.service, global, Some(KeyClass::Organization))?;
        let record = self.await_record(&client)?;
        let format = fields::text(&record, "format").unwrap_or_default();
        let trusted = if format == "csv" { None } else { self.trusted(&client, global)? };
        let file = self.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.{format}", self.id)));
        refuse_if_there(&file)?;
        let part = part_of(&file);
        // Held until the file has its name.
        let mut claimed = claim(&part)?;
        // Another download may have finished meanwhile.
        refuse_if_there(&file)?;
        let accept = if format == "csv" { "text/csv" } else { "application/x-ndjson" };
        let fetched = self.fetch(&client, &record, accept, &part, &mut claimed);
        let content = fetched.inspect_err(|_| remove_if_empty(&part, &claimed))?;
        let verified = verify(&content, &record, trusted.as_ref());
        let unsigned = verified.map_err(|failure| failure.note("kept as", part.display()))?;
        fs::rename(&part, &file).map_err(|e| unwritable(&file, &e))?;
        drop(claimed);
        EXPORTS.show(&record, output)?;
        if !output.is_json() {
            output.line("file", file.display());
        }
        if let Some(since) = fields::text(&record, "incomplete_since") {
            warn(format_args!(
                "the clock was set back after the export was built: it may lack decisions from {} on. Create it again",
                printable(&since)
            ));
        }
        match (&trusted, unsigned) {
            (Some(Trusted { issuer, .. }), None) if !output.is_json() => {
                output.line("signed by", printable(&issuer.name));
            }
            (_, Some(why)) if format != "csv" => {
                warn(format_args!("the trailer's signature is not verified: {}", printable(&why)));
            }
            _ => {}
        }
        Ok(Exit::Success)
    }

    /// The issuer that was named, the one of the profile, or else the one that the service names.
    fn trusted(&self, client: &Client, global: &Global) -> Result<Option<Trusted>, Failure> {
        let kind = client.access().key.kind();
        let is_named = self.issuer.is_some() || self.jwks.is_some() || variable("MANDATE_ISSUER")?.is_some();
        if is_named {
            let issuer = Issuer::find(self.issuer.as_deref(), self.jwks.as_deref(), global)?;
            return Ok(Some(Trusted { issuer, kind, is_named }));
        }
        // A key from elsewhere may be for another service than the profile's.
        let known = if client.access().profile.is_some() { in_use(None, global)? } else { None };
        let Some(name) = known.or_else(|| client.issuer()) else { return Ok(None) };
        Ok(Some(Trusted { issuer: Issuer::find(Some(&name), None, global)?, kind, is_named }))
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
                        .next("create another one: mandate export create")
                        .with_answer(&record));
                }
            }
        }
    }

    /// Reads what is missing. Returns the complete content, which was hashed once as it arrived. If a
    /// connection ends early or goes silent, another requests the rest, as long as each brings something.
    fn fetch(
        &self,
        client: &Client,
        record: &str,
        accept: &str,
        part: &Path,
        file: &mut File,
    ) -> Result<Content, Failure> {
        let path = format!("{}/{}", EXPORTS.path, self.id);
        // The rest of another content would be useless.
        let etag = format!("\"{}\"", fields::text(record, "sha256").unwrap_or_default());
        let there = file.metadata().map_err(|e| unwritable(part, &e))?.len();
        // The last byte is requested again: a range after the end is refused.
        let mut taken = ReceivedFile { file, part, from: there.saturating_sub(1), content: None };
        let bar = bar(ProgressBar::no_length(), "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
        loop {
            let from = taken.from;
            let resume = (from > 0).then(|| Resume { from, etag: etag.clone() });
            let response = client.stream(&path, accept, resume.as_ref()).map_err(|failure| match from {
                0 => failure,
                _ => failure.note("resumes", part.display()).next("remove that file to begin again"),
            });
            let ended = response.and_then(|response| taken.take(response, &bar));
            match ended.inspect_err(|_| bar.finish_and_clear())? {
                None => break,
                // Nothing has arrived for as long as one connection is read.
                Some(why) if taken.from <= from => {
                    bar.finish_and_clear();
                    return Err(Failure::new(Exit::Unreachable, format!("the download has stopped: {why}"))
                        .note("kept as", part.display())
                        .next("repeat the command: it continues from there"));
                }
                Some(_) => thread::sleep(LOOK_PAUSE),
            }
        }
        bar.finish_and_clear();
        taken.file.sync_all().map_err(|e| unwritable(part, &e))?;
        Ok(taken.content.unwrap_or_default())
    }
}

/// What has arrived, in its file.
struct ReceivedFile<'a> {
    file: &'a mut File,
    part: &'a Path,
    /// How many bytes have arrived: the next connection begins there.
    from: u64,
    /// The same bytes, hashed. None until an answer shows how much of the file is valid.
    content: Option<Content>,
}

impl ReceivedFile<'_> {
    /// Reads an answer to its end. If it ended early, returns why.
    fn take(&mut self, mut response: Response, bar: &ProgressBar) -> Result<Option<String>, Failure> {
        let unwritable = |e: io::Error| unwritable(self.part, &e);
        let begun = if response.status() == 206 { self.from } else { 0 };
        let mut content = match self.content.take() {
            Some(content) if begun > 0 => content,
            _ => begin(self.file, begun).map_err(unwritable)?,
        };
        let length = response.header("content-length").and_then(|length| length.parse().ok());
        let whole = length.map(|left: u64| begun.saturating_add(left));
        bar.set_length(whole.unwrap_or_default());
        bar.set_position(begun);
        self.from = begun;
        let ended = loop {
            let bytes = match response.piece() {
                Ok(Some(bytes)) => bytes,
                Ok(None) => {
                    let is_short = whole.is_some_and(|whole| whole > self.from);
                    break is_short.then(|| "the connection has ended".to_owned());
                }
                Err(_) if whole == Some(self.from) => break None,
                Err(e) => break Some(e.to_string()),
            };
            content.take(&bytes);
            self.file.write_all(&bytes).map_err(unwritable)?;
            self.from = self.from.saturating_add(u64::try_from(bytes.len()).unwrap_or_default());
            bar.set_position(self.from);
        };
        self.content = Some(content);
        Ok(ended)
    }
}

fn refuse_if_there(file: &Path) -> Result<(), Failure> {
    if file.exists() {
        return Err(Failure::new(Exit::Io, format!("{} exists already", file.display()))
            .next("choose another name with -o, or move it away"));
    }
    Ok(())
}

/// The name of `file` until it is verified. No other file has it.
fn part_of(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

/// Opens the file for its owner alone, and keeps other downloads away while it is open.
fn claim(part: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).write(true).truncate(false);
    private(&mut options);
    loop {
        let file = options.open(part).map_err(|e| unwritable(part, &e))?;
        match file.try_lock() {
            // The opened file may have been renamed or removed meanwhile.
            Ok(()) if is_at(&file, part) => return Ok(file),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::new(
                    Exit::Io,
                    format!("another download is writing {}", part.display()),
                )
                .next("wait for it, or choose another name with -o"));
            }
            Err(TryLockError::Error(e)) => return Err(unwritable(part, &e)),
        }
    }
}

/// Removes the file of a download that has not begun.
fn remove_if_empty(part: &Path, file: &File) {
    if file.metadata().is_ok_and(|meta| meta.len() == 0) {
        // At worst an empty file remains, which the next download continues.
        let _ = fs::remove_file(part);
    }
}

/// Reads the valid start of the file, and drops what follows.
fn begin(file: &mut File, bytes: u64) -> io::Result<Content> {
    file.set_len(bytes)?;
    let mut content = Content::default();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(content),
            read => content.take(piece.get(..read).unwrap_or_default()),
        }
    }
}

/// Compares the content with the record and, if the issuer is known, with its own trailer. If the trailer's
/// signature cannot be verified, returns why: no issuer was named, and the service names none or its keys
/// cannot be fetched.
fn verify(content: &Content, record: &str, trusted: Option<&Trusted>) -> Result<Option<String>, Failure> {
    let differs = |what: &dyn std::fmt::Display| {
        Failure::new(Exit::Mismatch, format!("the file is not what was exported: {what}"))
            .next("remove it, and download it again")
    };
    if fields::text(record, "sha256").is_none_or(|sha256| sha256 != content.sha256()) {
        return Err(differs(&"its SHA-256 is not that of the export's record"));
    }
    let Some(Trusted { issuer, kind, is_named }) = trusted else {
        return Ok(Some("the issuer is not known; pass it with --issuer".to_owned()));
    };
    let token = content.trailer().map_err(|e| differs(&e))?;
    let keys = match issuer.keys_for(&token) {
        Err(failure) if !is_named => return Ok(Some(failure.message().to_owned())),
        keys => keys?,
    };
    let (trailer, signed_by) = match Trailer::verify(&token, &keys, &[&issuer.name]) {
        Ok(verified) => verified,
        Err(TrailerRefused::Issuer { .. }) => {
            return Err(Failure::new(Exit::Issuer, "the trailer is another issuer's"));
        }
        Err(TrailerRefused::Token(TokenRefused::UnknownKey { .. })) if !is_named => {
            let why = "its key is no longer published; pass a key set that has it with --jwks";
            return Ok(Some(why.to_owned()));
        }
        Err(e) => {
            return Err(Failure::new(Exit::Signature, format!("the trailer is not the issuer's: {e}"))
                .next("do not rely on the file; ask the issuer"));
        }
    };
    if signed_by != *kind {
        let what = format!("the trailer is signed with a key of the {signed_by}, and this is the {kind}");
        return Err(Failure::new(Exit::Signature, what).next("do not rely on the file; ask the issuer"));
    }
    let export = fields::text(record, "export").and_then(|id| ExportId::parse(&id).ok());
    let before = content.sha256_before().unwrap_or_default();
    match trailer.differences(export, content.rows(), &before).first() {
        Some(difference) => Err(differs(difference)),
        None => Ok(None),
    }
}

fn unwritable(path: &Path, why: &io::Error) -> Failure {
    Failure::new(Exit::Io, format!("{} cannot be written: {why}", path.display()))
}

/// A progress bar on standard error, shown on terminals only.
fn bar(bar: ProgressBar, template: &str) -> ProgressBar {
    bar.set_draw_target(ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
