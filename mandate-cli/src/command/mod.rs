//! The commands, one file for each noun: arguments, help and action.

pub(crate) mod agent;
pub(crate) mod api;
pub(crate) mod audit;
pub(crate) mod authorize;
pub(crate) mod decision;
pub(crate) mod doctor;
pub(crate) mod enforcement;
pub(crate) mod escrow;
pub(crate) mod event;
pub(crate) mod export;
pub(crate) mod inspect;
pub(crate) mod jwks;
pub(crate) mod listen;
pub(crate) mod log;
pub(crate) mod mandate;
pub(crate) mod manual;
pub(crate) mod mcp;
pub(crate) mod open;
pub(crate) mod plan;
mod printed;
pub(crate) mod profile;
pub(crate) mod reference;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod review;
pub(crate) mod simulate;
pub(crate) mod stop;
pub(crate) mod trigger;
pub(crate) mod usage;
pub(crate) mod verify;
pub(crate) mod version;
pub(crate) mod webhook;

use std::borrow::Cow;
use std::path::Path;

use clap::CommandFactory as _;
use mandate_core::json::Object;
use mandate_core::jwt::Unverified;
use zeroize::Zeroizing;

pub(crate) use self::manual::COMPLETING;
use crate::args::{Args, Command};
use crate::exit::{Exit, Failure};
use crate::input::{Source, without_line_break};
use crate::output::Output;
use crate::style::printable;

/// Room for the longest token and a line break. A longer text is refused without being read whole.
const MAX_TOKEN_INPUT: usize = mandate_core::jwt::MAX_TOKEN_BYTES + 2;

/// What comes before a token in an HTTP header.
const SCHEME: &str = "Bearer ";
/// What is wrong where it was copied, too.
const WITH_SCHEME: &str = "the token begins with `Bearer `, which is no part of it";

/// Runs the command that was typed.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<Exit, Failure> {
    let Args { global, command } = args;
    if output.is_csv() && !has_csv(command) {
        return Err(match command {
            Command::Export(export::Export::Create { .. }) => {
                Failure::new(Exit::Usage, "--format is how this command's answer is printed, which is no CSV")
                    .next("--as csv is the form of the export")
            }
            _ => Failure::new(Exit::Usage, "there is no CSV for this command")
                .next("decision list, usage and report have it; mandate export create --as csv exports all decisions"),
        });
    }
    output.prints(printed::printed(command))?;
    match command {
        Command::Verify(args) => verify::run(args, global, output),
        Command::Inspect(args) => inspect::run(args, output),
        Command::Audit(args) => audit::run(args, global, output),
        Command::Simulate(args) => simulate::run(args, output),
        Command::Report(args) => report::run(args, output),
        Command::Jwks(args) => jwks::run(args, output),
        Command::Log(args) => args.run(global, output),
        Command::Doctor(args) => args.run(global, output),
        Command::Login(args) => args.run(global, output),
        Command::Whoami(args) => args.run(global, output),
        Command::Switch(args) => args.run(output),
        Command::Logout(args) => args.run(global, output),
        Command::Auth(args) => args.run(global, output),
        Command::Profile(args) => args.run(output),
        Command::Agent(args) => args.run(global, output),
        Command::Mandate(args) => args.run(global, output),
        Command::Plan(args) => args.run(global, output),
        Command::Apply(args) => args.run(global, output),
        Command::Drift(args) => args.run(global, output),
        Command::Stop(args) => args.run(global, output),
        Command::Authorize(args) => args.run(global, output),
        Command::Mcp(args) => args.run(global),
        Command::Decision(args) => args.run(global, output),
        Command::Review(args) => args.run(global, output),
        Command::Enforcement(args) => args.run(global, output),
        Command::Webhook(args) => args.run(global, output),
        Command::Event(args) => args.run(global, output),
        Command::Escrow(args) => args.run(global, output),
        Command::Export(args) => args.run(global, output),
        Command::Listen(args) => args.run(global, output),
        Command::Replay(args) => args.run(output),
        Command::Trigger(args) => args.run(global, output),
        Command::Usage(args) => args.run(global, output),
        Command::Api(args) => args.run(global, output),
        Command::Open(args) => args.run(global, output),
        Command::Version(_) => version::Version::run(output),
        Command::Manual(manual) => manual::run(manual, Args::command(), output),
        Command::Reference => Ok(reference::run(Args::command(), output)),
    }
}

/// Whether a command prints rows of CSV.
fn has_csv(command: &Command) -> bool {
    matches!(
        command,
        Command::Decision(decision::Decision::List { .. }) | Command::Usage(_) | Command::Report(_)
    )
}

/// The token that an argument gives, or the file after an `@`, or standard input for `-`.
fn token(argument: &str) -> Result<Zeroizing<String>, Failure> {
    let source = match (argument, argument.strip_prefix('@')) {
        ("-", _) => Source::Stdin,
        (_, Some(path)) => Source::File(path.into()),
        _ if Unverified::parse(argument).is_err() && Path::new(argument).is_file() => {
            return Err(Failure::new(
                Exit::Usage,
                format!("`{argument}` is not a token, but a file has this name"),
            )
            .next(format_args!("@{argument} reads the token from it")));
        }
        _ => return genuine(argument.to_owned().into()),
    };
    let text = source.read_secret("the token", MAX_TOKEN_INPUT, Exit::MalformedToken)?;
    let token = without_line_break(&text);
    if token.is_empty() {
        return Err(Failure::new(
            Exit::MalformedToken,
            format!("there is no token in {source}: it is empty"),
        ));
    }
    genuine(token.to_owned().into())
}

/// The token, unless it is what people give in the place of one.
fn genuine(token: Zeroizing<String>) -> Result<Zeroizing<String>, Failure> {
    if token.is_empty() {
        return Err(Failure::new(
            Exit::MalformedToken,
            "the token is empty: is the variable that holds it set?",
        ));
    }
    if has_scheme(&token) {
        return Err(Failure::new(Exit::MalformedToken, WITH_SCHEME).next("pass what follows that word"));
    }
    Ok(token)
}

/// Whether what precedes a token in an HTTP header was copied with it.
fn has_scheme(token: &str) -> bool {
    token.get(..SCHEME.len()).is_some_and(|start| start.eq_ignore_ascii_case(SCHEME))
}

/// An answer of the service: a JSON object whose known members are read.
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

    /// Prints a line for the member `name`, if it is there.
    fn show(&mut self, label: &str, name: &'static str, output: &mut Output) -> Result<(), Failure> {
        if let Some(text) = self.optional(name)? {
            output.line(label, printable(&text));
        }
        Ok(())
    }

    /// The object in the member `name`, if it is there.
    fn object(&mut self, name: &'static str) -> Result<Option<Self>, Failure> {
        self.0.take(name).map(|f| f.object().map(Self)).transpose().map_err(|e| unknown(&e.to_string()))
    }
}

fn unknown(why: &str) -> Failure {
    Failure::new(Exit::UnknownAnswer, format!("the service's answer is not understood: {why}"))
        .next("check that --base-url (or MANDATE_BASE_URL) is the service's address, and that this program is not older than it")
}

/// Two things cannot both be read from standard input.
fn both_from_standard_input(one: &str, other: &str) -> Failure {
    Failure::new(Exit::Usage, format!("{one} and {other} cannot both come from standard input"))
        .next("name a file for one of them")
}
