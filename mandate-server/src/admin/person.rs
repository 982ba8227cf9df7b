//! `person`: people who answer reviews in the console, and their passkeys.

mod view;

use std::sync::Arc;

use clap::Subcommand;
use mandate_core::people::{CredentialId, RelyingParty};
use mandate_core::{AgentName, EnvironmentKind, PersonId, Principal};
use serde_json::json;

use super::selection::environment;
use super::{Common, Failure, operator, terminal};
use crate::clock::{Ids, SystemClock, SystemEntropy};
use crate::model::call::ScriptError;
use crate::model::people::PersonRecord;
use crate::service::moments::Moments;
use crate::service::people::{self, Listed, May, New, Secret, sessions};
use crate::store::tx::Tx;
use view::{SessionView, View, table};

/// People.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a person, and print the link by which they register a passkey
    #[command(after_help = CREATE_HELP)]
    Create {
        #[command(flatten)]
        of: Of,

        /// The name that reviews and audit records show
        #[arg(long, value_name = "NAME", value_parser = name)]
        name: String,

        /// A principal that the person is, as mandates name it, such as role:cfo; several times for several
        #[arg(long = "role", value_name = "ROLE", required = true, value_parser = Principal::parse)]
        roles: Vec<Principal>,

        /// What the person may do: read, or review
        #[arg(long, value_name = "WHAT", value_parser = May::parse)]
        may: May,

        #[command(flatten)]
        console: Console,

        #[command(flatten)]
        common: Common,
    },
    /// List people and their passkeys
    #[command(
        after_help = "Examples:\n  mandate-server person list --organization acme --environment production"
    )]
    List {
        #[command(flatten)]
        of: Of,

        #[command(flatten)]
        common: Common,
    },
    /// Print another link for a person; one before it that was not used ends
    #[command(after_help = ENROL_HELP)]
    Enrol {
        #[command(flatten)]
        of: Of,

        /// The person, as `person list` shows them
        #[arg(value_name = "PERSON", value_parser = PersonId::parse)]
        person: PersonId,

        #[command(flatten)]
        console: Console,

        #[command(flatten)]
        common: Common,
    },
    /// Withdraw one passkey of a person, for ever, and end the sessions that it opened
    #[command(after_help = WITHDRAW_HELP)]
    Withdraw {
        #[command(flatten)]
        of: Of,

        /// The person
        #[arg(value_name = "PERSON", value_parser = PersonId::parse)]
        person: PersonId,

        /// The passkey, as `person list` shows it
        #[arg(long, value_name = "ID", value_parser = CredentialId::parse, allow_hyphen_values = true)]
        credential: CredentialId,

        /// Do not ask
        #[arg(long)]
        yes: bool,

        #[command(flatten)]
        common: Common,
    },
    /// Disable a person for ever: all passkeys are withdrawn, all sessions and links end
    #[command(after_help = DISABLE_HELP)]
    Disable {
        #[command(flatten)]
        of: Of,

        /// The person
        #[arg(value_name = "PERSON", value_parser = PersonId::parse)]
        person: PersonId,

        /// Do not ask
        #[arg(long)]
        yes: bool,

        #[command(flatten)]
        common: Common,
    },
    /// List who is signed in
    #[command(
        after_help = "Examples:\n  mandate-server person sessions --organization acme --environment production"
    )]
    Sessions {
        #[command(flatten)]
        of: Of,

        #[command(flatten)]
        common: Common,
    },
    /// End a session
    #[command(
        after_help = "Examples:\n  mandate-server person end-session --organization acme --environment production 7"
    )]
    EndSession {
        #[command(flatten)]
        of: Of,

        /// The number of the session, as `person sessions` shows it
        #[arg(value_name = "SESSION")]
        session: i64,

        #[command(flatten)]
        common: Common,
    },
}

/// Whose people.
#[derive(Debug, clap::Args)]
pub struct Of {
    /// The organization
    #[arg(long, value_name = "NAME", value_parser = AgentName::parse)]
    organization: AgentName,

