//! `mandate export`: the log of decisions as a file, verified while it is downloaded.
#![allow(clippy::doc_markdown, reason = "doc comments are the help text, where backticks would show")]

mod download;

use clap::{Subcommand, ValueEnum};
use mandate_core::api_key::KeyClass;
use mandate_core::{AgentId, ExportId, Verdict};

use super::decision::word;
use crate::client::Client;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::named::completed;
use crate::output::Output;
use crate::period::Period;
use crate::resource::{Resource, given, must_be_there};
use crate::service::{Change, Service};
use crate::table::{state, text, whole};
use crate::value::{agent, verdict};

const EXPORTS: Resource = Resource {
    path: "/exports",
    class: Some(KeyClass::Organization),
    id: Some("export"),
    columns: &[],
    lines: &[
        whole("export", "export"),
        state("status", "status"),
        text("format", "format"),
        text("rows", "rows"),
        text("sha256", "sha256"),
        text("created", "created_at"),
        text("expires", "expires_at"),
        text("lacks from", "incomplete_since"),
    ],
    tables: &[],
};

#[derive(Debug, Subcommand)]
pub(crate) enum Export {
    /// Create an export, which the service builds in the background
    #[command(after_help = "\
Examples:
  mandate export create
  mandate export create --as csv --agent agt_buyer \\
      --since 2026-06-01 --until 2026-07-01
  mandate export download \"$(mandate export create --jq .export)\"

An export changes nothing that governs: it is not confirmed in a live environment, with or without a terminal.")]
    Create {
        /// The form of the export: ndjson can be verified, csv is for spreadsheets
        #[arg(long = "as", value_name = "FORM", value_enum, default_value_t = Form::Ndjson)]
        form: Form,
        /// Only this verdict
        #[arg(long, value_parser = verdict())]
        verdict: Option<Verdict>,
        /// Only this agent
        #[arg(long, value_name = "AGENT", value_parser = agent, add = completed::<AgentId>())]
        agent: Option<AgentId>,
        #[command(flatten)]
        period: Period,
        #[command(flatten)]
        change: Change,
    },
    /// Show an export's status
    #[command(after_help = "\
Examples:
  mandate export show exp_01hf7yat000000000000000007")]
    Show {
        /// The export's id, `exp_...`
        #[arg(value_parser = ExportId::parse)]
        id: ExportId,
        #[command(flatten)]
        service: Service,
    },
    Download(download::Download),
}

/// The form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// One line of JSON per mandate and decision, and a signed trailer
    Ndjson,
    /// A table
    Csv,
}

impl Export {
    pub(super) fn run(&self, global: &Global, output: &mut Output) -> Result<Exit, Failure> {
        match self {
            Self::Create { form, verdict, agent, period, change } => {
                let [since, until] = period.filters()?;
                let client = Client::for_change(change, global, Some(KeyClass::Organization))?;
                if let Some(id) = agent {
                    must_be_there(&client, &[("agent", id.to_string())])?;
                }
                let body: serde_json::Map<String, serde_json::Value> = given(vec![
                    ("format", Some(word(form))),
                    ("verdict", verdict.as_ref().map(ToString::to_string)),
                    ("agent", agent.as_ref().map(ToString::to_string)),
                    since,
                    until,
                ])
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect();
                let body = serde_json::Value::Object(body).to_string();
                EXPORTS.change(&client, EXPORTS.path, Some(&body), output)
            }
            Self::Show { id, service } => {
                EXPORTS.get_from(&Client::new(service, global, EXPORTS.class)?, id, output)
            }
            Self::Download(args) => args.run(global, output),
        }
    }
}
