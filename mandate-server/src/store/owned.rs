//! A database in the hands of a server.

use std::time::Duration;

use mandate_core::Timestamp;

use super::sqlite::owner::Owner;
use super::{Place, Schema, place, postgres, sqlite};
use crate::error::Fault;

/// A database that this process may serve, until it is dropped. A SQLite file belongs to one process at a time;
/// PostgreSQL serves any number.
#[derive(Debug)]
pub enum Owned {
    /// A file, which no other process can own.
    Sqlite(Owner),
    /// The URL of a PostgreSQL database.
    Postgres(String),
}

impl Owned {
    /// Takes a database. Waits for `patience` while another process owns it.
    ///
    /// # Errors
    /// The name is not of a known database; or another process owns it still, which the fault names.
    pub fn take(database: &str, patience: Duration) -> Result<Self, Fault> {
        Ok(match place(database)? {
            Place::Sqlite(path) => Self::Sqlite(Owner::take(&path, patience)?),
            Place::Postgres(url) => Self::Postgres(url.to_owned()),
        })
    }

    /// Brings the database up to the newest schema: all of the way, or not at all. On PostgreSQL it then makes the
    /// partitions that are missing for a year, if the role owns the tables. `time` is the time that counts where the
    /// database's clock shows the given one. Says what it was before.
    ///
    /// # Errors
    /// It is not the database of such a server, or newer than this program, or cannot be changed; or a transfer fills it.
    pub fn migrate(&self, time: &dyn Fn(Timestamp) -> Timestamp) -> Result<Schema, Fault> {
        match self {
            Self::Sqlite(owner) => sqlite::upkeep::migrate(owner.path()),
            Self::Postgres(url) => postgres::upkeep::migrate(url, time),
        }
    }

    /// Writes down what this process does with the database, for others that want it: after "process 12 on host h".
    ///
    /// # Errors
    /// The file that says so cannot be written.
    pub(super) fn say(&mut self, what: &str) -> Result<(), Fault> {
        match self {
            Self::Sqlite(owner) => owner.say(what),
            Self::Postgres(_) => Ok(()),
        }
    }
}
