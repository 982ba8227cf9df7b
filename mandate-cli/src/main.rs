//! `mandate`: the command of counterparties, organizations and agents.

mod args;
mod client;
mod command;
mod credential;
mod directory;
mod environment;
mod exit;
mod http;
mod input;
mod key_set;
mod lines;
mod nonce_store;
mod output;
mod parallel;
mod service;
mod value;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Args;
use crate::output::Output;

fn main() -> ExitCode {
    let args = Args::parse();
    let mut output = Output::new(args.json);
    let exit = command::run(args, &mut output).unwrap_or_else(|failure| output.failure(&failure));
    output.finish(exit).into()
}
