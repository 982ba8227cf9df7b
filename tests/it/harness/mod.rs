//! What the tests share. It uses public interfaces only: the command lines, HTTP, and the published key set.

pub(crate) mod campaign;
mod client;
mod clock;
mod command;
pub(crate) mod dying;
mod ledger;
pub(crate) mod oracle;
mod replicas;
mod server;
mod world;

pub(crate) use self::client::{Answer, Client, masked};
pub(crate) use self::clock::ShiftedClock;
pub(crate) use self::command::{Ran, binary, library, mandate};
pub(crate) use self::ledger::Ledger;
pub(crate) use self::replicas::{Replicas, Service};
pub(crate) use self::server::{DEADLINE, TestServer};
pub(crate) use self::world::{Agent, Organization, authorization, terms};

/// Makes two tests of each of these cases: on SQLite with one server, and on PostgreSQL with several.
macro_rules! on_both {
    ($($case:ident),+ $(,)?) => {$(
        mod $case {
            #[test]
            fn on_sqlite() {
                super::$case(mandate_tests::Kind::Sqlite);
            }

            #[test]
            fn on_postgres() {
                super::$case(mandate_tests::Kind::Postgres);
            }
        }
    )+};
}
pub(crate) use on_both;