    /// Its sandbox, or production
    #[arg(long, value_name = "KIND", value_parser = environment)]
    environment: EnvironmentKind,
}

/// Where people open the console.
#[derive(Debug, clap::Args)]
pub struct Console {
    /// The origin of the console as people see it, with which the link begins: https and a host [default: the setting]
    #[arg(long, value_name = "URL", value_parser = origin)]
    console_url: Option<String>,
}

impl Console {
    /// The origin that was given, or that of the settings.
    fn address(self, common: &Common) -> Result<String, Failure> {
        if let Some(url) = self.console_url {
            return Ok(url);
        }
        let unknown =
            "where people open the console is not known: give --console-url, or the setting console_url";
        common.settings()?.console_url.ok_or_else(|| Failure::unusable(unknown))
    }
}

const CREATE_HELP: &str = "\
Examples:
  mandate-server person create --organization acme --environment production --name 'Ada Lovelace' \\
      --role role:cfo --may review --console-url https://console.example.com

The link is good once and for a day, and a finished registration alone uses it up. Give it to the person over a channel that \
is theirs: who has it first is that person for the service. A person of an organization's sandbox is another one than in production.";

const ENROL_HELP: &str = "\
Examples:
  mandate-server person enrol --organization acme --environment production per_01jxs6m2t0f3k9v8q4r7w5x1yz \\
      --console-url https://console.example.com

For a second passkey, or in place of one that was lost: withdraw that one too.";

const WITHDRAW_HELP: &str = "\
Examples:
  mandate-server person withdraw --organization acme --environment production per_01jxs6m2t0f3k9v8q4r7w5x1yz \\
      --credential q83vEjRWeJA

Answers that it gave before stay good, and the public log says when it was withdrawn.";

const DISABLE_HELP: &str = "\
Examples:
  mandate-server person disable --organization acme --environment production per_01jxs6m2t0f3k9v8q4r7w5x1yz

Answers that the person gave before stay good.";

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// There is no such organization, person, passkey or session, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Create { of, name, roles, may, console, common } => {
                create(&of, (name, roles, may), &console.address(&common)?, &common)
            }
            Self::List { of, common } => list(&of, &common),
            Self::Enrol { of, person, console, common } => {
                enrol(&of, person, &console.address(&common)?, &common)
            }
            Self::Withdraw { of, person, credential, yes, common } => {
                withdraw(&of, (person, &credential), yes, &common)
            }
            Self::Disable { of, person, yes, common } => disable(&of, person, yes, &common),
            Self::Sessions { of, common } => list_sessions(&of, &common),
            Self::EndSession { of, session, common } => {
                let (by, database) = (operator::here(), common.settings()?.database);
                terminal::run(&database, |tx| sessions::end_by_operator(tx, of.whose(), session, &by))?;
                terminal::print(common.json, &json!({ "session": session }), |out| {
                    writeln!(out, "Session {session} has ended.")
                })
            }
        }
    }
}

impl Of {
    fn whose(&self) -> (&AgentName, EnvironmentKind) {
        (&self.organization, self.environment)
    }

    /// The link by which a passkey is registered. Its secret is behind the `#`, which browsers do not send.
    fn link(&self, console: &str, secret: &Secret) -> String {
        format!("{console}/{}/{}/enrol#{}", self.environment, self.organization, *secret.to_text())
    }
}

fn create(
    of: &Of,
    (name, roles, may): (String, Vec<Principal>, May),
    console: &str,
    common: &Common,
) -> Result<(), Failure> {
    let (by, (moments, ids)) = (operator::here(), moments());
    let id = PersonId::from_bytes(ids.fresh(by.at));
    let new = New { id, name, roles, may, secret: Secret::new(ids.random()) };
    let (database, link) = (common.settings()?.database, of.link(console, &new.secret));
    let script = |tx: &mut Tx<'_>| people::create(tx, &moments, of.whose(), &new, &by);
    hand_out(&database, script, (&link, common))
}

