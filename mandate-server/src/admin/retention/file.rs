//! The files of closed months: written under another name, read back and verified, and only then named.

use std::fs::{DirBuilder, File};
use std::io::{BufRead as _, BufReader, BufWriter};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use mandate_core::export::Trailer;
use mandate_core::json::{Field, Object};
use mandate_core::jwks::KeySet;
use mandate_core::verify::audit_verdict_ignoring_expiry;
use mandate_core::{DecisionId, ExportId, VerdictClaims};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::error::Fault;
use crate::service::exports::{self, Build, Sha256Hex, Written};
use crate::store::tx::Tx;

/// The files hold all of an organization's decisions: their owner alone may read them.
const DIRECTORY_MODE: u32 = 0o700;
/// The end of the name of a file that is not complete.
const UNFINISHED: &str = ".unfinished";
/// How much is written or read at a time, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// Makes the directory, if it is not there. Returns its absolute path.
pub(super) fn directory(path: &Path) -> Result<PathBuf, Fault> {
    let made = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
    made.and_then(|()| path.canonicalize()).map_err(|e| unusable(path, &e))
}

/// Writes an export into a file in `directory` that has no name of its own yet, and syncs it.
pub(super) fn write(
    tx: &mut Tx<'_>,
    build: &Build<'_>,
    directory: &Path,
) -> Result<(NamedTempFile, Written), Fault> {
    let prefix = format!("{}.", build.export.id);
    let file = tempfile::Builder::new().prefix(&prefix).suffix(UNFINISHED).tempfile_in(directory);
    let file = file.map_err(|e| unusable(directory, &e))?;
    let failed = |e| unusable(file.path(), &e);
    let out = BufWriter::with_capacity(BUFFER_BYTES, file.as_file().try_clone().map_err(failed)?);
    let written = exports::write(tx, build, out, &|| true)?;
    file.as_file().sync_all().map_err(failed)?;
    Ok((file, written))
}

/// Gives a verified file its name, durably. An existing file is not replaced.
pub(super) fn name(file: NamedTempFile, to: &Path) -> Result<(), Fault> {
    file.persist_noclobber(to).map_err(|e| unusable(to, &e.error))?;
    let directory = to.parent().unwrap_or(Path::new("."));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(|e| unusable(directory, &e))
}

/// What a file is verified against.
pub(super) struct Verifier<'a> {
    pub(super) export: ExportId,
    pub(super) keys: &'a KeySet,
    pub(super) issuers: &'a [String],
}

