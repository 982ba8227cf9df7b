//! `mandate login`, `whoami`, `switch`, `logout`, `profile`: an address and a key with a name.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

use clap::Subcommand;
use mandate_core::EnvironmentKind;
use mandate_core::api_key::{ApiKey, KeyClass};
use serde::Serialize;

use crate::client::Client;
use crate::credential::{self, Access};
use crate::environment::variable;
use crate::exit::{Exit, Failure};
use crate::fields;
use crate::global::Global;
use crate::http::Address;
use crate::input::{Source, without_line_break};
use crate::key_set::in_use;
use crate::named::picked;
use crate::output::{Output, note};
use crate::profile::{Profile as Stored, Profiles, name, names};
use crate::prompt;
use crate::resource::Resource;
use crate::service::Service;
use crate::table::{environment, state, text, whole};

/// Store a base URL and an API key as a profile, after the service has accepted them
///
/// On a terminal, login asks for what is missing. The key is never a command-line argument: type it, or read it from a file
/// or standard input. A profile is used when neither an option nor an environment variable gives a key.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate login
  mandate login sandbox --base-url https://api.example.com/v1 --key-file - \\
      < organization.key")]
pub(crate) struct Login {
    /// The profile's name [default: sandbox or live, depending on the key]
    #[arg(value_parser = name, add = names())]
    name: Option<String>,
    #[command(flatten)]
    service: Service,
}

/// Show the profile and key in use, and check them with the service
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate whoami
  mandate whoami --profile live --json=environment,mode")]
pub(crate) struct Whoami {
    #[command(flatten)]
    service: Service,
}

/// Switch to another profile
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate switch live")]
pub(crate) struct Switch {
    /// The profile's name [default: a choice]
    #[arg(add = names())]
    name: Option<String>,
}

/// Delete a profile and its key from this machine
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mandate logout sandbox

The key itself stays valid until the service's operator revokes it.")]
pub(crate) struct Logout {
    /// The profile's name [default: the one in use]
    #[arg(add = names())]
    name: Option<String>,
}

/// The same commands under the noun that people of other command lines type.
#[derive(Debug, Subcommand)]
pub(crate) enum Auth {
    Status(Whoami),
    Login(Login),
    Switch(Switch),
    Logout(Logout),
}

impl Auth {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        match self {
            Self::Status(args) => args.run(global, output),
            Self::Login(args) => args.run(global, output),
            Self::Switch(args) => args.run(output),
            Self::Logout(args) => args.run(global, output),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Profile {
    /// List the profiles
    #[command(
        alias = "ls",
        after_help = "\
Examples:
  mandate profile list
  mandate profile list --jq '.[] | select(.current).name'"
    )]
    List,
}

/// What is shown of a profile, or of the key in use.
#[derive(Debug, Serialize)]
struct Identity {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<bool>,
    base_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    environment: &'static str,
    class: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
}

/// Its members.
pub(super) const MEMBERS: [&str; 8] =
    ["name", "current", "base_url", "issuer", "environment", "class", "agent", "mode"];

/// Those that a profile has.
pub(super) const LISTED: [&str; 6] = ["name", "current", "base_url", "issuer", "environment", "class"];

const IDENTITY: Resource = Resource {
    path: "",
    class: None,
    id: None,
    columns: &[
        whole("PROFILE", "name"),
        text("CURRENT", "current"),
        environment("ENVIRONMENT", "environment"),
        whole("CLASS", "class"),
        text("ADDRESS", "base_url"),
    ],
    lines: &[
        whole("profile", "name"),
        text("address", "base_url"),
        text("issuer", "issuer"),
        environment("environment", "environment"),
        text("key of", "class"),
        whole("agent", "agent"),
        state("mode", "mode"),
    ],
    tables: &[],
};

impl Identity {
    fn new(name: Option<String>, base_url: String, key: &ApiKey) -> Self {
        let class = key.class().as_str();
        Self {
            name,
            current: None,
            base_url,
            issuer: None,
            environment: key.kind().as_str(),
            class,
            agent: None,
            mode: None,
        }
    }

