//! What a witness must never forget: the last checkpoint of each log that it has cosigned, one file a log.

use std::fs::File;
use std::path::{Path, PathBuf};

use mandate_core::log::{Checkpoint, MAX_NOTE_BYTES, SignedCheckpoint, VerifierKey};

use crate::directory;
use crate::exit::{Exit, Failure};
use crate::input::Source;

/// Room for a checkpoint with the witness's own cosignature.
const MAX_BYTES: usize = 2 * MAX_NOTE_BYTES;
const LOCK_FILE: &str = "lock";

/// The folder of the files, which one process holds.
pub(super) struct Store {
    folder: PathBuf,
    witness: VerifierKey,
    _lock: File,
}

impl Store {
    /// Opens the folder, and makes it if it is not there.
    pub(super) fn open(folder: &Path, witness: &VerifierKey) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::new(Exit::Io, format!("{}: {e}", folder.display()));
        directory::create(folder).map_err(failed)?;
        let mut options = File::options();
        options.create(true).write(true).truncate(false);
        directory::private(&mut options);
        let lock = options.open(folder.join(LOCK_FILE)).map_err(failed)?;
        if lock.try_lock().is_err() {
            return Err(Failure::new(Exit::Conflict, format!("another witness uses {}", folder.display()))
                .next("a witness runs once: end the other one, or name another folder and another key"));
        }
        Ok(Self { folder: folder.to_owned(), witness: witness.clone(), _lock: lock })
    }

    fn path(&self, origin: &str) -> PathBuf {
        self.folder.join(directory::file_name(origin)).with_extension("checkpoint")
    }

    /// The last checkpoint of a log that this witness has cosigned.
    pub(super) fn last(&self, origin: &str) -> Result<Option<Checkpoint>, Failure> {
        let path = self.path(origin);
        if !path.try_exists().map_err(|e| Failure::new(Exit::Io, format!("{}: {e}", path.display())))? {
            return Ok(None);
        }
        let text = Source::File(path.clone()).read("the state", MAX_BYTES, Exit::Io)?;
        let kept = SignedCheckpoint::parse(text.as_bytes()).ok().filter(|kept| {
            kept.checkpoint().origin() == origin && matches!(kept.cosignature(&self.witness), Ok(Some(_)))
        });
        kept.map(|kept| Some(kept.checkpoint().clone())).ok_or_else(|| {
            Failure::new(
                Exit::Io,
                format!("{} is not what this witness has written for {origin}", path.display()),
            )
            .next("do not remove it: without it the witness would cosign a fork. Begin again under a new key")
        })
    }

    /// Keeps a checkpoint in place of the last one, on disk when this returns.
    pub(super) fn keep(&self, cosigned: &SignedCheckpoint) -> Result<(), Failure> {
        let (path, text) = (self.path(cosigned.checkpoint().origin()), cosigned.to_string());
        // What cannot be read again is never written.
        if let Err(e) = SignedCheckpoint::parse(text.as_bytes()) {
            return Err(Failure::new(Exit::Io, format!("{} is not written: {e}", path.display())));
        }
        let kept =
            directory::write(&path, text.as_bytes()).and_then(|()| File::open(&self.folder)?.sync_all());
        kept.map_err(|e| Failure::new(Exit::Io, format!("{} cannot be written: {e}", path.display())))
    }
}
