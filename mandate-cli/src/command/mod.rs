//! The commands, one noun a file: its arguments, its help, and what it does.

pub(crate) mod agent;
pub(crate) mod authorize;
pub(crate) mod inspect;
pub(crate) mod jwks;
pub(crate) mod mandate;
pub(crate) mod manual;
pub(crate) mod verify;

use std::borrow::Cow;

use mandate_core::json::Object;
use zeroize::Zeroizing;

use crate::args::{Args, Command};
use crate::exit::{Exit, Failure};
use crate::input::{Source, without_line_break};
use crate::output::{Output, printable};

/// Room for a token of the longest size and the line break behind it; a longer text is refused without being kept.
const MAX_TOKEN_INPUT: usize = mandate_core::jwt::MAX_TOKEN_BYTES + 2;

/// Runs the command that was typed.
pub(crate) fn run(args: Args, output: &mut Output) -> Result<Exit, Failure> {
    match args.command {
        Command::Verify(args) => verify::run(&args, output),
        Command::Inspect(args) => inspect::run(&args, output),
        Command::Jwks(args) => jwks::run(&args, output),
        Command::Agent(args) => agent::run(args, output),
        Command::Mandate(args) => mandate::run(args, output),
        Command::Authorize(args) => authorize::run(&args, output),
        Command::Manual(manual) => manual::run(manual),
    }
}

/// The token that an argument gives, or the file behind an `@`, or standard input when it is `-`.
fn token(argument: &str) -> Result<Zeroizing<String>, Failure> {
    let source = match (argument, argument.strip_prefix('@')) {
        ("-", _) => Source::Stdin,
        (_, Some(path)) => Source::File(path.into()),
        _ => return Ok(Zeroizing::new(argument.to_owned())),
    };
    let text = source.read("the token", MAX_TOKEN_INPUT, Exit::MalformedToken)?;
    Ok(Zeroizing::new(without_line_break(&text).to_owned()))
}

/// An answer of the service, a JSON object of which the known members are looked at.
struct Answer<'a>(Object<'a>);

impl<'a> Answer<'a> {
    fn read(body: &'a str) -> Result<Self, Failure> {
        Object::parse_as("the answer", body.as_bytes()).map(Self).map_err(|e| unknown(&e.to_string()))
    }

    /// The text of the member `name`.
    fn text(&mut self, name: &'static str) -> Result<Cow<'a, str>, Failure> {
        self.0.require(name).and_then(|f| f.string()).map_err(|e| unknown(&e.to_string()))
    }

    /// The text of the member `name`, if it is there.
    fn optional(&mut self, name: &'static str) -> Result<Option<Cow<'a, str>>, Failure> {
        self.0.take(name).map(|f| f.string()).transpose().map_err(|e| unknown(&e.to_string()))
    }

    /// A line for the member `name`, if it is there.
    fn show(&mut self, label: &str, name: &'static str, output: &mut Output) -> Result<(), Failure> {
        if let Some(text) = self.optional(name)? {
            output.line(label, printable(&text));
        }
        Ok(())
    }

    /// The object that is the member `name`, if it is there.
    fn object(&mut self, name: &'static str) -> Result<Option<Self>, Failure> {
        self.0.take(name).map(|f| f.object().map(Self)).transpose().map_err(|e| unknown(&e.to_string()))
    }
}

fn unknown(why: &str) -> Failure {
    Failure::new(Exit::UnknownAnswer, format!("the service's answer is not understood: {why}"))
        .next("check that --base-url (or MANDATE_BASE_URL) is the service's address, and that this program is not older than it")
}
