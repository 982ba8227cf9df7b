//! `notice`: messages in a chat, that a review waits.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Subcommand;
use mandate_core::{AgentName, EnvironmentKind, WebhookId};
use serde::Serialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::selection::environment;
use super::{Common, Failure, operator, terminal};
use crate::clock::{Ids, SystemEntropy};
use crate::config;
use crate::model::records::NoticeFormat;
use crate::service::endpoint::{self, EgressPolicy, MAX_URL_CHARS};
use crate::service::notices::{self, Settings, Shown};
use crate::service::signing::rotation::Maker;

/// Standard input, as a file's name.
const STANDARD_INPUT: &str = "-";
/// The most bytes that are read of a URL.
const MAX_BYTES: u64 = 4 * MAX_URL_CHARS as u64;

/// Notices.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Have a message sent to a chat for each review that waits
    #[command(after_help = SET_HELP)]
    Set {
        #[command(flatten)]
        of: Of,

        /// The chat's form of messages: slack, or teams (a workflow that takes Adaptive Cards)
        #[arg(long, value_name = "FORM", value_parser = format)]
        format: NoticeFormat,

        /// The file that has the URL, which is a secret; - is standard input
        #[arg(long, value_name = "FILE")]
        url_file: PathBuf,

        /// Name role, organization, agent, amount, recipient and category in each message
        #[arg(long)]
        details: bool,

        #[command(flatten)]
        common: Common,
    },
    /// Show an organization's notices, and how many messages wait or have failed
    #[command(after_help = SHOW_HELP)]
    Show {
        /// The organization
        #[arg(long, value_name = "NAME", value_parser = AgentName::parse)]
        organization: AgentName,

        #[command(flatten)]
        common: Common,
    },
    /// End the notices of an environment
    #[command(after_help = REMOVE_HELP)]
    Remove {
        #[command(flatten)]
        of: Of,

        #[command(flatten)]
        common: Common,
    },
}

/// Whose notices.
#[derive(Debug, clap::Args)]
pub struct Of {
    /// The organization
    #[arg(long, value_name = "NAME", value_parser = AgentName::parse)]
    organization: AgentName,

    /// Its sandbox, or production
    #[arg(long, value_name = "KIND", value_parser = environment)]
    environment: EnvironmentKind,
}

const SET_HELP: &str = "\
Examples:
  mandate-server notice set --organization acme --environment production \\
      --format slack --url-file slack.url
  pass show teams-workflow | mandate-server notice set --organization acme \\
      --environment production --format teams --url-file - --details

A message says that a review waits, its id, LIVE or sandbox, and the time left, and links to the console if there is \
one. With --details it also says for which role, of which organization, and what is to be paid. It never answers a \
review. The URL is stored encrypted under the master key, from MANDATE_MASTER_KEY or MANDATE_MASTER_KEY_FILE, and is \
shown without its path. Messages are sent like events to webhooks: repeated for 24 hours, and to no private address. \
Set again, they go to the new place; what waits for the former one is not sent.";

const SHOW_HELP: &str = "\
Examples:
  mandate-server notice show --organization acme
  mandate-server notice show --organization acme --json \\
      | jq '.[] | select(.failed > 0)'";

const REMOVE_HELP: &str = "\
Examples:
  mandate-server notice remove --organization acme --environment production";

#[derive(Serialize)]
struct View<'a> {
    environment: &'static str,
    webhook: WebhookId,
    url: &'a str,
    format: &'static str,
    details: bool,
    pending: i64,
    failed: i64,
}

impl<'a> View<'a> {
    fn of(shown: &'a Shown) -> Self {
        let Shown { notice, host, pending, failed } = shown;
        Self {
            environment: notice.kind.as_str(),
            webhook: notice.webhook,
            url: host,
            format: notice.format.as_str(),
            details: notice.has_details,
            pending: *pending,
            failed: *failed,
        }
    }
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// There is no such organization, the URL cannot be used, or the database does not answer.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Set { of, format, url_file, details, common } => {
                set(&of, (format, details), &url_file, &common)
            }
            Self::Show { organization, common } => show(&organization, &common),
            Self::Remove { of, common } => {
                let (by, database) = (operator::here(), common.settings()?.database);
                let whose = (&of.organization, of.environment);
                terminal::run(&database, |tx| notices::remove(tx, whose, &by))?;
                let done = json!({ "organization": of.organization.as_str(), "environment": of.environment.as_str() });
                terminal::print(common.json, &done, |out| {
                    writeln!(out, "{} has no notices in {} any more.", of.organization, of.environment)
                })
            }
        }
    }
}

fn set(
    of: &Of,
    (format, has_details): (NoticeFormat, bool),
    file: &PathBuf,
    common: &Common,
) -> Result<(), Failure> {
    let (by, settings) = (operator::here(), common.settings()?);
    let egress = EgressPolicy { loopback: settings.loopback_webhooks, networks: settings.webhook_networks };
    let text = read(file)?;
    let url = endpoint::parse(text.trim(), &egress)
        .map_err(|e| Failure::unusable(format!("--url-file {}: {e}", file.display())))?;
    let master = config::master_key().map_err(Failure::unusable)?;
    let wanted = Settings { url, format, has_details };
    let webhook = WebhookId::from_bytes(Ids::new(Arc::new(SystemEntropy)).fresh(by.at));
    let whose = (&of.organization, of.environment);
    let maker = || Maker { master: &master, entropy: &SystemEntropy };
    terminal::run(&settings.database, |tx| notices::set(tx, whose, &wanted, (maker(), webhook), &by))?;
    show(&of.organization, common)
}

/// Reads a file, or standard input, at most [`MAX_BYTES`] of it.
fn read(file: &PathBuf) -> Result<Zeroizing<String>, Failure> {
    let failed =
        |e: io::Error| Failure::unusable(format!("--url-file {} cannot be read: {e}", file.display()));
    let mut text = Zeroizing::new(String::new());
    let source: Box<dyn Read> = if file.as_os_str() == STANDARD_INPUT {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file).map_err(failed)?)
    };
    source.take(MAX_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

fn show(organization: &AgentName, common: &Common) -> Result<(), Failure> {
    let shown = terminal::run(&common.settings()?.database, |tx| notices::show(tx, organization))?;
    let views: Vec<_> = shown.iter().map(View::of).collect();
    terminal::print(common.json, &views, |out| {
        let heads = ["ENVIRONMENT", "URL", "FORMAT", "DETAILS", "PENDING", "FAILED"];
        let rows = views.iter().map(|view| {
            [
                view.environment.to_owned(),
                view.url.to_owned(),
                view.format.to_owned(),
                if view.details { "yes" } else { "no" }.to_owned(),
                view.pending.to_string(),
                view.failed.to_string(),
            ]
        });
        terminal::table(out, heads, rows)
    })
}

fn format(text: &str) -> Result<NoticeFormat, String> {
    NoticeFormat::parse(text).ok_or_else(|| "must be slack or teams".to_owned())
}
