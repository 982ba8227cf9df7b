//! Reads a log's files, over HTTP or from a folder, each up to a limit. What they hold is checked by the callers.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use mandate_core::log::{
    Hash, KeyKind, MAX_ENTRY_BYTES, MAX_NOTE_BYTES, MAX_PROOF_BYTES, SignedCheckpoint, TILE_WIDTH, Tile,
    TileKind, VerifierKey,
};

use super::Refused;
use super::place::Place;
use super::trust::parse;
use crate::directory::hex;
use crate::exit::{Exit, Failure};
use crate::http::{self, Address, REQUEST_TIMEOUT, Transport};

/// The longest verifier key with a line break: its name has 255 bytes at most.
const MAX_KEY_BYTES: usize = 512;
/// The longest list of the places of key entries.
const MAX_KEY_LIST_BYTES: usize = 256 * 1024;

/// A log that is being read.
#[derive(Debug)]
pub(crate) struct Source {
    place: Place,
    files: Files,
}

#[derive(Debug)]
enum Files {
    Served(Address, Transport),
    Folder(PathBuf),
}

impl Source {
    pub(crate) fn new(place: Place) -> Result<Self, Failure> {
        let files = match &place {
            Place::Url(address) => Files::Served(address.clone(), address.transport()?),
            Place::Folder(folder) => Files::Folder(folder.clone()),
        };
        Ok(Self { place, files })
    }

    /// The log at a place whose key this is; without a key the first one.
    pub(crate) fn of(place: &Place, key: Option<&VerifierKey>) -> Result<Self, Failure> {
        Self::new(key.map_or_else(|| Ok(place.clone()), |key| place.of_origin(key.name()))?)
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The text of the newest checkpoint.
    pub(crate) fn checkpoint(&self) -> Result<Vec<u8>, Failure> {
        self.must_have("checkpoint", MAX_NOTE_BYTES)
    }

    /// The log's key, as it is published.
    pub(crate) fn key(&self) -> Result<VerifierKey, Failure> {
        read_key(&self.must_have("key", MAX_KEY_BYTES)?).map_err(|why| {
            Failure::new(Exit::NotProved, format!("the key of the log at {} is refused: {why}", self.place))
        })
    }

    /// The key of the log that has begun in place of this one. None: this one goes on.
    pub(crate) fn next(&self) -> Result<Option<VerifierKey>, Failure> {
        let Some(text) = self.find("next", MAX_KEY_BYTES)? else { return Ok(None) };
        read_key(&text).map(Some).map_err(|why| {
            let what = format!("`next` of the log at {} is not the key of a log: {why}", self.place);
            Failure::new(Exit::UnknownAnswer, what).next(
                "whether the log goes on is not known: what serves a log that does must answer 404 there",
            )
        })
    }

    /// The proof of the token with this hash. None: it is not in the log, or not yet; a folder has no proofs.
    pub(crate) fn proof(&self, token: &Hash) -> Result<Option<Vec<u8>>, Failure> {
        self.find(&format!("proof/{}", hex(token.as_bytes())), MAX_PROOF_BYTES)
    }

    /// The list of where the entries of keys are, if the log has one. It saves a reader from reading the whole log.
    pub(crate) fn key_list(&self) -> Result<Option<Vec<u8>>, Failure> {
        self.find("keys", MAX_KEY_LIST_BYTES)
    }

    /// A tile or bundle, and how wide it is: a log that has grown may have only the full one, or a wider one.
    pub(crate) fn tile(&self, tile: Tile) -> Result<(Tile, Vec<u8>), Failure> {
        let most = |tile: Tile| match tile.kind {
            TileKind::Hashes { .. } => {
                usize::from(tile.width).saturating_mul(Hash::of_empty_tree().as_bytes().len())
            }
            TileKind::Entries => usize::from(tile.width).saturating_mul(MAX_ENTRY_BYTES.saturating_add(2)),
        };
        if let Some(bytes) = self.find(&tile.path(), most(tile))? {
            return Ok((tile, bytes));
        }
        let full = Tile { width: TILE_WIDTH, ..tile };
        let others = if tile.is_full() { [None, None] } else { [Some(full), self.newest(tile)?] };
        for other in others.into_iter().flatten() {
            if let Some(bytes) = self.find(&other.path(), most(other))? {
                return Ok((other, bytes));
            }
        }
        let why = format!("{} is not there, although its checkpoint has it", tile.path());
        Err(Refused::new("missing_tile", why).of(&format!("the log at {}", self.place)))
    }

    /// The tile as wide as the newest checkpoint says that it is. Only its path is taken from there.
    fn newest(&self, tile: Tile) -> Result<Option<Tile>, Failure> {
        let newest = self.find("checkpoint", MAX_NOTE_BYTES)?;
        let size = newest.and_then(|text| Some(SignedCheckpoint::parse(&text).ok()?.checkpoint().size()));
        Ok(size
            .and_then(|size| Tile::at(tile.kind, tile.index, size))
            .filter(|newest| newest.width > tile.width))
    }

    fn must_have(&self, path: &str, most: usize) -> Result<Vec<u8>, Failure> {
        self.find(path, most)?.ok_or_else(|| self.missing(path))
    }

    fn missing(&self, path: &str) -> Failure {
        Failure::new(Exit::NotFound, format!("the log at {} has no {path}", self.place))
            .next("check the address; a log that has just begun has no checkpoint yet")
    }

    fn find(&self, path: &str, most: usize) -> Result<Option<Vec<u8>>, Failure> {
        match &self.files {
            Files::Served(address, transport) => fetch(transport, &address.join(&format!("/{path}")), most),
            Files::Folder(folder) => {
                let path = folder.join(path);
                read(&path, most)
                    .map_err(|e| Failure::new(Exit::Io, format!("{} cannot be read: {e}", path.display())))
            }
        }
    }
}

/// The key in what is served as one.
fn read_key(text: &[u8]) -> Result<VerifierKey, String> {
    parse(String::from_utf8_lossy(text).trim_end_matches('\n'), KeyKind::Note)
}

/// What is at an address. None: nothing.
fn fetch(transport: &Transport, address: &Address, most: usize) -> Result<Option<Vec<u8>>, Failure> {
    let failed = |e: http::Error| {
        let exit = if e.is_passing() { Exit::Unreachable } else { Exit::UnknownAnswer };
        let failure = Failure::new(exit, format!("{address} cannot be read{}", address.why(&e)));
        match address.advice(&e) {
            Some(advice) => failure.next(advice),
            None => failure,
        }
    };
    let request = transport.get(address.as_str());
    let response = request.and_then(|request| http::send(request, REQUEST_TIMEOUT)).map_err(failed)?;
    match response.status() {
        404 => Ok(None),
        200 => response.bytes(u64::try_from(most).unwrap_or(u64::MAX)).map(Some).map_err(failed),
        status => Err(Failure::new(
            if status >= 500 { Exit::ServerError } else { Exit::UnknownAnswer },
            format!("{address} cannot be read: HTTP {status}"),
        )),
    }
}

/// A file's bytes. None: there is no such file.
fn read(path: &Path, most: usize) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {most} bytes")));
    }
    Ok(Some(bytes))
}
