//! `mandate mandate`: create, show and revoke mandates.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod diff;
mod lint;
mod template;

pub(super) use self::diff::{Side, compare};

use clap::Subcommand;
use mandate_core::api_key::KeyClass;
use mandate_core::json::Object;
use mandate_core::{AgentId, MandateId, MandateStatus, Terms};

use crate::client::Client;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::input::Source;
use crate::mistake;
use crate::named::{Given, completed, given, to_change};
use crate::output::Output;
use crate::resource::{ListOptions, Resource};
use crate::service::{Change, Service};
use crate::table::{NO_LIMIT, NONE, agent as agent_of, id, state, text, whole};
use crate::value::{agent, mandate_status, source};

/// The longest body that the service accepts, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 64 * 1024;

#[derive(Debug, Subcommand)]
pub(crate) enum Mandate {
    /// Create a mandate, which replaces the agent's current one
    #[command(after_help = MANDATE_CREATE_HELP)]
    Create {
        /// The mandate as JSON, or `-` to read it from standard input
        #[arg(short, long, value_name = "FILE|-", value_parser = source)]
        file: Source,
        #[command(flatten)]
        change: Change,
    },
    /// List mandates, newest first; with an agent key, only its own
    #[command(
        alias = "ls",
        after_help = "\
Examples:
  mandate mandate list --agent agt_buyer --status active
  mandate mandate list --all --json=id,agent,status,expires"
    )]
    List {
        /// Only this agent's
        #[arg(long, value_name = "AGENT", value_parser = agent, add = completed::<AgentId>())]
        agent: Option<AgentId>,
        /// Only with this status
        #[arg(long, value_name = "STATUS", value_parser = mandate_status())]
        status: Option<MandateStatus>,
        #[command(flatten)]
        list: ListOptions,
    },
    /// Show a mandate
    #[command(after_help = "\
Examples:
  mandate mandate show mnd_01hf7yat000000000000000007
  mandate mandate show mnd_01hf7yat000000000000000007 --json > mandate.json")]
    Show {
        /// The mandate's id, `mnd_...`, or its beginning as lists show it [default: a choice]
        #[arg(value_parser = given::<MandateId>, add = completed::<MandateId>())]
        id: Option<Given<MandateId>>,
        #[command(flatten)]
        service: Service,
    },
    /// Revoke a mandate: the agent's next request is denied
    #[command(after_help = "\
Examples:
  mandate mandate revoke mnd_01hf7yat000000000000000007

Needs an organization key: MANDATE_ORGANIZATION_KEY, MANDATE_ORGANIZATION_KEY_FILE or --key-file.")]
    Revoke {
        /// The mandate's id, `mnd_...`; at a terminal also its beginning [default: a choice]
        #[arg(value_parser = given::<MandateId>, add = completed::<MandateId>())]
        id: Option<Given<MandateId>>,
        #[command(flatten)]
        change: Change,
    },
    Lint(lint::Lint),
    Diff(diff::Diff),
    Template(template::Template),
}

const MANDATE_CREATE_HELP: &str = "\
Examples:
  mandate mandate create -f mandate.json
  mandate mandate create -f - <<'END'
  {
    \"principal\": \"role:finance_lead\",
    \"agent\": \"agt_buyer\",
    \"limits\": {\"per_transaction\": 500, \"per_month\": 2000, \"currency\": \"USD\"},
    \"categories\": [\"software\", \"cloud.compute\"],
    \"review_above\": 200,
    \"expires\": \"2027-12-31\"
  }
  END

The file is checked before it is sent, by the rules that the service applies.
Needs an organization key: MANDATE_ORGANIZATION_KEY, MANDATE_ORGANIZATION_KEY_FILE or --key-file.";

const MANDATES: Resource = Resource {
    path: "/mandates",
    class: None,
    id: Some("id"),
    columns: &[
        id("MANDATE", "id").spare(2),
        state("STATUS", "status"),
        agent_of("AGENT", "agent"),
        whole("LIMIT", "limits.per_transaction limits.currency"),
        whole("MONTH", "limits.per_month").spare(1),
        whole("EXPIRES", "expires"),
    ],
    lines: &[
        whole("mandate", "id"),
        text("agent", "agent"),
        state("status", "status"),
        text("principal", "principal"),
        text("limit", "limits.per_transaction limits.currency"),
        text("per month", "limits.per_month limits.currency").or(NO_LIMIT),
        text("review above", "review_above limits.currency").or(NONE),
        text("categories", "categories"),
        text("escrow above", "escrow.required_above"),
        text("expires", "expires"),
        text("created", "created_at"),
        text("governs from", "governs_from"),
        text("until", "governed_until"),
        text("revoked_at", "revoked_at"),
        text("after", "revoked_after"),
        text("replaced_by", "replaced_by"),
    ],
    tables: &[],
};

impl Mandate {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        match self {
            Self::Create { file, change } => create(file, change, global, output),
            Self::List { agent, status, list } => {
                let filters = vec![
                    ("agent", agent.as_ref().map(ToString::to_string)),
                    ("status", status.as_ref().map(ToString::to_string)),
                ];
                list.run(&MANDATES, filters, global, output)
            }
            Self::Show { id, service } => MANDATES.get(service, id.as_ref(), global, output),
            Self::Revoke { id, change } => {
                let client = Client::for_change(change, global, Some(KeyClass::Organization))?;
                let id = to_change(id.as_ref(), &client)?;
                client.confirm(&format!("revoke {id}"))?;
                MANDATES.change(&client, &format!("/mandates/{id}/revoke"), None, output)
            }
            Self::Lint(args) => args.run(output),
            Self::Diff(args) => args.run(global, output),
            Self::Template(args) => args.run(output),
        }
    }
}

/// Checks the mandate by the service's rules, then sends it as it was written.
fn create(file: &Source, change: &Change, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
    if *file == Source::Stdin && change.service.key_file == Some(Source::Stdin) {
        return Err(super::both_from_standard_input("the mandate", "the key"));
    }
    let text = file.read("the mandate", MAX_BODY_BYTES, Exit::InvalidRequest)?;
    let terms = Object::parse(text.as_bytes())
        .and_then(Terms::read)
        .and_then(|terms| terms.must_hold_at(environment::now()).map(|()| terms))
        .map_err(|e| {
            mistake::refused("the mandate", file, &text, &e, Exit::InvalidRequest)
                .note("sent", "nothing")
                .next("mandate mandate lint shows every problem at once")
        })?;
    let client = Client::for_change(change, global, Some(KeyClass::Organization))?;
    client.confirm(&format!("write a mandate for {}, which replaces the one it has", terms.agent))?;
    MANDATES.change(&client, MANDATES.path, Some(&text), output)
}
