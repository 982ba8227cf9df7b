//! A database with an organization and its agents, made in seconds by the server's own scripts.
//!
//! Over the API it would take a quarter of an hour: an organization's key makes 6,000 requests a minute.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mandate_core::api_key::{ApiKey, KeyClass};
use mandate_core::json::Object;
use mandate_core::{AgentId, AgentName, EnvironmentKind, RequestId, Terms, Timestamp};
use mandate_server::clock::{Entropy as _, Ids, SystemClock, SystemEntropy};
use mandate_server::error::Fault;
use mandate_server::model::call::{Call, ScriptError};
use mandate_server::service::moments::Moments;
use mandate_server::service::{agents, keys, mandates, organizations};
use mandate_server::store;
use serde_json::json;

use crate::Failure;

/// How many agents ask in one run. Each may ask ten times a minute.
pub(crate) const AGENTS: usize = 30_000;
/// How long agents rest before they ask again: after that all that they have asked is forgotten by the velocity rule.
pub(crate) const REST: Duration = Duration::from_secs(61);
/// How many sets of so many agents there are, for runs one after the other on one database.
pub(crate) const SETS: usize = 3;
/// How many agents are registered in one transaction.
const AT_A_TIME: usize = 1_000;
/// The server's master key. Nothing that it protects is kept.
pub(crate) const MASTER_KEY: &str = "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b";

/// A directory with a database that servers are started on, or on copies of it.
#[derive(Debug)]
pub(crate) struct Template {
    directory: PathBuf,
    /// The organization's key of the sandbox.
    pub(crate) organization_key: ApiKey,
    /// The key of the last agent of the first set.
    pub(crate) agent_key: ApiKey,
}

/// The database in a directory.
pub(crate) fn database(directory: &Path) -> PathBuf {
    directory.join("mandate.db")
}

/// The database of the developer's server in a directory.
pub(crate) fn developer_database(directory: &Path) -> PathBuf {
    directory.join("mandate-dev.db")
}

impl Template {
    /// Makes it, as of that time.
    pub(crate) fn make(directory: &Path, now: Timestamp) -> Result<Self, Failure> {
        std::fs::create_dir(directory)?;
        let path = database(directory);
        let url = format!("sqlite://{}", path.display());
        store::migrate(&url)?;
        let organization_key = draw(KeyClass::Organization, EnvironmentKind::Sandbox);
        let call = done(store::run_once(&url, |tx| {
            let command = organizations::Create {
                name: AgentName::parse("bench")?,
                sandbox_key: organization_key.clone(),
                live_key: draw(KeyClass::Organization, EnvironmentKind::Production),
                at: now,
            };
            organizations::create(tx, &command)?;
            let caller = keys::find(tx, &organization_key.hash(), now)?;
            let caller = Arc::new(caller.ok_or_else(|| Fault::new("the organization is not there"))?);
            Ok(Call { caller, request_id: RequestId::new(now, 0), at: now, idempotency: None })
        }))?;
        let mut last = None;
        for set in 0..SETS {
            let mut lines = String::new();
            for first in (0..AGENTS).step_by(AT_A_TIME) {
                let numbers = set * AGENTS + first..set * AGENTS + first + AT_A_TIME;
                for (agent, key) in register(&url, &call, numbers, now)? {
                    writeln!(lines, "{}", key.expose())?;
                    last = last.filter(|_| set > 0).or(Some((agent, key)));
                }
            }
            std::fs::write(keys_file(directory, set), lines)?;
        }
        let (_, agent_key) = last.ok_or("there are no agents")?;
        Ok(Self { directory: directory.to_owned(), organization_key, agent_key })
    }

    /// One that was made before, with the keys that it had.
    pub(crate) fn at(directory: &Path, organization_key: ApiKey, agent_key: ApiKey) -> Self {
        Self { directory: directory.to_owned(), organization_key, agent_key }
    }

    /// Where it is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file of the agents' keys of a set.
    pub(crate) fn keys(&self, set: usize) -> PathBuf {
        keys_file(&self.directory, set % SETS)
    }

    /// Copies the database into a new directory, with the keys beside it, for a server for developers.
    pub(crate) fn copy_for_developer(&self, directory: &Path) -> Result<(), Failure> {
        std::fs::create_dir(directory)?;
        std::fs::copy(database(&self.directory), developer_database(directory))?;
        let keys = json!({
            "master_key": MASTER_KEY,
            "organization_key": self.organization_key.expose(),
            // It belongs to no organization, and is not used.
            "live_organization_key": draw(KeyClass::Organization, EnvironmentKind::Production).expose(),
        });
        Ok(std::fs::write(directory.join("mandate-dev.json"), keys.to_string())?)
    }

    /// The database, as the server names it.
    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}", database(&self.directory).display())
    }

    /// Copies the database into a new directory.
    pub(crate) fn copy_to(&self, directory: &Path) -> Result<(), Failure> {
        std::fs::create_dir(directory)?;
        std::fs::copy(database(&self.directory), database(directory))?;
        Ok(())
    }
}

fn keys_file(directory: &Path, set: usize) -> PathBuf {
    directory.join(format!("keys.{set}"))
}

/// Registers agents, each with a mandate.
fn register(
    url: &str,
    call: &Call,
    numbers: std::ops::Range<usize>,
    now: Timestamp,
) -> Result<Vec<(AgentId, ApiKey)>, Failure> {
    let ids = Arc::new(Ids::new(Arc::new(SystemEntropy)));
    let moments = Arc::new(Moments::new(Arc::new(SystemClock), Arc::clone(&ids)));
    done(store::run_once(url, |tx| {
        let mut registered = Vec::new();
        for number in numbers {
            let (name, key) = (AgentName::parse(&format!("bench-{number:05}"))?, agent_key());
            let agent = AgentId::of(&name);
            agents::create(tx, call, &agents::Create { name, key: key.clone(), id: ids.next(now), at: now })?;
            let terms = include_str!("../../mandate.json").replace("AGENT", agent.as_str());
            let terms = Terms::read(Object::parse(terms.as_bytes())?)?;
            mandates::create(tx, call, &mandates::Create { terms, moments: Arc::clone(&moments) })?;
            registered.push((agent, key));
        }
        Ok::<_, ScriptError>(registered)
    }))
}

fn agent_key() -> ApiKey {
    draw(KeyClass::Agent, EnvironmentKind::Sandbox)
}

fn draw(class: KeyClass, kind: EnvironmentKind) -> ApiKey {
    let mut random = [0; 32];
    SystemEntropy.fill(&mut random);
    ApiKey::from_random(class, kind, &random)
}

fn done<T>(ended: Result<Result<T, mandate_server::error::Refusal>, Fault>) -> Result<T, Failure> {
    ended?.map_err(|refusal| refusal.message.into())
}