    /// What is kept of a profile.
    fn stored(name: &str, profile: &Stored) -> Result<Self, Failure> {
        let identity = Self::new(Some(name.to_owned()), profile.base_url.clone(), &profile.key(name)?);
        Ok(Self { issuer: profile.issuer.clone(), ..identity })
    }

    /// Asks the service for the owner of the key and the mode.
    fn ask(client: &Client) -> Result<Self, Failure> {
        let Access { base, key, profile, .. } = client.access();
        let mut identity = Self::new(profile.clone(), base.to_string(), key);
        match key.class() {
            KeyClass::Organization => identity.mode = fields::text(&client.get("/enforcement", &[])?, "mode"),
            KeyClass::Agent => {
                let agents = client.get("/agents", &[("limit", "1".to_owned())])?;
                let own = fields::items(&agents, "data").unwrap_or_default();
                identity.agent = own.first().and_then(|agent| fields::text(agent, "id"));
            }
        }
        Ok(identity)
    }

    fn json(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|e| Failure::new(Exit::Io, e.to_string()))
    }
}

impl Login {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let base = self.address()?;
        let key = self.key()?;
        let (lock, mut profiles) = Profiles::for_change()?;
        let usual = match key.kind() {
            EnvironmentKind::Sandbox => "sandbox",
            EnvironmentKind::Production => "live",
        };
        let asked = self.name.clone().or(global.profile.clone());
        let name = asked.unwrap_or_else(|| usual.to_owned());
        must_not_hide_another(&profiles, &name, &base, &key)?;
        let access = Access { base: base.clone(), key, profile: Some(name.clone()), hidden: None };
        let client = Client::with(access, None, global.yes)?;
        let mut identity = Identity::ask(&client)?;
        identity.issuer = client.issuer().filter(|text| text.parse::<Address>().is_ok());
        let stored = Stored::new(base.to_string(), identity.issuer.clone(), &client.access().key);
        profiles.profiles.insert(name.clone(), stored);
        profiles.current = Some(name);
        let path = profiles.save(&lock)?;
        IDENTITY.show(&identity.json()?, output)?;
        note(format_args!("kept in {}, which only you can read", path.display()));
        if identity.issuer.is_none() {
            note(
                "the service names no issuer: verify, listen and audit need --issuer URL, or MANDATE_ISSUER",
            );
        }
        Ok(Exit::Success)
    }

    fn address(&self) -> Result<Address, Failure> {
        let known = match &self.service.base_url {
            Some(text) => Some(text.clone()),
            None => variable("MANDATE_BASE_URL")?.map(|text| text.to_string()),
        };
        let text = match (&self.service.base_url, known) {
            (Some(text), _) => text.clone(),
            (None, known) if prompt::can_ask() => prompt::text("The service's address:", known.as_deref())?,
            (None, Some(text)) => text,
            (None, None) => {
                return Err(Failure::new(Exit::Usage, "the service's base URL is not known")
                    .next("pass --base-url https://api.example.com/v1"));
            }
        };
        credential::address(&text, "the address")
    }

    fn key(&self) -> Result<ApiKey, Failure> {
        match &self.service.key_file {
            Some(source) => credential::read(source, None),
            None if prompt::can_ask() => {
                let text = prompt::secret("The API key (it is not shown):")?;
                credential::parse(without_line_break(&text), "the terminal", None)
            }
            None => credential::read(&Source::Stdin, None),
        }
    }
}

