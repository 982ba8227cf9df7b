//! Events in a file: one line of JSON for each, with the token as it arrived.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use mandate_core::json::one_line;
use mandate_core::verify::VerifiedEvent;
use mandate_core::{EventId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::directory::private;
use crate::exit::{Exit, Failure};
use crate::input::Source;
use crate::lines::Lines;

/// A received and verified event.
#[derive(Debug, Serialize)]
pub(crate) struct Received {
    /// The event's id.
    pub(crate) event: EventId,
    /// The type of event.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// When it happened.
    pub(crate) issued_at: String,
    /// The kind of environment whose key has signed.
    pub(crate) environment: &'static str,
    /// The object that the event is about.
    pub(crate) data: Option<Box<RawValue>>,
    /// The token as it arrived.
    pub(crate) token: String,
    /// The status that the receiver answered when it was forwarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) forwarded: Option<u16>,
}

impl Received {
    /// The event of `verified`, which is `token`.
    pub(crate) fn new(verified: &VerifiedEvent, token: &str) -> Self {
        let claims = verified.claims();
        Self {
            event: claims.jti,
            kind: claims.kind.clone(),
            issued_at: Timestamp::from_seconds(claims.iat).to_string(),
            environment: if verified.kid().is_sandbox() { "sandbox" } else { "production" },
            data: RawValue::from_string(claims.data.clone()).ok(),
            token: token.to_owned(),
            forwarded: None,
        }
    }
}

/// What is read back of a recorded event.
#[derive(Debug, Deserialize)]
pub(crate) struct Recorded {
    /// The event's id.
    pub(crate) event: String,
    /// The type of event.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The token.
    pub(crate) token: String,
}

/// A file that events are appended to.
#[derive(Debug)]
pub(crate) struct Recording {
    file: File,
    name: String,
}

impl Recording {
    /// Opens or creates the file, accessible by its owner alone, and passes each event in it to `there`. A
    /// file whose last line is incomplete, or that holds something else, is refused and left unchanged. So is
    /// one that another process is recording to.
    pub(crate) fn open(path: &Path, mut there: impl FnMut(EventId)) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let unusable =
            |e: io::Error| Failure::new(Exit::Io, format!("events cannot be recorded in {name}: {e}"));
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        private(&mut options);
        let mut file = options.open(path).map_err(unusable)?;
        let metadata = file.metadata().map_err(unusable)?;
        if !metadata.is_file() {
            return Err(Failure::new(
                Exit::Io,
                format!("{name} is not a regular file, so nothing would be kept"),
            )
            .next("name the file of an earlier recording, or a new one"));
        }
        file.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => {
                Failure::new(Exit::Io, format!("another listener is recording in {name}"))
                    .next("name another file: an event that both receive would be in it twice")
            }
            TryLockError::Error(e) => unusable(e),
        })?;
        if metadata.len() > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last)).map_err(unusable)?;
            if last != *b"\n" {
                return Err(Failure::new(Exit::Io, format!("the last line of {name} has no end"))
                    .next("the event in it was not acknowledged: remove that line, or name another file"));
            }
        }
        let mut lines = Lines::open(&Source::File(path.to_owned()), "the recording")?;
        while let Some(line) = lines.next(|_| {}).map_err(unusable)? {
            let event = serde_json::from_slice::<Recorded>(&line.bytes).ok();
            let id = event.and_then(|event| EventId::parse(&event.event).ok()).ok_or_else(|| {
                Failure::new(Exit::Io, format!("line {} of {name} is not a recorded event", line.number))
                    .next("name the file of an earlier recording, or a new one")
            })?;
            there(id);
        }
        Ok(Self { file, name })
    }

    /// Appends an event. On success it is on disk.
    pub(crate) fn append(&mut self, received: &Received) -> Result<(), Failure> {
        let before = self.file.metadata().map(|metadata| metadata.len());
        let line = serde_json::to_string(received).map_err(io::Error::from);
        let written = line.and_then(|line| {
            self.file.write_all(format!("{}\n", one_line(&line)).as_bytes())?;
            self.file.sync_data()
        });
        written.map_err(|e| {
            // Half a line would make the file unreadable.
            let _ = before.and_then(|length| self.file.set_len(length));
            Failure::new(Exit::Io, format!("the event cannot be recorded in {}: {e}", self.name))
                .next("the issuer delivers it again")
        })
    }
}
