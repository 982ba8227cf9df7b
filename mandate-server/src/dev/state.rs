//! The files of `dev`: the database, and a file with the keys that the database does not hold.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use mandate_core::EnvironmentKind;
use mandate_core::api_key::ApiKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::admin::organization::new_key;
use crate::clock::Entropy;
use crate::error::Fault;
use crate::model::database::SQLITE;

const DATABASE: &str = "mandate-dev.db";
/// The directory of its exports.
const EXPORTS: &str = "mandate-dev.db-exports";
/// The last checkpoints of the public logs.
const CHECKPOINTS: &str = "mandate-dev.db-checkpoints";
/// SQLite's other files of the database.
const BESIDE: [&str; 2] = ["mandate-dev.db-wal", "mandate-dev.db-shm"];
const KEYS: &str = "mandate-dev.json";
/// Locked while a server works in the directory.
const LOCK: &str = "mandate-dev.lock";
/// The file of keys while it is being written.
const KEYS_UNFINISHED: &str = "mandate-dev.json.new";
/// Only the owner may read it.
const KEYS_MODE: u32 = 0o600;

/// The directory of a demonstration, and its keys.
pub(super) struct Data {
    directory: PathBuf,
    pub(super) keys: Keys,
}

/// The keys of a demonstration. They are of no use elsewhere.
#[derive(Serialize, Deserialize)]
pub(super) struct Keys {
    pub(super) master_key: String,
    pub(super) organization_key: String,
    pub(super) live_organization_key: String,
    /// The key of the demonstration's agent, once it is registered.
    pub(super) agent_key: Option<String>,
    /// The result of the demonstration, once it was played.
    pub(super) played: Option<Played>,
}

/// The result of the demonstration.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Played {
    /// The token of the first verdict.
    pub(super) token: String,
    /// Its issuer: the address of the public listener at that time.
    pub(super) issuer: String,
    /// When it was signed, in seconds since the Unix epoch.
    pub(super) at: i64,
}

/// Locks the directory for this process until the returned file is dropped, so that no two processes serve or
/// delete it.
pub(super) fn lock(directory: &Path) -> Result<fs::File, Fault> {
    let unusable = |e| Fault::new(format!("the directory {} cannot be used: {e}", directory.display()));
    fs::create_dir_all(directory).map_err(unusable)?;
    let open = OpenOptions::new().write(true).create(true).truncate(false).open(directory.join(LOCK));
    let file = open.map_err(unusable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(Fault::new(format!(
            "another service runs in the directory {}; stop it first, or pass another one with --data",
            directory.display()
        ))),
        Err(fs::TryLockError::Error(e)) => Err(unusable(e)),
    }
}

impl Data {
    /// Opens the files of an earlier start in `directory`, or draws new keys.
    pub(super) fn open(directory: &Path, fresh: bool, entropy: &dyn Entropy) -> Result<Self, Fault> {
        let unusable = |e| Fault::new(format!("the directory {} cannot be used: {e}", directory.display()));
        let directory = directory.canonicalize().map_err(unusable)?;
        if fresh {
            remove(&directory)?;
        }
        if directory.join(DATABASE).exists() {
            let keys = read(&directory.join(KEYS))?;
            return Ok(Self { directory, keys });
        }
        let data = Self { directory, keys: Keys::new(entropy) };
        data.keep()?;
        Ok(data)
    }

    /// The database, as `--database` names it.
    pub(super) fn database(&self) -> String {
        format!("{SQLITE}{}", self.directory.join(DATABASE).display())
    }

    pub(super) fn organization_key(&self) -> Result<ApiKey, Fault> {
        self.key(&self.keys.organization_key)
    }

    pub(super) fn live_organization_key(&self) -> Result<ApiKey, Fault> {
        self.key(&self.keys.live_organization_key)
    }

    fn key(&self, text: &str) -> Result<ApiKey, Fault> {
        ApiKey::parse(text).map_err(|e| unreadable(&self.directory.join(KEYS), &e))
    }

