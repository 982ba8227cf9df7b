//! The events that were kept, a line each, and their ids.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use mandate_core::EventClaims;
use mandate_core::json::Object;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::Failure;

/// In an application this is a table with a unique key on `jti`, written in the transaction of the work itself.
pub(crate) struct Log(RefCell<Inner>);

struct Inner {
    file: File,
    known: HashSet<String>,
}

/// Whether an event was kept before.
pub(crate) enum Kept {
    First,
    Before,
}

#[derive(Serialize)]
struct Line<'a> {
    jti: &'a str,
    iat: i64,
    #[serde(rename = "type")]
    kind: &'a str,
    data: &'a RawValue,
}

impl Log {
    /// Opens a log, which is made when it is not there.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut known = HashSet::new();
        for line in BufReader::new(&file).lines() {
            let line = line?;
            let mut event = Object::parse(line.as_bytes())?;
            known.insert(event.require("jti")?.string()?.into_owned());
        }
        Ok(Self(RefCell::new(Inner { file, known })))
    }

    /// Keeps an event. When this returns it is on the disk.
    pub(crate) fn keep(&self, claims: &EventClaims<String>) -> Result<Kept, Failure> {
        let mut inner = self.0.borrow_mut();
        let jti = claims.jti.to_string();
        if inner.known.contains(&jti) {
            return Ok(Kept::Before);
        }
        let data = serde_json::from_str(&claims.data)?;
        let line = Line { jti: &jti, iat: claims.iat, kind: &claims.kind, data };
        let line = serde_json::to_string(&line)? + "\n";
        inner.file.write_all(line.as_bytes())?;
        inner.file.sync_all()?;
        inner.known.insert(jti);
        Ok(Kept::First)
    }
}
