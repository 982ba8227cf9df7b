//! The help of the whole program: its commands in groups, and topics, whose text is that of docs/cli.md.

use std::fmt::Write as _;

use clap::builder::{Resettable, StyledStr};
use clap::{Command, CommandFactory as _, FromArgMatches as _};

use crate::args::Args;
use crate::command::reference;
use crate::style::BOLD;
use crate::table::width;
use crate::usage::{taken_for_an_argument, words};
use crate::wrap::{each_line, hanging};

/// The commands by what they are for.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Verify and audit", &["verify", "inspect", "jwks", "audit", "log", "simulate", "report"]),
    ("Agents and mandates", &["agent", "mandate", "plan", "apply", "drift", "stop"]),
    (
        "Decide and review",
        &["authorize", "mcp", "decision", "review", "enforcement", "usage", "escrow", "export"],
    ),
    ("Webhooks and events", &["webhook", "event", "listen", "replay", "trigger"]),
    ("Account", &["login", "whoami", "switch", "logout", "profile"]),
    ("More", &["doctor", "open", "api", "version", "completions", "man"]),
];
/// The columns of help where there is no terminal.
const PIPE_WIDTH: u16 = 100;
/// The topic about the options of every command.
const OPTIONS: (&str, &str) = ("options", "The options of every command");
/// Topics: the word, what it is about, and the heading of its section in the page.
const TOPICS: [(&str, &str, &str); 3] = [
    ("exit-codes", "What each exit code means", "Exit codes"),
    ("environment", "The environment variables that are read", "Environment"),
    ("formatting", "JSON, fields, jq expressions, CSV and tables", "Output"),
];
/// A space at which clap breaks no line. What is printed has plain ones.
const UNBROKEN: &str = "\u{a0}";
/// The page that the topics are from.
const PAGE: &str = include_str!("command/reference.md");

/// The command line that was typed.
pub(crate) fn parsed() -> Result<Args, clap::Error> {
    let mut line = line();
    let matches = line.try_get_matches_from_mut(std::env::args_os())?;
    if let Some(error) = taken_for_an_argument(&mut line, &words()) {
        return Err(error);
    }
    Args::from_arg_matches(&matches).map_err(|error| error.format(&mut line))
}

/// The command line with groups and topics.
pub(crate) fn line() -> Command {
    let line = Args::command();
    let groups = groups(&line);
    let names: Vec<_> =
        line.get_arguments().filter_map(|arg| arg.get_long()).map(|name| format!("--{name}")).collect();
    let options = format!("Every command has {}; mandate help options explains them.", names.join(", "));
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\n{}{{after-help}}",
        hanging("", &options, width())
    );
    let topics = TOPICS.map(|(name, _, heading)| topic(name, section(heading, Some(of_topics()))));
    let explained = topic(OPTIONS.0, explained(&line));
    let line = line.mut_args(|arg| {
        let is_folded = arg.is_global_set();
        arg.hide_long_help(is_folded)
    });
    let line = folded(line, &options);
    let below = line.get_after_help().map(unbroken);
    line.after_help(Resettable::from(below)).help_template(template).subcommands(topics).subcommand(explained)
}

/// The columns of a topic: in a pipe as many as of other help.
fn of_topics() -> u16 {
    width().unwrap_or(PIPE_WIDTH)
}

fn topic(name: &'static str, text: String) -> Command {
    Command::new(name)
        .hide(true)
        .about(text.clone())
        .long_about(text)
        .help_template("{about}")
        // Its lines are as they should be: clap would break those of a table, and lose where they begin.
        .term_width(0)
        .arg_required_else_help(true)
}

/// The options of every command, a paragraph for each.
fn explained(line: &Command) -> String {
    let entry = |(option, meaning): (String, String)| {
        format!("  {option}\n{}", hanging("      ", &meaning, Some(of_topics())))
    };
    reference::of_every_command(line).into_iter().map(entry).collect::<Vec<_>>().join("\n")
}

/// The same, with a sentence about the options of every command in the long help of each command below.
fn folded(command: Command, options: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let with_sentence = |below: Command| {
        let help = below.get_after_help().map(unbroken);
        let start = help.as_ref().map(|help| format!("{help}\n\n")).unwrap_or_default();
        folded(below, options).after_help(Resettable::from(help)).after_long_help(format!("{start}{options}"))
    };
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, with_sentence))
}

