//! What each command prints as JSON: the members that `--json=FIELDS` can name, known before anything is done.

use super::{
    agent, decision, enforcement, escrow, event, export, jwks, listen, mandate, plan, profile, replay,
    review, stop, trigger, verify, webhook,
};
use crate::args::Command;
use crate::members::{self, Printed};

/// What `command` prints as JSON.
pub(super) fn printed(command: &Command) -> Printed {
    use crate::members::Printed::{Flat, Known, Nothing, Own};
    let names: &[&str] = match command {
        Command::Verify(args) => verify::members(args),
        Command::Inspect(_) => return Own(vec!["verified", "header", "claims", "signature_bytes"]),
        Command::Audit(_) => return Own(vec!["finding", "summary"]),
        Command::Simulate(_) => return Own(vec!["change", "summary"]),
        Command::Report(args) if args.is_by_person() => return Own(vec!["rows"]),
        Command::Report(_) => return Own(vec!["totals", "rows"]),
        Command::Jwks(jwks::Jwks::Show { .. } | jwks::Jwks::Unpin { .. }) => &jwks::UNPINNED,
        Command::Jwks(_) => &jwks::MEMBERS,
        Command::Log(args) => return args.printed(),
        Command::Profile(profile::Profile::List) => &profile::LISTED,
        Command::Login(_)
        | Command::Whoami(_)
        | Command::Switch(_)
        | Command::Logout(_)
        | Command::Auth(_) => &profile::MEMBERS,
        Command::Agent(agent::Agent::Create { .. }) => &members::REGISTERED_AGENT,
        Command::Agent(_) => &members::AGENT,
        Command::Mandate(args) => return of_mandate(args),
        Command::Plan(_) => &plan::MEMBERS,
        Command::Apply(_) => &["hash", "done"],
        Command::Drift(_) => return Own(vec!["drift", "steps"]),
        Command::Stop(_) => &stop::MEMBERS,
        // What a review became is shown as a decision.
        Command::Authorize(args) if args.wait => {
            let more = members::DECISION.iter().filter(|name| !members::AUTHORIZATION.contains(name));
            return Known(members::AUTHORIZATION.iter().chain(more).copied().collect());
        }
        Command::Authorize(_) => &members::AUTHORIZATION,
        Command::Decision(
            decision::Decision::List { .. }
            | decision::Decision::Show { .. }
            | decision::Decision::Tail { .. },
        ) => &members::DECISION,
        Command::Review(args) => match args {
            review::Review::List(_) | review::Review::Deny { .. } => &members::DECISION,
            review::Review::Approve { .. } => &members::AUTHORIZATION,
            review::Review::Watch(_) => return Nothing,
        },
        Command::Enforcement(enforcement::Enforcement::Get { .. } | enforcement::Enforcement::Set { .. }) => {
            &members::ENFORCEMENT
        }
        Command::Webhook(args) => of_webhook(args),
        Command::Event(event::Event::Show { .. }) => &members::EVENT,
        Command::Event(event::Event::List { .. } | event::Event::Tail { .. }) => &members::LISTED_EVENT,
        Command::Escrow(args) => match args {
            escrow::Escrow::Contract(_) => &members::CONTRACT,
            escrow::Escrow::Create { .. }
            | escrow::Escrow::List { .. }
            | escrow::Escrow::Show { .. }
            | escrow::Escrow::Transition { .. } => &members::ESCROW,
        },
        Command::Export(
            export::Export::Create { .. } | export::Export::Show { .. } | export::Export::Download(_),
        ) => &members::EXPORT,
        Command::Usage(_) => &members::USAGE,
        Command::Listen(_) => &listen::MEMBERS,
        Command::Replay(_) => &replay::MEMBERS,
        // Each names what was made by its id.
        Command::Trigger(_) => return Flat(trigger::MEMBERS.to_vec()),
        Command::Doctor(_) => return Own(vec!["healthy", "checks"]),
        // It prints whatever answer the service gives.
        Command::Api(_) => &members::OF_SERVICE,
        Command::Open(_) => &["url"],
        Command::Version(_) => &["version", "commit", "date"],
        Command::Mcp(_) | Command::Manual(_) | Command::Reference => return Nothing,
    };
    Known(names.to_vec())
}

fn of_webhook(args: &webhook::Webhook) -> &'static [&'static str] {
    match args {
        webhook::Webhook::Create { .. } | webhook::Webhook::List(_) | webhook::Webhook::Show { .. } => {
            &members::WEBHOOK
        }
        webhook::Webhook::Delete { .. } => &["webhook", "status"],
        webhook::Webhook::Ping { .. } => &members::LISTED_EVENT,
    }
}