    /// Writes the file of keys as a whole, or not at all.
    pub(super) fn keep(&self) -> Result<(), Fault> {
        let path = self.directory.join(KEYS);
        let text = serde_json::to_string_pretty(&self.keys).map(Zeroizing::new);
        let text = text.map_err(|e| unreadable(&path, &e))?;
        let unfinished = self.directory.join(KEYS_UNFINISHED);
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(KEYS_MODE)
            .open(&unfinished)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&unfinished, &path));
        written.map_err(|e| Fault::new(format!("the file {} cannot be written: {e}", path.display())))
    }
}

impl Keys {
    fn new(entropy: &dyn Entropy) -> Self {
        let mut master = Zeroizing::new([0; 32]);
        entropy.fill(&mut *master);
        let organization = |kind| new_key(kind, entropy).expose().to_owned();
        Self {
            master_key: format!("{:x}", Bytes::copy_from_slice(&*master)),
            organization_key: organization(EnvironmentKind::Sandbox),
            live_organization_key: organization(EnvironmentKind::Production),
            agent_key: None,
            played: None,
        }
    }
}

fn read(path: &Path) -> Result<Keys, Fault> {
    match fs::read(path).map(Zeroizing::new) {
        Ok(text) => serde_json::from_slice(&text).map_err(|e| unreadable(path, &e)),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(Fault::new(format!(
            "{DATABASE} is there, and {KEYS} with its keys is not; --fresh starts over"
        ))),
        Err(e) => Err(unreadable(path, &e)),
    }
}

fn unreadable(path: &Path, why: &dyn std::fmt::Display) -> Fault {
    Fault::new(format!("the file {} cannot be read: {why}; --fresh starts over", path.display()))
}

/// Deletes the database, its exports, its last checkpoints and the keys. The keys are deleted last: a database without them
/// could not be opened.
fn remove(directory: &Path) -> Result<(), Fault> {
    for name in [EXPORTS, CHECKPOINTS] {
        match fs::remove_dir_all(directory.join(name)) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(Fault::new(format!("the directory {name} cannot be deleted: {e}")));
            }
            _ => {}
        }
    }
    for name in [DATABASE].into_iter().chain(BESIDE).chain([KEYS]) {
        let path = directory.join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(Fault::new(format!("the file {} cannot be deleted: {e}", path.display())));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemEntropy;
    use std::os::unix::fs::PermissionsExt as _;

    fn open(directory: &Path, fresh: bool) -> Result<Data, Fault> {
        Data::open(directory, fresh, &SystemEntropy)
    }

    #[test]
    fn keys_are_kept_for_their_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let first = open(directory.path(), false).unwrap();
        let mode = fs::metadata(directory.path().join(KEYS)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, KEYS_MODE);
        fs::write(directory.path().join(DATABASE), "").unwrap();
        let second = open(directory.path(), false).unwrap();
        assert_eq!(first.keys.master_key, second.keys.master_key);
        assert_eq!(first.keys.organization_key, second.keys.organization_key);
        let third = open(directory.path(), true).unwrap();
        assert_ne!(first.keys.master_key, third.keys.master_key);
        assert!(!directory.path().join(DATABASE).exists());
    }

    #[test]
    fn a_directory_is_for_one_service_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let held = lock(directory.path()).unwrap();
        let refused = lock(directory.path()).unwrap_err().to_string();
        assert!(refused.contains("another service runs"), "{refused}");
        drop(held);
        assert!(lock(&directory.path().join("new")).is_ok() && lock(directory.path()).is_ok());
    }

    #[test]
    fn a_database_without_its_keys_is_not_started_over_unasked() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(DATABASE), "").unwrap();
        let refused = open(directory.path(), false).err().unwrap().to_string();
        assert!(refused.contains("--fresh"), "{refused}");
        assert!(directory.path().join(DATABASE).exists());
        assert!(open(directory.path(), true).is_ok());
    }

    #[test]
    fn the_database_is_named_from_anywhere() {
        let directory = tempfile::tempdir().unwrap();
        let database = open(directory.path(), false).unwrap().database();
        assert!(database.starts_with("sqlite:///") && database.ends_with("/mandate-dev.db"), "{database}");
    }
}
