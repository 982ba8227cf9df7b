//! `mandate`: the command of counterparties, organizations and agents.

mod args;
mod client;
mod command;
mod credential;
mod directory;
mod environment;
mod exit;
mod export;
mod fields;
mod forward;
mod global;
mod http;
mod input;
mod jq;
mod key_set;
mod lines;
mod nonce_store;
mod output;
mod parallel;
mod profile;
mod prompt;
mod proxy;
mod receiver;
mod recording;
mod resource;
mod service;
mod style;
mod table;
mod tail;
mod usage;
mod value;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Args;
use crate::global::Colour;
use crate::output::{Output, say};

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage::end(error).into(),
    };
    match args.global.color {
        Colour::Auto => {}
        Colour::Always => anstream::ColorChoice::Always.write_global(),
        Colour::Never => anstream::ColorChoice::Never.write_global(),
    }
    let mut output = match Output::new(&args.global) {
        Ok(output) => output,
        Err(failure) => {
            say(&failure.render());
            return failure.exit.into();
        }
    };
    let exit = command::run(&args, &mut output).unwrap_or_else(|failure| output.failure(&failure));
    output.finish(exit).into()
}