fn of_mandate(args: &mandate::Mandate) -> Printed {
    use crate::members::Printed::{Known, Own};
    match args {
        mandate::Mandate::Create { .. }
        | mandate::Mandate::List { .. }
        | mandate::Mandate::Show { .. }
        | mandate::Mandate::Revoke { .. } => Known(members::MANDATE.to_vec()),
        mandate::Mandate::Lint(_) => Own(vec!["valid", "passes", "findings"]),
        mandate::Mandate::Diff(_) => Known(vec!["field", "before", "after", "effect"]),
        mandate::Mandate::Template(args) if args.explain => Known(vec!["field", "meaning"]),
        mandate::Mandate::Template(_) => Known(members::TERMS.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::args::Args;
    use crate::members::of_schema;

    /// Each command: its words, further arguments that it needs, and the schema of what it prints in the service's
    /// reference. Empty: the command makes what it prints itself.
    const COMMANDS: &[(&str, &str, &str)] = &[
        ("agent create", "a", "RegisteredAgent"),
        ("agent list", "", "Agent"),
        ("agent show", "", "Agent"),
        ("api", "get /agents", ""),
        ("apply", "plan.json", ""),
        ("audit", "export.ndjson", ""),
        ("authorize", "1 USD --to vendor:a --category a", "Authorization"),
        ("completions", "bash", ""),
        ("decision list", "", "Decision"),
        ("decision show", "", "Decision"),
        ("decision tail", "", "Decision"),
        ("doctor", "", ""),
        ("drift", ".", ""),
        ("enforcement get", "", "Enforcement"),
        ("enforcement set", "observe", "Enforcement"),
        ("escrow contract", ADDRESS, ""),
        ("escrow create", "--condition a --refund-after 2999-01-01T00:00:00Z", "Escrow"),
        ("escrow list", "", "Escrow"),
        ("escrow show", "", "Escrow"),
        ("escrow transition", "delivered", "Escrow"),
        ("event list", "", "Event"),
        ("event show", "", "Event"),
        ("event tail", "", "Event"),
        ("export create", "", "Export"),
        ("export download", "exp_00000000000000000000000001", "Export"),
        ("export show", "exp_00000000000000000000000001", "Export"),
        ("inspect", "a.b.c", ""),
        ("jwks list", "", ""),
        ("jwks pin", "https://a.example", ""),
        ("jwks show", "https://a.example", ""),
        ("jwks unpin", "https://a.example", ""),
        ("listen", "", ""),
        ("log audit", "export.ndjson", ""),
        ("log checkpoint", "", ""),
        ("log evidence", "a.b.c -o a", ""),
        ("log key create", "a -o a", ""),
        ("log key list", "", ""),
        ("log key pin", "", ""),
        ("log key show", "", ""),
        ("log key unpin", "", ""),
        ("log monitor", "--state a", ""),
        ("log proof", "a.b.c", ""),
        ("log verify", "a", ""),
        ("log witness", "--key a --state a --policy a", ""),
        ("login", "", ""),
        ("logout", "", ""),
        ("man", "--out a", ""),
        ("mandate create", "-f a", "Mandate"),
        ("mandate diff", "a b", ""),
        ("mandate lint", "a", ""),
        ("mandate list", "", "Mandate"),
        ("mandate revoke", "", "Mandate"),
        ("mandate show", "", "Mandate"),
        ("mandate template", "", "NewMandate"),
        ("mcp", "", ""),
        ("open", "", ""),
        ("plan", ".", ""),
        ("profile list", "", ""),
        ("replay", "a --forward-to http://127.0.0.1:1", ""),
        ("report", "a", ""),
        ("review approve", "", "Authorization"),
        ("review deny", "", "Decision"),
        ("review list", "", "Decision"),
        ("review watch", "", ""),
        ("simulate", "--mandate a --decisions b", ""),
        ("stop", "--all", ""),
        ("switch", "a", ""),
        ("trigger", "ping", ""),
        ("usage", "", "UsageRow"),
        ("verify", "a.b.c", ""),
        ("version", "", ""),
        ("webhook create", "https://a.example --all-events", "Webhook"),
        ("webhook delete", "", ""),
        ("webhook list", "", "Webhook"),
        ("webhook ping", "", "Event"),
        ("webhook show", "", "Webhook"),
        ("whoami", "", ""),
    ];
    const ADDRESS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    #[test]
    fn every_command_knows_the_fields_of_what_it_prints() {
        let mut commands = BTreeSet::new();
        leaves(&Args::command(), "", &mut commands);
        let listed: BTreeSet<String> = COMMANDS.iter().map(|(words, ..)| (*words).to_owned()).collect();
        assert_eq!(listed, commands);
        let silent = ["completions", "log witness", "man", "mcp", "review watch"];
        for (words, more, schema) in COMMANDS {
            let line = format!("mandate {words} {more}");
            let args =
                Args::try_parse_from(line.split_whitespace()).unwrap_or_else(|e| panic!("{line}: {e}"));
            let printed = printed(&args.command);
            match (*schema, silent.contains(words)) {
                (_, true) => assert_eq!(printed, Printed::Nothing, "{words}"),
                ("", false) => assert!(!printed.names().is_empty(), "{words}"),
                (schema, false) => {
                    let mut names = of_schema(schema);
                    // Only an event that is read by itself has them.
                    names.retain(|name| *name != "deliveries" || *words == "event show");
                    assert_eq!(printed, Printed::Known(names), "{words}");
                }
            }
        }
    }

    fn leaves(command: &clap::Command, words: &str, found: &mut BTreeSet<String>) {
        for below in
            command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
        {
            let words = format!("{words} {}", below.get_name()).trim_start().to_owned();
            if below.has_subcommands() {
                leaves(below, &words, found);
            } else {
                found.insert(words);
            }
        }
    }
}