/// Refuses to overwrite a key that may be the only copy, unless the service no longer accepts it.
fn must_not_hide_another(
    profiles: &Profiles,
    name: &str,
    base: &Address,
    key: &ApiKey,
) -> Result<(), Failure> {
    let Some(there) = profiles.profiles.get(name) else { return Ok(()) };
    let Ok(old) = there.key(name) else { return Ok(()) };
    let class = old.class();
    let is_same_kind = there.base_url == base.as_str() && (class, old.kind()) == (key.class(), key.kind());
    if is_same_kind && (old.expose() == key.expose() || is_refused(base, old)?) {
        return Ok(());
    }
    let other = if is_same_kind { "another key, which is still valid:" } else { "it is" };
    let whose = format!("{other} an {class}'s key for {}", there.base_url);
    Err(Failure::new(Exit::Usage, format!("the profile `{name}` is there already, and {whose}"))
        .next(format_args!("give this one another name, mandate login NAME; or first mandate logout {name}")))
}

/// Whether the service no longer accepts this key.
fn is_refused(base: &Address, key: ApiKey) -> Result<bool, Failure> {
    let client = Client::with(Access { base: base.clone(), key, profile: None, hidden: None }, None, true)?;
    Ok(Identity::ask(&client).is_err_and(|failure| failure.exit == Exit::Unauthorized))
}

impl Whoami {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let client = Client::new(&self.service, global, None)?;
        let mut identity = Identity::ask(&client)?;
        if identity.name.is_some() {
            identity.issuer = in_use(None, global)?;
        }
        IDENTITY.show(&identity.json()?, output)
    }
}

impl Switch {
    pub(super) fn run(&self, output: &mut Output) -> Result<Exit, Failure> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => chosen()?,
        };
        let (lock, mut profiles) = Profiles::for_change()?;
        let profile = profiles.named(&name)?;
        let identity = Identity::stored(&name, profile)?;
        profiles.current = Some(name);
        profiles.save(&lock)?;
        IDENTITY.show(&identity.json()?, output)
    }
}

/// Every profile as JSON.
fn rows(profiles: &Profiles) -> Result<Vec<String>, Failure> {
    let current = profiles.chosen(None)?;
    let row = |(name, profile): (&String, &Stored)| {
        let mut identity = Identity::stored(name, profile)?;
        identity.current = Some(current.as_ref() == Some(name));
        identity.json()
    };
    profiles.profiles.iter().map(row).collect()
}

/// The profile that a person at the terminal chooses.
fn chosen() -> Result<String, Failure> {
    if !prompt::can_ask() {
        return Err(Failure::new(Exit::Usage, "the profile is not named")
            .next("mandate profile list shows those that there are"));
    }
    let profiles = Profiles::load()?;
    let rows = rows(&profiles)?;
    if rows.is_empty() {
        return Err(
            Failure::new(Exit::NotFound, "there is no profile to choose").next("mandate login makes one")
        );
    }
    let at = picked("profile", IDENTITY.columns, rows.iter().map(String::as_str))?;
    Ok(profiles.profiles.into_keys().nth(at).unwrap_or_default())
}

impl Logout {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        let (lock, mut profiles) = Profiles::for_change()?;
        let asked = self.name.as_deref().or(global.profile.as_deref());
        let Some(name) = profiles.chosen(asked)? else {
            return Err(Failure::new(Exit::Usage, "there is no profile to forget"));
        };
        let profile = profiles.named(&name)?;
        let identity = serde_json::json!({ "name": name, "base_url": profile.base_url }).to_string();
        profiles.profiles.remove(&name);
        profiles.current = profiles.current.take().filter(|current| *current != name);
        profiles.save(&lock)?;
        IDENTITY.show(&identity, output)?;
        note("forgotten here; the key itself stays valid until the service's operator revokes it");
        Ok(Exit::Success)
    }
}

impl Profile {
    pub(super) fn run(&self, output: &mut Output) -> Result<Exit, Failure> {
        let Self::List = self;
        let rows = rows(&Profiles::load()?)?;
        if output.is_json() {
            output.body(&format!("[{}]", rows.join(",")))?;
        } else if rows.is_empty() {
            note("there are no profiles; mandate login makes one");
        } else {
            output.table(IDENTITY.columns, rows.iter().map(String::as_str));
        }
        Ok(Exit::Success)
    }
}