fn enrol(of: &Of, person: PersonId, console: &str, common: &Common) -> Result<(), Failure> {
    let (by, (moments, ids)) = (operator::here(), moments());
    let secret = Secret::new(ids.random());
    let (database, link) = (common.settings()?.database, of.link(console, &secret));
    let script = |tx: &mut Tx<'_>| people::enrol(tx, &moments, of.whose(), (person, &secret), &by);
    hand_out(&database, script, (&link, common))
}

/// Shows a person and a link before the link counts.
fn hand_out(
    database: &str,
    script: impl Fn(&mut Tx<'_>) -> Result<PersonRecord, ScriptError>,
    (link, common): (&str, &Common),
) -> Result<(), Failure> {
    terminal::hand_out(database, script, |record, out| {
        let listed = Listed { record: record.clone(), keys: Vec::new() };
        let view = View::of(&listed).with_link(link);
        if common.json {
            return terminal::json(out, &view);
        }
        table(out, &[view])?;
        writeln!(out, "\n{link}\n")
    })?;
    terminal::note("The link is good once, for a day. It is shown this once: give it to the person now.");
    Ok(())
}

fn list(of: &Of, common: &Common) -> Result<(), Failure> {
    let listed = terminal::run(&common.settings()?.database, |tx| people::list(tx, of.whose()))?;
    let views: Vec<_> = listed.iter().map(View::of).collect();
    terminal::print(common.json, &views, |out| table(out, &views))
}

fn withdraw(
    of: &Of,
    (person, credential): (PersonId, &CredentialId),
    yes: bool,
    common: &Common,
) -> Result<(), Failure> {
    let (by, (moments, _), database) = (operator::here(), moments(), common.settings()?.database);
    terminal::confirm(&format!("This withdraws, for ever:\n  the passkey {credential} of {person}"), yes)?;
    let key =
        terminal::run(&database, |tx| people::withdraw(tx, &moments, of.whose(), (person, credential), &by))?;
    let done = json!({ "person": person, "credential": credential, "withdrawn_at": key.withdrawn_at });
    terminal::print(common.json, &done, |out| {
        writeln!(out, "The passkey {credential} ({}) is withdrawn.", key.label)
    })
}

fn disable(of: &Of, person: PersonId, yes: bool, common: &Common) -> Result<(), Failure> {
    let (by, (moments, _), database) = (operator::here(), moments(), common.settings()?.database);
    let question = format!("This disables, for ever:\n  {person} of {}, {}", of.organization, of.environment);
    terminal::confirm(&question, yes)?;
    let record = terminal::run(&database, |tx| people::disable(tx, &moments, of.whose(), person, &by))?;
    let done = json!({ "person": person, "disabled_at": record.disabled_at });
    terminal::print(common.json, &done, |out| {
        writeln!(out, "{} ({person}) is disabled. Every passkey is withdrawn.", record.person.name)
    })
}

fn list_sessions(of: &Of, common: &Common) -> Result<(), Failure> {
    let (moments, _) = moments();
    let database = common.settings()?.database;
    let listed = terminal::run(&database, |tx| sessions::list(tx, &moments, of.whose()))?;
    let views: Vec<_> = listed.iter().map(SessionView::of).collect();
    terminal::print(common.json, &views, |out| {
        let heads = ["SESSION", "PERSON", "NAME", "SINCE", "LAST USED", "PASSKEY"];
        let rows = views.iter().map(|view| {
            [
                view.session.to_string(),
                view.person.to_string(),
                view.name.to_owned(),
                terminal::instant(Some(view.created_at)),
                terminal::instant(Some(view.seen_at)),
                view.credential.to_string(),
            ]
        });
        terminal::table(out, heads, rows)
    })
}

fn moments() -> (Moments, Arc<Ids>) {
    let ids = Arc::new(Ids::new(Arc::new(SystemEntropy)));
    (Moments::new(Arc::new(SystemClock), Arc::clone(&ids)), ids)
}

fn name(text: &str) -> Result<String, String> {
    people::name("name", text).map_err(|e| e.to_string())
}

fn origin(text: &str) -> Result<String, String> {
    let party = RelyingParty::of_origin(text).map_err(|e| e.to_string())?;
    Ok(party.origin().to_owned())
}