impl Verifier<'_> {
    /// Reads a file back: its bytes are those that were written, each decision is the one that its token says, tokens and
    /// trailer are signed, and decisions are in order. Returns the first and the last; none of an empty month.
    pub(super) fn verify(
        &self,
        path: &Path,
        written: &Written,
    ) -> Result<Option<(DecisionId, DecisionId)>, Fault> {
        let mut lines = Lines::open(path)?;
        let (mut hash, mut rows, mut is_sealed) = (Sha256::new(), 0, false);
        let mut ends: Option<(DecisionId, DecisionId)> = None;
        while let Some(line) = lines.next()? {
            let before = hash.clone();
            hash.update(line);
            let refused = |why: &dyn std::fmt::Display| {
                Fault::new(format!("{}: after {rows} decisions: {why}", path.display()))
            };
            if is_sealed {
                return Err(refused(&"there is a line after the trailer"));
            }
            let mut entry = Object::parse_as("line", line.trim_ascii_end()).map_err(|e| refused(&e))?;
            if let Some(trailer) = entry.take("trailer") {
                let before = Sha256Hex(before.finalize().into()).to_string();
                self.seals(&trailer, rows, &before).map_err(|e| refused(&e))?;
                is_sealed = true;
            } else if let Some(decision) = entry.take("decision") {
                let id = self.decision(&decision).map_err(|e| refused(&e))?;
                if ends.is_some_and(|(_, last)| id <= last) {
                    return Err(refused(&format!("{id} is not after the decision before it")));
                }
                ends = Some((ends.map_or(id, |(first, _)| first), id));
                rows += 1;
            }
        }
        let sha256: [u8; 32] = hash.finalize().into();
        if sha256 != written.sha256 || !is_sealed || i64::try_from(rows).ok() != Some(written.rows) {
            return Err(Fault::new(format!("{} is not what was written", path.display())));
        }
        Ok(ends)
    }

    /// Whether the trailer is signed and that of the lines before.
    fn seals(&self, trailer: &Field<'_>, rows: u64, sha256: &str) -> Result<(), String> {
        let token = trailer.string().map_err(|e| e.to_string())?;
        let (said, _) = Trailer::verify(&token, self.keys, self.issuers).map_err(|e| e.to_string())?;
        match said.differences(Some(self.export), rows, sha256).first() {
            Some(difference) => Err(difference.to_string()),
            None => Ok(()),
        }
    }

    /// Whether the decision's token is signed and says what its row says.
    fn decision(&self, decision: &Field<'_>) -> Result<DecisionId, String> {
        let claims = VerdictClaims::read(decision.raw().as_bytes()).map_err(|e| e.to_string())?;
        let mut shown = decision.object().map_err(|e| e.to_string())?;
        let token = shown.require("verdict_token").and_then(|token| Ok(token.string()?.into_owned()));
        let token = token.map_err(|e| e.to_string())?;
        let issuer = self.issuers.iter().find(|issuer| **issuer == claims.iss);
        let issuer = issuer.ok_or_else(|| format!("`{}` is no issuer of the database", claims.iss))?;
        let signed = audit_verdict_ignoring_expiry(&token, self.keys, issuer).map_err(|e| e.to_string())?;
        if *signed.claims() == claims {
            Ok(claims.jti)
        } else {
            Err(format!("{} differs from its token", claims.jti))
        }
    }
}

/// Refuses a file that is gone, or has other bytes than those that were written.
pub(super) fn must_have(path: &Path, sha256: [u8; 32]) -> Result<(), Fault> {
    find_line(path, sha256, &|_| false).map(drop)
}

/// Whether a file, of which no byte has changed, has a decision.
pub(super) fn has(path: &Path, sha256: [u8; 32], id: DecisionId) -> Result<bool, Fault> {
    let wanted = format!("\"jti\":\"{id}\"");
    find_line(path, sha256, &|line| std::str::from_utf8(line).is_ok_and(|line| line.contains(&wanted)))
}

/// Whether a file of this hash has such a line.
fn find_line(path: &Path, sha256: [u8; 32], is_wanted: &dyn Fn(&[u8]) -> bool) -> Result<bool, Fault> {
    let (mut lines, mut hash, mut found) = (Lines::open(path)?, Sha256::new(), false);
    while let Some(line) = lines.next()? {
        hash.update(line);
        found = found || is_wanted(line);
    }
    let is: [u8; 32] = hash.finalize().into();
    if is == sha256 {
        return Ok(found);
    }
    let (is, was) = (Sha256Hex(is), Sha256Hex(sha256));
    Err(Fault::new(format!("{} has changed: its SHA-256 is {is}, and was {was}", path.display())))
}

/// Removes a file that this process has named and that no row names.
pub(super) fn remove(path: &Path) {
    // It is harmless where it stays.
    let _ = std::fs::remove_file(path);
}

/// The lines of a file, one in memory at a time, each with its line break.
struct Lines<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    fn open(path: &'a Path) -> Result<Self, Fault> {
        let file = File::open(path).map_err(|e| unusable(path, &e))?;
        Ok(Self { path, reader: BufReader::with_capacity(BUFFER_BYTES, file), line: Vec::new() })
    }

    fn next(&mut self) -> Result<Option<&[u8]>, Fault> {
        self.line.clear();
        let read = self.reader.read_until(b'\n', &mut self.line).map_err(|e| unusable(self.path, &e))?;
        Ok((read > 0).then_some(self.line.as_slice()))
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> Fault {
    Fault::new(format!("{} cannot be used: {error}", path.display()))
}
