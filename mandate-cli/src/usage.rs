//! How a command line that is not run ends: with help, with the version, or with a usage error.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
use mandate_core::api_key::masked;

use crate::exit::Exit;
use crate::fields;
use crate::global::Global;
use crate::help::{explains, printed};
use crate::members;
use crate::mistake::nearest;
use crate::output::{Output, say};
use crate::wrap::{each_line, message_width};

/// The option after which a field is often written without an equals sign.
const JSON: &str = "--json";
/// Members of what commands print of their own that are hardly the name of a file or an agent.
const OF_COMMANDS: [&str; 11] = [
    "change",
    "claims",
    "compared",
    "current",
    "environment",
    "finding",
    "issuer",
    "line",
    "not_compared",
    "pinned_at",
    "summary",
];

/// The words that were typed.
pub(crate) fn words() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// What people type where there is no such command, and what there is: the noun, the words, the tip.
const TIPS: [(&str, &[&str], &str); 8] = [
    (
        "agent",
        &["delete", "remove", "rm"],
        "agents are not deleted; mandate stop --agent NAME revokes what lets one spend",
    ),
    (
        "decision",
        &["approve", "deny"],
        "mandate review approve and mandate review deny answer what waits for a person",
    ),
    ("enforcement", &["enforce", "observe", "on", "off"], "mandate enforcement set enforce, or observe"),
    (
        "escrow",
        &["deliver", "release", "refund", "dispute"],
        "mandate escrow transition ID delivered, released, refunded or disputed",
    ),
    ("export", &["list", "ls"], "exports are not listed; mandate export create prints the id of each"),
    (
        "mandate",
        &["update", "edit", "replace"],
        "mandate mandate create writes a new one, which replaces it; mandate mandate diff compares them",
    ),
    (
        "review",
        &["show", "get"],
        "mandate decision show has the review of its decision; mandate review list has those that wait",
    ),
    ("webhook", &["update", "edit"], "a webhook is not changed; mandate webhook create makes another one"),
];

/// Prints help or version to standard output, and an error to standard error. Lost output is a failure.
pub(crate) fn end(mut error: Error) -> Exit {
    if error.use_stderr() {
        if error.kind() == ErrorKind::UnknownArgument {
            // It would have a misspelt option passed on as an argument.
            error.remove(ContextKind::Suggested);
        }
        if let Some(tip) = tip(&error, &words()) {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        if let Some(name) = field_without_its_sign(&error, &words()) {
            let tip = format!("to choose fields, join them with an equals sign: '{JSON}={name}'");
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        // It may hold an API key.
        say(&each_line(&masked(&error.render().ansi().to_string()), message_width()));
        return Exit::Usage;
    }
    match Output::new(&Global::default()) {
        Ok(mut output) => {
            output.text(&printed(&error.render().ansi().to_string()));
            output.finish(Exit::Success)
        }
        Err(failure) => failure.exit,
    }
}

/// The error for a field behind `--json` that lacks its equals sign, and was taken for an argument. A word that names no
/// field is one.
pub(crate) fn taken_for_an_argument(line: &mut Command, words: &[String]) -> Option<Error> {
    let name = words.iter().skip(depth(line, words)).skip_while(|word| *word != JSON).nth(1)?;
    let known = [&members::OF_SERVICE[..], &OF_COMMANDS].concat();
    if !name.split(',').all(|name| fields::is_known(name, &known)) {
        return None;
    }
    let what = format!(
        "'{name}' is behind '{JSON}', and would be an argument of the command\n\n  \
         tip: to choose fields, join them with an equals sign: '{JSON}={name}'\n  \
         tip: an argument goes before '{JSON}'"
    );
    Some(line.error(ErrorKind::UnknownArgument, what))
}

/// The tip for a command that there is not.
fn tip(error: &Error, words: &[String]) -> Option<String> {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let before = words.iter().position(|word| word == typed)?.checked_sub(1)?;
    let noun = words.get(before)?;
    if noun == "help" {
        return nearest(typed, explains()).map(|name| format!("did you mean mandate help {name}?"));
    }
    let is_it = |name: &str| noun == name || noun.strip_suffix('s') == Some(name);
    let found = TIPS.iter().find(|(name, typing, _)| is_it(name) && typing.contains(&typed.as_str()));
    found.map(|(.., tip)| (*tip).to_owned())
}

/// Where the words of the command itself end.
fn depth(line: &Command, words: &[String]) -> usize {
    let (mut command, mut depth) = (line, 1);
    for (at, word) in words.iter().enumerate().skip(1) {
        if let Some(below) = command.find_subcommand(word) {
            (command, depth) = (below, at + 1);
        }
    }
    depth
}

/// The word after `--json`, if the error is about it.
fn field_without_its_sign<'a>(error: &Error, words: &'a [String]) -> Option<&'a str> {
    if !matches!(
        error.kind(),
        ErrorKind::UnknownArgument
            | ErrorKind::InvalidSubcommand
            | ErrorKind::ValueValidation
            | ErrorKind::InvalidValue
    ) {
        return None;
    }
    let next = words.iter().skip_while(|word| *word != JSON).nth(1)?;
    let named = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand, ContextKind::InvalidValue];
    let is_named = named
        .into_iter()
        .any(|kind| matches!(error.get(kind), Some(ContextValue::String(text)) if text == next));
    (is_named && !next.starts_with('-')).then_some(next)
}
