//! The directory into which tokens are written, for hosts whose payment tool reads a file.

use std::io::Write as _;
use std::path::PathBuf;

use mandate_core::DecisionId;

use crate::exit::{Exit, Failure};

/// A directory that is there.
#[derive(Debug)]
pub(super) struct TokenDir(PathBuf);

impl TokenDir {
    pub(super) fn open(path: PathBuf) -> Result<Self, Failure> {
        if path.is_dir() {
            return Ok(Self(path));
        }
        let shown = path.display();
        Err(Failure::new(Exit::Usage, format!("--token-dir `{shown}` is refused: it is not a directory"))
            .next(format_args!("mkdir -m 700 {shown}")))
    }

    /// Writes the token of a decision, whole or not at all, for its owner only. Returns the file's path.
    pub(super) fn write(&self, decision: &DecisionId, token: &str) -> Result<String, Failure> {
        let path = self.0.join(format!("{decision}.jwt"));
        let failed = |e: std::io::Error| {
            Failure::new(Exit::Io, format!("the token cannot be written to {}: {e}", path.display()))
        };
        let mut file = tempfile::NamedTempFile::new_in(&self.0).map_err(failed)?;
        file.write_all(token.as_bytes()).map_err(failed)?;
        file.persist(&path).map_err(|e| failed(e.error))?;
        Ok(path.display().to_string())
    }
}
