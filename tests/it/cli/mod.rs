//! The `mandate` command against a real server: what it prints, and what it keeps.

mod doctor;
mod finance;
mod listen;
mod lists;
mod named;
mod output;
mod page;
mod plan;
mod profiles;
mod proof;
mod queue;
mod readme;
mod reference;
mod stop;
mod watch;
mod width;
mod work;
mod worked;

use std::process::{Command, Stdio};

use crate::harness::{Organization, Ran, TestServer, mandate, masked};

/// A user at the command line: a server, and the key in use.
pub(crate) struct Shell<'a> {
    base_url: &'a str,
    key: &'a str,
}

impl<'a> Shell<'a> {
    /// With an organization's key.
    pub(crate) fn new(server: &'a TestServer, organization: &'a Organization) -> Self {
        Self { base_url: server.ready("base_url"), key: organization.client.key() }
    }

    /// With another key.
    pub(crate) fn with_key(&self, key: &'a str) -> Self {
        Self { base_url: self.base_url, key }
    }

    /// The command, not yet run.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let variable =
            if self.key.starts_with("ak_") { "MANDATE_AGENT_KEY" } else { "MANDATE_ORGANIZATION_KEY" };
        let mut command = mandate(args);
        command.env("MANDATE_BASE_URL", self.base_url).env(variable, self.key).stdin(Stdio::null());
        command
    }

    /// Runs it.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// Runs it and asserts success. Returns what it printed without the line break at the end.
    #[track_caller]
    pub(crate) fn get(&self, args: &[&str]) -> String {
        self.run(args).code(0).out.trim_end().to_owned()
    }

    /// Runs it, and gives command, output and code with a mask over what differs from run to run.
    pub(crate) fn transcript(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        let code = ran.code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        shown(&format!("$ mandate {}\n{}{}[{code}]\n", args.join(" "), ran.out, ran.err))
    }
}

/// The text with a mask over what differs from run to run.
pub(crate) fn shown(text: &str) -> String {
    let text = masked(text);
    let key = "  idempotency key ";
    let lines =
        text.lines().map(|line| if line.starts_with(key) { "  idempotency key *" } else { line.trim_end() });
    let lines: Vec<&str> = lines.collect();
    lines.join("\n")
}
