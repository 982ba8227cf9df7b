//! Databases for tests, of both kinds: each new and empty, and gone when it is dropped.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::cluster::dump;
use crate::shared::shared;

/// The file of a database in its folder.
const FILE: &str = "test.db";

/// What a database runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file of its own.
    Sqlite,
    /// A database of its own in a cluster.
    Postgres,
}

/// A database that no other test uses.
#[derive(Debug)]
pub struct Database {
    url: String,
    keep: Keep,
}

#[derive(Debug)]
enum Keep {
    Folder(TempDir),
    Named(String),
}

impl Kind {
    /// A new, empty database.
    #[must_use]
    pub fn fresh(self) -> Database {
        match self {
            Self::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                let url = format!("sqlite://{}", folder.path().join(FILE).display());
                Database { url, keep: Keep::Folder(folder) }
            }
            Self::Postgres => {
                let name = new_name();
                shared().create(&name);
                Database { url: shared().url(&name), keep: Keep::Named(name) }
            }
        }
    }

    /// A new database with the schema that `migrate` makes, and no rows.
    #[must_use]
    pub fn migrated(self, migrate: impl FnOnce(&str)) -> Database {
        match self {
            Self::Sqlite => {
                let database = self.fresh();
                migrate(database.url());
                database
            }
            Self::Postgres => {
                let name = new_name();
                shared().create_migrated(&name, migrate);
                Database { url: shared().url(&name), keep: Keep::Named(name) }
            }
        }
    }
}

impl Database {
    /// Its name, as `--database` takes it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether this text is in it anywhere, in a text or as bytes. A file should have been closed before.
    #[must_use]
    pub fn holds(&self, text: &str) -> bool {
        let within =
            |stored: &[u8], part: &str| stored.windows(part.len()).any(|window| window == part.as_bytes());
        match &self.keep {
            Keep::Folder(folder) => within(&std::fs::read(folder.path().join(FILE)).unwrap(), text),
            Keep::Named(name) => {
                let hexadecimal = text.bytes().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
                let stored = dump(&shared().url(name));
                within(&stored, text) || within(&stored, &hexadecimal)
            }
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Keep::Named(name) = &self.keep {
            shared().delete(name);
        }
    }
}

/// A name that no other test has, of this process or another.
pub(crate) fn new_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let random = RandomState::new().hash_one(std::process::id());
    format!("mandate_test_{random:016x}_{}", COUNT.fetch_add(1, Ordering::Relaxed))
}
