//! `mandate reference`: `docs/cli.md`, made from the command tree and the text around it.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

use crate::exit::Exit;
use crate::output::Output;

/// The text around the commands.
const WORDS: &str = include_str!("reference.md");
/// Where the commands are inserted.
const PLACE: &str = "{commands}\n";
/// The longest line of a paragraph, in characters.
const WIDTH: usize = 120;

pub(super) fn run(mut tree: Command, output: &mut Output) -> Exit {
    tree.build();
    let mut commands = String::from("### Options of every command\n\n");
    options(&mut commands, tree.get_arguments().filter(|arg| arg.is_global_set()));
    write(&mut commands, &tree);
    output.text(&WORDS.replace(PLACE, &commands));
    Exit::Success
}

/// Each option of every command, as it is typed, and its meaning.
pub(crate) fn of_every_command(line: &Command) -> Vec<(String, String)> {
    let options = line.get_arguments().filter(|arg| arg.is_global_set());
    options.map(|arg| (spelling(arg), meaning(arg).replace('`', ""))).collect()
}

/// All commands below `parent` that are not hidden.
fn write(text: &mut String, parent: &Command) {
    for command in parent.get_subcommands().filter(|command| !command.is_hide_set()) {
        if command.get_name() == "help" {
            continue;
        }
        if command.has_subcommands() {
            write(text, command);
            continue;
        }
        let name = command.get_bin_name().unwrap_or_default();
        let _ = writeln!(text, "### `{name}`\n");
        let about = command.get_long_about().or(command.get_about());
        let about = format!("{}.", about.map(ToString::to_string).unwrap_or_default().trim_end_matches('.'));
        let _ = writeln!(text, "{}\n", wrapped(&about));
        options(text, command.get_arguments().filter(|arg| !arg.is_global_set()));
        if let Some(help) = command.get_after_help() {
            let _ = writeln!(text, "```text\n{help}\n```\n");
        }
    }
}

/// Paragraphs, each a line, broken into lines of at most [`WIDTH`] characters.
fn wrapped(paragraphs: &str) -> String {
    let mut text = String::new();
    for paragraph in paragraphs.split_inclusive('\n') {
        let mut column = 0_usize;
        for word in paragraph.split_inclusive([' ', '\n']) {
            let length = word.trim_end().chars().count();
            if column.saturating_add(length) > WIDTH {
                text.truncate(text.trim_end_matches(' ').len());
                text.push('\n');
                column = 0;
            }
            text.push_str(word);
            column = column.saturating_add(word.chars().count());
        }
    }
    text
}

/// A table of arguments and options.
fn options<'a>(text: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    let shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let mut rows = arguments.filter(shown).peekable();
    if rows.peek().is_none() {
        return;
    }
    text.push_str("| Option | Meaning |\n|---|---|\n");
    for arg in rows {
        let _ = writeln!(text, "| `{}` | {} |", cell(&spelling(arg)), cell(&meaning(arg)));
    }
    text.push('\n');
}

/// The option as it is typed.
fn spelling(arg: &Arg) -> String {
    let value = match arg.get_action() {
        ArgAction::Set | ArgAction::Append => arg.get_value_names().map(|names| names.join(" ")),
        _ => None,
    };
    let value = value.unwrap_or_default();
    let short = arg.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    match arg.get_long() {
        None => value,
        Some(long) if value.is_empty() => format!("{short}--{long}"),
        Some(long) if arg.is_require_equals_set() => format!("{short}--{long}[={value}]"),
        Some(long) => format!("{short}--{long} {value}"),
    }
}

fn meaning(arg: &Arg) -> String {
    let mut meaning = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let list = |values: Vec<String>| values.join(", ");
    let values = arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set());
    let values: Vec<String> = values.map(|value| format!("`{}`", value.get_name())).collect();
    if !values.is_empty() && !matches!(arg.get_action(), ArgAction::SetTrue) {
        let _ = write!(meaning, ": {}", list(values));
    }
    let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
    let defaults: Vec<String> = defaults.filter(|value| value != "false").collect();
    if !defaults.is_empty() {
        let _ = write!(meaning, " [default: {}]", list(defaults));
    }
    meaning
}

/// Escaped for a table. In code spans `<` stays as it is: Markdown shows what is written there.
fn cell(text: &str) -> String {
    let text = text.replace('|', "\\|").replace('\n', " ");
    let parts = text.split('`').enumerate();
    let parts: Vec<_> = parts
        .map(|(at, part)| if at % 2 == 0 { part.replace('<', "&lt;") } else { part.to_owned() })
        .collect();
    parts.join("`")
}
