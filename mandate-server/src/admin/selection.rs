//! The arguments that select API keys.

use mandate_core::{AgentName, EnvironmentKind};

use super::Failure;
use crate::service::issuance::{KeyId, Owner, Selection};

/// Which API keys: one by its id, or those of an owner.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub struct KeyArguments {
    /// One key, by its id as `key list` shows it
    #[arg(long, value_name = "ID", conflicts_with_all = ["organization", "environment", "agent"])]
    pub key: Option<String>,

    /// The keys of this organization
    #[arg(long, value_name = "NAME", value_parser = AgentName::parse, requires = "environment")]
    pub organization: Option<AgentName>,

    /// In its sandbox, or in production
    #[arg(long, value_name = "KIND", value_parser = environment, requires = "organization")]
    pub environment: Option<EnvironmentKind>,

    /// The keys of this agent, in the place of the organization's own
    #[arg(long, value_name = "NAME", value_parser = AgentName::parse, requires = "organization")]
    pub agent: Option<AgentName>,
}

/// Whose key: an organization's in one of its environments, or one agent's there.
#[derive(Debug, clap::Args)]
pub struct OwnerArguments {
    /// The organization
    #[arg(long, value_name = "NAME", value_parser = AgentName::parse)]
    pub organization: AgentName,

    /// Its sandbox, or production
    #[arg(long, value_name = "KIND", value_parser = environment)]
    pub environment: EnvironmentKind,

    /// The agent; without it, the organization itself
    #[arg(long, value_name = "NAME", value_parser = AgentName::parse)]
    pub agent: Option<AgentName>,
}

impl KeyArguments {
    /// The selected keys.
    ///
    /// # Errors
    /// The id is malformed. It is not repeated, since it may be the key itself.
    pub fn selection(self) -> Result<Selection, Failure> {
        match self {
            Self { key: Some(key), .. } => {
                KeyId::parse(&key).map(Selection::Key).map_err(|e| Failure::unusable(format!("--{e}")))
            }
            Self { organization: Some(organization), environment: Some(kind), agent, .. } => {
                Ok(Selection::Owner(Owner { organization, kind, agent }))
            }
            _ => Err(Failure::unusable(
                "name a key with --key, or its owner with --organization and --environment",
            )),
        }
    }
}

impl From<OwnerArguments> for Owner {
    fn from(arguments: OwnerArguments) -> Self {
        let OwnerArguments { organization, environment, agent } = arguments;
        Self { organization, kind: environment, agent }
    }
}

/// Reads the kind of an environment.
///
/// # Errors
/// The text names neither kind.
pub fn environment(text: &str) -> Result<EnvironmentKind, String> {
    EnvironmentKind::parse(text).ok_or_else(|| "must be sandbox or production".to_owned())
}
