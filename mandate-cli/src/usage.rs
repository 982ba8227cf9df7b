//! How a command line that is not run ends: with help, with the version, or with a usage error.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use mandate_core::api_key::masked;

use crate::exit::Exit;
use crate::global::Global;
use crate::output::{Output, say};
use crate::wrap::{each_line, message_width};

/// The option after which a field is often written without an equals sign.
const JSON: &str = "--json";

/// Prints help or version to standard output, and an error to standard error. Lost output is a failure.
pub(crate) fn end(mut error: Error) -> Exit {
    if error.use_stderr() {
        let words: Vec<_> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        if let Some(name) = field_without_its_sign(&error, &words) {
            let tip = format!("to choose fields, join them with an equals sign: '{JSON}={name}'");
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        }
        // It may hold an API key.
        say(&each_line(&masked(&error.render().ansi().to_string()), message_width()));
        return Exit::Usage;
    }
    match Output::new(&Global::default()) {
        Ok(mut output) => {
            output.text(&error.render().ansi().to_string());
            output.finish(Exit::Success)
        }
        Err(failure) => failure.exit,
    }
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