/// The same text with examples that clap leaves as they are: commands to copy, which their writer has broken.
fn unbroken(help: &StyledStr) -> StyledStr {
    let mut is_example = false;
    let kept = |line: &str| {
        is_example = line == "Examples:" || (is_example && !line.trim().is_empty());
        if is_example { line.replace(' ', UNBROKEN) } else { line.to_owned() }
    };
    help.to_string().split('\n').map(kept).collect::<Vec<_>>().join("\n").into()
}

/// A help as it is printed.
pub(crate) fn printed(help: &str) -> String {
    help.replace(UNBROKEN, " ")
}

/// What `mandate help` explains: commands and topics.
pub(crate) fn explains() -> impl Iterator<Item = &'static str> {
    let topics = TOPICS.into_iter().map(|(name, ..)| name).chain([OPTIONS.0]);
    GROUPS.into_iter().flat_map(|(_, names)| names.iter().copied()).chain(topics)
}

/// The list of the commands, group by group, and of the topics.
fn groups(line: &Command) -> String {
    let mut text = String::new();
    let entry = |text: &mut String, name: &str, about: &str| {
        let _ = writeln!(text, "{}", hanging(&format!("  {name:<13}"), about, width()));
    };
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{BOLD}{title}{BOLD:#}");
        for name in names {
            let about = line.find_subcommand(name).and_then(Command::get_about);
            entry(&mut text, name, &about.map(ToString::to_string).unwrap_or_default());
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{BOLD}Topics{BOLD:#}, as mandate help TOPIC");
    for (name, about) in TOPICS.map(|(name, about, _)| (name, about)).into_iter().chain([OPTIONS]) {
        entry(&mut text, name, about);
    }
    text
}

/// A section of the page as plain text, in the width of a terminal: rows of a table are lines.
fn section(heading: &str, terminal: Option<u16>) -> String {
    let title = format!("\n## {heading}\n");
    let page = PAGE.replace('`', "");
    let body = page.split_once(&title).map_or("", |(_, rest)| rest.split("\n## ").next().unwrap_or(rest));
    let is_ruler = |line: &str| line.starts_with("|---");
    let rows = || body.lines().filter_map(cells);
    let width =
        rows().map(|(first, _)| first.chars().count()).filter(|width| *width <= 24).max().unwrap_or(0);
    let mut text = String::new();
    for line in body.lines().filter(|line| !is_ruler(line)) {
        match cells(line) {
            // What is longer than its column has a line of its own.
            Some((first, second)) if first.chars().count() > width => {
                let below = " ".repeat(width + 4);
                text.extend([
                    "\n",
                    &hanging("  ", first, terminal),
                    "\n",
                    &hanging(&below, second, terminal),
                ]);
            }
            Some((first, second)) => {
                text.extend(["\n", &hanging(&format!("  {first:<width$}  "), second, terminal)]);
            }
            None if line.is_empty() => text.push_str("\n\n"),
            None if line.starts_with("- ") => text.extend(["\n", line]),
            // The page's lines are joined: the terminal's width wraps them, once.
            None if text.ends_with('\n') || text.is_empty() => text.push_str(line),
            None => text.extend([" ", line.trim_start()]),
        }
    }
    each_line(text.replace("\n\n\n", "\n\n").trim_end().trim_start_matches('\n'), terminal)
}

/// The two cells of a row.
fn cells(line: &str) -> Option<(&str, &str)> {
    let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
    row.split_once(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        let line = Args::command();
        let mut shown: Vec<&str> =
            line.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name).collect();
        shown.sort_unstable();
        assert_eq!(grouped, shown);
        super::line().debug_assert();
    }

    #[test]
    fn topics_are_sections_of_the_page() {
        for (name, _, heading) in TOPICS {
            assert!(section(heading, None).lines().count() > 5, "{name}");
        }
        assert!(section("Exit codes", None).contains("\n  26    verify: the signature is valid"));
    }

    #[test]
    fn names_that_are_longer_than_their_column_have_lines_of_their_own() {
        let page = section("Environment", Some(60));
        assert!(page.lines().all(|line| line.chars().count() <= 60), "{page}");
        let agent = "  MANDATE_AGENT_KEY, MANDATE_AGENT_KEY_FILE\n                      The agent's key, or";
        assert!(page.contains(agent), "{page}");
        assert!(page.contains("  MANDATE_ISSUER      The issuer, in the place of the"), "{page}");
    }
}
