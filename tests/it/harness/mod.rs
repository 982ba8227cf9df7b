//! What the tests share. It uses public interfaces only: the command lines, HTTP, and the published key set.

pub(crate) mod campaign;
mod client;
mod command;
mod ledger;
mod replicas;
mod server;
mod world;

pub(crate) use self::client::{Answer, Client, masked};
pub(crate) use self::command::{Ran, binary, mandate};
pub(crate) use self::ledger::Ledger;
pub(crate) use self::replicas::Replicas;
pub(crate) use self::server::{DEADLINE, TestServer};
pub(crate) use self::world::{Agent, Organization, authorization, terms};
