//! `mandate`: the command of counterparties, organizations and agents.

mod args;
mod client;
mod command;
mod credential;
mod csv_rows;
mod directory;
mod environment;
mod exit;
mod export;
mod fields;
mod forward;
mod global;
mod governed;
mod help;
mod http;
mod input;
mod jq;
mod key_set;
mod lines;
mod members;
mod mistake;
mod named;
mod nonce_store;
mod output;
mod pager;
mod parallel;
mod period;
mod profile;
mod prompt;
mod proxy;
mod public_log;
mod receiver;
mod recording;
mod resource;
mod service;
mod style;
mod table;
mod tail;
mod usage;
mod value;
mod when;
mod wrap;

use std::process::ExitCode;

use clap_complete::CompleteEnv;

use crate::command::COMPLETING;
use crate::global::Colour;
use crate::output::{Output, say};

fn main() -> ExitCode {
    // A shell that asks for completions gets them here, and the program ends.
    CompleteEnv::with_factory(help::line).var(COMPLETING).complete();
    let args = match help::parsed() {
        Ok(args) => args,
        Err(error) => return usage::end(error).into(),
    };
    match args.global.color {
        Colour::Auto => {}
        Colour::Always => anstream::ColorChoice::Always.write_global(),
        Colour::Never => anstream::ColorChoice::Never.write_global(),
    }
    if args.global.verbose {
        http::be_verbose();
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
